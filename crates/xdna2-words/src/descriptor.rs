//! Buffer descriptors.
//!
//! Lengths, steps and addresses count 32-bit words, the shim's base as well (its two lowest address
//! bits do not exist). Steps and the iteration's wrap are stored minus one, wraps as they are. The
//! last dimension has no wrap: it runs until `length`. Source: aie-rt `xaie2pgbl_params.h`.

use crate::field::{Layout, Record, WordField};
use crate::tile::TileKind;

/// A descriptor of a core's DMA.
pub static CORE: Layout = Layout {
    name: "core descriptor",
    n_words: 6,
    fields: &[
        (WordField::Base, &[(0, 27, 14)]),
        (WordField::Length, &[(0, 13, 0)]),
        (WordField::Compress, &[(1, 31, 31)]),
        (WordField::PacketEnable, &[(1, 30, 30)]),
        (WordField::OutOfOrderId, &[(1, 29, 24)]),
        (WordField::PacketId, &[(1, 23, 19)]),
        (WordField::PacketType, &[(1, 18, 16)]),
        (WordField::D1Step, &[(2, 25, 13)]),
        (WordField::D0Step, &[(2, 12, 0)]),
        (WordField::D1Wrap, &[(3, 28, 21)]),
        (WordField::D0Wrap, &[(3, 20, 13)]),
        (WordField::D2Step, &[(3, 12, 0)]),
        (WordField::IterationCurrent, &[(4, 24, 19)]),
        (WordField::IterationWrap, &[(4, 18, 13)]),
        (WordField::IterationStep, &[(4, 12, 0)]),
        (WordField::TlastSuppress, &[(5, 31, 31)]),
        (WordField::Next, &[(5, 30, 27)]),
        (WordField::UseNext, &[(5, 26, 26)]),
        (WordField::Valid, &[(5, 25, 25)]),
        (WordField::ReleaseValue, &[(5, 24, 18)]),
        (WordField::ReleaseId, &[(5, 16, 13)]),
        (WordField::AcquireEnable, &[(5, 12, 12)]),
        (WordField::AcquireValue, &[(5, 11, 5)]),
        (WordField::AcquireId, &[(5, 3, 0)]),
    ],
};

/// A descriptor of a memory tile's DMA.
pub static MEMORY: Layout = Layout {
    name: "memory descriptor",
    n_words: 8,
    fields: &[
        (WordField::PacketEnable, &[(0, 31, 31)]),
        (WordField::PacketType, &[(0, 30, 28)]),
        (WordField::PacketId, &[(0, 27, 23)]),
        (WordField::OutOfOrderId, &[(0, 22, 17)]),
        (WordField::Length, &[(0, 16, 0)]),
        (WordField::D0PadBefore, &[(1, 31, 26)]),
        (WordField::Next, &[(1, 25, 20)]),
        (WordField::UseNext, &[(1, 19, 19)]),
        (WordField::Base, &[(1, 18, 0)]),
        (WordField::TlastSuppress, &[(2, 31, 31)]),
        (WordField::D0Wrap, &[(2, 26, 17)]),
        (WordField::D0Step, &[(2, 16, 0)]),
        (WordField::D1PadBefore, &[(3, 31, 27)]),
        (WordField::D1Wrap, &[(3, 26, 17)]),
        (WordField::D1Step, &[(3, 16, 0)]),
        (WordField::Compress, &[(4, 31, 31)]),
        (WordField::D2PadBefore, &[(4, 30, 27)]),
        (WordField::D2Wrap, &[(4, 26, 17)]),
        (WordField::D2Step, &[(4, 16, 0)]),
        (WordField::D2PadAfter, &[(5, 31, 28)]),
        (WordField::D1PadAfter, &[(5, 27, 23)]),
        (WordField::D0PadAfter, &[(5, 22, 17)]),
        (WordField::D3Step, &[(5, 16, 0)]),
        (WordField::IterationCurrent, &[(6, 28, 23)]),
        (WordField::IterationWrap, &[(6, 22, 17)]),
        (WordField::IterationStep, &[(6, 16, 0)]),
        (WordField::Valid, &[(7, 31, 31)]),
        (WordField::ReleaseValue, &[(7, 30, 24)]),
        (WordField::ReleaseId, &[(7, 23, 16)]),
        (WordField::AcquireEnable, &[(7, 15, 15)]),
        (WordField::AcquireValue, &[(7, 14, 8)]),
        (WordField::AcquireId, &[(7, 7, 0)]),
    ],
};

