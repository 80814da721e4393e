//! `millrace serve` as a process: its address, its answers, its end.

use crate::run::{BAD_INPUT, IO, NOT_FOUND, OK, USAGE, finish, millrace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::tempdir;

/// A server with the address it printed; it ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(home: &Path, arguments: &[&str]) -> Server {
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
        let address = line.trim().strip_prefix("http://").expect("an address");
        Server {
            address: address.to_owned(),
            child,
        }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
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

    /// Asks it to end; what it wrote to standard error.
    fn end(mut self, signal: &str) -> String {
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

/// The scheduler drives an engine on a device as it drives the CPU's: several answers at once, each right,
/// and times that say where they come from.
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

#[test]
fn models_have_names_and_keys_come_from_files_and_environment() {
    let home = tempdir().expect("a temporary folder");
    let keys = home.path().join("keys.txt");
    std::fs::write(&keys, "# keys\n\none\n two \n").expect("a file");
    let keys = keys.display().to_string();
    let server = Server::start(
        home.path(),
        &["a=demo", "b=demo-draft", "--api-key-file", &keys, "--quiet"],
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
        (vec!["demo", "demo"], USAGE, "two models are called `demo`"),
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
    ] {
        let mut command = millrace(home.path());
        command.arg("serve").args(&arguments);
        finish(&mut command).expect_error(code, &[words]);
    }
}
