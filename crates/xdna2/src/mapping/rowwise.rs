//! Row-wise kernels on one row of cores: norms and rotary embedding, as in MLIR-AIR's Llama-3.2-1B example.
//!
//! Rows stream DDR to L1 and back. Norms give a column consecutive rows and broadcast their parameters to all cores
//! once. Rotation interleaves rows (core `t` takes rows `t`, `t + cores`, …) and streams a table row with every row.
//! Three streams a core exhaust the shims at 8 cores. With `l2_copies` above 0 the memory tiles deal a norm's rows to
//! the cores of their column and join the results, so that all 32 cores work. A rotation reads as much table as rows:
//! DDR limits it on 8.

mod mapping;
mod reference;

use super::parts::{
    Checks, at, block, call, call_with, constant, core, deep, free, get, herd, i, int,
    largest_divisor, launch, local, new, pattern, put, repeat, small, stream, transfer, upto, x, y,
};
use super::streaming::{self, dealt_and_joined};
use super::{BuildError, NamedNumbers, Rule, Shape, Tiling};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{
    GridOrder, Launch, Op, Operand, Pattern, Place, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Profile};

/// Function of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    RmsNorm,
    LayerNorm,
    Rope,
}

/// A kernel that treats rows alone.
pub(super) struct Rowwise {
    name: &'static str,
    summary: &'static str,
    function: Function,
}

/// RMSNorm with a scale by column.
pub(super) const RMSNORM: Rowwise = Rowwise {
    name: "rmsnorm",
    summary: "y = x / sqrt(mean(x^2) + 1e-5) * gamma by row, bf16; ROWSxCOLS",
    function: Function::RmsNorm,
};

/// LayerNorm with scale and shift by column.
pub(super) const LAYERNORM: Rowwise = Rowwise {
    name: "layernorm",
    summary: "y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta by row, bf16; ROWSxCOLS",
    function: Function::LayerNorm,
};

/// Rotary position embedding, half-split.
pub(super) const ROPE: Rowwise = Rowwise {
    name: "rope",
    summary: "rotates (x[i], x[i + d/2]) by a table row (cos | sin), bf16; ROWSxHEAD_DIM",
    function: Function::Rope,
};

/// The norms' ε (`RMSNorm_bf16.md`).
const EPSILON: f32 = 1e-5;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy)]
struct RowwiseDims {
    n_rows: u64,
    width: u64,
    /// Rows of one block.
    tile_rows: u64,
    cols: u64,
    rows: u64,
    depth: u64,
    /// Blocks of a memory tile between shim and cores; 0 for straight streams.
    l2_copies: u64,
    /// Whether a norm's only core takes its scales from the stream of its rows, before them.
    scales_first: bool,
}

impl Rowwise {
    fn tiled(&self, shape: &Shape, tiling: &Tiling) -> RowwiseDims {
        RowwiseDims {
            n_rows: shape["rows"],
            width: shape[self.width_name()],
            tile_rows: tiling["tile_rows"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            depth: tiling["l1_depth"],
            l2_copies: tiling["l2_copies"],
            scales_first: tiling.get("scales_first") == Some(1),
        }
    }

    fn width_name(&self) -> &'static str {
        if self.function == Function::Rope {
            "head_dim"
        } else {
            "cols"
        }
    }

