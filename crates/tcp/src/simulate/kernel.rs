//! Kernels: a stream's values through its stages.

use super::array::{Array, Nest, alike, own_axis};
use super::contract::{Order, contract, reduce};
use super::{Chip, SimulationResult};
use crate::Element;
use crate::axes::Shape;
use crate::flow::{FlowStream, walk};
use crate::program::{ReduceOp, SliceKernel, Stage, VectorOp, VectorOperand, View};
use crate::verify::start;
use std::sync::Arc;

impl Chip<'_> {
    pub(super) fn kernel(&mut self, kernel: &SliceKernel) -> SimulationResult<()> {
        let flow = walk(self.program, kernel).map_err(|broken| (None, broken.message))?;
        let mut run = Run {
            values: Arc::new(Array::new(Vec::new())),
            second: None,
            stash: None,
        };
        let mut at = 0;
        while at < kernel.stages.len() {
            at = self.stage(kernel, &flow.streams, at, &mut run)?;
        }
        Ok(())
    }

    /// Runs the stage at `at`, with those that complete the same sum; gives the next.
    fn stage(
        &mut self,
        kernel: &SliceKernel,
        streams: &[FlowStream],
        at: usize,
        run: &mut Run,
    ) -> SimulationResult<usize> {
        match &kernel.stages[at] {
            Stage::Fetch {
                view, with, cast, ..
            } => {
                let shape = self.shape(&streams[at])?;
                self.fetch(run, (view, with.as_ref()), *cast, &shape)?;
            }
            Stage::Outer { trf, .. } => {
                let last = contraction_end(&kernel.stages, streams, at);
                self.contract(run, *trf, &streams[at], &streams[last])?;
                return Ok(last + 1);
            }
            Stage::Reduce { op, .. } => {
                let next = kernel.stages.get(at + 1);
                let ring = matches!(next, Some(Stage::Ring { .. }));
                let last = if ring { at + 1 } else { at };
                let (before, reduced) = (&streams[at - 1], &streams[last].partial);
                let shape = self.shape(&streams[last])?;
                self.reduce(run, before, reduced, shape, *op, ring);
                return Ok(last + 1);
            }
            Stage::Ring { op, .. } => {
                let reduced = &streams[at].partial;
                let shape = self.shape(&streams[at])?;
                self.reduce(run, &streams[at - 1], reduced, shape, *op, true);
            }
            Stage::Stash => run.stash = Some(run.values.clone()),
            Stage::Vector { op, operand } => self.vector(run, *op, operand)?,
            Stage::Cast { to } => round(Arc::make_mut(&mut run.values), *to),
            Stage::Commit { to } => self.commit(to, &run.values)?,
            Stage::ToRegisters { tensor } => self.commit(&View::of(*tensor), &run.values)?,
            Stage::Switch { .. }
            | Stage::Collect { .. }
            | Stage::Transpose { .. }
            | Stage::Packet { .. }
            | Stage::Time { .. }
            | Stage::Lane { .. } => {}
        }
        Ok(at + 1)
    }

    fn shape(&self, stream: &FlowStream) -> SimulationResult<Shape> {
        let shape = stream.shape(&self.program.axes);
        shape.map_err(|error| (None, error.to_string()))
    }

    /// Fetches a view, and that of a second tensor beside it.
    fn fetch(
        &self,
        run: &mut Run,
        (view, with): (&View, Option<&View>),
        cast: Option<Element>,
        shape: &Shape,
    ) -> SimulationResult<()> {
        run.values = self.part(view, shape)?;
        if let Some(with) = with {
            run.second = Some(self.part(with, shape)?);
        }
        // Widening changes no value.
        let narrows = cast == Some(Element::Bf16)
            && self.program.tensors[view.tensor].element == Element::F32;
        if narrows {
            round(Arc::make_mut(&mut run.values), Element::Bf16);
        }
        Ok(())
    }

    /// Products of the stream with a register file, summed over the axes that `sums` lacks.
    fn contract(
        &mut self,
        run: &mut Run,
        trf: usize,
        products: &FlowStream,
        sums: &FlowStream,
    ) -> SimulationResult<()> {
        let reduced = &sums.partial;
        let order = Order {
            ring: [
                Order::digits(&products.cluster, reduced),
                Order::digits(&products.slice, reduced),
            ]
            .concat(),
            time: Order::digits(&products.time, reduced),
            packet: Order::digits(&products.packet, reduced),
        };
        let is_integer = products.element == Element::I32;
        let held = self.array(trf)?;
        let n_threads = self.options.n_threads;
        let out = self.shape(sums)?;
        let (values, n_macs) = contract(&run.values, held, out, &order, is_integer, n_threads);
        run.values = Arc::new(values);
        self.counters.n_macs += n_macs;
        Ok(())
    }

    /// The part of a tensor for a view with that shape, under the command's names.
    fn part(&self, view: &View, shape: &Shape) -> SimulationResult<Arc<Array>> {
        let source = self.array(view.tensor)?;
        let is_whole = view.offsets.is_empty() && view.renames.is_empty();
        if is_whole && alike(&source.shape, shape) {
            return Ok(source.clone());
        }
        // In the order of the tensor, so that rows stay rows.
        let axes = &self.program.axes;
        let mut own = shape.clone();
        own.sort_by_key(|&(axis, _)| {
            let axis = own_axis(axis, &view.renames, axes);
            source.shape.iter().position(|(a, _)| *a == axis)
        });
        let mut part = Array::new(own);
        let mut nest = self.nest(view, shape, source, &part);
        nest.sort();
        let base = self.base(view, shape, source);
        nest.runs(|l, r, n| {
            let l = l + base;
            part.data[r..r + n].copy_from_slice(&source.data[l..l + n]);
        });
        Ok(Arc::new(part))
    }

    fn nest(&self, view: &View, shape: &Shape, tensor: &Array, values: &Array) -> Nest {
        let axes = &self.program.axes;
        let loops = shape.iter().map(|&(axis, extent)| {
            let own = own_axis(axis, &view.renames, axes);
            let first = start(self.program, view, axis);
            (
                tensor.table(own, first, extent),
                values.table(axis, 0, extent),
            )
        });
        Nest {
            loops: loops.collect(),
        }
    }

    /// Offset of a view along axes that its values lack.
    fn base(&self, view: &View, shape: &Shape, tensor: &Array) -> usize {
        let axes = &self.program.axes;
        let outside = view.offsets.iter().filter_map(|(name, first)| {
            let axis = axes.id(name).ok()?;
            let has = |&(a, _): &(usize, u64)| own_axis(a, &view.renames, axes) == axis;
            (!shape.iter().any(has)).then(|| *first as usize * tensor.step(axis))
        });
        outside.sum()
    }

    fn commit(&mut self, to: &View, values: &Array) -> SimulationResult<()> {
        self.written(to.tensor, values.data.len())?;
        let target = self.array(to.tensor)?.clone();
        let mut nest = self.nest(to, &values.shape, &target, values);
        let base = self.base(to, &values.shape, &target);
        drop(target);
        nest.sort();
        let target = self.written(to.tensor, values.data.len())?;
        nest.runs(|l, r, n| {
            let l = l + base;
            target.data[l..l + n].copy_from_slice(&values.data[r..r + n]);
        });
        Ok(())
    }

    fn reduce(
        &self,
        run: &mut Run,
        before: &FlowStream,
        reduced: &[usize],
        out: Shape,
        op: ReduceOp,
        ring: bool,
    ) {
        let order = Order {
            ring: match ring {
                true => Order::digits(&before.slice, reduced),
                false => Vec::new(),
            },
            time: Order::digits(&before.time, reduced),
            packet: Order::digits(&before.packet, reduced),
        };
        let values = match op {
            ReduceOp::Add => reduce(&run.values, out, &order, |a, b| a + b, 0.0),
            ReduceOp::Max => reduce(&run.values, out, &order, f32::max, f32::NEG_INFINITY),
            ReduceOp::Min => reduce(&run.values, out, &order, f32::min, f32::INFINITY),
        };
        run.values = Arc::new(values);
    }

    fn vector(&self, run: &mut Run, op: VectorOp, operand: &VectorOperand) -> SimulationResult<()> {
        let compute = operation(op);
        let values = Arc::make_mut(&mut run.values);
        let lacking = |what: &str| (None, format!("there is no {what}"));
        match operand {
            VectorOperand::None => apply(&mut values.data, |x| compute(x, 0.0)),
            VectorOperand::Constant(c) => apply(&mut values.data, |x| compute(x, *c)),
            VectorOperand::Stream => apply(&mut values.data, |x| compute(x, x)),
            VectorOperand::Stash => {
                let other = run.stash.take().ok_or_else(|| lacking("stash"))?;
                combine(values, &other, compute);
            }
            VectorOperand::Second => {
                let other = run.second.take().ok_or_else(|| lacking("second tensor"))?;
                combine(values, &other, compute);
            }
            VectorOperand::Vrf(tensor) => combine(values, self.array(*tensor)?, compute),
        }
        Ok(())
    }
}

