//! Operations of a pass, how fast they are done, and what share of the array's peak that is.
//!
//! Counted is what the programs compute, padding of a prompt and of the vocabulary included: a
//! multiplication and an addition are two; of attention under a causal mask half of the square. The
//! peak is that of the matrix units in bf16, `2 · cores · macs.bf16 · clock` of the machine's facts.

use super::device::ProgramCost;
use crate::{Machine, mapping};
use serde::Serialize;

/// Operations and their rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Floating-point operations.
    pub flops: u64,
    /// In a second.
    pub flops_per_s: f64,
    /// Of the array's peak.
    pub peak_share: f64,
}

impl Rate {
    pub(super) fn new(flops: u64, ns: f64, machine: &Machine) -> Rate {
        let flops_per_s = if ns > 0.0 {
            flops as f64 * 1e9 / ns
        } else {
            0.0
        };
        Rate {
            flops,
            flops_per_s,
            peak_share: flops_per_s / machine.bf16_flops_per_s().max(1.0),
        }
    }
}

/// Operations of a launch.
pub(super) fn flops(mapping: &str, shape: &mapping::Shape) -> u64 {
    mapping::find(mapping).map_or(0, |m| m.work(shape).flops)
}

/// A part of the model, in the whole pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartCost {
    /// Its name, in words.
    pub name: &'static str,
    /// Its launches, loading their cores included.
    pub ns: f64,
    /// Of the pass's NPU runs.
    pub run_share: f64,
    /// Its operations over that time.
    #[serde(flatten)]
    pub rate: Rate,
}

/// The parts, in the order in which a model has them.
const PARTS: [&str; 5] = [
    "projections of attention",
    "attention",
    "feed-forward products",
    "norms, rotation, activation, sums",
    "head",
];

fn part(name: &str, mapping: &str) -> usize {
    let is_product = mapping.starts_with("gemm") || mapping.starts_with("gemv");
    match (is_product, name) {
        _ if mapping.contains("attention") => 1,
        (true, name) if name.starts_with("lm_head") => 4,
        (true, name) if name.starts_with("ffn") => 2,
        (true, _) => 0,
        (false, _) => 3,
    }
}

/// What the parts of a model take of a pass; those without a launch are left out.
pub(super) fn parts(programs: &[ProgramCost], run_ns: f64, machine: &Machine) -> Vec<PartCost> {
    let mut sums = [(0.0, 0_u64); PARTS.len()];
    for program in programs {
        for launch in &program.launches {
            let (ns, flops) = &mut sums[part(&launch.name, launch.mapping)];
            *ns += program.calls as f64 * (launch.ns + launch.load_ns);
            *flops += program.calls * launch.flops;
        }
    }
    let parts = PARTS.into_iter().zip(sums).filter(|(_, (ns, _))| *ns > 0.0);
    let cost = |(name, (ns, flops)): (&'static str, (f64, u64))| PartCost {
        name,
        ns,
        run_share: ns / run_ns,
        rate: Rate::new(flops, ns, machine),
    };
    parts.map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_belong_to_a_part_of_the_model() {
        for (name, mapping, expected) in [
            ("attn_q_attn_k_attn_v", "gemm-stream-bt", 0),
            ("attn_output", "gemv", 0),
            ("attn", "flash-attention", 1),
            ("attn", "cached-attention", 1),
            ("ffn_gate_ffn_up", "gemv-stream", 2),
            ("ffn_glu", "silu-mul", 3),
            ("attn_q_rope", "rope", 3),
            ("output_norm", "rmsnorm", 3),
            ("lm_head_p3", "gemv", 4),
        ] {
            assert_eq!(part(name, mapping), expected, "{name}");
        }
    }

    #[test]
    fn the_peak_is_all_cores_at_once() {
        let mut machine = Machine::npu2();
        let whole = machine.bf16_flops_per_s();
        machine.cols /= 2;
        assert_eq!(2.0 * machine.bf16_flops_per_s(), whole);
        let rate = Rate::new(whole as u64, 2e9, &machine);
        assert!((rate.peak_share - 1.0).abs() < 1e-9, "{rate:?}");
    }
}
