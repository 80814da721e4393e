//! Requirements of lowering on a graph.

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
    })?;
    // An encoder's graph ends without them.
    graph.logits.map(|_| ()).ok_or(LowerError::NoLogits)
}

/// How interleaved rotations of a graph are computed by devices, whose rotations are half-split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadOrders {
    /// Projections whose rows go from interleaved to half-split order, with a head's elements: by node.
    pub half_split: HashMap<usize, usize>,
    /// Rotations that stay interleaved, which the host computes, and why: by node.
    pub interleaved: HashMap<usize, String>,
}

/// The interleaved rotations of a block.
struct BlockRotations {
    layer: Option<usize>,
    /// Their nodes.
    rotations: Vec<usize>,
    /// Why the block keeps its order, if it does.
    permutes: Result<(), String>,
}

/// Decides which projections are put in half-split order, and which rotations stay interleaved.
///
/// A block's queries and keys are permuted alike or not at all. They are permuted where each rotation of the block
/// takes whole heads directly from its own projection, and only attention reads the result, perhaps scaled. Scores are
/// then the same in any order of a head's elements.
pub fn head_orders(graph: &Graph) -> HeadOrders {
    let mut orders = HeadOrders::default();
    let mut blocks: Vec<BlockRotations> = Vec::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        let Op::Rope(RotateHeads { rope, .. }) = node.op else {
            continue;
        };
        if graph.ropes[rope.0].style == RopeStyle::HalfSplit {
            continue;
        }
        let at = blocks.iter().position(|block| block.layer == node.layer);
        let at = at.unwrap_or_else(|| {
            blocks.push(BlockRotations {
                layer: node.layer,
                rotations: Vec::new(),
                permutes: Ok(()),
            });
            blocks.len() - 1
        });
        let block = &mut blocks[at];
        block.rotations.push(number);
        if block.permutes.is_ok() {
            block.permutes = projection(graph, number).map(|_| ());
        }
    }
    for block in blocks {
        for number in block.rotations {
            let found = block.permutes.clone();
            match found.and_then(|()| projection(graph, number)) {
                Ok((from, head_dim)) => _ = orders.half_split.insert(from, head_dim),
                Err(why) => _ = orders.interleaved.insert(number, why),
            }
        }
    }
    orders
}

/// The projection that an interleaved rotation takes its heads from, with a head's elements, if its rows can be
/// put in another order; else why not.
fn projection(graph: &Graph, rotation: usize) -> Result<(usize, usize), String> {
    let node = &graph.nodes[rotation];
    let Op::Rope(RotateHeads {
        rope,
        head_dim,
        first,
    }) = node.op
    else {
        return Err("no rotation".to_owned());
    };
    let n_rot = graph.ropes[rope.0].n_rot;
    if n_rot != head_dim || first != 0 {
        return Err(format!(
            "interleaved pairs of {n_rot} of a head's {head_dim} elements rotate; the device's pairs are half-split"
        ));
    }
    let why = |problem: &str| format!("interleaved pairs of heads rotate, {problem}");
    let input = node.inputs[0];
    let readers = |value| {
        graph
            .nodes
            .iter()
            .filter(move |n| n.inputs.contains(&value))
    };
    let producer = graph.nodes.iter().position(|n| n.output == input);
    let linear = producer.filter(|&p| matches!(graph.nodes[p].op, Op::Linear(_)));
    let Some(from) = linear.filter(|_| readers(input).count() == 1) else {
        return Err(why("which no projection of their own gives"));
    };
    let mut value = node.output;
    loop {
        let mut all = readers(value);
        let (reader, more) = (all.next(), all.next());
        match (reader.map(|reader| (reader, &reader.op)), more) {
            (Some((reader, Op::Scale(_) | Op::Temperature(_))), None) => value = reader.output,
            (Some((reader, Op::Attention(_))), None) if reader.inputs[2..] != [value] => {
                return Ok((from, head_dim));
            }
            _ => return Err(why("which attention is not all that reads")),
        }
    }
}
