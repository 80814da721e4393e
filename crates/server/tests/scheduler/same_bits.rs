//! Cached, batched, preempted, forked: the same tokens and log-probabilities, bit for bit.

use millrace_runtime::EngineOptions;
use millrace_runtime::sampling::Rng;
use millrace_server::scheduler::{Job, JobEvent, Receipt, Scheduler, SchedulerOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::engines::options;
use crate::{alone, chat, sampled, start, wait};

const QUESTIONS: [&str; 6] = [
    "What is 7 plus 5?",
    "Ben put the ball under the bench. Then he went to the lake. Lucy came and took the ball. Who took the \
     ball?",
    "What does a dog do?",
    "Which day comes after Monday?",
    "My name is Lucy. What is my name?",
    "What rhymes with cat?",
];

/// A long beginning that some prompts share, so that the cache has pages to keep.
fn shared() -> String {
    let names = ["Ben", "Lucy", "Rosie", "Hugo", "Wendy", "Rusty"];
    let places = ["lake", "farm", "meadow", "river", "woods"];
    (0..24)
        .map(|i| format!("{} went to the {}. ", names[i % 6], places[i % 5]))
        .collect()
}

/// Jobs of all kinds: short and long, greedy and sampled, one answer or three.
fn jobs(rng: &mut Rng, n: usize) -> Vec<Job> {
    let mut below = |n: u64| (rng.next_u64() % n) as usize;
    let job = |i| {
        let question = QUESTIONS[below(6)];
        let prompt = match below(3) {
            0 => chat(question),
            _ => chat(&format!("{}{question}", shared())),
        };
        let mut job = sampled(prompt, 1 + below(60), i);
        if below(3) == 0 {
            job.params.sampling.temperature = 0.0;
        }
        job.params.ignore_end = below(2) == 0;
        job.n = [1, 1, 1, 3][below(4)];
        job.top_logprobs = Some(below(6));
        job.client = format!("client {}", below(3)).into();
        job.priority = below(2) as i32;
        job
    };
    (0..n as u64).map(job).collect()
}

fn check(engine: EngineOptions, n_jobs: usize, seed: u64) -> usize {
    let (scheduler, _) = start(engine, SchedulerOptions::default());
    check_with(&scheduler, n_jobs, seed)
}

/// Runs jobs, some of which are cancelled; each other answer must equal that of the job alone. Returns the number of
/// tokens found in the cache.
pub(crate) fn check_with(scheduler: &Scheduler, n_jobs: usize, seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let jobs = jobs(&mut rng, n_jobs);
    let receivers: Vec<_> = jobs
        .iter()
        .map(|job| {
            // Some are cancelled before, some during their run.
            let gone = scheduler.submit(job.clone()).unwrap();
            match rng.next_u64() % 3 {
                0 => drop(gone),
                1 => drop(std::thread::spawn(move || {
                    let mut gone = gone;
                    for _ in 0..2 {
                        gone.blocking_recv();
                    }
                })),
                _ => return (job, gone),
            }
            (job, scheduler.submit(job.clone()).unwrap())
        })
        .collect();
    let mut n_cached = 0;
    for (i, (job, mut receiver)) in receivers.into_iter().enumerate() {
        let outcome = wait(&mut receiver).unwrap();
        assert_eq!(outcome.answers, alone(job), "job {i} of seed {seed}");
        n_cached += outcome.receipt.n_cached;
    }
    n_cached
}

#[test]
fn with_room_for_all() {
    let n_cached = check(options(), 12, 1);
    assert!(n_cached > 0, "nothing was cached, so nothing was tested");
}

/// Tokens of a pass are drawn on all threads of the engine.
#[test]
fn with_several_threads() {
    let threads = EngineOptions {
        n_threads: Some(3),
        ..options()
    };
    check(threads, 12, 7);
}

/// Twelve pages, for four answers that need four each and prompts of up to nine.
#[test]
fn with_a_cache_so_small_that_answers_must_give_way() {
    let small = EngineOptions {
        kv_tokens: Some(768),
        ..options()
    };
    let n_cached = check(small.clone(), 8, 2);
    assert!(n_cached > 0, "nothing was cached, so nothing was tested");

    let (scheduler, _) = start(small, SchedulerOptions::default());
    let jobs: Vec<_> = (0..5)
        .map(|i| {
            let mut job = sampled(chat(QUESTIONS[i % 6]), 260, i as u64);
            job.params.ignore_end = true;
            job.top_logprobs = Some(1);
            job
        })
        .collect();
    let mut receivers: Vec<_> = jobs
        .iter()
        .map(|job| scheduler.submit(job.clone()).unwrap())
        .collect();
    let mut n_preempted = 0;
    for (job, receiver) in jobs.iter().zip(&mut receivers) {
        let outcome = wait(receiver).unwrap();
        assert_eq!(outcome.answers, alone(job));
        n_preempted += outcome.receipt.n_preempted;
    }
    assert!(n_preempted > 0, "nothing gave way, so nothing was tested");
}

/// The prompt scores in each of a job's events.
fn prompt_scores(receiver: &mut UnboundedReceiver<JobEvent>) -> (Vec<String>, Receipt) {
    let mut heard = Vec::new();
    loop {
        match receiver.blocking_recv().expect("an end") {
            JobEvent::PromptScores(scores) => heard.push(format!("{scores:?}")),
            JobEvent::Ended(receipt) => return (heard, receipt),
            JobEvent::Failed(failure) => panic!("{failure}"),
            _ => {}
        }
    }
}

/// A prompt that is computed again is scored once, with the same bits as alone.
#[test]
fn scores_of_prompts_that_give_way() {
    let small = EngineOptions {
        kv_tokens: Some(768),
        ..options()
    };
    let jobs: Vec<_> = (0..5)
        .map(|i| {
            let mut job = sampled(
                chat(&format!("{}{}", QUESTIONS[i], shared())),
                100,
                i as u64,
            );
            job.params.ignore_end = true;
            job.prompt_logprobs = Some(1);
            job
        })
        .collect();
    let (crowded, _) = start(small, SchedulerOptions::default());
    let submit = |job: &Job| crowded.submit(job.clone()).unwrap();
    let mut receivers: Vec<_> = jobs.iter().map(submit).collect();
    let (roomy, _) = start(options(), SchedulerOptions::default());
    let mut n_preempted = 0;
    for (job, receiver) in jobs.iter().zip(&mut receivers) {
        let (found, receipt) = prompt_scores(receiver);
        let (expected, _) = prompt_scores(&mut roomy.submit(job.clone()).unwrap());
        assert_eq!((found.len(), &found), (1, &expected));
        n_preempted += receipt.n_preempted;
    }
    assert!(n_preempted > 0, "nothing gave way, so nothing was tested");
}

#[test]
fn with_more_answers_to_a_job_than_sequences() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let mut job = sampled(chat(QUESTIONS[2]), 20, 5);
    job.n = 7;
    job.top_logprobs = Some(2);
    let outcome = wait(&mut scheduler.submit(job.clone()).unwrap()).unwrap();
    assert_eq!(outcome.answers, alone(&job));
    let texts: std::collections::BTreeSet<_> =
        outcome.answers.iter().map(|answer| &answer.text).collect();
    assert!(texts.len() > 1, "seeds differ, so answers should");
}

