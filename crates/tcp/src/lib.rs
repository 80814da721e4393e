//! FuriosaAI's tensor contraction processor (TCP; the product is RNGD) as a target: its facts, its programs, their
//! verifier, simulation and timing, and the mapping of Llama onto it.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`], `profile` | facts of the hardware; constants that software attains |
//! | `element` | element types with their bits: bf16, fp8 e4m3, int8, int4 |
//! | [`axes`] | named axes and mapping expressions, in the vendor's spelling |
//! | [`einsum`] | checked contractions over named axes, and the scalar oracle |
//! | [`program`] | tensors in memories, kernels of stages on contexts, DMA; text form and container |
//! | [`mod@verify`] | rules by code |
//! | [`simulate`] | simulation of a program |
//! | [`timing`] | when its commands run |
//! | [`host`] | content that the host writes into slots: quantised weights, masks, positions |
//! | [`lower`] | Llama onto the machine, op by op |
//! | [`parallel`] | several chips: plans, memory fit, time to the first and to each further token |
//! | [`walk`] | one decode layer of Llama 3 70B, op by op |
//! | `export` | programs as Rust for the vendor's toolchain |
//! | [`target`] | the registry's row: settings, plans, prices |
//! | [`device`] | the virtual chip behind [`millrace_npu::Device`] |
#![forbid(unsafe_code)]

pub mod axes;
pub mod device;
pub mod einsum;
mod element;
mod export;
mod flow;
pub mod host;
pub mod lower;
pub mod machine;
pub mod parallel;
mod profile;
pub mod program;
pub mod simulate;
pub mod target;
pub mod timing;
pub mod verify;
pub mod walk;

pub use element::Element;
pub use machine::Machine;
pub use profile::Profile;
pub use program::Program;
pub use verify::verify;
