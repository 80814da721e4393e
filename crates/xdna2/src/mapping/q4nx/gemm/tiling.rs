//! Legal tilings, and the fast ones among them.

use super::{BYTES, COLS, GEMM_PARTS, MATMUL, NAME, Q4nxGemmDims, ROWS, across};
use crate::mapping::parts::{Checks, divisors};
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, Tiling};
use millrace_xdna2_machine::{Machine, Profile};

/// Descriptors of a memory tile for sending a held block of A: a channel reaches 24, of which others need four.
const HELD_DESCRIPTORS: u64 = 20;

impl Q4nxGemmDims {
    fn l1_bytes(&self) -> u64 {
        let weights = 2 * self.blocks() * BYTES + 2 * self.tk * ROWS;
        let a = 2 * 2 * self.tm * self.tk;
        let sums = 4 * self.tm * self.tn();
        weights + a + sums + 2 * self.tm * ROWS / self.chunks
    }

    /// Bytes of the fullest memory tile: it holds A, weights and C.
    fn l2_bytes(&self) -> u64 {
        let depth = if self.hold_a { self.k } else { self.kl2 };
        let weights = if self.n_over_rows {
            2 * self.rows * BYTES
        } else {
            0
        };
        self.a_copies() * 2 * self.tm * depth + weights + 2 * self.rows * self.tm * self.tn()
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_m", self.tm),
            ("tile_k_l2", self.kl2),
            ("tile_k_l1", self.tk),
            ("cols", self.cols),
            ("rows", self.rows),
            ("n_over_rows", u64::from(self.n_over_rows)),
            ("hold_a", u64::from(self.hold_a)),
            ("drain_chunks", self.chunks),
        ])
    }
}

/// Refuses tilings that the builder cannot lay out or the machine cannot hold.
pub(super) fn check(p: &Q4nxGemmDims, machine: &Machine) -> Result<(), BuildError> {
    let checks = Checks { mapping: NAME };
    checks.herd(p.cols, p.rows, machine)?;
    checks.ensure(p.a_streams() <= u64::from(machine.cols), Rule::Herd, || {
        let cols = machine.cols;
        format!(
            "{} rows need as many memory tiles; the array has {cols}",
            p.rows
        )
    })?;
    checks.divides(("tile_m", p.tm), ("the matrix unit's edge", 8))?;
    checks.divides(("tile_k_l1", p.tk), ("the matrix unit's edge", 8))?;
    checks.divides(("a block's columns", COLS), ("tile_k_l1", p.tk))?;
    checks.divides(("tile_k_l2", p.kl2), ("tile_k_l1", p.tk))?;
    checks.divides(("k", p.k), ("tile_k_l2", p.kl2))?;
    checks.divides(("m", p.m), ("a step over M", p.m_step()))?;
    if p.n_over_rows {
        checks.divides(("rows", p.rows), ("row blocks side by side", p.unit))?;
    }
    for (name, &n) in GEMM_PARTS.iter().zip(&p.n) {
        checks.divides((name, n), ("a step over N", p.n_step()))?;
    }
    checks.divides(("32 / 8", ROWS / 8), ("drain_chunks", p.chunks))?;
    let (n_tiles, locks) = (p.n_tiles(), u64::from(machine.lock_value_max));
    let limit = locks.min(HELD_DESCRIPTORS.max(if p.m == p.m_step() { locks } else { 0 }));
    checks.ensure(!p.hold_a || n_tiles <= limit, Rule::Repeat, || {
        format!("A is sent {n_tiles} times from L2, {limit} are possible; set hold_a=0")
    })?;
    checks.l1(p.l1_bytes(), machine)?;
    checks.l2(p.l2_bytes(), machine)?;
    checks.stride("a row of A", 2 * p.k, machine)?;
    for &n in &p.n {
        checks.stride("a row of C", 2 * n, machine)?;
    }
    Ok(())
}

/// The least tiles on one core.
pub(super) fn least(shape: &Shape) -> Tiling {
    let tiled = Q4nxGemmDims {
        tm: 8,
        kl2: 8,
        tk: 8,
        cols: 1,
        rows: 1,
        chunks: 1,
        ..Q4nxGemmDims::untiled(shape)
    };
    tiled.tiling()
}

/// Legal plans, the largest herds first.
fn plans(shape: &Shape, machine: &Machine) -> Vec<Q4nxGemmDims> {
    let base = Q4nxGemmDims::untiled(shape);
    let herds = (1..=u64::from(machine.cols))
        .rev()
        .flat_map(|c| (1..=u64::from(machine.rows)).rev().map(move |r| (c, r)));
    let mut found = Vec::new();
    for (cols, rows) in herds {
        for n_over_rows in [false, true] {
            let herd = Q4nxGemmDims {
                cols,
                rows,
                n_over_rows,
                ..base.clone()
            };
            let fits = |n: &u64| n.is_multiple_of(herd.n_step());
            let whole = !n_over_rows || rows.is_multiple_of(herd.unit);
            if whole && herd.n.iter().all(fits) {
                tiles(&herd, machine, &mut found);
            }
        }
    }
    found
}

