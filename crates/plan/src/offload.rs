//! Plans in which each op runs on the device, in a separate program, or on the host.
//!
//! [`ops`] is for any op; [`products`] for targets that take products of matrices and leave everything else to the
//! host, [`products_and_attention`] where those of attention are among them.

use crate::attention_products::{self, AttentionProducts};
use crate::experts;
use crate::graph::{check, head_orders};
use crate::{
    Bias, Binding, Call, Device, ExpertCall, HeadRows, HostStep, LowerError, MAX_TOKENS, NodePlace,
    PassKind, Phase, Placement, Plan, PlannedProgram, Reason, Step,
};
use millrace_graph::{
    Attention, ExpertLinear, Graph, Linear, Node, Op, OpRole, ValueId, WeightId, single_row,
};
use std::ops::Range;
use std::sync::Arc;

/// A product of a pass: `y[m, n] = x[m, k] · W[n, k]ᵀ`, with a bias or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Index in the graph's nodes.
    pub node: usize,
    /// The node's label.
    pub label: &'static str,
    /// W.
    pub weight: WeightId,
    /// Vector that the graph adds to every row of y. The target that takes the product sees that it is added: the host
    /// adds it where the result's [binding](Binding::Packed) says so.
    pub bias: Option<Bias>,
    /// x.
    pub x: ValueId,
    /// y.
    pub y: ValueId,
    /// Rows of x and y; of experts those of a dispatch, which the host gathers and puts in place.
    pub m: u64,
    /// Elements of a row of x.
    pub k: u64,
    /// Elements of a row of y.
    pub n: u64,
    /// With a head's elements: rows of W to put from interleaved to half-split order, as
    /// [`WeightLayout`](crate::WeightLayout) has it.
    pub half_split: Option<usize>,
}

impl Product {
    /// The product of so many rows with one of a weight's matrices: that of the expert that they chose.
    fn of_expert(graph: &Graph, op: &OpOf<'_>, linear: &ExpertLinear, rows: u64) -> Product {
        Product {
            node: op.number,
            label: op.node.label,
            weight: linear.weight,
            // The host adds it, with the expert's scale before it.
            bias: None,
            x: op.node.inputs[0],
            y: op.node.output,
            m: rows,
            k: graph.weights[linear.weight.0].k as u64,
            n: graph.weights[linear.weight.0].n as u64,
            half_split: None,
        }
    }
}

/// An op of a pass.
#[derive(Clone, Copy, Debug)]
pub struct OpOf<'g> {
    /// Index in the graph's nodes.
    pub number: usize,
    /// The node.
    pub node: &'g Node,
    /// Rows of its result.
    pub n_rows: u64,
    /// Rows of its first input; more than in the result where a single row is taken out of a prompt's.
    pub n_rows_in: u64,
    /// For a projection, with a head's elements: outputs to put from interleaved to half-split order, as
    /// [`WeightLayout`](crate::WeightLayout) has it.
    pub half_split: Option<usize>,
}

/// An op as a target computes it: one call of a program with one launch.
#[derive(Clone, Debug)]
pub struct OffloadedOp {
    /// The program. Ops that are the same program but for their weights give equal ones.
    pub program: PlannedProgram,
    /// Content of its slots.
    pub bindings: Vec<Binding>,
    /// Why the device computes it.
    pub reason: String,
    /// For a product of experts, the result of [`experts::product`]; its values are the node's.
    pub experts: Option<ExpertCall>,
}

/// The plan of a kind of pass in which `take` decides about each product. A product that it refuses, and every other
/// op, runs on the host.
///
/// # Errors
/// As [`ops`].
pub fn products(
    graph: &Graph,
    kind: &PassKind,
    take: &mut dyn FnMut(&Product) -> Result<OffloadedOp, Reason>,
) -> Result<Plan, LowerError> {
    let attend: Attend<'_> =
        &mut |_, _| Err(Reason("the device takes products of matrices".to_owned()));
    products_and_attention(graph, kind, take, attend)
}

