//! Small constructors for the tile programs of this module, and the checks that builders share.

use super::{BuildError, DIM_MAX, Rule, Shape, Tiling};
use millrace_npu::{Element, Role, Slot};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{
    Affine, Channel, ChannelLink, GridOrder, Herd, IndexRange, Launch, Local, Op, Operand, Pattern,
    Place, Stage, StageEnd, Transfer, Var,
};

/// `g0`, `g1`, … times a factor.
pub(super) fn g(dim: u8, factor: u64) -> Affine {
    Affine::of(Var::Grid(dim), int(factor))
}

/// `i0`, `i1`, … times a factor.
pub(super) fn i(dim: u8, factor: u64) -> Affine {
    Affine::of(Var::Index(dim), int(factor))
}

/// The core's column in its herd.
pub(super) fn x() -> Affine {
    Affine::of(Var::X, 1)
}

/// The core's row in its herd.
pub(super) fn y() -> Affine {
    Affine::of(Var::Y, 1)
}

/// A constant.
pub(super) fn constant(value: u64) -> Affine {
    Affine::new(int(value))
}

/// As the signed numbers of patterns; builders bound their shapes, so nothing is lost.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// As the 32-bit numbers of tile sizes; builders bound them by the memories.
pub(super) fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A pattern from an offset and (size, stride) pairs, outermost first. Dimensions of size 1 are
/// left out and adjacent dimensions that form one are joined, as a compiler would: descriptors
/// have few dimensions.
pub(super) fn pattern(offset: Affine, dims: &[(u64, u64)]) -> Pattern {
    let mut folded: Vec<(i64, i64)> = Vec::with_capacity(dims.len());
    for &(size, stride) in dims {
        let (size, stride) = (int(size), int(stride));
        match folded.last_mut() {
            _ if size == 1 => {}
            Some(outer) if outer.1 == size * stride => *outer = (outer.0 * size, stride),
            _ => folded.push((size, stride)),
        }
    }
    if folded.is_empty() {
        folded.push((1, 1));
    }
    Pattern::new(offset, &folded)
}

/// A core end.
pub(super) fn core(col: IndexRange, row: IndexRange) -> Place {
    Place::Core { col, row }
}

/// One coordinate.
pub(super) fn at(value: Affine) -> IndexRange {
    IndexRange::At(value)
}

/// Coordinates from 0.
pub(super) fn upto(len: u64) -> IndexRange {
    IndexRange::Range {
        start: 0,
        len: small(len),
    }
}

/// Channels of a stream, ping-pong at the cores.
pub(super) fn stream(
    name: &str,
    dims: &[u64],
    element: Element,
    block: &[u64],
    from: Place,
    to: Place,
) -> Channel {
    Channel {
        name: name.to_owned(),
        dims: dims.iter().map(|&d| small(d)).collect(),
        element,
        block: block.iter().map(|&d| small(d)).collect(),
        from,
        to,
        depth: 2,
        link: ChannelLink::Stream,
        from_pattern: None,
        to_pattern: None,
    }
}

/// The same channel with another depth at its core ends.
pub(super) fn deep(channel: Channel, depth: u64) -> Channel {
    Channel {
        depth: small(depth),
        ..channel
    }
}

/// One end of a stage.
pub(super) fn end(channel: usize, index: Vec<Affine>, pattern: Pattern) -> StageEnd {
    StageEnd {
        each: 1,
        channel,
        index,
        pattern,
        repeat: 1,
    }
}

/// A bundle of stages, filled and drained by one description each.
pub(super) fn stage(
    name: &str,
    count: u64,
    col: Affine,
    element: Element,
    block: &[u64],
    ends: [StageEnd; 2],
) -> Stage {
    let [fill, drain] = ends;
    Stage {
        name: name.to_owned(),
        dims: vec![small(count)],
        col,
        element,
        block: block.iter().map(|&d| small(d)).collect(),
        copies: 1,
        fills: vec![fill],
        drains: vec![drain],
    }
}

