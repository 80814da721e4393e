//! FuriosaAI TCP: published measurements compared with predictions, and the tables of its document.

pub mod fidelity;
pub mod report;

use millrace_plan::{BenchError, Evidence, FidelityOf, FidelityReport};
use millrace_tcp::{Machine, Profile};
use serde_json::json;

/// The registry's row.
pub struct TcpEvidence;

/// Rows of single kernels.
const KERNEL_ROWS: [u32; 2] = [16, 17];

impl Evidence for TcpEvidence {
    fn target(&self) -> &'static str {
        millrace_tcp::program::TARGET
    }

    fn fidelity(&self, what: FidelityOf) -> Result<FidelityReport, BenchError> {
        let is_kernel = |row: &fidelity::TcpFidelityRow| KERNEL_ROWS.contains(&row.id);
        let rows = fidelity::rows(&Machine::rngd(), &Profile::furiosa_llm());
        let mut rows = rows.map_err(|error| BenchError::Failed(error.to_string()))?;
        match what {
            FidelityOf::Kernels => rows.retain(is_kernel),
            FidelityOf::Models => rows.retain(|row| !is_kernel(row)),
            FidelityOf::LeaveOut => {
                let message =
                    "two constants were fitted, on a row each: there is nothing to leave out";
                return Err(BenchError::Usage {
                    message: message.to_owned(),
                    hint: "leave --leave-out out".to_owned(),
                });
            }
        }
        let row = |row: &fidelity::TcpFidelityRow| {
            json!({
                "id": row.id,
                "what": row.what,
                "metric": row.metric,
                "measured": row.measured,
                "predicted": row.predicted,
                "error": row.error(),
                "is_fitted": row.is_fitted,
                "note": row.note,
            })
        };
        Ok(FidelityReport {
            json: json!(rows.iter().map(row).collect::<Vec<_>>()),
            text: fidelity::markdown(&rows),
            failures: Vec::new(),
        })
    }
}
