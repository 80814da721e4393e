//! Sockets, who may ask, and answers that are written while they come into being.

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

/// How the server meets the network.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Address to listen on.
    pub host: IpAddr,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Speak TLS, as this; plain HTTP without.
    pub tls: Option<TlsFiles>,
    /// Keys that clients must show; none are needed if this is empty.
    pub api_keys: Vec<String>,
    /// What each of them may use, in their order; those beyond may use all there is.
    pub key_limits: Vec<KeyLimits>,
    /// File to which who asked what is appended, a JSON object a line.
    pub audit_log: Option<PathBuf>,
    /// Write bodies of requests to that file too: prompts are in them.
    pub audit_text: bool,
    /// Listen beyond this computer though anyone may ask.
    pub allow_open: bool,
    /// Origins whose pages may ask, such as `http://localhost:3000`; `*` is any. Pages of this server
    /// always may.
    pub allowed_origins: Vec<String>,
    /// Names, besides addresses and `localhost`, that requests may call this server.
    pub allowed_hosts: Vec<String>,
    /// Let `/metrics` be read without an API key, as routers and collectors of a cluster do.
    pub open_metrics: bool,
    /// Bytes of a request's body at most.
    pub max_body_bytes: usize,
    /// Connections at a time at most.
    pub max_connections: usize,
    /// Of those, connections of one address at most; half of them if this is `None`. Of IPv6, addresses of one network
    /// of 64 bits count as one: whoever has one of them has all.
    pub max_connections_per_address: Option<usize>,
    /// Clients with different keys find each other's prompts in the cache, and may learn by the time of an answer what
    /// others have asked. Otherwise each key has its own; without keys there is one for all.
    pub share_cache: bool,
    /// How long a client may take to send its headers.
    pub header_timeout: Duration,
    /// How long a client may take nothing of what is written to it.
    pub write_timeout: Duration,
    /// How long a request may take; `None` for ever.
    pub request_timeout: Option<Duration>,
    /// How often a stream without news says that it is alive.
    pub keep_alive: Duration,
    /// How long it goes on accepting requests after it was asked to stop, while `/ready` already says no: the time a
    /// proxy takes to notice.
    pub linger: Duration,
    /// How long requests may go on after the server was asked to stop.
    pub grace: Duration,
    /// Folder of files and batches; without one there are none.
    pub batches: Option<PathBuf>,
    /// Folder from which clients with an API key may load LoRA adapters; without one they may not.
    pub lora_dir: Option<PathBuf>,
    /// Bytes of responses (`/v1/responses`) that are kept in memory at most; without them none are.
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
