//! The host's own steps. Each reads values in bf16, computes in f32 and rounds its result once.

use super::NpuError;
use crate::execute::{Ops, Past, Planes, has_kernel};
use crate::image::{self, ImageRows};
use crate::load::LoadedModel;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{
    Embed, Graph, Linear, Node, Op, SequenceMemory, SequenceSpan, Tokens, ValueId,
};
use millrace_kernels::matmul::{Activations, Multiplication, matmul};
use millrace_kernels::{self as kernels, Cpu, RopeTable};
use millrace_plan::WeightLayout;
use std::ops::Range;

/// The host's copies of a graph's values, bf16 `[n_rows, width]` each. Memory of dropped values is
/// reused for later ones.
#[derive(Debug)]
pub(super) struct HostValues {
    widths: Vec<usize>,
    rows: Vec<Vec<bf16>>,
    spare: Vec<Vec<bf16>>,
}

impl HostValues {
    pub(super) fn new(graph: &Graph) -> HostValues {
        HostValues {
            widths: graph.values.iter().map(|value| value.width).collect(),
            rows: vec![Vec::new(); graph.values.len()],
            spare: Vec::new(),
        }
    }

    /// A value's elements; empty before it is written.
    pub(super) fn get(&self, value: ValueId) -> &[bf16] {
        self.rows.get(value.0).map_or(&[], Vec::as_slice)
    }

    pub(super) fn width(&self, value: ValueId) -> usize {
        self.widths.get(value.0).copied().unwrap_or(0)
    }

    /// Takes memory for a value, as `n_rows` rows of anything.
    pub(super) fn take(&mut self, value: ValueId, n_rows: usize) -> Vec<bf16> {
        let n_elems = n_rows * self.width(value);
        self.drop(value);
        let fitting = self.spare.iter().enumerate();
        let fitting = fitting.filter(|(_, spare)| spare.capacity() >= n_elems);
        let best = fitting.min_by_key(|(_, spare)| spare.capacity());
        let best = best.map(|(index, _)| index);
        let mut rows = match best {
            Some(index) => self.spare.swap_remove(index),
            // The smallest is dropped, so that there are never more than are in use at once.
            None => {
                let smallest = self.spare.iter().enumerate();
                let smallest = smallest.min_by_key(|(_, spare)| spare.capacity());
                if let Some(index) = smallest.map(|(index, _)| index) {
                    self.spare.swap_remove(index);
                }
                Vec::with_capacity(n_elems)
            }
        };
        rows.resize(n_elems, bf16::ZERO);
        rows
    }

    /// Takes a value's memory with its contents, if it has that many rows already; otherwise rows
    /// with arbitrary contents.
    pub(super) fn keep(&mut self, value: ValueId, n_rows: usize) -> Vec<bf16> {
        let n_elems = n_rows * self.width(value);
        match self.rows.get_mut(value.0) {
            Some(rows) if rows.len() == n_elems => std::mem::take(rows),
            _ => self.take(value, n_rows),
        }
    }

    /// Gives it back.
    pub(super) fn put(&mut self, value: ValueId, rows: Vec<bf16>) {
        if let Some(slot) = self.rows.get_mut(value.0) {
            *slot = rows;
        }
    }

    /// Forgets a value.
    pub(super) fn drop(&mut self, value: ValueId) {
        let rows = self.rows.get_mut(value.0).map(std::mem::take);
        self.spare.extend(rows.filter(|rows| rows.capacity() > 0));
    }

    fn write_f32(&mut self, value: ValueId, x: &[f32]) {
        let n_rows = x.len() / self.width(value).max(1);
        let mut rows = self.take(value, n_rows);
        rows.resize(x.len(), bf16::ZERO);
        rows.convert_from_f32_slice(x);
        self.put(value, rows);
    }

