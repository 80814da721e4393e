//! `run`, `chat` and `tokenize`.

use crate::models;
use crate::run::{Finished, INTERRUPTED, OK, finish, finished, home, millrace};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn model(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn run(arguments: &[&str]) -> Command {
    let mut command = millrace(&std::env::temp_dir());
    command.arg("run").arg(models::gguf()).args(arguments);
    command
}

fn json(arguments: &[&str]) -> Value {
    finish(run(arguments).arg("--json")).expect(OK).json()
}

/// Runs with this standard input.
fn with_input(command: &mut Command, input: &str) -> Finished {
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("takes input");
    finished(child.wait_with_output().expect("ends"))
}

#[test]
fn a_seed_decides_the_text() {
    let text = |seed: &str| {
        json(&["Hello", "-n", "12", "--temp", "1.5", "--seed", seed])["tokens"].clone()
    };
    assert_eq!(text("7"), text("7"));
    assert_ne!(text("7"), text("8"));
}

#[test]
fn the_text_does_not_depend_on_threads_or_prompt_chunks() {
    let tokens = |threads: &str| {
        json(&["Hello there", "-n", "8", "--greedy", "-t", threads])["tokens"].clone()
    };
    assert_eq!(tokens("1"), tokens("2"));
}

#[test]
fn json_says_what_happened() {
    let outcome = json(&["Hello", "-n", "5", "--greedy", "--seed", "3"]);
    assert_eq!(outcome["finish_reason"], "length");
    assert_eq!(outcome["tokens"].as_array().map(Vec::len), Some(5));
    assert_eq!(outcome["seed"], 3);
    assert_eq!(outcome["timings"]["n_prompt"], 5);
    assert!(
        outcome["timings"]["time_to_first_token_ms"]
            .as_f64()
            .is_some_and(|ms| ms > 0.0)
    );
    assert!(
        outcome["model"]
            .as_str()
            .is_some_and(|name| name.ends_with("llama.gguf"))
    );
}

#[test]
fn prompts_come_from_arguments_files_and_standard_input() {
    let home = home();
    let expected = json(&["Hello there", "-n", "6", "--greedy"])["tokens"].clone();
    let file = home.path().join("prompt.txt");
    std::fs::write(&file, "Hello there\n").expect("write");
    assert_eq!(
        json(&["-f", model(&file), "-n", "6", "--greedy"])["tokens"],
        expected
    );
    for arguments in [vec![], vec!["-"]] {
        let mut command = run(&arguments);
        let piped = with_input(
            command.args(["-n", "6", "--greedy", "--json"]),
            "Hello there\n",
        );
        assert_eq!(piped.expect(OK).json()["tokens"], expected);
    }
}

#[test]
fn only_new_text_goes_to_a_pipe() {
    let outcome = json(&["Hello", "-n", "6", "--greedy"]);
    let text = outcome["text"].as_str().expect("text");
    let plain = finish(&mut run(&["Hello", "-n", "6", "--greedy"])).expect(OK);
    assert_eq!(
        plain.stdout.trim_end_matches('\n'),
        text.trim_end_matches('\n')
    );
    assert!(plain.stderr.contains("tok/s"), "{}", plain.stderr);
    let echoed = finish(&mut run(&["Hello", "-n", "6", "--greedy", "--echo", "-q"])).expect(OK);
    assert_eq!(echoed.stdout, format!("Hello{}", plain.stdout));
    assert_eq!(echoed.stderr, "");
}

#[test]
fn a_banned_token_is_not_drawn_and_a_stop_text_ends() {
    let first = json(&["Hello", "-n", "1", "--greedy"]);
    let id = first["tokens"][0].as_u64().expect("an id");
    let ban = format!("{id}=-inf");
    assert_ne!(
        json(&["Hello", "-n", "1", "--greedy", "--logit-bias", &ban])["tokens"][0],
        id
    );
    // Bias one letter far above the rest, so that the model writes nothing else.
    let tokens = finish(
        millrace(&std::env::temp_dir())
            .arg("tokenize")
            .arg(models::gguf())
            .args(["z", "--ids"]),
    );
    let z = format!("{}=1000", tokens.expect(OK).stdout.trim());
    let stopped = json(&[
        "Hello",
        "-n",
        "9",
        "--greedy",
        "--logit-bias",
        &z,
        "--stop",
        "zzz",
    ]);
    assert_eq!(stopped["finish_reason"], "stop_text");
    assert_eq!(stopped["text"], "");
}

#[test]
fn folders_and_other_families_run_too() {
    for path in [models::folder(), models::gemma()] {
        let mut command = millrace(&std::env::temp_dir());
        command.args(["run", model(path), "Hello", "-n", "4", "--greedy", "--json"]);
        let outcome = finish(&mut command).expect(OK).json();
        assert_eq!(
            outcome["tokens"].as_array().map(Vec::len),
            Some(4),
            "{}",
            path.display()
        );
    }
}

#[test]
fn every_cpu_level_writes_the_same_beginning() {
    let levels = finish(millrace(&std::env::temp_dir()).args(["devices", "--json"]))
        .expect(OK)
        .json();
    let levels = levels["levels"].as_array().expect("a list").clone();
    let tokens = |level: &str| {
        json(&["Hello", "-n", "4", "--greedy", "--cpu-level", level])["tokens"].clone()
    };
    let expected = tokens("scalar");
    for level in levels {
        assert_eq!(tokens(level.as_str().expect("a name")), expected, "{level}");
    }
}

/// Chats with the built-in model, which has a chat template.
fn chat(home: &TempDir, input: &str) -> Finished {
    let mut command = millrace(home.path());
    with_input(
        command.args(["chat", "demo", "--greedy", "-n", "12"]),
        input,
    )
}

#[test]
fn a_conversation_is_saved_and_continued() {
    let home = home();
    let first = chat(&home, "Hello.\n/save talk.json\n/stats\n").expect(OK);
    assert!(first.stdout.contains("2 messages"), "{}", first.stdout);
    let text = std::fs::read_to_string(home.path().join("talk.json")).expect("saved");
    let saved: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(saved["messages"][0]["content"], "Hello.");
    assert_eq!(saved["messages"][1]["role"], "assistant");
    let second = chat(&home, "/load talk.json\n/stats\n").expect(OK);
    assert!(second.stdout.contains("2 messages"), "{}", second.stdout);
}

#[test]
fn later_turns_reuse_what_was_computed() {
    let home = home();
    let run = chat(&home, "Hello.\nHello again.\n").expect(OK);
    let stats: Vec<&str> = run
        .stderr
        .lines()
        .filter(|line| line.contains("tok/s"))
        .collect();
    assert_eq!(stats.len(), 2, "{}", run.stderr);
    assert!(
        !stats[0].contains("cached") && stats[1].contains("cached"),
        "{}",
        run.stderr
    );
}

#[test]
fn commands_that_fail_do_not_end_the_conversation() {
    let home = home();
    let run = chat(
        &home,
        "/nonsense\n/load missing.json\n/load /dev/zero\n/load -\n/save /dev/full\n/save\n/clear\n/system Be brief.\n/help\n/exit\nnever\n",
    );
    let run = run.expect(OK);
    for text in [
        "no command /nonsense",
        "missing.json",
        "/dev/zero is not a regular file",
        "/dev/full is a file of another kind",
        "/save needs a file name",
    ] {
        assert!(run.stderr.contains(text), "no `{text}` in {}", run.stderr);
    }
    assert!(run.stdout.contains("/system TEXT"), "{}", run.stdout);
    assert!(!run.stderr.contains("tok/s"), "nothing was said");
}

#[test]
fn run_asks_through_the_template() {
    let home = home();
    let mut command = millrace(home.path());
    command.args([
        "run", "demo", "--chat", "Hello.", "--greedy", "-n", "8", "--json",
    ]);
    let asked = finish(&mut command).expect(OK).json();
    let mut command = millrace(home.path());
    command.args(["run", "demo", "Hello.", "--greedy", "-n", "8", "--json"]);
    let continued = finish(&mut command).expect(OK).json();
    let n_prompt = |outcome: &Value| outcome["timings"]["n_prompt"].as_u64();
    assert!(
        n_prompt(&asked) > n_prompt(&continued),
        "the template adds to the prompt"
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_and_keeps_what_was_written() {
    let mut command = run(&["Hello", "--ignore-eos", "--temp", "2"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut first = [0; 1];
    child
        .stdout
        .as_mut()
        .expect("piped")
        .read_exact(&mut first)
        .expect("some text comes");
    finish(Command::new("kill").arg("-INT").arg(child.id().to_string())).expect(OK);
    let ended = finished(child.wait_with_output().expect("ends")).expect(INTERRUPTED);
    assert!(ended.stderr.contains("stopped"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("error"), "{}", ended.stderr);
}

#[test]
fn tokens_turn_into_text_and_back() {
    let tokenize = |arguments: &[&str]| {
        let mut command = millrace(&std::env::temp_dir());
        finish(command.arg("tokenize").arg(models::gguf()).args(arguments)).expect(OK)
    };
    let text = "Grüße, naïve 世界!";
    let json = tokenize(&[text, "--json"]).json();
    assert_eq!(json["count"], text.len(), "a token for each byte");
    let ids = tokenize(&[text, "--ids"]).stdout;
    assert_eq!(tokenize(&["--decode", ids.trim()]).stdout.trim_end(), text);
    let table = tokenize(&["ab"]).stdout;
    assert!(
        table.contains("\"a\"") && table.contains("\"b\""),
        "{table}"
    );
}

/// Byte order marks are not part of the text, wherever it comes from.
#[test]
fn byte_order_marks_are_left_out() {
    let home = home();
    let plain = finish(millrace(home.path()).args(["tokenize", "demo", "hi", "--ids"])).expect(OK);
    for (name, bytes) in [
        ("utf8.txt", b"\xef\xbb\xbfhi\r\n".as_slice()),
        ("utf16le.txt", b"\xff\xfeh\0i\0\n\0"),
        ("utf16be.txt", b"\xfe\xff\0h\0i"),
    ] {
        std::fs::write(home.path().join(name), bytes).expect("written");
        let line = ["tokenize", "demo", "-f", name, "--ids"];
        let found = finish(millrace(home.path()).args(line)).expect(OK);
        assert_eq!(found.stdout, plain.stdout, "{name}");
    }
    let mut tokenize = millrace(home.path());
    let piped = with_input(tokenize.args(["tokenize", "demo", "--ids"]), "\u{feff}hi\n");
    assert_eq!(piped.expect(OK).stdout, plain.stdout);
    let chat = |input: &str| {
        let mut chat = millrace(home.path());
        let line = ["chat", "demo", "--greedy", "-n", "8", "-q"];
        with_input(chat.args(line), input).expect(OK).stdout
    };
    assert_eq!(chat("\u{feff}Hello\nAnd now?\n"), chat("Hello\nAnd now?\n"));
}

#[test]
fn control_tokens_are_printed_with_special() {
    let home = home();
    let ids = finish(millrace(home.path()).args(["tokenize", "demo", "", "--ids"])).expect(OK);
    let bos = ids.stdout.trim().to_owned();
    let text = finish(millrace(home.path()).args(["tokenize", "demo", "--decode", &bos]))
        .expect(OK)
        .stdout;
    let text = text.trim_end();
    let bias = format!("{bos}=1000");
    let line = [
        "run",
        "demo",
        "A cat",
        "-n",
        "2",
        "--logit-bias",
        &bias,
        "--json",
    ];
    let shown = |more: &[&str]| {
        let done = finish(millrace(home.path()).args(line).args(more)).expect(OK);
        done.json()["text"].as_str().map(str::to_owned)
    };
    assert_eq!(shown(&[]), Some(String::new()));
    assert_eq!(shown(&["--special"]), Some(text.repeat(2)));
    // A server does not support this option: that is reported, not ignored.
    let line = [
        "run",
        "demo",
        "x",
        "--special",
        "--server",
        "http://127.0.0.1:1",
    ];
    assert_ne!(finish(millrace(home.path()).args(line)).code, OK);
}
