//! Drafts change the number of rows that a pass computes, but no result.

use std::path::Path;
use std::sync::Arc;

use millrace_runtime::{CpuEngine, EngineOptions, Finish, LoadedModel, Speculator};
use millrace_server::grammar::Grammar;
use millrace_server::scheduler::{Job, MAX_PASS_DRAFTS, Scheduler, SchedulerOptions, Snapshot};
use serde_json::json;

use crate::engines::{Fault, Watched, embedded, model, options};
use crate::faults::poisoned;
use crate::same_bits::check_with;
use crate::{Answer, alone, chat, job, sampled, start, start_watched, tokens, wait};

/// The small demo model, which always drafts `n` tokens: timing does not affect the test.
fn by_model(options: EngineOptions, n: usize) -> Speculator {
    let engine = CpuEngine::new(embedded("demo-draft.gguf"), options).unwrap();
    let speculator = Speculator::model(Box::new(engine), &model());
    speculator.unwrap().always(n)
}

fn start_drafted(watched: Watched) -> (Scheduler, Watched) {
    let scheduler = start_watched(&watched, SchedulerOptions::default());
    (scheduler, watched)
}

fn drafted(options: EngineOptions, n: usize) -> (Scheduler, Watched) {
    start_drafted(Watched::new(options).drafted(move |options| by_model(options, n)))
}

/// Checks that some drafts were drawn, some were not, and no pass was too wide.
fn was_tested(scheduler: &Scheduler, watched: &Watched) {
    let counted = scheduler.metrics().snapshot();
    assert!(counted.accepted_tokens > 0, "{counted:?}");
    assert!(
        counted.accepted_tokens < counted.drafted_tokens,
        "{counted:?}"
    );
    assert_eq!(counted.draft_failures, 0);
    let is_shared = |step: &Vec<(usize, usize)>| {
        step.len() > 1 && step.iter().filter(|(_, n_new)| *n_new > 1).count() > 1
    };
    assert!(watched.steps().iter().any(is_shared), "nothing was mixed");
}

#[test]
fn answers_have_the_bits_that_they_have_without() {
    let (scheduler, watched) = drafted(options(), 3);
    check_with(&scheduler, 8, 1);
    was_tested(&scheduler, &watched);
    let (scheduler, watched) =
        start_drafted(Watched::new(options()).drafted(|_| Speculator::ngram().always(5)));
    check_with(&scheduler, 6, 3);
    was_tested(&scheduler, &watched);
}

/// The model's own MTP layer drafts with chunked prompts and shared passes, in a cache too small for all. Which
/// answers are preempted depends on timing.
#[test]
fn so_they_do_with_the_models_own_layer() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/drafts/qwen35/model.f32.gguf"
    );
    let model = Arc::new(LoadedModel::open(Path::new(path)).unwrap());
    let small = EngineOptions {
        kv_tokens: Some(320),
        max_chunk: 32,
        ..options()
    };
    let by_layer = {
        let model = Arc::clone(&model);
        move |options: EngineOptions| {
            let layer = Arc::new(model.draft_layer().unwrap());
            let engine = CpuEngine::new(layer, options).unwrap();
            let speculator = Speculator::layer(Box::new(engine), &model);
            speculator.unwrap().always(3)
        }
    };
    let watched = Watched::of(Arc::clone(&model), small.clone());
    let (plain, _) = answers(start_watched(&watched, SchedulerOptions::default()));
    let watched = Watched::of(model, small).drafted(by_layer);
    let (drafted, counted) = answers(start_watched(&watched, SchedulerOptions::default()));
    assert_eq!(drafted, plain);
    assert!(counted.drafted_tokens > 100, "{counted:?}");
    assert_eq!(counted.draft_failures, 0);
}

/// So do those of an assistant, which reads the engine's cache while pages come and go.
#[test]
fn so_they_do_with_an_assistant() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let model = LoadedModel::open(&testdata.join("goldens/gemma4/model.f32.gguf"));
    let model = Arc::new(model.unwrap());
    let small = EngineOptions {
        kv_tokens: Some(320),
        max_chunk: 32,
        ..options()
    };
    let by_assistant = {
        let model = Arc::clone(&model);
        move |options: EngineOptions| {
            let draft = testdata.join("assistants/gemma4/model.f32.gguf");
            let draft = LoadedModel::open_draft(&draft).unwrap();
            let engine = CpuEngine::new(Arc::clone(&model), options).unwrap();
            Speculator::assistant(&draft, &engine).unwrap().always(3)
        }
    };
    let watched = Watched::of(Arc::clone(&model), small.clone());
    let (plain, _) = answers(start_watched(&watched, SchedulerOptions::default()));
    let watched = Watched::of(model, small).drafted(by_assistant);
    let (drafted, counted) = answers(start_watched(&watched, SchedulerOptions::default()));
    assert_eq!(drafted, plain);
    assert!(counted.drafted_tokens > 100, "{counted:?}");
    assert_eq!(counted.draft_failures, 0);
}

