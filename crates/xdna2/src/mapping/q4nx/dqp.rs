//! FusedDQP (Gemma paper §3.2.1): products of one vector with weights that stay Q4NX blocks on their way to
//! the cores, the decode projection of quantised plans.
//!
//! A column's weights come from its shim in one stretch, block by block; with two cores in a column its
//! memory tile deals them out, so that 16 cores on 8 columns take what DDR gives. The vector goes from the
//! first shim's other channel to all cores, which keep it with the sums of its groups. A core takes a
//! block of 32 × 256 weights, dequantises and multiplies it in one call, and sends 32 results behind the
//! last block of a row. Several products of one vector are one launch, as in
//! [`gemv-stream`](super::super::gemv_stream), its twin for bf16.

use super::super::data::{Random, bf16_bytes, floats};
use super::super::joined::{self, GEMV_PARTS};
use super::super::parts::{
    Checks, at, block, call_with, constant, core, deep, end, free, get, herd, i, int,
    largest_divisor, launch, local, new, pattern, put, repeat, slot, small, stage, stream, upto, x,
    y,
};
use super::super::{
    BuildError, DIM_MAX, Mapping, Named, Shape, ShapeError, Tiling, Tolerance, Work,
};
use super::{BYTES, COLS, GROUP, Matrix, ROWS, across, random_blocks, unit, weight_slot};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{
    Affine, Channel, Launch, Op, Operand, Order, Place, Stage, StageEnd, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Profile, Program};

/// The mapping.
pub(crate) struct FusedDqp;

/// The mapping's name.
pub(crate) const NAME: &str = "fused-dqp";

/// Longest piece of the vector that a core takes at once.
const PIECE_MAX: u64 = 1024;

/// Herds of a program of more than one: its cores are loaded for every launch.
const SEVERAL: usize = 2;

/// Shape and tiling as plain numbers.
struct Tiled {
    /// Rows of each product.
    rows: Vec<u64>,
    k: u64,
    cols: u64,
    /// Cores of a column: row blocks that lie side by side.
    unit: u64,
}

// Channels of the launch, in this order; the last where a column has several cores.
const W: usize = 0;
const X: usize = 1;
const Y: usize = 2;
const W_IN: usize = 3;

const VECTOR: Operand = Operand::Local(0);
const SUMS: Operand = Operand::Local(1);

impl Tiled {
    fn new(shape: &Shape, cols: u64) -> Tiled {
        let rows = joined::sizes(shape, GEMV_PARTS);
        Tiled {
            unit: unit(&rows),
            rows,
            k: shape["k"],
            cols,
        }
    }

    fn across(&self) -> u64 {
        across(self.k)
    }

    /// Elements of the vector with those that only pad it.
    fn total(&self) -> u64 {
        self.across() * COLS
    }

    fn piece(&self) -> u64 {
        largest_divisor(self.k, PIECE_MAX, GROUP)
    }

    /// Groups of row blocks of a product that a column takes.
    fn share(&self, rows: u64) -> u64 {
        rows / (ROWS * self.unit * self.cols)
    }

    fn n_tiles(&self) -> u64 {
        self.rows.iter().map(|&rows| self.share(rows)).sum()
    }

    fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        checks.herd(self.cols, self.unit, machine)?;
        checks.divides(("k", self.k), ("a group of one scale", GROUP))?;
        let step = ROWS * self.unit * self.cols;
        for (name, &rows) in GEMV_PARTS.iter().zip(&self.rows) {
            checks.divides((name, rows), ("row blocks of all cores", step))?;
        }
        let vector = 2 * (self.total() + self.total() / GROUP);
        let channels = 2 * BYTES + 2 * 2 * self.piece() + 2 * 2 * ROWS;
        checks.l1(vector + 4 * ROWS + channels, machine)
    }

    fn channels(&self) -> Vec<Channel> {
        let (u8, bf16) = (Element::U8, Element::Bf16);
        let cores = [self.cols, self.unit];
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let shim = || Place::Shim(i(0, 1));
        let memory = || Place::Memory(i(0, 1));
        let all = core(upto(self.cols), upto(self.unit));
        let from = if self.unit > 1 { memory() } else { shim() };
        let x = stream(
            "x",
            &[],
            bf16,
            &[self.piece()],
            Place::Shim(constant(0)),
            all,
        );
        let mut channels = vec![
            stream("w", &cores, u8, &[BYTES], from, here()),
            deep(x, 2),
            stream("y", &cores, bf16, &[ROWS], here(), shim()),
        ];
        if self.unit > 1 {
            let blocks = [self.unit, BYTES];
            channels.push(stream("w_in", &[self.cols], u8, &blocks, shim(), memory()));
        }
        channels
    }

    /// The memory tiles, which deal a column's blocks to its cores.
    fn stages(&self) -> Vec<Stage> {
        if self.unit == 1 {
            return Vec::new();
        }
        let whole = pattern(constant(0), &[(self.unit * BYTES, 1)]);
        let part = pattern(Affine::of(Var::Each, int(BYTES)), &[(BYTES, 1)]);
        let drain = StageEnd {
            each: small(self.unit),
            index: vec![i(0, 1), Affine::of(Var::Each, 1)],
            ..end(W, Vec::new(), part)
        };
        let ends = [end(W_IN, vec![i(0, 1)], whole), drain];
        let blocks = [self.unit, BYTES];
        vec![Stage {
            copies: 2,
            ..stage("w_l2", self.cols, i(0, 1), Element::U8, &blocks, ends)
        }]
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
        for (part, &rows) in self.rows.iter().enumerate() {
            let stretch = self.share(rows) * self.across() * self.unit * BYTES;
            let walk = pattern(i(0, stretch), &[(stretch, 1)]);
            transfers.push(if self.unit > 1 {
                task(&[self.cols], 1 + part, W_IN, vec![i(0, 1)], walk)
            } else {
                task(&[self.cols, 1], 1 + part, W, vec![i(0, 1), i(1, 1)], walk)
            });
            let step = ROWS * self.unit;
            let first = i(0, self.share(rows) * step).plus(Var::Index(1), int(ROWS));
            let walk = pattern(first, &[(self.share(rows), step), (ROWS, 1)]);
            let index = vec![i(0, 1), i(1, 1)];
            transfers.push(task(&[self.cols, self.unit], 1 + n + part, Y, index, walk));
        }
        transfers
    }

    fn body(&self) -> Vec<Op> {
        let (piece, total) = (self.piece(), self.total());
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
        vec![
            repeat(self.k / piece, vec![get(X, Vec::new(), 0), take, free(0)]),
            repeat(self.n_tiles(), vec![new(Y, here(), 1), blocks, put(1)]),
        ]
    }

    /// Time in steady state and the loading of cores; [`timing`](millrace_xdna2_machine::timing) simulates it.
    fn estimate_ns(&self, machine: &Machine, profile: &Profile) -> f64 {
        let f = |value: u64| value as f64;
        let cycles = profile.kernel("q4nx_project_bf16").copied();
        let macs_per_cycle = cycles.map_or(1.0, |c| c.macs_per_cycle.max(f64::MIN_POSITIVE));
        let blocks = f(self.n_tiles() * self.cols * self.unit * self.across());
        let n_cores = self.cols * self.unit;
        let core_ns =
            blocks / f(n_cores) * f(ROWS * COLS) / macs_per_cycle * 1e9 / machine.clock_hz;
        let rate = (f(self.cols) * profile.shim.port_gb_per_s).min(profile.ddr.read_gb_per_s);
        let n_cores = n_cores as usize;
        core_ns.max(blocks * f(BYTES) / rate)
            + profile.dispatch.load_ns(n_cores, 2 * n_cores, SEVERAL)
    }
}

