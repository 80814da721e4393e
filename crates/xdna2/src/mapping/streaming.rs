//! Launches in which each core streams blocks through one kernel, DDR to L1 and back. Blocks come straight from the
//! shims, or through the memory tiles, which deal a column's blocks to its cores and join the results.

use super::parts::{
    at, block, call, constant, core, deep, end, free, g, get, herd, i, int, largest_divisor,
    launch, new, pattern, put, repeat, small, stage, stream, transfer, x, y,
};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{
    Affine, GridOrder, Launch, Op, Place, Stage, StageEnd, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Profile};

/// One input or output of a streaming launch.
pub(super) struct Port {
    pub(super) name: &'static str,
    pub(super) element: Element,
    pub(super) arg: usize,
}

/// A launch in which each core streams blocks through one kernel.
pub(super) struct Streaming<'a> {
    pub(super) name: &'a str,
    pub(super) kernel: &'a str,
    pub(super) args: &'a [usize],
    pub(super) inputs: Vec<Port>,
    pub(super) output: Port,
    pub(super) cols: u64,
    pub(super) rows: u64,
    pub(super) tile: u64,
    /// Elements a core treats.
    pub(super) share: u64,
    /// Elements from one core's walk to the next one's.
    pub(super) core_step: u64,
    /// Sizes and strides of a core's walk.
    pub(super) dims: Vec<(u64, u64)>,
    pub(super) depth: u64,
}

impl Streaming<'_> {
    /// Column of the shim that feeds a core: one a core while there are enough of them.
    fn shim_col(&self, machine: &Machine) -> Affine {
        if self.cols * self.rows <= u64::from(machine.cols) {
            i(0, 1).plus(Var::Index(1), int(self.cols))
        } else {
            i(0, 1)
        }
    }

    /// The launch.
    pub(super) fn launch(&self, machine: &Machine) -> Launch {
        let mut launch = launch(self.name, self.args, &[], GridOrder::Sequential);
        let bundle = [self.cols, self.rows];
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let shim = || Place::Shim(self.shim_col(machine));
        let ports = self.inputs.iter().map(|p| (p, true));
        for (port, reads) in ports.chain([(&self.output, false)]) {
            let (from, to) = if reads {
                (shim(), here())
            } else {
                (here(), shim())
            };
            let channel = stream(port.name, &bundle, port.element, &[self.tile], from, to);
            let id = launch.channels.len();
            launch.channels.push(deep(channel, self.depth));
            let first = i(0, self.core_step).plus(Var::Index(1), int(self.cols * self.core_step));
            launch.transfers.push(Transfer {
                dims: bundle.map(small).to_vec(),
                loops: Vec::new(),
                arg: port.arg,
                channel: id,
                index: vec![i(0, 1), i(1, 1)],
                pattern: pattern(first, &self.dims),
            });
        }
        launch.herds = vec![herd("cores", self.cols, self.rows, Vec::new(), self.body())];
        launch
    }

    /// The launch through memory tiles, each with `copies` blocks for all of its column's cores. One
    /// shim channel a column brings the inputs in turn, a block of each a grid point, because a core
    /// has two incoming channels and a memory tile six outgoing ones. Parts of a block are contiguous
    /// on both sides, so that a descriptor serves a part.
    pub(super) fn launch_through_memory_tiles(&self, copies: u64) -> Launch {
        let (cols, rows, tile, element) = (self.cols, self.rows, self.tile, self.output.element);
        let points = self.share / tile;
        let mut launch = launch(self.name, self.args, &[points], GridOrder::Streamed);
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let shim = || Place::Shim(i(0, 1));
        let memory = || Place::Memory(i(0, 1));
        let (wide, cores) = ([rows, tile], [cols, rows]);
        let blocks = self.depth * self.inputs.len() as u64;
        let x = stream("x", &cores, element, &[tile], memory(), here());
        let y = stream("y", &cores, element, &[tile], here(), memory());
        launch.channels = vec![
            stream("in", &[cols], element, &wide, shim(), memory()),
            deep(x, blocks),
            deep(y, self.depth),
            stream("out", &[cols], element, &wide, memory(), shim()),
        ];
        launch.stages = dealt_and_joined(cols, rows, tile, copies, [IN, X, Y, OUT])
            .map(|stage| Stage { element, ..stage })
            .to_vec();
        let whole = pattern(
            g(0, cols * rows * tile).plus(Var::Index(0), int(rows * tile)),
            &[(rows * tile, 1)],
        );
        let ports = self.inputs.iter().map(|port| (port, IN));
        for (port, channel) in ports.chain([(&self.output, OUT)]) {
            let task = transfer(cols, port.arg, channel, whole.clone());
            launch.transfers.push(task);
        }
        let body = self.blocks_of(1, |_| X, Y);
        launch.herds = vec![herd("cores", cols, rows, Vec::new(), body)];
        launch
    }

    fn body(&self) -> Vec<Op> {
        let n_in = self.inputs.len();
        self.blocks_of(self.share / self.tile, usize::from, n_in)
    }

    /// So many blocks of every input from its channel, through the kernel, to the output's.
    fn blocks_of(&self, n: u64, input: impl Fn(u8) -> usize, output: usize) -> Vec<Op> {
        let n_in = self.inputs.len() as u8;
        let mut step: Vec<Op> = (0..n_in)
            .map(|p| get(input(p), vec![x(), y()], p))
            .collect();
        step.push(new(output, vec![x(), y()], n_in));
        let operands: Vec<_> = (0..=n_in).map(block).collect();
        step.push(call(self.kernel, &[self.tile], &operands));
        step.extend((0..n_in).map(free));
        step.push(put(n_in));
        vec![repeat(n, step)]
    }
}

