//! Closed forms of single commands and of steady states, for tests and for reading. Cycles of 1 ns.

use crate::{Element, Machine, Profile};

/// A contraction: start, then multiply-accumulates at the attained rate, or operands at the fetch rate.
pub fn contraction_ns(
    machine: &Machine,
    profile: &Profile,
    n_macs: f64,
    element: Element,
    input_bytes: f64,
) -> f64 {
    let compute = n_macs / machine.macs_per_cycle(element) as f64;
    let fetch = input_bytes / (machine.chip_slices() * machine.main_fetch_bytes) as f64;
    let cycles =
        profile.contract_start_cycles + compute.max(fetch) / profile.contraction_efficiency;
    cycles * machine.cycle_ns()
}

/// A move between HBM and data memory by so many engines.
pub fn move_ns(machine: &Machine, profile: &Profile, bytes: f64, n_engines: f64) -> f64 {
    let hbm = machine.hbm_gb_per_s * profile.hbm_efficiency;
    let engines = profile.dma_engine_bytes * n_engines / machine.cycle_ns();
    profile.dma_start_cycles * machine.cycle_ns() + bytes / hbm.min(engines)
}

/// A decode step that is bound by memory alone: weights and cached keys and values, read once.
pub(crate) fn decode_ns(
    machine: &Machine,
    profile: &Profile,
    weight_bytes: f64,
    cache_bytes: f64,
) -> f64 {
    let hbm = machine.hbm_gb_per_s * profile.hbm_efficiency;
    (weight_bytes + cache_bytes) / hbm
}

/// A prompt whose weights are not read ahead: reading them, then multiplying.
pub fn prefill_ns(
    machine: &Machine,
    profile: &Profile,
    weight_bytes: f64,
    n_macs: f64,
    element: Element,
) -> f64 {
    let rate = machine.macs_per_cycle(element) as f64 * profile.contraction_efficiency;
    decode_ns(machine, profile, weight_bytes, 0.0) + n_macs / rate * machine.cycle_ns()
}
