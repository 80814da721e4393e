//! Launches in which each core streams blocks through one kernel, DDR to L1 and back.

use super::parts::{
    at, block, call, core, deep, free, get, herd, i, int, largest_divisor, launch, new, pattern,
    put, repeat, small, stream, x, y,
};
use crate::Machine;
use crate::program::{Affine, Launch, Op, Order, Place, Transfer, Var};
use millrace_npu::Element;

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
        let mut launch = launch(self.name, self.args, &[], Order::Sequential);
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

    fn body(&self) -> Vec<Op> {
        let n_in = self.inputs.len() as u8;
        let mut step: Vec<Op> = (0..n_in)
            .map(|p| get(usize::from(p), vec![x(), y()], p))
            .collect();
        step.push(new(usize::from(n_in), vec![x(), y()], n_in));
        let operands: Vec<_> = (0..=n_in).map(block).collect();
        step.push(call(self.kernel, &[self.tile], &operands));
        step.extend((0..n_in).map(free));
        step.push(put(n_in));
        vec![repeat(self.share / self.tile, step)]
    }
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