    /// Some rows of a node's input in f32, or all; an error where they were not computed.
    fn f32_rows(
        &self,
        node: &Node,
        input: usize,
        rows: Option<&Range<usize>>,
    ) -> Result<Vec<f32>, NpuError> {
        let value = node.inputs.get(input).copied();
        let value = value.ok_or_else(|| wrong(node, "it lacks an input"))?;
        let (all, width) = (self.get(value), self.width(value));
        if all.is_empty() {
            return Err(wrong(node, "an input has no content"));
        }
        let some = rows.map_or(Some(all), |rows| {
            all.get(rows.start * width..rows.end * width)
        });
        let some = some.ok_or_else(|| wrong(node, "the input has too few rows"))?;
        Ok(some.to_f32_vec())
    }
}

/// Tokens that are embedded together: their f32 rows stay in the caches.
const EMBED_ROWS: usize = 64;

fn wrong(node: &Node, problem: &str) -> NpuError {
    NpuError::plan(format!("host step `{}`", node.label), problem)
}

/// Inputs of host steps besides values.
pub(super) struct HostContext<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) model: &'a LoadedModel,
    /// Norm weights and biases as f32, by weight; empty for matrices.
    pub(super) vectors: &'a [Vec<f32>],
    /// One for each of the graph's ropes, half-split whatever its style.
    pub(super) ropes: &'a [RopeTable],
}

