//! Every crate's Cargo.toml: which crate may use which, by the table of rooms in ARCHITECTURE.md; and its fields for registries.
#![allow(clippy::unwrap_used)] // A test may panic.

use crate::names::files_below;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Crates that only check. Of all others, only the command line uses them.
const CHECKS: [&str; 2] = ["verify", "testkit"];
const MAY_CHECK: &str = "cli";

/// A crate and those of this workspace that it uses.
struct Room {
    name: String,
    uses: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Rows of the table, in its order: ``| `name` | contents | a, b |``, with a dash for none.
fn table(page: &str) -> Vec<Room> {
    let rooms = page.split("\n## ").find(|part| part.starts_with("Crates"));
    let rows = rooms
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 3, "three cells: {row}");
        let uses = cells[2].split(", ").filter(|name| *name != "–");
        Room {
            name: cells[0].trim_matches('`').to_owned(),
            uses: uses.map(str::to_owned).collect(),
        }
    })
    .collect()
}

/// The room of a package: its name without our prefix, except for the library, whose own name others have on the registry.
fn room(package: &str) -> Option<String> {
    let name = package.strip_prefix("millrace-")?;
    Some(match name {
        "llm" => "millrace".to_owned(),
        name => name.to_owned(),
    })
}

/// Dependencies of a crate as shipped, without those of its tests.
fn shipped_with(manifest: &Table) -> BTreeSet<String> {
    fn add(of: &Table, uses: &mut BTreeSet<String>) {
        let dependencies = of.get("dependencies").and_then(Value::as_table);
        let names = dependencies.into_iter().flat_map(Table::keys);
        uses.extend(names.filter_map(|name| room(name)));
    }
    let mut uses = BTreeSet::new();
    add(manifest, &mut uses);
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values);
    targets
        .filter_map(Value::as_table)
        .for_each(|target| add(target, &mut uses));
    uses
}

/// The folders below `crates` and `models` that have a manifest, with it.
fn manifests() -> Vec<(PathBuf, Table)> {
    let folders =
        ["crates", "models"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let folders = folders.into_iter().flatten();
    let folders = folders.map(|folder| folder.unwrap().path());
    let folders = folders.filter(|folder| folder.join("Cargo.toml").is_file());
    let manifests = folders.map(|folder| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        (folder, manifest.parse().unwrap())
    });
    manifests.collect()
}

/// By folder below `crates` and `models`.
fn crates() -> Vec<Room> {
    let rooms = manifests().into_iter().map(|(_, manifest)| {
        let name = manifest["package"]["name"].as_str().unwrap();
        Room {
            name: room(name).unwrap(),
            uses: shipped_with(&manifest),
        }
    });
    rooms.collect()
}

/// Differences from the table, a line each.
fn violations(table: &[Room], crates: &[Room]) -> Vec<String> {
    let floor = |name: &str| table.iter().position(|room| room.name == name);
    let mut lines = Vec::new();
    for room in crates {
        let Some(own) = floor(&room.name) else {
            lines.push(format!("{} has no row", room.name));
            continue;
        };
        for used in &room.uses {
            if floor(used).is_none_or(|floor| floor >= own) {
                lines.push(format!("{} points back to {used}", room.name));
            }
            if CHECKS.contains(&used.as_str()) && room.name != MAY_CHECK {
                lines.push(format!(
                    "{} depends on {used}, which only checks",
                    room.name
                ));
            }
            if !table[own].uses.contains(used) {
                lines.push(format!("the row of {} does not name {used}", room.name));
            }
        }
        for named in table[own].uses.difference(&room.uses) {
            lines.push(format!(
                "{} does not use {named}, its row says so",
                room.name
            ));
        }
    }
    let is_there = |row: &&Room| crates.iter().any(|room| room.name == row.name);
    let gone = table.iter().filter(|row| !is_there(row));
    lines.extend(gone.map(|row| format!("{} is a row and no crate", row.name)));
    lines
}

