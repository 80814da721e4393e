//! The tables of the paper *Mapping Gemma3 onto an Edge Dataflow Architecture* compared with predictions:
//! `profile --paper gemma3`.
//!
//! Every predicted value is the time of a prompt or a token of a plan that [`lower`](millrace_xdna2::lower) makes, priced
//! launch by launch; none is a closed form. Published values are rows of `data/xdna2/measured.csv`.

mod predicted;
mod rows;
mod table;

use crate::xdna2::fidelity::{self, Measurement, median};
use millrace_plan::predict::PredictError;
use millrace_plan::{BenchError, Choice, SettingError};
use millrace_xdna2::target::modes::FAST;
use millrace_xdna2_machine::Profile;
use millrace_xdna2_machine::program::codec::TARGET as NAME;
use predicted::{Cost, ImageCost, PaperPredictor};
use rows::{BESIDE, MODE, OURS, OWN, PACKED, PROFILE, PaperMetric, Series};
use serde::Serialize;

/// The name by which it is requested.
const GEMMA3: &str = "gemma3";

/// How far a row may be off, in percent.
const ROW_PERCENT: f64 = 10.0;

/// How far an image may be off, in percent.
const IMAGE_PERCENT: f64 = 15.0;

/// Tokens of a prompt with an image: its 256 rows, the tokens around them, and a short question.
const IMAGE_TOKENS: u64 = 280;

/// Largest allowed median over rows that nothing was fitted on, in percent.
const MEDIAN_PERCENT: f64 = 5.0;

/// The known papers.
pub(super) fn papers() -> Vec<Choice> {
    vec![Choice::new(
        GEMMA3,
        "Mapping Gemma3 onto an Edge Dataflow Architecture",
    )]
}

/// Checks that there is a paper of that name.
pub(super) fn check(name: &str) -> Result<(), SettingError> {
    match name {
        GEMMA3 => Ok(()),
        other => Err(SettingError::unknown(NAME, "paper", other, &papers())),
    }
}

/// The paper's tables, and others' published figures of the same kernels.
#[derive(Serialize)]
pub(super) struct PaperReport {
    paper: String,
    /// The mode of all predictions that are compared.
    mode: &'static str,
    profile: &'static str,
    /// The profile of this project's other modes.
    own_profile: &'static str,
    /// Constants of the profile that were fitted on rows of these tables and that predictions here read.
    fitted: Vec<FittedConstant>,
    row_target_percent: f64,
    median_target_percent: f64,
    /// Rows of more tokens are left out.
    longest_tokens: u64,
    summary: Summary,
    tables: Vec<Table>,
    power: Vec<Power>,
    images: Vec<ImageRow>,
    /// Other software's figures, for comparison. They have no errors, since their plans are different.
    beside: Vec<BesideTable>,
}

/// A constant that was fitted on the paper's rows.
#[derive(Serialize)]
struct FittedConstant {
    key: String,
    value: f64,
    rows: Vec<String>,
    note: String,
}

/// Errors over rows.
#[derive(Serialize)]
struct Summary {
    n_rows: usize,
    n_fitted: usize,
    /// Over rows that no constant of the profile was fitted on.
    median_percent: f64,
    max_percent: f64,
    /// All rows outside the target.
    missed: Vec<String>,
    median_is_missed: bool,
}

/// One of the paper's tables.
#[derive(Serialize)]
struct Table {
    title: &'static str,
    model: &'static str,
    what: PaperMetric,
    summary: Summary,
    rows: Vec<PaperRow>,
}

/// A published row with its prediction.
#[derive(Serialize)]
struct PaperRow {
    id: String,
    source: String,
    tokens: u64,
    /// Seconds for a prompt, tokens a second for a token.
    published: f64,
    /// Launches, host, and the profile's extra time of the published stack.
    predicted: f64,
    /// (predicted / published − 1) · 100.
    error_percent: f64,
    /// The same of launches and host alone.
    launches_percent: f64,
    /// Whether a constant of the profile was fitted on it.
    fitted: bool,
    missed: bool,
    /// Prediction for mode fast, whose weights are bf16, with our profile.
    fast: f64,
    /// Tokens a second and watt: published rate over published power, and predicted over the same.
    published_per_w: Option<f64>,
    predicted_per_w: Option<f64>,
    cost: Cost,
}

/// Published power while a model runs on the NPU.
#[derive(Serialize)]
struct Power {
    id: String,
    source: String,
    model: String,
    what: PaperMetric,
    cpu_w: f64,
    gpu_w: f64,
    npu_w: f64,
    total_w: f64,
}

