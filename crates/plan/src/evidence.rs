//! Published measurements of a target beside its predictions, for the commands `fidelity` and `profile`.
//!
//! Nothing that runs a model needs it, so it is no part of a [`Target`](crate::Target). A command line gets an
//! [`Evidence`] beside the target's own row.

use crate::predict::{PredictError, PromptWorkload};
use crate::{BenchError, Choice, SettingError, Settings};
use millrace_graph::Graph;
use serde_json::Value;

/// Published measurements of one kind of NPU: one static row in the registry of evidence.
pub trait Evidence: Sync {
    /// The [name](crate::Target::name) of the target that it is about.
    fn target(&self) -> &'static str;

    /// Predictions beside published measurements.
    ///
    /// # Errors
    /// A kind of report that does not exist.
    fn fidelity(&self, what: FidelityOf) -> Result<FidelityReport, BenchError>;

    /// Publications whose tables are put beside predictions from the programs of the target's own plans.
    fn papers(&self) -> Vec<Choice> {
        Vec::new()
    }

    /// The tables of one of [`papers`](Evidence::papers), without rows of more than `longest` tokens. Its
    /// failures are rows that miss the report's stated targets.
    ///
    /// # Errors
    /// A name that is none of them, plans that cannot be made or timed.
    fn paper(&self, name: &str, longest: u64) -> Result<FidelityReport, BenchError> {
        let _ = longest;
        Err(SettingError::unknown(self.target(), "paper", name, &self.papers()).into())
    }

    /// A page in Markdown that compares published figures of a model on the target with its predictions; `None` where
    /// none were published for that model.
    fn published_page(
        &self,
        model: &str,
        graph: &Graph,
        settings: &Settings,
        work: &PromptWorkload,
    ) -> Option<Result<String, PredictError>> {
        let _ = (model, graph, settings, work);
        None
    }

    /// Settings of published configurations, each with its name. They are predicted beside those asked for.
    fn comparisons(&self) -> Vec<(&'static str, Settings)> {
        Vec::new()
    }
}

/// Kind of measurement that predictions are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FidelityOf {
    /// Published rows of single kernels.
    Kernels,
    /// Published rows of whole models.
    Models,
    /// Constants fitted without a part of the rows, and the error on that part.
    LeaveOut,
}

/// Predictions beside published measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct FidelityReport {
    /// The tables.
    pub text: String,
    /// The same for programs.
    pub json: Value,
    /// Figures beyond their stated bound, each in words; nothing is predicted where there are no rows.
    pub failures: Vec<String>,
}
