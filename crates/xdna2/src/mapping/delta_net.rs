//! A token of gated delta nets. Each value head has a state `[k, v]` in f32 that fades, is corrected at the token's key
//! and read at its query.
//!
//! A head of 128 × 128 has 64 KiB of state, a core's whole memory. So no core keeps a state, and several layers' states
//! fit no memory of the array (18 layers of 16 heads: 18 MiB; all cores have 2 MiB, all memory tiles 4). States
//! stream: DDR to memory tiles, cores, memory tiles, DDR, once each way a token, double-buffered. bf16 would halve the
//! bytes, but a state is the sum of all tokens before, and its roundings would add up.
//!
//! # On the array
//! Columns of a state do not depend on each other. A state lies by blocks of 16 columns, `[v/16, k, 16]`, as the host has it:
//! a block is one vector wide. An array's column takes a share of the heads; its memory tile deals a head's blocks in turn to
//! its cores. The head's *row* (query, key and values, decay and strength) comes from the shim to all of them at once.
//! Everything that crosses a shim is contiguous.
//!
//! New states and results go back by two channels of a core, which the memory tile joins. Together with the two for
//! states down and up, two cores a column take five of its six incoming channels, and four would take nine. Sixteen
//! cores are enough: the states' bytes take longer than their arithmetic.
//!
//! # Bits
//! Each element of a result is the work of one lane of one core, in the order of the key's elements: no tiling changes a bit.

mod reference;

use super::data::{Random, f32_bytes};
use super::parts::{
    Checks, at, block, call_with, core, deep, divisors, free, get, herd, i, int, largest_divisor,
    launch, new, pattern, put, repeat, slot, stream, transfer, upto, x, y,
};
use super::streaming::dealt_and_joined;
use super::{
    BuildError, LeastWork, Mapping, NamedNumbers, Rule, Shape, ShapeError, Tiling, Tolerance,
    parse_dims,
};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{Affine, Channel, GridOrder, Launch, Op, Place, Stage, Var};
use millrace_xdna2_machine::{Machine, Numerics, Program};

/// The mapping.
pub(super) struct DeltaNet;

/// Its name.
pub(crate) const NAME: &str = "delta-net";

/// Contiguous columns of a state.
pub(crate) const LANES: u64 = 16;

/// Elements of a head's row for decay and strength, a vector.
const GATES: u64 = LANES;

/// Elements of a head's row: query, key, values, then decay, strength and zeros.
pub(crate) fn row_elements(k_dim: u64, v_dim: u64) -> u64 {
    2 * k_dim + v_dim + GATES
}

/// The shape of a token.
pub(crate) fn shape(n_heads: u64, k_dim: u64, v_dim: u64) -> Shape {
    NamedNumbers::new(&[("heads", n_heads), ("k", k_dim), ("v", v_dim)])
}

// Channels of the launch, in this order.
const S_IN: usize = 0;
const S: usize = 1;
const S_NEW: usize = 2;
const S_OUT: usize = 3;
const ROW: usize = 4;
const Y: usize = 5;
const Y_OUT: usize = 6;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy)]
struct DeltaDims {
    heads: u64,
    k: u64,
    v: u64,
    cols: u64,
    rows: u64,
    /// Blocks of 16 columns that a core takes at a time.
    blocks: u64,
    l1_depth: u64,
    l2_copies: u64,
}

