//! Vocabularies that are not a multiple of the head's parts: logits of the array compared with the host's.

use crate::support::{OneLayer, load, padded_to};
use millrace_runtime::npu::NpuSession;
use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, LoadedModel};
use millrace_xdna2::lower::{Features, Mode};
use std::sync::Arc;

/// Logits after the prompt, then after one token more.
fn on_the_array(model: &Arc<LoadedModel>, mode: Mode, prompt: &[u32]) -> [Vec<f32>; 2] {
    let npu = load(model, Features::of(mode), padded_to(64));
    let mut session = NpuSession::new(&npu).unwrap();
    let last = session.prefill(prompt).unwrap().to_vec();
    [last, session.decode(prompt[0]).unwrap().to_vec()]
}

#[test]
fn logits_of_odd_vocabularies_are_the_hosts() {
    // Seven parts empty, three, two, one and none.
    for vocab in [2_u64, 257, 513, 600, 1025, 3000, 4097, 8193] {
        let dir = tempfile::tempdir().unwrap();
        let shapes = OneLayer {
            d_model: 64,
            d_ff: 128,
            n_heads: 1,
            head_dim: 64,
            vocab,
            n_ctx: 512,
            window: None,
        };
        let model = shapes.write(dir.path());
        let prompt: Vec<u32> = (0..20).map(|i| (i * 41 + 3) % vocab as u32).collect();
        let mut engine = CpuEngine::new(model.clone(), EngineOptions::default()).unwrap();
        let sequence = engine.create().unwrap();
        let mut logits = |tokens: &[u32]| {
            let item = BatchItem::last(sequence, tokens);
            engine.compute(&[item]).unwrap().logits(0).to_vec()
        };
        let host = [logits(&prompt), logits(&prompt[..1])];
        for mode in [Mode::Fast, Mode::MlirAir] {
            let array = on_the_array(&model, mode, &prompt);
            for (array, host) in array.iter().zip(&host) {
                assert_eq!((array.len(), host.len()), (vocab as usize, vocab as usize));
                let largest = host.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                for (row, (a, b)) in array.iter().zip(host).enumerate() {
                    let apart = (a - b).abs();
                    assert!(
                        apart < 0.05 * largest,
                        "{vocab}, {mode:?}, row {row}: {a} for {b}"
                    );
                }
            }
        }
    }
}
