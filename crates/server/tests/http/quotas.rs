//! Limits of API keys, their usage, and the audit log.

use millrace_server::{HttpOptions, KeyLimits};
use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::{Running, options};

const COMPLETIONS: &str = "/v1/completions";

/// A server with a key for each line of a file of keys.
fn server(lines: &[&str], change: impl FnOnce(&mut HttpOptions)) -> Running {
    let read = lines.iter().map(|line| KeyLimits::read_line(line).unwrap());
    let (api_keys, key_limits) = read.unzip();
    let mut options = options();
    options.http.api_keys = api_keys;
    options.http.key_limits = key_limits;
    change(&mut options.http);
    Running::start(options)
}

fn body(fields: Value) -> String {
    let body =
        json!({"model": "demo", "prompt": "A secret prompt", "max_tokens": 4, "ignore_eos": true});
    crate::with(body, fields).to_string()
}

fn ask(client: &Client, key: &str, fields: Value) -> Reply {
    let key = format!("Bearer {key}");
    let headers = [
        ("authorization", key.as_str()),
        ("content-type", "application/json"),
    ];
    client.request("POST", COMPLETIONS, &headers, body(fields).as_bytes())
}

fn metrics(client: &Client, key: &str) -> String {
    let key = format!("Bearer {key}");
    client
        .request("GET", "/metrics", &[("authorization", key.as_str())], b"")
        .body
}

#[test]
fn a_key_has_its_quotas_and_others_are_not_held_up() {
    let keys = [
        "few name=few requests=2",
        "little tokens=5 name=little",
        "plain",
    ];
    let server = server(&keys, |_| {});
    for _ in 0..2 {
        assert_eq!(ask(&server, "few", json!({})).status, 200);
    }
    let refused = ask(&server, "few", json!({}));
    assert_eq!(refused.status, 429, "{}", refused.body);
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("rate_limit_error"), &json!("rate_limit_exceeded"))
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("2 requests a minute"),
        "{error}"
    );
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    // Tokens are counted once they are known: the first answer overdraws the quota.
    assert_eq!(ask(&server, "little", json!({"max_tokens": 8})).status, 200);
    let refused = ask(&server, "little", json!({}));
    assert!(
        refused.status == 429 && refused.body.contains("5 tokens a minute"),
        "{}",
        refused.body
    );
    // Requests that need no model are not counted.
    let key = [("authorization", "Bearer few")];
    assert_eq!(server.request("GET", "/v1/models", &key, b"").status, 200);
    assert_eq!(ask(&server, "plain", json!({})).status, 200);

    let metrics = metrics(&server, "plain");
    for line in [
        "millrace:key_requests_total{key=\"few\"} 2",
        "millrace:key_refused_total{key=\"few\"} 1",
        "millrace:key_generation_tokens_total{key=\"few\"} 8",
        "millrace:key_generation_tokens_total{key=\"little\"} 8",
        "millrace:key_requests_total{key=\"key 2\"} 1",
        "millrace:key_requests_running{key=\"few\"} 0",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    // Names reveal nothing about keys.
    assert!(!metrics.contains("\"plain\""));
}

#[test]
fn a_request_runs_until_its_answer_is_written() {
    let server = server(&["one concurrent=1", "two"], |_| {});
    let key = [
        ("authorization", "Bearer one"),
        ("content-type", "application/json"),
    ];
    let long = body(json!({"max_tokens": 600, "stream": true}));
    let mut first = server.open("POST", COMPLETIONS, &key, long.as_bytes());
    first.piece().unwrap();
    let refused = ask(&server, "one", json!({}));
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(
        refused.body.contains("1 requests at a time"),
        "{}",
        refused.body
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(ask(&server, "two", json!({})).status, 200);
    // A client that disconnects makes room.
    drop(first);
    let mut tries = 0;
    while ask(&server, "one", json!({})).status == 429 {
        tries += 1;
        assert!(tries < 200, "the place of a client that left is never free");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn labels_of_keys_are_bounded() {
    let keys: Vec<String> = (0..130).map(|i| format!("secret{i}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let server = server(&keys, |_| {});
    assert_eq!(ask(&server, "secret129", json!({})).status, 200);
    let metrics = metrics(&server, "secret0");
    let of_requests = metrics
        .lines()
        .filter(|line| line.starts_with("millrace:key_requests_total{"));
    assert_eq!(of_requests.count(), 101);
    assert!(
        metrics.contains("millrace:key_requests_total{key=\"other\"} 1"),
        "{metrics}"
    );
}

#[test]
fn the_audit_log_has_no_texts_unless_it_is_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    for with_text in [false, true] {
        let path = dir.path().join(format!("{with_text}.jsonl"));
        let mut server = server(&["secret name=team requests=1"], |http| {
            http.audit_log = Some(path.clone());
            http.audit_text = with_text;
        });
        let answer = ask(&server, "secret", json!({"stream": true}));
        assert_eq!(answer.status, 200);
        let request = answer.header("x-request-id").unwrap().to_owned();
        assert_eq!(ask(&server, "secret", json!({})).status, 429);
        assert_eq!(ask(&server, "wrong", json!({})).status, 401);
        server.stop();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(lines.iter().all(|line| line["time"].is_string()), "{text}");
        let of_answer: Vec<&Value> = lines
            .iter()
            .filter(|line| line["request"] == request.as_str())
            .collect();
        let began = of_answer.iter().find(|line| line["status"] == 200).unwrap();
        assert_eq!(
            (&began["key"], &began["path"]),
            (&json!("team"), &json!(COMPLETIONS))
        );
        let ended = of_answer
            .iter()
            .find(|line| line["end"] == "complete")
            .unwrap();
        assert_eq!(
            (&ended["completion_tokens"], &ended["model"]),
            (&json!(4), &json!("demo"))
        );
        for status in [429, 401] {
            assert!(lines.iter().any(|line| line["status"] == status), "{text}");
        }
        assert!(
            !text.contains("Bearer") && !text.contains("\"secret\""),
            "{text}"
        );
        assert_eq!(text.contains("A secret prompt"), with_text, "{text}");
    }
}
