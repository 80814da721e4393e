//! Programs that the verifier refuses, with the rule and words of each; programs that it accepts
//! and that then run; and that it survives any change to either.
//!
//! A fixture is a program in text form. `// expect: CODE words` names the only rule it breaks and
//! words of the refusal, `// set: key=value` changes the machine; the other comments say what it is.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_xdna2::program::{Program, text};
use millrace_xdna2::verify::{Refusal, Rule, verify};
use millrace_xdna2::{Machine, functional};
use std::collections::BTreeSet;
use std::path::Path;

struct Fixture {
    name: String,
    text: String,
    program: Program,
    machine: Machine,
    /// Code and words.
    expect: Option<(String, String)>,
}

fn fixtures(folder: &str) -> Vec<Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let header = |key: &str| {
                let key = format!("// {key}: ");
                let lines = text.lines().filter_map(|l| l.strip_prefix(&key));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            let mut machine = Machine::npu2();
            for assignment in header("set") {
                machine.set(&assignment).unwrap();
            }
            let expect = header("expect").first().map(|line| {
                let (code, words) = line.split_once(' ').unwrap_or((line, ""));
                (code.to_owned(), words.to_owned())
            });
            let program = text::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            Fixture {
                name,
                text,
                program,
                machine,
                expect,
            }
        })
        .collect()
}

fn words(refusals: &[Refusal]) -> String {
    refusals.iter().map(|r| format!("\n  {r}")).collect()
}

