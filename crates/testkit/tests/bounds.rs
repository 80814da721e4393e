//! Lengths of files and functions. A reader holds a screen or two in mind, so longer ones are split.
//!
//! Bounds of counts are the counts reached so far, and never rise. If you shorten a function, lower the bound to the count in
//! the failure.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file.
const MAX_FILE: usize = 450;
/// Files that may be longer: tables of rows alone, and kernels, whose leaves share a loop.
const LONG_FILES: [&str; 6] = [
    "kernels/src/x86/avx512/attention.rs",
    "kernels/src/x86/avx512/superblock_rows.rs",
    "model/src/synth/geometry/table.rs",
    "xdna2-machine/src/tile/table.rs",
    "xdna2-machine/src/tile/token.rs",
    "xdna2-machine/src/timing/engine.rs",
];
/// Lines of a function.
const MAX_FUNCTION: usize = 60;
/// Functions of shipped code that are longer, outside of kernels.
const MAX_LONG_FUNCTIONS: usize = 25;
/// Functions of tests and examples that are longer, outside of kernels; most are lists of cases.
const MAX_LONG_TESTS: usize = 69;

/// Items and methods that a crate marks `pub`. An item that only the crate uses is `pub(crate)`; few are used by others.
const MAX_PUBLIC: [(&str, usize); 3] = [("plan", 352), ("rk3588", 248), ("tcp", 257)];

/// A function: where, and how many lines.
#[derive(Debug, PartialEq)]
struct FunctionLength {
    name: String,
    line: usize,
    n_lines: usize,
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every source file of every crate by its path below `crates`, with its text.
fn sources() -> Vec<(String, String)> {
    let mut folders = vec![crates()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if !path.ends_with("target") => folders.push(path),
                false if path.extension().is_some_and(|end| end == "rs") => files.push(path),
                _ => {}
            }
        }
    }
    let named = files.into_iter().map(|path| {
        let name = path.strip_prefix(crates()).unwrap();
        let name = name.to_string_lossy().replace('\\', "/");
        (name, fs::read_to_string(&path).unwrap())
    });
    let mut named: Vec<(String, String)> = named.collect();
    named.sort();
    named
}

/// The name of the function that a line begins.
fn function_name(line: &str) -> Option<&str> {
    let mut code = line.trim_start();
    if let Some(rest) = code.strip_prefix("pub") {
        code = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(") ")?.1,
            None => rest.strip_prefix(' ')?,
        };
    }
    for word in ["const ", "async ", "unsafe ", "extern \"C\" "] {
        code = code.strip_prefix(word).unwrap_or(code);
    }
    let name = code.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

/// The functions of a file as rustfmt writes it: the closing brace is below the first word of its function.
fn functions(text: &str) -> Vec<FunctionLength> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let is_at_indent = |line: &str| {
            line.strip_prefix(indent)
                .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
        };
        // On the same line, a declaration without a body, or a body.
        let end = lines[i..]
            .iter()
            .enumerate()
            .position(|(at, line)| match at {
                0 => line.ends_with(['}', ';']),
                _ => is_at_indent(line) && (*line == format!("{indent}}}") || line.ends_with(';')),
            });
        found.extend(end.map(|end| FunctionLength {
            name: name.to_owned(),
            line: i + 1,
            n_lines: end + 1,
        }));
    }
    found
}

/// Whether a file belongs to a test or an example.
fn is_test(path: &str) -> bool {
    let parts = ["/tests/", "/examples/", "/benches/", "/tests.rs"];
    parts.iter().any(|part| path.contains(part))
}

#[test]
fn files_are_short() {
    let files = sources();
    assert!(files.len() > 1000, "{} files", files.len());
    let is_long = |(_, text): &&(String, String)| text.lines().count() > MAX_FILE;
    let found: Vec<&str> = files
        .iter()
        .filter(is_long)
        .map(|(name, _)| name.as_str())
        .collect();
    let over: Vec<&&str> = found
        .iter()
        .filter(|name| !LONG_FILES.contains(*name))
        .collect();
    assert!(over.is_empty(), "over {MAX_FILE} lines: {over:?}");
    let short: Vec<&&str> = LONG_FILES
        .iter()
        .filter(|name| !found.contains(*name))
        .collect();
    assert!(
        short.is_empty(),
        "no longer over {MAX_FILE} lines: {short:?}"
    );
}

