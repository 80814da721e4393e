//! A decode step allocates nothing: not for one sequence, not for eight in one ragged batch, not when
//! a page of the cache fills up and the next one is taken. The exceptions are bounded. The table of
//! rotary angles grows by a block for each 256 positions that no sequence reached before. Several
//! threads that share one sequence's past keep a result for each 256 positions of it, in memory that
//! doubles when it is full. Each thread allocates its scratch on first use.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_model::convert::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, LoadedModel, PAGE_TOKENS, SeqId, StepOutput,
};

/// The system's allocator, counting calls. Workers' count too.
struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator with the caller's own arguments; counting is one
// atomic addition, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// Steps before counting, after which every buffer has met its largest use.
const WARM_UP: usize = 4;

/// Steps that are counted; a page boundary lies in the middle.
const COUNTED: usize = 24;

fn model(dir: &Path, geometry: &str, recipe: &str) -> PathBuf {
    let path = dir.join(format!("{geometry}-{recipe}.gguf"));
    let options = SynthOptions {
        recipe: Recipe::parse(recipe).unwrap(),
        vocab: None,
        vision: false,
        n_layers: None,
        seed: 1,
        n_threads: Some(1),
    };
    let geometry = ModelGeometry::named(geometry).unwrap();
    synth::write(geometry, &path, &options, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    path
}

/// An engine with `n_sequences` of different lengths, each of which fills a page within the counted steps.
fn prefilled(path: &Path, n_threads: usize, n_sequences: usize) -> (CpuEngine, Vec<SeqId>) {
    let model = Arc::new(LoadedModel::open(path).unwrap());
    let options = EngineOptions {
        n_threads: Some(n_threads),
        max_sequences: n_sequences,
        n_ctx: Some(PAGE_TOKENS + 512),
        keep_prefixes: true,
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(model, options).unwrap();
    let sequences: Vec<SeqId> = (0..n_sequences).map(|_| engine.create().unwrap()).collect();
    let longest = PAGE_TOKENS - WARM_UP - COUNTED / 2 + n_sequences / 2;
    for (i, seq) in sequences.iter().enumerate() {
        let prompt: Vec<u32> = (0..longest as u32 - i as u32).map(|t| t % 500).collect();
        let item = BatchItem::last(*seq, &prompt);
        engine.step(&[item], &mut StepOutput::default()).unwrap();
    }
    (engine, sequences)
}

/// Allocations of each of `n` decode steps that append a token to every sequence.
fn decode(
    engine: &mut CpuEngine,
    output: &mut StepOutput,
    sequences: &[SeqId],
    n: usize,
) -> Vec<usize> {
    let batch: Vec<BatchItem<'_>> = sequences
        .iter()
        .map(|seq| BatchItem::last(*seq, &[7]))
        .collect();
    let mut counts = Vec::with_capacity(n);
    for _ in 0..n {
        let before = CALLS.load(Ordering::Relaxed);
        engine.step(&batch, output).unwrap();
        counts.push(CALLS.load(Ordering::Relaxed) - before);
    }
    counts
}

/// A single test, so that no other test allocates meanwhile.
#[test]
fn a_decode_step_allocates_nothing() {
    let before = CALLS.load(Ordering::Relaxed);
    let dir = tempfile::tempdir().unwrap();
    assert!(CALLS.load(Ordering::Relaxed) > before, "calls are counted");
    let synthetic = [
        ("llama-tiny", "F32"),
        ("gemma-tiny", "BF16"),
        ("llama-tiny", "Q4_K_M"),
        ("qwen-tiny", "Q8_0"),
        ("qwen35-tiny", "Q8_0"),
        // Scans, experts and a shared one.
        ("granitehybrid-tiny", "F16"),
    ];
    let synthetic = synthetic.map(|(geometry, recipe)| model(dir.path(), geometry, recipe));
    // Biases by distance.
    let bloom = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens/bloom");
    for path in synthetic.into_iter().chain([bloom]) {
        for n_sequences in [1, 8] {
            let what = format!("{}, {n_sequences} sequences", path.display());
            let mut output = StepOutput::default();
            let (mut engine, sequences) = prefilled(&path, 1, n_sequences);
            decode(&mut engine, &mut output, &sequences, WARM_UP);
            let counts = decode(&mut engine, &mut output, &sequences, COUNTED);
            assert_eq!(counts, [0; COUNTED], "{what}, one thread");

            let (mut engine, sequences) = prefilled(&path, 3, n_sequences);
            decode(&mut engine, &mut output, &sequences, WARM_UP);
            // A thread that got no work so far makes its scratch here, and a new span begins.
            let counts = decode(&mut engine, &mut output, &sequences, COUNTED);
            assert!(counts.iter().sum::<usize>() <= 32, "{what}: {counts:?}");
            let is_quiet =
                |_| decode(&mut engine, &mut output, &sequences, COUNTED) == [0; COUNTED];
            assert!((0..8).any(is_quiet), "{what}, three threads");
        }
    }
}
