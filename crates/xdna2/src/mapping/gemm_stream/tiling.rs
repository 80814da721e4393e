//! Legal tilings, and the fast ones among them.

use super::{GEMM_PARTS, GemmStream, GemmStreamDims};
use crate::mapping::fused;
use crate::mapping::parts::{Checks, divisors};
use crate::mapping::{BuildError, Mapping, NamedNumbers, Rule, Shape, Tiling};
use millrace_xdna2_machine::{Machine, Profile};

impl GemmStreamDims {
    fn l1_bytes(&self) -> u64 {
        let inputs = self.l1_depth * self.of.size() * self.tk * (self.tm + self.tn);
        let tile = self.tm * self.tn;
        inputs + 4 * tile + self.of.result_size() * tile / self.chunks
    }

    /// Bytes of the fullest memory tile: it holds A, B and C.
    fn l2_bytes(&self) -> u64 {
        let depth = if self.hold_a { self.k } else { self.kl2 };
        let a = self.a_copies() * self.of.size() * self.tm * depth;
        let b = self.l2_copies * self.of.size() * self.kl2 * self.tn;
        a + b + self.of.result_size() * self.rows * self.tm * self.tn
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_m", self.tm),
            ("tile_k_l2", self.kl2),
            ("tile_k_l1", self.tk),
            ("tile_n", self.tn),
            ("cols", self.cols),
            ("rows", self.rows),
            ("n_over_cols", u64::from(self.n_over_cols)),
            ("hold_a", u64::from(self.hold_a)),
            ("l1_depth", self.l1_depth),
            ("l2_copies", self.l2_copies),
            ("drain_chunks", self.chunks),
        ])
    }
}

/// Refuses tilings that the builder cannot lay out or the machine cannot hold.
pub(super) fn check(
    gemm: &GemmStream,
    p: &GemmStreamDims,
    machine: &Machine,
) -> Result<(), BuildError> {
    let checks = Checks { mapping: gemm.name };
    checks.herd(p.cols, p.rows, machine)?;
    checks.ensure(p.rows <= u64::from(machine.cols), Rule::Herd, || {
        let cols = machine.cols;
        format!(
            "{} rows need as many memory tiles; the array has {cols}",
            p.rows
        )
    })?;
    for (name, size) in [("tile_m", p.tm), ("tile_n", p.tn), ("tile_k_l1", p.tk)] {
        checks.divides((name, size), ("the matrix unit's edge", 8))?;
    }
    checks.divides(("m", p.m), ("a step over M", p.m_step()))?;
    for (name, &n) in GEMM_PARTS.iter().zip(&p.n) {
        checks.divides((name, n), ("a step over N", p.n_step()))?;
    }
    checks.divides(("k", p.k), ("tile_k_l2", p.kl2))?;
    checks.divides(("tile_k_l2", p.kl2), ("tile_k_l1", p.tk))?;
    checks.divides(("tile_n / 8", p.tn / 8), ("drain_chunks", p.chunks))?;
    for (name, value) in [("l1_depth", p.l1_depth), ("l2_copies", p.l2_copies)] {
        checks.ensure((1..=2).contains(&value), Rule::Range, || {
            format!("{name} = {value}; it is 1, or 2 for ping-pong")
        })?;
    }
    let (n_tiles, limit) = (p.n_tiles(), u64::from(machine.lock_value_max));
    checks.ensure(!p.hold_a || n_tiles <= limit, Rule::Repeat, || {
        format!("A is sent {n_tiles} times from L2, a lock counts to {limit}; set hold_a=0")
    })?;
    checks.l1(p.l1_bytes(), machine)?;
    checks.l2(p.l2_bytes(), machine)?;
    checks.stride("a row of A", p.of.size() * p.k, machine)?;
    for &n in &p.n {
        checks.stride("a row of C", p.of.result_size() * n, machine)?;
        if !p.bt {
            checks.stride("tile_k_l2 rows of B", p.of.size() * p.kl2 * n, machine)?;
        }
    }
    Ok(())
}

/// The least tiles on one core.
pub(super) fn least(gemm: &GemmStream, shape: &Shape) -> Tiling {
    let tiled = GemmStreamDims {
        tm: 8,
        kl2: 8,
        tk: 8,
        tn: 8,
        cols: 1,
        rows: 1,
        l1_depth: 2,
        l2_copies: 2,
        chunks: 1,
        ..GemmStreamDims::untiled(gemm, shape)
    };
    tiled.tiling()
}

