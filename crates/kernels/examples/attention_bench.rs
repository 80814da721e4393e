//! Times attention at the geometry of Llama-3.2-1B (32 query heads, 8 KV heads of 64): decoding at
//! depth 4096 and prefill of 512 and 2048 tokens, one layer, for each level and cache type.
//!
//! `cargo run --release -p millrace-kernels --example attention_bench [THREADS]`
//!
//! Times are minima over repetitions. Decoding walks 16 layers' caches in turn, so that keys and
//! values come from memory as in a model; its GB/s counts their bytes once. GFLOP/s counts two
//! products a visible (query, key) pair.

use millrace_kernels::{
    AttentionInput, AttentionScratch, AttentionShape, Cpu, CpuOptions, KvBuffer, KvLayout, KvRun,
    KvType, Level, attention, kv_append,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SHAPE: AttentionShape = AttentionShape {
    n_heads: 32,
    n_kv_heads: 8,
    head_dim: 64,
    scale: 0.125,
    window: None,
    chunked: false,
    softcap: None,
};
const PAGE_TOKENS: usize = 64;
const LAYERS: usize = 16;

fn numbers(n: usize) -> Vec<f32> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(next).collect()
}

struct Layer {
    k: KvBuffer,
    v: KvBuffer,
}

/// `n_layers` caches filled with `n_tokens` tokens.
fn layers(cpu: &Cpu, layout: &KvLayout, n_layers: usize, n_tokens: usize) -> Vec<Layer> {
    let pages: Vec<u32> = (0..n_tokens.div_ceil(PAGE_TOKENS) as u32).collect();
    let rows = numbers(n_tokens * SHAPE.n_kv_heads * SHAPE.head_dim);
    let run = KvRun {
        rows: 0..n_tokens,
        first_pos: 0,
        pages: &pages,
        pages_first_pos: 0,
    };
    let filled = |_| {
        let n_bytes = pages.len() * layout.page_bytes();
        let mut k = KvBuffer::zeroed(n_bytes).expect("memory");
        let mut v = KvBuffer::zeroed(n_bytes).expect("memory");
        kv_append(
            cpu,
            layout,
            &rows,
            &rows,
            &mut k,
            &mut v,
            std::slice::from_ref(&run),
        );
        Layer { k, v }
    };
    (0..n_layers).map(filled).collect()
}

/// Shortest time of attention over all `layers` for the last `n_new` of `n_tokens` tokens.
fn shortest(
    cpu: &Cpu,
    layout: &KvLayout,
    layers: &[Layer],
    (n_tokens, n_new): (usize, usize),
    repetitions: usize,
) -> Duration {
    let pages: Vec<u32> = (0..n_tokens.div_ceil(PAGE_TOKENS) as u32).collect();
    let first_pos = n_tokens - n_new;
    let runs = [KvRun {
        rows: 0..n_new,
        first_pos,
        pages: &pages,
        pages_first_pos: 0,
    }];
    let q = numbers(n_new * SHAPE.n_heads * SHAPE.head_dim);
    let mut out = vec![0.0; q.len()];
    let mut scratch = AttentionScratch::default();
    let mut best = Duration::MAX;
    for _ in 0..repetitions {
        let _hot = cpu.pool().enter();
        let start = Instant::now();
        for layer in layers {
            let (k_pages, v_pages) = (&layer.k[..], &layer.v[..]);
            let input = AttentionInput {
                q: &q,
                k_pages,
                v_pages,
                runs: &runs,
                blocks: &[],
                sinks: None,
                slopes: None,
            };
            attention(cpu, &SHAPE, layout, &input, &mut scratch, &mut out);
        }
        best = best.min(start.elapsed());
    }
    best
}

/// Prints the shortest and the median time of a parallel region in which every thread waits for
/// all others to arrive: hand-over there and back.
fn time_regions(cpu: &Cpu) {
    let n_threads = cpu.pool().n_threads();
    let _hot = cpu.pool().enter();
    let region = |_| {
        let arrived = AtomicUsize::new(0);
        let start = Instant::now();
        cpu.pool().run(n_threads, &|_| {
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < n_threads {
                std::hint::spin_loop();
            }
        });
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..2_000).map(region).collect();
    times.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let (least, median) = (micros(times[0]), micros(times[times.len() / 2]));
    println!("hand-over to {n_threads} threads: least {least:.2} us, median {median:.2} us");
}

fn main() {
    let n_threads = std::env::args().nth(1).and_then(|text| text.parse().ok());
    time_regions(
        &Cpu::new(CpuOptions {
            n_threads,
            level: None,
        })
        .expect("threads"),
    );
    println!("level       cache  threads  test            ms/layer    GB/s  GFLOP/s");
    for level in Level::supported().into_iter().skip(1).take(2) {
        let cpu = Cpu::new(CpuOptions {
            n_threads,
            level: Some(level),
        })
        .expect("supported level");
        for dtype in KvType::ALL {
            let (n_kv_heads, head_dim) = (SHAPE.n_kv_heads, SHAPE.head_dim);
            let layout = KvLayout {
                dtype,
                n_kv_heads,
                head_dim,
                page_tokens: PAGE_TOKENS,
            };
            let tests = [
                ("tg at 4096", LAYERS, 4096, 1, 60),
                ("pp512", 1, 512, 512, 20),
                ("pp2048", 1, 2048, 2048, 5),
            ];
            for (name, n_layers, n_tokens, n_new, repetitions) in tests {
                let layers = layers(&cpu, &layout, n_layers, n_tokens);
                let sizes = (n_tokens, n_new);
                let time = shortest(&cpu, &layout, &layers, sizes, repetitions);
                let seconds = time.as_secs_f64() / n_layers as f64;
                let first = n_tokens - n_new;
                let pairs: usize = (first..n_tokens).map(|pos| pos + 1).sum();
                let flops = 4.0 * (pairs * SHAPE.n_heads * SHAPE.head_dim) as f64;
                let bytes = 2.0 * (n_tokens / PAGE_TOKENS * layout.page_bytes()) as f64;
                println!(
                    "{:11} {:6} {:7}  {name:14} {:9.3} {:7.1} {:8.1}",
                    level,
                    dtype,
                    cpu.pool().n_threads(),
                    seconds * 1e3,
                    bytes / seconds / 1e9,
                    flops / seconds / 1e9
                );
            }
        }
    }
}
