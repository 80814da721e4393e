//! Sockets, access control, and responses that are written while they are generated.

pub(crate) mod drain;
pub(crate) mod guard;
mod held;
pub(crate) mod listen;
pub(crate) mod routes;
pub(crate) mod stream;
pub(crate) mod tls;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use tls::{TlsError, TlsFiles};

use crate::keys::KeyLimits;

/// Network options of the server.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Address to listen on.
    pub host: IpAddr,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Serve TLS with these files; plain HTTP without.
    pub tls: Option<TlsFiles>,
    /// Accepted API keys; if empty, no key is needed.
    pub api_keys: Vec<String>,
    /// Limits of each key, in the same order; keys beyond the list have none.
    pub key_limits: Vec<KeyLimits>,
    /// File for the audit log: who asked for what, one JSON object on each line.
    pub audit_log: Option<PathBuf>,
    /// Write bodies of requests to that file too; they contain prompts.
    pub audit_text: bool,
    /// Listen beyond this computer even if anyone may connect.
    pub allow_open: bool,
    /// Origins whose pages may send requests, such as `http://localhost:3000`; `*` is any. Pages of this server
    /// always may.
    pub allowed_origins: Vec<String>,
    /// Host names, besides addresses and `localhost`, that requests may use for this server.
    pub allowed_hosts: Vec<String>,
    /// Let `/metrics` be read without an API key, as routers and collectors of a cluster do.
    pub open_metrics: bool,
    /// Maximum size of a request's body, in bytes.
    pub max_body_bytes: usize,
    /// Maximum number of simultaneous connections.
    pub max_connections: usize,
    /// Maximum number of those from one address; half of them if `None`. IPv6 addresses of one network of 64 bits
    /// count as one: the owner of one has them all.
    pub max_connections_per_address: Option<usize>,
    /// Let clients with different keys share cached prompts. They may then learn from response times what others have
    /// asked. Otherwise each key has its own cache scope; without keys there is one for all.
    pub share_cache: bool,
    /// Time limit for a client to send its headers.
    pub header_timeout: Duration,
    /// Time limit for a client that does not read the response.
    pub write_timeout: Duration,
    /// Time limit for a request; `None` for no limit.
    pub request_timeout: Option<Duration>,
    /// Interval at which an idle stream sends a sign of life.
    pub keep_alive: Duration,
    /// How long requests are still accepted after the server was asked to stop, while `/ready` already reports it:
    /// the time until a proxy notices.
    pub linger: Duration,
    /// How long requests may continue after the server was asked to stop.
    pub grace: Duration,
    /// Folder of files and batches; without it, they are not available.
    pub batches: Option<PathBuf>,
    /// Folder from which clients with an API key may load LoRA adapters; without it, they may not.
    pub lora_dir: Option<PathBuf>,
    /// Maximum size of the responses (`/v1/responses`) kept in memory, in bytes; without it none are kept.
    pub store_responses_bytes: Option<usize>,
    /// Write a line for each request to standard error.
    pub log: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8080,
            tls: None,
            api_keys: Vec::new(),
            key_limits: Vec::new(),
            audit_log: None,
            audit_text: false,
            allow_open: false,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            open_metrics: false,
            max_body_bytes: 16 << 20,
            max_connections: 1024,
            max_connections_per_address: None,
            share_cache: false,
            header_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(60),
            request_timeout: None,
            keep_alive: Duration::from_secs(10),
            linger: Duration::ZERO,
            grace: Duration::from_secs(30),
            batches: None,
            lora_dir: None,
            store_responses_bytes: None,
            log: false,
        }
    }
}