#[test]
fn each_rejected_program_breaks_exactly_its_rule() {
    let mut wrong = String::new();
    for fixture in fixtures("rejected") {
        let (code, expected) = fixture.expect.unwrap();
        let name = fixture.name;
        match verify(&fixture.program, &fixture.machine) {
            Ok(_) => wrong += &format!("\n{name}: accepted, expected {code}"),
            Err(refusals) => {
                let all = words(&refusals);
                let codes = refusals.iter().all(|r| r.rule.code() == code);
                if !codes || !all.contains(&expected) {
                    wrong += &format!("\n{name}: expected {code} {expected}:{all}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_refusal_names_a_place_and_a_remedy() {
    for fixture in fixtures("rejected") {
        for refusal in verify(&fixture.program, &fixture.machine).unwrap_err() {
            let name = &fixture.name;
            assert!(!refusal.place.is_empty(), "{name}: {refusal}");
            let remedy = !refusal.suggestion.is_empty() || refusal.rule == Rule::Malformed;
            assert!(remedy, "{name}: {refusal}");
            if let (Some(asked), Some(limit)) = (refusal.asked, refusal.limit) {
                assert_ne!(asked, limit, "{name}: {refusal}");
            }
        }
    }
}

#[test]
fn every_rule_has_a_rejected_program() {
    let fixtures = fixtures("rejected");
    assert!(fixtures.len() >= 30);
    let codes: BTreeSet<&str> = fixtures
        .iter()
        .filter_map(|f| f.expect.as_ref())
        .map(|e| &*e.0)
        .collect();
    let missing: Vec<&str> = Rule::ALL
        .iter()
        .map(|r| r.code())
        .filter(|c| !codes.contains(c))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn accepted_programs_are_accepted() {
    for fixture in fixtures("accepted") {
        let report = verify(&fixture.program, &fixture.machine);
        let report = report.unwrap_or_else(|e| panic!("{}:{}", fixture.name, words(&e)));
        assert!(report.unexamined_slots.is_empty(), "{}", fixture.name);
        assert!(fixture.text.contains("//"), "{} says nothing", fixture.name);
    }
}

#[test]
fn what_is_refused_as_a_hang_hangs_in_the_functional_simulation() {
    let cpu = millrace_kernels::Cpu::new(millrace_kernels::CpuOptions::default()).unwrap();
    let mut hangs = 0;
    for fixture in fixtures("rejected") {
        let code = fixture.expect.unwrap().0;
        if ![Rule::Unbalanced, Rule::Deadlock]
            .iter()
            .any(|r| r.code() == code)
        {
            continue;
        }
        let sizes = fixture
            .program
            .slots
            .iter()
            .map(|s| s.size_bytes().unwrap() as usize);
        let mut buffers: Vec<Vec<u8>> = sizes.map(|n| vec![0; n]).collect();
        let options = functional::Options::new(&cpu);
        let fault = functional::run(&fixture.program, &mut buffers, &options).unwrap_err();
        let hangs_there = matches!(
            fault,
            functional::Fault::Deadlock { .. } | functional::Fault::Leftover { .. }
        );
        assert!(hangs_there, "{}: {fault}", fixture.name);
        hangs += 1;
    }
    assert!(hangs >= 4);
}

/// Shapes of Llama-3.2-1B and Gemma-3-4B by mapping, and a small one first.
const SHAPES: &[(&str, &[&str])] = &[
    ("gemm-f32", &["512x256x512", "2048x2048x8192"]),
    (
        "gemm-fused-cast",
        &["512x256x512", "2048x2048x8192", "2048x2560x10240"],
    ),
    ("gemm-drain", &["256x256x512", "2048x2048x512"]),
    ("gemm-direct", &["512x256x512", "2048x2048x2048"]),
    ("gemm-direct-f32", &["512x256x512"]),
    ("gemm-drain-bt", &["256x256x512", "2048x2048x512"]),
    ("gemm-direct-bt", &["512x256x512", "2048x8192x2048"]),
    (
        "gemm-stream",
        &[
            "64x256x512+128",
            "2048x2048x8192+8192",
            "256x8192x2048",
            "512x2560x10240+10240",
        ],
    ),
    (
        "gemm-stream-bt",
        &[
            "64x256x512+128",
            "2048x2048x2048+512+512",
            "2048x8192x2048",
            "2048x2560x2048+1024+1024",
            "2048x10240x2560",
        ],
    ),
    (
        "gemm-megatile",
        &["64x64x256", "2048x2048x2048", "2048x2560x10240"],
    ),
    ("gemv", &["2048x2048", "8192x2048", "2048x8192"]),
    (
        "gemv-stream",
        &["2048+512+512x2048", "2048x8192", "16384+16384x2048"],
    ),
    ("rmsnorm", &["8x2048", "2048x2048"]),
    ("layernorm", &["8x2048"]),
    ("rope", &["256x64", "65536x64"]),
    ("silu-mul", &["16384", "16777216"]),
    ("gelu-mul", &["16384"]),
    ("gelu", &["16384"]),
    ("add", &["16384", "4194304"]),
    ("add-2d", &["8x2048", "2048x2048"]),
    ("add-flat", &["2048x2048"]),
    (
        "flash-attention",
        &["512 2q/1kv d64 causal", "2048 32q/8kv d64 causal"],
    ),
    (
        "cached-attention",
        &[
            "1x512 2q/1kv d64",
            "1x2048 32q/8kv d64 of 131072",
            "64x4096 8q/4kv d256 of 32768 window 1024",
        ],
    ),
];

fn programs(shapes: impl Fn(&[&'static str]) -> Vec<&'static str>) -> Vec<(String, Program)> {
    let machine = Machine::npu2();
    let mut programs = Vec::new();
    for mapping in millrace_xdna2::mapping::TABLE {
        let listed = SHAPES.iter().find(|(name, _)| *name == mapping.name());
        for text in shapes(listed.map_or(&[][..], |(_, shapes)| shapes)) {
            let name = format!("{} {text}", mapping.name());
            let shape = mapping
                .parse_shape(text)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let tiling = mapping.default_tiling(&shape, &machine);
            let program = mapping.build(&shape, &tiling, &machine);
            programs.push((
                name.clone(),
                program.unwrap_or_else(|e| panic!("{name}: {e}")),
            ));
        }
    }
    programs
}

#[test]
fn every_mapping_is_accepted() {
    let mut wrong = String::new();
    for (name, program) in programs(|all| all.to_vec()) {
        if let Err(refusals) = verify(&program, &Machine::npu2()) {
            wrong += &format!("\n{name}:{}", words(&refusals));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What joins and splits on memory tiles: a tiling that a mapping offers is one that silicon has
/// descriptors and locks for.
#[test]
fn offered_tilings_are_accepted() {
    let machine = Machine::npu2();
    let mut n_tried = 0;
    for (name, shapes) in [
        ("gemm-drain", ["256x256x512", "512x1024x1024"]),
        ("gemm-megatile", ["64x64x256", "1024x2048x2048"]),
        ("gemm-stream", ["256x256x512+128", "1024x2048x2048+512+512"]),
        ("gemm-stream-bt", ["64x64x1920", "512x2048x8192"]),
        (
            "cached-attention",
            ["1x512 2q/1kv d64", "4x1024 32q/8kv d64"],
        ),
    ] {
        let mapping = millrace_xdna2::mapping::find(name).unwrap();
        for text in shapes {
            let shape = mapping.parse_shape(text).unwrap();
            let tilings = mapping.tilings(&shape, &machine);
            let step = tilings.len().div_ceil(40);
            for tiling in tilings.iter().step_by(step.max(1)) {
                let program = mapping.build(&shape, tiling, &machine).unwrap();
                let refused = verify(&program, &machine).err();
                let refused = refused.map(|e| words(&e));
                assert_eq!(refused, None, "{name} {text}: {tiling}");
                n_tried += 1;
            }
        }
    }
    assert!(n_tried > 100, "{n_tried}");
}

/// Texts to be changed: all fixtures and the small mappings.
fn seeds() -> Vec<String> {
    let mut seeds: Vec<String> = Vec::new();
    for folder in ["accepted", "rejected"] {
        // The slow ones are about slowness.
        let fast = |f: &Fixture| !f.name.starts_with("too_many_");
        let all = fixtures(folder).into_iter().filter(fast);
        seeds.extend(all.map(|f| text::print(&f.program)));
    }
    let first = |all: &[&'static str]| all.iter().take(1).copied().collect();
    seeds.extend(
        programs(first)
            .iter()
            .map(|(_, program)| text::print(program)),
    );
    seeds
}

/// Where the words and numbers of a text are.
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

/// Runs an accepted program on zeros, if its slots are small; no fault may come but the simulator's
/// own limit of work.
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
    let options = functional::Options {
        max_units: 1 << 22,
        ..functional::Options::new(cpu)
    };
    match functional::run(program, &mut buffers, &options) {
        Ok(_) | Err(functional::Fault::Budget { .. }) => Ok(()),
        Err(fault) => Err(fault.to_string()),
    }
}

#[test]
fn whatever_is_changed_nothing_panics_and_what_is_accepted_runs() {
    let seeds = seeds();
    let cpu = millrace_kernels::Cpu::new(millrace_kernels::CpuOptions::default()).unwrap();
    let machine = Machine::npu2();
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
        if verify(&program, &machine).is_ok() {
            accepted.set(accepted.get() + 1);
            let ran = runs(&program, &cpu);
            proptest::prop_assert!(ran.is_ok(), "{}\n{text}", ran.unwrap_err());
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // The test says something only if a fair part of the changes is harmless.
    assert!(accepted.get() > 100, "{} accepted", accepted.get());
}