/// The last stage of the contraction that begins at `at`.
fn contraction_end(stages: &[Stage], streams: &[FlowStream], at: usize) -> usize {
    let belongs = |stage: &Stage| {
        matches!(
            stage,
            Stage::Outer { .. } | Stage::Packet { .. } | Stage::Time { .. } | Stage::Lane { .. }
        )
    };
    let own = stages[at..].iter().take_while(|stage| belongs(stage));
    let last = at + own.count() - 1;
    // Partial sums meet around the ring at once.
    let is_partial = !streams[last].partial.is_empty();
    let meets = matches!(stages.get(last + 1), Some(Stage::Ring { .. }));
    if is_partial && meets { last + 1 } else { last }
}

/// State of a kernel in flight.
struct Run {
    values: Arc<Array>,
    second: Option<Arc<Array>>,
    stash: Option<Arc<Array>>,
}

fn round(values: &mut Array, to: Element) {
    if to != Element::F32 {
        values.data.iter_mut().for_each(|x| *x = to.round(*x));
    }
}

/// Vector results are normal, zero or the canonical not-a-number.
fn settle(value: f32) -> f32 {
    match value {
        value if value.is_nan() => f32::NAN,
        value if value.is_subnormal() => 0.0,
        value => value,
    }
}

fn apply(values: &mut [f32], op: impl Fn(f32) -> f32) {
    values.iter_mut().for_each(|x| *x = settle(op(*x)));
}

