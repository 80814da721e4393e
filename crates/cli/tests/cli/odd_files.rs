//! Odd but valid files: every front end of the program and every device accepts them, and writes
//! the same text as for the plain file. To add a quirk, add a row to `rows.rs` or `texts.rs`.

mod build;
mod rows;
mod texts;

use crate::models;
use crate::run::{BAD_INPUT, Finished, OK, finish, millrace};
use crate::serve::Server;
use build::{Gguf, Safetensors, str_value};
use millrace_testkit::sample;
use rows::Expect::{Like, LikeBut, Refused};
use rows::Make::{Folder, Gguf as File};
use rows::{Row, WEIGHTS};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use texts::TEXTS;

const TEMPLATE: &str = "{% for m in messages %}[{{ m.content }}]{% endfor %}";

/// Writes a row's model into `home`.
fn make(row: &Row, home: &Path) -> PathBuf {
    match &row.1 {
        File(change) => {
            let mut gguf = Gguf::read(models::plain_gguf());
            gguf.set("tokenizer.chat_template", str_value(TEMPLATE.as_bytes()));
            change(&mut gguf);
            let path = home.join(format!("{}.gguf", row.0));
            fs::write(&path, gguf.bytes()).expect("written");
            path
        }
        Folder(change) => {
            let (plain, dir) = (models::plain_folder(), home.join(row.0));
            fs::create_dir(&dir).expect("a folder");
            for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
                if plain.join(name).exists() {
                    fs::copy(plain.join(name), dir.join(name)).expect("copied");
                }
            }
            fs::write(dir.join("chat_template.jinja"), TEMPLATE).expect("written");
            change(&mut Safetensors::read(plain), &dir);
            dir
        }
    }
}

