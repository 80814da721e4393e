//! Exported designs, read back by the importer: on the board they leave the bytes that the simulator does.

use super::models::{content, demo};
use super::*;
use millrace_aie::{Design, RunOptions};
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
        slow_orders: 0,
        ..RunOptions::default()
    };
    let report = millrace_aie::run(&design, &arguments, options).map_err(|e| e.to_string())?;
    if !report.verdict.is_pass() {
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
    let options = LowerOptions::new(Mode::Fast, 64);
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

/// Strides and offsets, by the text before them, and the amount that makes each wrong: elements of two bytes move in
/// pairs. Sizes of an outermost dimension are redundant next to a length, and so are locks that a short run never
/// fills.
const COUNTED: [(&str, u64); 3] = [(", stride = ", 2), ("xf32>, ", 2), ("xbf16>, ", 2)];

/// Positions of those numbers and the amount added to each. The step of a dimension of one element is never taken.
fn numbers(text: &str) -> Vec<(usize, u64)> {
    let of = |&(key, more): &(&'static str, u64)| {
        let found = text.match_indices(key);
        found.map(move |(at, _)| (at + key.len(), more))
    };
    let mut all: Vec<(usize, u64)> = COUNTED.iter().flat_map(of).collect();
    all.retain(|&(at, _)| !text[..at].ends_with("<size = 1, stride = "));
    all.sort_unstable();
    all
}

/// The text with the number at a byte made more.
fn wrong(text: &str, (at, more): (usize, u64)) -> Option<String> {
    let n_digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[at..at + n_digits].parse().ok()?;
    let rest = &text[at + n_digits..];
    Some(format!("{}{}{rest}", &text[..at], number + more))
}

/// An exported design that is wrong in a stride or an offset: importer, board or bytes notice it.
#[test]
fn a_design_that_is_wrong_by_a_word_is_noticed() {
    let cpu = cpu();
    let (mut n_wrong, mut n_by_bytes, mut same) = (0, 0, Vec::new());
    // Every copy of every block is used in these.
    for (name, shape, overrides) in [
        ("gemm-drain", "128x96x128", "tile_k_l2=32"),
        ("rmsnorm", "16x64", ""),
    ] {
        let (program, slots) = case(name, shape, overrides);
        let exported = designs(&program, &Machine::npu2()).unwrap();
        let [Ok(launch)] = &exported[..] else {
            panic!("{name}: {} launches", exported.len());
        };
        let expected = simulated(&program, &slots, &cpu);
        let all = numbers(&launch.text);
        for &number in all.iter().step_by(all.len() / 10 + 1) {
            let Some(text) = wrong(&launch.text, number) else {
                continue;
            };
            let changed = LaunchDesign {
                text,
                ..launch.clone()
            };
            let mut found = slots.clone();
            n_wrong += 1;
            match run_design(&changed, &mut found) {
                Ok(()) if found == expected => {
                    let line = launch.text[..number.0].rsplit('\n').next();
                    same.push(format!("{name}: {}", line.unwrap_or_default().trim()));
                }
                Ok(()) => n_by_bytes += 1,
                Err(_) => {}
            }
        }
    }
    assert!(
        n_wrong > 12 && n_by_bytes > 0,
        "{n_wrong}, {n_by_bytes} by their bytes"
    );
    assert!(
        same.is_empty(),
        "of {n_wrong} these are not noticed:\n{}",
        same.join("\n")
    );
}
