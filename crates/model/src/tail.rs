//! Notices files that end in zeros: a download that reserved the space and did not finish.
//!
//! Only the end of each file is read, and in a sound file only its last page. Zeros are legal in
//! many places. These are biases, norms that add one, rows of a padded vocabulary, and output
//! projections of blocks that were added as the identity. Zeros up to the end of the file are
//! refused if they begin within a row, or take up a matrix that no one trains to zero.

use std::collections::HashMap;

use millrace_format::{Checkpoint, Tensor};

use crate::Error;
use millrace_graph::{Graph, OpRole, WeightUse};

/// Zeros at the end of a row that chance does not explain.
const MIN_ROW_BYTES: usize = 32;

/// The use of a matrix, which decides whether zeros in it are legal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It adds to the residual stream: zeros make the block the identity.
    Residual,
    /// A row a token: rows of padding may be zero.
    Vocabulary,
    /// Zeros would stop the model from computing anything.
    Other,
}

/// Refuses a checkpoint one of whose files ends in zeros where weights of the graph should be.
///
/// # Errors
/// [`Error::ZeroTail`].
pub(crate) fn check(checkpoint: &Checkpoint, graph: &Graph) -> Result<(), Error> {
    let uses = uses(graph);
    let mut by_file: Vec<Vec<Tensor<'_>>> = checkpoint.files().iter().map(|_| Vec::new()).collect();
    // Tensors that are decoded from a packing have no bytes of their own in a file.
    let in_files = checkpoint.tensors().iter().map(|info| &info.name);
    let in_files = in_files.filter(|name| !checkpoint.is_packed(name));
    for tensor in in_files.filter_map(|name| checkpoint.tensor(name)) {
        if !tensor.bytes.is_empty() {
            by_file[tensor.info.file].push(tensor);
        }
    }
    for (file, tensors) in checkpoint.files().iter().zip(&mut by_file) {
        tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.info.offset));
        let Some(tensor) = damaged(tensors, &uses) else {
            continue;
        };
        return Err(Error::ZeroTail {
            file: file.display().to_string(),
            tensor: tensor.info.name.clone(),
            offset: tensor.info.offset + nonzero_bytes(tensor.bytes) as u64,
        });
    }
    Ok(())
}

fn uses(graph: &Graph) -> HashMap<&str, Use> {
    let mut uses = HashMap::new();
    for node in &graph.nodes {
        let is_plain = node.op.product().is_some_and(|op| op.plain().is_some());
        let this = match (node.op.role(), node.label) {
            (OpRole::TokenEmbedding, _) => Use::Vocabulary,
            (OpRole::Product, "lm_head") if is_plain => Use::Vocabulary,
            (OpRole::Product, "attn_output" | "ffn_down") if is_plain => Use::Residual,
            (OpRole::Product, _) if is_plain => Use::Other,
            _ => continue,
        };
        // Its table or matrix comes first, vectors beside it follow.
        let Some(WeightUse { id: weight, .. }) = node.op.weights().first().copied() else {
            continue;
        };
        uses.insert(graph.weights[weight.0].name.as_str(), this);
    }
    uses
}

/// The first tensor, in file order, that the zeros at the file's end damaged. `tensors` has the last
/// one first.
fn damaged<'a>(tensors: &'a [Tensor<'a>], uses: &HashMap<&str, Use>) -> Option<&'a Tensor<'a>> {
    let mut found = None;
    for tensor in tensors {
        let this = uses.get(tensor.info.name.as_str());
        let n_nonzero = nonzero_bytes(tensor.bytes);
        if n_nonzero == 0 {
            if matches!(this, Some(Use::Other | Use::Vocabulary)) {
                found = Some(tensor);
            }
            continue;
        }
        let begins_here = this.is_some_and(|this| is_cut(tensor, n_nonzero, *this));
        return if begins_here { Some(tensor) } else { found };
    }
    found
}

/// Whether the zeros after a matrix's first `n_nonzero` bytes are a cut, not padding.
fn is_cut(tensor: &Tensor<'_>, n_nonzero: usize, this: Use) -> bool {
    let row_bytes = (tensor.bytes.len() / tensor.n().max(1)).max(1);
    let n_zero = tensor.bytes.len() - n_nonzero;
    let in_row = n_nonzero.next_multiple_of(row_bytes) - n_nonzero;
    let within_a_row = in_row >= MIN_ROW_BYTES.min(row_bytes / 2) && n_zero >= in_row + row_bytes;
    let most = this != Use::Vocabulary && n_zero > tensor.bytes.len() / 2;
    within_a_row || most
}

/// Bytes up to the last one that is not zero.
fn nonzero_bytes(bytes: &[u8]) -> usize {
    const CHUNK_BYTES: usize = 4096;
    let mut end = bytes.len();
    while end > 0 {
        let start = end.saturating_sub(CHUNK_BYTES);
        if let Some(last) = bytes[start..end].iter().rposition(|byte| *byte != 0) {
            return start + last + 1;
        }
        end = start;
    }
    0
}

#[cfg(test)]
mod tests;
