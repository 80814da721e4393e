//! Exported designs, read back by the importer: on the board they leave the bytes that the simulator does.

use super::models::{content, demo};
use super::*;
use millrace_aie::{Design, RunOptions, Verdict};
use millrace_xdna2::lower::{self, LowerOptions, Mode};
use millrace_xdna2_silicon::{LaunchDesign, designs};
use std::collections::BTreeSet;

/// Runs a design on the slots that are its arguments.
fn run_design(exported: &LaunchDesign, slots: &mut [Vec<u8>]) -> Result<(), String> {
    let design = Design::read(&exported.text).map_err(|error| error.to_string())?;
    let arguments: Vec<Vec<u8>> = (exported.arguments.iter())
        .map(|&slot| slots[slot].clone())
        .collect();
    let options = RunOptions {
        orders: 1,
        ..RunOptions::default()
    };
    let report = millrace_aie::run(&design, &arguments, options).map_err(|e| e.to_string())?;
    if report.verdict != Verdict::Pass {
        let problem = report.problem.unwrap_or_default();
        return Err(format!(
            "{}: {problem} {:#?}",
            report.verdict.name(),
            report.ring
        ));
    }
    if !report.unknown_kernels.is_empty() {
        return Err(format!("unknown: {:?}", report.unknown_kernels));
    }
    for output in report.outputs {
        slots[exported.arguments[output.argument]] = output.bytes;
    }
    Ok(())
}

/// Exports all launches of a program, runs the designs one after the other, and compares with the simulator.
fn check(program: &Program, slots: &[Vec<u8>], cpu: &Cpu) -> Result<Vec<LaunchDesign>, String> {
    let exported = designs(program, &Machine::npu2()).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    let mut found = slots.to_vec();
    for launch in exported {
        let launch = launch.map_err(|error| error.to_string())?;
        run_design(&launch, &mut found).map_err(|error| format!("{}: {error}", launch.launch))?;
        all.push(launch);
    }
    let expected = simulated(program, slots, cpu);
    for (slot, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
            let name = &program.slots[slot].name;
            return Err(format!("slot {name} differs from byte {at} on"));
        }
    }
    Ok(all)
}

/// Kinds of mappings: streams, joins, repeats, neighbours, cascades, counted stages, grids, scalars.
#[test]
fn designs_of_mappings_leave_the_simulators_bytes() {
    let cpu = cpu();
    let mut wrong = Vec::new();
    for (name, shape, overrides) in [
        ("gemm-stream", "64x64x64", ""),
        ("gemm-i8", "64x64x64", ""),
        ("gemm-fused-cast", "128x96x128", "tile_k_l2=32"),
        ("gemm-drain", "128x96x128", "tile_k_l2=32"),
        ("gemv", "256x192", "tile_m=8,m_input=4,streamed=1"),
        ("gemv-cascade", "64x256", ""),
        (
            "gemv-cascade",
            "48x128",
            "cols=3,rows=2,tile_m=4,l2_copies=1",
        ),
        ("rmsnorm", "16x64", ""),
        ("rope", "16x64", ""),
        ("add", "4096", ""),
        ("flow-kv", "1x64 8q/4kv d64", ""),
    ] {
        let (program, slots) = case(name, shape, overrides);
        if let Err(problem) = check(&program, &slots, &cpu) {
            wrong.push(format!("{name} {shape}: {problem}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every launch of the demo's passes.
#[test]
fn designs_of_the_demo_leave_the_simulators_bytes() {
    let (graph, cpu) = (demo(), cpu());
    let options = LowerOptions::new(Mode::Best, 64);
    let plans = [
        lower::prefill(&graph, &Machine::npu2(), &options).unwrap(),
        lower::decode(&graph, &Machine::npu2(), &options).unwrap(),
    ];
    let mut distinct = BTreeSet::new();
    let mut wrong = Vec::new();
    for planned in plans.iter().flat_map(|plan| &plan.programs) {
        let program = Program::from_container(&planned.container).unwrap();
        let rows = program.slots.iter().enumerate();
        let slots: Vec<Vec<u8>> = rows.map(|(n, slot)| content(slot, n)).collect();
        match check(&program, &slots, &cpu) {
            Ok(launches) => distinct.extend(launches.into_iter().map(|launch| launch.text)),
            Err(problem) => wrong.push(format!("{}: {problem}", planned.name())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(distinct.len() > 8, "{} designs", distinct.len());
}
