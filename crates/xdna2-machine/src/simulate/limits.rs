//! Resources that a launch needs, computed before it runs.

use super::context::{elements, n_points};
use super::ends::max_in_flight;
use crate::program::{Flat, Port};

/// Bytes of L1, L2 and of blocks under way that a launch can need at once.
pub(super) fn memory_bytes(flat: &Flat<'_>) -> u128 {
    let bytes = |shape: &[u32], element_bytes: u64, copies: u128| {
        let n = elements(shape).unwrap_or(u64::MAX);
        u128::from(n)
            .saturating_mul(u128::from(element_bytes))
            .saturating_mul(copies)
    };
    let mut total = 0_u128;
    for core in &flat.cores {
        for local in &core.decl.locals {
            total = total.saturating_add(bytes(&local.shape, local.element.size_bytes(), 1));
        }
    }
    for stage in &flat.stages {
        // One more that is being filled while the last is still read elsewhere.
        let copies = u128::from(stage.decl.copies) + 1;
        let element_bytes = stage.decl.element.size_bytes();
        total = total.saturating_add(bytes(&stage.decl.block, element_bytes, copies));
    }
    for channel in &flat.channels {
        let decl = channel.decl;
        let n = elements(&decl.block).unwrap_or(u64::MAX);
        let in_flight = max_in_flight(n.saturating_mul(decl.element.size_bytes()));
        let at = |port: &Port| match port {
            Port::Core { .. } => u128::from(decl.depth),
            _ => in_flight as u128,
        };
        // Broadcast sinks share blocks, unless a core changes its own.
        let copies = at(&channel.from) + channel.to.iter().map(at).sum::<u128>();
        total = total.saturating_add(bytes(&decl.block, decl.element.size_bytes(), copies));
    }
    total
}

/// Whether a launch has no grid point at all.
pub(super) fn is_empty(flat: &Flat<'_>) -> bool {
    n_points(flat.launch) == 0
}
