//! The order of service: bounded delay, fairness between clients, priorities, limits, cancellation.

use std::time::{Duration, Instant};

use millrace_runtime::EngineOptions;
use millrace_server::scheduler::{
    Job, JobEvent, JobFailure, Scheduler, SchedulerOptions, SubmitError,
};

use crate::engines::{Watched, options};
use crate::{chat, job, start, start_watched, wait};

/// A job that continues for this many tokens, past the model's end tokens.
fn endless(prompt: Vec<u32>, n_tokens: usize) -> Job {
    let mut job = job(prompt, n_tokens);
    job.params.ignore_end = true;
    job
}

/// A scheduler on an engine whose answers of hundreds of tokens take seconds.
fn start_slow(engine: EngineOptions, options: SchedulerOptions) -> Scheduler {
    start_watched(&Watched::slow(engine, Duration::from_millis(10)), options)
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn until_running(scheduler: &Scheduler, n: u64) {
    until("running", || scheduler.metrics().snapshot().n_running == n);
}

#[test]
fn a_long_prompt_does_not_stall_answers() {
    let options_now = SchedulerOptions {
        max_delay: Duration::ZERO,
        ..SchedulerOptions::default()
    };
    let (scheduler, watched) = start(options(), options_now);
    let mut writer = scheduler.submit(endless(chat("Hello!"), 120)).unwrap();
    until("writing", || {
        scheduler.metrics().snapshot().generated_tokens > 2
    });
    let long = chat(&"Ben went to the lake. ".repeat(40));
    assert!(long.len() > 240);
    let n_long = long.len();
    let mut reader = scheduler.submit(job(long, 3)).unwrap();
    wait(&mut reader).unwrap();
    wait(&mut writer).unwrap();
    let steps = watched.steps();
    // While both run, every pass has a token of the answer, and only the minimum number of prompt tokens.
    let shared: Vec<_> = steps.iter().filter(|step| step.len() == 2).collect();
    assert!(
        shared.len() >= n_long / 16,
        "{} shared passes",
        shared.len()
    );
    for step in &shared {
        let mut sizes: Vec<usize> = step.iter().map(|(_, n)| *n).collect();
        sizes.sort_unstable();
        assert!(sizes[0] == 1 && sizes[1] <= 16, "{sizes:?}");
    }
    // Alone, a prompt takes whole chunks.
    let (scheduler, watched) = start(options(), SchedulerOptions::default());
    let long = chat(&"Ben went to the lake. ".repeat(40));
    wait(&mut scheduler.submit(job(long, 1)).unwrap()).unwrap();
    assert_eq!(watched.steps()[0], [(0, 128)]);
}

#[test]
fn prompts_that_many_wait_for_are_read_in_larger_parts() {
    let options_now = SchedulerOptions {
        max_delay: Duration::ZERO,
        ..SchedulerOptions::default()
    };
    let (scheduler, watched) = start(options(), options_now);
    let mut writer = scheduler.submit(endless(chat("Hello!"), 120)).unwrap();
    until("writing", || {
        scheduler.metrics().snapshot().generated_tokens > 2
    });
    let readers = ["Ben", "Tom", "Mia"].map(|name| {
        let long = chat(&format!("{name} went to the lake. ").repeat(40));
        scheduler.submit(job(long, 3)).unwrap()
    });
    for mut reader in readers {
        wait(&mut reader).unwrap();
    }
    wait(&mut writer).unwrap();
    let sizes = watched.steps();
    let sizes = sizes.iter().map(|step| step.iter().map(|(_, n)| n).sum());
    let sizes: Vec<usize> = sizes.collect();
    // A token of the answer and 48 prompt tokens while more answers wait than are written; 16 while one waits.
    assert!(sizes.contains(&49), "{sizes:?}");
    assert!(sizes.iter().any(|n| (17..=20).contains(n)), "{sizes:?}");
}

#[test]
fn of_two_prompts_the_shorter_does_not_wait_for_the_longer() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    // Both are in the queue before the first pass with either.
    let mut first = scheduler.submit(endless(chat("Hello!"), 30)).unwrap();
    let mut long = scheduler
        .submit(job(chat(&"Ben went to the lake. ".repeat(60)), 1))
        .unwrap();
    let mut short = scheduler.submit(job(chat("Who are you?"), 1)).unwrap();
    let first_token = |outcome: crate::Outcome| outcome.receipt.first_token;
    let short = first_token(wait(&mut short).unwrap());
    let long = first_token(wait(&mut long).unwrap());
    assert!(short < long, "{short:?} {long:?}");
    wait(&mut first).unwrap();
}

#[test]
fn a_client_with_many_requests_does_not_hold_up_another() {
    let two = EngineOptions {
        max_sequences: 2,
        ..options()
    };
    let (scheduler, _) = start(two, SchedulerOptions::default());
    let with_client = |name: &str| {
        let mut job = endless(chat("Hello!"), 10);
        job.client = name.into();
        job
    };
    let mut busy: Vec<_> = (0..12)
        .map(|_| scheduler.submit(with_client("busy")).unwrap())
        .collect();
    let mut other = scheduler.submit(with_client("other")).unwrap();
    wait(&mut other).unwrap();
    // Two were running, and one may have been admitted beside it.
    let is_done = |receiver: &mut tokio::sync::mpsc::UnboundedReceiver<JobEvent>| {
        std::iter::from_fn(|| receiver.try_recv().ok())
            .any(|event| matches!(event, JobEvent::Ended(_)))
    };
    let n_done = busy
        .iter_mut()
        .filter_map(|busy| is_done(busy).then_some(()))
        .count();
    assert!(
        n_done <= 4,
        "{n_done} of the busy client's were served first"
    );
}

