//! The tables of `docs/tcp.md` are the crates' output.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_evidence::tcp::{fidelity, report};
use millrace_tcp::{Machine, Profile, walk};
use std::path::Path;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tcp.md");
    std::fs::read_to_string(path).unwrap()
}

fn shows(what: &str, text: &str) {
    let document = document();
    let missing = text.lines().find(|line| !document.contains(*line));
    let hint = "print it with `cargo run -p millrace-evidence --example tcp_tables`";
    assert!(
        document.contains(text),
        "{what} differs, first at {missing:?}; {hint}"
    );
}

#[test]
fn the_walk_and_the_program_are_the_crates() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    shows(
        "the walk",
        &walk::decode_layer(&machine, &profile, 1024).unwrap(),
    );
    shows("the program", include_str!("../../tcp/testdata/gemv.tcp"));
    shows("the list of rules", &report::rules());
    shows("what fits", &report::fits(&machine, &profile).unwrap());
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn measurements_and_predictions_are_the_crates() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    let rows = fidelity::rows(&machine, &profile).unwrap();
    shows("the published rows", &fidelity::markdown(&rows));
    shows("times by plan", &report::times(&machine, &profile).unwrap());
}

#[test]
fn what_the_mapping_pays_is_the_crates() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    shows("slice and split", &report::reductions(&machine, &profile));
    shows("reshapes", &report::moves(&machine, &profile).unwrap());
    shows("scores", &report::scores(&machine, &profile).unwrap());
}