/// Five sampled answers to prompts of different lengths, and the counters.
fn answers(scheduler: Scheduler) -> (Vec<Vec<Answer>>, Snapshot) {
    let job = |i: u32| {
        let prompt = (0..60 + i).map(|at| 40 + (at * 7 + i) % 90).collect();
        let mut job = sampled(prompt, 120, u64::from(i));
        job.params.ignore_end = true;
        job
    };
    let receivers: Vec<_> = (0..5).map(|i| scheduler.submit(job(i)).unwrap()).collect();
    let outcomes = receivers
        .into_iter()
        .map(|mut receiver| wait(&mut receiver).unwrap());
    let answers: Vec<_> = outcomes.map(|outcome| outcome.answers).collect();
    (answers, scheduler.metrics().snapshot())
}

/// The configuration of a real server: timing decides how many tokens are drafted.
#[test]
fn so_they_do_where_drafts_follow_their_times() {
    let watched = Watched::new(options()).drafted(|options| {
        let engine = CpuEngine::new(embedded("demo-draft.gguf"), options).unwrap();
        Speculator::model(Box::new(engine), &model()).unwrap()
    });
    let (scheduler, _) = start_drafted(watched);
    check_with(&scheduler, 4, 4);
}

#[test]
fn so_they_do_where_answers_must_give_way() {
    let small = EngineOptions {
        kv_tokens: Some(768),
        ..options()
    };
    let (scheduler, watched) = drafted(small, 6);
    let endless = |i: u64| {
        let mut job = sampled(chat("What does a dog do?"), 260, i);
        job.params.ignore_end = true;
        job.top_logprobs = Some(1);
        job
    };
    let jobs: Vec<Job> = (0..5).map(endless).collect();
    let submit = |job: &Job| scheduler.submit(job.clone()).unwrap();
    let receivers: Vec<_> = jobs.iter().map(submit).collect();
    let mut n_preempted = 0;
    for (job, mut receiver) in jobs.iter().zip(receivers) {
        let outcome = wait(&mut receiver).unwrap();
        assert_eq!(outcome.answers, alone(job));
        n_preempted += outcome.receipt.n_preempted;
    }
    assert!(n_preempted > 0, "nothing gave way, so nothing was tested");
    was_tested(&scheduler, &watched);
}

/// The end of a context, a stop text among drafts, a limit: each ends an answer at the same token as without drafts.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn so_they_do_at_every_end() {
    let (scheduler, _) = drafted(options(), 31);
    let mut full = job(chat("What rhymes with cat?"), 600);
    full.params.max_tokens = None;
    full.params.ignore_end = true;
    let mut stopped = job(tokens("Once upon a time, there was a little"), 60);
    let text = alone(&stopped).remove(0).text;
    let amid: String = text
        .chars()
        .skip(text.chars().count() / 2)
        .take(6)
        .collect();
    stopped.params.stop = vec![amid];
    let jobs = [
        (full, Finish::Length),
        (stopped, Finish::StopText),
        (job(chat("What is 7 plus 5?"), 40), Finish::Stop),
        (job(chat("What is 7 plus 5?"), 3), Finish::Length),
        (job(chat("What is 7 plus 5?"), 1), Finish::Length),
    ];
    let submit = |job: &Job| scheduler.submit(job.clone()).unwrap();
    let receivers: Vec<_> = jobs.iter().map(|(job, _)| submit(job)).collect();
    for ((job, finish), mut receiver) in jobs.iter().zip(receivers) {
        let outcome = wait(&mut receiver).unwrap();
        let expected = alone(job);
        assert_eq!(outcome.answers[0].text, expected[0].text);
        assert_eq!(outcome.answers[0].finish, expected[0].finish);
        if job.params.max_tokens.is_some() {
            assert_eq!(outcome.answers[0].finish, *finish);
        }
    }
}