    /// Slots of one row each that all cores share.
    fn parameters(&self) -> &'static [&'static str] {
        match self.function {
            Function::RmsNorm => &["gamma"],
            Function::LayerNorm => &["gamma", "beta"],
            Function::Rope => &[],
        }
    }

    fn check(&self, p: &RowwiseDims, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: self.name };
        checks.herd(p.cols, p.rows, machine)?;
        let n_cores = p.cols * p.rows;
        let ports = 2 * u64::from(machine.cols);
        let asked = match self.function {
            Function::Rope => 2 * n_cores,
            _ if p.l2_copies > 0 => p.cols + 1,
            _ => n_cores + 1,
        };
        let most = if self.function == Function::Rope {
            0
        } else {
            2
        };
        checks.ensure(p.l2_copies <= most, Rule::Range, || {
            let found = p.l2_copies;
            format!(
                "l2_copies = {found}; it is at most {most}, 0 for streams straight from the shims"
            )
        })?;
        let alone = n_cores == 1 && p.tile_rows == 1 && p.l2_copies == 0;
        let can = alone && self.function == Function::RmsNorm;
        checks.ensure(can || !p.scales_first, Rule::Range, || {
            "scales_first is for rmsnorm on one core, a row a block, straight from the shim"
                .to_owned()
        })?;
        checks.l2(4 * p.l2_copies * p.rows * p.tile_rows * p.width, machine)?;
        checks.ensure(asked <= ports, Rule::Streams, || {
            format!(
                "{n_cores} cores need {asked} shim streams to read, there are {ports}; take a \
                 smaller herd"
            )
        })?;
        checks.divides(("rows of the shape", p.n_rows), ("cols * rows", n_cores))?;
        let share = p.n_rows / n_cores;
        checks.divides(("rows of a core", share), ("tile_rows", p.tile_rows))?;
        let vector = if self.function == Function::Rope {
            16
        } else {
            2
        };
        let width = (self.width_name(), p.width);
        if self.function == Function::Rope {
            checks.divides(width, ("the vector unit's lanes", vector))?;
        }
        checks.ensure(p.width.is_multiple_of(2), Rule::Granularity, || {
            let width = p.width;
            format!("a row of {width} bf16 values ends within an address unit of 4 bytes; pad it")
        })?;
        checks.ensure((1..=2).contains(&p.depth), Rule::Range, || {
            format!("l1_depth = {}; it is 1, or 2 for ping-pong", p.depth)
        })?;
        checks.stride(
            "cols * rows * tile_rows rows",
            2 * n_cores * p.tile_rows * p.width,
            machine,
        )?;
        let streams = if self.function == Function::Rope {
            3
        } else {
            2
        };
        let parameters = self.parameters().len() as u64;
        let bytes = 2 * p.width * (streams * p.depth * p.tile_rows + parameters);
        checks.l1(bytes, machine)
    }

    /// A core's rows: consecutive for norms, interleaved by blocks for the rotation.
    fn walk(&self, p: &RowwiseDims) -> Pattern {
        let n_cores = p.cols * p.rows;
        let share = p.n_rows / n_cores * p.width;
        let piece = p.tile_rows * p.width;
        let (step, dims) = match self.function {
            Function::Rope => (piece, vec![(share / piece, n_cores * piece), (piece, 1)]),
            _ => (share, vec![(share, 1)]),
        };
        pattern(i(0, step).plus(Var::Index(1), int(p.cols * step)), &dims)
    }

    fn launch(&self, p: &RowwiseDims, machine: &Machine) -> Launch {
        if p.scales_first {
            return self.launch_of_one_stream(p, machine);
        }
        let parameters = self.parameters();
        let streams: &[(&str, usize, bool)] = match self.function {
            Function::Rope => &[("x", 0, true), ("table", 1, true), ("y", 2, false)],
            Function::RmsNorm => &[("x", 0, true), ("y", 2, false)],
            Function::LayerNorm => &[("x", 0, true), ("y", 3, false)],
        };
        let n_args = 2 + parameters.len().max(1);
        let args: Vec<usize> = (0..n_args).collect();
        let mut launch = launch(self.name, &args, &[], GridOrder::Sequential);
        for &(name, arg, reads) in streams {
            self.add_stream(&mut launch, p, machine, (name, arg, reads));
        }
        if !parameters.is_empty() {
            let to = core(upto(p.cols), upto(p.rows));
            let from = Place::Shim(constant(0));
            let channel = stream("parameters", &[], Element::Bf16, &[p.width], from, to);
            let id = launch.channels.len();
            launch.channels.push(deep(channel, parameters.len() as u64));
            for parameter in 0..parameters.len() {
                launch.transfers.push(Transfer {
                    dims: Vec::new(),
                    loops: Vec::new(),
                    arg: 1 + parameter,
                    channel: id,
                    index: Vec::new(),
                    pattern: pattern(constant(0), &[(p.width, 1)]),
                });
            }
        }
        if p.l2_copies > 0 {
            self.add_memory_tiles(&mut launch, p, [streams[0].1, streams[1].1]);
        }
        launch.herds = vec![herd("cores", p.cols, p.rows, Vec::new(), self.body(p))];
        launch
    }

    /// One core that reads a single stream: its scales, which it copies, then its rows. A launch that is placed with
    /// others leaves a shim channel to them.
    fn launch_of_one_stream(&self, p: &RowwiseDims, machine: &Machine) -> Launch {
        let mut launch = launch(self.name, &[0, 1, 2], &[], GridOrder::Sequential);
        self.add_stream(&mut launch, p, machine, ("x", 0, true));
        self.add_stream(&mut launch, p, machine, ("y", 2, false));
        let scales = Transfer {
            arg: 1,
            pattern: pattern(constant(0), &[(p.width, 1)]),
            ..launch.transfers[0].clone()
        };
        launch.transfers.insert(0, scales);
        let here = || vec![x(), y()];
        let held = Operand::Local(0);
        let take = call("copy_bf16", &[p.width], &[block(0), held]);
        let operands = [block(0), held, block(1)];
        let dims = [p.tile_rows, p.width];
        let row = vec![
            get(0, here(), 0),
            new(1, here(), 1),
            call_with(self.kernel(), &dims, &operands, Vec::new(), vec![EPSILON]),
            free(0),
            put(1),
        ];
        let body = vec![get(0, here(), 0), take, free(0), repeat(p.n_rows, row)];
        let locals = vec![local("scales", Element::Bf16, &[p.width])];
        launch.herds = vec![herd("cores", 1, 1, locals, body)];
        launch
    }

    /// Shim ends and memory tiles between them and the streams of the cores, for the arguments that are
    /// read and written.
    fn add_memory_tiles(&self, launch: &mut Launch, p: &RowwiseDims, args: [usize; 2]) {
        let first = launch.channels.len();
        let block = [p.rows * p.tile_rows, p.width];
        let (shim, memory) = (|| Place::Shim(i(0, 1)), || Place::Memory(i(0, 1)));
        let ends = [("x_in", shim(), memory()), ("y_out", memory(), shim())];
        let share = p.n_rows / p.cols * p.width;
        for (at, (name, from, to)) in ends.into_iter().enumerate() {
            let walk = pattern(i(0, share), &[(share, 1)]);
            let task = transfer(p.cols, args[at], launch.channels.len(), walk);
            launch.transfers.push(task);
            let channel = stream(name, &[p.cols], Element::Bf16, &block, from, to);
            launch.channels.push(channel);
        }
        let part = p.tile_rows * p.width;
        launch.stages =
            dealt_and_joined(p.cols, p.rows, part, p.l2_copies, [first, 0, 1, first + 1]).to_vec();
    }

    fn add_stream(
        &self,
        launch: &mut Launch,
        p: &RowwiseDims,
        machine: &Machine,
        (name, arg, reads): (&str, usize, bool),
    ) {
        let bundle = [p.cols, p.rows];
        let here = core(at(i(0, 1)), at(i(1, 1)));
        let col = if p.cols * p.rows <= u64::from(machine.cols) {
            i(0, 1).plus(Var::Index(1), int(p.cols))
        } else {
            i(0, 1)
        };
        let other = match p.l2_copies {
            0 => Place::Shim(col),
            _ => Place::Memory(i(0, 1)),
        };
        let (from, to) = if reads { (other, here) } else { (here, other) };
        let block = [p.tile_rows, p.width];
        let channel = stream(name, &bundle, Element::Bf16, &block, from, to);
        launch.channels.push(deep(channel, p.depth));
        if p.l2_copies > 0 {
            return;
        }
        launch.transfers.push(Transfer {
            dims: bundle.map(small).to_vec(),
            loops: Vec::new(),
            arg,
            channel: launch.channels.len() - 1,
            index: vec![i(0, 1), i(1, 1)],
            pattern: self.walk(p),
        });
    }

    fn kernel(&self) -> &'static str {
        match self.function {
            Function::RmsNorm => "rmsnorm_bf16",
            Function::LayerNorm => "layernorm_bf16",
            Function::Rope => "rope_halfsplit_bf16",
        }
    }

    fn body(&self, p: &RowwiseDims) -> Vec<Op> {
        let dims = [p.tile_rows, p.width];
        let n_blocks = p.n_rows / (p.cols * p.rows) / p.tile_rows;
        let here = || vec![x(), y()];
        if self.function == Function::Rope {
            let operands = [block(0), block(1), block(2)];
            let step = vec![
                get(0, here(), 0),
                get(1, here(), 1),
                new(2, here(), 2),
                call(self.kernel(), &dims, &operands),
                free(0),
                free(1),
                put(2),
            ];
            return vec![repeat(n_blocks, step)];
        }
        let n = self.parameters().len() as u8;
        let kernel = self.kernel();
        // Blocks 2 and on are the parameters, held throughout.
        let mut body: Vec<Op> = (0..n).map(|j| get(2, Vec::new(), 2 + j)).collect();
        let mut operands = vec![block(0)];
        operands.extend((0..n).map(|j| block(2 + j)));
        operands.push(block(1));
        let step = vec![
            get(0, here(), 0),
            new(1, here(), 1),
            call_with(kernel, &dims, &operands, Vec::new(), vec![EPSILON]),
            free(0),
            put(1),
        ];
        body.push(repeat(n_blocks, step));
        body.extend((0..n).map(|j| free(2 + j)));
        body
    }

    fn tiling(tile_rows: u64, cols: u64, rows: u64) -> Tiling {
        NamedNumbers::new(&[
            ("tile_rows", tile_rows),
            ("cols", cols),
            ("rows", rows),
            ("l1_depth", 2),
            ("l2_copies", 0),
        ])
    }

    /// Legal tilings through memory tiles, with blocks of a few KB.
    fn through_memory_tiles(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let (cols, n_rows) = (u64::from(machine.cols), shape["rows"]);
        let width = shape[self.width_name()].max(1);
        let of_rows = (2..=u64::from(machine.rows)).rev().map(|rows| {
            let limit = (BLOCK_ELEMENTS / width).max(1);
            let tile_rows = largest_divisor(n_rows / (cols * rows), limit, 1);
            Self::tiling(tile_rows, cols, rows).with("l2_copies", 2)
        });
        of_rows.filter(|t| self.legal(shape, t, machine)).collect()
    }

    fn legal(&self, shape: &Shape, tiling: &Tiling, machine: &Machine) -> bool {
        self.check(&self.tiled(shape, tiling), machine).is_ok()
    }
}

/// Elements of a block between memory tile and core: 8 KB, of which four fit L1 along with parameters.
const BLOCK_ELEMENTS: u64 = 4096;

/// Tilings of a norm through memory tiles that are estimated to beat `default`, the fastest first; of
/// other mappings none.
pub(super) fn ranked(
    name: &str,
    shape: &Shape,
    default: &Tiling,
    (machine, profile): (&Machine, &Profile),
) -> Vec<Tiling> {
    let Some(mapping) = [RMSNORM, LAYERNORM].into_iter().find(|m| m.name == name) else {
        return Vec::new();
    };
    let n = shape.iter().map(|(_, v)| v).product();
    let tilings = mapping.through_memory_tiles(shape, machine);
    streaming::faster(tilings, default, |tiling| {
        let n_cores = tiling["cols"] * tiling["rows"];
        let kernel = mapping.kernel();
        streaming::estimate_ns(n, n_cores, kernel, (2, 2), (machine, profile))
    })
}
