//! Megatiles: which are legal, and which are fast.

use super::launch::MegatileLaunch;
use super::{Layout, MATMUL, PANEL};
use crate::mapping::fused::{self, GEMM_PARTS};
use crate::mapping::parts::{Checks, divisors, largest_divisor};
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, Tiling};
use millrace_xdna2_machine::{Machine, Profile};

/// Names of a tiling, in order.
pub(in crate::mapping) const TILING: [&str; 10] = [
    "tile_m",
    "tile_n",
    "e_y",
    "e_x",
    "tile_k_l2",
    "tile_k_l1",
    "cols",
    "rows",
    "l1_depth",
    "l2_copies",
];

/// Shape and tiling as plain numbers.
#[derive(Clone, Debug)]
pub(super) struct MegatileDims {
    pub(super) layout: Layout,
    pub(super) m: u64,
    pub(super) k: u64,
    /// Columns of each product.
    pub(super) n: Vec<u64>,
    pub(super) tm: u64,
    pub(super) tn: u64,
    pub(super) e_y: u64,
    pub(super) e_x: u64,
    pub(super) kl2: u64,
    pub(super) tk: u64,
    pub(super) cols: u64,
    pub(super) rows: u64,
    pub(super) l1_depth: u64,
    pub(super) l2_copies: u64,
}

impl MegatileDims {
    pub(super) fn new(layout: Layout, shape: &Shape, tiling: &Tiling) -> MegatileDims {
        let [tm, tn, e_y, e_x, kl2, tk, cols, rows, l1_depth, l2_copies] =
            TILING.map(|name| tiling[name]);
        MegatileDims {
            layout,
            m: shape["m"],
            k: shape["k"],
            n: fused::sizes(shape, GEMM_PARTS),
            tm,
            tn,
            e_y,
            e_x,
            kl2,
            tk,
            cols,
            rows,
            l1_depth,
            l2_copies,
        }
    }

    fn tiling(&self) -> Tiling {
        let values = [
            self.tm,
            self.tn,
            self.e_y,
            self.e_x,
            self.kl2,
            self.tk,
            self.cols,
            self.rows,
            self.l1_depth,
            self.l2_copies,
        ];
        let pairs: Vec<_> = TILING.into_iter().zip(values).collect();
        NamedNumbers::new(&pairs)
    }

    /// Rows of a megatile on a column of the array.
    pub(super) fn height(&self) -> u64 {
        self.e_y * self.tm
    }

    /// Columns of a megatile on a row of the array.
    pub(super) fn width(&self) -> u64 {
        self.e_x * self.tn
    }

    /// Rows of a megatile.
    pub(super) fn mega_m(&self) -> u64 {
        self.cols * self.height()
    }

    /// Columns of a megatile.
    pub(super) fn mega_n(&self) -> u64 {
        self.rows * self.width()
    }

    /// Megatiles across all products.
    pub(super) fn n_tiles(&self) -> u64 {
        self.n.iter().map(|n| n / self.mega_n()).sum()
    }

    fn l1_bytes(&self) -> u64 {
        let tile = self.tm * self.tn;
        let inputs = self.l1_depth * 2 * self.tk * (self.tm + self.tn);
        inputs + 4 * self.e_x * self.e_y * tile + 2 * tile
    }

    fn l2_bytes(&self) -> u64 {
        let a = self.height() * self.kl2;
        let b = self.kl2 * self.tn;
        let c = self.height() * self.mega_n();
        2 * self.l2_copies * (a + b + c)
    }
}

