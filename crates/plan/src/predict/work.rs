//! Operations of a pass, how fast they are done, and their share of the machine's peak.
//!
//! The operations of the programs are counted, with padding of a prompt and of the vocabulary: a multiplication and an
//! addition are two. Attention under a causal mask counts half of the square.

use super::{ModelPart, ProgramCost};
use serde::Serialize;

/// Operations and their rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Floating-point operations.
    pub flops: u64,
    /// Operations a second.
    pub flops_per_s: f64,
    /// Share of the machine's peak.
    pub peak_share: f64,
}

impl Rate {
    /// The rate of so many operations in that time, on a machine of that peak.
    pub fn new(flops: u64, ns: f64, peak_flops_per_s: f64) -> Rate {
        let flops_per_s = if ns > 0.0 {
            flops as f64 * 1e9 / ns
        } else {
            0.0
        };
        Rate {
            flops,
            flops_per_s,
            peak_share: flops_per_s / peak_flops_per_s.max(1.0),
        }
    }
}

/// A part of the model, in the whole pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartCost {
    /// Its name, in words.
    pub name: &'static str,
    /// Its launches, loading their cores included.
    pub ns: f64,
    /// Share of the pass's NPU runs.
    pub run_share: f64,
    /// Its operations over that time.
    #[serde(flatten)]
    pub rate: Rate,
}

/// Share of the parts of a model in a pass; those without a launch are left out.
pub(super) fn parts(programs: &[ProgramCost], run_ns: f64, peak_flops_per_s: f64) -> Vec<PartCost> {
    let cost = |part: ModelPart| {
        let (mut ns, mut flops) = (0.0, 0);
        for program in programs {
            for launch in program.launches.iter().filter(|l| l.part == part) {
                ns += program.calls as f64 * (launch.ns + launch.load_ns);
                flops += program.calls * launch.flops;
            }
        }
        (ns > 0.0).then(|| PartCost {
            name: part.name(),
            ns,
            run_share: ns / run_ns,
            rate: Rate::new(flops, ns, peak_flops_per_s),
        })
    };
    ModelPart::ALL.into_iter().filter_map(cost).collect()
}
