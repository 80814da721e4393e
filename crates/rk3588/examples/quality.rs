//! Quality lost by 8-bit products in a model: perplexity and divergence of its predictions of a text, and the signal
//! over noise of every product's results, for each way to multiply:
//!
//! `cargo run --release -p millrace-rk3588 --example quality [MODEL [TEXT]]`.
#![allow(clippy::unwrap_used)] // An example may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::Role;
use millrace_plan::{Binding, OwnSlot, Settings, Step, Target};
use millrace_rk3588::quantise::snr_db;
use millrace_rk3588::target::Rk3588Target;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession, Observation};
use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, LogitsFor};
use millrace_verify::reference::{PassArithmetic, Products, logits};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const STORY: &str = "\
Once upon a time there was a little girl who lived near the woods. She had a red ball and a small brown \
dog. Every morning they went down to the river to play. One day the dog ran after a bird and did not \
come back. The girl looked behind every tree and under every bush. She called his name again and again, \
but nobody answered. Then she saw an old man who was sitting on a bench. \"Have you seen my dog?\" she \
asked. \"He is small and brown, and he loves to run.\" The old man smiled. \"I heard a bark near the \
mill,\" he said. \"Let us go and look together.\" They walked along the path until they came to the mill. \
There was the dog, wet and happy, with a fish in his mouth. The girl laughed and hugged him. \"You are a \
good dog,\" she said, \"but next time take me with you.\" The old man gave them some bread and apples, and \
they ate all of it by the water. When the sun went down they walked home. Her mother was waiting at the \
door. \"Where have you been?\" she asked. The girl told her about the bird, the old man and the fish, and \
her mother was not angry at all. That night the dog slept at the end of her bed and dreamed of the river.";

/// Results of products by label and layer.
type Results = BTreeMap<(Option<usize>, &'static str), Vec<f32>>;

/// Logits of every token, and the results of all products.
fn on_board(model: &Arc<LoadedModel>, settings: &Settings, tokens: &[u32]) -> (Vec<f32>, Results) {
    let planner = Rk3588Target.planner(settings).unwrap();
    let npu = NpuModel::load(model.clone(), planner, NpuOptions::default()).unwrap();
    let npu = Arc::new(npu);
    let mut session = NpuSession::new(&npu).unwrap();
    let results: Arc<Mutex<Results>> = Arc::default();
    let (to, of) = (results.clone(), npu.clone());
    session.observe(Some(Box::new(move |seen| {
        let (key, rows) = result(&of, seen);
        to.lock().unwrap().entry(key).or_default().extend(rows);
    })));
    let logits = session.prefill_all(tokens).unwrap().to_vec();
    session.observe(None);
    let results = std::mem::take(&mut *results.lock().unwrap());
    (logits, results)
}

/// Result of a dispatch.
fn result(npu: &NpuModel, seen: &Observation<'_>) -> ((Option<usize>, &'static str), Vec<f32>) {
    let graph = &npu.model().model().graph;
    let program = &seen.plan.programs[seen.call.program];
    let slots = program.slots();
    let slot = slots.iter().position(|s| s.role == Role::Output).unwrap();
    let Binding::Packed { value, id, .. } = &seen.call.bindings[slot] else {
        panic!("results are packed");
    };
    let width = graph.values[value.0].width;
    let mut rows = vec![0.0; seen.plan.n_rows(*value) as usize * width];
    let at = OwnSlot {
        program,
        slot,
        id: *id,
    };
    let bytes = seen.cache.peek(seen.key, slot).unwrap();
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let planner = npu.planner();
    planner
        .unpack(&cpu, &at, &bytes, seen.scales, width, &mut rows)
        .unwrap();
    rows.truncate(width * seen.n_real);
    let node = &graph.nodes[seen.call.nodes[0]];
    debug_assert!(matches!(seen.plan.steps[0], Step::Host(_)));
    ((node.layer, node.label), rows)
}

/// ln p of every token of a row.
fn log_softmax(row: &[f32]) -> Vec<f64> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - max).exp()).sum();
    row.iter().map(|x| f64::from(x - max) - sum.ln()).collect()
}

/// Perplexity, and the mean divergence from exact logits.
fn quality(found: &[f32], exact: &[f32], tokens: &[u32], vocab: usize) -> (f64, f64) {
    let (mut nll, mut kl, n) = (0.0, 0.0, tokens.len() - 1);
    let rows = found.chunks_exact(vocab).zip(exact.chunks_exact(vocab));
    for ((found, exact), next) in rows.take(n).zip(&tokens[1..]) {
        let (q, p) = (log_softmax(found), log_softmax(exact));
        nll -= q[*next as usize];
        kl += p
            .iter()
            .zip(&q)
            .map(|(p, q)| p.exp() * (p - q))
            .sum::<f64>();
    }
    ((nll / n as f64).exp(), kl / n as f64)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    let path = args.next().map_or(demo, PathBuf::from);
    let text = args.next().map_or(STORY.to_owned(), |file| {
        std::fs::read_to_string(file).unwrap()
    });
    let model = Arc::new(LoadedModel::open(&path).unwrap());
    let vocab = model.model().config.vocab_size;
    let tokens = model.tokenizer().unwrap().encode(&text, Default::default());
    let tokens = &tokens[..tokens.len().min(500)];
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let all = 0..tokens.len();
    let exact = logits(
        &cpu,
        &model,
        tokens,
        all,
        PassArithmetic::F32,
        &Products::default(),
    )
    .unwrap();
    println!(
        "{} tokens; KL is from the model in f32, in nats a token",
        tokens.len()
    );
    println!("| products | perplexity | mean KL |\n|---|---|---|");
    let row = |name: &str, found: &[f32]| {
        let (perplexity, kl) = quality(found, &exact, tokens, vocab);
        println!("| {name} | {perplexity:.3} | {kl:.5} |");
    };
    row("the model in f32", &exact);
    let mut engine = CpuEngine::new(model.clone(), EngineOptions::default()).unwrap();
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, tokens, LogitsFor::All);
    let output = engine.compute(&[item]).unwrap();
    let by_cpu = output.logits(0).to_vec();
    row("CPU engine", &by_cpu);
    let with = |without: &[&str], numerics: &str| Settings {
        without: without.iter().map(|&name| name.to_owned()).collect(),
        numerics: Some(numerics.to_owned()),
        ..Settings::default()
    };
    let fp16 = on_board(&model, &with(&[], "fp16"), tokens);
    let plain = on_board(&model, &with(&["rotation"], "int8"), tokens);
    let rotated = on_board(&model, &with(&[], "int8"), tokens);
    row("NPU, fp16", &fp16.0);
    row("NPU, W8A8", &plain.0);
    row("NPU, W8A8, k rotated", &rotated.0);
    print_snr(&fp16.1, &plain.1, &rotated.1);
}

/// Signal over noise of each product, against those in fp16.
fn print_snr(exact: &Results, plain: &Results, rotated: &Results) {
    println!(
        "\nSignal over noise of results, dB, against the NPU in fp16; errors of layers before are in it"
    );
    println!("| layer | product | W8A8 | W8A8, k rotated |\n|---|---|---|---|");
    for (key @ (layer, label), exact) in exact {
        let db = |results: &Results| snr_db(exact, &results[key]);
        let layer = layer.map_or("–".to_owned(), |layer| layer.to_string());
        println!(
            "| {layer} | {label} | {:.1} | {:.1} |",
            db(plain),
            db(rotated)
        );
    }
}
