//! Attention as products of the device with a softmax of the host between them.
//!
//! For a target that multiplies matrices and computes nothing else. The cache stays in the host's pages. For each key-value head, whose
//! group of query heads share it:
//!
//! ```text
//! Queries [n_tokens · group, head_dim] ┐
//! Keys    [n_keys, head_dim]           ┴ device ─► Scores ─ host: softmax ─► Probabilities ┐
//!                                                                 Values [head_dim, n_keys] ┴ device ─► Sums
//! ```
//!
//! Key 0 is at the oldest position that the pass's first token sees. A plan has a fixed number of keys. Those that the sequence lacks are
//! zeros with no probability.

use crate::offload::append_kv;
use crate::{
    Binding, Call, Device, HostStep, LowerError, NodePlace, Placement, Plan, PlannedProgram, Step,
    ValueArrangement,
};
use millrace_graph::{Attention, Graph, Node, Op, ValueId};
use serde::{Deserialize, Serialize};

/// Content of a slot of one of the two products ([`Binding::AttentionProduct`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttentionPart {
    /// `[n_tokens · group, head_dim]`: the group's heads of that value's rows, a token's one after the other.
    Queries(ValueId),
    /// `[n_keys, head_dim]`: the head's keys.
    Keys,
    /// `[n_tokens · group, n_keys]`: queries times keys, not scaled.
    Scores,
    /// `[n_tokens · group, n_keys]`: the scores after [`HostStep::Softmax`].
    Probabilities,
    /// `[head_dim, n_keys]`: the head's values, an element a row.
    Values,
    /// `[n_tokens · group, head_dim]`: probabilities times values, the group's heads of that value's rows.
    Sums(ValueId),
}

impl AttentionPart {
    /// The value that it is a part of.
    pub fn value(self) -> Option<ValueId> {
        match self {
            AttentionPart::Queries(value) | AttentionPart::Sums(value) => Some(value),
            _ => None,
        }
    }

    /// Rows, and elements of a row.
    pub fn shape(self, attention: &Attention, n_tokens: usize, n_keys: usize) -> [usize; 2] {
        let n_rows = n_tokens * group(attention);
        let head_dim = attention.head_dim;
        match self {
            AttentionPart::Queries(_) | AttentionPart::Sums(_) => [n_rows, head_dim],
            AttentionPart::Scores | AttentionPart::Probabilities => [n_rows, n_keys],
            AttentionPart::Keys => [n_keys, head_dim],
            AttentionPart::Values => [head_dim, n_keys],
        }
    }
}

/// Query heads that share a key-value head.
pub fn group(attention: &Attention) -> usize {
    attention.n_heads / attention.n_kv_heads.max(1)
}

/// A node's attention as a target computes it: both programs serve every key-value head.
#[derive(Clone, Debug)]
pub struct AttentionProducts {
    /// Queries times keys, of one launch whose slots are the two operands and the result, with the
    /// arrangements of all three.
    pub scores: (PlannedProgram, [ValueArrangement; 3]),
    /// Probabilities times values, likewise.
    pub sums: (PlannedProgram, [ValueArrangement; 3]),
    /// Keys of both.
    pub n_keys: usize,
    /// Why the device computes them.
    pub reason: String,
}

/// Adds the steps of a node's attention to a plan: its keys and values into the cache, then two calls for each
/// key-value head with softmax between them.
///
/// # Errors
/// A node that is not attention over two other values.
pub(crate) fn add(
    plan: &mut Plan,
    graph: &Graph,
    number: usize,
    products: AttentionProducts,
) -> Result<(), LowerError> {
    let node = &graph.nodes[number];
    let (Op::Attention(attention), Some(q), Some(append)) =
        (&node.op, node.inputs.first(), append_kv(node))
    else {
        return Err(LowerError::Graph {
            node: number,
            label: node.label,
            problem: "no attention over two other values".to_owned(),
        });
    };
    plan.steps.push(Step::Host(append));
    let n_keys = products.n_keys;
    let first = plan.steps.len();
    let [scores, sums] = [products.scores, products.sums]
        .map(|(program, ids)| (program_number(&mut plan.programs, program), ids));
    for kv_head in 0..attention.n_kv_heads {
        let calls = HeadCalls {
            node,
            number,
            kv_head,
            n_keys,
        };
        use AttentionPart::{Keys, Probabilities, Queries, Scores, Sums, Values};
        let of = [Queries(*q), Keys, Scores];
        plan.steps.push(calls.step(scores, "scores", of));
        plan.steps.push(Step::Host(HostStep::Softmax {
            node: number,
            kv_head,
            n_keys,
        }));
        let of = [Probabilities, Values, Sums(node.output)];
        plan.steps.push(calls.step(sums, "sums", of));
    }
    plan.placement.push(Placement {
        node: number,
        place: NodePlace::Device(Device {
            step: first,
            program: scores.0,
            launches: 0..1,
        }),
        reason: products.reason,
    });
    Ok(())
}

/// Index of the program among a plan's; it is appended if it is new.
fn program_number(programs: &mut Vec<PlannedProgram>, program: PlannedProgram) -> usize {
    let known = programs.iter().position(|p| *p == program);
    known.unwrap_or_else(|| {
        programs.push(program);
        programs.len() - 1
    })
}

/// The calls of a key-value head.
struct HeadCalls<'a> {
    node: &'a Node,
    number: usize,
    kv_head: usize,
    n_keys: usize,
}

impl HeadCalls<'_> {
    fn step(
        &self,
        (program, ids): (usize, [ValueArrangement; 3]),
        what: &str,
        of: [AttentionPart; 3],
    ) -> Step {
        let binding = |(of, id)| Binding::AttentionProduct {
            node: self.number,
            kv_head: self.kv_head,
            of,
            n_keys: self.n_keys,
            id,
        };
        Step::Call(Call {
            program,
            set: set(self.node, what, self.kv_head),
            bindings: of.into_iter().zip(ids).map(binding).collect(),
            nodes: vec![self.number],
            experts: None,
        })
    }
}

fn set(node: &Node, what: &str, kv_head: usize) -> String {
    let name = format!("{}_{what}_{kv_head}", node.label);
    match node.layer {
        Some(layer) => format!("{name}_L{layer}"),
        None => name,
    }
}
