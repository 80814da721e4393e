//! Which crate may use which: the table of rooms in ARCHITECTURE.md against every crate's Cargo.toml.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Crates that only check. Of all others only the command line uses them.
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

/// Rows of the table, in its order: ``| `name` | what it holds | a, b |``, with a dash for none.
fn table(page: &str) -> Vec<Room> {
    let rooms = page
        .split("\n## ")
        .find(|part| part.starts_with("The rooms"));
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

/// The room of a package: its name without ours, but for the library, whose own name others have on the registry.
fn room(package: &str) -> Option<String> {
    let name = package.strip_prefix("millrace-")?;
    Some(match name {
        "llm" => "millrace".to_owned(),
        name => name.to_owned(),
    })
}

/// What a crate uses when it is shipped: not what its tests use.
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

/// By folder below `crates` and `models`.
fn crates() -> Vec<Room> {
    let folders =
        ["crates", "models"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let manifests = folders
        .into_iter()
        .flatten()
        .map(|folder| folder.unwrap().path().join("Cargo.toml"));
    let rooms = manifests.filter(|path| path.is_file()).map(|path| {
        let manifest: Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap();
        Room {
            name: room(name).unwrap(),
            uses: shipped_with(&manifest),
        }
    });
    rooms.collect()
}

/// What is not as the table has it, a line each.
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

#[test]
fn every_violation_is_named() {
    let page = "\n## The rooms\n\n| crate | holds | uses |\n|---|---|---|\n| `low` | it | – |\n| `high` | it | low |\n\
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
