//! Programs of cores: compiled from their ops, run between the board's locks.

mod arithmetic;
mod code;
mod compile;
mod flow;
mod kernel;
mod machine;
mod memory;
mod tile_kernel;
mod value;

pub(crate) use code::{Code, Instruction, LockAmount};
pub(crate) use compile::compile;
pub(crate) use machine::{CascadeWait, CoreLog, CoreRun, CoreWait};
pub(crate) use value::{CoreValue, Number};
