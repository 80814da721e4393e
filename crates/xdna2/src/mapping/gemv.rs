//! bf16 GEMV on one row of cores, the decode projection of MLIR-AIR's Llama-3.2-1B example.
//!
//! A launch iteration computes `cols · tile_m` rows of W. Each column's memory tile holds a panel
//! `[tile_m, K]`, `l2_copies` times, and hands it on in blocks of `m_input` rows; the vector goes from
//! one shim to all cores and bypasses L2. One copy of the panels of all columns keeps within 512 KiB,
//! the software's budget, which caps `tile_m` at 8 for K = 2048 and at 2 for K = 8192.
//!
//! `l1_depth = 2` is ping-pong for both operands of a core, which K = 8192 has no room for.
//!
//! With `streamed = 1` an iteration's results are not awaited before the next one's panels are
//! fetched: their tasks are queued behind each other.

use super::data::{Random, bf16_bytes, floats};
use super::parts::{
    Checks, at, block, call, call_with, constant, core, deep, divisors, end, free, g, get, herd, i,
    int, largest_divisor, launch, new, pattern, put, repeat, slot, small, stage, stream, transfer,
    upto, x,
};
use super::{
    BuildError, LeastWork, Mapping, NamedNumbers, Rule, Shape, ShapeError, Tiling, Tolerance,
    parse_dims,
};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{
    Affine, Channel, GridOrder, Launch, Op, Place, Stage, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};

/// The GEMV.
pub(super) struct Gemv;

/// Lanes of the vector unit's partial sums (`mv.cc`: 64 bf16 products a step).
pub(super) const LANES: u64 = 64;

/// MLIR-AIR's budget for all panels and outputs of an iteration (`GEMV_bf16.md`).
const PANELS_BYTES: u64 = 512 << 10;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy)]
struct GemvDims {
    m: u64,
    k: u64,
    tile_m: u64,
    m_input: u64,
    cols: u64,
    l1_depth: u64,
    l2_copies: u64,
    streamed: u64,
}

// Channels of the launch, in this order.
const W_IN: usize = 0;
const W: usize = 1;
const X: usize = 2;
const Y: usize = 3;
const Y_OUT: usize = 4;

impl GemvDims {
    fn new(shape: &Shape, tiling: &Tiling) -> GemvDims {
        GemvDims {
            m: shape["m"],
            k: shape["k"],
            tile_m: tiling["tile_m"],
            m_input: tiling["m_input"],
            cols: tiling["cols"],
            l1_depth: tiling["l1_depth"],
            l2_copies: tiling["l2_copies"],
            streamed: tiling["streamed"],
        }
    }