/// Output of each front end for a model.
#[derive(Debug, PartialEq)]
struct Fronts(Vec<(&'static str, String)>);

const PROMPT: &str = "Hello";
const DEVICES: [&str; 4] = ["cpu", "xdna2", "rk3588", "tcp"];

fn call(home: &Path, arguments: &[&str]) -> Finished {
    finish(
        millrace(home)
            .args(arguments)
            .env("MILLRACE_THREADS", "1")
            .env("MILLRACE_NPU_CACHE", ""),
    )
}

/// Devices that run a row. Quirks of texts are over before a device sees a token, so the CPU is enough for them. All run a row of
/// weights that others are compared with; the CPU and in turn one of the others run the rest. All run everything if all is asked for.
fn devices(rows: &[&Row], at: usize) -> Vec<&'static str> {
    let is_compared =
        |row: &&Row| matches!(&row.2, Like(like, _) | LikeBut(like, _, _) if *like == rows[at].0);
    if sample::is_whole() {
        return DEVICES.to_vec();
    }
    if at >= WEIGHTS.len() {
        return vec![DEVICES[0]];
    }
    match rows.iter().any(is_compared) {
        true => DEVICES.to_vec(),
        false => vec![DEVICES[0], DEVICES[1 + at % (DEVICES.len() - 1)]],
    }
}

fn fronts(
    home: &Path,
    (name, path): (&str, &Path),
    devices: &[&'static str],
    warnings: &[&str],
) -> Fronts {
    let model = path.to_str().expect("UTF-8");
    let ok = |arguments: &[&str]| {
        let done = call(home, arguments).expect(OK);
        let is_warned = done.stderr.contains("warning:");
        (done, is_warned)
    };
    let tokens = |model: &str, device: &str| {
        let line = [
            "run", model, PROMPT, "--greedy", "-n", "3", "--json", "--device", device,
        ];
        let (done, is_warned) = ok(&line);
        assert_eq!(is_warned, !warnings.is_empty(), "{name}: {}", done.stderr);
        for words in warnings {
            assert!(done.stderr.contains(words), "{name}: {}", done.stderr);
        }
        done.json()["tokens"].to_string()
    };
    let mut found: Vec<(&str, String)> = devices
        .iter()
        .map(|device| (*device, tokens(model, device)))
        .collect();
    let chat = format!("printf 'Hi\\nYou\\n' | $MILLRACE chat '{model}' --greedy -n 3 -q");
    found.push((
        "chat",
        finish(&mut crate::run::shell(home, &chat))
            .expect(OK)
            .stdout,
    ));
    found.push((
        "tokenize",
        ok(&["tokenize", model, PROMPT, "--ids"]).0.stdout,
    ));
    let info = ok(&["info", model, "--json", "--tensors"]).0.json();
    assert_eq!(info["runs"], true, "{name}: {info}");
    let out = format!("{name}-again.gguf");
    ok(&["quantize", model, &out, "F32", "-q"]);
    let again = call(
        home,
        &["run", &out, PROMPT, "--greedy", "-n", "3", "--json", "-q"],
    );
    found.push(("quantize", again.expect(OK).json()["tokens"].to_string()));
    Fronts(found)
}

fn refused(home: &Path, name: &str, path: &Path, words: &[&str]) {
    let model = path.to_str().expect("UTF-8");
    for line in [
        &["run", model, PROMPT][..],
        &["chat", model],
        &["serve", model, "--port", "0"],
        &["quantize", model, "never.gguf", "F32"],
    ] {
        let done = call(home, line).expect(BAD_INPUT);
        for part in words {
            assert!(
                done.stderr.contains(part),
                "{name}, {}: {}",
                line[0],
                done.stderr
            );
        }
    }
}

/// Completions from one server for all models.
fn served(home: &Path, models: &[(&'static str, PathBuf)]) -> Vec<(&'static str, String)> {
    let named: Vec<String> = models
        .iter()
        .map(|(name, path)| format!("{name}={}", path.display()))
        .collect();
    let mut line: Vec<&str> = named.iter().map(String::as_str).collect();
    line.extend(["-q", "-t", "1", "-c", "64"]);
    let server = Server::start(home, &line);
    let ask = |name: &str| {
        let body = json!({"model": name, "prompt": PROMPT, "max_tokens": 3, "temperature": 0});
        let json = "content-type: application/json\r\n";
        let answer = server.ask("POST", "/v1/completions", json, &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 200"), "{name}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let body: Value = serde_json::from_str(body).expect("JSON");
        body["choices"][0]["text"].to_string()
    };
    models.iter().map(|(name, _)| (*name, ask(name))).collect()
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn every_front_and_device_takes_them() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let rows: Vec<&Row> = WEIGHTS.iter().chain(TEXTS).collect();
    let made: Vec<PathBuf> = rows.iter().map(|row| make(row, home)).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(row) = rows.get(at) else { break };
            let (like, warnings, but) = match &row.2 {
                Like(like, warnings) => (like, warnings, &[][..]),
                LikeBut(like, warnings, but) => (like, warnings, *but),
                Refused(words) => {
                    refused(home, row.0, &made[at], words);
                    continue;
                }
            };
            let fronts = fronts(home, (row.0, &made[at]), &devices(&rows, at), warnings);
            let mut found = found.lock().expect("whole");
            found.push((row.0, *like, but, fronts));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let found = found.into_inner().expect("whole");
    let of = |name: &str| &found.iter().find(|row| row.0 == name).expect(name).3;
    for (name, like, but, fronts) in &found {
        for one in &fronts.0 {
            let other = of(like).0.iter().find(|other| other.0 == one.0);
            let is_alike = Some(one) == other;
            assert_eq!(
                is_alike,
                !but.contains(&one.0),
                "{name}: {one:?}; {like}: {other:?}"
            );
        }
    }
    let on_cpu = |name: &str| &of(name).0[0];
    assert_ne!(on_cpu("gguf"), on_cpu("tied"), "the head matters");
    assert_ne!(on_cpu("gguf"), on_cpu("begin"), "the begin token matters");
    let taken = rows
        .iter()
        .zip(&made)
        .filter(|(row, _)| !matches!(row.2, Refused(..)));
    let models: Vec<(&str, PathBuf)> = taken.map(|(row, path)| (row.0, path.clone())).collect();
    let served = served(home, &models);
    let text = |name: &str| &served.iter().find(|row| row.0 == name).expect(name).1;
    for (name, like, ..) in &found {
        assert_eq!(
            text(name),
            text(like),
            "{name} as served is not like {like}"
        );
    }
}
