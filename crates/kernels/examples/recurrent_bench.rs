//! Times recurrent ops at the shapes of published models.
//!
//! `cargo run --release -p millrace-kernels --example recurrent_bench -- [m=1,512] [threads=1,2] [level=avx512] [ms=300]`
//!
//! With one thread, time is the thread's time on a processor, so other processes matter less. The output is the
//! fastest of all repetitions, for one layer.

use millrace_kernels::{
    ChannelScanInput, ChannelScanShape, ConvInput, Cpu, CpuOptions, DeltaInput, DeltaShape,
    KimiDeltaInput, Level, RuleShape, SsmInput, SsmShape, StateRun, StateSlots, causal_conv,
    channel_scan, delta_net, kimi_delta, ssm_scan,
};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

const PAGE_TOKENS: usize = 64;

struct Options {
    tokens: Vec<usize>,
    threads: Vec<usize>,
    level: Option<Level>,
    time: Duration,
}

fn main() {
    let options = parse();
    println!(
        "{:<24} {:>5} {:>7} {:>9} {:>9}",
        "op", "m", "threads", "µs", "µs/token"
    );
    for &n_threads in &options.threads {
        let cpu = Cpu::new(CpuOptions {
            n_threads: Some(n_threads),
            level: options.level,
        })
        .expect("a level that this CPU has");
        for &m in &options.tokens {
            for (name, seconds) in times(&cpu, m, options.time) {
                let us = seconds * 1e6;
                println!(
                    "{name:<24} {m:>5} {n_threads:>7} {us:>9.1} {:>9.3}",
                    us / m as f64
                );
            }
        }
    }
}

fn parse() -> Options {
    let mut options = Options {
        tokens: vec![1, 512],
        threads: vec![1],
        level: None,
        time: Duration::from_millis(300),
    };
    let list = |text: &str| {
        text.split(',')
            .map(|n| n.parse().expect("numbers"))
            .collect()
    };
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("m", text)) => options.tokens = list(text),
            Some(("threads", text)) => options.threads = list(text),
            Some(("level", text)) => options.level = Some(text.parse().expect("a level")),
            Some(("ms", text)) => {
                options.time = Duration::from_millis(text.parse().expect("milliseconds"));
            }
            _ => panic!("unknown argument {argument}"),
        }
    }
    options
}

fn times(cpu: &Cpu, m: usize, time: Duration) -> [(&'static str, f64); 6] {
    [
        ("conv 6144x4, SiLU", conv(cpu, (6144, 4, true), m, time)),
        ("conv 2048x3", conv(cpu, (2048, 3, false), m, time)),
        ("delta net 16x128x128", delta(cpu, m, time)),
        ("Kimi delta 32x128", kimi(cpu, m, time)),
        ("scan 48x64x128", scan(cpu, m, time)),
        ("scan of channels 5120x16", channels(cpu, m, time)),
    ]
}

fn conv(cpu: &Cpu, (n, n_taps, silu): (usize, usize, bool), m: usize, time: Duration) -> f64 {
    let (x, weight) = (numbers(m * n), numbers(n * n_taps));
    let input = ConvInput {
        x: &x,
        weight: &weight,
        bias: None,
        n_channels: n,
        silu,
    };
    measure(m, ((n_taps - 1) * n, n), time, &mut |slots, runs, out| {
        causal_conv(cpu, input, slots, runs, out);
    })
}

fn delta(cpu: &Cpu, m: usize, time: Duration) -> f64 {
    let shape = DeltaShape {
        n_k_heads: 16,
        n_v_heads: 16,
        k_dim: 128,
        v_dim: 128,
        tiled: false,
    };
    let (qkv, gates) = (numbers(m * shape.qkv_width()), numbers(m * 16));
    let input = DeltaInput {
        qkv: &qkv,
        alpha: &gates,
        beta: &gates,
        rate: &[-0.1; 16],
        rate_is_log: false,
        dt: &[0.0; 16],
        max_strength: 1.0,
    };
    let sizes = (16 * shape.head_elems(), 16 * 128);
    measure(m, sizes, time, &mut |slots, runs, out| {
        delta_net(cpu, &shape, input, slots, runs, out);
    })
}

fn kimi(cpu: &Cpu, m: usize, time: Duration) -> f64 {
    let shape = RuleShape {
        n_heads: 32,
        head_dim: 128,
    };
    let (rows, gates) = (numbers(m * shape.width()), numbers(m * 32));
    let input = KimiDeltaInput {
        q: &rows,
        k: &rows,
        v: &rows,
        alpha: &rows,
        beta: &gates,
        rate: &[-0.1; 32],
        rate_is_log: false,
        dt: &[0.0; 32 * 128],
    };
    let sizes = (32 * shape.head_elems(), shape.width());
    measure(m, sizes, time, &mut |slots, runs, out| {
        kimi_delta(cpu, &shape, input, slots, runs, out);
    })
}

fn scan(cpu: &Cpu, m: usize, time: Duration) -> f64 {
    let shape = SsmShape {
        n_heads: 48,
        n_groups: 1,
        head_dim: 64,
        d_state: 128,
    };
    let (xbc, dt) = (numbers(m * shape.xbc_width()), numbers(m * 48));
    let input = SsmInput {
        xbc: &xbc,
        dt: &dt,
        rate: &[-0.1; 48],
        rate_is_log: false,
        dt_bias: &[0.0; 48],
        dt_limit: (0.0, f32::INFINITY),
        skip: &[1.0; 48],
    };
    let sizes = (48 * shape.head_elems(), 48 * 64);
    measure(m, sizes, time, &mut |slots, runs, out| {
        ssm_scan(cpu, &shape, input, slots, runs, out);
    })
}

fn channels(cpu: &Cpu, m: usize, time: Duration) -> f64 {
    let shape = ChannelScanShape {
        n_channels: 5120,
        d_state: 16,
    };
    let (rows, keys) = (numbers(m * 5120), numbers(m * 16));
    let input = ChannelScanInput {
        x: &rows,
        dt: &rows,
        k: &keys,
        q: &keys,
        rate: &vec![-0.1; 5120 * 16],
        rate_is_log: false,
        skip: &[1.0; 5120],
    };
    let sizes = (shape.state_elems(), 5120);
    measure(m, sizes, time, &mut |slots, runs, out| {
        channel_scan(cpu, &shape, input, slots, runs, out);
    })
}

/// Computes tokens of a sequence with these slots.
type Compute<'a> = &'a mut dyn FnMut(StateSlots<'_>, &[StateRun<'_>], &mut [f32]);

/// Seconds of the fastest repetition, on a state of `n_state` elements and result rows of `width`.
fn measure(
    m: usize,
    (n_state, width): (usize, usize),
    time: Duration,
    compute: Compute<'_>,
) -> f64 {
    let n_pages = m.div_ceil(PAGE_TOKENS) + 1;
    let mut data = vec![0.0; n_pages * n_state];
    let slots: Vec<u32> = (0..n_pages as u32).collect();
    let mut out = vec![0.0; m * width];
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed() < time {
        let run = StateRun {
            rows: 0..m,
            // An existing state.
            first_pos: 1,
            slots: &slots,
            first_page: 0,
        };
        let states = StateSlots {
            data: &mut data,
            slot_elems: n_state,
            range: 0..n_state,
            page_tokens: PAGE_TOKENS,
        };
        let from = seconds();
        compute(states, &[run], &mut out);
        best = best.min(seconds() - from);
    }
    best
}

/// Time of this thread on a processor.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i % 8191) as f32 * 0.37).sin() * 0.1)
        .collect()
}
