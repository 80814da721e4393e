//! Evidence is separate from the targets: each row is about one of them, and nothing that runs a model needs it.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_plan::{Evidence, FidelityOf};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_row_is_about_a_target_of_its_own() {
    let targets: BTreeSet<&str> = millrace_targets::ALL.iter().map(|t| t.name()).collect();
    let rows: BTreeSet<&str> = millrace_evidence::ALL.iter().map(|e| e.target()).collect();
    assert_eq!(rows.len(), millrace_evidence::ALL.len(), "each once");
    assert!(rows.is_subset(&targets), "{rows:?} of {targets:?}");
}

#[test]
fn papers_are_listed_or_refused_by_name() {
    for evidence in millrace_evidence::ALL {
        let error = evidence.paper("nonsense", 1).unwrap_err().to_string();
        assert!(
            error.contains("no paper `nonsense` for ") && error.contains(evidence.target()),
            "{error}"
        );
        for paper in evidence.papers() {
            assert!(
                error.contains(&paper.name) && !paper.summary.is_empty(),
                "{error}"
            );
        }
    }
}

/// Comparisons use settings that `--mode` and `--host` could ask for.
#[test]
fn comparisons_are_settings_that_the_target_takes() {
    let row = &millrace_evidence::xdna2::Xdna2Evidence;
    let names: Vec<&str> = row.comparisons().iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for evidence in millrace_evidence::ALL {
        let name = evidence.target();
        let target = millrace_targets::ALL.iter().find(|t| t.name() == name);
        for (name, settings) in evidence.comparisons() {
            let planner = target.unwrap().planner(&settings);
            assert!(planner.is_ok(), "{name}: {:?}", planner.err());
        }
    }
}

/// If no constants are fitted anew, the error names the alternative.
#[test]
fn a_report_that_there_is_not_says_so() {
    for evidence in [
        &millrace_evidence::rk3588::Rk3588Evidence as &dyn Evidence,
        &millrace_evidence::tcp::TcpEvidence,
    ] {
        let error = evidence.fidelity(FidelityOf::LeaveOut).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("fitted"), "{text}");
    }
}

/// Only the command line may depend on this crate.
#[test]
fn nothing_that_runs_a_model_depends_on_evidence() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut users = BTreeSet::new();
    for entry in fs::read_dir(crates).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else {
            continue;
        };
        let needs = |line: &str| line.starts_with("millrace-evidence");
        if manifest.lines().any(needs) {
            users.insert(name);
        }
    }
    assert_eq!(users, BTreeSet::from(["cli".to_owned()]));
}
