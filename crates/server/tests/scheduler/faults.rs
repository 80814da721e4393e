//! A failing device fails only the request that caused it.

use millrace_server::scheduler::{JobFailure, SchedulerOptions};

use crate::engines::{Fault, Watched, options};
use crate::{alone, chat, sampled, start_watched, wait};

pub(crate) fn poisoned(watched: &Watched, fault: Fault) {
    let scheduler = start_watched(watched, SchedulerOptions::default());
    // A token that neither the questions nor the answers contain.
    let poison = crate::tokens("hedgehog")[1];
    watched.poison(poison, fault);
    let mut good: Vec<_> = (0..6)
        .map(|i| sampled(chat("What is 7 plus 5?"), 30, i))
        .collect();
    good.iter_mut().for_each(|job| {
        job.params.ignore_end = true;
        job.params.sampling.logit_bias = vec![(poison, f32::MIN)];
        job.top_logprobs = Some(1);
    });
    let mut bad = sampled(chat("What is 7 plus 5?"), 30, 9);
    bad.prompt.insert(bad.prompt.len() - 2, poison);
    let mut receivers: Vec<_> = good
        .iter()
        .map(|job| scheduler.submit(job.clone()).unwrap())
        .collect();
    let mut bad_receiver = scheduler.submit(bad).unwrap();
    match wait(&mut bad_receiver) {
        Err(JobFailure::Engine(reason)) => assert!(reason.contains("NaN"), "{reason}"),
        other => panic!("{other:?}"),
    }
    for (job, receiver) in good.iter().zip(&mut receivers) {
        assert_eq!(wait(receiver).unwrap().answers, alone(job));
    }
    assert_eq!(scheduler.metrics().snapshot().failed, 1);
}

#[test]
fn that_fails_before_it_computes() {
    poisoned(&Watched::new(options()), Fault::AtOnce);
}

#[test]
fn that_fails_when_others_were_computed() {
    poisoned(&Watched::new(options()), Fault::Amid);
}

#[test]
fn a_fault_that_does_not_return_costs_nobody_an_answer() {
    let watched = Watched::new(options());
    let scheduler = start_watched(&watched, SchedulerOptions::default());
    let jobs: Vec<_> = (0..4).map(|i| sampled(chat("Hello!"), 60, i)).collect();
    let mut receivers: Vec<_> = jobs
        .iter()
        .map(|job| scheduler.submit(job.clone()).unwrap())
        .collect();
    // Wait until all are in one batch.
    while !watched.steps().iter().any(|step| step.len() == 4) {
        assert!(
            scheduler.metrics().snapshot().passes < 500,
            "never together"
        );
        std::thread::yield_now();
    }
    watched.fail(1);
    for (job, receiver) in jobs.iter().zip(&mut receivers) {
        let answers: Vec<_> = wait(receiver).unwrap().answers;
        let expected = alone(job);
        assert_eq!(answers[0].text, expected[0].text);
    }
}

/// More jobs than are computed together: waiting ones could otherwise wait for ever.
#[test]
fn a_lost_rank_ends_every_job_and_is_named() {
    let watched = Watched::new(options());
    let scheduler = start_watched(&watched, SchedulerOptions::default());
    let jobs = || (0..12).map(|i| sampled(chat("Hello!"), 200, i));
    let mut receivers: Vec<_> = jobs().map(|job| scheduler.submit(job).unwrap()).collect();
    while watched.steps().is_empty() {
        std::thread::yield_now();
    }
    watched.lose_rank();
    // And one that is submitted later.
    receivers.extend(jobs().take(1).map(|job| scheduler.submit(job).unwrap()));
    let mut n_lost = 0;
    for receiver in &mut receivers {
        // An answer may have been complete before.
        if let Err(failure) = wait(receiver) {
            assert_eq!(
                failure,
                JobFailure::Engine("rank 2 is lost: it ended; start all ranks again".to_owned())
            );
            n_lost += 1;
        }
    }
    assert!(n_lost > 1, "{n_lost}");
}
