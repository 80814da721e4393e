//! A target's complete work for one machine.

use crate::{Arrangement, Explain, Lowering, Numerics, Pricer};
use millrace_kernels::Cpu;
use millrace_npu::{Device, DeviceError};
use std::fmt;
use std::sync::Arc;

/// Makes plans of a model's graph for one machine of a target, and opens devices that run them.
///
/// It is the sum of small traits. A caller that needs only one of them takes that one: a `&dyn Planner` is a
/// `&dyn Lowering` too.
pub trait Planner: Lowering + Arrangement + Numerics + Explain {
    /// A device of that machine: hardware where there is some and it can be opened, otherwise a virtual
    /// one, whose name says so. Simulations run on the CPU's threads.
    ///
    /// # Errors
    /// Hardware that is there and cannot be used, memory.
    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError>;

    /// Predictor of the cost of its plans; `None` where no cost was ever measured.
    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        None
    }

    /// A planner of the same plans whose programs also give out the result of every op, for checks of each op. `None`
    /// where programs do so anyway. Slots and results that both have are the same.
    fn observed(&self) -> Option<Arc<dyn Planner>> {
        None
    }
}

impl fmt::Debug for dyn Planner + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.target(), self.identity())
    }
}
