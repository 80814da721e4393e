//! Checks of a graph, after which every later step may index and divide freely.

use crate::{Graph, KvShape, Node, SequenceMemory, ValueId, WeightId};

/// Largest width of a value, which keeps products with numbers of tokens far from overflow.
pub const WIDTH_MAX: usize = 1 << 28;

/// Reason why a graph is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Operands that are missing, too many, or do not fit together.
    #[error("node {node} ({label}): {problem}")]
    Node {
        /// Index in the graph's nodes.
        node: usize,
        /// Its label.
        label: &'static str,
        /// Description of the fault.
        problem: String,
    },
    /// The graph has neither logits nor, for an encoder, a final result; or no node writes them.
    #[error("the graph names no logits that one of its nodes writes")]
    NoLogits,
}

/// Operands of a node, for the checks of its op.
#[derive(Clone, Copy, Debug)]
pub struct Shapes<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl<'a> Shapes<'a> {
    /// Operands of a node whose inputs and output are values of the graph.
    pub fn of(graph: &'a Graph, node: &'a Node) -> Shapes<'a> {
        Shapes { graph, node }
    }

    /// Elements of a row of an input.
    pub fn input(&self, index: usize) -> usize {
        self.width(self.node.inputs[index])
    }

    /// Elements of a row of the result.
    pub fn output(&self) -> usize {
        self.width(self.node.output)
    }

    /// `[n_experts, n, k]` of a weight.
    ///
    /// # Errors
    /// The weight does not exist.
    pub fn weight(&self, id: WeightId) -> Result<[usize; 3], String> {
        let weight = self.graph.weights.get(id.0);
        let shape = weight.map(|w| [w.n_experts, w.n, w.k]);
        shape.ok_or_else(|| format!("weight {} is not there", id.0))
    }

    /// The graph.
    pub fn graph(&self) -> &'a Graph {
        self.graph
    }

    fn width(&self, value: ValueId) -> usize {
        self.graph.values[value.0].width
    }
}

/// Checks indices, operand counts and widths of every node. Also checks that the memories of a sequence
/// have unique, consecutive numbers.
///
/// # Errors
/// The first invalid node; [`Error::NoLogits`].
pub fn check(graph: &Graph) -> Result<(), Error> {
    let mut written = vec![false; graph.values.len()];
    let (mut n_states, mut caches) = (0, Vec::new());
    for (number, node) in graph.nodes.iter().enumerate() {
        let checked = check_node(graph, node, &written);
        let checked = checked.and_then(|()| check_memory(node, &mut n_states, &mut caches));
        if let Err(problem) = checked {
            return Err(Error::Node {
                node: number,
                label: node.label,
                problem,
            });
        }
        written[node.output.0] = true;
    }
    // An encoder ends with its hidden states.
    match graph.logits.or(graph.head_input) {
        Some(last) if written.get(last.0) == Some(&true) => Ok(()),
        _ => Err(Error::NoLogits),
    }
}

/// The caches found so far: their shapes, and the keys and values that go into them.
type Caches = Vec<(KvShape, Vec<ValueId>)>;

fn check_memory(node: &Node, n_states: &mut usize, caches: &mut Caches) -> Result<(), String> {
    let has = |caches: &Caches, layer| caches.iter().any(|(kv, _)| kv.layer == layer);
    let appended = || node.inputs.iter().skip(1).copied().collect();
    match node.op.memory() {
        SequenceMemory::None | SequenceMemory::AllTokens(_) | SequenceMemory::TargetKv(_) => {}
        SequenceMemory::KvCache(kv) if has(caches, kv.layer) => {
            return Err(format!("layer {} has its cache already", kv.layer));
        }
        SequenceMemory::KvCache(kv) if kv.layer != caches.len() => {
            return Err(format!("cache {} where {} is next", kv.layer, caches.len()));
        }
        SequenceMemory::KvCache(kv) => caches.push((kv, appended())),
        SequenceMemory::SharedKv(kv) => {
            if !caches.contains(&(kv, appended())) {
                let layer = kv.layer;
                return Err(format!("no earlier op fills such a cache of layer {layer}"));
            }
        }
        SequenceMemory::State(state) if state.index != *n_states => {
            return Err(format!("state {} where {n_states} is next", state.index));
        }
        SequenceMemory::State(_) => *n_states += 1,
    }
    Ok(())
}

fn check_node(graph: &Graph, node: &Node, written: &[bool]) -> Result<(), String> {
    for &input in &node.inputs {
        if written.get(input.0) != Some(&true) {
            return Err(format!("reads value {}, which nothing wrote", input.0));
        }
    }
    let output = node.output.0;
    match written.get(output) {
        Some(false) => {}
        Some(true) => return Err(format!("value {output} is written twice")),
        None => return Err(format!("writes value {output}, which is not there")),
    }
    let wanted = node.op.arity();
    if node.inputs.len() != wanted {
        return Err(format!("{} inputs, it takes {wanted}", node.inputs.len()));
    }
    let width = |v: ValueId| graph.values[v.0].width;
    let sane = |width: usize| (1..=WIDTH_MAX).contains(&width);
    if !sane(width(node.output)) || !node.inputs.iter().all(|&v| sane(width(v))) {
        return Err(format!("a value's width is 1 to {WIDTH_MAX}"));
    }
    node.op.check(&Shapes::of(graph, node))
}

/// Turns a failed check of operand sizes into its message.
pub(crate) fn fits(fits: bool) -> Result<(), String> {
    match fits {
        true => Ok(()),
        false => Err("its operands' sizes do not fit together".to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
