//! The host's part: steps between calls, and moving values across.

use crate::lower::{Call, Features, HostStep, Phase};
use millrace_plan::predict::{CallNs, Crossing, HostWork};
use millrace_xdna2_machine::Profile;

/// Whose host works between the calls; the rates are in the [module's table](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// The published stack's, as the profile's constants were measured: Python.
    Published,
    /// This repository's: bytes over a rate, unmeasured.
    Own,
}

impl HostKind {
    /// The published one for the published stack, with the head it has and with the one it had.
    pub fn of(features: Features) -> HostKind {
        match Features::PUBLISHED.include(features) {
            true => HostKind::Published,
            false => HostKind::Own,
        }
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            HostKind::Published => "published",
            HostKind::Own => "own",
        }
    }
}

/// A host whose rates a profile states.
pub(super) struct Host<'a> {
    pub(super) kind: HostKind,
    pub(super) profile: &'a Profile,
}

impl Host<'_> {
    /// Time of a step.
    pub(super) fn step_ns(&self, work: &HostWork<'_>, step: HostStep) -> f64 {
        let host = &self.profile.host;
        let own_ns = self.copy_ns(work.bytes(step));
        match (self.kind, work.phase(), step) {
            (HostKind::Own, _, _) => own_ns,
            (_, Phase::Prefill, HostStep::Embed { .. }) => host.prompt_ns,
            (_, Phase::Prefill, HostStep::AppendKv { .. }) => {
                host.prompt_layer_ns(work.plan.n_tokens, work.d_ff())
            }
            (_, Phase::Decode, HostStep::Attention { .. }) => host.token_layer_ns,
            (_, Phase::Prefill, HostStep::FinalNorm { .. }) => 0.0,
            (
                _,
                Phase::Decode,
                HostStep::Embed { .. } | HostStep::AppendKv { .. } | HostStep::FinalNorm { .. },
            ) => 0.0,
            _ => own_ns,
        }
    }

    /// The host's part of a call whose slots cross so.
    pub(super) fn call(&self, work: &HostWork<'_>, call: &Call, crossing: Crossing) -> CallNs {
        let host = &self.profile.host;
        // Attention's output, which the published runtime fills with zeros before every call (20 MB a
        // call at 2,048 tokens in mlir-air's `PROFILE.html`): its slot is in no index set there.
        let zeroed_bytes = match self.kind {
            HostKind::Published => work.attention_bytes(call),
            HostKind::Own => 0,
        };
        let write_ns = self.copy_ns(crossing.written_bytes + zeroed_bytes);
        let copy_ns = self.copy_ns(crossing.read_bytes);
        // A token's few KB cost no more than the call; a prompt's head returns few, but is counted as
        // the other calls of a prompt in the profile's rows.
        let invalidate_ns = match (work.phase(), crossing.read_bytes) {
            (Phase::Decode, _) | (_, 0) => 0.0,
            _ => host.read_ns,
        };
        let (write_ns, read_ns) = match (self.kind, work.phase()) {
            (HostKind::Published, Phase::Decode) => (0.0, 0.0),
            (HostKind::Published, Phase::Prefill) => (write_ns, invalidate_ns),
            (HostKind::Own, _) => (write_ns, invalidate_ns + copy_ns),
        };
        CallNs {
            call_ns: host.call_ns,
            write_ns,
            read_ns,
        }
    }

    /// Time of a copy at the profile's rate; zero if the profile has none.
    fn copy_ns(&self, bytes: u64) -> f64 {
        let rate = self.profile.host.write_gb_per_s;
        if rate > 0.0 { bytes as f64 / rate } else { 0.0 }
    }
}
