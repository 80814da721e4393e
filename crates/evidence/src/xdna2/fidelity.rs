//! Fidelity: predictions of the timing model compared with others' measurements.
//!
//! `data/xdna2/measured.csv` holds published measurements, each with its source. [`report`] predicts every
//! row of a kernel that [`mapping`] builds, under the profile of the box and software
//! it was measured on, and says how far off it is. Rows that constants were fitted on are marked and
//! left out of the statistics; rows that cannot be predicted are listed with the reason.

mod cases;
pub mod leave_out;
mod lowered;
mod models;
mod stack;
mod table;

use millrace_xdna2::mapping::{self, Mapping};
use millrace_xdna2_machine::profile::Profile;
use millrace_xdna2_machine::{Machine, Program, timing};
pub(crate) use models::length;
use serde::Serialize;

/// Subject of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ReportKind {
    /// Single kernels.
    Kernels,
    /// Whole models: prefill and decode.
    Models,
}

/// A published measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Id in `data/xdna2/measured.csv`.
    pub id: String,
    /// Where it was published.
    pub source: String,
    /// The box.
    pub hardware: String,
    /// The model, or `-`.
    pub model: String,
    /// Number types.
    pub dtype: String,
    /// `gemm`, `kernel`, `prefill`, `decode`, ….
    pub phase: String,
    /// The kernel, as the source names it.
    pub kernel: String,
    /// The shape, as the source writes it.
    pub shape: String,
    /// Unit of the value: `us`, `ms`, `GFLOP_per_s`, `TOPS`, ….
    pub metric: String,
    /// The value.
    pub value: f64,
    /// Remarks.
    pub notes: String,
}

/// A row with its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FidelityRow {
    /// Its group.
    pub group: String,
    /// The measurement.
    pub measured: Measurement,
    /// The mapping that was built.
    pub mapping: String,
    /// Its tiling.
    pub tiling: String,
    /// The profile.
    pub profile: String,
    /// Predicted, in the measurement's unit.
    pub predicted: f64,
    /// (predicted / measured − 1) · 100.
    pub error_percent: f64,
    /// Whether a constant was fitted on it.
    pub calibration: bool,
    /// Resource that bounds the longest launch; for a whole model, the form that predicts it.
    pub bottleneck: String,
    /// Why it is a known outlier, if it is one. Outliers count in the statistics like any row.
    pub outlier: Option<String>,
}

/// A row without a prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExcludedRow {
    /// The measurement.
    pub measured: Measurement,
    /// Why there is none.
    pub reason: String,
}

/// Bound of a group's errors over its held-out rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GroupBound {
    /// Largest median of |error|, in percent.
    pub median_percent: Option<f64>,
    /// Largest 80th percentile of |error|.
    pub p80_percent: Option<f64>,
    /// Largest |error| of any row, calibration rows included.
    pub max_percent: Option<f64>,
}

/// Statistics of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupStats {
    /// Name.
    pub name: String,
    /// Rows, calibration rows included.
    pub rows: usize,
    /// Rows that constants were fitted on.
    pub calibration_rows: usize,
    /// Median of |error| over the held-out rows, in percent: of an even number the mean of the middle two.
    pub median_percent: f64,
    /// 80th percentile.
    pub p80_percent: f64,
    /// Maximum.
    pub max_percent: f64,
    /// Median of the signed error: above 0 predicts too high a value.
    pub bias_percent: f64,
    /// Bound of its errors; none for groups reported for information.
    pub bound: Option<GroupBound>,
    /// Whether it does.
    pub pass: bool,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasurementReport {
    /// Subject of the report.
    pub kind: ReportKind,
    /// Groups in order.
    pub groups: Vec<GroupStats>,
    /// Rows in order of the measurements.
    pub rows: Vec<FidelityRow>,
    /// Rows left out.
    pub excluded: Vec<ExcludedRow>,
}

impl MeasurementReport {
    /// Whether something was predicted and every group attains its bound.
    pub fn pass(&self) -> bool {
        !self.rows.is_empty() && self.groups.iter().all(|group| group.pass)
    }
}