#[test]
fn a_retry_finds_its_prompt_cached() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let mut job = sampled(chat(&shared()), 4, 5);
    job.top_logprobs = Some(2);
    let first = wait(&mut scheduler.submit(job.clone()).unwrap()).unwrap();
    let second = wait(&mut scheduler.submit(job.clone()).unwrap()).unwrap();
    assert_eq!(first.answers, second.answers);
    assert_eq!(first.receipt.n_cached, 0);
    // All but the last token, up to the last full page.
    let n_cached = second.receipt.n_cached;
    assert!(
        n_cached >= job.prompt.len() - 64 && n_cached.is_multiple_of(64),
        "{n_cached}"
    );
}

/// A prompt of seven pages or more, and another that differs after six of them.
fn two_of_a_kind() -> [Job; 2] {
    let beginning = shared().repeat(2);
    QUESTIONS[..2]
        .try_into()
        .map(|questions: [&str; 2]| {
            questions.map(|question| {
                let mut job = sampled(chat(&format!("{beginning}{question}")), 4, 5);
                job.top_logprobs = Some(2);
                job
            })
        })
        .unwrap()
}

/// Prompts with a common beginning that arrive together are read once: the second waits for the beginning, and others
/// do not wait.
#[test]
fn a_beginning_that_is_being_read_is_not_read_twice() {
    let (scheduler, watched) = start(options(), SchedulerOptions::default());
    let [first, second] = two_of_a_kind();
    let other = sampled(chat(QUESTIONS[2]), 4, 5);
    let held = watched.hold();
    let mut receivers = [&first, &second, &other].map(|job| scheduler.submit(job.clone()).unwrap());
    drop(held);
    let [a, b, c] = receivers.each_mut().map(|receiver| wait(receiver).unwrap());
    assert_eq!(a.answers, alone(&first));
    assert_eq!(b.answers, alone(&second));
    assert_eq!(c.answers.len(), 1);
    assert_eq!((a.receipt.n_cached, c.receipt.n_cached), (0, 0));
    let common = first.prompt.iter().zip(&second.prompt);
    let n_common = common.take_while(|(a, b)| a == b).count();
    assert!(n_common > 128 + 64, "more than the first pass reads");
    assert_eq!(b.receipt.n_cached, n_common / 64 * 64);
    // The third was computed beside the first, in its first pass or in the next.
    let n_before = watched
        .steps()
        .iter()
        .take_while(|step| step.len() == 1)
        .count();
    assert!(n_before <= 1, "{:?}", watched.steps());
}

/// No answer waits for a less urgent one.
#[test]
fn an_urgent_answer_does_not_wait_for_another_s_beginning() {
    let (scheduler, watched) = start(options(), SchedulerOptions::default());
    let [mut first, mut second] = two_of_a_kind();
    (first.priority, second.priority) = (1, 0);
    let held = watched.hold();
    let mut receivers = [&first, &second].map(|job| scheduler.submit(job.clone()).unwrap());
    drop(held);
    let [a, b] = receivers.each_mut().map(|receiver| wait(receiver).unwrap());
    assert_eq!((a.answers, b.answers), (alone(&first), alone(&second)));
    // Both may have arrived before the first pass, or the second after it.
    assert!(b.receipt.n_cached <= 128, "{}", b.receipt.n_cached);
}
