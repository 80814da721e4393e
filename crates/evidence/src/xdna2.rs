//! AMD XDNA2: published measurements, closed forms of published stacks, a page and a paper's tables.
//!
//! | module | holds |
//! |---|---|
//! | [`fidelity`] | predictions compared with published measurements, with bounds; constants fitted anew without a part of the rows |
//! | [`forms`], [`geometry`] | closed forms of whole models that others published; their dimensions |
//! | `page`, `paper` | the page of one model; the tables of a paper |

pub mod fidelity;
pub mod forms;
pub mod geometry;
mod page;
mod paper;

use fidelity::{ReportKind, leave_out};
use millrace_graph::Graph;
use millrace_plan::predict::{PredictError, PromptWorkload};
use millrace_plan::{BenchError, Choice, Evidence, FidelityOf, FidelityReport, Settings};
use millrace_xdna2::target::is_int8;
use millrace_xdna2_machine::program::codec::TARGET;
use serde_json::json;

/// The registry's row.
pub struct Xdna2Evidence;

impl Evidence for Xdna2Evidence {
    fn target(&self) -> &'static str {
        TARGET
    }

    fn fidelity(&self, what: FidelityOf) -> Result<FidelityReport, BenchError> {
        let kind = match what {
            FidelityOf::Kernels => ReportKind::Kernels,
            FidelityOf::Models => ReportKind::Models,
            FidelityOf::LeaveOut => return Ok(left_out()),
        };
        let report = fidelity::report(kind);
        let outside = report.groups.iter().filter(|group| !group.pass);
        let outside: Vec<&str> = outside.map(|group| group.name.as_str()).collect();
        let failures = match (report.rows.is_empty(), outside.is_empty()) {
            (true, _) => {
                vec!["nothing was predicted: no measurement has a mapping and a profile".to_owned()]
            }
            (_, false) => vec![format!("outside the stated bound: {}", outside.join(", "))],
            _ => Vec::new(),
        };
        Ok(FidelityReport {
            text: report.to_string(),
            json: json!(report),
            failures,
        })
    }

    fn papers(&self) -> Vec<Choice> {
        paper::papers()
    }

    fn paper(&self, name: &str, longest: u64) -> Result<FidelityReport, BenchError> {
        paper::check(name)?;
        let report = paper::report(longest)?;
        Ok(FidelityReport {
            text: report.to_string(),
            json: json!(report),
            failures: report.misses(),
        })
    }

    fn published_page(
        &self,
        model: &str,
        graph: &Graph,
        settings: &Settings,
        work: &PromptWorkload,
    ) -> Option<Result<String, PredictError>> {
        // Nothing was published of a model in 8-bit integers.
        (!is_int8(settings)).then(|| page::page(model, graph, settings, work))
    }

    fn comparisons(&self) -> Vec<(&'static str, Settings)> {
        page::comparisons()
    }
}

fn left_out() -> FidelityReport {
    let found = leave_out::evaluate();
    let failure = "a family or a model needs its own rows, and no missing mechanism is named";
    FidelityReport {
        text: found.to_string(),
        json: json!(found),
        failures: match found.pass() {
            true => Vec::new(),
            false => vec![failure.to_owned()],
        },
    }
}
