//! `aie`: designs of `testdata/aie`, and the page that shows them.

use crate::run::{BAD_INPUT, FAILED, NOT_FOUND, OK, USAGE, finish, millrace};
use crate::transcripts::{matches, root, transcripts, words};
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

/// A folder with all designs, and one design whose lock release is missing.
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
    let shown = |page: &str| {
        let page = fs::read_to_string(root().join(page)).expect("a page");
        let all = transcripts(&page).into_iter();
        all.filter(|of| of.command.starts_with("aie "))
            .collect::<Vec<_>>()
    };
    let home = designs();
    let (own, other) = (shown("docs/aie.md"), shown("docs/xdna2.md"));
    assert!(own.len() >= 6 && other.len() == 2, "{own:?} {other:?}");
    for transcript in own.into_iter().chain(other) {
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
            panic!("a page: millrace {}\n{problem}", transcript.command);
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
        "aie.device(npu2) {\n  aie.unheard(%a)\n}",
    )
    .expect("written");
    for command in ["run", "verify", "words"] {
        let found = aie(home.path(), &[command, "odd.mlir"]).expect(BAD_INPUT);
        assert!(
            found
                .stderr
                .contains("odd.mlir: line 2, column 3: `aie.unheard`: this op is not known here"),
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

/// A stream that is written is read by `npu words`, which lists the same.
#[test]
fn a_stream_is_written_and_read() {
    let home = designs();
    let arguments = ["words", "physical.mlir", "--output", "insts.bin"];
    let listed = aie(home.path(), &arguments).expect(OK).stdout;
    let read = ["npu", "words", "insts.bin"];
    let read = finish(millrace(home.path()).current_dir(home.path()).args(read));
    assert_eq!(read.expect(OK).stdout, listed);
    let nowhere = ["words", "physical.mlir", "--output", "none/insts.bin"];
    let refused = aie(home.path(), &nowhere);
    assert_ne!(refused.code, OK);
    assert!(refused.stderr.contains("insts.bin"), "{}", refused.stderr);
}

/// What memory held that nothing set is no verdict: exit code 3, and how to have one. A number that nobody takes is a slip.
#[test]
fn unset_memory_and_unknown_numbers_are_told() {
    let home = designs();
    let text = fs::read_to_string(home.path().join("vector_add.mlir")).expect("a design");
    let kept = text.lines().filter(|line| !line.contains("memref.store"));
    let unset = kept.collect::<Vec<_>>().join("\n");
    assert_ne!(unset.len(), text.trim_end().len());
    fs::write(home.path().join("unset.mlir"), unset).expect("written");
    let told = aie(home.path(), &["run", "unset.mlir"]).expect(BAD_INPUT);
    for words in [
        "CANNOT TELL: ",
        "`--zero-memory` runs it with zeros",
        "none hung",
    ] {
        assert!(told.stdout.contains(words), "{}", told.stdout);
    }
    let told = aie(home.path(), &["run", "unset.mlir", "--json"]).expect(BAD_INPUT);
    assert_eq!(told.json()["verdict"], "CANNOT TELL");
    aie(home.path(), &["run", "unset.mlir", "--zero-memory"]).expect(OK);
    let numbers = "run scratchpad.mlir --number start=0 --number factor=1 --number strat=4";
    let arguments: Vec<&str> = numbers.split(' ').collect();
    let refused = aie(home.path(), &arguments).expect(BAD_INPUT).stderr;
    let words = "--number strat: no number has that name; the design takes factor, start,";
    assert!(refused.contains(words), "{refused}");
}

fn verified_operations(home: &Path, design: &str) -> Option<usize> {
    let verified = aie(home, &["verify", design, "--json"]).expect(OK).json();
    verified["operations"].as_u64().map(|n| n as usize)
}

/// Exported designs are read back, and computed with the tile kernels that they name.
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

/// Times are labelled as modelled, follow the profile, and leave a trace that opens.
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

/// Packet streams on routes chosen here are not a plain PASS, in words or as JSON; a text's own routes decide.
#[test]
fn routes_of_ours_are_told() {
    let home = designs();
    let routed = fs::read_to_string(home.path().join("routed.mlir")).expect("a design");
    let alone = routed.split("// -----").next().expect("a design");
    fs::write(home.path().join("alone.mlir"), alone).expect("written");
    let shared = routed.replace("%of_b = aie.amsel<1> (0)", "%of_b = aie.amsel<0> (1)");
    fs::write(home.path().join("shared.mlir"), shared).expect("written");
    let ran = aie(home.path(), &["run", "alone.mlir"]).expect(OK).stdout;
    assert!(ran.contains("PASS on routes of ours in "), "{ran}");
    assert!(ran.contains("it may hang"), "{ran}");
    let json = |name: &str, code| {
        aie(home.path(), &["run", name, "--json"])
            .expect(code)
            .json()
    };
    assert_eq!(json("alone.mlir", OK)["verdict"], "PASS on routes of ours");
    assert_eq!(json("routed.mlir", OK)["verdict"], "PASS");
    assert_eq!(json("shared.mlir", FAILED)["verdict"], "HANG");
    let timed = aie(home.path(), &["time", "alone.mlir", "--json"])
        .expect(OK)
        .json();
    assert_eq!(timed["verdict"], "PASS on routes of ours");
}

/// `run` takes all devices of a text in turn. Other commands ask which device and sequence to take, and accept their names.
#[test]
fn devices_and_sequences_are_chosen() {
    let home = designs();
    let one = fs::read_to_string(home.path().join("passthrough.mlir")).expect("a design");
    let named = |name: &str| {
        one.replacen(
            "aie.device(npu2_1col)",
            &format!("aie.device(npu2_1col) @{name}"),
            1,
        )
    };
    let two = format!("{}\n// -----\n{}", named("first"), named("second"));
    fs::write(home.path().join("two.mlir"), two).expect("written");
    let both = aie(home.path(), &["run", "two.mlir"]).expect(OK).stdout;
    assert!(
        both.contains("@first") && both.contains("@second"),
        "{both}"
    );
    let asked = aie(home.path(), &["words", "two.mlir"])
        .expect(BAD_INPUT)
        .stderr;
    assert!(asked.contains("--device-name (1 @first in line"), "{asked}");
    aie(home.path(), &["run", "two.mlir", "--device-name", "second"]).expect(OK);
    let none = aie(
        home.path(),
        &["verify", "two.mlir", "--device-name", "third"],
    )
    .expect(BAD_INPUT);
    assert!(
        none.stderr.contains("there is no device @third"),
        "{}",
        none.stderr
    );
    let none = aie(
        home.path(),
        &["words", "passthrough.mlir", "--sequence", "other"],
    )
    .expect(BAD_INPUT);
    assert!(
        none.stderr.contains("there is no sequence @other"),
        "{}",
        none.stderr
    );
}