// Channels of a launch through memory tiles, in this order.
const IN: usize = 0;
const X: usize = 1;
const Y: usize = 2;
const OUT: usize = 3;

/// A column's memory tile: a block that it deals to the column's cores, and one that it joins from
/// them, each in contiguous parts of `part` elements. The channels: from the shim, to the cores, from the
/// cores, to the shim.
pub(super) fn dealt_and_joined(
    cols: u64,
    rows: u64,
    part: u64,
    copies: u64,
    [shim_in, to_cores, from_cores, shim_out]: [usize; 4],
) -> [Stage; 2] {
    let whole = |channel| {
        let all = pattern(constant(0), &[(rows * part, 1)]);
        end(channel, vec![i(0, 1)], all)
    };
    let parts = |channel| StageEnd {
        each: small(rows),
        index: vec![i(0, 1), Affine::of(Var::Each, 1)],
        ..end(
            channel,
            Vec::new(),
            pattern(Affine::of(Var::Each, int(part)), &[(part, 1)]),
        )
    };
    let stage = |name, fill, drain| Stage {
        copies: small(copies),
        ..stage(
            name,
            cols,
            i(0, 1),
            Element::Bf16,
            &[rows, part],
            [fill, drain],
        )
    };
    [
        stage("in_l2", whole(shim_in), parts(to_cores)),
        stage("out_l2", parts(from_cores), whole(shim_out)),
    ]
}

/// Time of `n` elements through a kernel on so many cores, the loading of the cores' programs in a
/// dispatch of several launches included: the slowest of cores and DDR. `in_bytes` and `out_bytes`
/// cross for an element; a core's program links one object. [`timing`](millrace_xdna2_machine::timing) simulates it.
pub(super) fn estimate_ns(
    n: u64,
    n_cores: u64,
    kernel: &str,
    (in_bytes, out_bytes): (u64, u64),
    (machine, profile): (&Machine, &Profile),
) -> f64 {
    let n = n as f64;
    let per_element = profile.kernel(kernel).map_or(0.0, |k| k.cycles_per_element);
    let core_ns = n * per_element / n_cores as f64 * 1e9 / machine.clock_hz;
    let read_ns = n * in_bytes as f64 / profile.ddr.read_gb_per_s;
    let total_ns = n * (in_bytes + out_bytes) as f64 / profile.ddr.total_gb_per_s;
    core_ns.max(read_ns).max(total_ns) + profile.dispatch.estimated_load_ns(n_cores, n_cores)
}

/// Estimates closer than that count as equal: the estimate is not more exact.
const EQUAL: f64 = 0.98;

/// Those of `tilings` that are estimated to be clearly faster than `than`, the fastest first.
pub(super) fn faster(
    tilings: Vec<super::Tiling>,
    than: &super::Tiling,
    estimate: impl Fn(&super::Tiling) -> f64,
) -> Vec<super::Tiling> {
    let limit = EQUAL * estimate(than);
    let mut timed: Vec<(f64, super::Tiling)> =
        tilings.into_iter().map(|t| (estimate(&t), t)).collect();
    timed.retain(|(ns, _)| *ns < limit);
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    timed.into_iter().map(|(_, tiling)| tiling).collect()
}

/// A launch that rounds `n` f32 values of argument 0 to bf16 in argument 1, on one row of cores.
pub(super) fn cast_launch(name: &str, args: [usize; 2], n: u64, tile: u64, cols: u64) -> Launch {
    let share = n / cols;
    let streaming = Streaming {
        name,
        kernel: "cast_f32_bf16",
        args: &args,
        inputs: vec![Port {
            name: "x",
            element: Element::F32,
            arg: 0,
        }],
        output: Port {
            name: "y",
            element: Element::Bf16,
            arg: 1,
        },
        cols,
        rows: 1,
        tile,
        share,
        core_step: share,
        dims: vec![(share, 1)],
        depth: 2,
    };
    // One row: the shim of a core is that of its column on any machine.
    streaming.launch(&Machine::npu2())
}

/// Block and columns for casting `n` values (a multiple of 64).
pub(super) fn cast_default(n: u64, machine: &Machine) -> (u64, u64) {
    let cols = (1..=u64::from(machine.cols))
        .rev()
        .find(|&c| n.is_multiple_of(8 * c))
        .unwrap_or(1);
    (largest_divisor(n / cols, 2048, 8).max(1), cols)
}
