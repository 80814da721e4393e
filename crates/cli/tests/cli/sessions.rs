//! Conversations that outlive the process: `--session` and `serve --cache-dir`.

use crate::run::{BAD_INPUT, IO, OK, USAGE, finish, millrace};
use crate::serve::Server;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use tempfile::tempdir;

const STORY: &str = "Once upon a time there was a little dog. His name was Max. Max liked to play";

fn run_story(home: &Path, text: &str, more: &[&str]) -> Value {
    let plain = ["run", "demo", text, "--greedy", "-n", "24", "--json"];
    finish(millrace(home).args(plain).args(more))
        .expect(OK)
        .json()
}

#[test]
fn a_prompt_is_computed_once_and_the_text_is_the_same() {
    let home = tempdir().unwrap();
    let plain = run_story(home.path(), STORY, &[]);
    let file = ["--session", "s.kv"];
    let first = run_story(home.path(), STORY, &file);
    let second = run_story(home.path(), STORY, &file);
    let n_prompt = plain["timings"]["n_prompt"].as_u64().unwrap();
    for (kept, n_cached) in [(&first, 0), (&second, n_prompt - 1)] {
        assert_eq!(kept["tokens"], plain["tokens"]);
        assert_eq!(kept["timings"]["n_cached"], n_cached);
    }
    // A prompt that continues where the answer ended.
    let longer = format!("{STORY}{}", plain["text"].as_str().unwrap());
    let alone = run_story(home.path(), &longer, &[]);
    let kept = run_story(
        home.path(),
        &longer,
        &["--session", "s.kv", "--draft", "ngram"],
    );
    assert_eq!(kept["tokens"], alone["tokens"]);
    assert!(kept["timings"]["n_cached"].as_u64().unwrap() > n_prompt);
    // The lock is gone with the process.
    let names = fs::read_dir(home.path()).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("s.kv"))
        .collect();
    assert_eq!(names, ["s.kv"]);
}

#[test]
fn a_file_that_is_not_this_conversation_is_refused_and_stays() {
    let home = tempdir().unwrap();
    run_story(home.path(), STORY, &["--session", "s.kv"]);
    let path = home.path().join("s.kv");
    let whole = fs::read(&path).unwrap();
    let mut torn = whole.clone();
    torn[whole.len() / 2] ^= 1;
    let cut = whole[..whole.len() - 1].to_vec();
    let refused = |more: &[&str], code: i32, mentions: &[&str]| {
        let plain = ["run", "demo", STORY, "--session", "s.kv"];
        finish(millrace(home.path()).args(plain).args(more)).expect_error(code, mentions);
    };
    for (bytes, more, code, mentions) in [
        (
            &torn,
            &[][..],
            BAD_INPUT,
            &["s.kv", "damaged contents", "checksum"][..],
        ),
        (&cut, &[], BAD_INPUT, &["s.kv", "expected", "found", "cut"]),
        (&b"{}".to_vec(), &[], BAD_INPUT, &["s.kv"]),
        (
            &whole,
            &["--kv-type", "f32"],
            BAD_INPUT,
            &["kv-type f16", "f32"],
        ),
        (
            &whole,
            &["--cpu-level", "scalar"],
            BAD_INPUT,
            &["level", "scalar"],
        ),
        (&whole, &["-c", "32"], USAGE, &["tokens", "32"]),
        (&whole, &["--device", "xdna2"], USAGE, &["--device"]),
        (
            &whole,
            &["--image", "x.png"],
            USAGE,
            &["--session", "--image"],
        ),
        (
            &whole,
            &["--server", "http://127.0.0.1:1"],
            USAGE,
            &["--session", "--server"],
        ),
    ] {
        fs::write(&path, bytes).unwrap();
        refused(more, code, mentions);
        assert_eq!(&fs::read(&path).unwrap(), bytes, "{more:?}");
    }
    // Another process holds the lock.
    let lock = fs::File::create(home.path().join(".s.kv.lock")).unwrap();
    lock.lock().unwrap();
    refused(&[], IO, &["s.kv", "in use by another process"]);
}

