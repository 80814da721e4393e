//! Rockchip RK3588: predictions compared with published rows.

pub mod fidelity;

use fidelity::{RknnFidelityRow as Prediction, RknnGroupBound, RknnGroupStats, RowSubject};
use millrace_plan::{BenchError, Evidence, FidelityOf, FidelityReport};
use millrace_rk3588::Machine;
use serde_json::json;
use std::fmt::Write;

/// The registry's row.
pub struct Rk3588Evidence;

impl Evidence for Rk3588Evidence {
    fn target(&self) -> &'static str {
        millrace_rk3588::program::TARGET
    }

    fn fidelity(&self, what: FidelityOf) -> Result<FidelityReport, BenchError> {
        report(what)
    }
}

/// Whether a row is of a whole model.
fn is_model(row: &Prediction) -> bool {
    matches!(row.measured.what, RowSubject::Prefill | RowSubject::Decode)
}

fn report(what: FidelityOf) -> Result<FidelityReport, BenchError> {
    let models = match what {
        FidelityOf::Kernels => false,
        FidelityOf::Models => true,
        FidelityOf::LeaveOut => {
            return Err(BenchError::Usage {
                message: "constants of this target are not fitted anew".to_owned(),
                hint:
                    "a fitted constant has a row or two, which are marked; all others are held out"
                        .to_owned(),
            });
        }
    };
    let all = fidelity::report(&Machine::rk3588());
    let rows: Vec<&Prediction> = (all.rows.iter())
        .filter(|row| is_model(row) == models)
        .collect();
    let names = |group: &&RknnGroupStats| rows.iter().any(|row| row.measured.group == group.name);
    let groups: Vec<&RknnGroupStats> = all.groups.iter().filter(names).collect();
    let outside = groups.iter().filter(|group| !group.pass);
    let outside: Vec<&str> = outside.map(|group| group.name.as_str()).collect();
    let failures = match (rows.is_empty(), outside.is_empty()) {
        (true, _) => vec!["nothing was predicted".to_owned()],
        (_, false) => vec![format!("outside the stated bound: {}", outside.join(", "))],
        _ => Vec::new(),
    };
    Ok(FidelityReport {
        text: text(&groups, &rows),
        json: json!({ "groups": groups, "rows": rows }),
        failures,
    })
}

fn text(groups: &[&RknnGroupStats], rows: &[&Prediction]) -> String {
    let mut out = String::new();
    for group in groups {
        let bound = match group.bound {
            RknnGroupBound::Median(percent) => format!("median within {percent} %"),
            RknnGroupBound::Every(percent) => format!("every row within {percent} %"),
            RknnGroupBound::None => "no bound: every row was fitted on".to_owned(),
        };
        let found = match (group.median_percent, group.max_percent) {
            (Some(median), Some(max)) => format!("median {median:.1} %, at most {max:.1} %; "),
            _ => String::new(),
        };
        let verdict = if group.pass { "pass" } else { "FAIL" };
        let (name, n, fitted) = (&group.name, group.rows, group.calibration_rows);
        let _ = writeln!(
            out,
            "{name}: {n} rows, {fitted} fitted on (*); {found}{bound}: {verdict}"
        );
        for row in rows.iter().filter(|row| row.measured.group == *name) {
            let m = &row.measured;
            let star = if row.calibration { "*" } else { " " };
            let what = match &m.shape {
                Some(shape) => shape.to_string(),
                None => format!("{} {}", m.geometry, m.metric),
            };
            let _ = writeln!(
                out,
                " {star}{:<5} {what:<44} {:<14} published {:>10.2}  predicted {:>10.2}  {:>+7.1} %{}",
                m.id,
                m.profile,
                m.value,
                row.predicted,
                row.error_percent,
                row.remark
                    .map_or_else(String::new, |remark| format!("  {remark}"))
            );
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "Rows are others' measurements, each with its source in `--json`; the converter's cycles are a \
         model of its maker, no silicon. * a constant was fitted on it, so it counts in no statistic."
    );
    out
}
