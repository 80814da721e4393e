//! Stitched programs give the results of their kernels, one after the other.

use crate::lower::{MODES, decode, graph, prefill};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::Role;
use millrace_xdna2::lower::{LowerOptions, PlannedProgram};
use millrace_xdna2::mapping;
use millrace_xdna2_machine::simulate;

/// bf16 values in [-1, 1) of a generator with a fixed seed.
fn random_bytes(n_bytes: usize, state: &mut u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(n_bytes);
    while bytes.len() < n_bytes {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let value = (*state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0;
        bytes.extend(half::bf16::from_f32(value).to_le_bytes());
    }
    bytes
}

/// Runs a program, and its launches' references one after the other on the same content.
fn check_numbers(planned: &PlannedProgram) {
    let mut state = 1;
    let slots = planned.slots();
    let content = slots.iter().map(|s| {
        let n_bytes = s.size_bytes().unwrap() as usize;
        match s.role {
            Role::Input | Role::Static => random_bytes(n_bytes, &mut state),
            Role::Intermediate | Role::Output => vec![0; n_bytes],
        }
    });
    let mut expected: Vec<Vec<u8>> = content.collect();
    let mut run = expected.clone();
    for launch in &planned.launches {
        let mapping = mapping::find(&launch.kernel).unwrap();
        let args: Vec<Vec<u8>> = launch.slots.iter().map(|&s| expected[s].clone()).collect();
        for (arg, bytes) in mapping.reference(&launch.shape, &launch.tiling, &args) {
            expected[launch.slots[arg]] = bytes;
        }
    }
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let options = simulate::SimulateOptions::new(&cpu);
    simulate::run(
        millrace_xdna2::lower::program_of(planned).unwrap(),
        &mut run,
        &options,
    )
    .unwrap();
    for ((slot, run), expected) in slots.iter().zip(&run).zip(&expected) {
        let zeros = run.iter().filter(|&&b| b == 0).count();
        assert!(run == expected, "{}: {}", planned.name(), slot.name);
        assert!(2 * zeros < run.len(), "{} is empty", slot.name);
    }
}

#[test]
fn stitched_programs_compute_what_their_kernels_do() {
    let graph = graph("llama-tiny", Some(1));
    for mode in MODES {
        let plans = [
            prefill(&graph, LowerOptions::new(mode, 64)),
            decode(&graph, mode),
        ];
        for planned in plans.iter().flat_map(|p| &p.programs) {
            check_numbers(planned);
        }
    }
}
