//! The executor of ops: rows of a node's result by its op's definition, over f32 or f64.
//!
//! The CPU engine and the host part of a plan run it for ops without a kernel. Checks run it over whole graphs
//! ([`Sequence`](crate::Sequence)).

use crate::{Graph, Keys, Node, Real, TokenContext, WeightValues};
use std::ops::Range;

/// The tokens whose rows are computed.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// The tokens.
    pub ids: &'a [u32],
    /// Their positions in their sequences.
    pub positions: &'a [u32],
}

/// Neighbouring tokens of one sequence.
#[derive(Clone, Debug)]
pub struct SequenceSpan {
    /// Their rows.
    pub rows: Range<usize>,
    /// Position of the first.
    pub first_pos: usize,
}

/// Shares the rows of a result out to threads.
pub trait RowPool<R>: Sync {
    /// Calls `row(index, row)` once for each row of `width` elements of `out`, in any order.
    fn each_row(&self, out: &mut [R], width: usize, row: &(dyn Fn(usize, &mut [R]) + Sync));
}

/// Computes one row after the other, on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct InOrder;

impl<R> RowPool<R> for InOrder {
    fn each_row(&self, out: &mut [R], width: usize, row: &(dyn Fn(usize, &mut [R]) + Sync)) {
        let rows = out.chunks_mut(width.max(1)).enumerate();
        rows.for_each(|(index, out)| row(index, out));
    }
}

/// Computes ops by their definitions.
pub struct Executor<'a, R> {
    /// The graph whose nodes are computed.
    pub graph: &'a Graph,
    /// Values of weights.
    pub weights: &'a dyn WeightValues<R>,
    /// Shares rows out to threads.
    pub pool: &'a dyn RowPool<R>,
    /// Rounding that hardware applies between the steps of a definition ([`crate::exact`] rounds nothing).
    pub round: fn(R) -> R,
}

impl<R: Real> Executor<'_, R> {
    /// All rows of an op without memory. `inputs` are the node's values, and `out` is its result.
    ///
    /// # Panics
    /// As [`row`](Executor::row).
    pub fn rows(&self, node: &Node, tokens: Tokens<'_>, inputs: &[&[R]], out: &mut [R]) {
        let width = self.graph.width(node.output);
        self.pool.each_row(out, width, &|index, out| {
            self.row(node, (tokens, index), inputs, Keys::default(), &mut [], out);
        });
    }

    /// The rows of a span, for an op that sees other tokens: `keys` are those of the sequence from position `first_key` on.
    ///
    /// # Panics
    /// As [`row`](Executor::row).
    pub fn over_keys(
        &self,
        node: &Node,
        (tokens, span): (Tokens<'_>, &SequenceSpan),
        inputs: &[&[R]],
        (first_key, keys): (usize, Keys<'_, R>),
        out: &mut [R],
    ) {
        let width = self.graph.width(node.output);
        let memory = node.op.memory();
        let out = &mut out[span.rows.start * width..span.rows.end * width];
        self.pool.each_row(out, width, &|index, out| {
            let token = (tokens, span.rows.start + index);
            let keys = keys.seen(memory, first_key, span.first_pos + index);
            self.row(node, token, inputs, keys, &mut [], out);
        });
    }

    /// The row `index` of a node's result. An op with a state takes the state after the previous token and updates it
    /// to the state after this one.
    ///
    /// # Panics
    /// If the graph was not [checked](crate::check()), or an input has too few rows.
    pub fn row(
        &self,
        node: &Node,
        (tokens, index): (Tokens<'_>, usize),
        inputs: &[&[R]],
        keys: Keys<'_, R>,
        state: &mut [R],
        out: &mut [R],
    ) {
        let rows = node.inputs.iter().zip(inputs).map(|(value, rows)| {
            let width = self.graph.width(*value);
            &rows[index * width..][..width]
        });
        let rows: InputRows<'_, R> = rows.collect();
        let row = TokenContext {
            graph: self.graph,
            weights: self.weights,
            token: tokens.ids[index],
            position: tokens.positions[index] as usize,
            inputs: &rows,
            given: &[],
            keys,
            round: self.round,
        };
        R::define(&*node.op, &row, state, out);
    }
}

/// Rows of an op's inputs. Collecting those of an op of ours allocates nothing.
pub struct InputRows<'i, R> {
    few: [&'i [R]; FEW_INPUTS],
    n: usize,
    /// All rows, if there are more than [`FEW_INPUTS`].
    many: Vec<&'i [R]>,
}

/// Inputs whose rows are [collected](InputRows) without an allocation: the most that an op of ours has (Kimi delta attention,
/// RWKV 7). An [`Extension`](crate::Extension) may have more.
pub const FEW_INPUTS: usize = 5;

impl<'i, R> FromIterator<&'i [R]> for InputRows<'i, R> {
    fn from_iter<I: IntoIterator<Item = &'i [R]>>(rows: I) -> Self {
        let mut rows = rows.into_iter();
        let mut few = [&[][..]; FEW_INPUTS];
        let mut n = 0;
        for (place, row) in few.iter_mut().zip(rows.by_ref()) {
            *place = row;
            n += 1;
        }
        let mut many = Vec::new();
        if let Some(next) = rows.next() {
            many.extend_from_slice(&few);
            many.push(next);
            many.extend(rows);
        }
        InputRows { few, n, many }
    }
}

impl<'i, R> std::ops::Deref for InputRows<'i, R> {
    type Target = [&'i [R]];

    fn deref(&self) -> &[&'i [R]] {
        match self.many.is_empty() {
            true => &self.few[..self.n],
            false => &self.many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_any_number_are_all_there() {
        let rows: Vec<[f64; 1]> = (0..9).map(|i| [f64::from(i)]).collect();
        for n in 0..=9 {
            let found: InputRows<'_, f64> = rows[..n].iter().map(|row| &row[..]).collect();
            assert_eq!(found.len(), n);
            assert_eq!(found.many.capacity() > 0, n > FEW_INPUTS);
            assert!(found.iter().zip(&rows).all(|(found, row)| *found == row));
        }
    }
}