/// A bundle of shim tasks, one for each channel of a one-dimensional bundle.
pub(super) fn transfer(count: u64, arg: usize, channel: usize, pattern: Pattern) -> Transfer {
    Transfer {
        dims: vec![small(count)],
        loops: Vec::new(),
        arg,
        channel,
        index: vec![i(0, 1)],
        pattern,
    }
}

/// A herd from the array's first column and row.
pub(super) fn herd(name: &str, cols: u64, rows: u64, locals: Vec<Local>, body: Vec<Op>) -> Herd {
    Herd {
        name: name.to_owned(),
        col: 0,
        row: 0,
        cols: small(cols),
        rows: small(rows),
        locals,
        body,
    }
}

/// An L1 buffer.
pub(super) fn local(name: &str, element: Element, shape: &[u64]) -> Local {
    Local {
        name: name.to_owned(),
        element,
        shape: shape.iter().map(|&d| small(d)).collect(),
    }
}

/// A loop of the core program.
pub(super) fn repeat(count: u64, body: Vec<Op>) -> Op {
    Op::Loop {
        count: constant(count),
        body,
    }
}

/// Borrows a full block.
pub(super) fn get(channel: usize, index: Vec<Affine>, block: u8) -> Op {
    Op::Get {
        channel,
        index,
        block,
    }
}

/// Takes an empty block.
pub(super) fn new(channel: usize, index: Vec<Affine>, block: u8) -> Op {
    Op::New {
        channel,
        index,
        block,
    }
}

/// Gives a block back.
pub(super) fn free(block: u8) -> Op {
    Op::Free { block }
}

/// Sends a block.
pub(super) fn put(block: u8) -> Op {
    Op::Put { block }
}

/// Calls a tile kernel without scalars or constants.
pub(super) fn call(kernel: &str, dims: &[u64], operands: &[Operand]) -> Op {
    call_with(kernel, dims, operands, Vec::new(), Vec::new())
}

/// Calls a tile kernel.
pub(super) fn call_with(
    kernel: &str,
    dims: &[u64],
    operands: &[Operand],
    scalars: Vec<Affine>,
    constants: Vec<f32>,
) -> Op {
    Op::Call {
        kernel: kernel.to_owned(),
        dims: dims.iter().map(|&d| small(d)).collect(),
        operands: operands.to_vec(),
        scalars,
        constants: constants.into_iter().map(f32::to_bits).collect(),
    }
}

/// A block as an operand.
pub(super) fn block(name: u8) -> Operand {
    Operand::Block(name)
}

/// A slot of a program.
pub(super) fn slot(name: &str, element: Element, shape: &[u64], role: Role) -> Slot {
    Slot {
        name: name.to_owned(),
        element,
        shape: shape.to_vec(),
        role,
    }
}

/// A launch with everything empty but its name, arguments and grid.
pub(super) fn launch(name: &str, args: &[usize], grid: &[u64], order: GridOrder) -> Launch {
    Launch {
        name: name.to_owned(),
        args: args.to_vec(),
        grid: grid.iter().map(|&d| small(d)).collect(),
        order,
        ..Launch::default()
    }
}

/// Largest tile size: beyond any memory of the array.
const TILE_MAX: u64 = 1 << 16;

/// Refusals of one mapping.
#[derive(Clone, Copy)]
pub(super) struct Checks {
    pub(super) mapping: &'static str,
}

impl Checks {
    /// Refuses under that rule.
    pub(super) fn refuse<T>(self, rule: Rule, message: String) -> Result<T, BuildError> {
        Err(BuildError {
            mapping: self.mapping,
            rule,
            message,
        })
    }

