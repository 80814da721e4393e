//! A model on a virtual NPU: its description, its unsupported features, and a device that fails during answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::{Inject, Injection};
use millrace_runtime::npu::{NpuModel, NpuOptions, PlannedEngine};
use millrace_runtime::{Engine, LoadedModel};
use millrace_server::scheduler::EngineSetup;
use millrace_server::{ModelSpec, ServerOptions};
use millrace_xdna2::lower::{Features, Mode};
use millrace_xdna2::target::Xdna2;
use millrace_xdna2_machine::device::VirtualDevice;
use millrace_xdna2_machine::{Machine, Profile};
use serde_json::{Value, json};

use crate::{Running, engine_options, options, question, spec, with};

const CHAT: &str = "/v1/chat/completions";

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf")
}

/// The smaller demo on its own device, with three sequences of 256 tokens.
fn server() -> (Running, Arc<VirtualDevice>) {
    let planner = || {
        let profile = Profile::builtin(Profile::DEFAULT).unwrap();
        Xdna2::new(Machine::npu2(), profile, Features::of(Mode::Fast))
    };
    let device = Arc::new(planner().device(Cpu::new(CpuOptions::default()).unwrap()));
    let on = Arc::clone(&device);
    let open = move || {
        let model = Arc::new(LoadedModel::open(&demo()).unwrap());
        let options = NpuOptions {
            n_ctx: Some(256),
            max_sequences: 3,
            ..NpuOptions::default()
        };
        let npu = NpuModel::on(model, Arc::new(planner()), on.clone(), options);
        let npu = Arc::new(npu.map_err(|error| error.to_string())?);
        let engine = PlannedEngine::new(&npu).map_err(|error| error.to_string())?;
        Ok(EngineSetup::from(Box::new(engine) as Box<dyn Engine>))
    };
    let options = ServerOptions {
        models: vec![ModelSpec {
            open: Arc::new(open),
            ..spec("demo", engine_options())
        }],
        ..options()
    };
    (Running::start(options), device)
}

#[test]
fn a_device_that_fails_amid_answers_ends_one_of_them() {
    let (server, device) = server();
    let ask = |i: usize| {
        let fields = json!({"stream": true, "ignore_eos": true, "max_tokens": 40, "seed": i});
        with(question(&format!("What is {i} plus 5?")), fields)
    };
    let text = |events: &[(Option<String>, String)]| -> String {
        let chunks = events
            .iter()
            .filter_map(|(_, data)| serde_json::from_str::<Value>(data).ok());
        let text =
            |chunk: Value| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned());
        chunks.filter_map(text).collect()
    };
    let alone: Vec<String> = (0..3)
        .map(|i| text(&server.post(CHAT, &ask(i)).events()))
        .collect();
    let mut streams: Vec<_> = (0..3).map(|i| server.begin(CHAT, &ask(i))).collect();
    // The comment, the role, and some text: all three are being generated.
    let begun: Vec<String> = streams
        .iter_mut()
        .map(|stream| (0..4).filter_map(|_| stream.piece()).collect())
        .collect();
    // The pass that they share, and the first one that each runs alone.
    device.inject(Injection::Timeout);
    device.inject(Injection::Timeout);
    let mut n_failed = 0;
    for ((stream, begun), alone) in streams.into_iter().zip(begun).zip(&alone) {
        let mut reply = stream.read_all();
        reply.body = begun + &reply.body;
        let events = reply.events();
        let last = &events.last().unwrap().1;
        if last == "[DONE]" {
            assert_eq!(text(&events), *alone);
            continue;
        }
        n_failed += 1;
        let error: Value = serde_json::from_str(last).unwrap();
        assert_eq!(error["error"]["code"], "engine");
        assert!(alone.starts_with(&text(&events)));
    }
    assert_eq!(n_failed, 1);
    // The device continues, and so does the server.
    assert_eq!(text(&server.post(CHAT, &ask(1)).events()), alone[1]);
    let counters = server.get("/v1/system").json()["models"][0]["counters"].clone();
    assert_eq!(counters["failed"], 1);
    assert_eq!(counters["kv_used_bytes"], 0);
}

#[test]
fn answers_say_that_times_are_modelled_and_embeddings_that_there_are_none() {
    let (server, _) = server();
    let answer = server.ask(
        CHAT,
        &with(question("Hi"), json!({"max_tokens": 3, "placement": true})),
    );
    let placement = &answer["usage"]["placement"];
    assert!(
        placement["device_time"]
            .as_str()
            .unwrap()
            .contains("modelled"),
        "{placement}"
    );
    assert!(placement["device_ms"].as_f64().unwrap() > 0.0);
    // The device's ops and the host's together are the whole model.
    let graph = LoadedModel::open(&demo())
        .unwrap()
        .model()
        .graph
        .nodes
        .len() as u64;
    let left = placement["host_ops"].as_array().unwrap();
    let n_left: u64 = left
        .iter()
        .map(|share| share["count"].as_u64().unwrap())
        .sum();
    assert_eq!(placement["device_ops"].as_u64().unwrap() + n_left, graph);
    assert!(
        n_left > 0 && placement["device_ops"].as_u64().unwrap() > n_left,
        "{placement}"
    );
    for share in left {
        assert!(!share["reason"].as_str().unwrap().is_empty());
    }
    let reply = server.post("/v1/embeddings", &json!({"model": "demo", "input": "Hi"}));
    assert_eq!(reply.status, 400);
    let error = reply.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(error.contains("without --device"), "{error}");
}
