//! Every command on the virtual RK3588 board.

use crate::run::{FAILED, Finished, NOT_FOUND, OK, USAGE, finish, millrace};
use serde_json::Value;
use std::path::Path;

const ON_BOARD: [&str; 2] = ["--device", "rk3588"];

fn ended_in(dir: &Path, args: &[&str]) -> Finished {
    finish(
        millrace(dir)
            .args(args)
            .env("MILLRACE_NPU_CACHE", "")
            .env("MILLRACE_THREADS", "2"),
    )
}

fn ended(args: &[&str]) -> Finished {
    ended_in(&std::env::temp_dir(), args)
}

fn text(args: &[&str]) -> String {
    ended(args).expect(OK).stdout
}

fn json(args: &[&str]) -> Value {
    ended(&[args, &["--json"]].concat()).expect(OK).json()
}

fn on_board<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &ON_BOARD].concat()
}

#[test]
fn it_is_listed_with_what_can_be_set() {
    let listed = text(&["devices", "-v"]);
    for words in ["rk3588", "rocket-200", "per-call", "rotation", "fp16"] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
}

#[test]
fn it_writes_a_text_and_says_what_it_is() {
    let args = ["run", "demo", "The dog ran to the", "--greedy", "-n", "12"];
    let found = json(&on_board(&args));
    let device = found["npu"]["device"].as_str().unwrap_or_default();
    assert!(device.starts_with("RK3588 NPU (virtual board"), "{device}");
    assert!(found["npu"]["decode"]["device_ns"].as_u64() > Some(0));
    assert!(found["text"].as_str().is_some_and(|text| text.len() > 20));
    let bench = [
        "bench",
        "demo-draft",
        "-p",
        "20",
        "-n",
        "3",
        "-r",
        "1",
        "-o",
        "json",
    ];
    let rows: Value = serde_json::from_str(&text(&on_board(&bench))).expect("JSON");
    assert_eq!(rows[0]["backends"], "rk3588");
    assert_eq!(rows[0]["times"], "modelled(rocket-200, ±28.6 %)");
}

#[test]
fn it_chats() {
    use std::io::Write;
    use std::process::Stdio;
    let dir = std::env::temp_dir();
    let mut command = millrace(&dir);
    let args = on_board(&["chat", "demo-draft", "--greedy", "-n", "8"]);
    command.args(args).env("MILLRACE_NPU_CACHE", "");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(b"Hello!\nAnd now?\n/stats\n")
        .expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("ended");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(shown.contains("RK3588 NPU (virtual board"), "{shown}");
}

#[test]
fn it_predicts_a_text_nearly_as_the_cpu_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("text.txt");
    let story = "Once upon a time there was a little girl who lived near the woods. ".repeat(12);
    std::fs::write(&file, story).expect("written");
    let args = [
        "perplexity",
        "demo",
        file.to_str().expect("a path"),
        "-c",
        "64",
    ];
    let of = |args: &[&str]| json(args)["perplexity"].as_f64().expect("a number");
    let (by_cpu, by_board) = (of(&args), of(&on_board(&args)));
    assert!(
        (by_board / by_cpu - 1.0).abs() < 0.03,
        "{by_board} for {by_cpu}"
    );
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn it_is_checked_in_every_way_to_multiply() {
    for more in [
        &[][..],
        &["--without", "rotation"],
        &["--numerics", "fp16"],
        &["--mode", "per-call"],
        &["--set", "fp16=ffn_down@0+lm_head"],
        &["--set", "attention=npu"],
    ] {
        // The smaller of the models has products of every kind too.
        let args = [
            &on_board(&["verify", "demo-draft", "--tokens", "6"])[..],
            more,
        ]
        .concat();
        let found = json(&args);
        assert_eq!(found["passes"], true, "{more:?}: {found}");
    }
    let found = json(&on_board(&["diagnose", "demo-draft", "--bisect"]));
    assert!(found["n_ops"].as_u64() >= Some(30), "{found}");
    assert_eq!(found["finding"], Value::Null);
}

