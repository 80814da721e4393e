//! A graph by its definition: a whole sequence at once, every token at its position.

use crate::{Graph, Keys, Node, Real, SequenceMemory, TokenContext, WeightValues};

/// A sequence, and what its ops compute with. Nothing of it is cached or cut: a value is
/// `[n_tokens, width]`.
pub struct Sequence<'a, R> {
    /// The graph.
    pub graph: &'a Graph,
    /// Numbers of weights.
    pub weights: &'a dyn WeightValues<R>,
    /// The tokens, from the first position on.
    pub tokens: &'a [u32],
    /// Rounds what hardware would round between the steps of a definition ([`crate::exact`]: nothing).
    pub round: fn(R) -> R,
}

impl<R: Real> Sequence<'_, R> {
    /// A token's row of a node's result, of the inputs' values. An op with a state takes the state behind
    /// the token before and leaves that behind this one.
    ///
    /// # Panics
    /// If the graph was not [checked](crate::check()), or an input has fewer rows.
    pub fn row(
        &self,
        node: &Node,
        inputs: &[&[R]],
        position: usize,
        state: &mut [R],
        out: &mut [R],
    ) {
        let width = |index: usize| self.graph.width(node.inputs[index]);
        let rows = inputs.iter().enumerate();
        let rows: Vec<&[R]> = rows
            .map(|(index, value)| &value[position * width(index)..][..width(index)])
            .collect();
        let keys = match node.op.memory() {
            SequenceMemory::KvCache(kv) | SequenceMemory::SharedKv(kv) => {
                let oldest = kv.window.map_or(0, |w| (position + 1).saturating_sub(w));
                let seen = oldest * kv.width()..(position + 1) * kv.width();
                Keys {
                    k: &inputs[1][seen.clone()],
                    v: &inputs[2][seen],
                }
            }
            SequenceMemory::AllTokens(all) => {
                let seen = all.seen(position, inputs[1].len() / all.width);
                let seen = seen.start * all.width..seen.end * all.width;
                Keys {
                    k: &inputs[1][seen.clone()],
                    v: &inputs[2][seen],
                }
            }
            _ => Keys { k: &[], v: &[] },
        };
        let row = TokenContext {
            graph: self.graph,
            weights: self.weights,
            token: self.tokens[position],
            position,
            inputs: &rows,
            given: &[],
            keys,
            round: self.round,
        };
        R::define(&*node.op, &row, state, out);
    }

    /// All rows of a node's result, `[n_tokens, width]`.
    ///
    /// # Panics
    /// As [`row`](Sequence::row).
    pub fn value(&self, node: &Node, inputs: &[&[R]]) -> Vec<R> {
        let width = self.graph.width(node.output);
        let mut state = match node.op.memory() {
            SequenceMemory::State(state) => vec![R::default(); state.n_elems],
            _ => Vec::new(),
        };
        let mut out = vec![R::default(); self.tokens.len() * width];
        for (position, out) in out.chunks_exact_mut(width).enumerate() {
            self.row(node, inputs, position, &mut state, out);
        }
        out
    }

    /// Every value of the graph, by number.
    ///
    /// # Panics
    /// As [`row`](Sequence::row).
    pub fn values(&self) -> Vec<Vec<R>> {
        let mut values: Vec<Vec<R>> = vec![Vec::new(); self.graph.values.len()];
        for node in &self.graph.nodes {
            let inputs: Vec<&[R]> = node.inputs.iter().map(|v| &values[v.0][..]).collect();
            values[node.output.0] = self.value(node, &inputs);
        }
        values
    }
}
