//! Health, readiness, metrics, loading and unloading, shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_server::scheduler::SchedulerOptions;
use millrace_server::{ModelSpec, Server};
use serde_json::{Value, json};

use crate::engines::{Gauge, Watched};
use crate::{Running, engine_options, options, question, shared, spec, with};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn loading_is_seen_and_waited_for() {
    let mut options = options();
    let inner = Arc::clone(&options.models[0].open);
    options.models[0].open = Arc::new(move || {
        std::thread::sleep(Duration::from_millis(300));
        inner()
    });
    let server = Running::start_loading(options);
    assert_eq!(server.get("/health").status, 200);
    let ready = server.get("/ready");
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["models"]["demo"]["status"], "loading");
    // A request waits for loading instead of failing.
    let answer = server.ask(CHAT, &question("What is 7 plus 5?"));
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        "7 plus 5 is 12."
    );
    assert_eq!(server.get("/ready").status, 200);
}

#[test]
fn a_model_that_cannot_be_opened_is_told() {
    let mut options = options();
    options.models[0].open = Arc::new(|| Err("the file is damaged".to_owned()));
    let server = Running::start_loading(options);
    let reply = server.post(CHAT, &question("Hi"));
    assert_eq!(reply.status, 503);
    assert!(reply.body.contains("the file is damaged"), "{}", reply.body);
    let ready = server.get("/ready");
    assert_eq!(ready.status, 503);
    assert_eq!(
        ready.json()["models"]["demo"]["error"],
        "the file is damaged"
    );
}

/// The value of the first line that begins with this name.
fn metric(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn metrics_count_what_happened() {
    let server = Running::start(options());
    server.ask(CHAT, &with(question("What is 7 plus 5?"), json!({"n": 2})));
    server.ask(
        CHAT,
        &with(question("What is 7 plus 5?"), json!({"max_tokens": 2})),
    );
    server.post(CHAT, &json!({}));
    let reply = server.get("/metrics");
    assert!(
        reply
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let value = |name: &str| metric(&reply.body, name);
    assert_eq!(
        value("vllm:request_success_total{model_name=\"demo\",finished_reason=\"stop\"}"),
        2.0
    );
    assert_eq!(
        value("vllm:request_success_total{model_name=\"demo\",finished_reason=\"length\"}"),
        1.0
    );
    assert_eq!(value("vllm:num_requests_running{model_name=\"demo\"}"), 0.0);
    assert!(value("vllm:generation_tokens_total{model_name=\"demo\"}") > 10.0);
    assert_eq!(
        value("vllm:time_to_first_token_seconds_count{model_name=\"demo\"}"),
        2.0
    );
    assert_eq!(
        value("vllm:e2e_request_latency_seconds_bucket{model_name=\"demo\",le=\"+Inf\"}"),
        2.0
    );
    assert_eq!(value("millrace:http_responses_total{class=\"4xx\"}"), 1.0);
    assert!(value("millrace:kv_capacity_bytes{model_name=\"demo\"}") > 0.0);
    // The demo's cache: pages of 64 tokens, enough for its context of 512.
    let config = "vllm:cache_config_info{model_name=\"demo\",block_size=\"64\",num_gpu_blocks=\"";
    let line = reply.body.lines().find(|line| line.starts_with(config));
    let (pages, one) = line.unwrap()[config.len()..].split_once("\"} ").unwrap();
    assert_eq!(one, "1");
    assert!(pages.parse::<usize>().unwrap() >= 512 / 64, "{pages} pages");
    assert!(!reply.body.contains("lora_requests_info"));
    let system = server.get("/v1/system").json();
    assert_eq!(system["machine"]["cpu"], "a test's");
    assert_eq!(
        system["models"][0]["counters"]["generated_tokens"],
        value("vllm:generation_tokens_total")
    );
}

/// The help and type of each metric come once, before its values.
#[test]
fn metrics_have_help_and_a_type() {
    let metrics = shared().get("/metrics").body;
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = types.map(|line| line.split(' ').next().unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert_eq!(metrics.matches(&format!("# HELP {name} ")).count(), 1);
        assert_eq!(metrics.matches(&format!("# TYPE {name} ")).count(), 1);
    }
}

#[test]
fn the_description_names_every_route_and_no_other() {
    let described = shared().get("/openapi.json").json();
    let paths = described["paths"].as_object().unwrap();
    let source = include_str!("../../src/http/routes.rs");
    let mut n = 0;
    for route in source.split(".route(").skip(1) {
        let route = route.trim_start().strip_prefix('"').unwrap();
        let (path, rest) = route.split_once('"').unwrap();
        let rest = rest.split("\n        .").next().unwrap();
        let path = path.replace("{*name}", "{name}");
        let methods = ["get", "post", "delete"].iter();
        for method in methods.filter(|method| rest.contains(&format!("{method}("))) {
            assert!(
                described["paths"][&path][method].is_object(),
                "{method} {path} is not described"
            );
            n += 1;
        }
    }
    let methods: usize = paths
        .values()
        .map(|methods| methods.as_object().unwrap().len())
        .sum();
    assert_eq!(methods, n, "something is described that does not exist");
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let status = match method.as_str() {
                "get" => shared().get(&path.replace("{name}", "demo")).status,
                "delete" => shared().request("DELETE", path, &[], b"").status,
                _ => shared().post(path, &json!({"x": 1})).status,
            };
            // A server without files reports that.
            assert!(![404, 405].contains(&status), "{method} {path}: {status}");
        }
    }
}

