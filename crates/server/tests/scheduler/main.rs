//! The scheduler on the demo model, without HTTP. Whatever shares the engine, arrives, leaves or fails, an answer
//! equals that of a separate engine.
#![allow(clippy::unwrap_used)] // A test may panic.

mod drafts;
mod engines;
mod fairness;
mod faults;
mod grammar;
mod pooled;
mod same_bits;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_runtime::{
    CpuEngine, Engine, EngineOptions, Finish, GenerateParams, SamplingParams, Turn,
};
use millrace_server::scheduler::{
    Job, JobEvent, JobFailure, LoadState, ModelMetrics, Receipt, Scheduler, SchedulerOptions,
    TokenLogprob,
};
use tokio::sync::mpsc::UnboundedReceiver;

use engines::{Watched, model, options};

/// One answer as it was received.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    text: String,
    thought: String,
    tokens: Vec<TokenLogprob>,
    finish: Finish,
}

/// The whole result of a job.
#[derive(Clone, Debug)]
struct Outcome {
    answers: Vec<Answer>,
    receipt: Receipt,
}

fn start(engine: EngineOptions, options: SchedulerOptions) -> (Scheduler, Watched) {
    let watched = Watched::new(engine);
    (start_watched(&watched, options), watched)
}

fn start_watched(watched: &Watched, options: SchedulerOptions) -> Scheduler {
    let factory = watched.clone();
    let factory = Arc::new(move || Ok(factory.open()));
    let metrics = Arc::new(ModelMetrics::default());
    let scheduler = Scheduler::start(factory, options, metrics).unwrap();
    loop {
        match scheduler.state() {
            LoadState::Ready(_) => return scheduler,
            LoadState::Loading => std::thread::yield_now(),
            LoadState::Failed(reason) => panic!("{reason}"),
            LoadState::Stopped => panic!("it stopped"),
        }
    }
}

/// Waits for the end of a job.
fn wait(receiver: &mut UnboundedReceiver<JobEvent>) -> Result<Outcome, JobFailure> {
    let mut answers: Vec<(Answer, bool)> = Vec::new();
    let empty = Answer {
        text: String::new(),
        thought: String::new(),
        tokens: Vec::new(),
        finish: Finish::Cancelled,
    };
    loop {
        match receiver
            .blocking_recv()
            .expect("an end before the channel's")
        {
            JobEvent::Prefill { done, total } => assert!(done <= total),
            JobEvent::Delta(delta) => {
                answers.resize(answers.len().max(delta.choice + 1), (empty.clone(), false));
                let (answer, is_finished) = &mut answers[delta.choice];
                assert!(!*is_finished);
                match delta.is_thought {
                    true => answer.thought += &delta.text,
                    false => answer.text += &delta.text,
                }
                answer.tokens.extend(delta.tokens);
            }
            JobEvent::Finished { choice, finish, .. } => {
                answers.resize(answers.len().max(choice + 1), (empty.clone(), false));
                answers[choice].0.finish = finish;
                answers[choice].1 = true;
            }
            JobEvent::Ended(receipt) => {
                assert!(answers.iter().all(|(_, is_finished)| *is_finished));
                let answers = answers.into_iter().map(|(answer, _)| answer).collect();
                return Ok(Outcome { answers, receipt });
            }
            JobEvent::Embedding(_) => panic!("no embedding was wanted"),
            JobEvent::PromptScores(_) => panic!("no scores were wanted"),
            JobEvent::Failed(failure) => return Err(failure),
        }
    }
}

/// The answers of an idle engine without a cache.
fn alone(job: &Job) -> Vec<Answer> {
    let options = EngineOptions {
        keep_prefixes: false,
        ..options()
    };
    let mut engine = CpuEngine::new(model(), options).unwrap();
    let choices = 0..job.n;
    let answer = |choice: usize| {
        let mut params = job.params.clone();
        params.sampling.seed += choice as u64;
        let seq = engine.create().unwrap();
        let mut turn = Turn::new(&model(), &job.prompt, &params, engine.limits().n_ctx).unwrap();
        let mut tokens = Vec::new();
        while let Some(feed) = turn.feed(7) {
            let (n, logits) = (feed.tokens.len(), feed.logits);
            let item = millrace_runtime::BatchItem::new(seq, feed.tokens, logits);
            let output = engine.compute(&[item]).unwrap();
            turn.fed(n);
            if output.logits(0).is_empty() {
                continue;
            }
            let n_before = turn.drawn().len();
            let token = turn.push_logits(output.logits(0)).unwrap().unwrap();
            if let Some(n_top) = job.top_logprobs
                && turn.drawn().len() > n_before
            {
                tokens.push(logprob(output.logits(0), token, n_top));
            }
        }
        engine.release(seq).unwrap();
        let generation = turn.into_generation();
        Answer {
            thought: String::new(),
            text: generation.text,
            tokens,
            finish: generation.finish,
        }
    };
    choices.map(answer).collect()
}

