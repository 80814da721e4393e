//! Weights from Q4NX blocks to bf16 in DDR: the dequantisation engine of the Gemma paper (§3.1.1) as a separate launch.
//! They are stored in the order in which a product takes them, `[n / 8][k][8]`: panels of eight rows of the matrix,
//! which are columns of B.
//!
//! A core of each column takes the row blocks that are side by side, block by block in one stretch, and expands them
//! slice by slice of columns. A slice is a run of each of its panels, of up to 4,096 bytes; the memory tile only evens
//! out the flow. Groups of row blocks go to the columns in turn, as in [`fused-dqp`](super::dqp). One core a column is
//! enough: it reads 5 bits for every 16 that it writes, and the column's shim takes no more than eight cores give.

use super::{BYTES, COLS, ROWS, across, shares, unit};
use crate::mapping::megatile::PANEL;
use crate::mapping::parts::{
    Checks, at, block, call_with, constant, core, deep, end, free, get, herd, i, int, launch, new,
    pattern, put, repeat, stage, stream, transfer, x,
};
use crate::mapping::{BuildError, Rule};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{
    Affine, Channel, Condition, GridOrder, Launch, Op, Place, Stage, Transfer, Var,
};

// Channels of the launch, in this order.
const W: usize = 0;
const E: usize = 1;
const E_OUT: usize = 2;

/// Block names of a core beyond those of weights.
const SLICE: u8 = 2;

/// Iterations of a shim's task.
const MAX_SLICES: u64 = 64;

/// Matrices to expand, on so many columns.
pub(super) struct Expand {
    /// Rows of each matrix.
    rows: Vec<u64>,
    k: u64,
    /// Row blocks that are side by side.
    unit: u64,
    cols: u64,
}

impl Expand {
    pub(super) fn new(rows: &[u64], k: u64, cols: u64) -> Expand {
        Expand {
            rows: rows.to_vec(),
            k,
            unit: unit(rows),
            cols,
        }
    }

    /// The most columns that all have a group of row blocks to expand.
    pub(super) fn most_cols(rows: &[u64], machine: &Machine) -> u64 {
        let n_groups = rows.iter().sum::<u64>() / (ROWS * unit(rows));
        n_groups.clamp(1, u64::from(machine.cols))
    }

    /// Groups of row blocks of each matrix.
    fn groups(&self) -> Vec<u64> {
        let group = ROWS * self.unit;
        self.rows.iter().map(|rows| rows / group).collect()
    }

    /// Columns that are expanded at once: as many as divide k and a block. A shim's descriptor counts 1,023 words, and
    /// such runs of a whole block are longer. So it takes slices by its iteration, which counts to 64.
    fn slice(&self) -> u64 {
        let slice = 1 << self.k.trailing_zeros().min(COLS.trailing_zeros());
        match slice {
            COLS if self.k > MAX_SLICES * COLS => COLS / 2,
            _ => slice,
        }
    }

    /// Refuses shapes and tilings that cannot be laid out.
    pub(super) fn check(&self, checks: Checks, machine: &Machine) -> Result<(), BuildError> {
        checks.herd(self.cols, 1, machine)?;
        checks.divides(("k", self.k), ("the matrix unit's edge", 8))?;
        for &rows in &self.rows {
            checks.divides(("n", rows), ("rows of a block", ROWS))?;
        }
        let n_groups: u64 = self.groups().iter().sum();
        checks.ensure(n_groups >= self.cols, Rule::Divides, || {
            let cols = self.cols;
            format!("{n_groups} groups of row blocks for {cols} columns; take fewer expand_cols")
        })?;
        checks.l1(2 * self.unit * BYTES + 2 * 2 * self.slice() * ROWS, machine)?;
        checks.stride(
            "a panel of the expanded weights",
            2 * PANEL * self.k,
            machine,
        )
    }

    /// The launch; `args` are the program's slots of blocks, then those of bf16 weights.
    pub(super) fn launch(&self, args: &[usize]) -> Launch {
        Launch {
            channels: self.channels(),
            stages: vec![self.stage()],
            transfers: self.transfers(),
            herds: vec![herd("expanders", self.cols, 1, Vec::new(), self.body())],
            ..launch("expand", args, &[], GridOrder::Streamed)
        }
    }