/// Refuses tilings that the builder cannot lay out or the machine cannot hold.
pub(super) fn check(p: &MegatileDims, checks: Checks, machine: &Machine) -> Result<(), BuildError> {
    checks.herd(p.cols, p.rows, machine)?;
    checks.ensure(p.rows <= u64::from(machine.cols), Rule::Herd, || {
        let (rows, cols) = (p.rows, machine.cols);
        format!("{rows} rows need as many memory tiles for B; the array has {cols}")
    })?;
    for (name, size) in [("tile_m", p.tm), ("tile_n", p.tn), ("tile_k_l1", p.tk)] {
        checks.divides((name, size), ("the matrix unit's edge", 8))?;
    }
    checks.divides(("m", p.m), ("e_y * tile_m", p.height()))?;
    for (name, &n) in GEMM_PARTS.iter().zip(&p.n) {
        checks.divides((name, n), ("rows * e_x * tile_n", p.mega_n()))?;
    }
    checks.divides(("k", p.k), ("tile_k_l2", p.kl2))?;
    checks.divides(("tile_k_l2", p.kl2), ("tile_k_l1", p.tk))?;
    for (name, value) in [("l1_depth", p.l1_depth), ("l2_copies", p.l2_copies)] {
        checks.ensure((1..=2).contains(&value), Rule::Range, || {
            format!("{name} = {value}; it is 1, or 2 for ping-pong")
        })?;
    }
    let repeats = u64::from(machine.repeat_max);
    checks.ensure(p.e_x.max(p.e_y) <= repeats, Rule::Repeat, || {
        format!("e_x and e_y of at most {repeats} are streamed")
    })?;
    match p.layout {
        Layout::Rows => {
            for n in &p.n {
                checks.stride("a row of B", 2 * n, machine)?;
            }
        }
        Layout::Panels => checks.stride("a panel of B", 2 * PANEL * p.k, machine)?,
    }
    for n in &p.n {
        checks.stride("a row of C", 2 * n, machine)?;
    }
    checks.stride("a row of A", 2 * p.k, machine)?;
    checks.l1(p.l1_bytes(), machine)?;
    checks.l2(p.l2_bytes(), machine)
}

/// The largest megatile that fits: 512 × 512 for a long M. For a short M, tiles so low that all columns have rows, and
/// padding in steps of 8.
fn start(layout: Layout, shape: &Shape, machine: &Machine) -> MegatileDims {
    let (m, k, all) = (shape["m"], shape["k"], fused::sizes(shape, GEMM_PARTS));
    let n = all.iter().copied().fold(0, fused::gcd);
    let (cols, rows) = (u64::from(machine.cols), u64::from(machine.rows));
    let rows = (1..=rows)
        .rev()
        .find(|r| (n / 8).is_multiple_of(*r))
        .unwrap_or(1);
    let tm = largest_divisor(m, 64.min((m / cols).max(8)), 8).max(8);
    let tn = largest_divisor(n / rows, 64, 8).max(8);
    let tk = largest_divisor(k, 32, 8).max(8);
    let e_x = if (n / (rows * tn)).is_multiple_of(2) {
        2
    } else {
        1
    };
    MegatileDims {
        layout,
        m,
        k,
        n: all,
        tm,
        tn,
        e_y: 1,
        e_x,
        kl2: largest_divisor(k, 512, tk).max(tk),
        tk,
        cols: (m / tm).clamp(1, cols),
        rows,
        l1_depth: 2,
        l2_copies: 2,
    }
}

/// The default tiling.
pub(in crate::mapping) fn default(layout: Layout, shape: &Shape, machine: &Machine) -> Tiling {
    start(layout, shape, machine).tiling()
}

/// Most tiles of a core, down and across.
const EXPANSIONS: [u64; 4] = [1, 2, 3, 4];