/// Legal plans: on herds of whole columns or rows, the largest first, with the fewest pieces of C
/// that fit L1.
fn plans(gemm: &GemmStream, shape: &Shape, machine: &Machine) -> Vec<GemmStreamDims> {
    let base = GemmStreamDims::untiled(gemm, shape);
    let (cols, rows) = (u64::from(machine.cols), u64::from(machine.rows));
    let herds = divisors_down(cols).flat_map(|c| divisors_down(rows).map(move |r| (c, r)));
    let odd_herd = (1..=cols)
        .rev()
        .flat_map(|c| (1..=rows).rev().map(move |r| (c, r)));
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for (cols, rows) in herds.chain(odd_herd) {
        if seen.contains(&(cols, rows)) {
            continue;
        }
        seen.push((cols, rows));
        // Odd herds only where nothing else fits.
        if seen.len() > 12 && !found.is_empty() {
            break;
        }
        for n_over_cols in [false, true] {
            let herd = GemmStreamDims {
                cols,
                rows,
                n_over_cols,
                ..base.clone()
            };
            tiles(gemm, &herd, machine, &mut found);
        }
    }
    found
}

fn divisors_down(n: u64) -> impl Iterator<Item = u64> + Clone {
    divisors(n).into_iter().rev()
}

/// Legal plans of a herd.
fn tiles(
    gemm: &GemmStream,
    herd: &GemmStreamDims,
    machine: &Machine,
    found: &mut Vec<GemmStreamDims>,
) {
    let sizes = |limits: &[u64], total: u64, streams: u64| -> Vec<u64> {
        let share = total / streams;
        let fits = |&&s: &&u64| total.is_multiple_of(streams) && share.is_multiple_of(s);
        limits.iter().filter(fits).copied().collect()
    };
    let n = herd.n.iter().copied().fold(0, fused::gcd);
    let tall = sizes(herd.of.tall, herd.m, herd.a_streams());
    let wide = sizes(
        &[256, 192, 128, 96, 80, 64, 56, 48, 40, 32, 24, 16, 8],
        n,
        herd.b_streams(),
    );
    let mut depths: Vec<u64> = [2048, 1024, 512, 256, 128, 64, 56, 48, 40, 32, 24, 16, 8]
        .into_iter()
        .filter(|&d| herd.k.is_multiple_of(d))
        .collect();
    if herd.k <= 4096 && !depths.contains(&herd.k) {
        depths.insert(0, herd.k);
    }
    for &tm in &tall {
        for &tn in &wide {
            for (hold_a, &kl2) in [true, false]
                .into_iter()
                .flat_map(|hold| depths.iter().take(4).map(move |d| (hold, d)))
            {
                let tiled = GemmStreamDims {
                    tm,
                    tn,
                    kl2,
                    hold_a,
                    l1_depth: 2,
                    l2_copies: 2,
                    ..herd.clone()
                };
                found.extend(in_pieces(gemm, tiled, machine));
            }
        }
    }
}

/// The tiled with the deepest blocks and the fewest pieces of C that are legal.
fn in_pieces(
    gemm: &GemmStream,
    tiled: GemmStreamDims,
    machine: &Machine,
) -> Option<GemmStreamDims> {
    let depth = |limit: u64| {
        (1..=limit / 8)
            .rev()
            .map(|d| 8 * d)
            .find(|d| tiled.kl2.is_multiple_of(*d))
    };
    let depths = [64, 32].into_iter().filter_map(depth);
    let mut tries = depths.flat_map(|tk| tiled.of.pieces.iter().map(move |chunks| (tk, *chunks)));
    tries.find_map(|(tk, chunks)| {
        let tiled = GemmStreamDims {
            tk,
            chunks,
            ..tiled.clone()
        };
        check(gemm, &tiled, machine).is_ok().then_some(tiled)
    })
}

/// Legal tilings, the largest tiles on the widest herd first.
pub(super) fn all(gemm: &GemmStream, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let mut plans = plans(gemm, shape, machine);
    let work = |p: &GemmStreamDims| (p.cols * p.rows * p.tm * p.tn, p.hold_a, p.kl2);
    plans.sort_by_key(|p| std::cmp::Reverse(work(p)));
    plans.iter().map(GemmStreamDims::tiling).collect()
}