/// The check itself works: a board that is wrong in a slot fails, and the slot is named.
#[test]
fn a_wrong_board_fails() {
    let plans = json(&on_board(&["explain", "demo", "--prompt-tokens", "10"]));
    let program = plans["plans"][0]["programs"][0]["name"].as_str();
    let program = program.expect("a name").to_owned();
    for (slot, how) in [("c", "double"), ("b", "permute"), ("a", "zero")] {
        let corrupt = format!("{program}:{slot}:{how}");
        let args = [
            "diagnose",
            "demo",
            "A girl",
            "--bisect",
            "--corrupt",
            &corrupt,
        ];
        let failed = ended(&on_board(&args)).expect(FAILED);
        let named = failed.stderr.contains("attn_q of layer 0 is wrong");
        assert!(named, "{corrupt}: {}", failed.stderr);
    }
    let corrupt = format!("{program}:c:zero");
    let args = ["verify", "demo", "--tokens", "4", "--corrupt", &corrupt];
    ended(&on_board(&args)).expect(FAILED);
}

/// A sample of mutants finds most wrong boards.
#[test]
fn a_sample_of_wrong_boards_fails() {
    let found = json(&on_board(&["verify", "demo-draft", "--mutants", "sample"]));
    let n = found["n_mutants"]
        .as_u64()
        .or(found["mutants"].as_array().map(|m| m.len() as u64));
    assert!(n >= Some(20), "{found}");
}

#[test]
fn its_plans_are_explained_compiled_and_priced() {
    let args = ["explain", "--geometry", "llama-3.2-1b", "--layers", "1"];
    let shown = text(&on_board(&args));
    for words in [
        "8-bit with a scale a row, k rotated",
        "the device takes products",
        "ways that fit",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let op = text(&on_board(&["explain", "demo", "--op", "ffn_down"]));
    assert!(op.contains("banks of the CBUF"), "{op}");
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("a path");
    let args = on_board(&["compile", "demo", "--out", folder]);
    let from_cache = |report: Value| report["plans"][0]["from_cache"].clone();
    assert_eq!(from_cache(json(&args)), Value::Bool(false));
    assert_eq!(from_cache(json(&args)), Value::Bool(true));
    let priced = json(&on_board(&[
        "profile",
        "demo",
        "--prompt-tokens",
        "40",
        "-n",
        "2",
    ]));
    assert!(priced["prediction"]["ttft_ns"].as_f64() > Some(0.0));
    // The profile changes times and nothing else.
    let time = |more: &[&str]| {
        let args = ["profile", "--geometry", "llama-3.2-1b", "--layers", "1"];
        let found = json(&[&on_board(&args)[..], more].concat());
        found["prediction"]["ttft_ns"].as_f64().expect("a number")
    };
    assert!(time(&["--profile", "rocket-600"]) < time(&[]));
    assert!(time(&["--set", "profile.task_ns=200000"]) > time(&[]));
}

#[test]
fn its_products_are_looked_at_one_by_one() {
    assert!(text(&on_board(&["kernel"])).contains("int8-int32"));
    let found = json(&on_board(&["kernel", "int8-int32", "20x96x160"]));
    assert_eq!(found["computed"]["n_unequal"], 0, "{found}");
    assert_eq!(found["computed"]["n_compared"], 20 * 96);
    assert!(
        found["reason"]
            .as_str()
            .is_some_and(|r| r.contains("cheapest of"))
    );
    for name in [
        "int8-f32",
        "fp16-f32",
        "fp16-fp16",
        "bf16-f32",
        "int4-int16",
    ] {
        let found = json(&on_board(&["kernel", name, "9x70x128"]));
        assert_eq!(found["computed"]["n_unequal"], 0, "{found}");
    }
    let swept = json(&on_board(&[
        "kernel",
        "int8-int32",
        "128x2048x8192",
        "--sweep",
        "--top",
        "50",
    ]));
    let tilings = swept["tilings"].as_array().expect("tilings");
    assert!(tilings.len() > 5, "{swept}");
    assert!(
        tilings.iter().any(|tiling| tiling["default"] == true),
        "{swept}"
    );
    // Shapes from real models, with the longest k and the widest n among them.
    for shape in ["1x262144x1152", "128x1536x8960", "16x4096x14336"] {
        let args = ["kernel", "int8-int32", shape, "--time-only"];
        assert!(json(&on_board(&args))["n_tasks"].as_u64() > Some(0));
    }
    let refused = ended(&on_board(&[
        "kernel",
        "int8-int32",
        "8x8x8",
        "--tile",
        "rows=5",
    ]));
    let refused = refused.expect(USAGE).stderr;
    assert!(refused.contains("1 or a multiple of 4"), "{refused}");
    ended(&on_board(&["kernel", "int9", "8x8x8"])).expect(NOT_FOUND);
    ended(&on_board(&["kernel", "int8-int32", "8x8"])).expect(USAGE);
}

#[test]
fn a_program_of_ones_own_runs_and_a_wrong_one_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("product.rk");
    let program = text(&on_board(&["kernel", "int8-int32", "4x32x32", "--print"]));
    std::fs::write(&file, &program).expect("written");
    let path = file.to_str().expect("a path");
    let found = json(&on_board(&["kernel", "--program", path]));
    assert_eq!(found["computed"]["outputs"][0]["slot"], "c", "{found}");
    std::fs::write(
        &file,
        program.replace("WEIGHT_BYTES=0x400", "WEIGHT_BYTES=0x420"),
    )
    .expect("written");
    let refused = ended(&on_board(&["kernel", "--program", path])).expect(FAILED);
    assert!(
        refused.stderr.contains("would refuse"),
        "{}",
        refused.stderr
    );
}