#[test]
fn nothing_points_back() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (table, crates) = (table(&page), crates());
    assert!(crates.len() > 15, "{} crates", crates.len());
    let lines = violations(&table, &crates);
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// Parts that a crate's page on a registry, and its packed sources, would lack.
fn lacks(folder: &Path, package: &Table, workspace: &Table) -> Vec<String> {
    if package.get("publish") == Some(&Value::Boolean(false)) {
        return Vec::new();
    }
    let own = |key: &str| package.get(key).filter(|value| !value.is_table());
    let value = |key: &str| {
        let inherited = package.get(key).and_then(Value::as_table);
        let inherited = inherited.filter(|table| table.get("workspace").is_some());
        own(key).or(inherited.and_then(|_| workspace.get(key)))
    };
    let mut lacks = Vec::new();
    for key in [
        "description",
        "license",
        "repository",
        "readme",
        "keywords",
        "categories",
    ] {
        if value(key).is_none() {
            lacks.push(key.to_owned());
        }
    }
    // The most that registries take.
    let many = |key: &str| value(key).and_then(Value::as_array).map_or(0, Vec::len);
    for key in ["keywords", "categories"] {
        if many(key) > 5 {
            lacks.push(format!("fewer {key}"));
        }
    }
    let docs = package
        .get("metadata")
        .and_then(|metadata| metadata.get("docs"));
    if docs.and_then(|docs| docs.get("rs")).is_none() {
        lacks.push("package.metadata.docs.rs".to_owned());
    }
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let text = std::fs::read(folder.join(file)).ok();
        if text.is_none() || text != std::fs::read(root().join(file)).ok() {
            lacks.push(format!("{file} of the workspace"));
        }
    }
    lacks
}

#[test]
fn crates_for_publishing_lack_nothing_that_registries_show() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let workspace: Table = workspace.parse().unwrap();
    let workspace = workspace["workspace"]["package"]
        .as_table()
        .unwrap()
        .clone();
    let mut lines = Vec::new();
    for (folder, manifest) in manifests() {
        let package = manifest["package"].as_table().unwrap();
        let lacks = lacks(&folder, package, &workspace);
        let name = &package["name"];
        lines.extend(lacks.iter().map(|lacked| format!("{name} lacks {lacked}")));
    }
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// The profile `quick` inherits the release's settings of single packages, so a package that it does not name is optimised.
#[test]
fn the_quick_profile_names_every_package_of_the_release() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let workspace: Table = workspace.parse().unwrap();
    let packages = |profile: &str| workspace["profile"][profile]["package"].as_table().unwrap();
    let quick = packages("quick");
    let missing: Vec<_> = packages("release")
        .keys()
        .filter(|name| !quick.contains_key(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "not in [profile.quick.package]: {missing:?}"
    );
}

#[test]
fn what_a_crate_lacks_is_named() {
    let workspace: Table = "license = 'MIT'\nrepository = 'r'\nreadme = 'README.md'"
        .parse()
        .unwrap();
    let package: Table =
        "name = 'x'\nlicense.workspace = true\nreadme.workspace = true\ndescription = 'd'\n\
                          keywords.workspace = true\ncategories = ['a', 'b', 'c', 'd', 'e', 'f']"
            .parse()
            .unwrap();
    let lacked = lacks(&root().join("docs"), &package, &workspace);
    let expected = [
        "repository",
        "keywords",
        "fewer categories",
        "package.metadata.docs.rs",
        "LICENSE-MIT of the workspace",
        "LICENSE-APACHE of the workspace",
    ];
    assert_eq!(lacked, expected);
    let own: Table = "publish = false".parse().unwrap();
    assert!(lacks(&root(), &own, &workspace).is_empty());
}

