//! `aie`: designs of `testdata/aie`, and the page that shows them.

use crate::run::{BAD_INPUT, FAILED, NOT_FOUND, OK, USAGE, finish, millrace};
use crate::transcripts::{matches, root, transcripts, words};
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

/// A folder with all designs, and one that lacks a release.
fn designs() -> TempDir {
    let home = tempdir().expect("a folder");
    for file in fs::read_dir(root().join("testdata/aie")).expect("a folder") {
        let path = file.expect("a file").path();
        fs::copy(&path, home.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    let good = fs::read_to_string(home.path().join("vector_add.mlir")).expect("a design");
    let line = "        aie.objectfifo.release @sum(Produce, 1)\n";
    assert!(good.contains(line));
    fs::write(home.path().join("broken.mlir"), good.replace(line, "")).expect("written");
    home
}

fn aie(home: &Path, arguments: &[&str]) -> crate::run::Finished {
    finish(millrace(home).current_dir(home).arg("aie").args(arguments))
}

#[test]
fn the_page_shows_what_is_printed() {
    let page = fs::read_to_string(root().join("docs/aie.md")).expect("a page");
    let home = designs();
    let all = transcripts(&page);
    assert!(all.len() >= 5, "{all:?}");
    for transcript in all {
        let command = words(&transcript.command);
        let found = finish(
            millrace(home.path())
                .current_dir(home.path())
                .args(&command),
        );
        let is_hang = transcript.shown.iter().any(|line| line.starts_with("HANG"));
        assert_eq!(
            found.code,
            if is_hang { FAILED } else { OK },
            "{command:?}: {}",
            found.stderr
        );
        let lines: Vec<String> = found.stdout.lines().map(str::to_owned).collect();
        if let Err(problem) = matches(&transcript.shown, &lines) {
            panic!("docs/aie.md: millrace {}\n{problem}", transcript.command);
        }
    }
}

#[test]
fn files_go_in_and_come_out() {
    let home = designs();
    let bytes = |of: &dyn Fn(i32) -> i32| {
        (0..256)
            .flat_map(|i| of(i).to_le_bytes())
            .collect::<Vec<u8>>()
    };
    fs::write(home.path().join("a.bin"), bytes(&|i| 3 * i)).expect("written");
    fs::write(home.path().join("b.bin"), bytes(&|i| 7 - i)).expect("written");
    let run = [
        "run",
        "vector_add.mlir",
        "--input",
        "a.bin",
        "--input",
        "b.bin",
        "--output",
        "out",
    ];
    aie(home.path(), &run).expect(OK);
    let sums = fs::read(home.path().join("out/arg2.bin")).expect("an output");
    assert_eq!(sums, bytes(&|i| 2 * i + 7));
    let short = aie(
        home.path(),
        &["run", "passthrough.mlir", "--input", "a.bin"],
    )
    .expect(BAD_INPUT);
    assert!(
        short
            .stderr
            .contains("a.bin has 1024 bytes; argument 0 (%from: memref<1024xi32>) has 4096"),
        "{}",
        short.stderr
    );
    aie(home.path(), &["run", "packets.mlir", "--input", "a.bin"]).expect(USAGE);
    aie(home.path(), &["run", "no.mlir"]).expect(NOT_FOUND);
}

#[test]
fn a_refusal_names_file_line_column_and_op() {
    let home = designs();
    fs::write(
        home.path().join("odd.mlir"),
        "aie.device(npu2) {\n  aie.switchbox(%a)\n}",
    )
    .expect("written");
    for command in ["run", "verify", "words"] {
        let found = aie(home.path(), &[command, "odd.mlir"]).expect(BAD_INPUT);
        assert!(
            found
                .stderr
                .contains("odd.mlir: line 2, column 3: `aie.switchbox`: this op is not known here"),
            "{}",
            found.stderr
        );
    }
    fs::write(home.path().join("latin.mlir"), b"module { // \xe9\n}").expect("written");
    let found = aie(home.path(), &["run", "latin.mlir"]).expect(BAD_INPUT);
    assert!(
        found.stderr.contains("byte 12 is no UTF-8"),
        "{}",
        found.stderr
    );
}

#[test]
fn json_says_the_same() {
    let home = designs();
    let pass = aie(home.path(), &["run", "join.mlir", "--json"])
        .expect(OK)
        .json();
    assert_eq!(
        (&pass["verdict"], &pass["outputs"][0]["first"]),
        (&"PASS".into(), &"101 102 103 104 105 106 107 108 …".into())
    );
    let hang = aie(home.path(), &["run", "deadlock.mlir", "--json"])
        .expect(FAILED)
        .json();
    assert_eq!(hang["verdict"], "HANG");
    let ring = hang["ring"].as_array().expect("lines");
    assert!(
        ring.iter().any(|line| line == "from here on it is a ring:"),
        "{ring:?}"
    );
    let verified = aie(home.path(), &["verify", "matmul.mlir", "--json"])
        .expect(OK)
        .json();
    assert_eq!(
        (&verified["streams"], &verified["reads"]),
        (&8.into(), &serde_json::json!([0, 1]))
    );
    let words = aie(home.path(), &["words", "physical.mlir", "--json"])
        .expect(OK)
        .json();
    assert_eq!(
        words["operations"].as_array().map(Vec::len),
        verified_operations(home.path(), "physical.mlir")
    );
}

fn verified_operations(home: &Path, design: &str) -> Option<usize> {
    let verified = aie(home, &["verify", design, "--json"]).expect(OK).json();
    verified["operations"].as_u64().map(|n| n as usize)
}

/// Designs that are exported are read back, and computed with the tile kernels that they name.
#[test]
fn exported_designs_run() {
    let home = tempdir().expect("a folder");
    let export = ["export", "demo-draft", "--device", "xdna2", "--out", "out"];
    finish(millrace(home.path()).current_dir(home.path()).args(export)).expect(OK);
    let readme = fs::read_to_string(home.path().join("out/README.md")).expect("a page");
    assert!(readme.contains("Never run on hardware"), "{readme}");
    assert!(!readme.contains("without a design"), "{readme}");
    let folder = fs::read_dir(home.path().join("out/designs")).expect("a folder");
    let mut names: Vec<String> = folder
        .map(|file| {
            file.expect("a file")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    names.sort();
    assert!(names.len() > 5, "{names:?}");
    for name in &names {
        assert!(readme.contains(&format!("designs/{name}")), "{name}");
    }
    let design = format!("out/designs/{}", names[0]);
    let text = fs::read_to_string(home.path().join(&design)).expect("a design");
    let functions = text.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("func.func private @")?;
        Some(name.split('(').next().unwrap_or_default().to_owned())
    });
    for function in functions {
        let shell = home.path().join(format!("out/kernels/{function}.cc"));
        let shell = fs::read_to_string(shell).expect("a shell");
        assert!(
            shell.contains(&format!("extern \"C\" void {function}(")),
            "{shell}"
        );
        let whole = ["zero_f32", "zero_bf16", "zero_i32", "copy_bf16", "copy_i8"];
        let is_whole = whole
            .iter()
            .any(|name| function.starts_with(&format!("millrace_{name}__")));
        assert_eq!(!shell.contains("#error"), is_whole, "{shell}");
    }
    let output = aie(home.path(), &["run", &design, "--orders", "1"])
        .expect(OK)
        .stdout;
    assert!(output.contains("is taken for: tile kernel"), "{output}");
    assert!(output.contains("PASS"), "{output}");
}

/// Times say that they are modelled, follow the profile, and leave a trace that opens.
#[test]
fn times_are_modelled_and_traced() {
    let home = designs();
    let text = aie(home.path(), &["time", "join.mlir"]).expect(OK).stdout;
    assert!(text.contains("never measured on hardware"), "{text}");
    let time = |more: &[&str]| {
        let command = [&["time", "join.mlir", "--json"], more].concat();
        let found = aie(home.path(), &command).expect(OK).json();
        found["time"]["total_ns"].as_f64().expect("a time")
    };
    let base = time(&[]);
    let slow = "name = \"slow\"\nsummary = \"slow\"\nbase = \"air-strix-2026\"\nkernel_error_percent = 0\n\
                prompt_error_percent = 0\ntoken_error_percent = 0\n[dispatch.issue_ns]\nvalue = 75000\n\
                origin = \"derived\"\nsource = \"a test\"\n";
    fs::write(home.path().join("slow.toml"), slow).expect("written");
    assert!(time(&["--profile", "slow.toml"]) > 2.0 * base);
    aie(home.path(), &["time", "join.mlir", "--profile", "none"]).expect(USAGE);
    let hang = aie(home.path(), &["time", "deadlock.mlir"]).expect(FAILED);
    assert!(hang.stdout.contains("HANG"), "{}", hang.stdout);
    aie(home.path(), &["run", "join.mlir", "--trace", "t.json"]).expect(OK);
    let trace = fs::read_to_string(home.path().join("t.json")).expect("a trace");
    let summary = millrace_npu::trace::check_chrome(&trace).expect("a trace");
    assert!(summary.groups().contains("shims"), "{:?}", summary.groups());
}
