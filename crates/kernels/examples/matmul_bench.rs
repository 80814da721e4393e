//! Times matrix multiplications at the shapes of a 1-billion-parameter Llama.
//!
//! `cargo run --release -p millrace-kernels --example matmul_bench -- [format=q4_k,q8_0] [m=1,512] [threads=1,2] [shape=2048x2048,…] [level=avx512] [ms=300] [stream=256] [roof=1]`
//!
//! With one thread, time is the thread's time on a processor, so other processes matter less.
//!
//! Runs with few tokens use enough copies of the weights (`stream` MiB) that none stay in the caches. The output is the fastest of all
//! repetitions: GB/s of weights and GOP/s (a multiplication and an addition are two).

use millrace_kernels::matmul::{Activations, Multiplication, WeightMatrix, matmul};
use millrace_kernels::roof::{self, Roof};
use millrace_kernels::{Cpu, CpuOptions, Level};
use millrace_quant::{DType, encode_matrix};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Rows that are encoded; the rest repeat them.
const ENCODED_ROWS: usize = 64;

struct Options {
    formats: Vec<DType>,
    tokens: Vec<usize>,
    threads: Vec<usize>,
    shapes: Vec<(usize, usize)>,
    level: Option<Level>,
    time: Duration,
    /// Bytes of weights that a timing of few tokens walks through.
    stream_bytes: usize,
    /// Whether to measure the machine's limits beside each format.
    roof: bool,
}

fn main() {
    let options = parse();
    println!(
        "{:<9} {:>13} {:>5} {:>7} {:>9} {:>8} {:>9}",
        "format", "n x k", "m", "threads", "µs", "GB/s", "GOP/s"
    );
    for &dtype in &options.formats {
        for &(n, k) in &options.shapes {
            let weights = weights(dtype, n, k, options.stream_bytes);
            for &n_threads in &options.threads {
                let cpu = Cpu::new(CpuOptions {
                    n_threads: Some(n_threads),
                    level: options.level,
                })
                .expect("a level that this CPU has");
                if options.roof {
                    let Roof {
                        read_bytes_per_s,
                        int8_ops_per_s,
                        ..
                    } = roof::measure(&cpu);
                    println!(
                        "{:<9} {:>13} {:>5} {n_threads:>7} {:>9} {:>8.1} {:>9.0}",
                        "limits",
                        "",
                        "",
                        "",
                        read_bytes_per_s / 1e9,
                        int8_ops_per_s.unwrap_or(f64::NAN) / 1e9,
                    );
                }
                for &m in &options.tokens {
                    let seconds = time(&cpu, &weights, dtype, (m, n, k), options.time);
                    let bytes = dtype.size_bytes(n, k).expect("whole blocks") as f64;
                    let ops = 2.0 * (m * n * k) as f64;
                    println!(
                        "{:<9} {:>13} {m:>5} {n_threads:>7} {:>9.1} {:>8.1} {:>9.0}",
                        dtype.name(),
                        format!("{n}x{k}"),
                        seconds * 1e6,
                        bytes / seconds / 1e9,
                        ops / seconds / 1e9,
                    );
                }
            }
        }
    }
}

/// As many copies of a matrix as a stream needs, one after the other.
fn weights(dtype: DType, n: usize, k: usize, stream_bytes: usize) -> Vec<u8> {
    let rows: Vec<f32> = (0..ENCODED_ROWS * k)
        .map(|i| ((i * i) as f32 * 0.37).sin())
        .collect();
    let mut encoded = vec![0; dtype.size_bytes(ENCODED_ROWS, k).expect("whole blocks")];
    encode_matrix(dtype, &rows, ENCODED_ROWS, k, &mut encoded).expect("sizes match");
    let bytes = dtype.size_bytes(n, k).expect("whole blocks");
    let copies = stream_bytes.div_ceil(bytes).max(1);
    encoded
        .iter()
        .copied()
        .cycle()
        .take(bytes * copies)
        .collect()
}

/// Number `i` of a sequence distributed roughly like activations, as the sum of three uniform numbers. Kernels may take faster
/// paths where blocks are not all extremes.
fn bell_shaped(i: usize) -> f32 {
    let mut bits = (i as u64)
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits ^= bits >> 32;
    [0, 20, 40]
        .map(|from| ((bits >> from) & 0xF_FFFF) as f32 / 524_288.0 - 1.0)
        .iter()
        .sum()
}

/// Seconds so far: this thread's time on a processor if it is `alone`, otherwise wall-clock time.
fn seconds(alone: bool) -> f64 {
    let clock = if alone {
        ClockId::ThreadCPUTime
    } else {
        ClockId::Monotonic
    };
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Seconds of the fastest multiplication.
fn time(
    cpu: &Cpu,
    weights: &[u8],
    dtype: DType,
    (m, n, k): (usize, usize, usize),
    budget: Duration,
) -> f64 {
    let x: Vec<f32> = (0..m * k).map(bell_shaped).collect();
    let mut out = vec![0.0; m * n];
    let mut scratch = Activations::default();
    let bytes = dtype.size_bytes(n, k).expect("whole blocks");
    // A stream of small multiplications is timed as one: a clock reading in between would show.
    let copies = if m <= 16 { weights.len() / bytes } else { 1 };
    let mut best = f64::INFINITY;
    let started = Instant::now();
    while started.elapsed() < budget || best.is_infinite() {
        let alone = cpu.pool().n_threads() == 1;
        let start = seconds(alone);
        let _hot = cpu.pool().enter();
        for copy in weights.chunks_exact(bytes).take(copies) {
            let weight = WeightMatrix::new(dtype, n, k, copy).expect("sizes match");
            matmul(
                cpu,
                &x,
                m,
                &mut scratch,
                &mut [Multiplication {
                    weight,
                    bias: None,
                    out: &mut out,
                }],
            );
        }
        best = best.min((seconds(alone) - start) / copies as f64);
    }
    best
}

fn parse() -> Options {
    let mut options = Options {
        formats: vec![
            DType::Q4K,
            DType::Q6K,
            DType::Q4_0,
            DType::Q8_0,
            DType::BF16,
        ],
        tokens: vec![1, 512],
        threads: vec![1, 2],
        shapes: vec![(2048, 2048), (8192, 2048), (2048, 8192), (128_256, 2048)],
        level: None,
        time: Duration::from_millis(300),
        stream_bytes: 256 << 20,
        roof: false,
    };
    for argument in std::env::args().skip(1) {
        let (key, value) = argument.split_once('=').expect("arguments are key=value");
        let numbers = || {
            value
                .split(',')
                .map(|v| v.parse().expect("a number"))
                .collect::<Vec<usize>>()
        };
        match key {
            "format" => {
                let named = |name| DType::from_name(name).expect("a format's name");
                options.formats = value.split(',').map(named).collect();
            }
            "m" => options.tokens = numbers(),
            "threads" => options.threads = numbers(),
            "shape" => {
                let shape = |v: &str| {
                    let (n, k) = v.split_once('x').expect("a shape is NxK");
                    (n.parse().expect("a number"), k.parse().expect("a number"))
                };
                options.shapes = value.split(',').map(shape).collect();
            }
            "level" => options.level = Some(value.parse().expect("a level's name")),
            "ms" => options.time = Duration::from_millis(numbers()[0] as u64),
            "roof" => options.roof = numbers()[0] > 0,
            "stream" => options.stream_bytes = numbers()[0] << 20,
            other => panic!("unknown option {other}"),
        }
    }
    options
}
