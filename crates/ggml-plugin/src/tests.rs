//! The tests play the host: they export ggml's functions, and call the plugin as ggml does.
#![allow(unsafe_code)]

mod client;
mod compute;
mod failure;
mod gate;
mod host;
mod loading;
mod node;
mod npu;
mod threads;
