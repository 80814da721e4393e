//! The plan of one product, as a target makes it of a graph with one linear layer.

use millrace_graph::{Embed, Graph, Linear, Node, Op, Value, ValueId, Weight, WeightId};
use millrace_kernels::matmul::WeightMatrix;
use millrace_npu::{Device, LoadedProgram};
use millrace_plan::predict::{Crossing, HostWork, SlotBytes};
use millrace_plan::{
    Binding, Call, Chunk, HeadRows, HostStep, Lowering, OwnSlot, PassKind, Plan, PlannedProgram,
    Planner, Step, ValueArrangement, WeightArrangement, WeightLayout,
};
use millrace_quant::DType;
use std::ops::Deref;
use std::sync::Arc;

/// A product: `[m, k] · [n, k]ᵀ`, with m a length that the target plans for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProductShape {
    pub(super) dtype: DType,
    pub(super) m: u64,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl ProductShape {
    /// A product that is planned by any target that plans single products.
    pub(super) const TRIED: ProductShape = ProductShape {
        dtype: DType::Q8_0,
        m: 32,
        n: 128,
        k: 256,
    };

    pub(super) fn of(weight: &WeightMatrix<'_>, m: u64) -> ProductShape {
        ProductShape {
            dtype: weight.dtype(),
            m,
            n: weight.n(),
            k: weight.k(),
        }
    }

    /// A linear layer behind a table; the table stands in for the op that makes the layer's input.
    fn graph(self) -> Graph {
        let weight = |name: &str, n| Weight {
            n_experts: 1,
            source: millrace_graph::WeightSource::Whole,
            name: name.to_owned(),
            n,
            k: self.k,
            dtype: self.dtype,
        };
        let node = |op, inputs, output, label| Node {
            op,
            inputs,
            output: ValueId(output),
            layer: None,
            label,
        };
        let table = Op::Embed(Embed {
            table: WeightId(0),
            scale: 1.0,
        });
        let linear = Op::Linear(Linear {
            weight: WeightId(1),
            bias: None,
        });
        Graph {
            nodes: vec![
                node(table, Vec::new(), 0, "input"),
                node(linear, vec![ValueId(0)], 1, "mul_mat"),
            ],
            values: vec![Value { width: self.k }, Value { width: self.n }],
            weights: vec![weight("input", 1), weight("weight", self.n)],
            logits: Some(ValueId(1)),
            ..Graph::default()
        }
    }
}

/// The linear layer's number in the graph.
const LINEAR: usize = 1;

/// A product's program on a device, with its slots.
pub(super) struct PlannedProduct {
    lowered: ProductProgram,
    pub(super) loaded: Arc<dyn LoadedProgram>,
}

/// A product's program, with its slots.
pub(super) struct ProductProgram {
    pub(super) shape: ProductShape,
    pub(super) program: PlannedProgram,
    /// Numbers of the slots of rows, weights and results, and their arrangements.
    pub(super) rows: (usize, ValueArrangement),
    pub(super) weights: (usize, WeightArrangement),
    pub(super) results: (usize, ValueArrangement),
    graph: Graph,
    plan: Plan,
}

impl PlannedProduct {
    /// Lowers, verifies and loads; `None` where the target does not.
    pub(super) fn new(
        planner: &dyn Planner,
        device: &dyn Device,
        shape: ProductShape,
    ) -> Option<PlannedProduct> {
        let lowered = ProductProgram::new(planner, shape)?;
        let loaded = device.load(&lowered.program.container).ok()?;
        Some(PlannedProduct { lowered, loaded })
    }
}

impl Deref for PlannedProduct {
    type Target = ProductProgram;

    fn deref(&self) -> &ProductProgram {
        &self.lowered
    }
}

impl ProductProgram {
    /// `None` where the target leaves the product to the host, or plans it in another form than rows, weights and
    /// results in the target's own arrangements.
    pub(super) fn new(lowering: &dyn Lowering, shape: ProductShape) -> Option<ProductProgram> {
        let graph = shape.graph();
        let kind = match shape.m {
            1 => PassKind::decode(),
            m => PassKind::prefill(m).with_head(HeadRows::All),
        };
        let plan = lowering.lower(&graph, &kind).ok()?;
        let mut calls = plan.steps.iter().filter_map(|step| match step {
            Step::Call(call) => Some(call),
            Step::Host(_) => None,
        });
        let (Some(call), None) = (calls.next(), calls.next()) else {
            return None;
        };
        let [mut rows, mut results] = [None; 2];
        let mut weights = None;
        for (slot, binding) in call.bindings.iter().enumerate() {
            match binding {
                Binding::Packed {
                    value: ValueId(0),
                    id,
                    bias: None,
                } => rows = Some((slot, *id)),
                Binding::Packed {
                    value: ValueId(1),
                    id,
                    bias: None,
                } => results = Some((slot, *id)),
                Binding::Weight {
                    weight: WeightId(1),
                    layout:
                        WeightLayout::Own {
                            id,
                            half_split: None,
                        },
                } => weights = Some((slot, *id)),
                _ => return None,
            }
        }
        let program = plan.programs.get(call.program)?.clone();
        Some(ProductProgram {
            shape,
            program,
            rows: rows?,
            weights: weights?,
            results: results?,
            graph,
            plan,
        })
    }

    /// A slot in the form that the planner takes.
    pub(super) fn own_slot<I>(&self, (slot, id): (usize, I)) -> OwnSlot<'_, I> {
        OwnSlot {
            program: &self.program,
            slot,
            id,
        }
    }

    fn call(&self) -> Option<&Call> {
        self.plan.calls().next()
    }

    /// The smallest number of rows of this plan's length for which the device is predicted to finish before the host
    /// would have read the weights once for each row. `None` if there is no such number.
    pub(super) fn least_rows(&self, planner: &dyn Planner) -> Option<usize> {
        let mut pricer = planner.pricer()?;
        let cost = pricer.program(&self.program).ok()?;
        let bytes = SlotBytes::of(self.program.slots());
        let work = HostWork {
            graph: &self.graph,
            plan: &self.plan,
            chunk: Chunk::token(0),
        };
        let crossing = Crossing {
            written_bytes: bytes.input,
            read_bytes: bytes.output,
            relayed_bytes: 0,
        };
        let host = pricer.call(&work, self.call()?, crossing);
        let device_ns = cost.run_ns + host.call_ns + host.write_ns + host.read_ns;
        let step = HostStep::Linear {
            node: LINEAR,
            half_split: None,
        };
        // A step counts weights of two bytes, for each of the plan's rows.
        let dtype = self.shape.dtype;
        let bytes_a_weight = dtype.block_bytes() as f64 / dtype.block_elems() as f64;
        let row_ns = pricer.step_ns(&work, step) / self.shape.m as f64 * bytes_a_weight / 2.0;
        let rows = (device_ns / row_ns).ceil();
        (rows.is_finite() && rows <= self.shape.m as f64).then_some(rows as usize)
    }
}
