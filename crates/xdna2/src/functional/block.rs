//! Buffers that hold blocks, local arrays and stages' contents.

use std::sync::Arc;

/// Buffers begin at a cache line, so that vector loads do not straddle two.
const ALIGN_BYTES: usize = 64;

/// Byte of memory that nobody has written: makes not-a-number of bf16 and of f32.
const POISON: u8 = 0xff;

/// Bytes, aligned for every element type.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    words: Vec<u64>,
    start: usize,
    len: usize,
}

impl Block {
    /// A buffer of `len` bytes with undefined content.
    pub(super) fn new(len: usize) -> Block {
        let words = vec![0_u64; (len + ALIGN_BYTES).div_ceil(8)];
        let misaligned = words.as_ptr() as usize % ALIGN_BYTES;
        Block {
            start: (ALIGN_BYTES - misaligned) % ALIGN_BYTES,
            words,
            len,
        }
    }

    /// A buffer of poison.
    pub(super) fn poisoned(len: usize) -> Block {
        let mut block = Block::new(len);
        block.poison();
        block
    }

    /// Makes the content unusable.
    pub(super) fn poison(&mut self) {
        self.bytes_mut().fill(POISON);
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let all: &[u8] = bytemuck::cast_slice(&self.words);
        &all[self.start..self.start + self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        &mut all[self.start..self.start + self.len]
    }
}

/// A block on its way, shared by the sinks of a broadcast.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) block: Arc<Block>,
    /// Number of the grid point it belongs to.
    pub(super) point: u64,
}
