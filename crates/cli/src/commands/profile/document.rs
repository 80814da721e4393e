//! Everything that was found out, as all forms of output show it.

use super::image::Image;
use super::measured::RunTimes;
use millrace_plan::predict::{MachineFacts, ModelError, Prediction, Variant, times};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) model: String,
    pub(super) machine: MachineFacts,
    /// How plans were made.
    pub(super) mode: String,
    /// Tokens that the model was trained for.
    pub(super) trained_context: usize,
    /// How far whole models were off; none where the machine was changed.
    pub(super) error: Option<ModelError>,
    /// How far single kernels were off, their median.
    pub(super) kernel_error_percent: Option<f64>,
    pub(super) prediction: Prediction,
    /// The prompt with an image at its beginning.
    pub(super) image: Option<Image>,
    /// The same on the machine without `--set`.
    pub(super) unchanged: Option<UnchangedPart>,
    /// Each feature left out.
    pub(super) without: Option<Vec<Variant>>,
    /// What this computer measured.
    pub(super) measured: Option<RunTimes>,
}

#[derive(Serialize)]
pub(super) struct UnchangedPart {
    pub(super) machine: MachineFacts,
    pub(super) prediction: Prediction,
}

impl Document {
    /// Where times come from, in a sentence.
    pub(super) fn times(&self) -> String {
        times(
            &self.prediction.provenance,
            self.error.as_ref(),
            self.kernel_error_percent,
        )
    }
}