/// Decides whether the device computes the products of a node's attention.
pub type Attend<'a> = &'a mut dyn FnMut(&OpOf<'_>, &Attention) -> Result<AttentionProducts, Reason>;

/// The same for a target that also takes the products of attention, where `attend` says so.
///
/// # Errors
/// As [`ops`]; attention over other inputs than a query and two more values.
pub fn products_and_attention(
    graph: &Graph,
    kind: &PassKind,
    take: &mut dyn FnMut(&Product) -> Result<OffloadedOp, Reason>,
    attend: Attend<'_>,
) -> Result<Plan, LowerError> {
    shares(graph, kind, &mut |ops| {
        // There is always a next op.
        let op = &ops[0];
        match &op.node.op {
            Op::Linear(Linear { weight, bias }) => {
                let taken = take(&Product {
                    node: op.number,
                    label: op.node.label,
                    weight: *weight,
                    bias: bias.map(|weight| Bias {
                        weight,
                        half_split: op.half_split,
                    }),
                    x: op.node.inputs[0],
                    y: op.node.output,
                    m: op.n_rows,
                    k: graph.weights[weight.0].k as u64,
                    n: graph.weights[weight.0].n as u64,
                    half_split: op.half_split,
                });
                let more = Vec::new();
                taken.map(|taken| DeviceShare::Group(OpGroup { taken, more }))
            }
            Op::ExpertLinear(linear) => {
                let taken = experts::product(graph, kind, op.number, &mut |rows| {
                    take(&Product::of_expert(graph, op, linear, rows))
                });
                let more = Vec::new();
                taken.map(|taken| DeviceShare::Group(OpGroup { taken, more }))
            }
            Op::Attention(attention) if attention.is_plain() => {
                attend(op, attention).map(DeviceShare::AttentionProducts)
            }
            Op::Attention(_) => Err(Reason(
                "the host's softmax between products has no sinks, no soft bound, no biases by distance and no chunks".to_owned(),
            )),
            other => Err(Reason(
                hosts_reason(other)
                    .unwrap_or("the device takes products of matrices")
                    .to_owned(),
            )),
        }
    })
}

/// Why every device leaves an op to the host, where the reason is more than that no program computes it.
pub fn hosts_reason(op: &Op) -> Option<&'static str> {
    Some(match op {
        Op::Route(_) => {
            "the host chooses a token's experts: a plan's programs and operands do not depend on scores"
        }
        Op::CombineExperts(_) => "the host sums the experts' results: it has them",
        Op::HeadLinear(_) => "a matrix for each head: the host multiplies heads one by one",
        _ => return None,
    })
}

/// A call that computes several ops: each in a separate launch, or all in one.
#[derive(Clone, Debug)]
pub struct OpGroup {
    /// The call; its reason is that of the first op. A program with as many launches as ops has one for each, in their
    /// order; any other computes all in its first.
    pub taken: OffloadedOp,
    /// Why it computes the ops behind the first, one each.
    pub more: Vec<String>,
}

