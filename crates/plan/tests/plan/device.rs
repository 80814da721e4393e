//! A target that takes the ops that a test selects, several in a call, with values in separate slots.

use millrace_graph::{Attention, Graph, Node, Op, RotateHeads, ValueId, single_row};
use millrace_kernels::Cpu;
use millrace_npu::{Container, Device, DeviceError, Element, Role, Slot};
use millrace_plan::offload::{self, OffloadedOp, OpGroup, OpOf};
use millrace_plan::{
    Annex, Arrangement, AttentionOn, Binding, CachePart, Chunk, Explain, HeadRows, InputId,
    Lengths, LowerError, Lowering, MachineFacts, NamedNumbers, Numerics, PassKind, Phase, Plan,
    PlannedLaunch, PlannedProgram, Planner, Reason, TableRows, ValueArrangement, WeightArrangement,
    WeightLayout,
};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a cache.
const CACHE_ROWS: u64 = 64;

/// Behaviour of such a target.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// By node, whether it is taken; the list repeats.
    pub(crate) takes: Vec<bool>,
    /// Most ops of a call.
    pub(crate) most: usize,
    /// Whether programs append to the cache themselves.
    pub(crate) appends: bool,
    /// Whether each op of a call has a separate launch.
    pub(crate) launches: bool,
    /// Whether products use the target's own arrangements.
    pub(crate) packs: bool,
    /// Whether values stay on the device between calls.
    pub(crate) alias: bool,
}

impl Manner {
    /// Every op on the device, one a call.
    pub(crate) fn all() -> Manner {
        Manner {
            takes: vec![true],
            most: 1,
            appends: false,
            launches: true,
            packs: false,
            alias: true,
        }
    }

    pub(crate) fn any() -> impl Strategy<Value = Manner> {
        let takes = prop::collection::vec(prop::bool::weighted(0.7), 1..20);
        (takes, 1..=6_usize, any::<[bool; 4]>()).prop_map(|(takes, most, is)| Manner {
            takes,
            most,
            appends: is[0],
            launches: is[1],
            packs: is[2],
            alias: is[3],
        })
    }

    fn takes(&self, node: usize) -> bool {
        self.takes[node % self.takes.len()]
    }
}

/// Kinds of passes for models that small.
pub(crate) fn kinds() -> impl Strategy<Value = PassKind> {
    (prop::option::of(1..=9_u64), any::<bool>()).prop_map(|(n_tokens, is_all)| {
        let kind = n_tokens.map_or_else(PassKind::decode, PassKind::prefill);
        kind.with_head(match is_all {
            true => HeadRows::All,
            false => HeadRows::Last,
        })
    })
}

/// The planner of such a target.
#[derive(Clone, Debug)]
pub(crate) struct Toy(pub(crate) Manner);

impl Lowering for Toy {
    fn target(&self) -> &'static str {
        "toy"
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn machine(&self) -> MachineFacts {
        MachineFacts {
            name: "toy".to_owned(),
            cols: 1,
            rows: 1,
            clock_hz: 1e9,
            ddr_bytes_per_s: 1e9,
            attained_bytes_per_s: 1e9,
            peak_flops_per_s: 1e9,
        }
    }

    fn mode(&self) -> String {
        "plain".to_owned()
    }

    fn lengths(&self) -> Lengths {
        Lengths::new(&[4, 8, 32])
    }

    fn cache_rows(&self, _graph: &Graph, n_ctx: u64) -> u64 {
        n_ctx.next_multiple_of(CACHE_ROWS)
    }

    fn kind(&self, _graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        let end = chunk.first + chunk.n_tokens;
        PassKind {
            phase,
            n_tokens: chunk.n_padded,
            attention: AttentionOn::Cached {
                n_keys: end.next_multiple_of(CACHE_ROWS).min(cache_rows),
                max_tokens: cache_rows,
            },
            head: HeadRows::Last,
        }
    }

    fn decode_until(&self, first: u64) -> u64 {
        (first + 1).next_multiple_of(CACHE_ROWS)
    }

    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        let rows = RowCounts::of(graph, kind);
        let mut plan = offload::groups(graph, kind, &mut |ops| self.0.take(graph, &rows, ops))?;
        plan.alias = self.0.alias;
        Ok(plan)
    }
}

