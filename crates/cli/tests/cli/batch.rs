//! `millrace batch`: killed at any point it loses nothing, and repeats nothing.

use crate::run::{BAD_INPUT, INTERRUPTED, NOT_FOUND, OK, finish, finished, millrace};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::tempdir;

const N: usize = 40;

fn requests() -> String {
    let line = |i: usize| {
        let body = json!({"model": "demo", "prompt": format!("Once upon a time {i}"), "max_tokens": 24, "temperature": 0});
        json!({"custom_id": format!("request {i}"), "method": "POST", "url": "/v1/completions", "body": body}).to_string() + "\n"
    };
    (0..N).map(line).collect()
}

fn batch(home: &Path, out: &str) -> Command {
    let mut command = millrace(home);
    command.args([
        "batch",
        "in.jsonl",
        "--out",
        out,
        "--parallel",
        "4",
        "--json",
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Texts by request; no request may occur twice.
fn answers(path: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in fs::read_to_string(path).expect("answers").lines() {
        let answer: Value = serde_json::from_str(line).expect("a whole line");
        let id = answer["custom_id"].as_str().expect("a name").to_owned();
        let text = answer["response"]["body"]["choices"][0]["text"]
            .as_str()
            .expect("a text");
        assert_eq!(found.insert(id, text.to_owned()), None, "twice");
    }
    found
}

fn n_lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

#[test]
fn killed_at_any_point_it_goes_on() {
    let home = tempdir().expect("a temporary folder");
    fs::write(home.path().join("in.jsonl"), requests()).expect("requests");
    let told = finish(&mut batch(home.path(), "whole.jsonl"))
        .expect(OK)
        .json();
    assert_eq!(
        told,
        json!({"requests": N, "answered_before": 0, "answered": N, "failed": 0})
    );
    let whole = answers(&home.path().join("whole.jsonl"));
    assert_eq!(whole.len(), N);

    let out = home.path().join("out.jsonl");
    // Killed after some more answers, and stopped by Ctrl-C.
    for (n_more, signal) in [(3, "-KILL"), (1, "-KILL"), (5, "-INT"), (2, "-KILL")] {
        let before = n_lines(&out);
        let mut child = batch(home.path(), "out.jsonl").spawn().expect("it starts");
        let start = Instant::now();
        while n_lines(&out) < (before + n_more).min(N - 1) {
            assert!(start.elapsed() < Duration::from_secs(60), "no answers");
            assert!(
                child.try_wait().expect("its state").is_none(),
                "it has ended"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let killed = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(killed.expect("kill starts").success());
        let ended = finished(child.wait_with_output().expect("its end"));
        if signal == "-INT" {
            ended.expect(INTERRUPTED);
        }
        // The remains of a kill in the middle of a write.
        let mut text = fs::read(&out).expect("answers");
        if signal == "-KILL" && text.ends_with(b"\n") {
            text.extend_from_slice(br#"{"id":"batch_req_39","custom_id":"request 39","error":nu"#);
            fs::write(&out, text).expect("half a line");
        }
    }
    let before = n_lines(&out);
    let told = finish(&mut batch(home.path(), "out.jsonl"))
        .expect(OK)
        .json();
    assert_eq!(told["answered"], N - before);
    assert_eq!(told["answered_before"], before);
    assert_eq!(answers(&out), whole);
    // Run again, with nothing left to do.
    let text = fs::read(&out).expect("answers");
    let told = finish(&mut batch(home.path(), "out.jsonl"))
        .expect(OK)
        .json();
    assert_eq!(
        (&told["answered"], fs::read(&out).expect("answers") == text),
        (&json!(0), true)
    );
}

#[test]
fn what_is_wrong_is_told_before_anything_is_asked() {
    let home = tempdir().expect("a temporary folder");
    let run = |text: &str| {
        fs::write(home.path().join("in.jsonl"), text).expect("requests");
        finish(&mut batch(home.path(), "out.jsonl"))
    };
    let twice = requests() + requests().lines().next().expect("a line");
    run(&twice).expect_error(
        BAD_INPUT,
        &[
            "in.jsonl: line 41",
            "custom_id \"request 0\" is that of line 1 too",
        ],
    );
    run("{\n").expect_error(BAD_INPUT, &["line 1"]);
    let line = json!({"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x"}});
    run(&line.to_string()).expect_error(BAD_INPUT, &["no request names a model", "--model"]);
    assert!(!home.path().join("out.jsonl").exists());
    fs::write(home.path().join("out.jsonl"), "my notes\n").expect("notes");
    run(&requests()).expect_error(BAD_INPUT, &["out.jsonl: line 1 is no answer of a batch"]);
    assert_eq!(
        fs::read_to_string(home.path().join("out.jsonl")).expect("notes"),
        "my notes\n"
    );
    fs::remove_file(home.path().join("in.jsonl")).expect("removed");
    finish(&mut batch(home.path(), "out.jsonl")).expect_error(NOT_FOUND, &["in.jsonl"]);
}

/// A name in the requests maps to a model here; a request that fails has an answer too.
#[test]
fn names_stand_for_models_and_errors_are_answers() {
    let home = tempdir().expect("a temporary folder");
    let line = |id: &str, model: &str| {
        let body = json!({"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]});
        json!({"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body})
            .to_string()
            + "\n"
    };
    fs::write(
        home.path().join("in.jsonl"),
        line("a", "gpt") + &line("b", "nobody"),
    )
    .expect("requests");
    let told = finish(batch(home.path(), "out.jsonl").args(["--model", "gpt=demo"]))
        .expect(OK)
        .json();
    assert_eq!((&told["answered"], &told["failed"]), (&json!(2), &json!(1)));
    let text = fs::read_to_string(home.path().join("out.jsonl")).expect("answers");
    let status = |id: &str| {
        let answers = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a line"));
        let answer = answers
            .into_iter()
            .find(|answer| answer["custom_id"] == id)
            .expect("an answer");
        answer["response"]["status_code"].clone()
    };
    assert_eq!((status("a"), status("b")), (json!(200), json!(404)));
}
