//! Clients that disconnect, wait, or time out; many at once, each with the right answer.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::engines::{Fault, Watched};
use crate::{Client, Running, options, question, with};

const CHAT: &str = "/v1/chat/completions";

fn endless(n_tokens: usize) -> Value {
    with(
        question("Hi"),
        json!({"ignore_eos": true, "max_tokens": n_tokens, "stream": true}),
    )
}

fn counters(server: &Running) -> Value {
    server.get("/v1/system").json()["models"][0]["counters"].clone()
}

fn until(server: &Running, what: &str, condition: impl Fn(&Value) -> bool) {
    let start = Instant::now();
    while !condition(&counters(server)) {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "never: {what}: {}",
            counters(server)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_goes_away_frees_its_place() {
    let mut options = options();
    options.models = vec![crate::slow(4)];
    let server = Running::start(options);
    for body in [endless(1000), with(endless(1000), json!({"stream": false}))] {
        let streams: Vec<_> = (0..4)
            .map(|_| {
                use std::io::Write;
                let mut stream = server.connect();
                let text = body.to_string();
                let head = format!(
                    "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{text}",
                    text.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream
            })
            .collect();
        until(&server, "running", |counters| counters["n_running"] == 4);
        drop(streams);
        until(&server, "free", |counters| {
            counters["n_running"] == 0 && counters["kv_used_bytes"] == 0
        });
    }
    assert_eq!(counters(&server)["aborted"], 8);
}

#[test]
fn first_bytes_come_at_once_and_silence_is_filled() {
    let mut options = options();
    // One sequence, so that the second has to wait.
    options.models = vec![crate::slow(1)];
    let server = Running::start(options);
    let mut first = server.begin(CHAT, &endless(900));
    let _ = (first.piece(), first.piece(), first.piece());
    let start = Instant::now();
    let mut second = server.begin(CHAT, &with(question("Hi"), json!({"stream": true})));
    assert_eq!(second.piece().unwrap(), ": accepted\n\n");
    assert!(
        start.elapsed() < Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );
    let role = second.piece().unwrap();
    assert!(role.contains("\"role\":\"assistant\""), "{role}");
    assert_eq!(second.piece().unwrap(), ": still working\n\n");
    drop(first);
    let rest = second.read_all();
    assert_eq!(rest.events().last().unwrap().1, "[DONE]");
}

#[test]
fn deadlines_are_kept() {
    let mut options = options();
    options.models = vec![crate::slow(4)];
    let server = Running::start(options);
    let text = with(endless(1000), json!({"stream": false})).to_string();
    let headers = [("x-request-timeout-ms", "150")];
    let reply = server.request("POST", CHAT, &headers, text.as_bytes());
    assert_eq!(reply.status, 504, "{}", reply.body);
    assert_eq!(reply.json()["error"]["code"], "deadline");
    // In a stream the error is an event, and there is no [DONE].
    let reply = server.request("POST", CHAT, &headers, endless(1000).to_string().as_bytes());
    let events = reply.events();
    let last: Value = serde_json::from_str(&events.last().unwrap().1).unwrap();
    assert_eq!(last["error"]["code"], "deadline");
    let wrong = server.request(
        "POST",
        CHAT,
        &[("x-request-timeout-ms", "soon")],
        text.as_bytes(),
    );
    assert_eq!(wrong.status, 400);
}

#[test]
fn deadlines_are_kept_while_a_model_loads() {
    let mut options = options();
    // The test decides when the model is opened. After 10 s it opens anyway, so that a request that waits for it
    // fails the test.
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let (opened, ready) = (Mutex::new(opened), options.models[0].open.clone());
    options.models[0].open = Arc::new(move || {
        let _ = opened.lock().unwrap().recv_timeout(Duration::from_secs(10));
        ready()
    });
    let server = Running::start_loading(options);
    let text = question("Hi").to_string();
    for path in [
        CHAT,
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/chat",
        "/apply-template",
    ] {
        let headers = [("x-request-timeout-ms", "50")];
        let reply = server.request("POST", path, &headers, text.as_bytes());
        assert_eq!(reply.status, 504, "{path}: {}", reply.body);
        assert_eq!(server.get("/ready").status, 503, "{path} waited for it");
    }
    drop(open);
    assert_eq!(server.post(CHAT, &question("Hi")).status, 200);
}

#[test]
fn many_at_once_get_their_own_answers() {
    let server = Running::start(options());
    // The answer of each request when it runs alone.
    let body = |i: usize| {
        let (a, b) = (1 + i % 9, 1 + (i * 7) % 9);
        with(
            question(&format!("What is {a} plus {b}?")),
            json!({"seed": i, "temperature": if i.is_multiple_of(2) { 0.0 } else { 1.0 }, "max_tokens": 30,
                    "logprobs": true}),
        )
    };
    let alone: Vec<Value> = (0..24)
        .map(|i| server.ask(CHAT, &body(i))["choices"].clone())
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (server, alone) = (&*server, &alone);
            scope.spawn(move || {
                for round in 0..12 {
                    let i = (thread * 5 + round * 3) % 24;
                    match (thread + round) % 4 {
                        // Some disconnect during the answer.
                        0 => {
                            let mut open = server.begin(CHAT, &endless(300));
                            let _ = (open.piece(), open.piece());
                        }
                        _ => assert_eq!(server.ask(CHAT, &body(i))["choices"], alone[i], "{i}"),
                    }
                }
            });
        }
    });
    until(&server, "idle", |counters| {
        counters["n_running"] == 0 && counters["n_waiting"] == 0 && counters["kv_used_bytes"] == 0
    });
}

