//! Rewrites a graph into that of one rank, node by node.

use super::cut::{Division, Units, heads, wanted};
use super::{RankGraph, RankPlace, WeightPart};
use crate::{
    Attention, CombineExperts, ConcatHeads, ExpertLinear, Graph, HeadLinear, Linear, Node, Op,
    SharedAttention, SliceHeads, Value, ValueId, Weight, WeightId,
};
use std::ops::Range;

/// Where a value of the whole graph is in the rank's graph.
#[derive(Clone, Debug, Default)]
struct ValuePlaces {
    whole: Option<ValueId>,
    parts: Vec<(Division, ValueId)>,
}

pub(super) struct Rewrite<'g> {
    graph: &'g Graph,
    place: RankPlace,
    /// The cut that attention needs, by value of the whole graph.
    wanted: Vec<Option<Division>>,
    /// By value: whether something outside of the graph reads it.
    is_read_outside: Vec<bool>,
    /// By value: whether it holds the scores that choose experts, which are few.
    is_choice: Vec<bool>,
    found: Vec<ValuePlaces>,
    /// The rank's graph so far.
    own: Graph,
    /// By weight of the rank's graph.
    parts: Vec<Option<WeightPart>>,
}

impl<'g> Rewrite<'g> {
    pub(super) fn new(graph: &'g Graph, place: RankPlace) -> Self {
        let n_values = graph.values.len();
        let mut is_read_outside = vec![false; n_values];
        let outside = graph.hidden.iter().chain(&graph.head_input);
        for value in outside.chain(&graph.logits) {
            is_read_outside[value.0] = true;
        }
        let mut is_choice = vec![false; n_values];
        for node in &graph.nodes {
            if matches!(node.op, Op::Route(_)) {
                is_choice[node.inputs[0].0] = true;
            }
        }
        Rewrite {
            graph,
            place,
            wanted: wanted(graph, place),
            is_read_outside,
            is_choice,
            found: vec![ValuePlaces::default(); n_values],
            own: Graph {
                weights: graph.weights.clone(),
                ropes: graph.ropes.clone(),
                ..Graph::default()
            },
            parts: vec![None; graph.weights.len()],
        }
    }

    pub(super) fn run(mut self) -> RankGraph {
        for node in &self.graph.nodes {
            let shared = match &node.op {
                Op::Linear(op) => self.linear(node, *op),
                Op::ExpertLinear(op) => self.experts(node, *op),
                Op::CombineExperts(op) => self.combine(node, *op),
                Op::Attention(op) => self.attention(node, op, Op::Attention),
                Op::SharedAttention(SharedAttention { attention }) => {
                    self.attention(node, attention, |attention| {
                        Op::SharedAttention(SharedAttention { attention })
                    })
                }
                _ => self.by_units(node),
            };
            if shared.is_none() {
                self.by_all(node);
            }
            if self.is_read_outside[node.output.0] {
                self.whole(node, node.output);
            }
        }
        let whole = |value: &ValueId| self.found[value.0].whole;
        let hidden = self.graph.hidden.iter().filter_map(whole).collect();
        let head_input = self.graph.head_input.as_ref().and_then(whole);
        let logits = self.graph.logits.as_ref().and_then(whole);
        let graph = Graph {
            hidden,
            head_input,
            logits,
            ..self.own
        };
        RankGraph {
            graph,
            parts: self.parts,
        }
    }

    /// A node that every rank computes whole.
    fn by_all(&mut self, node: &Node) {
        let inputs = node.inputs.iter();
        let inputs = inputs.map(|input| self.whole(node, *input)).collect();
        let width = self.graph.width(node.output);
        let at = (node.layer, node.label);
        let value = self.push(at, node.op.clone(), inputs, width);
        self.found[node.output.0].whole = Some(value);
    }

