//! Embeddings that must restart.

use std::time::Duration;

use millrace_runtime::{BatchItem, CpuEngine, Embedder, Engine, EngineOptions, LogitsFor, Pooling};
use millrace_server::scheduler::{Job, JobEvent, SchedulerOptions};

use crate::engines::{Watched, model, options};
use crate::{chat, job, start_watched, wait};

/// Result of an idle engine, with all tokens in one step.
fn expected(tokens: &[u32], pooling: Pooling) -> Vec<f32> {
    let mut engine = CpuEngine::new(model(), options()).unwrap();
    let embedder = Embedder::new(&model()).unwrap();
    let seq = engine.create().unwrap();
    let item = BatchItem {
        hidden: true,
        ..BatchItem::new(seq, tokens, LogitsFor::None)
    };
    let output = engine.compute(&[item]).unwrap();
    let mut embedding = embedder.begin(pooling);
    embedder.push(&mut embedding, &output.hidden(0)[embedder.state()]);
    embedding.finish().unwrap()
}

/// One sequence, and a job of an earlier priority that takes it during the text.
#[test]
fn one_that_gives_way_amid_its_text_is_the_same() {
    let engine = EngineOptions {
        max_sequences: 1,
        max_chunk: 16,
        ..options()
    };
    let watched = Watched::slow(engine, Duration::from_millis(5));
    let scheduler = start_watched(&watched, SchedulerOptions::default());
    let text: Vec<u32> = (0..400).map(|i| 5 + i * 37 % 1000).collect();
    for pooling in [Pooling::Mean, Pooling::Last] {
        let embed = Job {
            embed: Some(pooling),
            ..job(text.clone(), 1)
        };
        let n_before = watched.steps().len();
        let mut receiver = scheduler.submit(embed).unwrap();
        while watched.steps().len() < n_before + 3 {
            std::thread::yield_now();
        }
        let first = Job {
            priority: -1,
            ..job(chat("What is 7 plus 5?"), 5)
        };
        wait(&mut scheduler.submit(first).unwrap()).unwrap();
        let mut vector = None;
        let receipt = loop {
            match receiver.blocking_recv().unwrap() {
                JobEvent::Embedding(found) => vector = Some(found),
                JobEvent::Ended(receipt) => break receipt,
                JobEvent::Failed(failure) => panic!("{failure}"),
                _ => {}
            }
        };
        assert_eq!(receipt.n_preempted, 1);
        assert_eq!(
            (receipt.n_prompt, receipt.n_cached, receipt.n_generated),
            (400, 0, 0)
        );
        assert_eq!(vector.unwrap(), expected(&text, pooling));
    }
}
