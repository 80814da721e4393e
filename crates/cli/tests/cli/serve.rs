//! `millrace serve` as a process: its address, its answers, its end.

use crate::run::{BAD_INPUT, IO, NOT_FOUND, OK, USAGE, finish, millrace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::tempdir;

/// A server with the address it printed; it ends with the test.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    pub(crate) fn start(home: &Path, arguments: &[&str]) -> Server {
        let mut child = millrace(home)
            .args(["serve", "--port", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        stdout.read_line(&mut line).expect("an address");
        let (_, address) = line.trim().split_once("://").expect("an address");
        Server {
            address: address.to_owned(),
            child,
        }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks the server to end; returns its standard error.
    pub(crate) fn end(mut self, signal: &str) -> String {
        let status = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(status.expect("kill starts").success());
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(OK), "{signal}");
        let mut told = String::new();
        let mut stderr = self.child.stderr.take().expect("stderr");
        stderr.read_to_string(&mut told).expect("text");
        told
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const QUESTION: &str = r#"{"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": "What is 7 plus 5?"}]}"#;

#[test]
fn it_answers_logs_and_ends_when_asked_to() {
    let home = tempdir().expect("a temporary folder");
    for signal in ["-TERM", "-INT"] {
        let server = Server::start(home.path(), &["demo"]);
        let answer = server.ask(
            "POST",
            "/v1/chat/completions",
            "x-request-id: mine\r\n",
            QUESTION,
        );
        assert!(answer.contains("7 plus 5 is 12."), "{answer}");
        let page = server.ask("GET", "/", "", "");
        assert!(page.contains("<title>Millrace</title>"));
        let system = server.ask("GET", "/v1/system", "", "");
        assert!(system.contains("memory_total_bytes"), "{system}");
        let log = server.end(signal);
        let complete = log
            .lines()
            .find(|line| line.contains("\"end\":\"complete\""));
        let complete: serde_json::Value =
            serde_json::from_str(complete.expect("a line on the answer")).expect("JSON");
        assert_eq!(complete["request"], "mine");
        assert_eq!(complete["placement"]["host_time"], "measured");
    }
}

/// `millrace serve … 2>&1 | head`: a closed reader of the log costs no answer.
#[test]
fn the_reader_of_the_log_may_go() {
    let home = tempdir().expect("a temporary folder");
    let mut server = Server::start(home.path(), &["demo", "-c", "256"]);
    drop(server.child.stderr.take());
    for _ in 0..2 {
        let answer = server.ask("POST", "/v1/chat/completions", "", QUESTION);
        assert!(answer.contains("7 plus 5 is 12."), "{answer}");
    }
}

/// The scheduler drives an engine on a device as it drives the CPU's: several correct answers at once,
/// with times that name their source.
#[test]
fn on_a_device_too() {
    let home = tempdir().expect("a temporary folder");
    let server = Server::start(home.path(), &["demo", "--device", "xdna2", "-c", "256"]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let answer = server.ask("POST", "/v1/chat/completions", "", QUESTION);
                assert!(answer.contains("7 plus 5 is 12."), "{answer}");
            });
        }
    });
    let log = server.end("-TERM");
    let complete: Vec<serde_json::Value> = log
        .lines()
        .filter(|line| line.contains("\"end\":\"complete\""))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(complete.len(), 3);
    for line in complete {
        let placement = &line["placement"];
        let time = placement["device_time"].as_str().expect("a time's origin");
        assert!(time.starts_with("modelled"), "{time}");
        assert!(placement["device_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    }
}

/// Two clients at once, greedy and with a seed: a server's output does not depend on its drafter.
#[test]
fn drafts_change_no_answer() {
    let home = tempdir().expect("a temporary folder");
    let body = |server: &Server, sampling: &str| {
        let question = format!(
            r#"{{"model": "demo", "prompt": "Once upon a time", "max_tokens": 60, "placement": true, {sampling}}}"#
        );
        let answer = server.ask("POST", "/v1/completions", "", &question);
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str::<serde_json::Value>(body).expect(body)
    };
    let texts = |server: &Server| {
        std::thread::scope(|scope| {
            let ways = [r#""temperature": 0"#, r#""temperature": 0.9, "seed": 7"#];
            let asked = ways.map(|way| scope.spawn(move || body(server, way)));
            asked.map(|answer| answer.join().expect("an answer"))
        })
    };
    let plain = Server::start(home.path(), &["demo", "-c", "256"]);
    let expected = texts(&plain);
    assert!(expected[0]["usage"]["placement"]["drafted_tokens"].is_null());
    assert_ne!(
        expected[0]["choices"][0]["text"],
        expected[1]["choices"][0]["text"]
    );
    drop(plain);
    for draft in ["demo-draft", "ngram"] {
        let server = Server::start(home.path(), &["demo", "-c", "256", "--draft", draft]);
        let found = texts(&server);
        let mut n_drafted = 0;
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found["choices"], expected["choices"], "{draft}");
            let count = |name: &str| {
                let n = &found["usage"]["placement"][name];
                n.as_u64().expect("a count")
            };
            assert!(count("accepted_tokens") <= count("drafted_tokens"));
            n_drafted += count("drafted_tokens");
        }
        let metrics = server.ask("GET", "/metrics", "", "");
        let line =
            format!("vllm:spec_decode_num_draft_tokens_total{{model_name=\"demo\"}} {n_drafted}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
        let log = server.end("-TERM");
        assert!(log.contains("\"drafted_tokens\":"), "{log}");
        let told = "demo-draft drafts for demo: ";
        assert_eq!(log.contains(told), draft != "ngram", "{log}");
    }
}

#[test]
fn drafts_that_cannot_be_are_refused_at_the_start() {
    let home = tempdir().expect("a temporary folder");
    let refused = |arguments: &[&str], code: i32, mentions: &[&str]| {
        let mut command = millrace(home.path());
        command.args(["serve", "--port", "0"]).args(arguments);
        finish(&mut command).expect_error(code, mentions);
    };
    let sizes = ["demo cannot draft for demo-draft", "exchange them"];
    refused(&["demo-draft", "--draft", "demo"], USAGE, &sizes);
    let missing = ["demo", "--draft", "no-such-model"];
    refused(&missing, NOT_FOUND, &["no-such-model"]);
    let two = ["a=demo", "b=demo", "--draft"];
    let which = ["which of a, b", "--draft a=ngram"];
    refused(&[&two[..], &["ngram"]].concat(), USAGE, &which);
    let unknown = ["no model called c", "a, b"];
    refused(&[&two[..], &["c=ngram"]].concat(), USAGE, &unknown);
}

#[test]
fn models_have_names_and_keys_come_from_files_and_environment() {
    let home = tempdir().expect("a temporary folder");
    let keys = home.path().join("keys.txt");
    std::fs::write(&keys, "# keys\n\none\n two \n").expect("a file");
    let keys = keys.display().to_string();
    let server = Server::start(
        home.path(),
        // The longest grace time that can be written.
        &[
            "a=demo",
            "b=demo-draft",
            "--api-key-file",
            &keys,
            "--quiet",
            "--grace",
            "18446744073709551615",
        ],
    );
    let models = |key: &str| {
        server.ask(
            "GET",
            "/v1/models",
            &format!("authorization: Bearer {key}\r\n"),
            "",
        )
    };
    assert!(models("wrong").starts_with("HTTP/1.1 401"));
    for key in ["one", "two"] {
        let answer = models(key);
        assert!(
            answer.contains("\"id\":\"a\"") && answer.contains("\"id\":\"b\""),
            "{answer}"
        );
    }
    assert_eq!(server.end("-TERM"), "");
}

/// `run` and `chat` with `--server` give the same answers and the same errors as a model loaded here.
#[test]
fn run_and_chat_can_ask_a_running_server() {
    let home = tempdir().expect("a temporary folder");
    let server = Server::start(home.path(), &["demo", "-c", "256"]);
    let url = format!("http://{}", server.address);
    let ask = |arguments: &[&str]| {
        let mut command = millrace(home.path());
        command.args(arguments).args(["--server", &url]);
        finish(&mut command)
    };
    let story = ["run", "demo", "Once upon a time", "--greedy", "-n", "20"];
    let remote = ask(&story).expect(OK);
    assert_eq!(
        remote.stdout,
        finish(millrace(home.path()).args(story)).expect(OK).stdout
    );
    assert!(remote.stderr.contains("20 written"), "{}", remote.stderr);
    // Without a limit it continues to the end of the story or of the context, and does not stop after 16 tokens.
    let long = ["run", "demo", "Once upon a time", "--greedy"];
    let here = finish(millrace(home.path()).args(long).args(["-c", "256"])).expect(OK);
    assert_eq!(ask(&long).expect(OK).stdout, here.stdout);
    let question = [
        "run",
        "demo",
        "--chat",
        "What is 7 plus 5?",
        "--greedy",
        "--json",
    ];
    let answer: serde_json::Value =
        serde_json::from_str(&ask(&question).expect(OK).stdout).expect("JSON");
    assert_eq!(answer["text"], "7 plus 5 is 12.");
    assert_eq!(answer["finish_reason"], "stop");
    assert!(
        answer["usage"]["prompt_tokens"]
            .as_u64()
            .is_some_and(|n| n > 5)
    );

    let saved = home.path().join("saved.json").display().to_string();
    let said = format!("What is 7 plus 5?\n/stats\n/save {saved}\nWhat is 1 plus 1?\n/nonsense\n");
    let chat = |arguments: &[&str]| {
        let mut child = millrace(home.path())
            .args(["chat", "demo", "--greedy"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(said.as_bytes()).expect("lines");
        drop(stdin);
        crate::run::finished(child.wait_with_output().expect("it ends"))
    };
    let remote = chat(&["--server", &url]);
    assert!(
        remote.stdout.contains("7 plus 5 is 12.\n"),
        "{}",
        remote.stdout
    );
    assert!(
        remote.stdout.contains("2 messages; http://127.0.0.1"),
        "{}",
        remote.stdout
    );
    assert!(
        remote.stderr.contains("no command /nonsense"),
        "{}",
        remote.stderr
    );
    let of_server = std::fs::read_to_string(&saved).expect("it was saved");
    chat(&[]);
    assert_eq!(
        of_server,
        std::fs::read_to_string(&saved).expect("it was saved")
    );

    ask(&["run", "other", "Hi"]).expect_error(NOT_FOUND, &["`other` does not exist", "demo"]);
    ask(&["run", "demo", "Hi", "--temperature", "-2"]).expect_error(USAGE, &["temperature"]);
    ask(&["run", "demo", "Hi", "--device", "xdna2"]).expect_error(USAGE, &["cannot be used with"]);
    let image = home.path().join("a.png");
    std::fs::write(&image, b"no image").expect("a file");
    let image = image.display().to_string();
    ask(&["run", "demo", "Hi", "--image", &image]).expect_error(BAD_INPUT, &["no PNG"]);
    std::fs::write(&image, b"\x89PNG").expect("a file");
    ask(&["run", "demo", "Hi", "--image", &image]).expect_error(USAGE, &["no vision encoder"]);
    server.end("-TERM");
    ask(&story).expect_error(NOT_FOUND, &["cannot ask http://127.0.0.1"]);
}

#[test]
fn over_tls_with_a_key() {
    let home = tempdir().expect("a temporary folder");
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tls");
    let file = |name: &str| tls.join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let server = Server::start(
        home.path(),
        &[
            "demo",
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
            "--api-key",
            "secret",
        ],
    );
    let url = format!("https://{}", server.address);
    let ask = |key: &str, arguments: &[&str]| {
        let mut command = millrace(home.path());
        command.args([
            "run",
            "demo",
            "--chat",
            "What is 7 plus 5?",
            "--greedy",
            "--server",
            &url,
        ]);
        finish(command.args(arguments).env("MILLRACE_API_KEY", key))
    };
    let trusted = ["--server-ca", &certificate];
    assert_eq!(
        ask("secret", &trusted).expect(OK).stdout,
        "7 plus 5 is 12.\n"
    );
    ask("guess", &trusted).expect_error(USAGE, &["401", "MILLRACE_API_KEY"]);
    ask("secret", &[]).expect_error(NOT_FOUND, &["cannot ask https://", "--server-ca"]);
    server.end("-TERM");
    let mut alone = millrace(home.path());
    alone.args(["serve", "demo", "--tls-cert", &certificate]);
    finish(&mut alone).expect_error(USAGE, &["--tls-key"]);
    let other = file("other-key.pem");
    let mut mixed = millrace(home.path());
    mixed.args([
        "serve",
        "demo",
        "--port",
        "0",
        "--tls-cert",
        &certificate,
        "--tls-key",
        &other,
    ]);
    finish(&mut mixed).expect_error(BAD_INPUT, &["cannot be used together"]);
}

#[test]
fn what_cannot_be_served_is_told_before_it_listens() {
    let home = tempdir().expect("a temporary folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let empty = home.path().join("empty.txt");
    std::fs::write(&empty, "# none\n").expect("a file");
    let empty = empty.display().to_string();
    for (arguments, code, words) in [
        (
            vec!["demo", "--host", "0.0.0.0"],
            USAGE,
            "no API key is set",
        ),
        (
            vec!["demo", "demo"],
            USAGE,
            "two models or adapters are called `demo`",
        ),
        (vec!["no-such-model"], NOT_FOUND, "no model `no-such-model`"),
        (
            vec!["demo", "--port", &port],
            IO,
            "cannot listen on 127.0.0.1",
        ),
        (
            vec!["demo", "--api-key-file", &empty],
            BAD_INPUT,
            "holds no key",
        ),
        (vec!["demo", "--parallel", "0"], USAGE, "at least 1"),
        (
            vec!["demo", "--memory-budget", "1"],
            USAGE,
            "the memory budget is 1 MiB",
        ),
    ] {
        let mut command = millrace(home.path());
        command.arg("serve").args(&arguments);
        finish(&mut command).expect_error(code, &[words]);
    }
}
