//! Which files match on ops. Generic code asks an op (`Operation::product`, `attention`, `role`, `memory`, `weights`), so that a new one
//! needs no change there. Files that do name ops are listed below, with how often and why. A number never rises; a file without matches
//! leaves the list.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that take any op. A target matches the ops it takes, and `graph` and `verify` define and check each.
const GENERIC: [&str; 9] = [
    "capi",
    "cli",
    "ggml-plugin",
    "hub",
    "millrace",
    "model",
    "plan",
    "runtime",
    "server",
];

/// Files that name ops: how often, and for which purpose.
const ALLOWED: [(&str, usize, &str); 26] = [
    (
        "ggml-plugin/src/npu/plan.rs",
        2,
        "writes a graph of one product",
    ),
    (
        "model/src/adapter.rs",
        3,
        "adapters stand on plain products and one scale of the checkpoint",
    ),
    (
        "model/src/assistant.rs",
        2,
        "binds attention to a target's caches, and compares rotations",
    ),
    ("model/src/builder/ops.rs", 3, "builds graphs"),
    (
        "plan/src/attention_products.rs",
        1,
        "the ops that a target's products of attention replace",
    ),
    (
        "plan/src/experts.rs",
        1,
        "the op that has a dispatch for each expert",
    ),
    (
        "plan/src/graph.rs",
        6,
        "rotations and scales between a product and its attention",
    ),
    (
        "plan/src/offload.rs",
        11,
        "which op is which step of the host, and why the host has it",
    ),
    (
        "runtime/src/assistant.rs",
        1,
        "a target's embedding of a token",
    ),
    ("runtime/src/embedding.rs", 3, "takes the last norm apart"),
    (
        "runtime/src/execute/compute.rs",
        2,
        "ops that read what a pass brings",
    ),
    (
        "runtime/src/execute/experts.rs",
        2,
        "a choice's products in one parallel region",
    ),
    ("runtime/src/execute/head.rs", 1, "logits of several ranks"),
    (
        "runtime/src/execute/pass.rs",
        3,
        "ops that read the whole pass",
    ),
    ("runtime/src/execute/plan.rs", 2, "logits of several ranks"),
    ("runtime/src/image.rs", 1, "where rows of images enter"),
    ("runtime/src/npu/attention_products.rs", 1, "as in `plan`"),
    (
        "runtime/src/npu/cached.rs",
        1,
        "attention over the copy on the device",
    ),
    (
        "runtime/src/npu/given.rs",
        1,
        "a choice of experts that is given",
    ),
    ("runtime/src/npu/host.rs", 2, "steps of the host by name"),
    (
        "runtime/src/npu/prepared.rs",
        2,
        "steps that need nothing prepared",
    ),
    (
        "runtime/src/ranking.rs",
        1,
        "takes the score's product apart",
    ),
    ("runtime/src/ranks/plan.rs", 2, "what ranks gather"),
    ("runtime/src/shell.rs", 1, "rows that come with tokens"),
    ("runtime/src/speculate.rs", 1, "rows that come with tokens"),
    (
        "runtime/src/vision/open.rs",
        1,
        "where rows of images enter",
    ),
];
/// Tables with a row for each op.
const TABLES: [&str; 2] = [
    "runtime/src/execute/op_kernels.rs",
    "runtime/src/execute/recurrent.rs",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The rows of `ops!`.
fn variants() -> Vec<String> {
    let table = fs::read_to_string(crates().join("graph/src/op.rs")).unwrap();
    let (_, rows) = table.split_once("\nops! {\n").unwrap();
    let (rows, _) = rows.split_once("\n}\n").unwrap();
    let rows = rows.lines().map(str::trim);
    let rows = rows.filter(|line| !line.starts_with("//"));
    rows.map(|line| line.split('(').next().unwrap().to_owned())
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        match path.is_dir() {
            _ if is_test => {}
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
}

/// How often a text names an op of the graph, tests at its end left out.
fn count(text: &str, variants: &[String]) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split("Op::").skip(1));
    let is_op = |rest: &&str| {
        let end = rest.find(|c: char| !c.is_alphanumeric());
        let name = &rest[..end.unwrap_or(rest.len())];
        variants.iter().any(|variant| variant == name)
    };
    names.filter(is_op).count()
}

#[test]
fn generic_code_asks_ops() {
    let variants = variants();
    assert!(variants.len() > 25, "{variants:?}");
    let mut found = BTreeMap::new();
    for name in GENERIC {
        let mut files = Vec::new();
        sources(&crates().join(name).join("src"), &mut files);
        for file in files {
            let n = count(&fs::read_to_string(&file).unwrap(), &variants);
            let name = file.strip_prefix(crates()).unwrap().display().to_string();
            if n > 0 && !TABLES.contains(&name.as_str()) {
                found.insert(name, n);
            }
        }
    }
    let allowed = |file: &str| ALLOWED.iter().find(|(known, ..)| *known == file);
    let over = found
        .iter()
        .filter(|(file, n)| allowed(file).is_none_or(|(_, most, _)| *n > most));
    let over: Vec<String> = over
        .map(|(file, n)| format!("{file} names {n} ops"))
        .collect();
    assert!(
        over.is_empty(),
        "ask the op instead (`Operation::product`, `attention`, `role`, `memory`, `weights`):\n{}",
        over.join("\n")
    );
    let less = ALLOWED
        .iter()
        .filter(|(file, most, _)| found.get(*file).copied().unwrap_or(0) < *most);
    let less: Vec<&str> = less.map(|(file, ..)| *file).collect();
    assert!(
        less.is_empty(),
        "these name fewer ops than the list has: {less:?}"
    );
}

#[test]
fn names_of_ops_are_told_from_others() {
    let variants = variants();
    let text = "match op {\n    Op::Linear(_) | graph::Op::Glu(_) => 1, // Op::Add\n    // Op::Rope\n    Op::Linearity => 2,\n}\n\
                \n#[cfg(test)]\nmod tests {\n    Op::Add(Add)\n}\n";
    assert_eq!(count(text, &variants), 3);
}