/// Groups of kernels in the order of the report, with their bounds.
const GROUPS: &[(&str, Option<GroupBound>)] = &[
    (
        "GEMM fused-cast and f32",
        Some(bound(Some(4.0), Some(8.0), None)),
    ),
    ("GEMM drain", None),
    ("GEMM direct", None),
    ("GEMM megatile", Some(bound(None, None, Some(3.0)))),
    ("GEMV", Some(bound(Some(4.0), None, None))),
    ("FlashAttention", Some(bound(Some(10.0), None, None))),
    (
        "element-wise and row-wise",
        Some(bound(Some(10.0), None, None)),
    ),
];

/// Groups of whole models. Their bounds come from the errors of the forms in the study behind them.
const MODEL_GROUPS: &[(&str, Option<GroupBound>)] = &[
    (models::PAPER_PREFILL, Some(bound(Some(4.0), None, None))),
    (models::PAPER_DECODE, Some(bound(Some(3.0), None, None))),
    (models::FLM_DECODE, Some(bound(Some(3.0), None, None))),
    (models::FLM_PREFILL, Some(bound(Some(10.0), None, None))),
    (models::AIR_KRACKAN, Some(bound(Some(5.0), None, None))),
    // Six rows of one project that differ by 37 % among themselves set this one: their ordinary median.
    (models::AIR_STRIX, Some(bound(Some(13.0), None, None))),
    (models::AIR_Q4_0, None),
    (
        models::PROGRAMS,
        Some(bound(Some(6.0), Some(15.0), Some(20.0))),
    ),
    (models::PROMPTS, Some(bound(Some(10.0), None, None))),
    (models::TOKENS, Some(bound(Some(5.0), Some(12.0), None))),
    (models::BUFFERS, Some(bound(None, None, Some(10.0)))),
];

const fn bound(median: Option<f64>, p80: Option<f64>, max: Option<f64>) -> GroupBound {
    GroupBound {
        median_percent: median,
        p80_percent: p80,
        max_percent: max,
    }
}

/// All measurements that come with the crate.
pub fn measurements() -> Vec<Measurement> {
    read(include_str!("../../data/xdna2/measured.csv"))
}

/// Measurements from CSV text: a heading, then a row a line with the fields of [`Measurement`] (and the batch before
/// the metric). Quoted fields may hold commas. Lines without a measurement are skipped.
pub fn read(text: &str) -> Vec<Measurement> {
    cases::read(text)
}

/// Predicts every row of a kind and compares.
pub fn report(kind: ReportKind) -> MeasurementReport {
    let profiles: Vec<Profile> = Profile::builtin_names()
        .filter_map(Profile::builtin)
        .collect();
    report_with(kind, &measurements(), &Machine::npu2(), &profiles)
}

/// Compares the given measurements with predictions, under any machine and profiles. A row is predicted under the
/// profile of the name that its source calls for.
pub fn report_with(
    kind: ReportKind,
    measurements: &[Measurement],
    machine: &Machine,
    profiles: &[Profile],
) -> MeasurementReport {
    let mut rows = Vec::new();
    let mut excluded = Vec::new();
    let predictor = models::RowPredictor::new(machine, profiles);
    for measured in measurements {
        if cases::kind(measured) != kind {
            continue;
        }
        let predicted = match kind {
            ReportKind::Kernels => {
                cases::case(measured).and_then(|case| row(measured, &case, machine, profiles))
            }
            ReportKind::Models => predictor.row(measured),
        };
        match predicted {
            Ok(row) => rows.push(row),
            Err(reason) => excluded.push(ExcludedRow {
                measured: measured.clone(),
                reason,
            }),
        }
    }
    let groups = match kind {
        ReportKind::Kernels => GROUPS,
        ReportKind::Models => MODEL_GROUPS,
    };
    let groups = groups
        .iter()
        .filter_map(|(name, bound)| group(name, *bound, &rows))
        .collect();
    MeasurementReport {
        kind,
        groups,
        rows,
        excluded,
    }
}

/// A measurement's kernel: its mapping, shape, tiling and program.
struct MappingBuild {
    mapping: &'static dyn Mapping,
    shape: mapping::Shape,
    tiling: mapping::Tiling,
    program: Program,
}

