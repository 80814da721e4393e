//! Rockchip RK3588's NPU as a target: register programs that a mainline Linux kernel runs, and a
//! virtual board that runs the same programs where there is none.

pub mod command;
pub mod machine;
pub mod matmul;
pub mod regs;

pub use machine::Machine;
