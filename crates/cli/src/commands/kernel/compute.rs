//! The functional run of a kernel, and its comparison with the reference.

use crate::engine_args::CpuArgs;
use crate::exit::{Exit, Failure, Outcome};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::Program;
use millrace_xdna2::functional;
use millrace_xdna2::mapping::{Mapping, Shape, Tiling, Tolerance, compare};
use serde::Serialize;
use std::time::Instant;

/// What to compute.
pub(super) struct Case<'a> {
    pub(super) mapping: &'a dyn Mapping,
    pub(super) shape: &'a Shape,
    pub(super) tiling: &'a Tiling,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Serialize)]
pub(super) struct Computed {
    /// Time on this computer, which says nothing about the NPU.
    pub(super) host_s: f64,
    /// Elements of the outputs.
    pub(super) n_elements: u64,
    /// Of those, how many are not the reference's bytes.
    pub(super) n_unequal: u64,
    /// `exact`, or the tolerance.
    pub(super) tolerance: String,
    /// The first element outside the tolerance.
    pub(super) wrong: Option<String>,
    /// Bytes that crossed between DDR and the array.
    pub(super) ddr_bytes: u64,
}

/// The threads of the simulation.
pub(super) fn cpu(args: &CpuArgs) -> Outcome<Cpu> {
    let options = CpuOptions {
        n_threads: args.threads,
        level: args.cpu_level,
    };
    Cpu::new(options).map_err(|error| Failure::usage(error.to_string()))
}

/// Runs the program on random data and compares every output with the reference.
pub(super) fn run(case: &Case<'_>, program: &Program, cpu: &Cpu) -> Outcome<Computed> {
    let mut slots = case.mapping.inputs(case.shape, case.seed);
    let expected = case.mapping.reference(case.shape, case.tiling, &slots);
    let start = Instant::now();
    let counters = functional::run(program, &mut slots, &functional::Options::new(cpu))
        .map_err(|fault| Failure::new(Exit::Failed, fault.to_string()))?;
    let host_s = start.elapsed().as_secs_f64();
    let tolerance = case.mapping.tolerance();
    let total = counters.total();
    let mut computed = Computed {
        host_s,
        n_elements: 0,
        n_unequal: 0,
        tolerance: words(tolerance),
        wrong: None,
        ddr_bytes: total.ddr_read_bytes + total.ddr_written_bytes,
    };
    for (slot, expected) in &expected {
        let spec = &program.slots[*slot];
        let comparison = compare(spec.element, &slots[*slot], expected, tolerance);
        computed.n_elements += comparison.n_elements;
        computed.n_unequal += comparison.n_unequal;
        if let (None, Some(difference)) = (&computed.wrong, comparison.outside) {
            computed.wrong = Some(format!("slot `{}`: {difference}", spec.name));
        }
    }
    Ok(computed)
}

fn words(tolerance: Tolerance) -> String {
    match tolerance {
        Tolerance::Exact => "exact".to_owned(),
        Tolerance::Close { ulps, absolute } => format!("{ulps} ULP or {absolute:e}"),
    }
}
