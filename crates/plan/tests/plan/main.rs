//! Properties of every plan of any target, over random models and random targets.
#![allow(clippy::unwrap_used)] // A test may panic.

mod attention_products;
mod bound;
mod buffers;
mod contract;
mod device;
mod experts;
mod layout;
mod model;
mod offload;
mod passes;
mod products;
mod quantise;
mod run;
mod stored;