#[test]
fn a_higher_priority_takes_the_place_of_a_lower() {
    let one = EngineOptions {
        max_sequences: 1,
        ..options()
    };
    let scheduler = start_slow(one, SchedulerOptions::default());
    let mut low = endless(chat("Hello!"), 100);
    low.priority = 5;
    let expected = crate::alone(&low);
    let mut low = scheduler.submit(low).unwrap();
    until("writing", || {
        scheduler.metrics().snapshot().generated_tokens > 2
    });
    let high = endless(chat("Who are you?"), 5);
    wait(&mut scheduler.submit(high).unwrap()).unwrap();
    assert_eq!(scheduler.metrics().snapshot().preemptions, 1);
    let low = wait(&mut low).unwrap();
    assert_eq!(low.answers, expected);
    assert_eq!(low.receipt.n_preempted, 1);
}

#[test]
fn a_full_queue_refuses_and_says_when_to_come_back() {
    let one = EngineOptions {
        max_sequences: 1,
        ..options()
    };
    let limits = SchedulerOptions {
        max_queue: 2,
        ..SchedulerOptions::default()
    };
    let scheduler = start_slow(one, limits);
    let _running = scheduler.submit(endless(chat("Hello!"), 400)).unwrap();
    until_running(&scheduler, 1);
    let _waiting: Vec<_> = (0..2)
        .map(|_| scheduler.submit(endless(chat("Hello!"), 400)).unwrap())
        .collect();
    match scheduler.submit(job(chat("Hello!"), 1)) {
        Err(SubmitError::QueueFull {
            n_waiting,
            retry_after,
        }) => {
            assert_eq!(n_waiting, 2);
            assert!((1..=60).contains(&retry_after.as_secs()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scheduler.metrics().snapshot().refused, 1);
}

#[test]
fn deadlines_end_what_waits_and_what_runs() {
    let one = EngineOptions {
        max_sequences: 1,
        ..options()
    };
    let scheduler = start_slow(one, SchedulerOptions::default());
    let mut late = endless(chat("Hello!"), 450);
    late.deadline = Some(Instant::now() + Duration::from_millis(60));
    let mut running = scheduler.submit(late.clone()).unwrap();
    let mut waiting = scheduler.submit(late).unwrap();
    assert_eq!(wait(&mut running).unwrap_err(), JobFailure::Deadline);
    assert_eq!(wait(&mut waiting).unwrap_err(), JobFailure::Deadline);
    until_running(&scheduler, 0);
    wait(&mut scheduler.submit(job(chat("Hello!"), 2)).unwrap()).unwrap();
}

#[test]
fn whoever_goes_away_leaves_nothing() {
    let scheduler = start_slow(options(), SchedulerOptions::default());
    let receivers: Vec<_> = (0..9)
        .map(|_| scheduler.submit(endless(chat("Hello!"), 450)).unwrap())
        .collect();
    until_running(&scheduler, 4);
    assert!(scheduler.metrics().snapshot().kv_used_bytes > 0);
    // Cancelled in the queue while others run.
    let waiting = || scheduler.metrics().snapshot().n_waiting;
    until("all seen", || waiting() == 5);
    let gone = scheduler.submit(endless(chat("Hello!"), 450)).unwrap();
    until("waiting", || waiting() == 6);
    drop(gone);
    until("gone", || waiting() == 5);
    assert_eq!(scheduler.metrics().snapshot().n_running, 4);
    drop(receivers);
    until_running(&scheduler, 0);
    let snapshot = scheduler.metrics().snapshot();
    assert_eq!((snapshot.n_waiting, snapshot.kv_used_bytes), (0, 0));
    assert_eq!(snapshot.aborted, 10);
    // Cancelling a job drops all answers to its prompt.
    let mut several = endless(chat("Hello!"), 450);
    several.n = 6;
    let several = scheduler.submit(several).unwrap();
    until_running(&scheduler, 4);
    drop(several);
    until_running(&scheduler, 0);
    assert_eq!(scheduler.metrics().snapshot().n_waiting, 0);
    assert_eq!(scheduler.metrics().snapshot().aborted, 11);
}

#[test]
fn draining_completes_what_was_accepted_and_refuses_what_was_not() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let mut accepted: Vec<_> = (0..6)
        .map(|_| scheduler.submit(endless(chat("Hello!"), 20)).unwrap())
        .collect();
    scheduler.drain(Duration::from_secs(60));
    let refused = scheduler.submit(job(chat("Hello!"), 1));
    assert!(matches!(refused, Err(SubmitError::Unloading)));
    for receiver in &mut accepted {
        wait(receiver).unwrap();
    }
    until("stopped", || scheduler.loaded().is_err());

    // Without a grace period, the rest fails.
    let scheduler = start_slow(options(), SchedulerOptions::default());
    let mut receiver = scheduler.submit(endless(chat("Hello!"), 450)).unwrap();
    scheduler.drain(Duration::ZERO);
    assert_eq!(wait(&mut receiver).unwrap_err(), JobFailure::ShuttingDown);
}
