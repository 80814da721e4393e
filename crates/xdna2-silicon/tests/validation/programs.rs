//! Programs that the verifier accepts: the words of each leave the simulator's bytes.

use super::*;
use millrace_xdna2_machine::program::text;
use std::path::Path;

/// A verifier that accepts what has no words misses a rule.
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
