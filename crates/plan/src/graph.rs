//! What lowering asks of a graph.

use crate::LowerError;
use millrace_graph::{Graph, Op, RopeStyle, RotateHeads};
use std::collections::HashMap;

/// Checks indices, operand counts and widths of every node.
///
/// # Errors
/// [`LowerError::Graph`] for the first node that makes no sense, [`LowerError::NoLogits`].
pub fn check(graph: &Graph) -> Result<(), LowerError> {
    millrace_graph::check(graph).map_err(|error| match error {
        millrace_graph::Error::Node {
            node,
            label,
            problem,
        } => LowerError::Graph {
            node,
            label,
            problem,
        },
        millrace_graph::Error::NoLogits => LowerError::NoLogits,
    })
}

/// Projections whose outputs an interleaved rotation takes, by node, with a head's elements: their
/// rows go to half-split order.
///
/// # Errors
/// [`LowerError::Unsupported`] for a rotation that has no half-split form.
pub fn half_split(graph: &Graph) -> Result<HashMap<usize, usize>, LowerError> {
    let producer = |value| graph.nodes.iter().position(|n| n.output == value);
    let mut found = HashMap::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        let Op::Rope(RotateHeads { rope, head_dim, .. }) = node.op else {
            continue;
        };
        if graph.ropes[rope.0].style == RopeStyle::HalfSplit {
            continue;
        }
        let unsupported = |problem: &str| LowerError::Unsupported {
            node: number,
            label: node.label,
            problem: problem.to_owned(),
        };
        if graph.ropes[rope.0].n_rot != head_dim {
            let problem = "an interleaved rotation of part of a head has no half-split form";
            return Err(unsupported(problem));
        }
        let input = node.inputs[0];
        let from = producer(input).filter(|&p| {
            let linear = matches!(graph.nodes[p].op, Op::Linear(_));
            let readers = graph.nodes.iter().filter(|n| n.inputs.contains(&input));
            linear && readers.count() == 1
        });
        let problem = "an interleaved rotation takes half-split order only directly after its \
                       own projection";
        found.insert(from.ok_or_else(|| unsupported(problem))?, head_dim);
    }
    Ok(found)
}