/// An image's time to the first token, in seconds.
#[derive(Serialize)]
struct ImageRow {
    id: String,
    source: String,
    what: String,
    /// Tokens that are predicted: the image's and a question's.
    tokens: u64,
    published: f64,
    predicted: f64,
    error_percent: f64,
    /// The error with launches and host alone.
    launches_percent: f64,
    missed: bool,
    /// Prediction for mode int4 with our profile.
    packed: ImageCost,
    cost: ImageCost,
}

/// Somebody else's figures of a model.
#[derive(Serialize)]
struct BesideTable {
    title: &'static str,
    what: PaperMetric,
    profile: &'static str,
    rows: Vec<BesideRow>,
}

/// One of them.
#[derive(Serialize)]
struct BesideRow {
    id: String,
    source: String,
    tokens: u64,
    published: f64,
    /// Predicted by mode int4.
    int4: f64,
    /// Predicted by mode fast.
    fast: f64,
    /// Whether a constant of the profile was fitted on it.
    fitted: bool,
}

/// Predicts all rows of at most so many tokens.
pub(super) fn report(longest_tokens: u64) -> Result<PaperReport, BenchError> {
    let measured = fidelity::measurements();
    let mut predictor = PaperPredictor::default();
    let power = power(&measured);
    let failed = |error: PredictError| BenchError::Failed(error.to_string());
    let mut tables = Vec::new();
    for series in &OWN {
        let rows = series.rows(&measured, longest_tokens);
        tables.push(table(series, &rows, &power, &mut predictor).map_err(failed)?);
    }
    let mut beside = Vec::new();
    for series in &BESIDE {
        let rows = series.rows(&measured, longest_tokens);
        beside.push(beside_table(series, &rows, &mut predictor).map_err(failed)?);
    }
    Ok(PaperReport {
        paper: papers()
            .into_iter()
            .map(|paper| paper.summary)
            .next()
            .unwrap_or_default(),
        mode: MODE,
        profile: PROFILE,
        own_profile: OURS,
        fitted: fitted_constants(&measured),
        row_target_percent: ROW_PERCENT,
        median_target_percent: MEDIAN_PERCENT,
        longest_tokens,
        summary: Summary::of(tables.iter().flat_map(|table| &table.rows)),
        tables,
        power,
        images: images(&measured, &mut predictor).map_err(failed)?,
        beside,
    })
}

fn table(
    series: &Series,
    rows: &[(&Measurement, u64)],
    power: &[Power],
    predictor: &mut PaperPredictor,
) -> Result<Table, PredictError> {
    let fitted = fitted(series.profile);
    let watts = (power.iter())
        .find(|power| power.model == series.model && power.what == series.what)
        .map(|power| power.total_w);
    let mut found = Vec::new();
    for &(measured, tokens) in rows {
        let cost = predictor.cost(series, MODE, tokens)?;
        let fast = predictor.cost(&series.timed_by(OURS), FAST, tokens)?;
        let predicted = series.what.in_unit(cost.whole_ns());
        let error = |predicted: f64| (predicted / measured.value - 1.0) * 100.0;
        let error_percent = error(predicted);
        let per_w = |value: f64| watts.map(|watts| series.what.tokens_per_s(value, tokens) / watts);
        found.push(PaperRow {
            id: measured.id.clone(),
            source: measured.source.clone(),
            tokens,
            published: measured.value,
            predicted,
            error_percent,
            launches_percent: error(series.what.in_unit(cost.ns)),
            fitted: fitted.contains(&measured.id),
            missed: error_percent.abs() > ROW_PERCENT,
            fast: series.what.in_unit(fast.ns),
            published_per_w: per_w(measured.value),
            predicted_per_w: per_w(predicted),
            cost,
        });
    }
    Ok(Table {
        title: series.title,
        model: series.model,
        what: series.what,
        summary: Summary::of(&found),
        rows: found,
    })
}

fn beside_table(
    series: &Series,
    rows: &[(&Measurement, u64)],
    predictor: &mut PaperPredictor,
) -> Result<BesideTable, PredictError> {
    let fitted = fitted(series.profile);
    let mut found = Vec::new();
    for &(measured, tokens) in rows {
        let mut of = |mode| -> Result<f64, PredictError> {
            let cost = predictor.cost(series, mode, tokens)?;
            Ok(series.what.in_unit(cost.ns))
        };
        found.push(BesideRow {
            id: measured.id.clone(),
            source: measured.source.clone(),
            tokens,
            published: rows::in_s(measured),
            int4: of(PACKED)?,
            fast: of(FAST)?,
            fitted: fitted.contains(&measured.id),
        });
    }
    Ok(BesideTable {
        title: series.title,
        what: series.what,
        profile: series.profile,
        rows: found,
    })
}

