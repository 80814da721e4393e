//! The programs of the embedded model's passes: a prompt and a token, words of all launches.

use super::*;
use millrace_format::Checkpoint;
use millrace_graph::Graph;
use millrace_model::Model;
use millrace_npu::{Element, Slot};
use millrace_testkit::sample;
use millrace_xdna2::lower::{self, LowerOptions, Mode, Plan};
use std::path::Path;

pub(super) fn demo() -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    Model::from_checkpoint(&Checkpoint::open(&path).unwrap())
        .unwrap()
        .graph
}

/// Numbers between -1 and 1 where a slot holds numbers, small positions where it holds integers.
pub(super) fn content(slot: &Slot, number: usize) -> Vec<u8> {
    let n = slot.size_bytes().unwrap() / slot.element.size_bytes();
    let mut state = number as u64 * 77 + 5;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    match slot.element {
        Element::Bf16 => {
            let bits = (0..n).map(|_| (next().to_bits() >> 16) as u16);
            bits.flat_map(u16::to_le_bytes).collect()
        }
        Element::F32 => (0..n).flat_map(|_| next().to_le_bytes()).collect(),
        Element::I32 => (0..n).flat_map(|_| 3i32.to_le_bytes()).collect(),
        _ => (0..n * slot.element.size_bytes())
            .map(|_| (next() * 100.0) as i8 as u8)
            .collect(),
    }
}

/// Runs every program of a plan both ways, and returns the differences, program by program.
pub(super) fn compare(plan: &Plan) -> Vec<String> {
    let cpu = cpu();
    let mut wrong = Vec::new();
    for planned in &plan.programs {
        let program = Program::from_container(&planned.container).unwrap();
        let slots: Vec<Vec<u8>> = program
            .slots
            .iter()
            .enumerate()
            .map(|(n, slot)| content(slot, n))
            .collect();
        let lowered = match lower(&program, &Machine::npu2()) {
            Ok(lowered) => lowered,
            Err(error) => {
                wrong.push(format!("{}: {error}", planned.name()));
                continue;
            }
        };
        let expected = simulated(&program, &slots, &cpu);
        let mut found = slots.clone();
        let start = std::time::Instant::now();
        let counters = run(
            &lowered,
            &mut found,
            &cpu,
            BoardOptions {
                seed: 2,
                ..BoardOptions::default()
            },
        );
        println!(
            "{}: {} launches, {:?}",
            planned.name(),
            lowered.len(),
            start.elapsed()
        );
        match counters {
            Err(error) => wrong.push(format!("{}: {error}", planned.name())),
            Ok(_) if found != expected => wrong.push(format!("{}: other bytes", planned.name())),
            Ok(_) => {}
        }
    }
    wrong
}

/// Every program of a prompt's pass and of a token's, whose slots hold random numbers; with
/// `MILLRACE_TEST_ALL=1` those of the published stack's plans as well.
#[test]
fn a_prompt_and_a_token_of_the_demo() {
    let graph = demo();
    let mut modes = vec![Mode::Fast];
    if sample::is_whole() {
        modes.extend([Mode::MlirAir, Mode::Int4, Mode::FastFlowLm]);
    }
    for mode in modes {
        let options = LowerOptions::new(mode, 64);
        let plans = [
            lower::prefill(&graph, &Machine::npu2(), &options).unwrap(),
            lower::decode(&graph, &Machine::npu2(), &options).unwrap(),
        ];
        for plan in &plans {
            assert!(plan.programs.len() >= 2, "{}", plan.programs.len());
            let wrong = compare(plan);
            assert!(wrong.is_empty(), "{mode:?}: {}", wrong.join("\n"));
        }
    }
}