#[test]
fn functions_are_short() {
    let (mut shipped, mut tests) = (Vec::new(), Vec::new());
    for (path, text) in sources() {
        if path.starts_with("kernels/src/") && !is_test(&path) {
            continue;
        }
        let long = functions(&text).into_iter();
        let long = long.filter(|function| function.n_lines > MAX_FUNCTION);
        let long = long.map(|f| format!("{} {path}:{} {}", f.n_lines, f.line, f.name));
        match is_test(&path) {
            true => tests.extend(long),
            false => shipped.extend(long),
        }
    }
    for (what, found, bound) in [
        ("of what ships", shipped, MAX_LONG_FUNCTIONS),
        ("of tests", tests, MAX_LONG_TESTS),
    ] {
        assert!(
            found.len() <= bound,
            "{} functions {what} have over {MAX_FUNCTION} lines, the bound is {bound}:\n{}",
            found.len(),
            found.join("\n")
        );
    }
}

/// Whether a line begins a public item or method: fields and variants are their type's.
fn is_public_item(line: &str) -> bool {
    let Some(code) = line.trim_start().strip_prefix("pub ") else {
        return false;
    };
    let words = [
        "fn", "struct", "enum", "trait", "mod", "const", "static", "type", "use", "unsafe",
    ];
    code.split(' ')
        .next()
        .is_some_and(|word| words.contains(&word))
}

#[test]
fn surfaces_are_small() {
    let sources = sources();
    let mut over = Vec::new();
    for (name, bound) in MAX_PUBLIC {
        let folder = format!("{name}/src/");
        let files = sources
            .iter()
            .filter(|(path, _)| path.starts_with(&folder) && !is_test(path));
        let lines = files.flat_map(|(_, text)| text.lines());
        let found = lines.filter(|line| is_public_item(line)).count();
        if found > bound {
            over.push(format!(
                "{name} exports {found} items, the bound is {bound}"
            ));
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
    assert!(is_public_item("    pub const fn new() {"));
    assert!(!is_public_item("    pub name: String,") && !is_public_item("pub(crate) fn a() {}"));
}

/// The one reason for a test outside the gate.
const LONG: &str = "#[ignore = \"takes long; .ci/full runs it\"]";

#[test]
fn only_long_tests_are_ignored() {
    let n_lines = |text: &str, is_meant: &dyn Fn(&str) -> bool| {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| is_meant(line)).count()
    };
    let mut n_ignored = 0;
    for (path, text) in sources() {
        let ignored = n_lines(&text, &|line| line.starts_with("#[ignore"));
        assert_eq!(
            ignored,
            n_lines(&text, &|line| line == LONG),
            "{path}: another reason"
        );
        n_ignored += ignored;
    }
    assert!(
        (1..40).contains(&n_ignored),
        "{n_ignored} tests are ignored"
    );
}

#[test]
fn functions_are_measured() {
    let text = "fn one() {}\n\npub(crate) const fn two(\n    a: u8,\n) -> u8 {\n    let x = [\n        a,\n    ];\n    x[0]\n}\n\
                \ntrait T {\n    fn none(&self);\n\n    unsafe fn three() {\n        f();\n    }\n\n    fn long(\n        a: u8,\n    ) -> u8;\n}\n\
                // fn comment() {\nlet fnord = 1;\n";
    let found = functions(text);
    let found: Vec<(&str, usize, usize)> = found
        .iter()
        .map(|f| (f.name.as_str(), f.line, f.n_lines))
        .collect();
    let expected = [
        ("one", 1, 1),
        ("two", 3, 8),
        ("none", 13, 1),
        ("three", 15, 3),
        ("long", 19, 3),
    ];
    assert_eq!(found, expected);
}