fn chat(home: &Path, more: &[&str], lines: &str) -> String {
    let mut child = millrace(home)
        .args(["chat", "demo", "--greedy", "-n", "20"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(lines.as_bytes()).expect("it reads");
    drop(stdin);
    crate::run::finished(child.wait_with_output().expect("it ends"))
        .expect(OK)
        .stdout
}

#[test]
fn a_chat_goes_on_where_the_last_one_ended() {
    let home = tempdir().unwrap();
    let (first, second) = (
        "Tom has a red ball. What does Tom have?\n",
        "What colour is it?\n",
    );
    let system = ["--system", "Be brief."];
    let whole = chat(home.path(), &system, &format!("{first}{second}"));
    let kept = ["--session", "talk.kv"];
    let one = chat(home.path(), &[&system[..], &kept].concat(), first);
    let two = chat(home.path(), &kept, second);
    assert_eq!(format!("{one}{two}"), whole);
    let stdin = |text: &[&str]| {
        let mut command = millrace(home.path());
        command
            .args(["chat", "demo", "--session", "talk.kv"])
            .args(text);
        command.stdin(Stdio::null());
        finish(&mut command)
    };
    stdin(&["--system", "Be long."]).expect_error(USAGE, &["talk.kv", "other instructions"]);
    // The cleared conversation is gone, and the system prompt may then change.
    chat(home.path(), &kept, "/system\n/clear\n");
    assert_eq!(
        chat(home.path(), &[&system[..], &kept].concat(), first),
        one
    );
}

fn ask(server: &Server, question: &str) -> Value {
    let body = serde_json::json!({
        "model": "demo", "temperature": 0, "max_tokens": 12,
        "messages": [
            {"role": "user", "content": STORY.repeat(8)},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": question},
        ],
    });
    let path = "/v1/chat/completions";
    let answer = server.ask(
        "POST",
        path,
        "authorization: Bearer one\r\n",
        &body.to_string(),
    );
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn a_server_that_is_started_again_knows_the_conversation() {
    let home = tempdir().unwrap();
    let options = |keys: &[&str]| {
        fs::write(home.path().join("keys"), keys.join("\n")).unwrap();
        let folder = ["demo", "--cache-dir", "cache", "--cache-dir-size", "64"];
        [&folder[..], &["--api-key-file", "keys"]].concat()
    };
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    let cached = |answer: &Value| {
        let details = &answer["usage"]["prompt_tokens_details"];
        details["cached_tokens"].as_u64().unwrap()
    };
    let server = Server::start(home.path(), &options(&["one"]));
    let first = ask(&server, "Who is Max?");
    assert_eq!(cached(&first), 0);
    // No other server may use the folder at the same time.
    let other = Server::start(home.path(), &options(&["one"]));
    let refused = ask(&other, "Who is Max?");
    assert!(
        refused.to_string().contains("in use by another process"),
        "{refused}"
    );
    other.end("-TERM");
    server.end("-TERM");

    // The keys may change: cached prompts belong to a key.
    let server = Server::start(home.path(), &options(&["zero", "one"]));
    let again = ask(&server, "Who is Max?");
    let n_prompt = again["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(text(&again), text(&first));
    assert_eq!(cached(&again), (n_prompt - 1) / 64 * 64, "{again}");
    // A reloaded model finds the pages that its former engine has just written.
    let headers = "authorization: Bearer one\r\n";
    let unloaded = server.ask("POST", "/v1/models/unload", headers, r#"{"model": "demo"}"#);
    assert!(unloaded.starts_with("HTTP/1.1 200"), "{unloaded}");
    let again = ask(&server, "Who is Max?");
    assert_eq!(cached(&again), (n_prompt - 1) / 64 * 64, "{again}");
    drop(server); // Killed.

    let mut n_pages = 0;
    for folder in fs::read_dir(home.path().join("cache")).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|end| end == "page") {
                let mut bytes = fs::read(&path).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                fs::write(path, bytes).unwrap();
                n_pages += 1;
            }
        }
    }
    assert!(n_pages > 1);
    let server = Server::start(home.path(), &options(&["one"]));
    let read = ask(&server, "Who is Max?");
    assert_eq!((text(&read), cached(&read)), (text(&first), 0));
    let told = server.end("-TERM");
    assert!(told.contains("a cached page is not used"), "{told}");

    let device = ["serve", "demo", "--cache-dir", "cache", "--device", "xdna2"];
    finish(millrace(home.path()).args(device)).expect_error(USAGE, &["--cache-dir"]);
}
