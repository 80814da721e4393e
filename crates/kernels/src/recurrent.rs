//! Ops whose value after a token follows from the value after the previous token: convolutions over tokens, gated
//! delta nets, selective scans.
//!
//! A token is computed from the state before it in one order of sums, whether it comes alone or amid a prompt. Bits do
//! not depend on how a prompt is cut. Threads share out heads or channels, never tokens.

mod channels;
mod conv;
mod delta;
mod heads;
mod kimi;
mod leaves;
mod rule;
mod rwkv;
mod ssm;
#[cfg(test)]
mod tests;

pub use channels::{ChannelScanInput, ChannelScanShape, channel_scan};
pub use conv::{ConvInput, causal_conv};
pub use delta::{DeltaInput, DeltaShape, delta_net};
#[cfg(target_arch = "x86_64")]
pub(crate) use leaves::{ChannelToken, ConvTaps, FadeToken, RuleToken};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use leaves::{
    RecurrentKernels, conv_body, exp_body, fade_body, silu_body, softplus_body, unit_body,
};
#[cfg(target_arch = "aarch64")]
pub(crate) use leaves::{absorb_body, correct_body, revise_body};

pub use kimi::{KimiDeltaInput, kimi_delta};
pub use rule::RuleShape;
pub use rwkv::{Rwkv7Input, rwkv7};
pub use ssm::{SsmInput, SsmShape, ssm_scan};

use crate::pool::DisjointMut;
use std::ops::Range;

/// Elements stored together: columns of a head's matrix, channels of a convolution.
pub const LANES: usize = 16;

/// Most tokens that a convolution reads.
pub const MAX_TAPS: usize = 8;

/// Most elements of a key head.
pub const MAX_KEY_DIM: usize = 256;

/// The slots of states: each holds the states of a sequence after the tokens of a page.
#[derive(Debug)]
pub struct StateSlots<'a> {
    /// All slots.
    pub data: &'a mut [f32],
    /// Elements of a slot.
    pub slot_elems: usize,
    /// The state within a slot.
    pub range: Range<usize>,
    /// Tokens of a page.
    pub page_tokens: usize,
}

/// Neighbouring tokens of a sequence, and the slots of its pages.
#[derive(Clone, Debug)]
pub struct StateRun<'a> {
    /// Their rows.
    pub rows: Range<usize>,
    /// Position of the first.
    pub first_pos: usize,
    /// Slots by page. A run that begins a page, but the first one, has the page before.
    pub slots: &'a [u32],
    /// The page of `slots[0]`: position / page_tokens.
    pub first_page: usize,
}

/// Tokens of a run within one page.
struct PageTokens {
    rows: Range<usize>,
    /// Where the slot's part of the state begins.
    slot: usize,
    before: Before,
}

/// The state before the tokens.
enum Before {
    /// The state in the slot itself.
    Same,
    /// The state in the slot of the previous page, which begins there.
    Slot(usize),
    /// Zeros: a sequence begins.
    Zeros,
}

impl StateRun<'_> {
    /// The run page by page.
    fn pages(
        &self,
        (page_tokens, slot_elems, first): (usize, usize, usize),
    ) -> impl Iterator<Item = PageTokens> {
        let mut row = self.rows.start;
        let slot =
            move |page: usize| self.slots[page - self.first_page] as usize * slot_elems + first;
        std::iter::from_fn(move || {
            let left = self.rows.end - row;
            let position = self.first_pos + row - self.rows.start;
            let page = position / page_tokens;
            let n = left.min((page + 1) * page_tokens - position);
            let tokens = PageTokens {
                rows: row..row + n,
                slot: if n > 0 { slot(page) } else { 0 },
                before: match position {
                    0 => Before::Zeros,
                    _ if n > 0 && position.is_multiple_of(page_tokens) => {
                        Before::Slot(slot(page - 1))
                    }
                    _ => Before::Same,
                },
            };
            row += n;
            (n > 0).then_some(tokens)
        })
    }
}

/// The slots while threads write parts of them.
struct SharedSlots<'a> {
    data: DisjointMut<'a, f32>,
    slot_elems: usize,
    range: Range<usize>,
    page_tokens: usize,
}

impl<'a> SharedSlots<'a> {
    fn new(slots: StateSlots<'a>, n_elems: usize) -> SharedSlots<'a> {
        let StateSlots {
            data,
            slot_elems,
            range,
            page_tokens,
        } = slots;
        assert_eq!(range.len(), n_elems, "the state's place has its size");
        assert!(range.end <= slot_elems && page_tokens > 0);
        SharedSlots {
            data: DisjointMut::new(data),
            slot_elems,
            range,
            page_tokens,
        }
    }

    /// A run page by page, for the part of the state that begins at element `first`.
    fn pages<'r>(
        &self,
        run: &'r StateRun<'_>,
        first: usize,
    ) -> impl Iterator<Item = PageTokens> + 'r {
        run.pages((self.page_tokens, self.slot_elems, self.range.start + first))
    }
}
