//! docs/models.md beside the table of families, and the fixtures that both name.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;
use millrace_model::Model;
use millrace_model::arch::{Family, families, refused};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page's rows of a table, by its first heading.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = page.lines().skip_while(|line| !line.starts_with(heading));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    lines.collect()
}

fn page() -> String {
    fs::read_to_string(root().join("docs/models.md")).unwrap()
}

fn row_of(family: &Family) -> String {
    let classes: Vec<String> = family.hf_classes.iter().map(|c| format!("`{c}`")).collect();
    let classes = match classes.is_empty() {
        true => vec!["GGUF alone".to_owned()],
        false => classes,
    };
    format!(
        "| {} | `{}` | {} | [{golden}](../testdata/goldens/{golden}) |",
        family.models,
        family.gguf_arch,
        classes.join(", "),
        golden = family.golden(),
    )
}

#[test]
fn the_page_lists_the_families_of_the_table() {
    let page = page();
    let expected: Vec<String> = families().map(row_of).collect();
    let found = rows(&page, "| models | GGUF |");
    assert!(
        found == expected,
        "docs/models.md must have these rows:\n{}",
        expected.join("\n")
    );
}

#[test]
fn the_readme_and_the_changelog_count_the_families() {
    let n = families().count();
    for (file, words) in [
        ("README.md", format!("[{n} families](docs/models.md)")),
        ("CHANGELOG.md", format!("- {n} families of text models")),
    ] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(&words), "{file} must have `{words}`");
    }
}

#[test]
fn the_page_lists_what_is_refused() {
    let page = page();
    let row =
        |row: &millrace_model::arch::RefusedFamilies| format!("| {} | {} |", row.models, row.why);
    let expected: Vec<String> = refused().map(row).collect();
    let found = rows(&page, "| models | each |");
    assert!(
        found == expected,
        "docs/models.md must have these rows:\n{}",
        expected.join("\n")
    );
}

#[test]
fn no_family_is_refused_too() {
    for family in families() {
        let names = [&[family.gguf_arch], family.hf_model_types].concat();
        for name in names {
            let listed = refused().any(|row| row.names.contains(&name));
            assert!(!listed, "{name} is in both tables");
        }
    }
}

#[test]
fn every_family_has_a_fixture_of_its_own() {
    let goldens = root().join("testdata/goldens");
    let mut seen = BTreeSet::new();
    for family in families() {
        let folder = goldens.join(family.golden());
        let checkpoint = Checkpoint::open(&folder.join("model.safetensors")).unwrap();
        let model = Model::from_checkpoint(&checkpoint).unwrap();
        // Without folders it is a cousin's, which runtime's tests open under the family's name.
        let is_own = model.config.family == family.name;
        assert_eq!(
            is_own,
            !family.hf_classes.is_empty(),
            "{}",
            folder.display()
        );
        assert!(folder.join("expected.safetensors").is_file());
        assert!(!family.models.is_empty(), "{}", family.name);
        assert!(seen.insert(family.name), "{} twice", family.name);
    }
}