/// Combines with an array over some of the axes.
fn combine(values: &mut Array, other: &Array, op: impl Fn(f32, f32) -> f32) {
    let loops = values
        .shape
        .iter()
        .map(|&(axis, extent)| (other.table(axis, 0, extent), values.table(axis, 0, extent)));
    let mut nest = Nest {
        loops: loops.collect(),
    };
    nest.sort();
    nest.runs(|l, r, n| {
        for i in 0..n {
            values.data[r + i] = settle(op(values.data[r + i], other.data[l + i]));
        }
    });
}

fn operation(op: VectorOp) -> fn(f32, f32) -> f32 {
    match op {
        VectorOp::FixedToFloat => |x, _| x,
        VectorOp::Add => |x, y| x + y,
        VectorOp::Sub => |x, y| x - y,
        VectorOp::Mul0 | VectorOp::Mul1 => |x, y| x * y,
        VectorOp::Exp => |x, _| x.exp(),
        VectorOp::Sqrt => |x, _| x.sqrt(),
        VectorOp::Sigmoid => |x, _| 1.0 / (1.0 + (-x).exp()),
        VectorOp::Div => |x, y| x / y,
        VectorOp::DivBy => |x, y| y / x,
        VectorOp::Max => f32::max,
        VectorOp::Min => f32::min,
        VectorOp::FloatToFixed => |x, _| x.round_ties_even(),
    }
}
