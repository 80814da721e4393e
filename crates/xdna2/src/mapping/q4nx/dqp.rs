//! FusedDQP (Gemma paper §3.2.1): products of one vector with weights that stay Q4NX blocks on their way to
//! the cores, the decode projection of quantised plans.
//!
//! A column's weights come from its shim in one stretch, block by block. With two cores in a column its memory tile
//! deals them out, so that 16 cores on 8 columns take the whole rate of DDR. The vector goes from the first shim's
//! other channel to all cores, which keep it with the sums of its groups. A core takes a block of 32 × 256 weights,
//! dequantises and multiplies it in one call, and sends 32 results after the last block of a row. The memory tile joins
//! those of a column. Row blocks go to the columns in turn, so that any number of them is shared evenly. With `total`
//! and `piece` the same in several launches their cores have one program, except for its loop counts. Several products
//! of one vector are one launch, as in [`gemv-stream`](super::super::gemv_stream), its twin for bf16.

mod mapping;

use super::super::fused::{self, GEMV_PARTS};
use super::super::parts::{
    Checks, at, block, call_with, constant, core, end, free, get, i, int, largest_divisor, local,
    new, pattern, put, repeat, small, stage, stream, upto, x, y,
};
use super::super::{BuildError, Mapping, NamedNumbers, Rule, Shape, Tiling};
use super::token::{Attend, Heads};
use super::{BYTES, COLS, GROUP, ROWS, across, shares, stretches, unit};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{
    Affine, Channel, Condition, Local, Op, Operand, Place, Stage, StageEnd, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Profile};

/// The mapping.
pub(crate) struct FusedDqp;

/// The mapping's name.
pub(crate) const NAME: &str = "fused-dqp";

/// Longest piece of the vector that a core takes at once.
const PIECE_MAX: u64 = 1024;

/// Shape and tiling as plain numbers.
pub(super) struct DqpDims {
    /// Rows of each product.
    rows: Vec<u64>,
    k: u64,
    cols: u64,
    /// Cores of a column: row blocks that are side by side.
    unit: u64,
    /// Elements of the vector with those that only pad it.
    total: u64,
    /// Elements of the vector that a core takes at once.
    piece: u64,
    /// Heads, if the cores attend, too, in other launches.
    heads: Option<Heads>,
    /// Whether a column has its groups of a product in one stretch.
    stretches: bool,
}

// Channels of the launch, in this order; the last two where a column has several cores.
pub(super) const W: usize = 0;
pub(super) const X: usize = 1;
pub(super) const Y: usize = 2;
pub(super) const W_IN: usize = 3;
pub(super) const Y_OUT: usize = 4;

pub(super) const VECTOR: Operand = Operand::Local(0);
const SUMS: Operand = Operand::Local(1);

/// Elements of a vector of k in whole blocks.
pub(crate) fn padded(k: u64) -> u64 {
    across(k) * COLS
}

