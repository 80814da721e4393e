//! Programs that the verifier refuses, each with its rule and the words of the refusal; programs that it accepts and
//! that then run. It also survives any change to either.
//!
//! A fixture is a program in text form. `// expect: CODE words` names the only rule it breaks and
//! words of the refusal, `// set: key=value` changes the machine; the other comments describe it.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_xdna2_machine::program::{Program, text};
use millrace_xdna2_machine::verify::{Refusal, Rule, Verifier, verify};
use millrace_xdna2_machine::{Machine, simulate};
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
        let options = simulate::SimulateOptions::new(&cpu);
        let fault = simulate::run(&fixture.program, &mut buffers, &options).unwrap_err();
        let hangs_there = matches!(
            fault,
            simulate::SimulationFault::Deadlock { .. } | simulate::SimulationFault::Leftover { .. }
        );
        assert!(hangs_there, "{}: {fault}", fixture.name);
        hangs += 1;
    }
    assert!(hangs >= 4);
}

/// Knowing launches changes no verdict, no report and no refusal: of the same program, of one with each launch twice, and of one in
/// which a known launch is wrong.
#[test]
fn a_launch_that_is_known_is_judged_as_one_that_is_not() {
    let mut n_wrong = 0;
    for Fixture {
        name,
        program,
        machine,
        ..
    } in fixtures("accepted")
    {
        let verifier = Verifier::new(&machine);
        for turn in ["new", "known"] {
            let found = verifier.verify(&program);
            assert_eq!(found, verify(&program, &machine), "{name}, {turn}");
        }
        let mut twice = program.clone();
        for launch in &program.launches {
            let mut again = launch.clone();
            again.name += "_again";
            twice.launches.push(again);
        }
        assert_eq!(verifier.verify(&twice), verify(&twice, &machine), "{name}");
        for at in 0..program.launches.len() {
            let Some(channel) = twice.launches[at].channels.last_mut() else {
                continue;
            };
            let depth = std::mem::replace(&mut channel.depth, 60_000);
            let found = verifier.verify(&twice);
            assert_eq!(found, verify(&twice, &machine), "{name}, launch {at}");
            n_wrong += usize::from(found.is_err());
            twice.launches[at].channels.last_mut().unwrap().depth = depth;
        }
    }
    assert!(n_wrong > 0, "no deep channel was refused");
}
