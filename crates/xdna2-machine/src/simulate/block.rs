//! Buffers that hold blocks, local arrays and stages' contents.

use std::ops::Range;
use std::sync::Arc;

/// Buffers begin at a cache line, so that vector loads do not straddle two.
const ALIGN_BYTES: usize = 64;

/// Lent parts begin at multiples of this; allocators align large buffers at least so.
const LENT_ALIGN_BYTES: usize = 16;

/// Byte of memory that was never written: makes not-a-number of bf16 and of f32.
const POISON: u8 = 0xff;

/// Bytes, aligned for every element type.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteBlock {
    words: Vec<u64>,
    start: usize,
    len: usize,
}

impl ByteBlock {
    /// A buffer of `len` bytes with undefined content.
    pub(super) fn new(len: usize) -> ByteBlock {
        let words = vec![0_u64; (len + ALIGN_BYTES).div_ceil(8)];
        let misaligned = words.as_ptr() as usize % ALIGN_BYTES;
        ByteBlock {
            start: (ALIGN_BYTES - misaligned) % ALIGN_BYTES,
            words,
            len,
        }
    }

    /// A buffer with that content.
    pub(super) fn copy_of(bytes: &[u8]) -> ByteBlock {
        let mut block = ByteBlock::new(bytes.len());
        block.bytes_mut().copy_from_slice(bytes);
        block
    }

    /// A buffer of poison.
    pub(super) fn poisoned(len: usize) -> ByteBlock {
        let mut block = ByteBlock::new(len);
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

/// Content of a block: its own buffer, or a part of a slot that is not written while the launch runs. Such a part is
/// lent by DDR instead of copied.
#[derive(Clone, Debug)]
pub(super) enum BlockContent<'p> {
    Own(Arc<ByteBlock>),
    Lent(&'p [u8]),
}

impl<'p> BlockContent<'p> {
    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            BlockContent::Own(block) => block.bytes(),
            BlockContent::Lent(bytes) => bytes,
        }
    }

    /// A part of it without a copy, if it is lent and the part is aligned.
    pub(super) fn lent(&self, part: Range<usize>) -> Option<BlockContent<'p>> {
        match self {
            BlockContent::Own(_) => None,
            BlockContent::Lent(bytes) => lend(bytes, part).map(BlockContent::Lent),
        }
    }

    /// The buffer, for writing; a copy if others read it.
    pub(super) fn own_mut(&mut self) -> &mut ByteBlock {
        if let BlockContent::Lent(bytes) = self {
            *self = BlockContent::Own(Arc::new(ByteBlock::copy_of(bytes)));
        }
        match self {
            BlockContent::Own(block) => Arc::make_mut(block),
            BlockContent::Lent(_) => unreachable!("it was copied"),
        }
    }
}

/// A part of DDR that kernels can read in place: aligned for every element and vector load that
/// they know.
pub(super) fn lend(bytes: &[u8], part: Range<usize>) -> Option<&[u8]> {
    let part = bytes.get(part)?;
    (part.as_ptr() as usize)
        .is_multiple_of(LENT_ALIGN_BYTES)
        .then_some(part)
}

/// A block on its way, shared by the sinks of a broadcast.
#[derive(Clone, Debug)]
pub(super) struct Parcel<'p> {
    pub(super) block: BlockContent<'p>,
    /// Number of the grid point it belongs to.
    pub(super) point: u64,
}
