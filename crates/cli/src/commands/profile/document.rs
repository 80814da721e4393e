//! Everything that was found out, as all forms of output show it.

use super::features::Row;
use super::measured::Measured;
use millrace_xdna2::Machine;
use millrace_xdna2::predict::Prediction;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) model: String,
    pub(super) machine: MachineFacts,
    pub(super) prediction: Prediction,
    /// The same on the machine without `--set`.
    pub(super) unchanged: Option<Unchanged>,
    /// Each feature left out.
    pub(super) without: Option<Vec<Row>>,
    /// What this computer measured.
    pub(super) measured: Option<Measured>,
}

#[derive(Serialize)]
pub(super) struct Unchanged {
    pub(super) machine: MachineFacts,
    pub(super) prediction: Prediction,
}

/// What tables and pictures need to know of a machine.
#[derive(Serialize)]
pub(super) struct MachineFacts {
    pub(super) name: String,
    pub(super) cols: u32,
    pub(super) rows: u32,
    pub(super) clock_hz: f64,
    pub(super) ddr_bytes_per_s: f64,
}

impl MachineFacts {
    pub(super) fn of(machine: &Machine) -> MachineFacts {
        MachineFacts {
            name: machine.name.clone(),
            cols: machine.cols,
            rows: machine.rows,
            clock_hz: machine.clock_hz,
            ddr_bytes_per_s: machine.ddr_bytes_per_s,
        }
    }
}
