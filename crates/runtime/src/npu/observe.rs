//! A look at a pass while it runs.

use super::cached::SequencePages;
use super::experts::ExpertDispatch;
use super::host::HostValues;
use half::bf16;
use millrace_graph::ValueId;
use millrace_kernels::KvSide;
use millrace_npu::ProgramCache;
use millrace_plan::{Binding, Call, HostMove, Plan, Scales, SlotUse};

/// Callback after every dispatch of a session, including each dispatch of experts.
pub type Observer = Box<dyn FnMut(&Observation<'_>) + Send>;

/// A pass right after a dispatch, before the next step: every slot of the call, `intermediate` ones
/// too, is as the program left it, and [`ProgramCache::peek`] shows it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Observation<'a> {
    /// The plan that runs.
    pub plan: &'a Plan,
    /// The call that ended, one of the plan's.
    pub call: &'a Call,
    /// Key of its buffer set.
    pub key: &'a str,
    /// Where that set is.
    pub cache: &'a ProgramCache,
    /// The scales that the host keeps for the contents of the call's slots, one for each slot.
    pub scales: &'a [Scales],
    /// Position of the pass's first token.
    pub first: usize,
    /// Number of tokens without padding.
    pub n_real: usize,
    /// The pass's tokens, followed by padding.
    pub tokens: &'a [u32],
    /// For a call of experts, the dispatch: the host's rows of its result are in place, those of later experts not yet.
    pub expert: Option<ExpertDispatch<'a>>,
    pub(super) uses: &'a [SlotUse],
    pub(super) values: &'a HostValues,
    pub(super) cached: SequencePages<'a>,
}

impl Observation<'_> {
    /// The value that the host wrote into a slot before the dispatch; none if it wrote no whole value.
    pub fn written(&self, slot: usize) -> Option<&[bf16]> {
        match (self.uses.get(slot)?.host, self.call.bindings.get(slot)?) {
            (HostMove::Write, Binding::Value(value)) if self.expert.is_none() => {
                Some(self.values.get(*value))
            }
            _ => None,
        }
    }

    /// The host's rows `[n_rows, width]` of a value; empty if the host has none.
    pub fn value(&self, value: ValueId) -> &[bf16] {
        self.values.get(value)
    }

    /// The sequence's state of that index after the pass, as the host keeps it; `None` if there is no such state.
    pub fn state(&self, index: usize) -> Option<&[f32]> {
        let last = (self.first + self.n_real).checked_sub(1)?;
        self.cached.state(index, last)
    }

    /// A key or value of a head in the sequence's pages, into `row` of `head_dim` elements; `None` where the sequence has
    /// no such position.
    pub fn cached_row(
        &self,
        layer: usize,
        side: KvSide,
        (kv_head, position): (usize, usize),
        row: &mut [f32],
    ) -> Option<()> {
        self.cached.read(layer, side, (kv_head, position), row)
    }
}
