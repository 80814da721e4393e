//! `verify`, and `run` on the virtual NPU.

use crate::run::{BAD_INPUT, FAILED, Finished, NOT_FOUND, OK, USAGE, finish, millrace};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::tempdir;

const MODEL: &str = "demo-draft";

fn run(home: &Path, arguments: &[&str]) -> Finished {
    finish(millrace(home).args(arguments))
}

#[test]
fn a_device_passes_beside_the_cpu_and_beside_a_file_of_it() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let common = [
        "verify", MODEL, "--device", "xdna2", "--tokens", "6", "--json",
    ];
    let report = run(home, &[&common[..], &["--save", "ref.json"]].concat())
        .expect(OK)
        .json();
    assert_eq!(report["passes"], true);
    assert_eq!(report["prompts"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["npu"]["prefill"]["n_passes"], 2);
    let times = report["npu"]["times_are"].as_str().unwrap_or_default();
    assert!(times.starts_with("modelled("), "{times}");
    let again = run(home, &[&common[..], &["--reference", "ref.json"]].concat())
        .expect(OK)
        .json();
    assert_eq!(again["prompts"], report["prompts"]);
}

/// A gate that cannot fail checks nothing.
#[test]
fn a_wrong_token_fails_with_its_rank() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let common = ["verify", MODEL, "--tokens", "4"];
    run(home, &[&common[..], &["--save", "ref.json"]].concat()).expect(OK);
    let path = home.join("ref.json");
    let text = fs::read_to_string(&path).expect("the reference");
    let mut reference: Value = serde_json::from_str(&text).expect("JSON");
    // Two tokens of the vocabulary's single bytes, which no story begins with.
    let step = &mut reference["prompts"][0]["steps"][1];
    step["token"] = 3.into();
    step["top"] = vec![3, 200, 201, 202, 203].into();
    fs::write(&path, reference.to_string()).expect("write");
    let with_file = [&common[..], &["--reference", "ref.json"]].concat();
    let found = run(home, &with_file);
    assert_eq!(found.code, FAILED, "{}", found.stderr);
    assert!(
        found.stdout.contains("FAIL") && found.stdout.contains("(> 10)"),
        "{}",
        found.stdout
    );
    let json = run(home, &[&with_file[..], &["--json"]].concat());
    assert_eq!(json.code, FAILED);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON in spite of it");
    assert_eq!(json["passes"], false);
    assert_eq!(json["prompts"][0]["divergence"]["step"], 1);
    assert_eq!(json["prompts"][0]["divergence"]["reference_token"], 3);
    assert_eq!(json["prompts"][1]["passes"], true);
}

#[test]
fn references_and_machines_that_do_not_fit() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    fs::write(home.join("bad.json"), "{}").expect("write");
    for (arguments, code, mentions) in [
        (["--reference", "bad.json"], BAD_INPUT, "--save"),
        (["--reference", "none.json"], NOT_FOUND, "none.json"),
        (["--device", "abacus"], USAGE, "xdna2"),
        (["--machine", "abacus"], NOT_FOUND, "npu2"),
        (["--tokens", "0"], USAGE, "--tokens"),
    ] {
        let arguments = [&["verify", MODEL][..], &arguments].concat();
        run(home, &arguments).expect_error(code, &[mentions]);
    }
}

#[test]
fn run_writes_on_the_npu_and_says_that_times_are_modelled() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let common = ["run", MODEL, "Once upon a time", "-n", "6", "--greedy"];
    let on_npu = [&common[..], &["--device", "xdna2"]].concat();
    let found = run(home, &on_npu).expect(OK);
    assert!(
        found.stderr.contains("modelled(") && found.stderr.contains("simulated"),
        "{}",
        found.stderr
    );
    let cpu = run(home, &common).expect(OK);
    assert_eq!(found.stdout, cpu.stdout);
    let report = run(
        home,
        &[&on_npu[..], &["--json", "--mode", "reference"]].concat(),
    )
    .expect(OK)
    .json();
    assert_eq!(report["npu"]["prefill"]["n_padded_tokens"], 2048);
    assert_eq!(report["npu"]["decode"]["n_dispatches"], 5 * 5);
    run(home, &[&on_npu[..], &["-c", "8"]].concat()).expect_error(USAGE, &["context"]);
}

/// What transformers wrote in bf16, committed: for the demo, and for random models that are made here.
#[test]
fn devices_pass_beside_transformers() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let references = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/npu_reference");
    for model in ["llama-tiny", "qwen-tiny", "gemma-tiny"] {
        run(home, &["synth", model, model, "--type", "BF16"]).expect(OK);
        let file = references.join(format!("{model}.json"));
        let file = file.to_str().expect("UTF-8");
        let arguments = [
            "verify",
            model,
            "--reference",
            file,
            "--tokens",
            "8",
            "--json",
        ];
        let report = run(home, &arguments).expect(OK).json();
        let source = report["reference"].as_str().unwrap_or_default();
        assert!(source.starts_with("transformers"), "{source}");
        assert_eq!(report["prompts"].as_array().map(Vec::len), Some(8));
        assert_eq!(report["passes"], true);
    }
}

/// A gate that lets a wrong device through checks nothing. Random models have no margin that would
/// hide it.
#[test]
fn a_wrong_device_fails() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    run(home, &["synth", "llama-tiny", "m", "--type", "BF16"]).expect(OK);
    let file = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("../../testdata/npu_reference/llama-tiny.json");
    let file = file.to_str().expect("UTF-8");
    let arguments = ["verify", "m", "--reference", file, "--tokens", "4"];
    let wrong = [&arguments[..], &["--corrupt", "flash_attn:attn"]].concat();
    let found = run(home, &wrong);
    assert_eq!(found.code, FAILED, "{}\n{}", found.stdout, found.stderr);
    assert!(found.stdout.contains("FAIL"), "{}", found.stdout);
}

#[test]
fn transformers_that_are_not_here_say_what_to_install() {
    let home = tempdir().expect("a folder");
    fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft.gguf"),
        home.path().join("m.gguf"),
    )
    .expect("copied");
    let mut command = millrace(home.path());
    command.args(["verify", "m.gguf", "--reference", "hf"]);
    let found = finish(command.env("MILLRACE_PYTHON", "no-such-python"));
    found.expect_error(
        NOT_FOUND,
        &["no-such-python", "pip install", "transformers"],
    );
    let built_in = run(home.path(), &["verify", MODEL, "--reference", "hf"]);
    built_in.expect_error(USAGE, &["files", "GGUF"]);
}
