//! Kinds of rows predicted by constants that were fitted on a few other kinds alone.

use super::super::models::{self, PreparedRow, RowPredictor};
use super::super::{Measurement, ReportKind, cases};
use super::{ErrorSizes, Kernels, with};
use millrace_xdna2_machine::Profile;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// A kind, and how well constants of other kinds predict it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FromFew {
    /// Rows that the constants were fitted on.
    pub fitted_on: String,
    /// The kind that is predicted.
    pub predicted: String,
    /// Its rows.
    pub rows: usize,
    /// Their errors.
    pub errors: ErrorSizes,
}

/// The kinds of kernels that constants are fitted on, each time.
const KEPT: [&[&str]; 2] = [
    &["GEMM fused-cast and f32", "GEMV"],
    &[
        "GEMM drain",
        "GEMM direct",
        "FlashAttention",
        "element-wise and row-wise",
    ],
];

/// Every kind of kernels, and prompts and tokens of the stack that runs them.
pub(super) fn evaluate(measurements: &[Measurement]) -> Vec<FromFew> {
    let kernels = Kernels::new(measurements, &|_| true);
    let Some(start) = kernels.start() else {
        return Vec::new();
    };
    let groups: BTreeSet<&str> = kernels.rows.iter().map(|row| row.group).collect();
    let mut found = Vec::new();
    for kept in KEPT {
        let point = kernels.fit(&start, 2, &|row| kept.contains(&row.group));
        let mut add = |predicted: &str, ratios: &[f64]| {
            found.push(FromFew {
                fitted_on: kept.join("; "),
                predicted: predicted.to_owned(),
                rows: ratios.len(),
                errors: ErrorSizes::of(ratios),
            });
        };
        for group in groups.iter().filter(|group| !kept.contains(group)) {
            add(group, &kernels.ratios(&point, &|row| row.group == *group));
        }
        let profiles = kernels.profiles.iter().map(|p| with(p, &point));
        let profiles: Vec<Profile> = profiles.collect();
        let predictor = RowPredictor::new(&kernels.machine, &profiles);
        for group in [models::PROMPTS, models::TOKENS] {
            add(
                group,
                &of_models(measurements, group, &predictor, &profiles),
            );
        }
    }
    found
}

/// Predicted over measured of a group of whole models.
fn of_models(
    measurements: &[Measurement],
    group: &str,
    predictor: &RowPredictor<'_>,
    profiles: &[Profile],
) -> Vec<f64> {
    let rows = measurements
        .iter()
        .filter(|m| cases::kind(m) == ReportKind::Models)
        .filter_map(PreparedRow::new)
        .filter(|row| row.group() == group);
    let ratio = |row: PreparedRow| {
        let profile = profiles.iter().find(|p| p.name == row.profile())?;
        predictor.ratio(&row, profile)
    };
    rows.filter_map(ratio).collect()
}

/// The table of them.
pub(super) fn write(all: &[FromFew], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "\n| fitted on these alone | predicted | rows | median | mean | worst |"
    )?;
    writeln!(f, "|---|---|---:|---:|---:|---:|")?;
    for one in all {
        let (kept, name, rows, errors) = (&one.fitted_on, &one.predicted, one.rows, &one.errors);
        writeln!(f, "| {kept} | {name} | {rows} | {errors} |")?;
    }
    Ok(())
}