    fn channels(&self) -> Vec<Channel> {
        let (cols, own) = ([self.cols], || i(0, 1));
        let here = || core(at(own()), at(constant(0)));
        let (shim, memory) = (|| Place::Shim(own()), || Place::Memory(own()));
        let slice = [ROWS / PANEL, self.slice(), PANEL];
        let panels = self.panels();
        let w = stream("w", &cols, Element::U8, &[BYTES], shim(), here());
        vec![
            deep(w, 2 * self.unit),
            stream("e", &cols, Element::Bf16, &slice, here(), memory()),
            stream("e_out", &cols, Element::Bf16, &panels, memory(), shim()),
        ]
    }

    /// A slice of all row blocks of a group.
    fn panels(&self) -> [u64; 3] {
        [self.unit * ROWS / PANEL, self.slice(), PANEL]
    }

    fn stage(&self) -> Stage {
        let panels = self.panels();
        let whole = || pattern(constant(0), &[(panels.iter().product(), 1)]);
        let ends = [E, E_OUT].map(|channel| end(channel, vec![i(0, 1)], whole()));
        Stage {
            copies: 2,
            ..stage("e_l2", self.cols, i(0, 1), Element::Bf16, &panels, ends)
        }
    }

    /// A column's groups of a matrix come as one stretch; each goes to its panels by a separate task.
    fn transfers(&self) -> Vec<Transfer> {
        let blocks = across(self.k) * self.unit * BYTES;
        let [n_panels, slice, _] = self.panels();
        let run = slice * PANEL;
        let panels = [(self.k / slice, run), (n_panels, self.k * PANEL), (run, 1)];
        let mut transfers = Vec::new();
        for share in shares(&self.groups(), self.cols) {
            let (first_col, n_cols) = share.cols;
            let from_first = |size: u64| i(0, share.each * size) + int(share.first * size);
            let task = |arg, channel, walk| Transfer {
                index: vec![i(0, 1) + int(first_col)],
                ..transfer(n_cols, arg, channel, walk)
            };
            let stretch = pattern(from_first(blocks), &[(share.each * blocks, 1)]);
            transfers.push(task(share.part, W, stretch));
            let group = n_panels * PANEL * self.k;
            let out = from_first(group).plus(Var::Loop(0), int(group));
            transfers.push(Transfer {
                loops: vec![constant(share.each)],
                ..task(self.rows.len() + share.part, E_OUT, pattern(out, &panels))
            });
        }
        transfers
    }

    fn body(&self) -> Vec<Op> {
        let slice = self.slice();
        let (full, rest) = (self.k / COLS, self.k % COLS);
        let mut blocks = Vec::new();
        if full > 0 {
            blocks.push(repeat(full, self.one_block(COLS / slice)));
        }
        if rest > 0 {
            blocks.push(repeat(1, self.one_block(rest / slice)));
        }
        let n_groups: u64 = self.groups().iter().sum();
        // Groups are dealt in turn: the column has one more while there are any.
        let dealt = Affine::of(Var::Loop(0), int(self.cols)).plus(Var::X, 1);
        let group = Op::If {
            value: dealt + -int(n_groups),
            condition: Condition::Negative,
            then: blocks,
            otherwise: Vec::new(),
        };
        vec![repeat(n_groups.div_ceil(self.cols), vec![group])]
    }

    /// Takes a block of each row block of the group, and sends its first slices.
    fn one_block(&self, n_slices: u64) -> Vec<Op> {
        let names = || 0..self.unit as u8;
        let first = || vec![Affine::of(Var::Loop(2), int(self.slice()))];
        let expand = |name: u8| {
            let operands = [block(name), block(SLICE)];
            let dims = [self.slice()];
            let call = call_with("q4nx_expand_bf16", &dims, &operands, first(), Vec::new());
            [new(E, vec![x()], SLICE), call, put(SLICE)]
        };
        let slices = repeat(n_slices, names().flat_map(expand).collect());
        (names().map(|name| get(W, vec![x()], name)))
            .chain([slices])
            .chain(names().map(free))
            .collect()
    }
}