/// A question with a seed.
fn seeded(i: usize) -> Value {
    let question = question(&format!("What is {} plus 3?", 1 + i % 9));
    with(question, json!({"seed": i}))
}

/// Requests that are cut off, invalid, too long, abandoned, or not HTTP at all.
fn misuse(server: &Client, kind: usize, round: usize) {
    use std::io::Write;
    match kind {
        0 => {
            let text = endless(50).to_string();
            let request = format!(
                "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{text}",
                text.len()
            );
            let n = (7 * (round + 1)).min(request.len() - 1);
            let _ = server.connect().write_all(&request.as_bytes()[..n]);
        }
        1 => {
            let reply = server.request("POST", CHAT, &[], b"{\"model\"");
            assert_eq!(reply.status, 400);
        }
        2 => {
            let reply = server.request("POST", CHAT, &[], &[b'x'; 70_000]);
            assert_eq!(reply.status, 413);
        }
        3 => drop(server.begin(CHAT, &endless(400))),
        _ => {
            // Bytes that are not HTTP.
            let mut stream = server.connect();
            let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n");
        }
    }
}

/// A slow reader still gets the whole stream.
fn read_slowly(server: &Client, body: &Value) {
    let mut open = server.begin(CHAT, &with(body.clone(), json!({"stream": true})));
    let mut text = String::new();
    while let Some(piece) = open.piece() {
        text += &piece;
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(text.ends_with("data: [DONE]\n\n"));
}

#[test]
fn abuse_costs_others_nothing() {
    let mut options = options();
    options.http.max_body_bytes = 64 << 10;
    let server = Running::start(options);
    let alone: Vec<Value> = (0..9)
        .map(|i| server.ask(CHAT, &seeded(i))["choices"].clone())
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (server, alone) = (&*server, &alone);
            scope.spawn(move || {
                for round in 0..24 {
                    match (thread * 3 + round) % 8 {
                        kind @ 0..=4 => misuse(server, kind, round),
                        5 => read_slowly(server, &seeded(round)),
                        _ => {
                            let i = (thread + round) % 9;
                            assert_eq!(server.ask(CHAT, &seeded(i))["choices"], alone[i]);
                        }
                    }
                }
            });
        }
    });
    until(&server, "idle", |counters| {
        counters["n_running"] == 0 && counters["n_waiting"] == 0 && counters["kv_used_bytes"] == 0
    });
    assert_eq!(counters(&server)["failed"], 0);
}

/// A server whose engine fails on sequences that contain this word.
fn poisoned(fault: Fault) -> (Running, &'static str) {
    let word = "hedgehog";
    let tokens = crate::shared().ask("/tokenize", &json!({"content": word}))["tokens"].clone();
    let engines = Watched::slow(crate::engine_options(), Duration::from_millis(3));
    engines.poison(tokens[0].as_u64().unwrap() as u32, fault);
    let mut options = options();
    options.models[0].open = Arc::new(move || Ok(engines.open()));
    (Running::start(options), word)
}

#[test]
fn a_fault_of_the_device_ends_one_stream_with_an_error() {
    let (server, word) = poisoned(Fault::Amid);
    let ask = |text: &str| {
        with(
            question(text),
            json!({"stream": true, "max_tokens": 200, "ignore_eos": true}),
        )
    };
    let others: Vec<_> = (0..2)
        .map(|_| server.begin(CHAT, &ask("What is 7 plus 5?")))
        .collect();
    let events = server.post(CHAT, &ask(word)).events();
    let last: Value = serde_json::from_str(&events.last().unwrap().1).unwrap();
    assert_eq!(last["error"]["type"], "server_error");
    let whole = server.post(CHAT, &with(question(word), json!({"max_tokens": 5})));
    assert_eq!(whole.status, 500);
    assert_eq!(whole.json()["error"]["code"], "engine");
    for other in others {
        let reply = other.read_all();
        let text: Vec<Value> = reply.chunks();
        assert!(
            text.iter()
                .any(|chunk| chunk["choices"][0]["finish_reason"] == "length")
        );
    }
}

#[test]
fn a_panic_of_the_engine_hangs_nobody_and_the_model_comes_back() {
    let (server, word) = poisoned(Fault::Panic);
    let mut other = server.begin(CHAT, &endless(900));
    let _ = (other.piece(), other.piece());
    let reply = server.post(CHAT, &question(word));
    assert_eq!(reply.status, 500, "{}", reply.body);
    let events = other.read_all().events();
    assert!(
        events.last().unwrap().1.contains("thread has ended"),
        "{events:?}"
    );
    let answer = server.ask(CHAT, &question("What is 7 plus 5?"));
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        "7 plus 5 is 12."
    );
    assert_eq!(counters(&server)["n_running"], 0);
}
