//! The server over real sockets, on the demo model.
#![allow(clippy::unwrap_used)] // A test may panic.

mod adapters;
mod agents;
mod anthropic;
mod batches;
mod channels;
mod client;
mod codex;
mod completions;
mod earlier;
mod embeddings;
#[path = "../scheduler/engines.rs"]
#[allow(dead_code)] // Only its slow engines are used here.
mod engines;
mod failures;
mod filling;
mod formats;
mod functionary;
mod grids;
mod images;
mod llama_cpp;
mod logprobs;
mod native;
mod npu;
mod numbers;
mod odd_bodies;
mod ollama;
mod openai;
mod operations;
mod prompt_logprobs;
mod quotas;
mod ranking;
mod responses;
mod samplers;
mod schemas;
mod security;
mod stored_responses;
mod thinking;
mod tls;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millrace_runtime::{CpuEngine, Engine, EngineOptions};
use millrace_server::scheduler::EngineSetup;
use millrace_server::{HttpOptions, ModelOptions, ModelSpec, Server, ServerOptions};
use serde_json::{Value, json};

use client::Client;
use engines::{Watched, model};

/// Four sequences of 1,024 tokens: more than the model's trained context, so that prompts with functions fit.
fn engine_options() -> EngineOptions {
    EngineOptions {
        n_threads: Some(1),
        n_ctx: Some(1024),
        max_sequences: 4,
        max_chunk: 128,
        keep_prefixes: true,
        ..EngineOptions::default()
    }
}

fn spec(id: &str, options: EngineOptions) -> ModelSpec {
    ModelSpec {
        id: id.to_owned(),
        source: "the demo".to_owned(),
        weight_bytes: 10_000_000,
        memory_bytes: 20_000_000,
        adapters: Vec::new(),
        open: Arc::new(move || {
            let engine = CpuEngine::new(model(), options.clone()).map_err(|e| e.to_string())?;
            Ok(EngineSetup::from(Box::new(engine) as Box<dyn Engine>))
        }),
    }
}

/// The demo with slow steps: answers of hundreds of tokens take seconds.
fn slow(max_sequences: usize) -> ModelSpec {
    let options = EngineOptions {
        max_sequences,
        ..engine_options()
    };
    let engines = Watched::slow(options.clone(), Duration::from_millis(10));
    ModelSpec {
        open: Arc::new(move || Ok(engines.open())),
        ..spec("demo", options)
    }
}

fn options() -> ServerOptions {
    ServerOptions {
        models: vec![spec("demo", engine_options())],
        model_options: ModelOptions::default(),
        http: HttpOptions {
            port: 0,
            keep_alive: Duration::from_millis(50),
            grace: Duration::from_secs(10),
            ..HttpOptions::default()
        },
        system: Arc::new(|| json!({"cpu": "a test's"})),
    }
}

/// A server with its threads.
struct Running {
    runtime: tokio::runtime::Runtime,
    server: Option<Server>,
    client: Client,
}

impl Running {
    fn start(options: ServerOptions) -> Running {
        let running = Running::start_loading(options);
        let server = running.server.as_ref().unwrap();
        running
            .runtime
            .block_on(server.wait_until_loaded())
            .unwrap();
        running
    }

    /// Starts a server without waiting for its models.
    fn start_loading(options: ServerOptions) -> Running {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start(options)).unwrap();
        let client = Client::new(server.address());
        Running {
            runtime,
            server: Some(server),
            client,
        }
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

impl std::ops::Deref for Running {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server shared by most tests, with different requests at the same time.
fn shared() -> &'static Client {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| Running::start(options()))
}

/// A greedy chat of one question.
fn question(text: &str) -> Value {
    json!({"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": text}]})
}

/// The same with further fields.
fn with(mut body: Value, fields: Value) -> Value {
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body
}