    /// A problem without a tiling yet: every size is 0.
    fn untiled(shape: &Shape) -> GemvDims {
        let none = NamedNumbers::new(&[
            ("tile_m", 0),
            ("m_input", 0),
            ("cols", 0),
            ("l1_depth", 0),
            ("l2_copies", 0),
            ("streamed", 0),
        ]);
        GemvDims::new(shape, &none)
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_m", self.tile_m),
            ("m_input", self.m_input),
            ("cols", self.cols),
            ("l1_depth", self.l1_depth),
            ("l2_copies", self.l2_copies),
            ("streamed", self.streamed),
        ])
    }

    fn l1_bytes(&self) -> u64 {
        2 * (self.l1_depth * (self.m_input + 1) * self.k + 2 * self.tile_m)
    }

    fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks {
            mapping: Gemv.name(),
        };
        checks.herd(self.cols, 1, machine)?;
        checks.divides(("k", self.k), ("the vector unit's lanes", LANES))?;
        checks.divides(("m", self.m), ("cols * tile_m", self.cols * self.tile_m))?;
        checks.divides(("tile_m", self.tile_m), ("m_input", self.m_input))?;
        checks.ensure(self.tile_m.is_multiple_of(2), Rule::Granularity, || {
            format!(
                "tile_m = {}: its bf16 results end within an address unit of 4 bytes; take an even \
                 tile_m",
                self.tile_m
            )
        })?;
        for (name, value) in [("l1_depth", self.l1_depth), ("l2_copies", self.l2_copies)] {
            checks.ensure((1..=2).contains(&value), Rule::Range, || {
                format!("{name} = {value}; it is 1, or 2 for ping-pong")
            })?;
        }
        checks.ensure(self.streamed <= 1, Rule::Range, || {
            format!("streamed = {}; it is 0 or 1", self.streamed)
        })?;
        let panels = 2 * self.cols * self.tile_m * (self.k + 1);
        checks.ensure(panels <= PANELS_BYTES, Rule::L2, || {
            format!("panels of {panels} bytes, the budget is {PANELS_BYTES}; take a smaller tile_m")
        })?;
        self.check_iterations(machine)?;
        checks.l1(self.l1_bytes(), machine)
    }

    /// The iterations of a launch become a repeat count and one dimension of a shim descriptor, so their number must be
    /// a product of numbers that both can hold. 151936 rows of 1024 fit no tile (`GEMV_bf16.md`).
    fn check_iterations(&self, machine: &Machine) -> Result<(), BuildError> {
        let n = self.m / (self.cols * self.tile_m);
        let repeats = u64::from(machine.repeat_max) + 1;
        let wrap = (1 << machine.shim.wrap_bits) - 1;
        let fits = divisors(n).iter().any(|&d| d <= repeats && n / d <= wrap);
        let checks = Checks {
            mapping: Gemv.name(),
        };
        checks.ensure(fits, Rule::Repeat, || {
            format!(
                "{n} iterations are no product of a repeat up to {repeats} and a size up to {wrap}; \
                 take another tile_m, or split the rows into several calls"
            )
        })
    }

    fn channels(&self) -> Vec<Channel> {
        let bf16 = Element::Bf16;
        let col = || i(0, 1);
        let here = || core(at(col()), at(constant(0)));
        let shim = || Place::Shim(col());
        let memory = || Place::Memory(col());
        let cols = [self.cols];
        let all = core(upto(self.cols), at(constant(0)));
        let x_from = Place::Shim(constant(0));
        let w = stream("w", &cols, bf16, &[self.m_input, self.k], memory(), here());
        vec![
            stream(
                "w_in",
                &cols,
                bf16,
                &[self.tile_m, self.k],
                shim(),
                memory(),
            ),
            deep(w, self.l1_depth),
            deep(
                stream("x", &[], bf16, &[self.k], x_from, all),
                self.l1_depth,
            ),
            stream("y", &cols, bf16, &[self.tile_m], here(), memory()),
            stream("y_out", &cols, bf16, &[self.tile_m], memory(), shim()),
        ]
    }

    fn stages(&self) -> Vec<Stage> {
        let whole = |n| pattern(constant(0), &[(n, 1)]);
        let ends = |fill, drain, n| {
            let index = || vec![i(0, 1)];
            [end(fill, index(), whole(n)), end(drain, index(), whole(n))]
        };
        let panel = self.tile_m * self.k;
        let bf16 = Element::Bf16;
        let w_block = [self.tile_m, self.k];
        let w = ends(W_IN, W, panel);
        let y = ends(Y, Y_OUT, self.tile_m);
        let mut w = stage("w_l2", self.cols, i(0, 1), bf16, &w_block, w);
        w.copies = small(self.l2_copies);
        vec![
            w,
            stage("y_l2", self.cols, i(0, 1), bf16, &[self.tile_m], y),
        ]
    }

    fn transfers(&self) -> Vec<Transfer> {
        let step = self.cols * self.tile_m;
        let first = |unit: u64| g(0, step * unit).plus(Var::Index(0), int(self.tile_m * unit));
        let panel = pattern(first(self.k), &[(self.tile_m * self.k, 1)]);
        let vector = Transfer {
            dims: Vec::new(),
            loops: Vec::new(),
            arg: 1,
            channel: X,
            index: Vec::new(),
            pattern: pattern(constant(0), &[(self.k, 1)]),
        };
        let result = pattern(first(1), &[(self.tile_m, 1)]);
        vec![
            transfer(self.cols, 0, W_IN, panel),
            vector,
            transfer(self.cols, 2, Y_OUT, result),
        ]
    }

    fn body(&self) -> Vec<Op> {
        let operands = [block(2), block(0), block(1)];
        let matvec = if self.m_input == self.tile_m {
            call("matvec_bf16_bf16", &[self.m_input, self.k], &operands)
        } else {
            call_with(
                "matvec_part_bf16_bf16",
                &[self.m_input, self.k, self.tile_m],
                &operands,
                vec![Affine::of(Var::Loop(0), int(self.m_input))],
                Vec::new(),
            )
        };
        let rows = vec![get(W, vec![x()], 2), matvec, free(2)];
        vec![
            get(X, Vec::new(), 0),
            new(Y, vec![x()], 1),
            repeat(self.tile_m / self.m_input, rows),
            put(1),
            free(0),
        ]
    }
}

