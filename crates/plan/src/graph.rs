//! Graphs that make sense: every later step indexes and divides without fear.

use crate::LowerError;
use millrace_model::graph::{Graph, Node, Op, RopeStyle, ValueId, WeightId};
use std::collections::HashMap;

/// Widest value: products with numbers of tokens stay far from overflow.
const WIDTH_MAX: usize = 1 << 28;

/// Checks indices, operand counts and widths of every node.
///
/// # Errors
/// [`LowerError::Graph`] for the first node that makes no sense, [`LowerError::NoLogits`].
pub fn check(graph: &Graph) -> Result<(), LowerError> {
    let mut written = vec![false; graph.values.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        if let Err(problem) = check_node(graph, node, &written) {
            return Err(LowerError::Graph {
                node: number,
                label: node.label,
                problem,
            });
        }
        written[node.output.0] = true;
    }
    match graph.logits {
        Some(logits) if written.get(logits.0) == Some(&true) => Ok(()),
        _ => Err(LowerError::NoLogits),
    }
}

fn check_node(graph: &Graph, node: &Node, written: &[bool]) -> Result<(), String> {
    for &input in &node.inputs {
        if written.get(input.0) != Some(&true) {
            return Err(format!("reads value {}, which nothing wrote", input.0));
        }
    }
    match written.get(node.output.0) {
        Some(false) => {}
        Some(true) => return Err(format!("value {} is written twice", node.output.0)),
        None => {
            return Err(format!(
                "writes value {}, which is not there",
                node.output.0
            ));
        }
    }
    let wanted = match node.op {
        Op::Embed { .. } => 0,
        Op::RmsNorm { .. } | Op::Linear { .. } | Op::Rope { .. } => 1,
        Op::Glu { .. } | Op::Add => 2,
        Op::Attention(_) => 3,
    };
    if node.inputs.len() != wanted {
        return Err(format!("{} inputs, it takes {wanted}", node.inputs.len()));
    }
    let width = |v: ValueId| graph.values[v.0].width;
    let out = width(node.output);
    let sane = |width: usize| (1..=WIDTH_MAX).contains(&width);
    if !sane(out) || !node.inputs.iter().all(|&v| sane(width(v))) {
        return Err(format!("a value's width is 1 to {WIDTH_MAX}"));
    }
    check_widths(graph, node, out)
}

fn check_widths(graph: &Graph, node: &Node, out: usize) -> Result<(), String> {
    let width = |i: usize| graph.values[node.inputs[i].0].width;
    let shape = |w: WeightId| {
        let weight = graph.weights.get(w.0);
        let shape = weight.map(|w| [w.n, w.k]);
        shape.ok_or_else(|| format!("weight {} is not there", w.0))
    };
    let ok = match &node.op {
        Op::Embed { table, .. } => shape(*table)?[1] == out,
        Op::RmsNorm { weight, group, .. } => {
            let fits = *group > 0 && out.is_multiple_of(*group) && width(0) == out;
            fits && shape(*weight)? == [1, *group]
        }
        Op::Linear { weight, bias } => {
            let fits = bias.map(&shape).transpose()?.is_none_or(|b| b == [1, out]);
            fits && shape(*weight)? == [out, width(0)]
        }
        Op::Rope { rope, head_dim } => {
            let rope = graph.ropes.get(rope.0);
            let rope = rope.ok_or_else(|| format!("RoPE table {} is not there", rope_id(node)))?;
            let rotates = rope.n_rot <= *head_dim && rope.inv_freq.len() == rope.n_rot / 2;
            *head_dim > 0 && out.is_multiple_of(*head_dim) && width(0) == out && rotates
        }
        Op::Attention(a) => {
            let heads = [a.n_heads, a.n_kv_heads, a.n_kv_heads];
            let widths = heads.map(|h| h.checked_mul(a.head_dim));
            let fits = (0..3).all(|i| widths[i] == Some(width(i)));
            fits && out == width(0) && a.n_heads.is_multiple_of(a.n_kv_heads)
        }
        Op::Glu { .. } | Op::Add => width(0) == out && width(1) == out,
    };
    if ok {
        Ok(())
    } else {
        Err("its operands' sizes do not fit together".to_owned())
    }
}

/// The final norm's output and everything computed from it: a single row, where one row's logits are
/// wanted.
pub fn single_row(graph: &Graph) -> Vec<ValueId> {
    let mut rows: Vec<ValueId> = graph.head_input.into_iter().collect();
    for node in &graph.nodes {
        if node.inputs.iter().any(|v| rows.contains(v)) {
            rows.push(node.output);
        }
    }
    rows
}

fn rope_id(node: &Node) -> usize {
    match node.op {
        Op::Rope { rope, .. } => rope.0,
        _ => 0,
    }
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
        let Op::Rope { rope, head_dim } = node.op else {
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
            let linear = matches!(graph.nodes[p].op, Op::Linear { .. });
            let readers = graph.nodes.iter().filter(|n| n.inputs.contains(&input));
            linear && readers.count() == 1
        });
        let problem = "an interleaved rotation takes half-split order only directly after its \
                       own projection";
        found.insert(from.ok_or_else(|| unsupported(problem))?, head_dim);
    }
    Ok(found)
}