    /// Computes some rows of the matrix: those that attention needs, otherwise an even share.
    fn linear(&mut self, node: &Node, op: Linear) -> Option<()> {
        if self.is_choice[node.output.0] {
            return None;
        }
        let weight = &self.graph.weights[op.weight.0];
        let block_rows = weight.dtype.block_rows();
        let fits = |cut: &&Division| cut.n_pieces == 1 && cut.is_of_units(block_rows);
        let cut = match self.wanted[node.output.0].as_ref().filter(fits) {
            Some(cut) => cut.clone(),
            None => Division::even(weight.n, self.place.n_ranks, block_rows)?,
        };
        let rows = self.own_part(&cut);
        let own = Linear {
            weight: self.rows_of(op.weight, rows.clone()),
            bias: op.bias.map(|bias| self.columns_of(bias, rows)),
        };
        let x = self.whole(node, node.inputs[0]);
        self.push_part(node, own.into(), vec![x], cut);
        Some(())
    }

    /// Computes some rows of every expert's matrix.
    fn experts(&mut self, node: &Node, op: ExpertLinear) -> Option<()> {
        let weight = &self.graph.weights[op.weight.0];
        if weight.dtype.block_rows() > 1 {
            return None;
        }
        let cut = Division::even(weight.n, self.place.n_ranks, 1)?.in_pieces(op.n_used);
        let rows = self.own_part(&cut);
        let own = ExpertLinear {
            weight: self.rows_of(op.weight, rows.clone()),
            bias: op.bias.map(|bias| self.columns_of(bias, rows)),
            ..op
        };
        let inputs = node.inputs.iter();
        let inputs = inputs.map(|input| self.whole(node, *input)).collect();
        self.push_part(node, own.into(), inputs, cut);
        Some(())
    }

    /// Sums this rank's elements of the experts' results.
    fn combine(&mut self, node: &Node, op: CombineExperts) -> Option<()> {
        let parts = self.found[node.inputs[0].0].parts.iter();
        let mut parts = parts.filter(|(cut, _)| cut.n_pieces == op.n_used);
        let (cut, x) = parts.next()?.clone();
        let choice = self.whole(node, node.inputs[1]);
        self.push_part(node, op.into(), vec![x, choice], cut.in_pieces(1));
        Some(())
    }

    /// Computes attention of some heads.
    fn attention(
        &mut self,
        node: &Node,
        op: &Attention,
        wrap: impl Fn(Attention) -> Op,
    ) -> Option<()> {
        let [queries, keys] = heads(op, self.place.n_ranks)?;
        let own = [&queries, &keys].map(|cut| cut.width(self.place.rank) / op.head_dim);
        let heads = self.own_part(&queries);
        let heads = heads.start / op.head_dim..heads.end / op.head_dim;
        let cuts = [&queries, &keys, &keys];
        let inputs = node.inputs.iter().zip(cuts);
        let inputs = inputs
            .map(|(input, cut)| self.part(node, *input, cut))
            .collect();
        let own = Attention {
            n_heads: own[0],
            n_kv_heads: own[1],
            sinks: op.sinks.map(|sinks| self.columns_of(sinks, heads)),
            ..op.clone()
        };
        self.push_part(node, wrap(own), inputs, queries);
        Some(())
    }

    /// Computes a node by units on this rank's units: where attention needs them, or where no input is whole already.
    fn by_units(&mut self, node: &Node) -> Option<()> {
        let units = Units::of(self.graph, node)?;
        let cut = match &self.wanted[node.output.0] {
            Some(cut) if units.take(cut) => cut.clone(),
            _ => self.common_cut(node, &units)?,
        };
        let heads = self.own_part(&cut);
        let heads = heads.start / units.output..heads.end / units.output;
        let n_heads = heads.len();
        let own = match &node.op {
            Op::SliceHeads(op) => Op::SliceHeads(SliceHeads {
                n_heads,
                ..op.clone()
            }),
            Op::ConcatHeads(op) => Op::ConcatHeads(ConcatHeads {
                n_heads,
                ..op.clone()
            }),
            Op::HeadLinear(op) => Op::HeadLinear(HeadLinear {
                weight: self.matrices_of(op.weight, heads),
                n_heads,
                ..*op
            }),
            op => op.clone(),
        };
        let inputs = node.inputs.iter().enumerate();
        let inputs = inputs.map(|(i, input)| match units.input_cut(i, &cut) {
            Some(cut) => self.part(node, *input, &cut),
            None => self.whole(node, *input),
        });
        let inputs = inputs.collect();
        self.push_part(node, own, inputs, cut);
        Some(())
    }