#[test]
fn every_violation_is_named() {
    let page = "\n## Crates\n\n| crate | holds | uses |\n|---|---|---|\n| `low` | it | – |\n| `high` | it | low |\n\
                | `verify` | it | high |\n| `gone` | it | – |\n\n## Next\n\n| `other` | it | high |\n";
    let room = |name: &str, manifest: &str| Room {
        name: name.to_owned(),
        uses: shipped_with(&manifest.parse().unwrap()),
    };
    let crates = [
        room(
            "low",
            "[target.'cfg(unix)'.dependencies]\nmillrace-high = {}",
        ),
        room(
            "high",
            "[dependencies]\nmillrace-verify.workspace = true\nserde = '1'",
        ),
        room(
            "verify",
            "[dev-dependencies]\nmillrace-high.workspace = true",
        ),
        room("new", ""),
    ];
    let expected = [
        "low points back to high",
        "the row of low does not name high",
        "high points back to verify",
        "high depends on verify, which only checks",
        "the row of high does not name verify",
        "high does not use low, its row says so",
        "verify does not use high, its row says so",
        "new has no row",
        "gone is a row and no crate",
    ];
    assert_eq!(violations(&table(page), &crates), expected);
}

/// Test files that a crate's `tests/main.rs` does not name: where that is the crate's one program of tests, cargo runs no other file.
fn forgotten_tests(names: &[String], main: &str) -> Vec<String> {
    let declared = |name: &&String| {
        let line = format!("mod {name};");
        main.lines().any(|found| found.trim() == line)
    };
    names
        .iter()
        .filter(|name| !declared(name))
        .cloned()
        .collect()
}

#[test]
fn every_file_of_tests_is_in_its_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut n_programs, mut forgotten) = (0, Vec::new());
    for entry in fs::read_dir(crates).unwrap() {
        let tests = entry.unwrap().path().join("tests");
        let Ok(main) = fs::read_to_string(tests.join("main.rs")) else {
            continue;
        };
        n_programs += 1;
        let files = fs::read_dir(&tests)
            .unwrap()
            .map(|file| file.unwrap().path());
        let is_code = |path: &PathBuf| {
            path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file()
        };
        let names = files
            .filter(is_code)
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
        let names: Vec<String> = names.filter(|name| name != "main").collect();
        let found = forgotten_tests(&names, &main).into_iter();
        forgotten.extend(found.map(|name| format!("{}: {name}", tests.display())));
    }
    assert!(n_programs >= 7, "{n_programs} programs");
    assert!(
        forgotten.is_empty(),
        "main.rs has no `mod` of {forgotten:?}"
    );
    let names = ["one", "two"].map(str::to_owned);
    assert_eq!(forgotten_tests(&names, "mod one;\n// mod two;\n"), ["two"]);
}

/// Whether documentation below this folder has code that tests would run.
fn has_example(folder: &Path) -> bool {
    const RUN: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];
    let mut paths = Vec::new();
    files_below(&folder.join("src"), &["rs"], &mut paths);
    paths.iter().any(|path| {
        let text = fs::read_to_string(path).unwrap();
        let comments = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///").or(line.strip_prefix("//!"))
        });
        let fences = comments.filter_map(|line| line.trim_start().strip_prefix("```"));
        // Every second fence closes one.
        fences
            .step_by(2)
            .any(|language| RUN.contains(&language.trim()))
    })
}

/// Rustdoc reads a whole crate to find that it has nothing to run.
#[test]
fn crates_whose_documentation_has_examples_run_them_and_no_others() {
    let mut n_with = 0;
    for (folder, manifest) in manifests() {
        let lib = manifest.get("lib").and_then(Value::as_table);
        let doctest = lib.and_then(|lib| lib.get("doctest"));
        let runs = doctest.and_then(Value::as_bool).unwrap_or(true);
        assert_eq!(
            runs,
            has_example(&folder),
            "`doctest` in {}/Cargo.toml",
            folder.display()
        );
        n_with += usize::from(runs);
    }
    assert!(n_with > 5, "{n_with} crates with examples");
}
