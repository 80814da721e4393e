//! Names of types: one idea has one word, and the word is a noun.
//!
//! A reader who meets `Row` or `Job` should not have to ask whose. The bounds below hold what was reached. To lower one, give
//! types the noun of their room (`BenchRow`, `PoolJob`), set the bound to 0, and run `cargo test -p millrace-testkit --test names`:
//! the failure lists what is left and counts it. That count is the bound. A bound never rises.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names that this many types or more have are counted.
const MANY: usize = 3;
/// How many names have [`MANY`] definitions or more.
const MAX_COMMON_NAMES: usize = 8;
/// How many types have a participle for a name.
const MAX_PARTICIPLES: usize = 0;

/// What the language's idiom asks for: a crate's `Error`.
const IDIOMS: [&str; 1] = ["Error"];

/// Participles without a regular ending, and nouns that end as participles do.
const IRREGULAR: [&str; 34] = [
    "Bound", "Broken", "Built", "Chosen", "Cut", "Done", "Drawn", "Found", "Given", "Gone", "Held",
    "Hidden", "Kept", "Known", "Laid", "Left", "Lent", "Lost", "Made", "Meant", "Met", "Put",
    "Read", "Said", "Seen", "Sent", "Shown", "Spent", "Spread", "Taken", "Told", "Unseen", "Won",
    "Written",
];
const NOUNS: [&str; 4] = ["Embed", "Feed", "Need", "Seed"];

/// Definitions of types by name: where each is.
type Definitions = BTreeMap<String, Vec<String>>;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every source file of every crate.
fn sources() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .filter(|folder| folder.is_dir())
        .collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|e| e == "rs") => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    files
}

/// The name of the type that a line defines. An indented `type` is a trait's or of an `impl`: its name is the trait's.
fn defined(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let is_indented = code.len() < line.len();
    let code = match code.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => code.strip_prefix("pub ").unwrap_or(code),
    };
    let (keyword, rest) = code.split_once(' ')?;
    let counts = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !is_indented,
        _ => false,
    };
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let name = &rest[..end];
    (counts && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}

fn definitions() -> Definitions {
    let mut all = Definitions::new();
    for file in sources() {
        let place = file.strip_prefix(crates()).unwrap().display().to_string();
        for name in fs::read_to_string(&file)
            .unwrap()
            .lines()
            .filter_map(defined)
        {
            all.entry(name.to_owned()).or_default().push(place.clone());
        }
    }
    all
}

/// Whether a name is one word that is a participle: it ends in `ed`, or is on the list.
fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().filter(char::is_ascii_uppercase).count() == 1;
    let is_regular = name.ends_with("ed") && !NOUNS.contains(&name);
    is_one_word && (is_regular || IRREGULAR.contains(&name))
}

/// Compares a count with its bound, and lists what it counts where it is too large.
fn assert_bound(what: &str, bound: usize, found: &BTreeMap<&str, &[String]>, count: usize) {
    let mut list = String::new();
    for (name, places) in found {
        list += &format!("\n{name} ({}): {}", places.len(), places.join(", "));
    }
    assert!(
        count <= bound,
        "{count} {what}, and the bound is {bound}:{list}"
    );
}

#[test]
fn few_names_have_many_definitions() {
    let all = definitions();
    let common: BTreeMap<&str, &[String]> = all
        .iter()
        .filter(|(name, places)| places.len() >= MANY && !IDIOMS.contains(&name.as_str()))
        .map(|(name, places)| (name.as_str(), places.as_slice()))
        .collect();
    assert_bound(
        "names have three definitions or more",
        MAX_COMMON_NAMES,
        &common,
        common.len(),
    );
}

#[test]
fn few_names_are_participles() {
    let all = definitions();
    let participles: BTreeMap<&str, &[String]> = all
        .iter()
        .filter(|(name, _)| is_participle(name))
        .map(|(name, places)| (name.as_str(), places.as_slice()))
        .collect();
    let count = participles.values().map(|places| places.len()).sum();
    assert_bound(
        "types have a participle for a name",
        MAX_PARTICIPLES,
        &participles,
        count,
    );
}

#[test]
fn definitions_are_told_from_other_lines() {
    let names: BTreeSet<&str> = [
        "pub(in crate::a) struct Row<'a> {",
        "    enum Kind {",
        "pub type Table = Vec<u8>;",
        "    type Output = u8;",
        "// struct Comment",
        "let type_of = Job::new();",
        "trait Sink: Send {",
    ]
    .into_iter()
    .filter_map(defined)
    .collect();
    assert_eq!(names, BTreeSet::from(["Row", "Kind", "Table", "Sink"]));
    assert!(is_participle("Kept") && is_participle("Stored"));
    assert!(!is_participle("Seed") && !is_participle("NamedModel") && !is_participle("Bench"));
}