    /// The cut of the output that all inputs already have.
    fn common_cut(&self, node: &Node, units: &Units) -> Option<Division> {
        let mut common = None;
        for (i, input) in node.inputs.iter().enumerate() {
            if units.inputs[i].is_none() {
                continue;
            }
            let (cut, _) = self.found[input.0].parts.first()?;
            let cut = units.output_cut(i, cut).filter(|cut| units.take(cut))?;
            if common.get_or_insert_with(|| cut.clone()) != &cut {
                return None;
            }
        }
        common
    }

    /// A whole value of the graph, assembled first if necessary. `node` is the node that needs it.
    fn whole(&mut self, node: &Node, value: ValueId) -> ValueId {
        let found = &self.found[value.0];
        if let Some(whole) = found.whole {
            return whole;
        }
        let (cut, part) = found
            .parts
            .first()
            .expect("a checked graph writes values first");
        let (gather, part) = (cut.gather(self.place.rank), *part);
        let width = self.graph.width(value);
        let whole = self.push((node.layer, "gather"), gather.into(), vec![part], width);
        self.found[value.0].whole = Some(whole);
        whole
    }

    /// This rank's part of a value by that cut. `node` is the node that needs it.
    fn part(&mut self, node: &Node, value: ValueId, cut: &Division) -> ValueId {
        let parts = self.found[value.0].parts.iter();
        if let Some((_, part)) = parts.clone().find(|(other, _)| other == cut) {
            return *part;
        }
        let whole = self.whole(node, value);
        let width = cut.width(self.place.rank);
        let part = if width == self.graph.width(value) {
            whole
        } else {
            let op = SliceHeads {
                n_heads: cut.n_pieces,
                range: self.own_part(cut),
            };
            self.push((node.layer, "own_part"), op.into(), vec![whole], width)
        };
        self.found[value.0].parts.push((cut.clone(), part));
        part
    }

    fn own_part(&self, cut: &Division) -> Range<usize> {
        cut.parts[self.place.rank].clone()
    }

    fn push_part(&mut self, node: &Node, op: Op, inputs: Vec<ValueId>, cut: Division) {
        let at = (node.layer, node.label);
        let value = self.push(at, op, inputs, cut.width(self.place.rank));
        self.found[node.output.0].parts.push((cut, value));
    }

    fn push(
        &mut self,
        (layer, label): (Option<usize>, &'static str),
        op: Op,
        inputs: Vec<ValueId>,
        width: usize,
    ) -> ValueId {
        let output = ValueId(self.own.values.len());
        self.own.values.push(Value { width });
        self.own.nodes.push(Node {
            op,
            inputs,
            output,
            layer,
            label,
        });
        output
    }

    fn rows_of(&mut self, id: WeightId, rows: Range<usize>) -> WeightId {
        let whole = &self.graph.weights[id.0];
        let all = [0..whole.n_experts, rows, 0..whole.k];
        self.part_of(id, all)
    }

    fn columns_of(&mut self, id: WeightId, columns: Range<usize>) -> WeightId {
        let whole = &self.graph.weights[id.0];
        let all = [0..whole.n_experts, 0..whole.n, columns];
        self.part_of(id, all)
    }

    fn matrices_of(&mut self, id: WeightId, matrices: Range<usize>) -> WeightId {
        let whole = &self.graph.weights[id.0];
        let all = [matrices, 0..whole.n, 0..whole.k];
        self.part_of(id, all)
    }

    fn part_of(&mut self, id: WeightId, [matrices, rows, columns]: [Range<usize>; 3]) -> WeightId {
        let whole = &self.graph.weights[id.0];
        let own = Weight {
            n_experts: matrices.len(),
            n: rows.len(),
            k: columns.len(),
            ..whole.clone()
        };
        if own == *whole {
            return id;
        }
        let part = Some(WeightPart {
            of: id,
            matrix: matrices.start,
            row: rows.start,
            column: columns.start,
        });
        let is_same = |n: &usize| self.parts[*n] == part && self.own.weights[*n] == own;
        if let Some(same) = (0..self.parts.len()).find(is_same) {
            return WeightId(same);
        }
        self.own.weights.push(own);
        self.parts.push(part);
        WeightId(self.parts.len() - 1)
    }
}