fn build(case: &cases::FidelityCase, machine: &Machine) -> Result<MappingBuild, String> {
    let mapping: &'static dyn Mapping =
        mapping::find(case.mapping).ok_or_else(|| format!("no mapping `{}`", case.mapping))?;
    let shape = mapping
        .parse_shape(&case.shape)
        .map_err(|e| e.to_string())?;
    let tiling = mapping
        .default_tiling(&shape, machine)
        .overridden(&case.tiling)
        .map_err(|e| e.to_string())?;
    let program = mapping
        .build(&shape, &tiling, machine)
        .map_err(|e| e.to_string())?;
    Ok(MappingBuild {
        mapping,
        shape,
        tiling,
        program,
    })
}

fn row(
    measured: &Measurement,
    case: &cases::FidelityCase,
    machine: &Machine,
    profiles: &[Profile],
) -> Result<FidelityRow, String> {
    let profile = (profiles.iter().find(|profile| profile.name == case.profile))
        .ok_or_else(|| format!("no profile `{}`", case.profile))?;
    let built = build(case, machine)?;
    let timing = timing::predict(&built.program, machine, profile).map_err(|e| e.to_string())?;
    let work = built.mapping.work(&built.shape);
    let predicted = cases::in_unit(measured, &work, timing.total_ns)?;
    let longest = timing.launches.iter().max_by(|a, b| a.ns.total_cmp(&b.ns));
    Ok(FidelityRow {
        group: case.group.to_owned(),
        measured: measured.clone(),
        mapping: case.mapping.to_owned(),
        tiling: built.tiling.to_string(),
        profile: profile.name.clone(),
        predicted,
        error_percent: (predicted / measured.value - 1.0) * 100.0,
        calibration: profile.calibration_rows().contains(&measured.id.as_str()),
        bottleneck: longest
            .map(|l| l.bottleneck.to_string())
            .unwrap_or_default(),
        outlier: None,
    })
}

fn group(name: &str, bound: Option<GroupBound>, rows: &[FidelityRow]) -> Option<GroupStats> {
    let all: Vec<&FidelityRow> = rows.iter().filter(|row| row.group == name).collect();
    if all.is_empty() {
        return None;
    }
    let held_out: Vec<f64> = (all.iter().filter(|row| !row.calibration))
        .map(|row| row.error_percent)
        .collect();
    let mut sizes: Vec<f64> = held_out.iter().map(|e| e.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let mut signed = held_out.clone();
    signed.sort_by(f64::total_cmp);
    let (median_percent, p80) = (median(&sizes), quantile(&sizes, 0.8));
    let worst = all
        .iter()
        .map(|row| row.error_percent.abs())
        .fold(0.0, f64::max);
    let within = |limit: Option<f64>, value: f64| limit.is_none_or(|limit| value <= limit);
    let pass = bound.is_none_or(|b| {
        within(b.median_percent, median_percent)
            && within(b.p80_percent, p80)
            && within(b.max_percent, worst)
    });
    Some(GroupStats {
        name: name.to_owned(),
        rows: all.len(),
        calibration_rows: all.len() - held_out.len(),
        median_percent,
        p80_percent: p80,
        max_percent: sizes.last().copied().unwrap_or(0.0),
        bias_percent: median(&signed),
        bound,
        pass,
    })
}

/// The stated error that the rows of a group support. None for parts of the host's work, and for single programs of a
/// stack, which are neither kernels of the report nor whole models.
#[cfg(test)]
fn scope_of(group: &str) -> Option<millrace_xdna2_machine::profile::ErrorScope> {
    use millrace_xdna2_machine::profile::ErrorScope;
    match group {
        models::PROGRAMS | models::BUFFERS => None,
        models::PAPER_PREFILL | models::FLM_PREFILL | models::PROMPTS => Some(ErrorScope::Prompt),
        group if MODEL_GROUPS.iter().any(|known| known.0 == group) => Some(ErrorScope::Token),
        _ => Some(ErrorScope::Kernel),
    }
}

/// The ordinary median of sorted values: the middle one, or the mean of the two in the middle.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let (half, odd) = (sorted.len() / 2, sorted.len() % 2);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
    match (half, odd) {
        (0, 0) => 0.0,
        (_, 0) => (at(half - 1) + at(half)) / 2.0,
        _ => at(half),
    }
}

/// The quantile of sorted values: the smallest that at least that share of them does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