/// Rows that a constant of the profile was fitted on, those of closed forms included.
fn fitted(profile: &str) -> Vec<String> {
    let profile = Profile::builtin(profile);
    let rows = profile.as_ref().map(Profile::calibration_rows);
    rows.unwrap_or_default()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// Those of the profile that are fitted on rows of the paper's tables, without those of closed forms, which no launch
/// is timed by.
fn fitted_constants(measured: &[Measurement]) -> Vec<FittedConstant> {
    let own: Vec<&str> = OWN
        .iter()
        .flat_map(|series| series.rows(measured, u64::MAX))
        .map(|(row, _)| row.id.as_str())
        .collect();
    let of_forms = ["decode.", "prefill.", "kernel.decode_attention."];
    let constants = Profile::builtin(PROFILE).map(|profile| profile.constants);
    let constants = constants.unwrap_or_default().into_iter();
    constants
        .filter(|c| !of_forms.iter().any(|form| c.key.starts_with(form)))
        .filter(|c| c.rows.iter().any(|row| own.contains(&row.as_str())))
        .filter_map(|c| {
            Some(FittedConstant {
                value: c.value.number()?,
                key: c.key,
                rows: c.rows,
                note: c.note,
            })
        })
        .collect()
}

fn power(measured: &[Measurement]) -> Vec<Power> {
    let mut found = Vec::new();
    for total in measured.iter().filter(|row| rows::is_power(row)) {
        let same = |row: &&Measurement| (&row.model, &row.kernel) == (&total.model, &total.kernel);
        let watts = |metric: &str| {
            let mut rows = measured.iter().filter(|row| row.phase == total.phase);
            let row =
                rows.find(|row| same(row) && row.metric == metric && row.source == total.source);
            row.map_or(0.0, |row| row.value)
        };
        found.push(Power {
            id: total.id.clone(),
            source: total.source.clone(),
            model: total.model.clone(),
            what: match total.kernel.as_str() {
                rows::PREFILL_POWER => PaperMetric::Prompt,
                _ => PaperMetric::Token,
            },
            cpu_w: watts("CPU_W"),
            gpu_w: watts("GPU_W"),
            npu_w: watts("NPU_W"),
            total_w: total.value,
        });
    }
    found
}

fn images(
    measured: &[Measurement],
    predictor: &mut PaperPredictor,
) -> Result<Vec<ImageRow>, PredictError> {
    let mut found = Vec::new();
    for row in measured.iter().filter(|row| rows::is_vision(row)) {
        let mut of =
            |profile, mode| predictor.image((rows::GEMMA_4B.1, profile, mode), IMAGE_TOKENS);
        let (cost, packed) = (of(PROFILE, MODE)?, of(OURS, PACKED)?);
        let error = |ns: f64| (ns / 1e9 / row.value - 1.0) * 100.0;
        let predicted_ns = cost.launches_ns() + cost.stack_ns();
        let error_percent = error(predicted_ns);
        found.push(ImageRow {
            id: row.id.clone(),
            source: row.source.clone(),
            what: format!("{}, {}", row.model, row.kernel),
            tokens: IMAGE_TOKENS,
            published: row.value,
            predicted: predicted_ns / 1e9,
            error_percent,
            launches_percent: error(cost.launches_ns()),
            missed: error_percent.abs() > IMAGE_PERCENT,
            packed,
            cost,
        });
    }
    Ok(found)
}

impl Summary {
    fn of<'a>(rows: impl IntoIterator<Item = &'a PaperRow>) -> Summary {
        let rows: Vec<&PaperRow> = rows.into_iter().collect();
        let others = rows.iter().filter(|row| !row.fitted);
        let mut errors: Vec<f64> = others.map(|row| row.error_percent.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let median_percent = median(&errors);
        let missed = rows.iter().filter(|row| row.missed);
        Summary {
            n_rows: rows.len(),
            n_fitted: rows.len() - errors.len(),
            median_percent,
            max_percent: errors.last().copied().unwrap_or(0.0),
            missed: missed.map(|row| row.id.clone()).collect(),
            median_is_missed: median_percent > MEDIAN_PERCENT,
        }
    }
}

impl PaperReport {
    /// Descriptions of the misses of the targets.
    pub(super) fn misses(&self) -> Vec<String> {
        let summary = &self.summary;
        let mut misses: Vec<String> = (summary.missed.iter())
            .map(|id| format!("{id} is more than {ROW_PERCENT} % off"))
            .collect();
        let images = self.images.iter().filter(|row| row.missed);
        misses.extend(images.map(|row| format!("{} is more than {IMAGE_PERCENT} % off", row.id)));
        if summary.median_is_missed {
            misses.push(format!(
                "the median of {:.1} % is above {MEDIAN_PERCENT} %",
                summary.median_percent
            ));
        }
        misses
    }
}

#[cfg(test)]
mod tests;