impl DeltaDims {
    fn new(shape: &Shape, tiling: &Tiling) -> DeltaDims {
        DeltaDims {
            heads: shape["heads"],
            k: shape["k"],
            v: shape["v"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            blocks: tiling["blocks"],
            l1_depth: tiling["l1_depth"],
            l2_copies: tiling["l2_copies"],
        }
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("cols", self.cols),
            ("rows", self.rows),
            ("blocks", self.blocks),
            ("l1_depth", self.l1_depth),
            ("l2_copies", self.l2_copies),
        ])
    }

    /// Elements of state that a core has at a time.
    fn part(&self) -> u64 {
        self.blocks * self.k * LANES
    }

    /// Heads of a column.
    fn share(&self) -> u64 {
        self.heads / self.cols
    }

    fn l1_bytes(&self) -> u64 {
        let states = 2 * self.part() + row_elements(self.k, self.v);
        self.l1_depth * (4 * states + 2 * self.blocks * LANES)
    }

    fn l2_bytes(&self) -> u64 {
        self.l2_copies * self.rows * (8 * self.part() + 2 * self.blocks * LANES)
    }

    fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        for (name, value) in [("l1_depth", self.l1_depth), ("l2_copies", self.l2_copies)] {
            checks.ensure((1..=2).contains(&value), Rule::Range, || {
                format!("{name} = {value}; it is 1, or 2 for ping-pong")
            })?;
        }
        checks.herd(self.cols, self.rows, machine)?;
        let channels = u64::from(machine.memory.s2mm);
        let taken = 1 + 2 * self.rows;
        checks.ensure(taken <= channels, Rule::Streams, || {
            format!(
                "{} cores a column send states and results by {taken} channels into a memory tile of {channels}; take rows=2",
                self.rows
            )
        })?;
        let lanes = ("a vector's columns", LANES);
        checks.divides(("v", self.v), lanes)?;
        checks.divides(("heads", self.heads), ("cols", self.cols))?;
        let dealt = self.rows * self.blocks;
        checks.divides(("v / 16", self.v / LANES), ("rows * blocks", dealt))?;
        checks.l2(self.l2_bytes(), machine)?;
        checks.l1(self.l1_bytes(), machine)
    }

    fn channels(&self) -> Vec<Channel> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let (cols, cores) = ([self.cols], [self.cols, self.rows]);
        let (shim, memory) = (|| Place::Shim(i(0, 1)), || Place::Memory(i(0, 1)));
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let column = core(at(i(0, 1)), upto(self.rows));
        let part = [self.blocks, self.k, LANES];
        let dealt = [self.rows * self.blocks, self.k, LANES];
        let y = self.blocks * LANES;
        let row = [row_elements(self.k, self.v)];
        let depth = |channel| deep(channel, self.l1_depth);
        vec![
            stream("s_in", &cols, f32, &dealt, shim(), memory()),
            depth(stream("s", &cores, f32, &part, memory(), here())),
            depth(stream("s_new", &cores, f32, &part, here(), memory())),
            stream("s_out", &cols, f32, &dealt, memory(), shim()),
            depth(stream("row", &cols, f32, &row, shim(), column)),
            depth(stream("y", &cores, bf16, &[y], here(), memory())),
            stream("y_out", &cols, bf16, &[self.rows * y], memory(), shim()),
        ]
    }

    fn stages(&self) -> Vec<Stage> {
        let (cols, rows, copies) = (self.cols, self.rows, self.l2_copies);
        let states = dealt_and_joined(cols, rows, self.part(), copies, [S_IN, S, S_NEW, S_OUT]);
        let mut stages: Vec<Stage> = (states.into_iter())
            .map(|stage| Stage {
                element: Element::F32,
                ..stage
            })
            .collect();
        let y = self.blocks * LANES;
        let [_, results] = dealt_and_joined(cols, rows, y, copies, [S_IN, S, Y, Y_OUT]);
        stages.push(Stage {
            name: "y_l2".to_owned(),
            ..results
        });
        stages
    }

    fn launch(&self) -> Launch {
        let share = self.share();
        let contiguous = |n: u64| pattern(i(0, n), &[(n, 1)]);
        let task = |arg, channel, n| transfer(self.cols, arg, channel, contiguous(n));
        let states = share * self.k * self.v;
        Launch {
            channels: self.channels(),
            stages: self.stages(),
            transfers: vec![
                task(0, ROW, share * row_elements(self.k, self.v)),
                task(1, S_IN, states),
                task(2, S_OUT, states),
                task(3, Y_OUT, share * self.v),
            ],
            herds: vec![herd("cores", self.cols, self.rows, Vec::new(), self.body())],
            ..launch("delta_net", &[0, 1, 2, 3], &[], GridOrder::Sequential)
        }
    }

    fn body(&self) -> Vec<Op> {
        let here = || vec![x(), y()];
        let dealt = self.rows * self.blocks;
        let first = Affine::of(Var::Loop(1), int(dealt)).plus(Var::Y, int(self.blocks));
        let step = call_with(
            "delta_step_f32",
            &[self.blocks, self.k, self.v],
            &[block(0), block(1), block(2), block(3)],
            vec![first],
            Vec::new(),
        );
        let blocks = vec![
            get(S, here(), 1),
            new(S_NEW, here(), 2),
            new(Y, here(), 3),
            step,
            free(1),
            put(2),
            put(3),
        ];
        let head = vec![
            get(ROW, vec![x()], 0),
            repeat(self.v / LANES / dealt, blocks),
            free(0),
        ];
        vec![repeat(self.share(), head)]
    }
}