/// Legal tilings by their estimated time, least first, the loading of cores included.
pub(in crate::mapping) fn ranked(
    name: &str,
    shape: &Shape,
    machine: &Machine,
    profile: &Profile,
) -> Vec<Tiling> {
    let Some(gemm) = [super::PLAIN, super::BT, super::I8]
        .into_iter()
        .find(|g| g.name() == name)
    else {
        return Vec::new();
    };
    let plans = plans(&gemm, shape, machine);
    let mut timed: Vec<(f64, &GemmStreamDims)> = plans
        .iter()
        .map(|p| (estimate_ns(p, machine, profile), p))
        .collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Among tilings as good as the best, takes the one with the largest tiles: the estimate is not more exact than
    // that, and larger tiles are fewer calls.
    let best = timed.first().map_or(0.0, |t| t.0);
    let n_equal = timed.partition_point(|t| t.0 <= best * EQUAL);
    let size = |p: &GemmStreamDims| p.tm * p.tn * p.tk * p.cols * p.rows;
    timed[..n_equal].sort_by_key(|t| std::cmp::Reverse(size(t.1)));
    timed.into_iter().map(|(_, p)| p.tiling()).collect()
}

/// Estimates that count as equal: within 2 %.
const EQUAL: f64 = 1.02;

/// Time in steady state, the slowest of cores, DDR and streams, plus the parts that do not overlap: the first panels,
/// the last tile of C, and the loading of cores. [`timing`](millrace_xdna2_machine::timing) simulates it.
fn estimate_ns(p: &GemmStreamDims, machine: &Machine, profile: &Profile) -> f64 {
    let f = |value: u64| value as f64;
    let rate = |kernel: &str| profile.kernel(kernel).copied().unwrap_or_default();
    let (operand, result) = (p.of.size(), p.of.result_size());
    let matmul = rate(p.of.matmul);
    let macs_per_cycle = matmul.macs_per_cycle.max(1.0);
    let drain = p.of.drain.unwrap_or(p.of.drain_part);
    let per_element = rate(drain).cycles_per_element + rate(p.of.zero).cycles_per_element;
    // Sums that a call of the product loads and stores.
    let per_step = matmul.cycles_per_element * f(p.k / p.tk);
    let n: u64 = p.n.iter().sum();
    let n_cores = f(p.cols * p.rows);
    let cycle_ns = 1e9 / machine.clock_hz;
    let c = f(p.m * n) / n_cores;
    let core_ns = c * (f(p.k) / macs_per_cycle + per_step + per_element) * cycle_ns;
    let cost = |burst: u64| 1.0 / profile.burst_efficiency(f(burst));
    let row = |rows_long: u64| {
        if rows_long == p.k {
            u64::MAX >> 12
        } else {
            operand * rows_long
        }
    };
    let a_bytes = f(operand * p.m * p.k) * if p.hold_a { 1.0 } else { f(p.n_tiles()) };
    let b_bytes = f(operand * p.k * n * (p.m / p.m_step()));
    let c_bytes = f(result * p.m * n);
    let a_cost = cost(if p.hold_a { u64::MAX >> 12 } else { row(p.kl2) });
    let b_cost = cost(if p.bt { row(p.kl2) } else { operand * p.tn });
    let read = a_bytes * a_cost + b_bytes * b_cost;
    let port = profile.shim.port_gb_per_s;
    let stream = machine.stream_bytes_per_s() / 1e9;
    // Every core sees all of A's and B's tiles that its C needs.
    let to_cores = f(p.m / p.m_step() * p.n_tiles() * operand * p.k);
    // A column's shim may read both.
    let (a, b) = (a_bytes / f(p.a_streams()), b_bytes / f(p.b_streams()));
    // A core's tile of C is written row by row.
    let written = c_bytes * cost(result * p.tn);
    // A single held block of A is replaced while the cores wait.
    let n_waits = if p.hold_a && p.a_copies() == 1 {
        p.m / p.m_step() - 1
    } else {
        0
    };
    let waits_ns = f(n_waits * operand * p.tm * p.k) / port;
    let steady_ns = [
        core_ns,
        read / profile.ddr.read_gb_per_s,
        (read + written) / profile.ddr.total_gb_per_s,
        a / port,
        b / port,
        (a + b) / profile.shim.column_read_gb_per_s,
        c_bytes / f(p.cols) / port,
        to_cores * f(p.tm.max(p.tn)) / stream,
    ];
    let panels = f(operand * p.a_streams() * p.tm * if p.hold_a { p.k } else { p.kl2 })
        + f(operand * p.b_streams() * p.tn * p.kl2);
    let tile = f(p.tm * p.tn);
    let last_ns = tile * per_element * cycle_ns + tile * f(result * p.rows) / port;
    steady_ns.into_iter().fold(0.0, f64::max)
        + waits_ns
        + panels / profile.ddr.read_gb_per_s
        + last_ns
        + (profile.dispatch).estimated_load_ns(p.cols * p.rows, 2 * p.cols * p.rows)
}
