//! Models with recurrent layers, from the command line: sessions, a server's cache on disk, and the size of a state slot.

use crate::run::{BAD_INPUT, OK, finish, millrace};
use crate::serve::Server;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const FILE: &str = "states.gguf";
const TEXT: &str = "Once upon a time there was a little dog. His name was Max. Max liked to play";

/// A home with a small Qwen 3.5.
fn home() -> TempDir {
    let home = tempdir().expect("a temporary folder");
    let synth = ["-q", "synth", "qwen35-tiny", FILE, "--type", "F16"];
    finish(millrace(home.path()).args(synth)).expect(OK);
    home
}

fn write(home: &Path, text: &str, more: &[&str]) -> Value {
    let plain = ["run", FILE, text, "--greedy", "--ignore-eos", "--json"];
    let n = match more.contains(&"-n") {
        true => &[][..],
        false => &["-n", "40"],
    };
    finish(millrace(home).args(plain).args(n).args(more))
        .expect(OK)
        .json()
}

#[test]
fn a_session_goes_on_behind_its_last_token() {
    let home = home();
    let kept = ["--session", "s.kv"];
    let plain = write(home.path(), TEXT, &[]);
    let first = write(home.path(), TEXT, &kept);
    assert_eq!(first["tokens"], plain["tokens"]);
    assert_eq!(first["timings"]["n_cached"], 0);
    let n_prompt = first["timings"]["n_prompt"].as_u64().unwrap();
    // The same prompt again: it ends before the file's states, so all of it is computed.
    let again = write(home.path(), TEXT, &kept);
    assert_eq!(again["tokens"], plain["tokens"]);
    // A prompt that continues. A single generated token was never read, so the file's states are those after the prompt.
    fs::remove_file(home.path().join("s.kv")).unwrap();
    write(home.path(), TEXT, &["--session", "s.kv", "-n", "1"]);
    let longer = format!("{TEXT} with a ball.");
    let alone = write(home.path(), &longer, &[]);
    let found = write(home.path(), &longer, &kept);
    assert_eq!(found["tokens"], alone["tokens"]);
    assert_eq!(found["timings"]["n_cached"], n_prompt, "{found}");
    // A flipped byte within the states.
    let path = home.path().join("s.kv");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let run = ["run", FILE, TEXT, "--session", "s.kv"];
    finish(millrace(home.path()).args(run)).expect_error(BAD_INPUT, &["s.kv", "checksum"]);
}

fn ask(server: &Server, prompt: &str) -> (Value, u64, u64) {
    let body = json!({"model": "states", "prompt": prompt, "temperature": 0, "max_tokens": 12, "ignore_eos": true});
    let answer = server.ask("POST", "/v1/completions", "", &body.to_string());
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let answer: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    let usage = &answer["usage"];
    let n = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{answer}"));
    let n_cached = n(&usage["prompt_tokens_details"]["cached_tokens"]);
    (
        answer["choices"][0]["text"].clone(),
        n(&usage["prompt_tokens"]),
        n_cached,
    )
}

#[test]
fn a_server_that_is_started_again_has_the_states() {
    let home = home();
    let options = [FILE, "--cache-dir", "cache"];
    let prompt = TEXT.repeat(8);
    let server = Server::start(home.path(), &options);
    let (text, n_prompt, n_cached) = ask(&server, &prompt);
    assert_eq!(n_cached, 0);
    server.end("-TERM");
    let server = Server::start(home.path(), &options);
    let (again, _, n_cached) = ask(&server, &prompt);
    assert_eq!(again, text);
    assert_eq!(n_cached, (n_prompt - 1) / 64 * 64);
    server.end("-TERM");
}

/// Three delta nets: each holds the last three inputs of 256 channels, and four heads of 32 by 32, in f32.
#[test]
fn info_says_what_a_slot_takes() {
    let home = home();
    let info =
        |more: &[&str]| finish(millrace(home.path()).args(["info", FILE]).args(more)).expect(OK);
    let memory = &info(&["--json"]).json()["memory"];
    let slot_bytes = 3 * (3 * 256 + 4 * 32 * 32) * 4;
    assert_eq!(memory["state_slot_bytes"], slot_bytes, "{memory}");
    let n_slots = memory["n_state_slots"].as_u64().unwrap();
    assert!(n_slots > 0);
    // Slots are part of the cache: a model of the same shape without them would have that much less.
    assert!(memory["kv_bytes"].as_u64().unwrap() > n_slots * slot_bytes);
    let told = info(&[]).stdout;
    assert!(
        told.contains(&format!("{n_slots} slots of 57.0 KiB")),
        "{told}"
    );
}