impl Mapping for Gemv {
    fn name(&self) -> &'static str {
        "gemv"
    }

    fn summary(&self) -> &'static str {
        "y[M] = W[M,K] x[K], bf16; MxK"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse_dims(text, ["m", "k"])
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        self.tilings(shape, machine).into_iter().next().unwrap_or(
            GemvDims {
                tile_m: 2,
                m_input: 2,
                cols: 1,
                l1_depth: 1,
                l2_copies: 1,
                streamed: 0,
                ..GemvDims::untiled(shape)
            }
            .tiling(),
        )
    }

    /// Widest herd first, then tall tiles, then few calls; after all that await their results, those
    /// that do not.
    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let mut tilings = Vec::new();
        let m = shape["m"];
        for cols in (1..=u64::from(machine.cols)).rev() {
            let largest = largest_divisor(m / cols, 16, 2);
            for tile_m in [largest, 16, 8, 4, 2] {
                for m_input in divisors(tile_m).into_iter().rev() {
                    for l1_depth in [1, 2] {
                        let tiled = GemvDims {
                            m,
                            k: shape["k"],
                            tile_m,
                            m_input,
                            cols,
                            l1_depth,
                            l2_copies: 1,
                            streamed: 0,
                        };
                        let tiling = tiled.tiling();
                        if tiled.check(machine).is_ok() && !tilings.contains(&tiling) {
                            tilings.push(tiling);
                        }
                    }
                }
            }
        }
        let streamed = |copies| {
            let with = move |t: &Tiling| t.clone().with("l2_copies", copies).with("streamed", 1);
            tilings.iter().map(with)
        };
        let streamed: Vec<Tiling> = streamed(2).chain(streamed(1)).collect();
        tilings.extend(streamed);
        tilings
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = GemvDims::new(shape, tiling);
        let checks = Checks {
            mapping: self.name(),
        };
        checks.bounded(shape, tiling)?;
        p.check(machine)?;
        let grid = [p.m / (p.cols * p.tile_m)];
        let order = match p.streamed {
            0 => GridOrder::Sequential,
            _ => GridOrder::Streamed,
        };
        let gemv = Launch {
            channels: p.channels(),
            stages: p.stages(),
            transfers: p.transfers(),
            herds: vec![herd("cores", p.cols, 1, Vec::new(), p.body())],
            ..launch("gemv", &[0, 1, 2], &grid, order)
        };
        let bf16 = Element::Bf16;
        Ok(Program {
            name: "gemv".to_owned(),
            slots: vec![
                slot("w", bf16, &[p.m, p.k], Role::Static),
                slot("x", bf16, &[p.k], Role::Input),
                slot("y", bf16, &[p.m], Role::Output),
            ],
            launches: vec![gemv],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (m, k) = (shape["m"], shape["k"]);
        let mut random = Random::new(seed);
        let w = random.bf16_bytes(m * k, 1.0);
        let x = random.bf16_bytes(k, 1.0);
        vec![w, x, vec![0; 2 * m as usize]]
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let y = product(&slots[0], &slots[1], shape["k"] as usize);
        vec![(2, bf16_bytes(&y))]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let (m, k) = (shape["m"], shape["k"]);
        LeastWork {
            flops: 2 * m * k,
            ddr_bytes: 2 * (m * k + k + m),
        }
    }
}

/// `W · x` of bf16 bytes: each row in 64 partial sums (k mod 64), k ascending, then the sums added in
/// halves.
pub(super) fn product(w: &[u8], x: &[u8], k: usize) -> Vec<f32> {
    let (w, x) = (floats(w), floats(x));
    let dot = |row: &[f32]| {
        let mut sums = [0.0_f32; LANES as usize];
        for (w, x) in row.chunks_exact(sums.len()).zip(x.chunks_exact(sums.len())) {
            for ((sum, w), x) in sums.iter_mut().zip(w).zip(x) {
                *sum += w * x;
            }
        }
        let mut width = sums.len() / 2;
        while width > 0 {
            for lane in 0..width {
                sums[lane] += sums[lane + width];
            }
            width /= 2;
        }
        sums[0]
    };
    w.chunks_exact(k).map(dot).collect()
}
