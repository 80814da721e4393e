//! Every mapping verified on NPU2, run through the data movement of the virtual array and compared
//! with its scalar reference; at the shapes of real models built and verified.
#![allow(clippy::unwrap_used)] // A test may panic.

mod blocked;
mod cached;
mod delta_net;
mod exact;
mod fits;
mod flow;
mod products;
mod prompt;
mod q4nx;
mod refused;
mod strides;
mod token;
mod traffic;

use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::mapping::{self, Mapping, Shape, Tiling};
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::verify::verify;
use millrace_xdna2_machine::{Machine, Program};

const GEMMS: [&str; 7] = [
    "gemm-f32",
    "gemm-fused-cast",
    "gemm-drain",
    "gemm-direct",
    "gemm-direct-f32",
    "gemm-drain-bt",
    "gemm-direct-bt",
];

fn find(name: &str) -> &'static dyn Mapping {
    mapping::find(name).unwrap_or_else(|| panic!("no mapping {name}"))
}

/// A mapping, a shape, and its default tiling with `overrides` replaced.
fn case(name: &str, shape: &str, overrides: &str) -> (&'static dyn Mapping, Shape, Tiling) {
    let mapping = find(name);
    let shape = mapping.parse_shape(shape).unwrap();
    let tiling = mapping.default_tiling(&shape, &Machine::npu2());
    let tiling = tiling.overridden(overrides).unwrap();
    (mapping, shape, tiling)
}

/// Builds and verifies.
fn build(mapping: &dyn Mapping, shape: &Shape, tiling: &Tiling, machine: &Machine) -> Program {
    let what = || format!("{} {shape} {tiling}", mapping.name());
    let program = mapping
        .build(shape, tiling, machine)
        .unwrap_or_else(|e| panic!("{}: {e}", what()));
    if let Err(refusals) = verify(&program, machine) {
        let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        panic!("{} is refused:\n{}", what(), refusals.join("\n"));
    }
    program
}

/// Builds, verifies and runs on these slots.
fn execute(mapping: &dyn Mapping, shape: &Shape, tiling: &Tiling, slots: &mut [Vec<u8>]) {
    let program = build(mapping, shape, tiling, &Machine::npu2());
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    simulate::run(&program, slots, &SimulateOptions::new(&cpu)).unwrap();
}

/// Runs a program on the mapping's inputs; returns the difference from the reference, if any.
fn run(mapping: &dyn Mapping, shape: &Shape, tiling: &Tiling, program: &Program) -> Option<String> {
    let mut slots = mapping.inputs(shape, 7);
    let expected = mapping.reference(shape, tiling, &slots);
    assert!(!expected.is_empty());
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    if let Err(fault) = simulate::run(program, &mut slots, &SimulateOptions::new(&cpu)) {
        return Some(fault.to_string());
    }
    expected.into_iter().find_map(|(slot, expected)| {
        let declared = &program.slots[slot];
        let (found, tolerance) = (&slots[slot], mapping.tolerance());
        let comparison = mapping::compare(declared.element, found, &expected, tolerance);
        let outside = comparison.outside?;
        Some(format!("slot {}: {outside}", declared.name))
    })
}

/// Builds, verifies, runs and compares.
fn check(name: &str, shape: &str, overrides: &str) {
    let (mapping, shape, tiling) = case(name, shape, overrides);
    let program = build(mapping, &shape, &tiling, &Machine::npu2());
    if let Some(wrong) = run(mapping, &shape, &tiling, &program) {
        panic!("{name} {shape} {tiling}: {wrong}");
    }
}

/// Builds and verifies.
fn fits(name: &str, shape: &str, overrides: &str) {
    let (mapping, shape, tiling) = case(name, shape, overrides);
    build(mapping, &shape, &tiling, &Machine::npu2());
}

/// The rule by which a shape or tiling is refused.
fn refused(name: &str, shape: &str, overrides: &str) -> mapping::Rule {
    let (mapping, shape, tiling) = case(name, shape, overrides);
    let refusal = mapping.build(&shape, &tiling, &Machine::npu2());
    refusal.unwrap_err().rule
}