impl Arrangement for Toy {}

impl Numerics for Toy {}

impl Explain for Toy {}

impl Planner for Toy {
    fn open(&self, _cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        Err(DeviceError::Driver("a test has no device".to_owned()))
    }
}

/// Rows of values.
pub(crate) struct RowCounts {
    n_tokens: u64,
    single: Vec<ValueId>,
}

impl RowCounts {
    pub(crate) fn of(graph: &Graph, kind: &PassKind) -> RowCounts {
        let is_single = kind.phase == Phase::Decode || kind.head == HeadRows::Last;
        RowCounts {
            n_tokens: kind.n_tokens,
            single: match is_single {
                true => single_row(graph),
                false => Vec::new(),
            },
        }
    }

    pub(crate) fn rows(&self, value: ValueId) -> u64 {
        match self.single.contains(&value) {
            true => 1,
            false => self.n_tokens,
        }
    }
}

impl Manner {
    /// How many ops from the first on are in one call.
    fn n_ops(&self, ops: &[OpOf<'_>]) -> usize {
        let fits = |n: usize| {
            let op = &ops[n];
            // The host brings new rows of the cache before the call.
            let appended = |value: &ValueId| ops[..n].iter().any(|o| o.node.output == *value);
            let is_ready = match &op.node.op {
                Op::Attention(_) => self.appends || !op.node.inputs[1..].iter().any(appended),
                _ => true,
            };
            self.takes(op.number) && is_ready
        };
        (0..ops.len().min(self.most))
            .take_while(|&n| fits(n))
            .count()
    }

    fn take(&self, graph: &Graph, rows: &RowCounts, ops: &[OpOf<'_>]) -> Result<OpGroup, Reason> {
        let n_ops = self.n_ops(ops);
        if n_ops == 0 {
            return Err(Reason(format!("op {} is left", ops[0].number)));
        }
        let mut call = CallBuilder {
            manner: self,
            graph,
            rows,
            ops: &ops[..n_ops],
            slots: Vec::new(),
            bindings: Vec::new(),
            results: Vec::new(),
        };
        for op in call.ops {
            call.add(op);
        }
        // Programs of few ops have scratch space.
        call.slot(Role::Intermediate, [3, 16 * n_ops as u64], Binding::Scratch);
        Ok(OpGroup {
            taken: call.finish(format!("op {} is taken", ops[0].number)),
            more: ops[1..n_ops]
                .iter()
                .map(|op| format!("op {} is taken, too", op.number))
                .collect(),
        })
    }
}

struct CallBuilder<'a, 'g> {
    manner: &'a Manner,
    graph: &'a Graph,
    rows: &'a RowCounts,
    ops: &'a [OpOf<'g>],
    slots: Vec<Slot>,
    bindings: Vec<Binding>,
    /// By op, its result's slot.
    results: Vec<usize>,
}

impl CallBuilder<'_, '_> {
    fn slot(&mut self, role: Role, shape: [u64; 2], binding: Binding) -> usize {
        let number = self.slots.len();
        self.slots.push(Slot {
            name: format!("slot{number}"),
            element: Element::Bf16,
            shape: shape.to_vec(),
            role,
        });
        self.bindings.push(binding);
        number
    }

    fn value_slot(&mut self, role: Role, value: ValueId) -> usize {
        let shape = [self.rows.rows(value), self.graph.width(value) as u64];
        let binding = match self.manner.packs {
            true => Binding::Packed {
                value,
                id: ValueArrangement(1),
                bias: None,
            },
            false => Binding::Value(value),
        };
        self.slot(role, shape, binding)
    }

    fn input(&mut self, value: ValueId) {
        let here = |op: &OpOf<'_>| op.node.output == value;
        let bound = |b: &Binding| b.value() == Some(value);
        if !self.ops.iter().any(here) && !self.bindings.iter().any(bound) {
            self.value_slot(Role::Input, value);
        }
    }

