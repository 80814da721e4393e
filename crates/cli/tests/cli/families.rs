//! The list of families is the same on a screen and for scripts.

use std::collections::BTreeSet;

use millrace_model::arch::{Family, assistants, encoders, families};

use crate::run::{OK, finish, millrace};

#[test]
fn families_are_listed_for_people_and_for_scripts() {
    let home = tempfile::tempdir().unwrap();
    let table = finish(millrace(home.path()).args(["list", "--families"])).expect(OK);
    let json = finish(millrace(home.path()).args(["list", "--families", "--json"])).expect(OK);
    let rows = json.json();
    let rows = rows.as_array().unwrap();
    let all: Vec<&Family> = families().chain(encoders()).chain(assistants()).collect();
    assert_eq!(rows.len(), all.len());
    // One line per family after the headings; a long cell may take more lines.
    let firsts: BTreeSet<&str> = table
        .stdout
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let widest = table.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest < Some(100), "{widest:?} columns");
    for (row, family) in rows.iter().zip(all) {
        assert_eq!(row["name"], family.name);
        assert_eq!(row["gguf_architecture"], family.gguf_arch);
        // Families that exist only as GGUF files have no class.
        let classes: Vec<&str> = row["classes"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|c| c.as_str())
            .collect();
        assert_eq!(classes, family.hf_classes);
        assert_eq!(row["golden"], family.golden());
        assert!(firsts.contains(family.name), "{}", table.stdout);
    }
}
