//! Names: one idea has one word, the field's, and a type's is a noun.
//!
//! A reader who meets `Row` or `Job` should not have to ask whose. The bounds below are the counts reached so far. To lower one, give
//! types the noun of their room (`BenchRow`, `PoolJob`), set the bound to 0, and run
//! `cargo test -p millrace-testkit --test testkit names`: the failure lists the remaining ones and counts them. That count is the bound. A bound never rises.
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

/// Names that the language's idiom asks for: a crate's `Error`.
const IDIOMS: [&str; 1] = ["Error"];

/// Participles without a regular ending, and nouns that end as participles do.
const IRREGULAR: [&str; 34] = [
    "Bound", "Broken", "Built", "Chosen", "Cut", "Done", "Drawn", "Found", "Given", "Gone", "Held",
    "Hidden", "Kept", "Known", "Laid", "Left", "Lent", "Lost", "Made", "Meant", "Met", "Put",
    "Read", "Said", "Seen", "Sent", "Shown", "Spent", "Spread", "Taken", "Told", "Unseen", "Won",
    "Written",
];
const NOUNS: [&str; 4] = ["Embed", "Feed", "Need", "Seed"];

/// Words that the field's words replaced, with these. No part of a name and no sentence has them; only CHANGELOG.md mentions
/// them.
const FORMER_WORDS: [(&str, &str); 2] = [("picture", "image"), ("tower", "vision encoder")];
/// Whole names that were replaced.
const FORMER_NAMES: [(&str, &str); 3] = [
    ("Told", "ResponseContext"),
    ("Standing", "PassPosition"),
    ("come_or_go", "load_or_unload"),
];
/// Names of modules that were replaced.
const FORMER_MODULES: [(&str, &str); 5] = [
    ("attended", "attention_products"),
    ("over", "cached"),
    ("joined", "fused"),
    ("all_rows", "full_head"),
    ("functional", "simulate"),
];
/// Names of tensors and crates of other programs.
const OF_OTHERS: [&str; 2] = ["vision_tower", "tower_service"];

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

/// Compares a count with its bound. Where it is too large, lists the counted names.
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

/// Files below a folder whose name ends so, but for built ones.
pub(crate) fn files_below(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_built = ["target", "reports", "node_modules"]
            .iter()
            .any(|name| path.ends_with(name));
        let is_text = |path: &Path| {
            path.extension()
                .is_some_and(|end| ends.iter().any(|e| *e == end))
        };
        match path.is_dir() {
            true if !is_built => files_below(&path, ends, found),
            false if is_text(&path) => found.push(path),
            _ => {}
        }
    }
}

/// Everything that people read: sources, tests, pages. It excludes the list of licences, which names crates of others, and
/// this file.
fn texts() -> Vec<PathBuf> {
    let root = crates().join("..");
    let mut files = Vec::new();
    files_below(
        &crates(),
        &["rs", "html", "py", "pyi", "h", "c"],
        &mut files,
    );
    files_below(&root.join("docs"), &["md"], &mut files);
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
    files.extend(pages.map(|page| root.join(page)));
    files.retain(|path| !path.ends_with("licenses.md") && !path.ends_with("tests/names.rs"));
    files
}

/// The parts of a name in lower case: of `VisionEncoder` and `vision_encoder` the same two.
fn parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut before = '_';
    for c in name.chars() {
        let begins = c.is_uppercase() && before.is_lowercase() || before == '_';
        if begins {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.extend(c.to_lowercase());
        }
        before = c;
    }
    parts
}

/// The new name for a name that has a former word, if it has one.
fn better(name: &str) -> Option<&'static str> {
    let whole = FORMER_NAMES.iter().find(|(former, _)| *former == name);
    let is_of_others = OF_OTHERS.contains(&name);
    let has = |word: &str| {
        let is_it = |part: &String| part.strip_suffix('s').unwrap_or(part) == word;
        parts(name).iter().any(is_it)
    };
    let part = FORMER_WORDS
        .iter()
        .find(|(former, _)| has(former) && !is_of_others);
    whole.or(part).map(|(_, better)| *better)
}

#[test]
fn no_word_of_before_comes_back() {
    let mut found = Vec::new();
    let files = texts();
    assert!(files.len() > 1000, "{} files", files.len());
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for (i, line) in text.lines().enumerate() {
            let names = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            for (name, better) in names.filter_map(|name| Some((name, better(name)?))) {
                let place = format!("{}:{}", path.display(), i + 1);
                found.push(format!("{place}: `{name}` is called {better}"));
            }
        }
        let module = path.file_stem().and_then(|stem| stem.to_str());
        let former = FORMER_MODULES
            .iter()
            .find(|(former, _)| module == Some(former));
        if let Some((_, better)) = former.filter(|_| path.extension().is_some_and(|e| e == "rs")) {
            found.push(format!("{}: the module is {better}", path.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn words_of_before_are_told_from_others() {
    for name in [
        "Picture",
        "picture_size",
        "RgbPictures",
        "n_towers",
        "TowerLayer",
        "Told",
    ] {
        assert!(better(name).is_some(), "{name}");
    }
    for name in [
        "vision_tower",
        "tower_service",
        "towering",
        "ToldApart",
        "image",
        "",
    ] {
        assert!(better(name).is_none(), "{name}: {:?}", better(name));
    }
}
