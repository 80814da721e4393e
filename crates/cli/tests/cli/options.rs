//! Options that would change nothing, or with which nothing could work, are refused. What others wrote is left alone.

use crate::run::{FAILED, IO, OK, USAGE, command, finish, home};
use std::fs;
use std::path::Path;

/// Settings of an NPU, each with a value.
const OF_NPUS: [[&str; 2]; 7] = [
    ["--mode", "int4"],
    ["--without", "blocks"],
    ["--numerics", "bf16"],
    ["--simulator", "words"],
    ["--machine", "rngd"],
    ["--set", "cols=4"],
    ["--profile", "nope"],
];

#[test]
fn settings_of_npus_are_refused_on_the_cpu() {
    let home = home();
    for of_npu in OF_NPUS {
        let words = [of_npu[0], "is for an NPU", "--device"];
        for line in [
            &["run", "demo-draft", "x", "-n", "1"][..],
            &["bench", "demo-draft", "-p", "4", "-n", "4", "-r", "1"],
            &["ceiling", "demo-draft", "--bandwidth", "10"],
            &["serve", "demo-draft", "--port", "0"],
        ] {
            let line = [line, &of_npu[..]].concat();
            finish(&mut command(&home, &line)).expect_error(USAGE, &words);
        }
    }
    let on_npu = ["run", "demo-draft", "x", "-n", "1", "--device", "xdna2"];
    let line = [&on_npu[..], &["--mode", "int4"]].concat();
    finish(&mut command(&home, &line)).expect(OK);
}

/// `MILLRACE_THREADS` may be set for other commands.
#[test]
fn a_server_is_asked_whatever_the_environment_sets_for_the_cpu() {
    let home = home();
    let ask = ["run", "demo", "x", "--server", "http://127.0.0.1:9"];
    let mut with_threads = command(&home, &ask);
    with_threads.env("MILLRACE_THREADS", "1");
    // Nothing listens there: it was asked.
    let found = finish(&mut with_threads);
    assert!(found.stderr.contains("cannot ask"), "{}", found.stderr);
    for more in [["--draft", "ngram"], ["--set", "cols=4"]] {
        let line = [&ask[..], &more].concat();
        finish(&mut command(&home, &line)).expect_error(USAGE, &["--server", more[0]]);
    }
}

#[test]
fn a_server_that_could_answer_nothing_does_not_start() {
    let home = home();
    for (more, code, word) in [
        (&["-t", "0"][..], USAGE, "thread"),
        (&["--request-timeout", "0"], USAGE, "--request-timeout"),
        (&["--allow-origin", "garbage"], USAGE, "--allow-origin"),
        (&["--host", "nowhere"], USAGE, "IP address"),
        (&["--cache-dir", "/dev/null"], IO, "--cache-dir"),
        (&["--device", "xdna2", "--mode", "nope"], USAGE, "nope"),
    ] {
        let line = [&["serve", "demo-draft", "--port", "0"], more].concat();
        finish(&mut command(&home, &line)).expect_error(code, &[word]);
    }
}

/// Only the bandwidth of that machine is known: what this one computes does not count.
#[test]
fn a_ceiling_by_bandwidth_has_no_limit_of_arithmetic() {
    let home = home();
    let of_8b = "ceiling --geometry llama-3.1-8b --type Q4_K_M --bandwidth 256 -d 8192 --json";
    let line: Vec<&str> = of_8b.split(' ').collect();
    let found = finish(&mut command(&home, &line)).expect(OK).json();
    assert_eq!(found["bound"]["arithmetic_ns"], 0.0);
    let rows = found["rows"].as_array().expect("rows");
    let tokens = rows[0]["tokens_per_s"].as_f64().expect("a number");
    assert!((44.0..46.5).contains(&tokens), "{tokens}");
    assert!(rows.iter().all(|row| row["limit"] != "arithmetic"));
}

/// An encoder's classifier is read, and its texts keep the tokens behind them.
#[test]
fn encoders_get_no_warnings_of_what_they_use() {
    let home = home();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/encoders/bert-rank");
    let path = path.display().to_string();
    let texts = home.path().join("texts.txt");
    fs::write(&texts, "a cat\na dog\n").expect("texts");
    let texts = texts.display().to_string();
    for line in [
        &["rerank", &path, "cat", &texts][..],
        &["embed", &path, &texts],
    ] {
        let found = finish(&mut command(&home, line));
        assert!(!found.stderr.contains("warning"), "{}", found.stderr);
    }
}

#[test]
fn files_of_others_are_not_replaced() {
    let home = home();
    let out = home.path().join("ex");
    fs::create_dir(&out).expect("a folder");
    fs::write(out.join("README.md"), "mine\n").expect("a file");
    let folder = out.display().to_string();
    let export = ["export", "demo-draft", "--device", "tcp", "--out", &folder];
    finish(&mut command(&home, &export)).expect_error(USAGE, &["README.md", "--out"]);
    let kept = fs::read_to_string(out.join("README.md")).expect("it is there");
    assert_eq!(kept, "mine\n");
    let requests = "{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"model\": \"nope\", \"prompt\": \"x\"}}\n";
    let input = home.path().join("in.jsonl");
    fs::write(&input, requests).expect("requests");
    let input = input.display().to_string();
    let known = [
        "batch",
        &input,
        "--out",
        &input,
        "--model",
        "nope=demo-draft",
    ];
    let found = finish(&mut command(&home, &known));
    assert!(
        found.code != OK && found.stderr.contains("no answer"),
        "{}",
        found.stderr
    );
    assert_eq!(fs::read_to_string(&input).expect("it is there"), requests);
    // The request that names an unknown model is told.
    let unknown = ["batch", &input, "--out", "out.jsonl"];
    let found = finish(&mut command(&home, &unknown));
    assert!(found.code != OK && found.code != FAILED);
    assert!(found.stderr.contains("request `a`"), "{}", found.stderr);
}