/// The plan of a kind of pass in which `take` decides about each op; one that it refuses runs on the host. Attention
/// that it takes is over the [cache](crate::Binding::Cache), which has the pass's keys and values by then.
///
/// # Errors
/// As [`groups`].
pub fn ops(
    graph: &Graph,
    kind: &PassKind,
    take: &mut dyn FnMut(&OpOf<'_>) -> Result<OffloadedOp, Reason>,
) -> Result<Plan, LowerError> {
    groups(graph, kind, &mut |ops| {
        let more = Vec::new();
        let op = ops.first().ok_or_else(|| Reason("no op".to_owned()))?;
        take(op).map(|taken| OpGroup { taken, more })
    })
}

/// The same where a call may compute several consecutive ops. `take` gets all ops from the next one on. It computes the
/// first and as many behind it as it says. The host appends new rows of the cache before a call that attends, so the
/// ops that produce them are computed before it. Where the program [appends](Plan::appends) them itself, the host's
/// pages get them after it.
///
/// # Errors
/// A graph that makes no sense, a length beyond the limits.
pub fn groups(
    graph: &Graph,
    kind: &PassKind,
    take: &mut dyn FnMut(&[OpOf<'_>]) -> Result<OpGroup, Reason>,
) -> Result<Plan, LowerError> {
    shares(graph, kind, &mut |ops| take(ops).map(DeviceShare::Group))
}

/// The ops that a device computes of a graph from a node on.
enum DeviceShare {
    Group(OpGroup),
    AttentionProducts(AttentionProducts),
}

fn shares(
    graph: &Graph,
    kind: &PassKind,
    take: &mut dyn FnMut(&[OpOf<'_>]) -> Result<DeviceShare, Reason>,
) -> Result<Plan, LowerError> {
    check(graph)?;
    if !(1..=MAX_TOKENS).contains(&kind.n_tokens) {
        return Err(LowerError::Tokens(kind.n_tokens));
    }
    let orders = head_orders(graph);
    let is_single_row = kind.phase == Phase::Decode || kind.head == HeadRows::Last;
    let mut plan = without_steps(graph, kind, is_single_row);
    let nodes = graph.nodes.iter().enumerate();
    let ops: Vec<OpOf<'_>> = nodes
        .map(|(number, node)| OpOf {
            number,
            node,
            n_rows: plan.n_rows(node.output),
            n_rows_in: plan.n_rows(*node.inputs.first().unwrap_or(&node.output)),
            half_split: orders.half_split.get(&number).copied(),
        })
        .collect();
    let mut next = 0;
    while let Some(op) = ops.get(next) {
        let first = next;
        next += 1;
        // Up to a rotation that programs cannot compute, and to the row that the host picks.
        let stops = |op: &OpOf<'_>| orders.interleaved.contains_key(&op.number) || host_picks(op);
        let end = ops[first..].iter().position(stops);
        let taken = match orders.interleaved.get(&first) {
            Some(why) => Err(Reason(why.clone())),
            None if host_picks(op) => Err(Reason("the host picks the last row".into())),
            None => take(&ops[first..end.map_or(ops.len(), |end| first + end)]),
        };
        match taken {
            Ok(DeviceShare::AttentionProducts(products)) => {
                attention_products::add(&mut plan, graph, first, products)?
            }
            Ok(DeviceShare::Group(group)) => {
                next = (next + group.more.len()).min(graph.nodes.len());
                add_call(&mut plan, graph, first..next, group);
            }
            Err(reason) => {
                let is_last_norm = is_single_row && graph.head_input == Some(op.node.output);
                add_host(&mut plan, op, is_last_norm, reason);
            }
        }
    }
    Ok(plan)
}

/// Whether an op reads all rows, gives the last one, and is a product or a copy. Devices may pick the row of a norm.
fn host_picks(op: &OpOf<'_>) -> bool {
    let drops_rows = op.n_rows < op.n_rows_in;
    let node = &op.node.op;
    drops_rows && (node.role() == OpRole::Product || node.weights().is_empty())
}

/// The plan of a kind of pass before its first step.
fn without_steps(graph: &Graph, kind: &PassKind, is_single_row: bool) -> Plan {
    Plan {
        phase: kind.phase,
        n_tokens: kind.n_tokens,
        alias: true,
        head: kind.head,
        programs: Vec::new(),
        steps: Vec::new(),
        placement: Vec::new(),
        single_row: match is_single_row {
            true => single_row(graph),
            false => Vec::new(),
        },
    }
}

fn add_host(plan: &mut Plan, op: &OpOf<'_>, is_last_norm: bool, reason: Reason) {
    let steps = host_steps(op.node, op.number, is_last_norm, op.half_split);
    plan.steps.extend(steps.into_iter().map(Step::Host));
    plan.placement.push(Placement {
        node: op.number,
        place: NodePlace::Host,
        reason: reason.0,
    });
}

/// The name of a call's buffers: its label and layer. A layer may have several ops of one label, and each call has buffers of
/// its own. The number follows from the graph alone, so that passes of other lengths have the same names.
fn set(graph: &Graph, first: usize, label: String) -> String {
    let node = &graph.nodes[first];
    let set = match node.layer {
        Some(layer) => format!("{label}_L{layer}"),
        None => label,
    };
    let is_like = |other: &&Node| (other.label, other.layer) == (node.label, node.layer);
    match graph.nodes[..first].iter().filter(is_like).count() {
        0 => set,
        n => format!("{set}_{}", n + 1),
    }
}

fn add_call(plan: &mut Plan, graph: &Graph, nodes: Range<usize>, group: OpGroup) {
    let OpGroup { taken, more } = group;
    let same = |p: &PlannedProgram| {
        Arc::ptr_eq(&p.container, &taken.program.container) && p.launches == taken.program.launches
            || *p == taken.program
    };
    let known = plan.programs.iter().position(same);
    let node = &graph.nodes[nodes.start];
    let label = match nodes.len() {
        1 => node.label.to_owned(),
        // For several ops, the program's name.
        _ => taken.program.name().to_owned(),
    };
    let program = known.unwrap_or_else(|| {
        plan.programs.push(taken.program);
        plan.programs.len() - 1
    });
    let call = Call {
        program,
        set: set(graph, nodes.start, label),
        bindings: taken.bindings,
        nodes: nodes.clone().collect(),
        experts: taken.experts,
    };
    let layers = plan.appends(&call);
    let is_own = |step: &HostStep| matches!(step, HostStep::AppendKv { layer, .. } if layers.contains(layer));
    let appended = graph.nodes[nodes.clone()].iter().filter_map(append_kv);
    let (behind, before): (Vec<HostStep>, Vec<HostStep>) = appended.partition(is_own);
    plan.steps.extend(before.into_iter().map(Step::Host));
    let reasons = std::iter::once(taken.reason).chain(more);
    let has_own = plan.programs[program].launches.len() == nodes.len();
    for ((number, node), reason) in nodes.enumerate().zip(reasons) {
        let launch = if has_own { number } else { 0 };
        let device = Device {
            step: plan.steps.len(),
            program,
            launches: launch..launch + 1,
        };
        plan.placement.push(Placement {
            node,
            place: NodePlace::Device(device),
            reason,
        });
    }
    plan.steps.push(Step::Call(call));
    plan.steps.extend(behind.into_iter().map(Step::Host));
}

/// Steps of the host for a node. `is_last_norm` marks the norm before a head that takes a single row.
pub fn host_steps(
    node: &Node,
    number: usize,
    is_last_norm: bool,
    half_split: Option<usize>,
) -> Vec<HostStep> {
    let step = match node.op {
        Op::Embed(_) => HostStep::Embed { node: number },
        Op::Linear(_) => HostStep::Linear {
            node: number,
            half_split,
        },
        Op::Attention(_) => HostStep::Attention { node: number },
        _ if is_last_norm => HostStep::FinalNorm { node: number },
        _ => HostStep::Op { node: number },
    };
    append_kv(node).into_iter().chain([step]).collect()
}

/// Attention fills the cache wherever it runs.
pub fn append_kv(node: &Node) -> Option<HostStep> {
    match (&node.op, &node.inputs[..]) {
        (Op::Attention(a), &[_, k, v]) => Some(HostStep::AppendKv {
            layer: a.layer,
            k,
            v,
        }),
        _ => None,
    }
}
