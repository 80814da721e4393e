//! How values are divided between ranks, and by the ops that read and write them.

use crate::{AllGather, Attention, Graph, Node, Op, RankPlace};
use std::ops::Range;

/// Minimum number of a matrix's rows on a rank; below it the product is cheaper than an exchange.
const ROWS_MIN: usize = 8;

/// Division of a value between ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Pieces of a row, all divided in the same way.
    pub(super) n_pieces: usize,
    /// Elements of a piece on each rank. Begin and end never decrease; neighbours may share elements.
    pub(super) parts: Vec<Range<usize>>,
}

impl Division {
    /// `n` rows in parts as even as blocks of `block_rows` allow; `None` if there are too few.
    pub(super) fn even(n: usize, n_ranks: usize, block_rows: usize) -> Option<Division> {
        let n_blocks = n / block_rows;
        let divides = n.is_multiple_of(block_rows) && n_blocks >= n_ranks;
        if !divides || n < ROWS_MIN * n_ranks {
            return None;
        }
        Some(Division::of_units(&ranges(n_blocks, n_ranks), block_rows))
    }

    /// Parts made of these ranges of units, with `unit` elements each.
    fn of_units(units: &[Range<usize>], unit: usize) -> Division {
        let parts = units.iter().map(|r| r.start * unit..r.end * unit);
        Division {
            n_pieces: 1,
            parts: parts.collect(),
        }
    }

    /// The same parts in each of `n_pieces` pieces.
    pub(super) fn in_pieces(self, n_pieces: usize) -> Division {
        Division { n_pieces, ..self }
    }

    /// Elements of a token on a rank.
    pub(super) fn width(&self, rank: usize) -> usize {
        self.n_pieces * self.parts[rank].len()
    }

    /// Whether every part consists of whole units.
    pub(super) fn is_of_units(&self, unit: usize) -> bool {
        let mut ends = self.parts.iter().flat_map(|part| [part.start, part.end]);
        ends.all(|end| end.is_multiple_of(unit))
    }

    /// The cut of a value whose units have `to` elements, by one whose units have `from`.
    pub(super) fn scaled(&self, from: usize, to: usize) -> Option<Division> {
        let fits = self.is_of_units(from) && (self.n_pieces == 1 || (from, to) == (1, 1));
        let parts = self.parts.iter();
        let parts = parts.map(|part| part.start / from * to..part.end / from * to);
        fits.then(|| Division {
            n_pieces: self.n_pieces,
            parts: parts.collect(),
        })
    }

    /// The op that assembles the parts on `rank`. The first rank that has an element contributes it.
    pub(super) fn gather(&self, rank: usize) -> AllGather {
        let (mut end, mut first) = (0, 0);
        let mut lens = Vec::with_capacity(self.parts.len());
        for (other, part) in self.parts.iter().enumerate() {
            let from = part.start.max(end);
            if other == rank {
                first = from - part.start;
            }
            lens.push(part.end.saturating_sub(from));
            end = end.max(part.end);
        }
        AllGather {
            rank,
            n_pieces: self.n_pieces,
            lens,
            first,
        }
    }
}

/// `0..n` in `n_parts` ranges as even as can be.
fn ranges(n: usize, n_parts: usize) -> Vec<Range<usize>> {
    let at = |part: usize| part * n / n_parts;
    (0..n_parts).map(|part| at(part)..at(part + 1)).collect()
}

/// The query heads, and the key and value heads, of every rank. If there are more ranks than key heads, several ranks
/// keep the same key head and divide its queries. `None` if a rank would have no query.
pub(super) fn heads(op: &Attention, n_ranks: usize) -> Option<[Division; 2]> {
    // Slopes follow from a head's index among all heads.
    if op.slopes.is_some() {
        return None;
    }
    let (n_kv, group) = (op.n_kv_heads, op.n_heads / op.n_kv_heads);
    let scaled = |queries: &[Range<usize>], keys: &[Range<usize>]| {
        [queries, keys].map(|heads| Division::of_units(heads, op.head_dim))
    };
    if n_kv >= n_ranks {
        let keys = ranges(n_kv, n_ranks);
        let queries: Vec<_> = keys
            .iter()
            .map(|r| r.start * group..r.end * group)
            .collect();
        return Some(scaled(&queries, &keys));
    }
    let head_of = |rank: usize| rank * n_kv / n_ranks;
    let (mut queries, mut keys) = (Vec::new(), Vec::new());
    for head in 0..n_kv {
        let n_sharing = (0..n_ranks).filter(|rank| head_of(*rank) == head).count();
        if n_sharing > group {
            return None;
        }
        let own = ranges(group, n_sharing).into_iter();
        queries.extend(own.map(|r| head * group + r.start..head * group + r.end));
        keys.extend((0..n_sharing).map(|_| head..head + 1));
    }
    Some(scaled(&queries, &keys))
}