/// Legal megatiles of the start's rows, on as many columns as have rows of A.
fn plans(layout: Layout, shape: &Shape, machine: &Machine) -> Vec<MegatileDims> {
    let base = start(layout, shape, machine);
    let checks = Checks { mapping: "" };
    let mut found = vec![base.clone()];
    let tiles = |total: u64, limit: u64| {
        let all = divisors(total).into_iter();
        all.filter(move |size| size.is_multiple_of(8) && *size <= limit)
    };
    let share = base.n.iter().copied().fold(0, fused::gcd) / base.rows;
    for (e_y, e_x) in EXPANSIONS.iter().flat_map(|y| EXPANSIONS.map(|x| (*y, x))) {
        if !base.m.is_multiple_of(e_y) || !share.is_multiple_of(e_x) {
            continue;
        }
        for tm in tiles(base.m / e_y, 128) {
            for tn in tiles(share / e_x, 128) {
                let herd = MegatileDims {
                    tm,
                    tn,
                    e_y,
                    e_x,
                    cols: (base.m / (e_y * tm)).clamp(1, machine.cols.into()),
                    ..base.clone()
                };
                let legal = |p: &MegatileDims| check(p, checks, machine).is_ok();
                found.extend(
                    [1024, 256]
                        .into_iter()
                        .filter_map(|d| deepest(&herd, d, legal)),
                );
            }
        }
    }
    found.retain(|p| check(p, checks, machine).is_ok());
    found
}

/// The same with the deepest blocks that are legal, in L2 up to `limit`.
fn deepest(
    herd: &MegatileDims,
    limit: u64,
    legal: impl Fn(&MegatileDims) -> bool,
) -> Option<MegatileDims> {
    let steps = [64, 32, 16]
        .into_iter()
        .map(|limit| largest_divisor(herd.k, limit, 8));
    steps.filter(|tk| *tk > 0).find_map(|tk| {
        let depths = divisors(herd.k).into_iter().rev();
        let mut depths = depths.filter(|kl2| *kl2 <= limit && kl2.is_multiple_of(tk));
        depths.find_map(|kl2| {
            let tiled = MegatileDims {
                tk,
                kl2,
                ..herd.clone()
            };
            legal(&tiled).then_some(tiled)
        })
    })
}

/// Legal tilings, each once.
pub(in crate::mapping) fn all(layout: Layout, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let plans = plans(layout, shape, machine);
    let mut tilings: Vec<Tiling> = plans.iter().map(MegatileDims::tiling).collect();
    tilings.sort_by_key(|t| t.iter().map(|(_, v)| v).collect::<Vec<_>>());
    tilings.dedup();
    tilings
}

/// Legal tilings by their estimated time, least first: which megatile a length of prompt has.
pub(in crate::mapping) fn ranked(
    layout: Layout,
    shape: &Shape,
    machine: &Machine,
    profile: &Profile,
) -> Vec<Tiling> {
    let plans = plans(layout, shape, machine);
    let estimate = |p: &MegatileDims| -> f64 {
        let parts = p.parts().into_iter();
        parts.map(|part| part.estimate_ns(machine, profile)).sum()
    };
    let mut timed: Vec<(f64, &MegatileDims)> = plans.iter().map(|p| (estimate(p), p)).collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut tilings: Vec<Tiling> = timed.into_iter().map(|(_, p)| p.tiling()).collect();
    tilings.dedup();
    tilings
}

/// About the greatest of these times; more if another comes close, since neither is busy all the time then.
fn norm(times_ns: &[f64]) -> f64 {
    let eighth = times_ns.iter().map(|ns| ns.powi(8)).sum::<f64>();
    eighth.powf(0.125)
}

/// Kernel objects of a core.
const OBJECTS: u64 = 3;

/// Bytes of configuration for a core with its share of its column's, and for a shim beyond those columns. They are counted
/// in launches on one column and on two.
const CORE_CONFIGURATION_BYTES: u64 = 1892;
const SHIM_CONFIGURATION_BYTES: u64 = 1104;