#[test]
fn its_predictions_stand_beside_published_rows() {
    for which in [&[][..], &["--model"]] {
        let shown = text(&[&on_board(&["fidelity"])[..], which].concat());
        assert!(shown.contains("pass") && shown.contains(" *"), "{shown}");
        assert!(!shown.contains("FAIL"), "{shown}");
    }
    let found = json(&on_board(&["fidelity"]));
    assert!(found["rows"].as_array().map(Vec::len) > Some(20));
    ended(&on_board(&["fidelity", "--leave-out"])).expect(USAGE);
}

#[test]
fn it_is_probed_and_every_fault_is_told() {
    let found = json(&on_board(&["probe", "--virtual"]));
    let steps = found["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 8);
    assert!(
        found["figures"].as_array().map(Vec::len) == Some(4),
        "{found}"
    );
    let faults = json(&on_board(&["probe", "--virtual", "--fault", "list"]));
    let faults = faults.as_array().expect("faults");
    assert!(faults.len() >= 12);
    for fault in faults {
        let name = fault["name"].as_str().expect("a name");
        let ended = ended(&on_board(&["probe", "--virtual", "--fault", name]));
        // Interrupted work continues.
        let expected = if name == "interrupted" { OK } else { FAILED };
        let ended = ended.expect(expected);
        let advised = ended.stderr.contains("hint") || expected == OK;
        assert!(
            advised && ended.stdout.contains("skipped") == (expected != OK),
            "{name}: {}{}",
            ended.stdout,
            ended.stderr
        );
    }
    ended(&on_board(&["probe", "--virtual", "--fault", "nonsense"])).expect(USAGE);
    if !Path::new("/dev/accel").exists() {
        let absent = ended(&on_board(&["probe"])).expect(FAILED);
        assert!(absent.stderr.contains("--virtual"), "{}", absent.stderr);
    }
}

#[test]
fn wrong_settings_are_named() {
    for (more, problem) in [
        (
            &["--mode", "best"][..],
            "no mode `best` for rk3588: there is at-load, per-call",
        ),
        (&["--numerics", "int4"], "there is int8, fp16"),
        (&["--without", "alias"], "there is rotation"),
        (&["--set", "clock=1"], "no key `clock`; known are n_cores, "),
        (
            &["--set", "profile.clock_hz=1"],
            "expected a number from 1000000 to 10000000000 Hz",
        ),
        (
            &["--set", "n_cores"],
            "write key=value, as in n_cores=NUMBER",
        ),
    ] {
        let args = [&on_board(&["run", "demo-draft", "x"])[..], more].concat();
        let refused = ended(&args).expect(USAGE);
        assert!(
            refused.stderr.contains(problem),
            "{more:?}: {}",
            refused.stderr
        );
    }
}
