//! What it takes to add a thing: dummies that tests added, the files that name them, and the table of CONTRIBUTING.md.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A dummy of a kind.
struct Dummy {
    /// The row of CONTRIBUTING.md.
    kind: &'static str,
    /// What every file that the dummy needs says, and no other.
    marks: &'static [&'static str],
    /// Those files, with `dummy` for its name.
    files: &'static [&'static str],
    /// What stands for `dummy` in CONTRIBUTING.md.
    placeholder: &'static str,
}

const DUMMIES: [Dummy; 3] = [
    Dummy {
        kind: "a model family",
        marks: &["mod dummy;", "&dummy::FAMILY", "name: \"dummy\""],
        files: &["crates/model/src/arch.rs", "crates/model/src/arch/dummy.rs"],
        placeholder: "<family>",
    },
    // Shipped ones stand for it: `glu` is an op like any other.
    Dummy {
        kind: "an op",
        marks: &["mod glu;", "impl Operation for Glu"],
        files: &["crates/graph/src/op.rs", "crates/graph/src/op/dummy.rs"],
        placeholder: "<op>",
    },
    Dummy {
        kind: "a sampler stage",
        marks: &["impl SamplerStage for NeverTwice"],
        files: &["crates/runtime/tests/cpu/sampler.rs"],
        placeholder: "",
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Files below `crates` that say one of the marks.
fn files_with(marks: &[&str]) -> BTreeSet<String> {
    let mut all = Vec::new();
    sources(&root().join("crates"), &mut all);
    let says = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        marks.iter().any(|mark| text.contains(mark))
    };
    let name = |path: PathBuf| {
        let below = path.strip_prefix(root()).unwrap();
        below.to_string_lossy().replace('\\', "/")
    };
    // This file says them all.
    let others = all
        .into_iter()
        .filter(|path| !path.ends_with("tests/additions.rs"));
    others.filter(says).map(name).collect()
}

#[test]
fn each_kind_takes_the_files_that_its_row_names() {
    let contributing = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    for dummy in &DUMMIES {
        let found = files_with(dummy.marks);
        let own = dummy.kind == "an op";
        let spelled = |file: &&str| file.replace("dummy", if own { "glu" } else { "dummy" });
        let expected: BTreeSet<String> = dummy.files.iter().map(spelled).collect();
        assert_eq!(found, expected, "{}", dummy.kind);
        let row = contributing
            .lines()
            .find(|line| line.starts_with(&format!("| **{}** |", dummy.kind)));
        let row = row.unwrap_or_else(|| panic!("no row for {}", dummy.kind));
        for file in dummy.files {
            let file = file.replace("dummy", dummy.placeholder);
            assert!(row.contains(&format!("`{file}`")), "{}: {file}", dummy.kind);
        }
    }
}
