//! Everything that was found out, as all forms of output show it.

use super::features::Row;
use super::measured::Measured;
use millrace_npu::Provenance;
use millrace_runtime::npu::{Feature, Features, Mode};
use millrace_xdna2::Machine;
use millrace_xdna2::predict::{ModelError, Prediction};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) model: String,
    pub(super) machine: MachineFacts,
    /// Tokens that the model was trained for.
    pub(super) trained_context: usize,
    /// How far whole models were off; none where the machine was changed.
    pub(super) error: Option<ModelError>,
    /// How far single kernels were off, their median.
    pub(super) kernel_error_percent: Option<f64>,
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

impl Document {
    /// What is better than the published stack, in words.
    pub(super) fn features(&self) -> String {
        let features = &self.prediction.features;
        let same = |set: Features| set.iter().map(Feature::name).eq(features.iter().copied());
        match () {
            () if same(Features::of(Mode::Best)) => "all of mode best".to_owned(),
            () if same(Features::PUBLISHED) => "none: the published stack's behaviour".to_owned(),
            () if same(Features::NONE) => {
                "none, and all rows go through the head, as in the published stack at first"
                    .to_owned()
            }
            () => features.join(", "),
        }
    }

    /// Where times come from, in a sentence.
    pub(super) fn times(&self) -> String {
        times(
            &self.prediction.provenance,
            self.error.as_ref(),
            self.kernel_error_percent,
        )
    }
}

/// Where times come from, in a sentence: whose error is told of whole models, whose of kernels.
pub(super) fn times(
    provenance: &Provenance,
    error: Option<&ModelError>,
    kernels: Option<f64>,
) -> String {
    let profile = match provenance {
        Provenance::Modelled { profile, .. } => profile.clone(),
        other => other.to_string(),
    };
    let whole = match error {
        Some(error) => format!(
            "±{} % a prompt, ±{} % a token: medians over published ones that nothing was fitted on",
            error.prompt_percent, error.token_percent
        ),
        None => "error unknown".to_owned(),
    };
    let kernels = kernels.map_or_else(String::new, |percent| {
        format!("; single kernels ±{percent} %")
    });
    format!("modelled({profile}, {whole}{kernels}); not measured on an NPU")
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
