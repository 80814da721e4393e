//! Plans in which consecutive ops are one program: a block.
//!
//! A block ends at the end of a layer, so that layers share a program. It also ends at an op of the host, at norms of
//! heads, which have other rows, and where the number of rows changes or data memory is full. Attention in a block
//! appends the pass's keys and values to the chip's cache itself, and gives them out for the pages of the host. So a
//! token of Llama takes one call a layer, from its first norm to its second residual.

use super::inputs::SlotInput;
use super::nodes::{NodeLowering, launch, line};
use super::planner::Tcp;
use crate::lower::chain::{Chain, ChainOperand, Link, LoweredChain, SlotOf};
use crate::lower::ops::OpKind;
use millrace_graph::{Graph, Op as GraphOp, ValueId};
use millrace_plan::offload::{self, OffloadedOp, OpGroup, OpOf};
use millrace_plan::{
    Annex, AttentionOn, Binding, LowerError, PassKind, Plan, PlannedLaunch, PlannedProgram, Reason,
};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

/// Result of lowering a chain: its program, or the number of its ops that would fit and why not all.
pub(super) type Lowering = Result<BlockProgram, BlockRefusal>;

/// A lowered block, ready for any number of calls.
#[derive(Clone)]
pub(super) struct BlockProgram {
    program: PlannedProgram,
    /// Content of its slots, by the chain's numbers.
    slots: Vec<SlotOf>,
    /// A line of explanation for each op.
    lines: Vec<String>,
}

/// Why a chain is not a block.
#[derive(Clone)]
pub(super) struct BlockRefusal {
    /// The op that does not fit.
    link: usize,
    reason: String,
}

/// Ops that might be a block, with the meaning of their numbers.
#[derive(Default)]
struct Candidate {
    links: Vec<Link>,
    values: Vec<ValueId>,
    own: Vec<Binding>,
}

impl Candidate {
    /// The number of a value in this chain, so that all layers have the same.
    fn value(&mut self, value: ValueId) -> usize {
        number(&mut self.values, value)
    }

    fn add(&mut self, of: &OpOf<'_>, mut wanted: NodeLowering) {
        if wanted.op.kind == OpKind::Attend {
            let rows = u32::try_from(wanted.op.size("s_max")).unwrap_or(u32::MAX);
            let new = of.node.inputs.iter().skip(1).copied().map(Binding::Value);
            wanted.bindings.extend(new);
            wanted.bindings.push(Binding::PassInput {
                id: SlotInput::Positions { rows }.id(),
            });
        }
        let mut takes = Vec::with_capacity(wanted.bindings.len());
        for binding in wanted.bindings {
            takes.push(match binding {
                Binding::Value(value) => ChainOperand::Value(self.value(value)),
                other => ChainOperand::Own(number(&mut self.own, other)),
            });
        }
        let gives = self.value(of.node.output);
        self.links.push(Link {
            name: of.node.label,
            op: wanted.op,
            takes,
            gives,
        });
    }

    /// Numbers of values that ops beyond the first `n` of `ops` take, or the host: keys and values for its pages,
    /// logits for the caller.
    fn leaves(&self, graph: &Graph, ops: &[OpOf<'_>], n: usize) -> Vec<usize> {
        let inside = ops[0].number..ops[0].number + n;
        let is_left = |value: &ValueId| {
            let mut nodes = graph.nodes.iter().enumerate();
            graph.logits == Some(*value)
                || nodes.any(|(number, node)| {
                    let at = match (&node.op, inside.contains(&number)) {
                        (GraphOp::Attention(_), true) => 1,
                        (_, true) => node.inputs.len(),
                        (_, false) => 0,
                    };
                    node.inputs[at.min(node.inputs.len())..].contains(value)
                })
        };
        let given = self.links[..n].iter().map(|link| link.gives);
        given
            .filter(|value| is_left(&self.values[*value]))
            .collect()
    }
}

fn number<T: PartialEq>(known: &mut Vec<T>, item: T) -> usize {
    known.iter().position(|k| *k == item).unwrap_or_else(|| {
        known.push(item);
        known.len() - 1
    })
}

impl Tcp {
    /// The plan of a kind of pass, with as few programs as possible.
    pub(super) fn lower_blocks(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        // Why the op of that number begins a block, where data memory is the reason.
        let mut cuts: HashMap<usize, String> = HashMap::new();
        offload::groups(graph, kind, &mut |ops| {
            let Some(first) = ops.first() else {
                return Err(Reason("no op".to_owned()));
            };
            // One program serves all experts, with a call for each that was chosen.
            if let GraphOp::ExpertLinear(_) = first.node.op {
                let taken = self.take(graph, kind, first)?;
                let more = Vec::new();
                return Ok(OpGroup { taken, more });
            }
            let mut group = self.block(graph, kind, ops, &mut cuts)?;
            if let Some(why) = cuts.get(&first.number) {
                group.taken.reason = format!("{}; begins a call: {why}", group.taken.reason);
            }
            Ok(group)
        })
    }