/// Legal plans of a herd.
fn tiles(herd: &Q4nxGemmDims, machine: &Machine, found: &mut Vec<Q4nxGemmDims>) {
    let share = herd.m / herd.a_streams();
    let tall = [256, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8];
    let fits = |tm: &&u64| herd.m.is_multiple_of(herd.a_streams()) && share.is_multiple_of(**tm);
    for &tm in tall.iter().filter(fits).take(4) {
        for hold_a in [true, false] {
            for tk in [64, 32, 16, 8] {
                let depths = divisors(herd.k).into_iter().rev();
                let mut depths = depths.filter(|d| *d <= 512 && d.is_multiple_of(tk));
                let plan = depths.find_map(|kl2| {
                    [1, 2, 4].into_iter().find_map(|chunks| {
                        let tiled = Q4nxGemmDims {
                            tm,
                            tk,
                            kl2,
                            hold_a,
                            chunks,
                            ..herd.clone()
                        };
                        check(&tiled, machine).is_ok().then_some(tiled)
                    })
                });
                if let Some(plan) = plan {
                    found.push(plan);
                    break;
                }
            }
        }
    }
}

/// Legal tilings, the largest tiles on the widest herd first.
pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let mut plans = plans(shape, machine);
    let work = |p: &Q4nxGemmDims| (p.cols * p.rows * p.tm * p.tn(), p.hold_a, p.tk);
    plans.sort_by_key(|p| std::cmp::Reverse(work(p)));
    plans.iter().map(Q4nxGemmDims::tiling).collect()
}

/// Legal tilings by their estimated time, least first.
pub(crate) fn ranked(shape: &Shape, machine: &Machine, profile: &Profile) -> Vec<Tiling> {
    let plans = plans(shape, machine);
    let estimate = |p: &Q4nxGemmDims| estimate_ns(p, machine, profile);
    let mut timed: Vec<(f64, &Q4nxGemmDims)> = plans.iter().map(|p| (estimate(p), p)).collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    timed.into_iter().map(|(_, p)| p.tiling()).collect()
}

/// Time in steady state, the slowest of cores, DDR and streams, and the loading of cores.
/// [`timing`](millrace_xdna2_machine::timing) simulates it.
fn estimate_ns(p: &Q4nxGemmDims, machine: &Machine, profile: &Profile) -> f64 {
    let f = |value: u64| value as f64;
    let rate = |kernel: &str| profile.kernel(kernel).copied().unwrap_or_default();
    let n: u64 = p.n.iter().sum();
    let n_cores = f(p.cols * p.rows);
    let cycle_ns = 1e9 / machine.clock_hz;
    let macs_per_cycle = rate(MATMUL).macs_per_cycle.max(1.0);
    let c = f(p.m * n) / n_cores;
    let per_element =
        rate("cast_part_f32_bf16").cycles_per_element + rate("zero_f32").cycles_per_element;
    let n_steps = f(p.m / p.m_step() * p.n_tiles());
    let expanded = n_steps * f(p.k * p.tn()) * rate("q4nx_expand_bf16").cycles_per_element;
    let core_ns = (c * (f(p.k) / macs_per_cycle + per_element) + expanded) * cycle_ns;
    let cost = |burst: u64| 1.0 / profile.burst_efficiency(f(burst));
    let sendings = if p.hold_a { 1.0 } else { f(p.n_tiles()) };
    let a_bytes = f(2 * p.m * p.k) * sendings;
    let a_cost = if p.hold_a { 1.0 } else { cost(2 * p.kl2) };
    let w_bytes = f(n / ROWS * across(p.k) * BYTES * (p.m / p.m_step()));
    let c_bytes = f(2 * p.m * n);
    let port = profile.shim.port_gb_per_s;
    let stream = machine.stream_bytes_per_s() / 1e9;
    let read = a_bytes * a_cost + w_bytes;
    let written = c_bytes * cost(2 * p.tn());
    let held = f(2 * p.a_streams() * p.tm * if p.hold_a { p.k } else { p.kl2 });
    let n_waits = if p.hold_a { f(p.m / p.m_step()) } else { 1.0 };
    let steady_ns = [
        core_ns,
        read / profile.ddr.read_gb_per_s,
        (read + written) / profile.ddr.total_gb_per_s,
        a_bytes / f(p.a_streams()) / port,
        w_bytes / f(p.cols) / port,
        c_bytes / f(p.cols) / port,
        n_steps * f(2 * p.k * p.tm) / stream,
    ];
    steady_ns.into_iter().fold(0.0, f64::max)
        + n_waits * held / f(p.a_streams()) / port
        + (profile.dispatch).estimated_load_ns(p.cols * p.rows, 4 * p.cols * p.rows)
}