/// The longest piece that divides vectors of all these lengths.
pub(crate) fn piece(lengths: &[u64]) -> u64 {
    let common = lengths.iter().copied().fold(0, gcd);
    largest_divisor(common, PIECE_MAX, GROUP)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The tiling on so many columns.
pub(crate) fn tiling(cols: u64, total: u64, piece: u64) -> Tiling {
    NamedNumbers::new(&[("cols", cols), ("total", total), ("piece", piece)])
}

impl DqpDims {
    fn new(shape: &Shape, tiling: &Tiling) -> DqpDims {
        let rows = fused::sizes(shape, GEMV_PARTS);
        DqpDims {
            unit: unit(&rows),
            rows,
            k: shape["k"],
            cols: tiling["cols"],
            total: tiling["total"],
            piece: tiling["piece"],
            heads: Heads::of_projection(tiling),
            stretches: tiling.get("stretches") == Some(1),
        }
    }

    /// The cores in a launch that attends: no product, a vector of query, key, value and position.
    pub(super) fn attending(heads: Heads, (cols, piece): (u64, u64), unit: u64) -> DqpDims {
        let vector = (heads.n_heads + 2 * heads.n_kv_heads) * heads.head_dim;
        DqpDims {
            rows: Vec::new(),
            k: vector + piece,
            cols,
            unit,
            total: heads.total,
            piece,
            heads: Some(heads),
            stretches: false,
        }
    }

    pub(super) fn piece(&self) -> u64 {
        self.piece
    }

    fn across(&self) -> u64 {
        across(self.k)
    }

    /// Groups of row blocks of a product.
    fn groups(&self, rows: u64) -> u64 {
        rows / (ROWS * self.unit)
    }

    fn n_groups(&self) -> u64 {
        self.rows.iter().map(|&rows| self.groups(rows)).sum()
    }

    /// Checks that apply to the cores in every role.
    pub(super) fn check_cores(&self, checks: Checks, machine: &Machine) -> Result<(), BuildError> {
        checks.herd(self.cols, self.unit, machine)?;
        checks.divides(("k", self.k), ("a group of one scale", GROUP))?;
        checks.divides(("piece", self.piece), ("a group of one scale", GROUP))?;
        checks.divides(("k", self.k), ("piece", self.piece))?;
        checks.divides(("total", self.total), ("a block's columns", COLS))?;
        if let Some(heads) = &self.heads {
            heads.check(checks, self.cols)?;
        }
        checks.l1(self.l1_bytes(), machine)
    }

    pub(super) fn l1_bytes(&self) -> u64 {
        let attending = self.heads.as_ref().map_or(0, Heads::l1_bytes);
        let vector = 2 * (self.total + self.total / GROUP);
        let channels = 2 * BYTES + 2 * 2 * self.piece + 2 * 2 * ROWS;
        vector + 4 * ROWS + channels + attending
    }

    fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        self.check_cores(checks, machine)?;
        checks.ensure(self.heads.is_none() || self.unit > 1, Rule::Divides, || {
            "cores that attend stand in pairs, and rows are no multiple of 64".to_owned()
        })?;
        checks.ensure(self.total >= padded(self.k), Rule::Range, || {
            format!(
                "total = {}; the padded vector has {}",
                self.total,
                padded(self.k)
            )
        })?;
        for (name, &rows) in GEMV_PARTS.iter().zip(&self.rows) {
            checks.divides((name, rows), ("rows of a block", ROWS))?;
        }
        checks.ensure(self.n_groups() >= self.cols, Rule::Divides, || {
            let n = self.n_groups();
            format!(
                "{n} groups of row blocks for {} columns; take fewer columns",
                self.cols
            )
        })
    }

    pub(super) fn channels(&self) -> Vec<Channel> {
        let (u8, bf16) = (Element::U8, Element::Bf16);
        let cores = [self.cols, self.unit];
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let shim = || Place::Shim(i(0, 1));
        let memory = || Place::Memory(i(0, 1));
        let all = core(upto(self.cols), upto(self.unit));
        let other = || if self.unit > 1 { memory() } else { shim() };
        let first = Place::Shim(constant(0));
        let mut channels = vec![
            stream("w", &cores, u8, &[BYTES], other(), here()),
            stream("x", &[], bf16, &[self.piece], first, all),
            stream("y", &cores, bf16, &[ROWS], here(), other()),
        ];
        if self.unit > 1 {
            let (blocks, results) = ([self.unit, BYTES], [self.unit, ROWS]);
            let cols = [self.cols];
            channels.extend([
                stream("w_in", &cols, u8, &blocks, shim(), memory()),
                stream("y_out", &cols, bf16, &results, memory(), shim()),
            ]);
        }
        channels
    }

    /// The memory tiles, which deal a column's blocks to its cores and join the results.
    pub(super) fn stages(&self) -> Vec<Stage> {
        if self.unit == 1 {
            return Vec::new();
        }
        let all = |part: u64| pattern(constant(0), &[(self.unit * part, 1)]);
        let each = |channel: usize, part: u64| StageEnd {
            each: small(self.unit),
            index: vec![i(0, 1), Affine::of(Var::Each, 1)],
            ..end(
                channel,
                Vec::new(),
                pattern(Affine::of(Var::Each, int(part)), &[(part, 1)]),
            )
        };
        let own = || vec![i(0, 1)];
        let two = |stage: Stage| Stage { copies: 2, ..stage };
        let weights = [end(W_IN, own(), all(BYTES)), each(W, BYTES)];
        let results = [each(Y, ROWS), end(Y_OUT, own(), all(ROWS))];
        let (cols, col) = (self.cols, || i(0, 1));
        let (blocks, sums) = ([self.unit, BYTES], [self.unit, ROWS]);
        vec![
            two(stage("w_l2", cols, col(), Element::U8, &blocks, weights)),
            two(stage("y_l2", cols, col(), Element::Bf16, &sums, results)),
        ]
    }

    fn transfers(&self) -> Vec<Transfer> {
        let task = |dims: &[u64], arg: usize, channel: usize, index, pattern| Transfer {
            dims: dims.iter().map(|&d| small(d)).collect(),
            loops: Vec::new(),
            arg,
            channel,
            index,
            pattern,
        };
        let vector = pattern(constant(0), &[(self.k, 1)]);
        let mut transfers = vec![task(&[], 0, X, Vec::new(), vector)];
        let n = self.rows.len();
        let (blocks, results) = (self.across() * self.unit * BYTES, self.unit * ROWS);
        let groups: Vec<u64> = self.rows.iter().map(|&rows| self.groups(rows)).collect();
        let deal = if self.stretches { stretches } else { shares };
        for share in deal(&groups, self.cols) {
            let (first_col, n_cols) = share.cols;
            for (unit, arg, channels) in [
                (blocks, 1 + share.part, [W, W_IN]),
                (results, 1 + n + share.part, [Y, Y_OUT]),
            ] {
                let stretch = share.each * unit;
                let at = i(0, stretch) + int(share.first * unit);
                let walk = pattern(at, &[(stretch, 1)]);
                let col = i(0, 1) + int(first_col);
                transfers.push(match self.unit {
                    1 => task(&[n_cols, 1], arg, channels[0], vec![col, i(1, 1)], walk),
                    _ => task(&[n_cols], arg, channels[1], vec![col], walk),
                });
            }
        }
        transfers
    }

    pub(super) fn locals(&self) -> Vec<Local> {
        let mut locals = vec![
            local("v", Element::Bf16, &[self.total + self.total / GROUP]),
            local("sums", Element::F32, &[ROWS]),
        ];
        locals.extend(self.heads.iter().flat_map(Heads::locals));
        locals
    }

    /// A core's program.
    pub(super) fn body(&self, attend: Attend) -> Vec<Op> {
        let (piece, total) = (self.piece, self.total);
        let along =
            |loop_depth: u8, factor: u64| vec![Affine::of(Var::Loop(loop_depth), int(factor))];
        let take = call_with(
            "q4nx_take_bf16",
            &[piece, total],
            &[block(0), VECTOR],
            along(0, piece),
            Vec::new(),
        );
        let project = call_with(
            "q4nx_project_bf16",
            &[total],
            &[block(0), VECTOR, SUMS, block(1)],
            along(1, 1),
            Vec::new(),
        );
        let here = || vec![x(), y()];
        let blocks = repeat(self.across(), vec![get(W, here(), 0), project, free(0)]);
        // Groups are dealt in turn: the column has one more while there are any.
        let dealt = Affine::of(Var::Loop(0), int(self.cols)).plus(Var::X, 1);
        let tile = Op::If {
            value: dealt + -int(self.n_groups()),
            condition: Condition::Negative,
            then: vec![new(Y, here(), 1), blocks, put(1)],
            otherwise: Vec::new(),
        };
        let mut body = vec![
            repeat(self.k / piece, vec![get(X, Vec::new(), 0), take, free(0)]),
            repeat(self.n_groups().div_ceil(self.cols), vec![tile]),
        ];
        let attend = self.heads.iter().flat_map(|heads| heads.ops(attend));
        body.extend(attend);
        body
    }

    /// Time in steady state; [`timing`](millrace_xdna2_machine::timing) simulates it. Loading is left out: the
    /// cores of a token's projections stay.
    fn estimate_ns(&self, machine: &Machine, profile: &Profile) -> f64 {
        let f = |value: u64| value as f64;
        let cycles = profile.kernel("q4nx_project_bf16").copied();
        let macs_per_cycle = cycles.map_or(1.0, |c| c.macs_per_cycle.max(f64::MIN_POSITIVE));
        let blocks = f(self.n_groups() * self.unit * self.across());
        let most = f(self.n_groups().div_ceil(self.cols) * self.across());
        let core_ns = most * f(ROWS * COLS) / macs_per_cycle * 1e9 / machine.clock_hz;
        let rate = (f(self.cols) * profile.shim.port_gb_per_s).min(profile.ddr.read_gb_per_s);
        core_ns.max(blocks * f(BYTES) / rate)
    }
}

/// The tiling of a single launch.
fn own_tiling(shape: &Shape, cols: u64) -> Tiling {
    let k = shape["k"];
    tiling(cols, padded(k), piece(&[k]))
}

/// Legal tilings by their estimated time, least first.
pub(crate) fn ranked(shape: &Shape, machine: &Machine, profile: &Profile) -> Vec<Tiling> {
    let tilings = FusedDqp.tilings(shape, machine);
    let estimate = |t: &Tiling| DqpDims::new(shape, t).estimate_ns(machine, profile);
    let mut timed: Vec<(f64, Tiling)> = tilings.into_iter().map(|t| (estimate(&t), t)).collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    timed.into_iter().map(|(_, tiling)| tiling).collect()
}
