//! For any change to a program's text, nothing panics, and an accepted program runs.

use super::programs;
use millrace_xdna2_machine::program::{Program, text};
use millrace_xdna2_machine::verify::Verifier;
use millrace_xdna2_machine::{Machine, simulate, verify};
use std::path::Path;

/// The programs of the verifier's own tests, each accepted or rejected.
fn fixtures(folder: &str) -> Vec<(String, Program)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xdna2-machine/tests");
    let mut fixtures: Vec<_> = std::fs::read_dir(tests.join(folder))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let program = text::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, program)
        })
        .collect();
    fixtures.sort_by(|a, b| a.0.cmp(&b.0));
    fixtures
}

/// Texts to be changed: all fixtures and the small mappings.
fn seeds() -> Vec<String> {
    let mut seeds: Vec<String> = Vec::new();
    for folder in ["accepted", "rejected"] {
        // The slow ones are about slowness.
        let all = fixtures(folder).into_iter();
        let fast = all.filter(|(name, _)| !name.starts_with("too_many_"));
        seeds.extend(fast.map(|(_, program)| text::print(&program)));
    }
    let first = |all: &[&'static str]| all.iter().take(1).copied().collect();
    seeds.extend(
        programs(first)
            .iter()
            .map(|(_, program)| text::print(program)),
    );
    seeds
}

/// Positions of the words and numbers of a text.
fn tokens(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < bytes.len() {
        let start = i;
        while i < bytes.len() && bytes[i].is_ascii_alphanumeric() {
            i += 1;
        }
        if i > start {
            tokens.push((start, i));
        }
        i += usize::from(i == start);
    }
    tokens
}

/// Changes one number or word of a text.
fn mutate(text: &str, pick: u64, how: u64) -> String {
    let tokens = tokens(text);
    let (start, end) = tokens[(pick % tokens.len() as u64) as usize];
    let token = &text[start..end];
    let new = match token.parse::<u64>() {
        Ok(n) => {
            let choices = [
                0,
                1,
                2,
                n / 2,
                n.saturating_sub(1),
                n.saturating_add(1),
                n.saturating_mul(2),
                n.saturating_add(2),
                3,
                8,
                255,
                256,
                65_536,
                1 << 31,
                1 << 40,
                u64::MAX,
            ];
            choices[(how % choices.len() as u64) as usize].to_string()
        }
        Err(_) => match token {
            "get" => "new".into(),
            "new" => "get".into(),
            "free" => "put".into(),
            "put" => "free".into(),
            "shim" => "memory".into(),
            "memory" => "core".into(),
            "x" => "y".into(),
            "y" => "x".into(),
            "bf16" => "f32".into(),
            "f32" => "bf16".into(),
            "input" => "intermediate".into(),
            "cascade" => "neighbour".into(),
            "neighbour" => "cascade".into(),
            "i0" => "i1".into(),
            "g0" => "i0".into(),
            other => other.to_string(),
        },
    };
    format!("{}{new}{}", &text[..start], &text[end..])
}

/// Runs an accepted program on zeros, if its slots are small. The only allowed fault is the simulator's own limit of
/// work.
fn runs(program: &Program, cpu: &millrace_kernels::Cpu) -> Result<(), String> {
    let bytes: Option<u64> = program.slots.iter().map(|s| s.size_bytes()).sum();
    if bytes.is_none_or(|b| b > 16 << 20) {
        return Ok(());
    }
    let sizes = program
        .slots
        .iter()
        .map(|s| s.size_bytes().unwrap_or(0) as usize);
    let mut buffers: Vec<Vec<u8>> = sizes.map(|n| vec![0; n]).collect();
    let options = simulate::SimulateOptions {
        max_units: 1 << 22,
        ..simulate::SimulateOptions::new(cpu)
    };
    match simulate::run(program, &mut buffers, &options) {
        Ok(_) | Err(simulate::SimulationFault::Budget { .. }) => Ok(()),
        Err(fault) => Err(fault.to_string()),
    }
}

#[test]
fn whatever_is_changed_nothing_panics_and_what_is_accepted_runs() {
    let seeds = seeds();
    let cpu = millrace_kernels::Cpu::new(millrace_kernels::CpuOptions::default()).unwrap();
    let machine = Machine::npu2();
    let verifier = Verifier::new(&machine);
    let accepted = std::cell::Cell::new(0u32);
    let config = proptest::test_runner::Config {
        cases: 1500,
        failure_persistence: None,
        ..Default::default()
    };
    let change = (proptest::num::u64::ANY, proptest::num::u64::ANY);
    let changes = proptest::collection::vec(change, 1..3);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let strategy = (0..seeds.len(), changes);
    let result = runner.run(&strategy, |(seed, changes)| {
        let mut text = seeds[seed].clone();
        for (pick, how) in changes {
            text = mutate(&text, pick, how);
        }
        let Ok(program) = text::parse(&text) else {
            return Ok(());
        };
        // One verifier meets all programs and knows the launches of those it accepted: its verdicts are those of one that knows none.
        let verdict = verify(&program, &machine);
        proptest::prop_assert_eq!(verifier.verify(&program), verdict.clone());
        if verdict.is_ok() {
            accepted.set(accepted.get() + 1);
            let ran = runs(&program, &cpu);
            proptest::prop_assert!(ran.is_ok(), "{}\n{text}", ran.unwrap_err());
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // The test is meaningful only if a fair part of the changes is harmless.
    assert!(accepted.get() > 100, "{} accepted", accepted.get());
}
