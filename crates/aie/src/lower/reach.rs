//! How far descriptors reach that a sequence writes word by word.

use millrace_xdna2_words::field::{Record, WordField};
use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::txn::TxnOperation;
use millrace_xdna2_words::{Tile, TileKind, descriptor};
use std::collections::BTreeMap;

/// Shims' descriptors as they were written last, by their addresses.
#[derive(Default)]
pub(super) struct WrittenDescriptors(BTreeMap<u64, Record>);

impl WrittenDescriptors {
    /// Records a descriptor. For a patch it returns the argument, and the byte after the last contiguous one that its
    /// descriptor moves.
    pub(super) fn reach(&mut self, operation: &TxnOperation) -> Option<(usize, u64)> {
        match operation {
            TxnOperation::BlockWrite { address, data } => {
                let (tile, offset) = Tile::of_address(*address)?;
                let found = register::find(tile.kind(), offset)?;
                let is_whole = found.block.kind == BlockKind::Descriptor
                    && tile.kind() == TileKind::Shim
                    && found.word == 0;
                if is_whole {
                    let record = Record::read(descriptor::layout(tile.kind()), data).ok()?;
                    self.0.insert(u64::from(*address), record);
                }
                None
            }
            TxnOperation::Patch {
                register,
                argument,
                plus_bytes,
            } => {
                let record = self.0.get(&register.checked_sub(4)?)?;
                let words = record.get(WordField::Length);
                let end = plus_bytes.saturating_add(words.saturating_mul(4));
                Some((*argument as usize, end))
            }
            _ => None,
        }
    }
}
