//! The HTTP server: many clients at once, in several API dialects.
//!
//! A [`scheduler::Scheduler`] is a thread that drives one [`Engine`](millrace_runtime::Engine) with continuous
//! batching; it knows nothing of HTTP. Above it, each API is a translation: a request becomes a [`scheduler::Job`],
//! and its events become an answer of that API. This is the only crate that is asynchronous, and only outside the
//! scheduler's thread.
//!
//! ```text
//!  socket ─ http::listen ─ http::guard ─ http::routes ─┬─ api::openai ──┐
//!                                                      ├─ api::anthropic ├─ api::prompt ─► Job
//!                                                      ├─ api::ollama ──┘                   │
//!                                                      └─ ops, page                         ▼
//!  socket ◄─ http::stream ◄─ api::… ◄─ api::generation ◄──────────── Event ◄── scheduler ─► Engine
//! ```
#![forbid(unsafe_code)]

mod api;
mod app;
mod audit;
pub mod batch;
pub mod grammar;
mod http;
mod keys;
mod models;
mod ops;
mod page;
pub mod scheduler;
mod server;
mod syntax;
mod vision;

pub use api::base64::encode as base64;
pub use api::signature::sign_thoughts_with;
pub use api::tools::whole as whole_schema;
pub use http::{HttpOptions, TlsError, TlsFiles};
pub use keys::{KeyLimits, KeyUsage};
pub use models::{AdapterSpec, ModelOptions, ModelSpec};
pub use server::{ServeError, Server, ServerOptions, run};
pub use syntax::template_ways;
pub use vision::image_memory_bytes;
