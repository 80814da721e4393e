//! Rockchip RK3588's NPU as a target: register programs that a mainline Linux kernel runs, and a
//! virtual board that runs the same programs where there is none.

#![deny(unsafe_code)]

pub mod board;
pub mod command;
pub mod device;
pub mod driver;
pub mod fidelity;
pub mod kernel;
pub mod layout;
pub mod machine;
pub mod matmul;
pub mod probe;
pub mod profile;
pub mod quantise;
pub mod program;
pub mod regs;
pub mod tiling;
pub mod timing;
pub mod verify;

pub use device::RkDevice;
pub use machine::Machine;
pub use profile::Profile;
pub use program::Program;
