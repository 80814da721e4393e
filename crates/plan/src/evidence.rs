//! What was published of a target.

use crate::Settings;
use crate::predict::{PredictError, Work};
use millrace_model::graph::Graph;

/// What others measured on a kind of NPU, for who compares predictions with it.
pub trait Evidence: Sync {
    /// A page in Markdown of what was published of a model beside its predictions; `None` where there is
    /// nothing of that model.
    fn published_page(
        &self,
        model: &str,
        graph: &Graph,
        settings: &Settings,
        work: &Work,
    ) -> Option<Result<String, PredictError>> {
        let _ = (model, graph, settings, work);
        None
    }

    /// Settings to predict beside those asked for, each with its name: what somebody else published.
    fn comparisons(&self) -> Vec<(&'static str, Settings)> {
        Vec::new()
    }
}