    /// Refuses unless `ok`.
    pub(super) fn ensure(
        self,
        ok: bool,
        rule: Rule,
        message: impl FnOnce() -> String,
    ) -> Result<(), BuildError> {
        if ok {
            Ok(())
        } else {
            self.refuse(rule, message())
        }
    }

    /// No number so large that products of a few overflow, and no dimension of zero. Flags may be 0.
    pub(super) fn bounded(self, shape: &Shape, tiling: &Tiling) -> Result<(), BuildError> {
        for (name, value) in shape.iter() {
            let flag = matches!(name, "causal" | "seq_first" | "window");
            let least = u64::from(!flag);
            let ok = (least..=DIM_MAX).contains(&value);
            self.ensure(ok, Rule::Range, || {
                format!("{name} = {value}; it is {least} to {DIM_MAX}")
            })?;
        }
        for (name, value) in tiling.iter() {
            self.ensure(value <= TILE_MAX, Rule::Range, || {
                format!("{name} = {value}; it is at most {TILE_MAX}")
            })?;
        }
        Ok(())
    }

    /// `total` must be a whole number of `part`, and not zero.
    pub(super) fn divides(self, total: (&str, u64), part: (&str, u64)) -> Result<(), BuildError> {
        let ok = part.1 > 0 && total.1 > 0 && total.1.is_multiple_of(part.1);
        self.ensure(ok, Rule::Divides, || {
            format!(
                "{} = {} is not a whole number of {} = {}; choose a divisor or pad it",
                total.0, total.1, part.0, part.1
            )
        })
    }

    /// The herd must fit the array.
    pub(super) fn herd(self, cols: u64, rows: u64, machine: &Machine) -> Result<(), BuildError> {
        let (c, r) = (u64::from(machine.cols), u64::from(machine.rows));
        let ok = (1..=c).contains(&cols) && (1..=r).contains(&rows);
        self.ensure(ok, Rule::Herd, || {
            format!("a herd of {cols} columns and {rows} rows; the array has {c} and {r}")
        })
    }

    /// A core's buffers must fit L1 together with the stack.
    pub(super) fn l1(self, bytes: u64, machine: &Machine) -> Result<(), BuildError> {
        let limit = machine.core.data_bytes - machine.stack_bytes;
        self.ensure(bytes <= limit, Rule::L1, || {
            format!(
                "{bytes} bytes of buffers a core, {limit} fit; take smaller tiles or l1_depth=1"
            )
        })
    }

    /// A memory tile's buffers must fit it.
    pub(super) fn l2(self, bytes: u64, machine: &Machine) -> Result<(), BuildError> {
        let limit = machine.memory.data_bytes;
        self.ensure(bytes <= limit, Rule::L2, || {
            format!("{bytes} bytes of buffers a memory tile, {limit} fit; take smaller tiles")
        })
    }

    /// A shim stride in bytes must fit its field.
    pub(super) fn stride(
        self,
        what: &str,
        bytes: u64,
        machine: &Machine,
    ) -> Result<(), BuildError> {
        let limit = u64::from(machine.granularity_bytes) << machine.shim.step_bits;
        self.ensure(bytes <= limit, Rule::Stride, || {
            format!("{what} is a shim stride of {bytes} bytes; descriptors hold {limit}")
        })
    }
}

/// Divisors of `n` in ascending order.
pub(super) fn divisors(n: u64) -> Vec<u64> {
    let mut low = Vec::new();
    let mut high = Vec::new();
    let mut d = 1;
    while d * d <= n {
        if n.is_multiple_of(d) {
            low.push(d);
            if d * d != n {
                high.push(n / d);
            }
        }
        d += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

/// The largest divisor of `n` that is at most `limit` and a multiple of `of`; 0 if there is none.
pub(super) fn largest_divisor(n: u64, limit: u64, of: u64) -> u64 {
    (1..=limit / of)
        .rev()
        .map(|part| part * of)
        .find(|&d| n > 0 && n.is_multiple_of(d))
        .unwrap_or(0)
}