    fn add(&mut self, op: &OpOf<'_>) {
        let node = op.node;
        match &node.op {
            Op::Embed(_) => {
                let made = Binding::PassInput { id: InputId(7) };
                self.slot(Role::Input, [op.n_rows, 2], made);
            }
            Op::Attention(attention) => self.cache(node, attention),
            Op::Rope(rotate) => self.table(op, rotate),
            _ => {}
        }
        let is_attention = matches!(node.op, Op::Attention(_));
        let takes_cache = is_attention && !self.manner.appends;
        let n_inputs = if takes_cache { 1 } else { node.inputs.len() };
        for &value in &node.inputs[..n_inputs] {
            self.input(value);
        }
        for used in node.op.weights() {
            let weight = &self.graph.weights[used.id.0];
            let layout = match self.manner.packs {
                true => WeightLayout::Own {
                    id: WeightArrangement(2),
                    half_split: op.half_split,
                },
                false => WeightLayout::AsStored {
                    half_split: op.half_split,
                },
            };
            let shape = [weight.n as u64, weight.k as u64];
            let binding = Binding::Weight {
                weight: used.id,
                layout,
            };
            self.slot(Role::Static, shape, binding);
        }
        let result = match self.is_wanted(node) {
            true => self.value_slot(Role::Output, node.output),
            false => {
                let shape = [op.n_rows, self.graph.width(node.output) as u64];
                self.slot(Role::Intermediate, shape, Binding::Scratch)
            }
        };
        self.results.push(result);
    }

    fn table(&mut self, op: &OpOf<'_>, rotate: &RotateHeads) {
        let n_heads = self.graph.width(op.node.output) / rotate.head_dim;
        let rows = TableRows {
            n_tokens: op.n_rows as usize,
            n_heads,
        };
        let table = Binding::RopeTable {
            rope: rotate.rope,
            rows,
        };
        let role = match self.rows.n_tokens {
            1 => Role::Input,
            _ => Role::Static,
        };
        let shape = [op.n_rows * n_heads as u64, rotate.head_dim as u64];
        self.slot(role, shape, table);
    }

    fn cache(&mut self, node: &Node, attention: &Attention) {
        let role = match self.manner.appends {
            true => Role::Intermediate,
            false => Role::Static,
        };
        for of in [CachePart::Keys, CachePart::Values] {
            let width = self.graph.width(node.inputs[1]) as u64;
            let cache = Binding::Cache {
                layer: attention.layer,
                of,
            };
            self.slot(role, [CACHE_ROWS, width], cache);
        }
    }

    /// Whether anything outside the call needs a node's result: another op, the caller, or the host's pages.
    fn is_wanted(&self, node: &Node) -> bool {
        let inside: Range<usize> = self.ops[0].number..self.ops[0].number + self.ops.len();
        let mut readers = self
            .graph
            .nodes
            .iter()
            .enumerate()
            .filter(|(number, reader)| {
                let at = reader.inputs.iter().position(|v| *v == node.output);
                let is_kv = matches!(reader.op, Op::Attention(_)) && at.is_some_and(|at| at > 0);
                at.is_some() && (is_kv || !inside.contains(number))
            });
        self.graph.logits == Some(node.output) || readers.next().is_some()
    }

    fn finish(self, reason: String) -> OffloadedOp {
        let all: Vec<usize> = (0..self.slots.len()).collect();
        let launch = |name: &str, slots: Vec<usize>, number: usize| PlannedLaunch {
            name: name.to_owned(),
            kernel: "any".to_owned(),
            shape: NamedNumbers::new(&[]),
            tiling: NamedNumbers::new(&[]),
            slots,
            n_results: 1,
            physical: number..number + 1,
        };
        let of_op = self.ops.iter().zip(&self.results).enumerate();
        let launches = match self.manner.launches {
            true => of_op
                .map(|(number, (op, slot))| launch(op.node.label, vec![*slot], number))
                .collect(),
            false => vec![launch("all", all, 0)],
        };
        let name = format!("{}_{}", self.ops[0].node.label, self.ops.len());
        let container = Container::new("toy", &name, self.slots, Vec::new());
        OffloadedOp {
            program: PlannedProgram {
                container: Arc::new(container.expect("a container")),
                launches,
                annex: Annex::default(),
            },
            bindings: self.bindings,
            reason,
            experts: None,
        }
    }
}
