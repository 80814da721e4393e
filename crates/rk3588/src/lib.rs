//! Rockchip RK3588's NPU as a target: register programs that a mainline Linux kernel runs, and a virtual board that
//! runs the same programs without hardware.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`], [`profile`] | facts of the hardware; constants of software stacks with their origin |
//! | [`regs`], [`command`] | blocks, registers and fields; register commands in binary and text |
//! | [`matmul`] | the commands of one task: a product that fits the convolution buffer |
//! | [`tiling`], `layout` | how a product is cut and why; packed buffers from plain matrices and back |
//! | [`program`] | all jobs of a product, in binary, in text, in a container |
//! | [`verify`] | checks before anything runs |
//! | [`timing`] | modelled time |
//! | [`rocket`], `driver` | the rocket driver's interface; open files, buffer objects, waiting |
//! | [`simulate`] | a virtual kernel and board, with faults on request |
//! | `device` | the NPU behind the contract of all devices |
//! | [`probe`] | checks step by step whether it is alive |
//! | [`quantise`] | 8-bit activations and weights, rotated |
//! | [`linear`] | a linear layer from the host's side: packing, unpacking, rescaling |
//! | [`target`] | the registry's row: settings, plans, prices |
//! | [`kv`] | cost of attention with the cache on either side |
//!
//! `docs/rk3588.md` lists the needs of a board, and the rows behind each model.

#![deny(unsafe_code)]

pub mod command;
mod device;
mod driver;
pub mod kv;
mod layout;
pub mod linear;
pub mod machine;
pub mod matmul;
pub mod probe;
pub mod profile;
pub mod program;
pub mod regs;
pub mod rocket;
pub mod simulate;
pub mod target;
pub mod tiling;
pub mod timing;
pub mod verify;

/// 8-bit activations and weights, rotated.
pub use millrace_plan::quantise;

pub use device::RkDevice;
pub use driver::OpenError;
pub use machine::Machine;
pub use profile::Profile;
pub use program::Program;
