//! Files and batches.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Reply;
use crate::{Running, options, slow};

fn server(folder: &Path, keys: &[&str]) -> Running {
    let mut options = options();
    options.http.batches = Some(folder.to_owned());
    options.http.api_keys = keys.iter().map(|key| (*key).to_owned()).collect();
    options.http.grace = Duration::ZERO;
    Running::start(options)
}

fn line(id: &str, fields: Value) -> String {
    let body = crate::with(
        json!({"model": "demo", "temperature": 0, "max_tokens": 8}),
        fields,
    );
    json!({"custom_id": id, "method": "POST", "url": "/v1/completions", "body": body}).to_string()
}

/// Sends a request with this API key.
fn with_key(server: &Running, method: &str, path: &str, key: &str, body: &str) -> Reply {
    let key = format!("Bearer {key}");
    let headers = [
        ("authorization", key.as_str()),
        ("content-type", "application/json"),
    ];
    server.request(method, path, &headers, body.as_bytes())
}

fn upload(server: &Running, key: Option<&str>, content: &str) -> Reply {
    let body = format!(
        "--b\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{content}\r\n--b--\r\n"
    );
    let key = format!("Bearer {}", key.unwrap_or_default());
    let headers = [
        ("authorization", key.as_str()),
        ("content-type", "multipart/form-data; boundary=b"),
    ];
    server.request("POST", "/v1/files", &headers, body.as_bytes())
}

fn ended(server: &Running, id: &str) -> Value {
    let start = Instant::now();
    loop {
        let batch = server.get(&format!("/v1/batches/{id}")).json();
        if !["in_progress", "cancelling"].contains(&batch["status"].as_str().unwrap()) {
            return batch;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{batch}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answers(server: &Running, file: &Value) -> Vec<Value> {
    let content = server
        .get(&format!("/v1/files/{}/content", file.as_str().unwrap()))
        .body;
    content
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_batch_from_its_file_to_its_answers() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let lines = [
        line("a", json!({"prompt": "Once upon a time"})),
        line("b", json!({"prompt": "The dog"})),
        line("wrong", json!({"prompt": "x", "temperature": "hot"})),
    ];
    let file = upload(&server, None, &lines.join("\n")).json();
    assert_eq!(
        (&file["object"], &file["purpose"]),
        (&json!("file"), &json!("batch"))
    );
    assert_eq!(file["bytes"], lines.join("\n").len());
    let request = json!({"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h",
                         "metadata": {"for": "a test"}});
    let batch = server.ask("/v1/batches", &request);
    let batch = ended(&server, batch["id"].as_str().unwrap());
    assert_eq!(batch["status"], "completed", "{batch}");
    assert_eq!(
        batch["request_counts"],
        json!({"total": 3, "completed": 2, "failed": 1})
    );
    assert_eq!(batch["metadata"], json!({"for": "a test"}));
    assert_answers_of_single_requests(&server, &batch);
    let errors = answers(&server, &batch["error_file_id"]);
    assert_eq!(
        (errors.len(), &errors[0]["custom_id"]),
        (1, &json!("wrong"))
    );
    assert_eq!(errors[0]["response"]["status_code"], 400);
    let n_listed = |path: &str| {
        let list = server.get(path).json();
        list["data"].as_array().unwrap().len()
    };
    assert_eq!((n_listed("/v1/batches"), n_listed("/v1/files")), (1, 3));
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    assert_eq!(
        server.request("DELETE", &path, &[], b"").json()["deleted"],
        true
    );
    assert_eq!(server.get(&path).status, 404);
}

/// The two prompts of a batch get the same answers as alone.
fn assert_answers_of_single_requests(server: &Running, batch: &Value) {
    let told = answers(server, &batch["output_file_id"]);
    assert_eq!(told.len(), 2);
    for answer in told {
        let prompt = if answer["custom_id"] == "a" {
            "Once upon a time"
        } else {
            "The dog"
        };
        let alone = json!({"model": "demo", "temperature": 0, "max_tokens": 8, "prompt": prompt});
        let alone = server.ask("/v1/completions", &alone);
        assert_eq!(answer["response"]["status_code"], 200);
        assert_eq!(answer["response"]["body"]["choices"], alone["choices"]);
    }
}

#[test]
fn what_is_wrong_with_a_batch_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let file = upload(
        &server,
        None,
        &format!("{}\n{{", line("a", json!({"prompt": "x"}))),
    )
    .json();
    let ask = |endpoint: &str, input: &Value| {
        server.post(
            "/v1/batches",
            &json!({"input_file_id": input, "endpoint": endpoint}),
        )
    };
    let batch = ask("/v1/completions", &file["id"]).json();
    let batch = ended(&server, batch["id"].as_str().unwrap());
    assert_eq!(
        (&batch["status"], &batch["errors"]["data"][0]["line"]),
        (&json!("failed"), &json!(2))
    );
    let other = upload(&server, None, &line("a", json!({"prompt": "x"}))).json();
    let batch = ask("/v1/embeddings", &other["id"]).json();
    let batch = ended(&server, batch["id"].as_str().unwrap());
    let message = batch["errors"]["data"][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "url: expected the batch's endpoint, /v1/embeddings"
    );
    for (endpoint, input, param) in [
        ("/v1/files", &other["id"], "endpoint"),
        ("/v1/completions", &json!("../x"), "input_file_id"),
    ] {
        let reply = ask(endpoint, input);
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param))
        );
    }
    assert_eq!(upload(&server, None, "").status, 200);
    assert_eq!(server.post("/v1/files", &json!({})).status, 400);
    let none = crate::shared().get("/v1/files");
    let told = (none.status, none.header("x-should-retry"));
    assert_eq!(told, (501, Some("false")));
}