impl MegatileLaunch<'_> {
    /// Time of all products, of blocks of k one after the other. A block of A has `e_x` of B, and cores begin the first
    /// when both are there. Channels share the DDR by the size of their requests, so both come together. The next block
    /// of B comes while one is multiplied, over as few channels as there are rows.
    fn products_ns(&self, [a_cost, b_cost]: [f64; 2], machine: &Machine, profile: &Profile) -> f64 {
        let f = |value: u64| value as f64;
        let rate = |kernel: &str| profile.kernel(kernel).copied().unwrap_or_default();
        let p = self.tiled;
        let macs = f(p.height() * p.tn * p.kl2);
        // A step takes a block of A and one of B.
        let takes = f(p.e_y * p.kl2 / p.tk) * 2.0 * profile.core.block_cycles;
        let cycles = macs / rate(MATMUL).macs_per_cycle.max(1.0) + takes;
        let core_ns = cycles * 1e9 / machine.clock_hz;
        let (a, b) = (f(2 * p.height() * p.kl2), f(2 * p.tn * p.kl2));
        let (ddr, port) = (profile.ddr.read_gb_per_s, profile.shim.port_gb_per_s);
        let b_ddr = f(p.rows) * b * b_cost;
        let both_ns = ((f(self.cols) * a * a_cost + b_ddr) / ddr).max(a.max(b) / port);
        let next_ns = (b_ddr / ddr).max(b / port);
        let step_ns = core_ns.max(both_ns) + f(p.e_x - 1) * core_ns.max(next_ns);
        f(self.n_down * p.n_tiles() * (p.k / p.kl2)) * step_ns
    }

    /// Time in steady state, the slowest of cores, DDR and streams, plus the parts that do not overlap: the first
    /// blocks, the last megatile of C, and the loading of cores. [`timing`](millrace_xdna2_machine::timing)
    /// simulates it.
    fn estimate_ns(&self, machine: &Machine, profile: &Profile) -> f64 {
        let f = |value: u64| value as f64;
        let rate = |kernel: &str| profile.kernel(kernel).copied().unwrap_or_default();
        let p = self.tiled;
        let (m, n) = (
            self.n_down * self.cols * p.height(),
            p.n.iter().sum::<u64>(),
        );
        let per_element =
            rate("cast_f32_bf16").cycles_per_element + rate("zero_f32").cycles_per_element;
        let cycle_ns = 1e9 / machine.clock_hz;
        let c = f(m * n) / f(self.cols * p.rows);
        let cost = |burst: u64| 1.0 / profile.burst_efficiency(f(2 * burst));
        let a_bytes = f(2 * m * p.k * p.n_tiles());
        let b_bytes = f(2 * p.k * n * self.n_down);
        let c_bytes = f(2 * m * n);
        let b_run = match p.layout {
            Layout::Rows => p.tn,
            Layout::Panels => PANEL * p.kl2,
        };
        let (a_cost, b_cost) = (cost(p.kl2), cost(b_run));
        let read = a_bytes * a_cost + b_bytes * b_cost;
        let written = c_bytes * cost(p.width());
        let port = profile.shim.port_gb_per_s;
        // A column's shim may read both.
        let (a, b) = (a_bytes / f(self.cols), b_bytes / f(p.rows));
        let stream = machine.stream_bytes_per_s() / 1e9;
        let steady_ns = [
            self.products_ns([a_cost, b_cost], machine, profile) + c * per_element * cycle_ns,
            read / profile.ddr.read_gb_per_s,
            (read + written) / profile.ddr.total_gb_per_s,
            a / port,
            b / port,
            (a + b) / profile.shim.column_read_gb_per_s,
            c_bytes / f(self.cols) / port,
            a * f(p.e_x) / stream,
            b * f(p.e_y) / stream,
        ];
        let blocks = f(2 * p.kl2 * (self.cols * p.height() + p.rows * p.tn));
        let megatile = f(p.height() * p.width());
        let last_ns = megatile * (per_element * cycle_ns + f(2 * p.rows) / port);
        let n_cores = self.cols * p.rows;
        // B comes from as many shims as there are rows of cores.
        let shims = p.rows.saturating_sub(self.cols);
        let bytes = n_cores * CORE_CONFIGURATION_BYTES + shims * SHIM_CONFIGURATION_BYTES;
        let load_ns = (profile.dispatch).load_ns(bytes, (OBJECTS * n_cores) as usize, 2);
        norm(&steady_ns) + blocks / profile.ddr.read_gb_per_s + last_ns + load_ns
    }
}
