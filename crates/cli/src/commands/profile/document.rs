//! All results, in the form that every output format shows.

use super::image::Image;
use super::measured::RunTimes;
use millrace_plan::predict::{MachineFacts, ModelError, Prediction, Variant, times};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) model: String,
    pub(super) machine: MachineFacts,
    /// Mode of the plans.
    pub(super) mode: String,
    /// Context that the model was trained for.
    pub(super) trained_context: usize,
    /// Prediction error on whole models; none where the machine was changed.
    pub(super) error: Option<ModelError>,
    /// Median prediction error on single kernels.
    pub(super) kernel_error_percent: Option<f64>,
    pub(super) prediction: Prediction,
    /// The prompt with an image at its beginning.
    pub(super) image: Option<Image>,
    /// The prediction for the machine without `--set`.
    pub(super) unchanged: Option<UnchangedPart>,
    /// Predictions with each feature left out.
    pub(super) without: Option<Vec<Variant>>,
    /// Measurements on this computer.
    pub(super) measured: Option<RunTimes>,
}

#[derive(Serialize)]
pub(super) struct UnchangedPart {
    pub(super) machine: MachineFacts,
    pub(super) prediction: Prediction,
}

impl Document {
    /// Source of the times, in a sentence.
    pub(super) fn times(&self) -> String {
        times(
            &self.prediction.provenance,
            self.error.as_ref(),
            self.kernel_error_percent,
        )
    }
}