#[test]
fn files_of_one_key_are_not_anothers() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &["one", "two"]);
    let file = upload(&server, Some("one"), &line("a", json!({"prompt": "x"}))).json();
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    let get = |path: &str, key: &str| with_key(&server, "GET", path, key, "");
    assert_eq!(
        (get(&path, "one").status, get(&path, "two").status),
        (200, 404)
    );
    assert_eq!(get("/v1/files", "two").json()["data"], json!([]));
    let body = json!({"input_file_id": file["id"], "endpoint": "/v1/completions"}).to_string();
    let reply = with_key(&server, "POST", "/v1/batches", "two", &body);
    assert_eq!(reply.status, 400, "{}", reply.body);
}

/// A server ends during a batch, and another one continues in its folder.
#[test]
fn a_batch_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..60)
        .map(|i| {
            line(
                &i.to_string(),
                json!({"prompt": format!("Once upon a time {i}"), "max_tokens": 24}),
            )
        })
        .collect();
    // One that fails, and comes first by its prompt.
    let wrong = line("wrong", json!({"prompt": "A", "temperature": "hot"}));
    let mut first = server(folder.path(), &[]);
    let file = upload(&first, None, &format!("{}\n{wrong}", lines.join("\n"))).json();
    let request = json!({"input_file_id": file["id"], "endpoint": "/v1/completions"});
    let id = first.ask("/v1/batches", &request)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let start = Instant::now();
    while first.get(&format!("/v1/batches/{id}")).json()["request_counts"]["completed"] == 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its input file stays as long as the batch does.
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    assert_eq!(first.request("DELETE", &path, &[], b"").status, 409);
    first.stop();
    drop(first);
    let second = server(folder.path(), &[]);
    let batch = ended(&second, &id);
    assert_eq!(
        batch["request_counts"],
        json!({"total": 61, "completed": 60, "failed": 1}),
        "{batch}"
    );
    assert_eq!(answers(&second, &batch["error_file_id"]).len(), 1);
    let mut ids: Vec<u32> = answers(&second, &batch["output_file_id"])
        .iter()
        .map(|answer| answer["custom_id"].as_str().unwrap().parse().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..60).collect::<Vec<u32>>());
    // A cancelled batch ends.
    let id = second.ask("/v1/batches", &request)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let cancelled = second.ask(&format!("/v1/batches/{id}/cancel"), &json!({}));
    assert!(["cancelling", "cancelled"].contains(&cancelled["status"].as_str().unwrap()));
    assert_eq!(ended(&second, &id)["status"], "cancelled");
    assert_eq!(
        second
            .post(&format!("/v1/batches/{id}/cancel"), &json!({}))
            .status,
        409
    );
}

/// Requests of a batch wait where a request of a person is refused, and their tokens are their key's.
#[test]
fn a_full_queue_refuses_no_line_of_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options();
    options.http.batches = Some(folder.path().to_owned());
    options.http.api_keys = vec!["one".to_owned()];
    options.model_options.scheduler.max_queue = 1;
    let server = Running::start(options);
    let lines: Vec<String> = (0..30)
        .map(|i| {
            let fields =
                json!({"prompt": format!("The dog {i}"), "max_tokens": 4, "ignore_eos": true});
            line(&i.to_string(), fields)
        })
        .collect();
    let file = upload(&server, Some("one"), &lines.join("\n")).json();
    let body = json!({"input_file_id": file["id"], "endpoint": "/v1/completions"}).to_string();
    let batch = with_key(&server, "POST", "/v1/batches", "one", &body).json();
    let path = format!("/v1/batches/{}", batch["id"].as_str().unwrap());
    let start = Instant::now();
    let ended = loop {
        let batch = with_key(&server, "GET", &path, "one", "").json();
        if batch["status"] != "in_progress" {
            break batch;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{batch}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        ended["request_counts"],
        json!({"total": 30, "completed": 30, "failed": 0}),
        "{ended}"
    );
    let metrics = with_key(&server, "GET", "/metrics", "one", "").body;
    let counted = "millrace:key_generation_tokens_total{key=\"key 0\"} 120";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Whoever asks takes the place of a line of a batch, which goes on later.
#[test]
fn people_do_not_wait_for_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options();
    options.models = vec![slow(1)];
    options.http.batches = Some(folder.path().to_owned());
    let server = Running::start(options);
    let long = line(
        "long",
        json!({"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true}),
    );
    let file = upload(&server, None, &long).json();
    let request = json!({"input_file_id": file["id"], "endpoint": "/v1/completions"});
    let id = server.ask("/v1/batches", &request)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let start = Instant::now();
    let n_written = || -> f64 {
        let metrics = server.get("/metrics").body;
        let name = "vllm:generation_tokens_total{model_name=\"demo\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().parse().unwrap()
    };
    while n_written() == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    let body = json!({"model": "demo", "prompt": "The dog", "max_tokens": 2});
    server.ask("/v1/completions", &body);
    let batch = server.get(&format!("/v1/batches/{id}")).json();
    assert_eq!(batch["status"], "in_progress", "{batch}");
    server.ask(&format!("/v1/batches/{id}/cancel"), &json!({}));
    assert_eq!(ended(&server, &id)["status"], "cancelled");
}
