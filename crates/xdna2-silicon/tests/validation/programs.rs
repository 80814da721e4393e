//! Programs that the verifier accepts: the words of each leave the simulator's bytes.

use super::*;
use millrace_testkit::sample;
use millrace_xdna2_machine::program::text;
use millrace_xdna2_silicon::WordsError;
use std::collections::BTreeMap;
use std::path::Path;

/// A verifier that accepts a program without words misses a rule.
#[test]
fn what_the_verifier_accepts_has_words() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xdna2-machine/tests/accepted");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 8);
    let cpu = cpu();
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let program = text::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let sizes = program.slots.iter().map(|slot| slot.size_bytes().unwrap());
        // Small numbers of any type.
        let slots: Vec<Vec<u8>> = sizes
            .map(|n| (0..n).map(|i| (i % 61) as u8).collect())
            .collect();
        let expected = simulated(&program, &slots, &cpu);
        let lowered = match lower(&program, &Machine::npu2()) {
            Ok(lowered) => lowered,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let mut found = slots;
        match run(&lowered, &mut found, &cpu, BoardOptions::default()) {
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(_) if found != expected => wrong.push(format!("{name}: other bytes")),
            Ok(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tilings of every mapping that the verifier accepts have words: a few of each, or with `MILLRACE_TEST_ALL=1`
/// every one.
#[test]
fn tilings_that_the_verifier_accepts_have_words() {
    let all = sample::is_whole();
    let machine = Machine::npu2();
    let rows = include_str!("shapes.txt").lines();
    let rows = rows.filter(|line| !line.starts_with('#'));
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut n_lowered, mut wrong) = (0, Vec::new());
    for row in rows {
        let mut parts = row.split('|').map(str::trim);
        let (Some(name), Some(shape)) = (parts.next(), parts.next()) else {
            panic!("{row}");
        };
        let n_seen = seen.entry(name).or_default();
        *n_seen += 1;
        if !all && *n_seen > 1 {
            continue;
        }
        let mapping = mapping::find(name).unwrap();
        let shape = mapping.parse_shape(shape).unwrap();
        let tilings = mapping.tilings(&shape, &machine);
        let step = sample::whole_or(1, tilings.len().div_ceil(4).max(1));
        for tiling in tilings.iter().step_by(step) {
            let Ok(program) = mapping.build(&shape, tiling, &machine) else {
                continue;
            };
            match lower(&program, &machine) {
                Ok(_) => n_lowered += 1,
                Err(WordsError::Refused(_)) => {}
                Err(error) => wrong.push(format!("{name} {shape} {tiling}: {error}")),
            }
        }
    }
    println!("{n_lowered} programs have words");
    assert!(n_lowered >= 50, "{n_lowered}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
