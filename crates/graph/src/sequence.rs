//! A graph over a whole sequence at once: every token at its position, without caches or chunks.

use crate::{
    Executor, Graph, InOrder, Keys, Node, Real, SequenceMemory, SequenceSpan, Tokens, ValueId,
    WeightValues, exact, last_readers,
};
use std::convert::Infallible;
use std::ops::Range;

/// A sequence with the executor of its ops. A value is `[n_tokens, width]`.
pub struct Sequence<'a, R> {
    /// Computes ops by their definitions.
    pub executor: Executor<'a, R>,
    /// The tokens, from the first position on.
    pub tokens: &'a [u32],
}

/// A node to compute.
pub struct SequenceNode<'s, R> {
    /// Its index in the graph.
    pub number: usize,
    /// The node.
    pub node: &'s Node,
    /// Its input values, with a row for each of the tokens.
    pub inputs: &'s [&'s [R]],
    /// All tokens; from the final norm on, only those whose logits are wanted.
    pub tokens: Tokens<'s>,
    /// Whether it is the final norm or computed from it.
    pub is_behind_norm: bool,
}

/// Computes the value of a node.
pub type ComputeNode<'c, R, E> = dyn FnMut(SequenceNode<'_, R>) -> Result<Vec<R>, E> + 'c;

impl<'a, R: Real> Sequence<'a, R> {
    /// Creates a sequence over a graph whose ops are computed exactly, on one thread.
    pub fn exact(
        graph: &'a Graph,
        weights: &'a dyn WeightValues<R>,
        tokens: &'a [u32],
    ) -> Sequence<'a, R> {
        let executor = Executor {
            graph,
            weights,
            pool: &InOrder,
            round: exact,
        };
        Sequence { executor, tokens }
    }

    /// A node's value by its op's definition.
    ///
    /// # Panics
    /// As [`Executor::row`].
    pub fn value(&self, at: &SequenceNode<'_, R>) -> Vec<R> {
        let SequenceNode {
            node,
            inputs,
            tokens,
            ..
        } = *at;
        let width = self.executor.graph.width(node.output);
        let mut out = vec![R::default(); tokens.ids.len() * width];
        match node.op.memory() {
            // Without a target there are no keys.
            SequenceMemory::None | SequenceMemory::TargetKv(_) => {
                self.executor.rows(node, tokens, inputs, &mut out);
            }
            SequenceMemory::State(state) => {
                let mut state = vec![R::default(); state.n_elems];
                for (index, out) in out.chunks_exact_mut(width).enumerate() {
                    let token = (tokens, index);
                    let keys = Keys::default();
                    self.executor
                        .row(node, token, inputs, keys, &mut state, out);
                }
            }
            _ => {
                let span = SequenceSpan {
                    rows: 0..tokens.ids.len(),
                    first_pos: 0,
                };
                let keys = Keys {
                    k: inputs[1],
                    v: inputs[2],
                };
                self.executor
                    .over_keys(node, (tokens, &span), inputs, (0, keys), &mut out);
            }
        }
        out
    }

    /// Every value of the graph by definition, in order of index.
    ///
    /// # Panics
    /// As [`Executor::row`].
    pub fn values(&self) -> Vec<Vec<R>> {
        let mut by_definition = |at: SequenceNode<'_, R>| Ok::<_, Infallible>(self.value(&at));
        let Ok(values) = self.compute(0..self.tokens.len(), true, &mut by_definition);
        values
    }

    /// Logits `[rows.len(), vocab]` after the tokens `rows`; empty for a graph without a head. `compute` returns the
    /// value of each node, in the graph's order. A value is dropped after its last reader.
    ///
    /// # Errors
    /// The errors of `compute`.
    ///
    /// # Panics
    /// If `rows` is beyond the tokens.
    pub fn logits<E>(
        &self,
        rows: Range<usize>,
        compute: &mut ComputeNode<'_, R, E>,
    ) -> Result<Vec<R>, E> {
        let mut values = self.compute(rows, false, compute)?;
        let logits = self.executor.graph.logits;
        Ok(logits.map_or_else(Vec::new, |logits| values.swap_remove(logits.0)))
    }

    fn compute<E>(
        &self,
        rows: Range<usize>,
        keeps_all: bool,
        compute: &mut ComputeNode<'_, R, E>,
    ) -> Result<Vec<Vec<R>>, E> {
        let graph = self.executor.graph;
        let positions: Vec<u32> = (0..self.tokens.len() as u32).collect();
        let mut tokens = Tokens {
            ids: self.tokens,
            positions: &positions,
        };
        let last = last_readers(graph);
        let mut values: Vec<Vec<R>> = vec![Vec::new(); graph.values.len()];
        let mut is_behind_norm = false;
        for (number, node) in graph.nodes.iter().enumerate() {
            if Some(node.output) == graph.head_input && !is_behind_norm {
                is_behind_norm = true;
                if rows.len() < self.tokens.len() {
                    self.keep_rows(node, &rows, &mut values);
                }
                tokens = Tokens {
                    ids: &self.tokens[rows.clone()],
                    positions: &positions[rows.clone()],
                };
            }
            let inputs: Vec<&[R]> = node.inputs.iter().map(|v| &values[v.0][..]).collect();
            let value = compute(SequenceNode {
                number,
                node,
                inputs: &inputs,
                tokens,
                is_behind_norm,
            })?;
            values[node.output.0] = value;
            let read = node.inputs.iter().filter(|v| last[v.0] == Some(number));
            for ValueId(read) in read.filter(|_| !keeps_all) {
                values[*read] = Vec::new();
            }
        }
        Ok(values)
    }

    /// Keeps only those rows of a node's inputs.
    fn keep_rows(&self, node: &Node, rows: &Range<usize>, values: &mut [Vec<R>]) {
        for value in &node.inputs {
            let width = self.executor.graph.width(*value);
            let rows = rows.start * width..rows.end * width;
            values[value.0] = values[value.0][rows].to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WeightId;
    use crate::check::tests::graph;

    struct TableAndNorm([Vec<f64>; 2]);

    impl WeightValues<f64> for TableAndNorm {
        fn row(&self, id: WeightId, row: usize, out: &mut [f64]) {
            out.copy_from_slice(&self.0[id.0][row * 4..][..4]);
        }

        fn vector(&self, id: WeightId) -> &[f64] {
            &self.0[id.0]
        }
    }

    /// Unwanted rows are dropped before the last norm, and values after their last reader.
    #[test]
    fn logits_are_rows_of_all_values() {
        let graph = Graph {
            head_input: Some(ValueId(1)),
            ..graph()
        };
        let table = (0..24).map(|i| f64::from(i * 7 % 11) - 5.0).collect();
        let weights = TableAndNorm([table, vec![1.0, 0.5, 2.0, 1.0]]);
        let tokens = [3, 0, 5, 1, 2];
        let sequence = Sequence::exact(&graph, &weights, &tokens);
        let all = sequence.values().swap_remove(2);
        let mut rows = Vec::new();
        let logits = sequence.logits(2..4, &mut |at| {
            rows.push((at.number, at.tokens.ids.len(), at.is_behind_norm));
            match at.number {
                9 => Err("no such node"),
                _ => Ok(sequence.value(&at)),
            }
        });
        assert_eq!(logits, Ok(all[2 * 6..4 * 6].to_vec()));
        assert_eq!(rows, [(0, 5, false), (1, 2, true), (2, 2, true)]);
        let failed = sequence.logits(0..1, &mut |_| Err("at once"));
        assert_eq!(failed, Err("at once"));
    }
}
