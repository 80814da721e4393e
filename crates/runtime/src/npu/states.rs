//! A pass of one token and the states that a device replaces. It has the token's rows for their ops, the state before it, and
//! the state after it. The host's pages keep them, as for ops that the host computes: a fork, a cut and a page's end see no
//! difference.

use super::NpuError;
use super::pass::Pass;
use bytemuck::{cast_slice, cast_slice_mut};
use half::slice::HalfFloatSliceExt;
use millrace_graph::Node;

impl Pass<'_> {
    /// The rows of a gated delta net's heads, for the call that follows.
    pub(super) fn make_delta_rows(&mut self, number: usize, node: &Node) -> Result<(), NpuError> {
        let wrong = |problem| NpuError::plan(format!("host step `{}`", node.label), problem);
        let net = node.op.delta_net();
        let net = net.ok_or_else(|| wrong("no gated delta net"))?;
        if self.tokens.len() != 1 {
            return Err(wrong("a pass of more tokens than one"));
        }
        let mut inputs: [Vec<f32>; 3] = Default::default();
        for (input, value) in inputs.iter_mut().zip(&node.inputs) {
            *input = self.values.get(*value).to_f32_vec();
        }
        let vectors = [net.rate, net.dt].map(|id| self.npu.vectors.get(id.0));
        let vectors = vectors.map(|vector| vector.map_or(&[][..], Vec::as_slice));
        let rows = net.token_rows(inputs.each_ref().map(Vec::as_slice), vectors);
        let rows = rows.ok_or_else(|| wrong("operands of other lengths"))?;
        self.delta_rows = Some((number, rows));
        Ok(())
    }

    /// Those rows as the slot's bytes.
    pub(super) fn delta_row_bytes(&self, node: usize, bytes: &mut [u8]) -> Result<(), String> {
        let rows = self.delta_rows.as_ref().filter(|(of, _)| *of == node);
        let (_, rows) = rows.ok_or("no step of the host made rows for its node")?;
        copy(rows, bytes)
    }

    /// The sequence's state before the pass's token.
    pub(super) fn state_before(&self, index: usize, bytes: &mut [u8]) -> Result<(), String> {
        match self.cache.state_before(self.seq, index, self.first)? {
            Some(state) => copy(state, bytes),
            // A sequence begins with zeros.
            None => {
                bytes.fill(0);
                Ok(())
            }
        }
    }

    /// Keeps the state after the token.
    pub(super) fn keep_state(&mut self, index: usize, bytes: &[u8]) -> Result<(), String> {
        let state = self.cache.state_behind_mut(self.seq, index, self.first)?;
        let to: &mut [u8] = cast_slice_mut(state);
        if bytes.len() != to.len() {
            let (expected, found) = (to.len(), bytes.len());
            return Err(format!("a state of {expected} bytes in a slot of {found}"));
        }
        to.copy_from_slice(bytes);
        Ok(())
    }
}

fn copy(numbers: &[f32], bytes: &mut [u8]) -> Result<(), String> {
    let from: &[u8] = cast_slice(numbers);
    if from.len() != bytes.len() {
        let expected = from.len();
        return Err(format!("{expected} bytes in a slot of {}", bytes.len()));
    }
    bytes.copy_from_slice(from);
    Ok(())
}
