//! Ctrl-C ends every long-running command with code 130, and leaves nothing half-written.

use crate::run::{INTERRUPTED, finished, millrace};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// Whether a process handles SIGINT itself, so that the signal no longer kills it outright.
fn is_watching(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 0b10 != 0)
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(status.expect("kill starts").success());
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder").flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_long_command_stops() {
    if !Path::new("/proc/self/status").exists() {
        println!("skipped: this system does not tell which signals a process handles");
        return;
    }
    let lines = [
        "run demo Hello --ignore-eos -n 100000 --ctx 100000",
        "bench demo -r 1000000",
        "hwbench --time 600",
        "kernel gemm-fused-cast 2048x3072x8192 --cpu-level scalar --threads 1",
        "kernel gemm-fused-cast 2048x3072x8192 --sweep",
        "kernel gemm-fused-cast 2048x3072x8192 --trace out.json --cpu-level scalar --threads 1",
        "logits demo --text-file long.txt --out out.safetensors --cpu-level scalar",
        "perplexity demo long.txt --cpu-level scalar --threads 1",
        "profile --geometry llama-3.1-8b --prompt-tokens 8000",
        "compile --geometry llama-3.1-8b",
        "verify demo --prompts full --mode mlir-air --cpu-level scalar --threads 1",
        "diagnose demo --bisect --mode mlir-air --cpu-level scalar --threads 1",
        "synth llama-3.2-1b out.gguf --type Q4_K",
    ];
    for line in lines {
        let home = tempdir().expect("a temporary folder");
        fs::write(
            home.path().join("long.txt"),
            "Once upon a time there was a cat. ".repeat(4000),
        )
        .expect("write");
        let mut command = millrace(home.path());
        let line = match line.starts_with("logits") {
            // The longest text that the option accepts.
            true => line.replace(
                "--text-file long.txt",
                &format!("--tokens {} --ctx 30000", vec!["5"; 30_000].join(",")),
            ),
            false => line.to_owned(),
        };
        command
            .args(line.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("the binary starts");
        let start = Instant::now();
        while !is_watching(child.id()) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{line} does not start"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        // Waits until the work is in progress.
        std::thread::sleep(Duration::from_millis(300));
        send("-INT", &child);
        let finished = finished(child.wait_with_output().expect("it ends"));
        let line: String = line.chars().take(60).collect();
        assert_eq!(
            finished.code, INTERRUPTED,
            "{line}: {}{}",
            finished.stdout, finished.stderr
        );
        assert!(
            !finished.stderr.contains("error:"),
            "{line}: {}",
            finished.stderr
        );
        let left = files(home.path());
        assert!(
            left.iter()
                .all(|name| name == "long.txt" || name == ".cache"),
            "{line}: {left:?}"
        );
    }
}

/// A service manager ends commands by SIGTERM.
#[test]
fn a_terminated_command_leaves_nothing_half_written() {
    let home = tempdir().expect("a temporary folder");
    let mut command = millrace(home.path());
    command
        .args("synth llama-3.2-1b out.gguf --type Q4_K".split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    let start = Instant::now();
    while !files(home.path())
        .iter()
        .any(|name| name.ends_with(".partial"))
    {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no file was begun"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    send("-TERM", &child);
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(143));
    let left = files(home.path());
    assert!(left.iter().all(|name| name == ".cache"), "{left:?}");
}
