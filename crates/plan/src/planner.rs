//! All that a target does for one machine, as a whole.

use crate::{Arrangement, Explain, Lowering, Numerics, Pricer};
use millrace_kernels::Cpu;
use millrace_npu::{Device, DeviceError};
use std::fmt;
use std::sync::Arc;

/// Makes plans of a model's graph for one machine of a target, and opens devices that run them.
///
/// It is the sum of small traits. Who needs one of them takes that: a `&dyn Planner` is a `&dyn Lowering` too.
pub trait Planner: Lowering + Arrangement + Numerics + Explain {
    /// A device of that machine: hardware where there is some and it can be opened, otherwise a virtual
    /// one, whose name says so. Simulations run on the CPU's threads.
    ///
    /// # Errors
    /// Hardware that is there and cannot be used, memory.
    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError>;

    /// What predicts the cost of its plans; `None` where nothing was ever measured.
    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        None
    }

    /// Who makes the same plans with programs that give out what every op gives, for checks of each op; `None`
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
