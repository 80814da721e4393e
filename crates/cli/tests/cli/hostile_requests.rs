//! Grammars and schemas in requests come from strangers. Whatever they contain, the server stays up and others are
//! served. A client that leaves, is late or is asked to end leaves nothing behind.

use crate::serve::Server;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// Status and body of a request.
fn ask(server: &Server, path: &str, headers: &str, body: &Value) -> (u16, String) {
    let answer = server.ask("POST", path, headers, &body.to_string());
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no status: {answer:?}")),
        answer,
    )
}

fn messages() -> Value {
    json!([{"role": "user", "content": "Hi"}])
}

/// A schema of `n` nested objects, each included by reference.
fn chain(n: usize) -> Value {
    let mut definitions = serde_json::Map::new();
    for i in 0..n {
        let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
        definitions.insert(
            format!("a{i}"),
            json!({"type": "object", "properties": {"x": next}}),
        );
    }
    definitions.insert(format!("a{n}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/a0", "$defs": definitions})
}

/// Twenty expressions that must all match: their intersection has a million parts.
fn endless() -> Value {
    let pattern = |i: u8| json!({"pattern": format!("(.*[a-{}]){{20}}", char::from(b'b' + i))});
    json!({"type": "string", "allOf": (0..20).map(pattern).collect::<Vec<_>>()})
}

fn form(schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
}