/// Routes that are aliases of others, or that do not read a body.
const UNFUZZED: [&str; 7] = [
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/rerank",
    "/v1/reranking",
    "/reranking",
    "/v1/batches/{id}/cancel",
];

#[test]
fn every_route_that_takes_a_body_has_a_fuzz_target() {
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let described = shared().get("/openapi.json").json();
    let mut n = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        if methods["post"]["requestBody"].is_null() || UNFUZZED.contains(&path.as_str()) {
            continue;
        }
        let name = format!("route_{}", path.trim_matches('/').replace(['/', '-'], "_"));
        let source = std::fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs")));
        let source =
            source.unwrap_or_else(|error| panic!("{path} has no fuzz target {name}: {error}"));
        assert!(source.contains(path.as_str()), "{name} is of another route");
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{name} is not built"
        );
        n += 1;
    }
    assert!(n >= 27, "{n} routes take a body");
}

#[test]
fn models_come_and_go() {
    let mut options = options();
    options.models.push(spec("second", engine_options()));
    options.model_options.max_loaded = 1;
    let server = Running::start(options);
    let status = |name: &str| server.get(&format!("/v1/models/{name}")).json()["status"].clone();
    assert_eq!(
        (status("demo"), status("second")),
        (json!("ready"), json!("unloaded"))
    );
    // A request for the other model replaces the idle one.
    let ask = with(question("What is 7 plus 5?"), json!({"model": "second"}));
    assert_eq!(server.ask(CHAT, &ask)["model"], "second");
    assert_eq!(
        (status("demo"), status("second")),
        (json!("unloaded"), json!("ready"))
    );
    let unloaded = server.ask("/v1/models/unload", &json!({"model": "second"}));
    assert_eq!(unloaded["unloaded"], true);
    assert_eq!(status("second"), "unloaded");
    let loaded = server.ask("/v1/models/load", &json!({"model": "demo"}));
    assert_eq!(loaded["status"], "ready");
    assert_eq!(
        server
            .post("/v1/models/load", &json!({"model": "third"}))
            .status,
        404
    );
}

#[test]
fn a_budget_of_memory_holds_what_was_used_last() {
    let mut options = options();
    // 20, 20 and 25 MB, with a budget of 45.
    options.models.push(spec("second", engine_options()));
    options.models.push(ModelSpec {
        memory_bytes: 25_000_000,
        ..spec("third", engine_options())
    });
    options.model_options.memory_budget = Some(45_000_000);
    let gauge = Arc::new(Gauge::default());
    for spec in &mut options.models {
        let engines = Watched::counted(engine_options(), &gauge, spec.memory_bytes as usize);
        spec.open = Arc::new(move || Ok(engines.open()));
    }
    let server = Running::start(options);
    let status = || {
        ["demo", "second", "third"].map(|name| {
            let status = server.get(&format!("/v1/models/{name}")).json()["status"].clone();
            status.as_str().unwrap().to_owned()
        })
    };
    assert_eq!(status(), ["ready", "ready", "unloaded"]);
    let ask = |name: &str| {
        let body = with(question("What is 7 plus 5?"), json!({"model": name}));
        let answer = server.ask(CHAT, &body);
        assert_eq!(
            answer["choices"][0]["message"]["content"],
            "7 plus 5 is 12."
        );
    };
    ask("second");
    ask("demo");
    ask("third");
    assert_eq!(status(), ["ready", "unloaded", "ready"]);
    ask("second");
    assert_eq!(status(), ["unloaded", "ready", "ready"]);
    // In any order of requests, the loaded models fit, and no answer is lost.
    std::thread::scope(|scope| {
        for name in ["demo", "second", "third"] {
            let server = &*server;
            scope.spawn(move || {
                for _ in 0..5 {
                    let body = with(question("What is 7 plus 5?"), json!({"model": name}));
                    let reply = server.post(CHAT, &body);
                    // At most "busy": a request that has found its model keeps it until it is answered.
                    assert!([200, 429].contains(&reply.status), "{}", reply.body);
                }
            });
        }
    });
    assert!(gauge.most() <= 45_000_000, "{}", gauge.most());
    assert!(gauge.most() > 25_000_000, "never two together");
}