/// The grammar is applied before the draw, also with drafts.
#[test]
fn a_form_is_kept_and_the_same() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"enum": ["Paris", "Rome"]},
            "days": {"type": "array", "items": {"enum": ["Monday", "Tuesday"]}, "minItems": 4, "maxItems": 4},
        },
        "required": ["city", "days"],
        "additionalProperties": false,
    });
    let formed = |seed: u64| {
        let mut job = sampled(chat("Which day comes after Monday?"), 200, seed);
        job.params.sampling.temperature = 0.5 * seed as f32;
        job.grammar = Some(Grammar::JsonSchema(schema.clone()));
        job.top_logprobs = Some(2);
        job
    };
    let ngram = Watched::new(options()).drafted(|_| Speculator::ngram().always(4));
    let (ngram, _) = start_drafted(ngram);
    let (plain, _) = start(options(), SchedulerOptions::default());
    let (by_model, _) = drafted(options(), 4);
    for seed in 0..4 {
        let answer = |scheduler: &Scheduler| {
            let mut receiver = scheduler.submit(formed(seed)).unwrap();
            wait(&mut receiver).unwrap().answers.remove(0)
        };
        let expected = answer(&plain);
        let value: serde_json::Value = serde_json::from_str(&expected.text).unwrap();
        assert_eq!(value["days"].as_array().unwrap().len(), 4);
        assert_eq!(answer(&ngram), expected, "seed {seed}");
        assert_eq!(answer(&by_model), expected, "seed {seed}");
    }
    let counted = ngram.metrics().snapshot();
    assert!(counted.accepted_tokens > 0, "{counted:?}");
}

#[test]
fn what_was_drafted_is_told() {
    let (scheduler, _) = drafted(options(), 4);
    let mut receiver = scheduler
        .submit(job(chat("What is 7 plus 5?"), 40))
        .unwrap();
    let receipt = wait(&mut receiver).unwrap().receipt;
    let drafts = receipt.drafts.unwrap();
    let counted = scheduler.metrics().snapshot();
    assert_eq!(counted.drafted_tokens, drafts.n_drafted as u64);
    assert_eq!(counted.accepted_tokens, drafts.n_accepted as u64);
    assert!(drafts.n_accepted > 0 && counted.checks > 0);
    assert!(receipt.host <= receipt.total);
    let (plain, _) = start(options(), SchedulerOptions::default());
    let mut receiver = plain.submit(job(chat("What is 7 plus 5?"), 40)).unwrap();
    assert_eq!(wait(&mut receiver).unwrap().receipt.drafts, None);
}

/// All answers of a pass share the maximum number of drafts.
#[test]
fn a_pass_is_no_wider_than_it_may_be() {
    let (scheduler, watched) = drafted(options(), 31);
    let jobs: Vec<Job> = (0..4)
        .map(|i| {
            let mut job = sampled(chat("What does a dog do?"), 60, i);
            job.params.ignore_end = true;
            job
        })
        .collect();
    let submit = |job: &Job| scheduler.submit(job.clone()).unwrap();
    let receivers: Vec<_> = jobs.iter().map(submit).collect();
    for mut receiver in receivers {
        wait(&mut receiver).unwrap();
    }
    // Only steps that write: the sequence of a new prompt is empty.
    let writes = |step: &&Vec<(usize, usize)>| step.iter().all(|(n_held, _)| *n_held > 0);
    let steps = watched.steps();
    let rows = steps
        .iter()
        .filter(writes)
        .map(|step| step.iter().map(|(_, n_new)| n_new).sum::<usize>());
    let widest = rows.max().unwrap();
    assert!(
        widest > 32 && widest <= 4 + MAX_PASS_DRAFTS,
        "{widest} rows"
    );
}

/// With a broken draft model, the answers still complete, and the failure is counted.
#[test]
fn a_draft_model_that_fails_fails_no_answer() {
    let watched = Watched::new(options()).drafted(|options| {
        let broken = Watched::of(embedded("demo-draft.gguf"), options);
        broken.fail(1);
        let speculator = Speculator::model(broken.engine(), &model());
        speculator.unwrap().always(4)
    });
    let (scheduler, _) = start_drafted(watched);
    let job = job(chat("What is 7 plus 5?"), 40);
    let outcome = wait(&mut scheduler.submit(job.clone()).unwrap()).unwrap();
    assert_eq!(outcome.answers, alone(&job));
    let counted = scheduler.metrics().snapshot();
    assert_eq!((counted.draft_failures, counted.drafted_tokens), (1, 0));
}

/// Failed steps are rolled back, drafts included.
#[test]
fn a_fault_of_the_engine_stays_with_its_cause() {
    let watched = Watched::new(options()).drafted(|options| by_model(options, 4));
    poisoned(&watched, Fault::Amid);
}