/// By sorting all tokens, without code of the scheduler.
fn logprob(row: &[f32], token: u32, n_top: usize) -> TokenLogprob {
    let of = millrace_runtime::sampling::log_softmax(row);
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    ids.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
    TokenLogprob {
        token,
        logprob: of(token),
        top: ids[..n_top].iter().map(|id| (*id, of(*id))).collect(),
    }
}

fn tokens(text: &str) -> Vec<u32> {
    let tokenizer = model().tokenizer().unwrap();
    let options = millrace_text::EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    tokenizer.encode(text, options)
}

fn chat(question: &str) -> Vec<u32> {
    tokens(&format!("<|user|>{question}<|end|><|assistant|>"))
}

fn job(prompt: Vec<u32>, max_tokens: usize) -> Job {
    let params = GenerateParams {
        max_tokens: Some(max_tokens),
        ..GenerateParams::default()
    };
    Job::new(prompt, params)
}

fn sampled(prompt: Vec<u32>, max_tokens: usize, seed: u64) -> Job {
    let mut job = job(prompt, max_tokens);
    job.params.sampling = SamplingParams {
        temperature: 1.2,
        seed,
        ..SamplingParams::default()
    };
    job
}

#[test]
fn an_answer_is_what_generate_gives() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let job = job(chat("What is 7 plus 5?"), 40);
    let outcome = wait(&mut scheduler.submit(job.clone()).unwrap()).unwrap();
    assert_eq!(outcome.answers[0].text, "7 plus 5 is 12.");
    assert_eq!(outcome.answers[0].finish, Finish::Stop);

    let mut engine = CpuEngine::new(model(), options()).unwrap();
    let seq = engine.create().unwrap();
    let generation = millrace_runtime::generate(
        &mut engine,
        seq,
        &job.prompt,
        &job.params,
        &AtomicBool::new(false),
        &mut |_| {},
    );
    assert_eq!(outcome.answers[0].text, generation.unwrap().text);
    let receipt = outcome.receipt;
    assert_eq!(receipt.n_prompt, job.prompt.len());
    assert_eq!((receipt.n_cached, receipt.n_preempted), (0, 0));
    assert!(receipt.device.starts_with("cpu ("), "{}", receipt.device);
    assert!(receipt.device_time.is_none());
    assert!(!receipt.host.is_zero() && receipt.host <= receipt.total);
    assert!(receipt.queued <= receipt.first_token && receipt.first_token <= receipt.total);
}

#[test]
fn what_cannot_be_done_is_refused_where_it_is_asked() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let refused = |job: Job| scheduler.submit(job).unwrap_err().to_string();
    assert!(refused(job(Vec::new(), 1)).contains("empty"));
    assert!(refused(job(vec![1; 2000], 1)).contains("do not fit the context of 512"));
    assert!(refused(job(vec![99_999], 1)).contains("not in the vocabulary"));
    let mut bad = job(vec![1], 1);
    bad.params.sampling.temperature = -1.0;
    assert!(refused(bad).contains("temperature is -1"));
    // Nothing to write is not an error, and needs no pass.
    let outcome = wait(&mut scheduler.submit(job(vec![1], 0)).unwrap()).unwrap();
    assert_eq!(outcome.answers[0].finish, Finish::Length);
}

#[test]
fn a_model_that_cannot_be_opened_says_why() {
    let factory = Arc::new(|| Err("no such file".to_owned()));
    let metrics = Arc::new(ModelMetrics::default());
    let scheduler = Scheduler::start(factory, SchedulerOptions::default(), metrics).unwrap();
    while matches!(scheduler.state(), LoadState::Loading) {
        std::thread::yield_now();
    }
    let error = scheduler.submit(job(vec![1], 1)).unwrap_err().to_string();
    assert_eq!(error, "the model is not running: no such file");
}
