//! What plans take of a machine, in words and numbers for people.

use crate::{PlannedLaunch, PlannedProgram};
use std::ops::Range;

/// Explains the programs of a target's plans.
pub trait Explain: Send + Sync {
    /// What physical launches of a program take of the machine.
    fn occupied(&self, planned: &PlannedProgram, physical: Range<usize>) -> CoreOccupancy {
        let _ = planned;
        CoreOccupancy {
            n_launches: physical.len(),
            ..CoreOccupancy::default()
        }
    }

    /// What a launch's kernel is, and how near it comes to the machine's limits.
    fn kernel(&self, launch: &PlannedLaunch) -> KernelFacts {
        let _ = launch;
        KernelFacts::default()
    }

    /// What executes a program on a virtual device, in words; `None` where it is the only thing that can.
    fn execution(&self, planned: &PlannedProgram) -> Option<String> {
        let _ = planned;
        None
    }
}

/// What launches take of a machine's cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreOccupancy {
    /// Launches that there are.
    pub n_launches: usize,
    /// Columns and rows of their herds, each size once.
    pub herds: Vec<(u32, u32)>,
    /// Cores that one of them takes at most: its herds lie beside each other.
    pub n_cores: u32,
}

/// A kernel in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// What it computes.
    pub summary: String,
    /// What it takes of the machine's limits.
    pub limits: String,
}