impl Mapping for FusedDqp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "y0 = W0 x, y1 = W1 x, ..., bf16, W in Q4NX blocks to the cores; M0+M1+...xK"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        let form = "M0+M1+...xK";
        let parts: Vec<&str> = text.trim().split(['x', 'X', '×']).collect();
        let (rows, k) = match parts[..] {
            [rows, k] => (rows, k.trim().parse().unwrap_or(0)),
            _ => (text, 0),
        };
        let mut pairs = joined::parse(text, rows, GEMV_PARTS, form)?;
        if !(1..=DIM_MAX).contains(&k) {
            return Err(ShapeError::new(text, &format!("the shape is {form}")));
        }
        pairs.push(("k", k));
        Ok(Named::new(&pairs))
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let all = self.tilings(shape, machine);
        all.into_iter()
            .next()
            .unwrap_or_else(|| Named::new(&[("cols", 1)]))
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let cols = (1..=u64::from(machine.cols)).rev();
        let legal = cols.filter(|&cols| Tiled::new(shape, cols).check(machine).is_ok());
        legal.map(|cols| Named::new(&[("cols", cols)])).collect()
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        Checks { mapping: NAME }.bounded(shape, tiling)?;
        let p = Tiled::new(shape, tiling["cols"]);
        p.check(machine)?;
        let args: Vec<usize> = (0..1 + 2 * p.rows.len()).collect();
        let locals = vec![
            local("v", Element::Bf16, &[p.total() + p.total() / GROUP]),
            local("sums", Element::F32, &[ROWS]),
        ];
        let project = Launch {
            channels: p.channels(),
            stages: p.stages(),
            transfers: p.transfers(),
            herds: vec![herd("cores", p.cols, p.unit, locals, p.body())],
            ..launch("dqp", &args, &[], Order::Streamed)
        };
        let rows = || p.rows.iter().enumerate();
        let mut slots = vec![slot("x", Element::Bf16, &[p.k], Role::Input)];
        slots.extend(rows().map(|(i, &m)| weight_slot(&format!("w{i}"), [m, p.k], p.unit)));
        slots.extend(
            rows().map(|(i, &m)| slot(&format!("y{i}"), Element::Bf16, &[m], Role::Output)),
        );
        Ok(Program {
            name: "fused_dqp".to_owned(),
            slots,
            launches: vec![project],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (rows, k) = (joined::sizes(shape, GEMV_PARTS), shape["k"]);
        let mut random = Random::new(seed);
        let mut slots = vec![random.bf16_bytes(k, 1.0)];
        slots.extend(rows.iter().map(|&m| random_blocks(&mut random, [m, k])));
        slots.extend(rows.iter().map(|&m| vec![0; 2 * m as usize]));
        slots
    }

    fn reference(
        &self,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (rows, k) = (joined::sizes(shape, GEMV_PARTS), shape["k"]);
        let unit = unit(&rows);
        let x = floats(&slots[0]);
        let product = |(part, &m): (usize, &u64)| {
            let w = Matrix::new(&slots[1 + part], k, unit);
            (
                1 + rows.len() + part,
                bf16_bytes(&w.product(m as usize, &x)),
            )
        };
        rows.iter().enumerate().map(product).collect()
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> Work {
        let m: u64 = joined::sizes(shape, GEMV_PARTS).iter().sum();
        let k = shape["k"];
        Work {
            flops: 2 * m * k,
            ddr_bytes: m / ROWS * across(k) * BYTES + 2 * (k + m),
        }
    }
}

/// Legal tilings by their estimated time, least first.
pub(crate) fn ranked(shape: &Shape, machine: &Machine, profile: &Profile) -> Vec<Tiling> {
    let tilings = FusedDqp.tilings(shape, machine);
    let estimate = |t: &Tiling| Tiled::new(shape, t["cols"]).estimate_ns(machine, profile);
    let mut timed: Vec<(f64, Tiling)> = tilings.into_iter().map(|t| (estimate(&t), t)).collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    timed.into_iter().map(|(_, tiling)| tiling).collect()
}