/// A request that waits for a model that is unloaded meanwhile waits for it to be loaded again.
#[test]
fn what_is_unloaded_while_it_loads_is_loaded_anew() {
    let mut options = options();
    let open = Arc::clone(&options.models[0].open);
    options.models[0].open = Arc::new(move || {
        std::thread::sleep(Duration::from_millis(300));
        open()
    });
    let server = Running::start_loading(options);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.ask(CHAT, &question("What is 7 plus 5?")));
        // A delay, so that this happens while the first attempt loads.
        std::thread::sleep(Duration::from_millis(100));
        let unloaded = server.ask("/v1/models/unload", &json!({"model": "demo"}));
        assert_eq!(unloaded["unloaded"], true);
        let answer = asked.join().unwrap();
        assert_eq!(
            answer["choices"][0]["message"]["content"],
            "7 plus 5 is 12."
        );
    });
}

#[test]
fn a_model_beyond_the_budget_is_told_at_the_start() {
    let mut options = options();
    options.model_options.memory_budget = Some(10_000_000);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(Server::start(options)).err().unwrap();
    assert!(error.to_string().contains("demo takes 20 MiB"), "{error}");
}

#[test]
fn what_is_idle_is_unloaded() {
    let mut options = options();
    options.model_options.idle_unload = Some(Duration::from_millis(100));
    let server = Running::start(options);
    let start = Instant::now();
    while server.get("/v1/models/demo").json()["status"] != "unloaded" {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    server.ask(CHAT, &question("Hi"));
}

#[test]
fn going_down_completes_what_was_begun() {
    let mut server = Running::start(options());
    let body = with(
        question("Hi"),
        json!({"stream": true, "ignore_eos": true, "max_tokens": 120}),
    );
    let open = server.begin(CHAT, &body);
    let reader = std::thread::spawn(move || open.read_all());
    server.stop();
    let chunks = reader.join().unwrap().chunks();
    let n_with_text = chunks.iter().filter(|chunk| {
        chunk["choices"][0]["delta"]["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    });
    assert!(n_with_text.count() > 60);
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn before_it_goes_down_a_proxy_has_time_to_notice() {
    let mut options = options();
    options.http.linger = Duration::from_millis(800);
    let mut server = Running::start(options);
    let client = crate::client::Client::new(server.address);
    let going = std::thread::spawn(move || server.stop());
    while client.get("/ready").status == 200 {
        std::thread::sleep(Duration::from_millis(5));
    }
    // It is no longer ready, but still answers.
    assert_eq!(client.get("/ready").json()["draining"], true);
    client.ask(CHAT, &question("What is 7 plus 5?"));
    going.join().unwrap();
    assert!(std::net::TcpStream::connect(client.address).is_err());
}

/// Returns when the scheduler has accepted a request that it cannot run yet.
fn until_one_waits(server: &Running) {
    let waits = "vllm:num_requests_waiting{model_name=\"demo\"} 1";
    for _ in 0..2000 {
        if server.get("/metrics").body.contains(waits) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("nothing waits in\n{}", server.get("/metrics").body);
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let mut options = options();
    options.models = vec![crate::slow(1)];
    options.model_options.scheduler = SchedulerOptions {
        max_queue: 1,
        ..SchedulerOptions::default()
    };
    let server = Running::start(options);
    let long = with(
        question("Hi"),
        json!({"stream": true, "ignore_eos": true, "max_tokens": 900}),
    );
    let mut running = server.begin(CHAT, &long);
    // Two pieces: it is running.
    let _ = (running.piece(), running.piece(), running.piece());
    let _waiting = server.begin(CHAT, &long);
    until_one_waits(&server);
    let reply = server.post(CHAT, &question("Hi"));
    assert_eq!(reply.status, 429, "{}", reply.body);
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    let error: Value = reply.json();
    assert_eq!(error["error"]["type"], "rate_limit_error");
}
