//! The functional run of a kernel, and its comparison with the reference.

use crate::engine_args::CpuArgs;
use crate::exit::{Exit, Failure, Outcome};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::Element;
use millrace_xdna2::functional;
use millrace_xdna2::mapping::{Mapping, Shape, Tiling, Tolerance, compare};
use millrace_xdna2::{Numerics, Program};
use serde::Serialize;
use std::time::Instant;

/// What to compute.
pub(super) struct Case<'a> {
    pub(super) mapping: &'a dyn Mapping,
    pub(super) shape: &'a Shape,
    pub(super) tiling: &'a Tiling,
    pub(super) seed: u64,
    pub(super) numerics: Numerics,
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
    /// Signal to noise of emulated products, against exact ones of the same inputs.
    pub(super) snr_db: Option<f64>,
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
    let (mapping, shape, tiling) = (case.mapping, case.shape, case.tiling);
    let expected = mapping.reference_in(case.numerics, shape, tiling, &slots);
    let exact = match case.numerics {
        Numerics::Bf16 => None,
        Numerics::Bfp16 => Some(mapping.reference(shape, tiling, &slots)),
    };
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
        snr_db: exact.and_then(|exact| snr_db(program, &exact, &slots)),
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

/// Signal to noise in decibels of all outputs together; none where nothing differs.
fn snr_db(program: &Program, exact: &[(usize, Vec<u8>)], found: &[Vec<u8>]) -> Option<f64> {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (slot, exact) in exact {
        let element = program.slots[*slot].element;
        for (exact, found) in numbers(element, exact).zip(numbers(element, &found[*slot])) {
            signal += exact * exact;
            noise += (exact - found) * (exact - found);
        }
    }
    (noise > 0.0).then(|| 10.0 * f64::log10(signal / noise))
}

fn numbers(element: Element, bytes: &[u8]) -> impl Iterator<Item = f64> {
    let shift = 32 - 8 * element.size_bytes();
    bytes
        .chunks_exact(element.size_bytes() as usize)
        .map(move |bytes| {
            let bits = (bytes.iter().rev()).fold(0_u32, |bits, &b| bits << 8 | u32::from(b));
            f64::from(f32::from_bits(bits << shift))
        })
}

fn words(tolerance: Tolerance) -> String {
    match tolerance {
        Tolerance::Exact => "exact".to_owned(),
        Tolerance::Close { ulps, absolute } => format!("{ulps} ULP or {absolute:e}"),
    }
}
