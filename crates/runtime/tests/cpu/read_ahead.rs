//! Requesting chosen experts from the file before they are multiplied may change only the time.

use std::sync::Arc;

use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, HostMemory, LoadedModel, LogitsFor,
};
use millrace_testkit::golden::Golden;

fn logits(golden: &Golden, reads_ahead: bool) -> Vec<f32> {
    let model = LoadedModel::open(golden.hf()).unwrap();
    let model = Arc::new(model.with_read_ahead(reads_ahead));
    let mut engine = CpuEngine::new(model, EngineOptions::default()).unwrap();
    let seq = engine.create().unwrap();
    let tokens = golden.expected().tokens;
    let item = BatchItem::new(seq, &tokens, LogitsFor::All);
    engine.compute(&[item]).unwrap().logits(0).to_vec()
}

#[test]
fn results_do_not_depend_on_it() {
    for name in ["qwen3moe", "gpt-oss", "deepseek-v3"] {
        let golden = Golden::named(name);
        assert_eq!(logits(&golden, true), logits(&golden, false), "{name}");
    }
}

#[test]
fn this_machine_tells_its_memory() {
    let memory = HostMemory::read();
    if cfg!(target_os = "linux") {
        assert!(memory.available_bytes <= memory.total_bytes);
        assert!(memory.usable_bytes().is_some_and(|bytes| bytes > 0));
    }
}
