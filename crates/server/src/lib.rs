//! The HTTP server: many clients at once, in the dialects they speak.
//!
//! A [`scheduler::Scheduler`] is a thread that drives one [`Engine`](millrace_runtime::Engine) with continuous
//! batching; it knows nothing of HTTP. Above it, each API is a translation: a request becomes a
//! [`scheduler::Job`], its events become that API's answer. This is the only crate that is asynchronous,
//! and only outside the scheduler's thread.
#![forbid(unsafe_code)]

pub mod grammar;
pub mod scheduler;