/// A descriptor of a shim's DMA.
pub static SHIM: Layout = Layout {
    name: "shim descriptor",
    n_words: 8,
    fields: &[
        (WordField::Length, &[(0, 31, 0)]),
        (WordField::Base, &[(1, 31, 2), (2, 15, 0)]),
        (WordField::PacketEnable, &[(2, 30, 30)]),
        (WordField::OutOfOrderId, &[(2, 29, 24)]),
        (WordField::PacketId, &[(2, 23, 19)]),
        (WordField::PacketType, &[(2, 18, 16)]),
        (WordField::Secure, &[(3, 30, 30)]),
        (WordField::D0Wrap, &[(3, 29, 20)]),
        (WordField::D0Step, &[(3, 19, 0)]),
        (WordField::Burst, &[(4, 31, 30)]),
        (WordField::D1Wrap, &[(4, 29, 20)]),
        (WordField::D1Step, &[(4, 19, 0)]),
        (WordField::Smid, &[(5, 31, 28)]),
        (WordField::AxCache, &[(5, 27, 24)]),
        (WordField::AxQos, &[(5, 23, 20)]),
        (WordField::D2Step, &[(5, 19, 0)]),
        (WordField::IterationCurrent, &[(6, 31, 26)]),
        (WordField::IterationWrap, &[(6, 25, 20)]),
        (WordField::IterationStep, &[(6, 19, 0)]),
        (WordField::TlastSuppress, &[(7, 31, 31)]),
        (WordField::Next, &[(7, 30, 27)]),
        (WordField::UseNext, &[(7, 26, 26)]),
        (WordField::Valid, &[(7, 25, 25)]),
        (WordField::ReleaseValue, &[(7, 24, 18)]),
        (WordField::ReleaseId, &[(7, 16, 13)]),
        (WordField::AcquireEnable, &[(7, 12, 12)]),
        (WordField::AcquireValue, &[(7, 11, 5)]),
        (WordField::AcquireId, &[(7, 3, 0)]),
    ],
};

/// The layout of a tile's descriptors.
pub fn layout(kind: TileKind) -> &'static Layout {
    match kind {
        TileKind::Shim => &SHIM,
        TileKind::Memory => &MEMORY,
        TileKind::Core => &CORE,
    }
}

/// A word to a step field: stored minus one.
pub const fn stored_step(step: u64) -> u64 {
    step.wrapping_sub(1)
}

/// Dimensions of a descriptor: (wrap, step), the innermost first. A wrap of 0 runs until the length
/// is spent; the last dimension's is always 0.
pub fn dimensions(descriptor: &Record) -> Vec<(u64, u64)> {
    let steps: &[(Option<WordField>, WordField)] = match descriptor.layout().most(WordField::D3Step)
    {
        Some(_) => &[
            (Some(WordField::D0Wrap), WordField::D0Step),
            (Some(WordField::D1Wrap), WordField::D1Step),
            (Some(WordField::D2Wrap), WordField::D2Step),
            (None, WordField::D3Step),
        ],
        None => &[
            (Some(WordField::D0Wrap), WordField::D0Step),
            (Some(WordField::D1Wrap), WordField::D1Step),
            (None, WordField::D2Step),
        ],
    };
    let dimension = |&(wrap, step): &(Option<WordField>, WordField)| {
        (
            wrap.map_or(0, |wrap| descriptor.get(wrap)),
            descriptor.get(step) + 1,
        )
    };
    steps.iter().map(dimension).collect()
}
