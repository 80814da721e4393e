//! A server in this process, and requests to it over the loopback address.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::{CpuEngine, Engine, EngineOptions, LoadedModel};
use millrace_server::scheduler::EngineSetup;
use millrace_server::{HttpOptions, ModelOptions, ModelSpec, Server, ServerOptions};
use serde_json::{Value, json};

/// Time that the server gives a request.
const DEADLINE: Duration = Duration::from_secs(5);

/// How much later than that an answer may be complete.
const LATE: Duration = Duration::from_secs(1);

/// A server that runs until the process ends.
pub struct Running {
    address: SocketAddr,
    openapi: Value,
    _runtime: tokio::runtime::Runtime,
    _server: Server,
    _folder: tempfile::TempDir,
}

/// The one server of this process: a small random model that sees, as `m`.
pub fn server() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(Running::start)
}

fn model(folder: &Path) -> Arc<LoadedModel> {
    let options = SynthOptions {
        recipe: Recipe::parse("F32").expect("a recipe"),
        vocab: None,
        vision: true,
        n_layers: Some(2),
        seed: 1,
        n_threads: Some(1),
    };
    let geometry = ModelGeometry::named("gemma-tiny").expect("a geometry");
    let go_on = &mut |_, _| ControlFlow::Continue(());
    synth::write(geometry, folder, &options, go_on).expect("a model");
    Arc::new(LoadedModel::open(folder).expect("a model that opens"))
}

fn options(model: Arc<LoadedModel>, batches: &Path) -> ServerOptions {
    let open = move || {
        let options = EngineOptions {
            n_threads: Some(1),
            n_ctx: Some(512),
            max_sequences: 4,
            max_chunk: 128,
            keep_prefixes: true,
            ..EngineOptions::default()
        };
        let engine = CpuEngine::new(Arc::clone(&model), options).map_err(|e| e.to_string())?;
        Ok(EngineSetup::from(Box::new(engine) as Box<dyn Engine>))
    };
    ServerOptions {
        models: vec![ModelSpec {
            id: "m".to_owned(),
            source: "a random model".to_owned(),
            weight_bytes: 1_000_000,
            memory_bytes: 2_000_000,
            adapters: Vec::new(),
            open: Arc::new(open),
        }],
        model_options: ModelOptions::default(),
        http: HttpOptions {
            port: 0,
            request_timeout: Some(DEADLINE),
            log: false,
            batches: Some(batches.to_owned()),
            store_responses_bytes: Some(1 << 20),
            ..HttpOptions::default()
        },
        system: Arc::new(|| json!({})),
    }
}

impl Running {
    fn start() -> Running {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads");
        let folder = crate::models::scratch();
        let batches = folder.path().join("batches");
        let options = options(model(folder.path()), &batches);
        let server = runtime.block_on(Server::start(options));
        let server = server.expect("a server");
        let loaded = runtime.block_on(server.wait_until_loaded());
        loaded.expect("a model");
        let mut running = Running {
            address: server.address(),
            openapi: Value::Null,
            _runtime: runtime,
            _server: server,
            _folder: folder,
        };
        let head = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let answer = running.exchange(head.as_bytes());
        let at = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let body = &answer[at.expect("a body") + 4..];
        running.openapi = serde_json::from_slice(body).expect("a description");
        running
    }

    /// The schema of a route's body.
    pub fn described(&self, path: &str) -> &Value {
        &self.openapi["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    }

    /// Sends a body to a route, and checks the answer against the rules for every answer.
    pub fn post(&self, path: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat());
    }

    /// Sends the bytes of a request, and checks the answer against the rules for every answer.
    pub fn send(&self, request: &[u8]) {
        let start = Instant::now();
        let answer = self.exchange(request);
        assert!(!answer.is_empty(), "no answer");
        self.hold(start, &answer);
    }

    /// Sends bytes that may be no whole request, and then nothing more.
    pub fn send_part(&self, request: &[u8]) {
        let start = Instant::now();
        let answer = self.exchange_with(request, true);
        self.hold(start, &answer);
    }

    fn hold(&self, start: Instant, answer: &[u8]) {
        let took = start.elapsed();
        assert!(took < DEADLINE + LATE, "an answer after {took:?}");
        let status = answer.get(9..12).unwrap_or_default();
        let text = String::from_utf8_lossy(answer);
        let is_refused = [&b"501"[..], b"503", b"504", b"505"].contains(&status);
        assert!(is_refused || !status.starts_with(b"5"), "{text}");
        assert!(!text.contains("\"engine\""), "{text}");
    }

    /// The answer, whole; empty if the connection was closed without one.
    fn exchange(&self, request: &[u8]) -> Vec<u8> {
        self.exchange_with(request, false)
    }

    /// Sends a request and reads the answer. A client that ends its side of a connection has left: then the answer may
    /// be missing.
    fn exchange_with(&self, request: &[u8], is_ended: bool) -> Vec<u8> {
        let mut socket = TcpStream::connect(self.address).expect("a connection");
        let patience = Some(10 * DEADLINE);
        socket.set_read_timeout(patience).expect("a socket");
        let mut answer = Vec::new();
        // A server that has read enough may close before all is written.
        let _ = socket.write_all(request);
        if is_ended {
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
        let _ = socket.read_to_end(&mut answer);
        answer
    }
}
