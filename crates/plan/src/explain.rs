//! Machine resources of plans, in words and numbers for people.

use crate::{PlannedLaunch, PlannedProgram};
use std::ops::Range;

/// Explains the programs of a target's plans.
pub trait Explain: Send + Sync {
    /// Cores that physical launches of a program occupy.
    fn occupied(&self, planned: &PlannedProgram, physical: Range<usize>) -> CoreOccupancy {
        let _ = planned;
        CoreOccupancy {
            n_launches: physical.len(),
            ..CoreOccupancy::default()
        }
    }

    /// The kernel of a launch, and how near it comes to the machine's limits.
    fn kernel(&self, launch: &PlannedLaunch) -> KernelFacts {
        let _ = launch;
        KernelFacts::default()
    }

    /// The simulator that executes a program on a virtual device, in words; `None` where there is only one.
    fn execution(&self, planned: &PlannedProgram) -> Option<String> {
        let _ = planned;
        None
    }
}

/// Cores that launches occupy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreOccupancy {
    /// Number of launches.
    pub n_launches: usize,
    /// Columns and rows of their herds, each size once.
    pub herds: Vec<(u32, u32)>,
    /// Most cores that one of them occupies: its herds are placed side by side.
    pub n_cores: u32,
}

/// A kernel in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Description of its computation.
    pub summary: String,
    /// How much of the machine's limits it uses.
    pub limits: String,
}