/// Every way in which a request may bring a schema.
fn by_every_route(schema: &Value) -> Vec<(&'static str, Value)> {
    let model = "demo";
    let tool = json!({"name": "f", "parameters": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": schema["$defs"]}});
    let input = json!({"name": "f", "input_schema": tool["parameters"]});
    vec![
        (
            "/v1/chat/completions",
            json!({"model": model, "messages": messages(), "response_format": form(schema)}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": model, "messages": messages(), "structured_outputs": {"json": schema}}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": model, "messages": messages(), "tools": [{"type": "function", "function": tool}]}),
        ),
        (
            "/v1/completions",
            json!({"model": model, "prompt": "Hi", "response_format": form(schema)}),
        ),
        (
            "/v1/responses",
            json!({"model": model, "input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}),
        ),
        (
            "/v1/responses",
            json!({"model": model, "input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": tool["parameters"]}]}),
        ),
        (
            "/v1/messages",
            json!({"model": model, "max_tokens": 4, "messages": messages(), "tools": [input]}),
        ),
        (
            "/v1/messages",
            json!({"model": model, "max_tokens": 4, "messages": messages(), "output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        ),
        (
            "/api/chat",
            json!({"model": model, "stream": false, "messages": messages(), "format": schema}),
        ),
        (
            "/api/chat",
            json!({"model": model, "stream": false, "messages": messages(), "tools": [{"type": "function", "function": tool}]}),
        ),
        (
            "/api/generate",
            json!({"model": model, "stream": false, "prompt": "Hi", "format": schema}),
        ),
    ]
}

#[test]
fn deep_schemas_and_grammars_are_refused_on_every_route() {
    let home = tempdir().expect("a temporary folder");
    // The context is long enough for the functions' schemas in the prompt.
    let server = Server::start(
        home.path(),
        &["demo", "-c", "65536", "--parallel", "1", "--quiet"],
    );
    for (path, body) in by_every_route(&chain(600)) {
        let (status, answer) = ask(&server, path, "", &body);
        let what = body.as_object().and_then(|body| body.keys().next_back());
        assert_eq!(status, 400, "{path} {what:?}: {answer}");
        assert!(
            answer.contains("levels deep; at most"),
            "{path} {what:?}: {answer}"
        );
    }
    let lark = |n: usize, name: fn(usize) -> String| {
        let mut source = format!("start: {}\n", name(0));
        (0..n).for_each(|i| source += &format!("{}: {}\n", name(i), name(i + 1)));
        source + &format!("{}: \"x\"\n", name(n))
    };
    let by_lark = |source: String| {
        let body = json!({"model": "demo", "messages": messages(), "max_tokens": 4, "structured_outputs": {"grammar": source}});
        ask(&server, "/v1/chat/completions", "", &body)
    };
    let names: [fn(usize) -> String; 3] = [
        |i| format!("a{i}"),
        |i| format!("A{i}"),
        |i| {
            if i % 1000 < 500 {
                format!("a{i}")
            } else {
                format!("A{i}")
            }
        },
    ];
    for name in names {
        let (status, answer) = by_lark(lark(3000, name));
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains("levels deep; at most"), "{answer}");
    }
    // A grammar just below the depth limit compiles, with the stack that it needs.
    let (status, answer) = by_lark(lark(1000, names[0]));
    assert_eq!(status, 200, "{answer}");
    let body = json!({"model": "demo", "messages": messages(), "max_tokens": 4, "response_format": form(&chain(500))});
    let (status, answer) = ask(&server, "/v1/chat/completions", "", &body);
    assert_eq!(status, 200, "{answer}");
}

/// Live child processes of a process, by their first argument.
fn children(id: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{id}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let ids: Vec<String> = lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let argument = |id: String| {
        let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let argument = line.split(|byte| *byte == 0).nth(1)?;
        Some(String::from_utf8_lossy(argument).into_owned())
    };
    ids.into_iter()
        .filter_map(argument)
        .filter(|argument| argument == "__try-grammar")
        .collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A request in flight; dropping it closes the connection.
fn send(server: &Server, headers: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    let body = body.to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("a request");
    stream
}

fn hostile() -> Value {
    json!({"model": "demo", "messages": messages(), "max_tokens": 4, "response_format": form(&endless())})
}

#[test]
fn what_does_not_end_holds_nobody_else_and_goes_with_its_client() {
    let home = tempdir().expect("a temporary folder");
    let keys = [
        "bad", "good", "other0", "other1", "other2", "other3", "other4", "other5",
    ];
    let mut arguments = vec!["demo", "-c", "512", "--quiet"];
    keys.iter()
        .for_each(|key| arguments.extend(["--api-key", *key]));
    let server = Server::start(home.path(), &arguments);
    let (bad, good) = ("x-api-key: bad\r\n", "x-api-key: good\r\n");
    // The request's deadline ends the work.
    let start = Instant::now();
    let headers = format!("{bad}x-request-timeout-ms: 500\r\n");
    let (status, answer) = ask(&server, "/v1/chat/completions", &headers, &hostile());
    assert_eq!(status, 504, "{answer}");
    assert!(start.elapsed() < Duration::from_secs(3));
    wait_until("its process ends", || children(server.id()).is_empty());
    // Six requests of one client, with another client's chat and grammar beside them.
    let held: Vec<TcpStream> = (0..6).map(|_| send(&server, bad, &hostile())).collect();
    wait_until("one of them is tried", || !children(server.id()).is_empty());
    let plain = json!({"model": "demo", "messages": messages(), "max_tokens": 4});
    assert_eq!(ask(&server, "/v1/chat/completions", good, &plain).0, 200);
    let small = json!({"model": "demo", "messages": messages(), "max_tokens": 4, "structured_outputs": {"regex": "[a-z]+"}});
    assert_eq!(ask(&server, "/v1/chat/completions", good, &small).0, 200);
    assert_eq!(children(server.id()).len(), 1, "one at a time");
    // Many clients with such grammars only slow the server down.
    let many: Vec<TcpStream> = (0..6)
        .map(|i| send(&server, &format!("x-api-key: other{i}\r\n"), &hostile()))
        .collect();
    wait_until("all are tried", || children(server.id()).len() == 7);
    let other = json!({"model": "demo", "messages": messages(), "max_tokens": 4, "structured_outputs": {"regex": "[0-9]+"}});
    assert_eq!(ask(&server, "/v1/chat/completions", good, &other).0, 200);
    drop(many);
    // The clients leave.
    drop(held);
    wait_until("nothing is left of them", || {
        children(server.id()).is_empty()
    });
    assert_eq!(ask(&server, "/v1/chat/completions", bad, &small).0, 200);
}

#[test]
fn the_server_ends_when_asked_to_while_grammars_are_tried() {
    let home = tempdir().expect("a temporary folder");
    let arguments = ["demo", "-c", "512", "--grace", "1"];
    let server = Server::start(home.path(), &arguments);
    let held: Vec<TcpStream> = (0..3).map(|_| send(&server, "", &hostile())).collect();
    wait_until("one of them is tried", || !children(server.id()).is_empty());
    let (id, start) = (server.id(), Instant::now());
    server.end("-TERM");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(children(id).is_empty());
    drop(held);
}

#[test]
fn what_takes_all_its_time_is_told_so() {
    let home = tempdir().expect("a temporary folder");
    let server = Server::start(home.path(), &["demo", "-c", "512", "--quiet"]);
    let (status, answer) = ask(&server, "/v1/chat/completions", "", &hostile());
    // On a machine that is busy with other work, the elapsed time ends it.
    assert!([400, 503].contains(&status), "{answer}");
    assert!(answer.contains("it was stopped after"), "{answer}");
}