impl HostContext<'_> {
    /// Rows of the embedding table, and those of images.
    pub(super) fn embed(
        &self,
        node: &Node,
        (tokens, images): (&[u32], &[ImageRows]),
        values: &mut HostValues,
    ) -> Result<(), NpuError> {
        let Op::Embed(Embed { table, scale }) = node.op else {
            return Err(wrong(node, "no embedding"));
        };
        let table = self.ops().matrix(table)?;
        let mut out = values.take(node.output, tokens.len());
        if out.len() != tokens.len() * table.k() {
            return Err(wrong(node, "a table of another width"));
        }
        let mut block = vec![0.0; EMBED_ROWS.min(tokens.len()) * table.k()];
        let blocks = out.chunks_mut(block.len().max(1));
        for (tokens, out) in tokens.chunks(EMBED_ROWS).zip(blocks) {
            let block = &mut block[..out.len()];
            kernels::embed(self.cpu, &table, tokens, scale, block)?;
            out.convert_from_f32_slice(block);
        }
        let is_replaced = !images.is_empty() && image::is_replaced(self.ops().graph(), node);
        for placed in images.iter().filter(|_| is_replaced) {
            let (elements, place) = placed.elements();
            let out = out.get_mut(place).filter(|out| out.len() == elements.len());
            let out = out.ok_or_else(|| wrong(node, "an image beyond the pass"))?;
            out.convert_from_f32_slice(elements);
        }
        values.put(node.output, out);
        Ok(())
    }

    /// A projection by the checkpoint's own bytes.
    pub(super) fn linear(
        &self,
        node: &Node,
        half_split: Option<usize>,
        values: &mut HostValues,
    ) -> Result<(), NpuError> {
        let Op::Linear(Linear { weight, bias }) = node.op else {
            return Err(wrong(node, "no projection"));
        };
        let x = values.f32_rows(node, 0, None)?;
        let weight = self.ops().matrix(weight)?;
        let (n, m) = (weight.n(), x.len() / weight.k());
        let bias = bias.map(|bias| &self.vectors[bias.0][..]);
        let mut out = vec![0.0; m * n];
        let product = Multiplication {
            weight,
            bias,
            out: &mut out,
        };
        matmul(self.cpu, &x, m, &mut Activations::default(), &mut [product]);
        if half_split.is_some() {
            let order = WeightLayout::AsStored { half_split };
            let mut row = vec![0.0; n];
            for out in out.chunks_exact_mut(n) {
                row.copy_from_slice(out);
                let from = |i: usize| order.source_row(i).and_then(|i| row.get(i)).copied();
                out.iter_mut()
                    .enumerate()
                    .for_each(|(i, out)| *out = from(i).unwrap_or(0.0));
            }
        }
        values.write_f32(node.output, &out);
        Ok(())
    }

    /// Any op except those of vocabulary and cache: its kernel or its definition, over all rows or some. The first
    /// row of its inputs has position `first`. Definitions are computed for the rows before `n_real`; later rows are
    /// padding, and their results are zeros.
    pub(super) fn op(
        &self,
        node: &Node,
        (first, rows, n_real): (usize, Option<Range<usize>>, usize),
        tokens: &[u32],
        values: &mut HostValues,
    ) -> Result<(), NpuError> {
        let mut inputs = Vec::new();
        for index in 0..node.inputs.len() {
            inputs.push(values.f32_rows(node, index, rows.as_ref())?);
        }
        let n_rows = match inputs.first() {
            Some(x) => x.len() / values.width(node.inputs[0]).max(1),
            None => tokens.len(),
        };
        let first = first + rows.map_or(0, |rows| rows.start);
        let positions: Vec<u32> = (first..first + n_rows).map(|p| p as u32).collect();
        let out = if !has_kernel(&node.op) {
            let width = values.width(node.output);
            let mut out = vec![0.0; n_rows * width];
            let n_real = n_real.min(n_rows);
            let real = |(value, rows): (&ValueId, &'_ Vec<f32>)| {
                n_real * values.width(*value) <= rows.len()
            };
            if !node.inputs.iter().zip(&inputs).all(real) {
                return Err(wrong(node, "an input has too few rows"));
            }
            let inputs = node.inputs.iter().zip(&inputs);
            let inputs: Vec<&[f32]> = inputs
                .map(|(value, rows)| &rows[..n_real * values.width(*value)])
                .collect();
            let ids = tokens
                .get(..n_real)
                .ok_or_else(|| wrong(node, "more rows than tokens"))?;
            let tokens = Tokens {
                ids,
                positions: &positions[..n_real],
            };
            let real = &mut out[..n_real * width];
            self.ops().by_definition(node, tokens, &inputs, real);
            out
        } else if let Some(place) = node.op.in_place().first() {
            let mut out = inputs.remove(*place);
            let other = inputs.first().map_or(&[][..], Vec::as_slice);
            self.ops().by_kernel(&node.op, &positions, other, &mut out);
            out
        } else {
            let mut out = vec![0.0; n_rows * values.width(node.output)];
            let other = inputs.first().map_or(&[][..], Vec::as_slice);
            self.ops().by_kernel(&node.op, &positions, other, &mut out);
            out
        };
        values.write_f32(node.output, &out);
        Ok(())
    }

    /// An op that reads a sequence's memory, if no kernel computes its attention: by its definition, over the
    /// tokens without padding. Other rows are zero.
    pub(super) fn over_memory(
        &self,
        node: &Node,
        (first, tokens): (usize, &[u32]),
        past: Past<'_>,
        values: &mut HostValues,
    ) -> Result<(), NpuError> {
        let n_real = tokens.len();
        let mut inputs = Vec::new();
        let mut n_rows = n_real;
        // Keys and values of a cache that is shared are in it.
        let n_inputs = match node.op.memory() {
            SequenceMemory::SharedKv(_) => 1,
            _ => node.inputs.len(),
        };
        for (index, input) in node.inputs.iter().take(n_inputs).enumerate() {
            let rows = values.f32_rows(node, index, None)?;
            n_rows = rows.len() / values.width(*input).max(1);
            inputs.push(rows);
        }
        if n_rows < n_real {
            return Err(wrong(node, "an input has too few rows"));
        }
        let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let positions: Vec<u32> = (first..first + n_real).map(|p| p as u32).collect();
        let width = values.width(node.output);
        let mut out = vec![0.0; n_rows * width];
        let tokens = Tokens {
            ids: tokens,
            positions: &positions,
        };
        let span = SequenceSpan {
            rows: 0..n_real,
            first_pos: first,
        };
        let real = &mut out[..n_real * width];
        self.ops()
            .over_memory(node, (tokens, span), &inputs, past, real);
        values.write_f32(node.output, &out);
        Ok(())
    }

    fn ops(&self) -> Ops<'_> {
        Ops {
            cpu: self.cpu,
            model: self.model,
            vectors: self.vectors,
            ropes: self.ropes,
            planes: Planes::default(),
        }
    }
}