/// Sizes in elements of the units of a node's inputs and output, if the node computes each unit from the same unit of
/// its inputs. Units are heads, groups, or single elements. An input without a unit is read whole.
pub(super) struct Units {
    pub(super) inputs: Vec<Option<usize>>,
    pub(super) output: usize,
}

impl Units {
    /// `None` for a node that does not compute by units.
    pub(super) fn of(graph: &Graph, node: &Node) -> Option<Units> {
        let width = |input: usize| graph.width(node.inputs[input]);
        let same = |unit| (vec![Some(unit); node.op.arity()], unit);
        let (inputs, output) = match &node.op {
            Op::Add(_) | Op::Multiply(_) | Op::Glu(_) | Op::Activate(_) => same(1),
            Op::Scale(_) | Op::ScaleByWeight(_) | Op::Temperature(_) | Op::Softcap(_) => same(1),
            Op::ScaleByGate(_) if width(1) == 1 => (vec![Some(1), None], 1),
            Op::ScaleByGate(_) => {
                let group = width(0) / width(1);
                (vec![Some(group), Some(1)], group)
            }
            Op::Rope(op) => same(op.head_dim),
            Op::RmsNorm(op) if op.group < width(0) => same(op.group),
            Op::PadHeads(op) => (vec![Some(op.from)], op.to),
            Op::SliceHeads(op) => (vec![Some(width(0) / op.n_heads)], op.range.len()),
            Op::ConcatHeads(op) => {
                let heads = [0, 1].map(|input| Some(width(input) / op.n_heads));
                (heads.to_vec(), op.from_a.len() + op.from_b.len())
            }
            Op::HeadLinear(op) => {
                let n = graph.weights[op.weight.0].n;
                (vec![Some(width(0) / op.n_heads)], n)
            }
            _ => return None,
        };
        Some(Units { inputs, output })
    }

    /// Whether the node can compute its output in parts of this cut.
    pub(super) fn take(&self, cut: &Division) -> bool {
        let mut inputs = self.inputs.iter().flatten();
        inputs.all(|unit| cut.scaled(self.output, *unit).is_some())
    }

    /// Cut of the output if an input has this cut.
    pub(super) fn output_cut(&self, input: usize, cut: &Division) -> Option<Division> {
        cut.scaled(self.inputs[input]?, self.output)
    }

    /// Cut of an input if the output has this cut; `None` for an input that is read whole.
    pub(super) fn input_cut(&self, input: usize, cut: &Division) -> Option<Division> {
        cut.scaled(self.output, self.inputs[input]?)
    }
}

/// By value, the cut that attention needs: that of heads. It covers the ops from the products that make queries, keys
/// and values to the last op on attention's result. `None` for all other values.
pub(super) fn wanted(graph: &Graph, place: RankPlace) -> Vec<Option<Division>> {
    let mut wanted: Vec<Option<Division>> = vec![None; graph.values.len()];
    for node in &graph.nodes {
        let (Op::Attention(op) | Op::SharedAttention(crate::SharedAttention { attention: op })) =
            &node.op
        else {
            continue;
        };
        if let (Some([queries, keys]), &[q, k, v]) = (heads(op, place.n_ranks), &node.inputs[..]) {
            for (value, cut) in [
                (q, &queries),
                (node.output, &queries),
                (k, &keys),
                (v, &keys),
            ] {
                wanted[value.0].get_or_insert_with(|| cut.clone());
            }
        }
    }
    let with_units = graph.nodes.iter();
    let with_units = with_units.filter_map(|node| Some((node, Units::of(graph, node)?)));
    let with_units: Vec<(&Node, Units)> = with_units.collect();
    for (node, units) in &with_units {
        let mut inputs = node.inputs.iter().enumerate();
        let cut = inputs.find_map(|(i, input)| units.output_cut(i, wanted[input.0].as_ref()?));
        if let (None, Some(cut)) = (&wanted[node.output.0], cut) {
            wanted[node.output.0] = Some(cut);
        }
    }
    for (node, units) in with_units.iter().rev() {
        let Some(cut) = wanted[node.output.0].clone() else {
            continue;
        };
        for (i, input) in node.inputs.iter().enumerate() {
            if wanted[input.0].is_none() {
                wanted[input.0] = units.input_cut(i, &cut);
            }
        }
    }
    wanted
}