/// Tilings, best first: most columns, two cores of each, ping-pong, large blocks.
fn candidates(shape: &Shape, machine: &Machine) -> Vec<DeltaDims> {
    let mut found = Vec::new();
    let n_blocks = shape["v"] / LANES;
    let cols = largest_divisor(shape["heads"], u64::from(machine.cols), 1);
    for cols in divisors(cols.max(1)).into_iter().rev() {
        for rows in (1..=u64::from(machine.rows)).rev() {
            for l1_depth in [2, 1] {
                for blocks in divisors(n_blocks / rows).into_iter().rev() {
                    let tiled = DeltaDims {
                        heads: shape["heads"],
                        k: shape["k"],
                        v: shape["v"],
                        cols,
                        rows,
                        blocks,
                        l1_depth,
                        l2_copies: 2,
                    };
                    found.push(tiled);
                }
            }
        }
    }
    found.retain(|tiled| tiled.check(machine).is_ok());
    found
}

impl Mapping for DeltaNet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "a token of gated delta nets: S = g S + k (b (v - g S^T k))^T, y = S^T q by head, f32 states; HEADSxKxV"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse_dims(text, ["heads", "k", "v"])
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let least = DeltaDims {
            heads: shape["heads"],
            k: shape["k"],
            v: shape["v"],
            cols: 1,
            rows: 1,
            blocks: 1,
            l1_depth: 1,
            l2_copies: 1,
        };
        let best = candidates(shape, machine).into_iter().next();
        best.unwrap_or(least).tiling()
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let found = candidates(shape, machine);
        found.iter().map(DeltaDims::tiling).collect()
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = DeltaDims::new(shape, tiling);
        Checks { mapping: NAME }.bounded(shape, tiling)?;
        p.check(machine)?;
        let state = [p.heads, p.v / LANES, p.k, LANES];
        let row = [p.heads, row_elements(p.k, p.v)];
        Ok(Program {
            name: "delta_net".to_owned(),
            slots: vec![
                slot("row", Element::F32, &row, Role::Input),
                slot("state", Element::F32, &state, Role::Input),
                slot("after", Element::F32, &state, Role::Output),
                slot("y", Element::Bf16, &[p.heads * p.v], Role::Output),
            ],
            launches: vec![p.launch()],
        })
    }

    /// Keys and queries of unit length, gates between 0 and 1, states of any sign.
    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (heads, k, v) = (shape["heads"], shape["k"], shape["v"]);
        let mut random = Random::new(seed);
        let mut rows = Vec::new();
        for _ in 0..heads {
            for _ in 0..2 {
                let vector: Vec<f32> = (0..k).map(|_| random.uniform()).collect();
                let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
                rows.extend(vector.iter().map(|x| x / length.max(f32::MIN_POSITIVE)));
            }
            rows.extend((0..v).map(|_| random.uniform()));
            let mut gates = [0.0; GATES as usize];
            gates[0] = (random.uniform() + 1.0) / 2.0;
            gates[1] = (random.uniform() + 1.0) / 2.0;
            rows.extend(gates);
        }
        let state: Vec<f32> = (0..heads * k * v).map(|_| random.uniform()).collect();
        let (n_state, n_y) = (4 * state.len(), 2 * (heads * v) as usize);
        let written = [vec![0; n_state], vec![0; n_y]];
        let mut slots = vec![f32_bytes(&rows), f32_bytes(&state)];
        slots.extend(written);
        slots
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (after, y) = reference::run(shape["k"] as usize, shape["v"] as usize, slots);
        vec![(2, after), (3, y)]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let (heads, k, v) = (shape["heads"], shape["k"], shape["v"]);
        LeastWork {
            flops: 7 * heads * k * v,
            ddr_bytes: heads * (8 * k * v + 4 * row_elements(k, v) + 2 * v),
        }
    }
}