    /// A block of the first of these ops and as many behind it as fit.
    fn block(
        &self,
        graph: &Graph,
        kind: &PassKind,
        ops: &[OpOf<'_>],
        cuts: &mut HashMap<usize, String>,
    ) -> Result<OpGroup, Reason> {
        let candidate = self.candidate(graph, kind, ops, cuts)?;
        let mut n = candidate.links.len();
        let mut why = None;
        let mut found = None;
        while n > 1 && found.is_none() {
            let leaves = candidate.leaves(graph, ops, n);
            match self.chain(kind, &candidate.links[..n], &leaves) {
                Ok(known) => found = Some(candidate.group(&known)),
                Err(BlockRefusal { link, reason }) => {
                    // Halves of a layer end with a sum.
                    let link = link.clamp(1, n - 1);
                    let mut before = candidate.links[..link].iter();
                    let sum = before.rposition(|link| link.op.kind == OpKind::Add);
                    n = sum.map_or(link, |sum| sum + 1);
                    why = Some(reason);
                }
            }
        }
        if let Some(why) = why {
            cuts.insert(ops[0].number + n, why);
        }
        if let Some(group) = found {
            return Ok(group);
        }
        let taken = self.take(graph, kind, &ops[0])?;
        let more = Vec::new();
        Ok(OpGroup { taken, more })
    }

    /// Ops that might be a block.
    fn candidate(
        &self,
        graph: &Graph,
        kind: &PassKind,
        ops: &[OpOf<'_>],
        cuts: &mut HashMap<usize, String>,
    ) -> Result<Candidate, Reason> {
        let mut candidate = Candidate::default();
        for (i, of) in ops.iter().enumerate() {
            let wanted = match self.lower_node(graph, kind, of) {
                Ok(wanted) => wanted,
                Err(reason) if i == 0 => return Err(reason),
                Err(_) => break,
            };
            if i > 0
                && let Some(why) = begins(of, &ops[i - 1], &wanted)
            {
                cuts.insert(of.number, why.to_owned());
                break;
            }
            let is_alone = is_of_heads(of, &wanted);
            candidate.add(of, wanted);
            if is_alone {
                break;
            }
        }
        Ok(candidate)
    }

    /// The program of a chain, lowered once for all layers that are alike.
    fn chain(&self, kind: &PassKind, links: &[Link], leaves: &[usize]) -> Lowering {
        let n_keys = match kind.attention {
            AttentionOn::Cached { n_keys, .. } => n_keys,
            _ => 0,
        };
        let key = format!("{n_keys} {links:?} {leaves:?}");
        let lock = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let (first, last) = (&links[0], &links[links.len() - 1]);
        let n_rows = first.op.size("s_q");
        let name = format!("{}_to_{}_{n_rows}x{n_keys}", first.name, last.name);
        let known = self.lower_chain(&Chain {
            name: &name,
            links,
            leaves,
            shows: self.style.shows,
        });
        lock().insert(key, known.clone());
        known
    }

    fn lower_chain(&self, chain: &Chain<'_>) -> Lowering {
        let weights = chain.links[0].op.weights;
        let lowered = chain.lower(&self.machine, self.options(weights));
        let lowered = lowered.map_err(|refused| BlockRefusal {
            link: refused.link,
            reason: refused.error.to_string(),
        })?;
        let LoweredChain {
            lowered,
            slots,
            links,
        } = lowered;
        let whole = |reason: String| BlockRefusal { link: 1, reason };
        let program = lowered.program;
        if let Err(refusals) = crate::verify(&program, &self.machine) {
            let first = refusals.first().map(ToString::to_string);
            return Err(whole(first.unwrap_or_default()));
        }
        let container = program.to_container();
        let container = container.map_err(|error| whole(error.to_string()))?;
        let launches = chain.links.iter().zip(&links);
        let launches: Vec<PlannedLaunch> = launches
            .map(|(link, lowered)| PlannedLaunch {
                slots: lowered.slots.clone(),
                n_results: lowered.n_results,
                ..launch(link.name, &link.op, &lowered.cut)
            })
            .collect();
        Ok(BlockProgram {
            program: PlannedProgram {
                container: Arc::new(container),
                launches,
                annex: Annex::new(program),
            },
            slots,
            lines: links.iter().map(|link| line(&link.notes)).collect(),
        })
    }
}

impl Candidate {
    /// The call of its program.
    fn group(&self, known: &BlockProgram) -> OpGroup {
        let bindings = known.slots.iter().map(|slot| match slot {
            SlotOf::Takes(ChainOperand::Own(own)) => self.own[*own].clone(),
            SlotOf::Takes(ChainOperand::Value(value)) | SlotOf::Gives(value) => {
                Binding::Value(self.values[*value])
            }
        });
        let mut lines = known.lines.iter().cloned();
        OpGroup {
            taken: OffloadedOp {
                program: known.program.clone(),
                bindings: bindings.collect(),
                reason: lines.next().unwrap_or_default(),
                experts: None,
            },
            more: lines.collect(),
        }
    }
}

/// Whether an op is a norm of heads.
fn is_of_heads(of: &OpOf<'_>, wanted: &NodeLowering) -> bool {
    wanted.op.kind == OpKind::Norm && wanted.op.size("s_q") != of.n_rows
}

/// Why an op begins a block, where it always does.
fn begins(of: &OpOf<'_>, last: &OpOf<'_>, wanted: &NodeLowering) -> Option<&'static str> {
    if let (Some(layer), Some(before)) = (of.node.layer, last.node.layer)
        && layer != before
    {
        return Some("it is the next layer's, whose ops are the same program");
    }
    if of.n_rows != last.n_rows || wanted.op.kind == OpKind::LastNorm {
        return Some("it is of other rows than the ops before it");
    }
    is_of_heads(of, wanted)
        .then_some("each head is a row of a norm, and lies otherwise in data memory")
}
