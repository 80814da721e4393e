//! Help, completions, manual pages, and the commands that look at the machine and at files.

use crate::models;
use crate::run::{IO, OK, USAGE, finish, millrace, shell};
use std::process::Command;
use tempfile::tempdir;

const COMMANDS: [&str; 16] = [
    "run",
    "chat",
    "pull",
    "info",
    "bench",
    "perplexity",
    "tokenize",
    "logits",
    "embed",
    "rerank",
    "quantize",
    "synth",
    "devices",
    "doctor",
    "completions",
    "man",
];

fn here(arguments: &[&str]) -> Command {
    let mut command = millrace(std::env::temp_dir().as_path());
    command.args(arguments);
    command
}

#[test]
fn help_lists_every_command_and_the_exit_codes() {
    let help = finish(&mut here(&["--help"])).expect(OK).stdout;
    for command in COMMANDS {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command} is not in:\n{help}"
        );
    }
    for text in ["Exit codes:", "130", "HF_TOKEN", "millrace run demo"] {
        assert!(help.contains(text), "{text}");
    }
    let version = finish(&mut here(&["--version"])).expect(OK).stdout;
    assert_eq!(
        version.trim(),
        concat!("millrace ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn every_command_has_help_with_examples() {
    for command in COMMANDS {
        let help = finish(&mut here(&[command, "--help"])).expect(OK).stdout;
        assert!(help.contains(&format!("millrace {command}")), "{help}");
        assert!(help.contains("Examples:"), "{help}");
    }
}

#[test]
fn wrong_usage_is_code_2_and_names_the_right_one() {
    let typo = finish(&mut here(&["perplexty"])).expect(USAGE);
    assert!(typo.stderr.contains("'perplexity'"), "{}", typo.stderr);
    let flag = finish(&mut here(&["run", "demo", "x", "--max-tokes", "5"])).expect(USAGE);
    assert!(flag.stderr.contains("--max-tokens"), "{}", flag.stderr);
    let level = finish(&mut here(&["doctor", "--cpu-level", "sse9"])).expect(USAGE);
    assert!(level.stderr.contains("scalar"), "{}", level.stderr);
    finish(&mut here(&[])).expect(USAGE);
}

#[test]
fn completions_for_every_shell() {
    for name in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = finish(&mut here(&["completions", name])).expect(OK).stdout;
        assert!(script.contains("perplexity"), "{name}");
    }
}

#[test]
fn manual_pages_for_every_command() {
    let dir = tempdir().expect("a temporary folder");
    let man = dir.path().join("new/man1");
    finish(millrace(dir.path()).arg("man").arg(&man)).expect(OK);
    let page = |name: &str| std::fs::read_to_string(man.join(name)).expect(name);
    assert!(page("millrace.1").contains("Exit codes"));
    for command in COMMANDS {
        let text = page(&format!("millrace-{command}.1"));
        assert!(
            text.contains("SYNOPSIS") && text.contains("Examples"),
            "{command}"
        );
    }
}

#[test]
fn devices_names_the_processor_and_its_level() {
    let json = finish(&mut here(&["devices", "--json"])).expect(OK).json();
    assert!(json["cpu"]["threads"].as_u64().is_some_and(|n| n >= 1));
    let levels = json["levels"].as_array().expect("a list");
    assert!(levels.contains(&json["level"]));
    let text = finish(&mut here(&["devices"])).expect(OK).stdout;
    assert!(text.contains("CPU") && text.contains("NPU"), "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn doctor_runs_the_built_in_model() {
    let dir = tempdir().expect("a temporary folder");
    let json = finish(millrace(dir.path()).args(["doctor", "--json"]))
        .expect(OK)
        .json();
    assert_eq!(json["ready"], true);
    let checks = json["checks"].as_array().expect("a list");
    let check = |name: &str| {
        checks
            .iter()
            .find(|check| check["check"] == name)
            .expect(name)
    };
    assert_eq!(check("self-test")["status"], "ok");
    assert!(
        check("cache")["found"]
            .as_str()
            .is_some_and(|text| text.contains("huggingface"))
    );
    assert!(
        !dir.path().join(".cache").exists(),
        "a check leaves no trace"
    );
}

#[test]
fn info_knows_gguf_files_folders_and_the_built_in_model() {
    let info = |model: &str| {
        finish(&mut here(&["info", model, "--json"]))
            .expect(OK)
            .json()
    };
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    for (model, family) in [
        (path(models::gguf()), "llama"),
        (path(models::folder()), "llama"),
        (path(models::gemma()), "gemma3"),
    ] {
        let json = info(&model);
        assert_eq!(json["config"]["family"], family, "{model}");
        assert_eq!(json["config"]["n_layers"], 2);
        assert!(json["memory"]["kv_bytes"].as_u64().is_some_and(|n| n > 0));
        assert!(json["model"]["n_params"].as_u64().is_some_and(|n| n > 1000));
    }
    assert_eq!(info("demo")["runs"], true);
}

#[test]
fn memory_grows_with_the_context_and_shrinks_with_the_cache_format() {
    let model = models::gguf().to_str().expect("UTF-8");
    let kv_bytes = |arguments: &[&str]| {
        let mut command = here(&["info", model, "--json"]);
        let json = finish(command.args(arguments)).expect(OK).json();
        json["memory"]["kv_bytes"].as_u64().expect("a number")
    };
    let short = kv_bytes(&["-c", "1024"]);
    assert!(kv_bytes(&["-c", "8192"]) > 7 * short);
    assert!(kv_bytes(&["-c", "1024", "--kv-type", "q8_0"]) < short);
}

#[test]
fn info_lists_tensors_and_shortens_long_metadata() {
    let model = models::gguf().to_str().expect("UTF-8");
    let text = finish(&mut here(&["info", model, "--tensors"]))
        .expect(OK)
        .stdout;
    for part in [
        "blk.1.ffn_down.weight",
        "q8_0",
        "general.architecture",
        "in all]",
        "Memory for a context",
    ] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
}

#[cfg(unix)]
#[test]
fn a_full_standard_output_is_an_error_and_a_closed_one_is_not() {
    let home = tempdir().expect("a temporary folder");
    let full = finish(&mut shell(
        home.path(),
        "\"$MILLRACE\" info demo > /dev/full",
    ));
    full.expect_error(IO, &["standard output"]);
    let closed = "set -o pipefail; \"$MILLRACE\" info demo --full --tensors | head -n 1";
    let mut bash = shell(home.path(), "true");
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg(closed)
        .env("MILLRACE", env!("CARGO_BIN_EXE_millrace"));
    if bash.status().is_ok() && Command::new("bash").arg("-c").arg("true").status().is_ok() {
        let head = finish(&mut command).expect(OK);
        assert_eq!(head.stderr, "");
    }
}
