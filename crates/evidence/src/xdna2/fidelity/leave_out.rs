//! Leave-out evaluation: constants fitted on some models and kernel families, errors on the others.
//!
//! The shipped profiles were fitted on the rows that they name, with all others in view. This module tests the worth of
//! that. It fits the same constants anew, by a deterministic search: once on all rows, and once without those of one
//! kernel family or one model. It then compares the errors on those rows. The closer the two, the less a prediction
//! owes to having seen its row.
//!
//! Constants that only the rows left out depend on (a family's own kernel objects) cannot be fitted
//! without them and keep the profile's values.

mod few;
mod fit;
mod sizes;

pub use few::FromFew;

use super::models::{self, PreparedRow, RowPredictor};
use super::{MappingBuild, Measurement, build, cases, median};
use fit::{Point, refit};
use millrace_xdna2_machine::profile::{Fact, Origin, is_model_key};
use millrace_xdna2_machine::{Machine, Profile, timing};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// Rows that were left out together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Target of the fit: kernels, or a group of rows of whole models.
    pub fitted: String,
    /// The kernel family or the model that was left out.
    pub left_out: String,
    /// Its rows.
    pub rows: usize,
    /// Their errors with the constants fitted on all rows.
    pub in_sample: ErrorSizes,
    /// Their errors with the constants fitted on all other rows.
    pub leave_out: ErrorSizes,
    /// Whether the second median is at most one and a half times the first.
    pub pass: bool,
    /// If it does not pass: the mechanism that is probably missing.
    pub missing: Option<&'static str>,
}

/// Sizes of errors over some rows, in percent of the measured values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ErrorSizes {
    /// Median of |error|.
    pub median_percent: f64,
    /// Mean of |error|.
    pub mean_percent: f64,
    /// The largest |error|.
    pub max_percent: f64,
}

impl ErrorSizes {
    /// Sizes of errors from ratios of prediction to measurement.
    fn of(ratios: &[f64]) -> ErrorSizes {
        let mut sizes: Vec<f64> = ratios.iter().map(|r| (r - 1.0).abs() * 100.0).collect();
        sizes.sort_by(f64::total_cmp);
        ErrorSizes {
            median_percent: median(&sizes),
            mean_percent: sizes.iter().sum::<f64>() / sizes.len().max(1) as f64,
            max_percent: sizes.last().copied().unwrap_or(0.0),
        }
    }
}

impl fmt::Display for ErrorSizes {
    /// Three cells of a table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} | {:.1} | {:.1}",
            self.median_percent, self.mean_percent, self.max_percent
        )
    }
}

/// The evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeaveOut {
    /// Families and models.
    pub left_out: Vec<LeftOut>,
    /// Kinds predicted by constants that were fitted on a few others.
    pub from_few: Vec<FromFew>,
}

impl LeaveOut {
    /// Whether every family generalises, or the mechanism that it lacks is named.
    pub fn pass(&self) -> bool {
        let fine = |one: &LeftOut| one.pass || one.missing.is_some();
        !self.left_out.is_empty() && self.left_out.iter().all(fine)
    }
}

/// Allowed ratio of the two errors.
const RATIO: f64 = 1.5;

/// Largest |ln(predicted / measured)| that counts: a few rows that no form fits must not dominate.
const CAP: f64 = 0.3;

/// Evaluates kernels and whole models.
pub fn evaluate() -> LeaveOut {
    let measurements = super::measurements();
    let mut left_out = kernels(&measurements, &|_| true);
    left_out.extend(whole_models(&measurements, &|_| true));
    LeaveOut {
        left_out,
        from_few: few::evaluate(&measurements),
    }
}

/// The mechanism that is missing where a family or a model does not generalise.
fn missing(fitted: &str, left_out: &str) -> Option<&'static str> {
    MISSING
        .iter()
        .find(|(of, name, _)| *of == fitted && *name == left_out)
        .map(|found| found.2)
}

/// For each fit and each part left out, the missing mechanism.
const MISSING: &[(&str, &str, &str)] = &[
    ("kernels", "GEMM direct", ISSUE_ORDER),
    ("kernels", "GEMM fused-cast and f32", CORE_BOUND),
    (sizes::FITTED, "FlashAttention, smallest", LOADING),
    (sizes::FITTED, "GEMM direct, smallest", ISSUE_ORDER),
    (sizes::FITTED, "element-wise and row-wise, largest", ELEMENT),
    (models::PAPER_PREFILL, "Gemma3-4B", LAYER),
    (models::PAPER_DECODE, "Gemma3-1B", LAYER),
    (models::AIR_KRACKAN, "Llama-3.2-1B", ATTENTION_OBJECT),
    (models::AIR_KRACKAN, "Llama-3.1-8B", ATTENTION_OBJECT),
    (models::AIR_KRACKAN, "Qwen3-4B", LAYER),
    (models::AIR_STRIX, "Llama-3.1-8B", LAYER),
    (models::PAPER_DECODE, "Gemma3-4B", LAYER),
    (models::FLM_DECODE, "Llama-3.2-1B", LAYER),
    (STACK, "Qwen2.5-0.5B", HOST),
    (STACK, "Qwen2.5-1.5B", HOST),
    (STACK, "Qwen2.5-3B", HOST),
];

/// Prompts and tokens of the bf16 stack, which share the host's constants.
const STACK: &str = "bf16 stack, prompts; bf16 stack, tokens";

const ISSUE_ORDER: &str = "in which order a point's tasks are issued, and what the truncation of each panel costs a generated loop";
const CORE_BOUND: &str = "how fast the cores multiply and are loaded: in every other family the DDR or another object hides it";
const LOADING: &str =
    "how long objects are loaded: the smallest rows alone tell it from attention's cycles";
const ELEMENT: &str =
    "what an element costs beside a row: few sizes of an object stay to tell them apart";
const LAYER: &str = "what a layer does beside weights and cache: norms, RoPE, gate and changes of phase are one constant";
const ATTENTION_OBJECT: &str = "what bounds a block of fused decode's attention: its cycles are fitted by head dimension, and few models share one";
const HOST: &str =
    "host work by step: one rate by bytes stands for tokenising, views, conversions and Python";

fn compare(fitted: &str, left_out: &str, inside: &[f64], outside: &[f64]) -> LeftOut {
    let [in_sample, leave_out] = [inside, outside].map(ErrorSizes::of);
    let pass = leave_out.median_percent <= RATIO * in_sample.median_percent;
    LeftOut {
        fitted: fitted.to_owned(),
        left_out: left_out.to_owned(),
        rows: inside.len(),
        in_sample,
        leave_out,
        pass,
        missing: missing(fitted, left_out).filter(|_| !pass),
    }
}

/// Mean over groups of the mean capped |ln ratio|: every group weighs the same.
fn loss<'a>(rows: impl Iterator<Item = (&'a str, f64)>) -> f64 {
    let mut groups: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (group, ratio) in rows {
        let sum = groups.entry(group).or_default();
        sum.0 += ratio.ln().abs().min(CAP);
        sum.1 += 1.0;
    }
    let means = groups.values().map(|(sum, n)| sum / n);
    means.sum::<f64>() / groups.len().max(1) as f64
}

/// The fitted constants of a profile that a test admits, as a point to start from.
fn fitted(profile: &Profile, admits: impl Fn(&str) -> bool) -> Point {
    let constants = profile.constants.iter();
    let of = |c: &Fact| {
        Some((
            c.key.clone(),
            c.value.number().filter(|value| *value > 0.0)?,
        ))
    };
    (constants.filter(|c| c.is(Origin::Fitted) && admits(&c.key)))
        .filter_map(of)
        .collect()
}

/// The profile with these constants.
fn with(profile: &Profile, point: &Point) -> Profile {
    let mut profile = profile.clone();
    for (key, value) in point {
        // A key of the profile with a positive value; one out of its range is not taken.
        let _ = profile.set(&format!("{key}={value}"));
    }
    profile
}

/// A kernel's row, ready to be timed.
struct KernelRow {
    group: &'static str,
    measured: Measurement,
    profile: &'static str,
    built: MappingBuild,
    objects: BTreeSet<String>,
}

/// Times of kernels by row and the values of the constants that it depends on.
struct Kernels {
    machine: Machine,
    profiles: Vec<Profile>,
    rows: Vec<KernelRow>,
    known: RefCell<HashMap<(usize, Vec<u64>), f64>>,
}

impl Kernels {
    fn new(measurements: &[Measurement], admits: &dyn Fn(&str) -> bool) -> Kernels {
        let machine = Machine::npu2();
        let profiles = Profile::builtin_names()
            .filter_map(Profile::builtin)
            .collect();
        let row = |measured: &Measurement| {
            let case = cases::case(measured).ok()?;
            // The paper's megatiles are three rows with a separate profile.
            let admitted = case.profile != "paper-kraken" && admits(case.group);
            let built = admitted.then(|| build(&case, &machine).ok()).flatten()?;
            let mut objects = BTreeSet::new();
            for launch in &built.program.launches {
                objects.extend(timing::objects(launch).into_iter().map(str::to_owned));
            }
            Some(KernelRow {
                group: case.group,
                measured: measured.clone(),
                profile: case.profile,
                built,
                objects,
            })
        };
        let kernels = measurements
            .iter()
            .filter(|m| cases::kind(m) == super::ReportKind::Kernels);
        Kernels {
            rows: kernels.filter_map(row).collect(),
            machine,
            profiles,
            known: RefCell::default(),
        }
    }

    /// Predicted over measured of a row; 1 where it cannot be timed any more.
    fn ratio(&self, number: usize, point: &Point) -> f64 {
        let row = &self.rows[number];
        let concerns = |key: &str| match key.strip_prefix("kernel.") {
            Some(rest) => {
                let object = rest.rsplit_once('.').map_or(rest, |(object, _)| object);
                row.objects.contains(object)
            }
            None => true,
        };
        let values = point.iter().filter(|(key, _)| concerns(key));
        let key = (number, values.map(|(_, value)| value.to_bits()).collect());
        if let Some(&known) = self.known.borrow().get(&key) {
            return known;
        }
        let ratio = self.time(row, point).unwrap_or(1.0);
        self.known.borrow_mut().insert(key, ratio);
        ratio
    }

    fn time(&self, row: &KernelRow, point: &Point) -> Option<f64> {
        let profile = self.profiles.iter().find(|p| p.name == row.profile)?;
        let profile = with(profile, point);
        let timing = timing::predict(&row.built.program, &self.machine, &profile).ok()?;
        let work = row.built.mapping.work(&row.built.shape);
        let predicted = cases::in_unit(&row.measured, &work, timing.total_ns).ok()?;
        Some(predicted / row.measured.value)
    }

    /// The profile's values of the fitted constants of kernels.
    fn start(&self) -> Option<Point> {
        let mut profiles = self.profiles.iter();
        let registry = profiles.find(|p| p.name == "air-strix-registry-2026")?;
        Some(fitted(registry, |key| !is_model_key(key)))
    }

    /// Predicted over measured of some rows.
    fn ratios(&self, point: &Point, keeps: &dyn Fn(&KernelRow) -> bool) -> Vec<f64> {
        let rows = (0..self.rows.len()).filter(|&i| keeps(&self.rows[i]));
        rows.map(|i| self.ratio(i, point)).collect()
    }

    fn fit(&self, start: &Point, rounds: usize, keeps: &dyn Fn(&KernelRow) -> bool) -> Point {
        let rows: Vec<usize> = (0..self.rows.len())
            .filter(|&i| keeps(&self.rows[i]))
            .collect();
        refit(start, rounds, &|point| {
            loss(
                rows.iter()
                    .map(|&i| (self.rows[i].group, self.ratio(i, point))),
            )
        })
    }
}

/// Models that a registry row is a shape of, as its notes write them.
const NAMED: &[&str] = &["SmolVLA", "Qwen2.5", "Qwen3", "llama-3", "Gemma3"];

fn kernels(measurements: &[Measurement], admits: &dyn Fn(&str) -> bool) -> Vec<LeftOut> {
    const FITTED: &str = "kernels";
    let kernels = Kernels::new(measurements, admits);
    let Some(start) = kernels.start() else {
        return Vec::new();
    };
    let all = kernels.fit(&start, 3, &|_| true);
    let mut found = Vec::new();
    let groups: BTreeSet<&str> = kernels.rows.iter().map(|row| row.group).collect();
    let fold = |name: &str, is_out: &dyn Fn(&KernelRow) -> bool| {
        let point = kernels.fit(&all, 2, &|row| !is_out(row));
        let ratios = |point: &Point| kernels.ratios(point, is_out);
        compare(FITTED, name, &ratios(&all), &ratios(&point))
    };
    for group in groups.iter().filter(|_| groups.len() > 1) {
        found.push(fold(group, &|row| row.group == *group));
    }
    for model in NAMED {
        let named = |row: &KernelRow| {
            let notes = row.measured.notes.to_lowercase();
            notes.contains(&model.to_lowercase())
        };
        if kernels.rows.iter().filter(|row| named(row)).count() > 2 {
            found.push(fold(&format!("shapes of {model}"), &named));
        }
    }
    found.extend(sizes::evaluate(&kernels, &all));
    found
}

/// Groups of whole models whose constants are fitted together.
const MODEL_FITS: &[&[&str]] = &[
    &[models::PAPER_PREFILL],
    &[models::PAPER_DECODE],
    &[models::FLM_DECODE],
    &[models::AIR_KRACKAN],
    &[models::AIR_STRIX],
    &[models::PROMPTS, models::TOKENS],
];

fn whole_models(measurements: &[Measurement], admits: &dyn Fn(&str) -> bool) -> Vec<LeftOut> {
    let machine = Machine::npu2();
    let profiles: Vec<Profile> = Profile::builtin_names()
        .filter_map(Profile::builtin)
        .collect();
    let predictor = RowPredictor::new(&machine, &profiles);
    let all_rows = measurements
        .iter()
        .filter(|m| cases::kind(m) == super::ReportKind::Models);
    let rows: Vec<PreparedRow> = all_rows.filter_map(PreparedRow::new).collect();
    let mut found = Vec::new();
    for groups in MODEL_FITS {
        let rows: Vec<&PreparedRow> = (rows.iter())
            .filter(|row| groups.contains(&row.group()) && admits(row.group()))
            .collect();
        let profile = rows
            .first()
            .and_then(|row| profiles.iter().find(|p| p.name == row.profile()));
        if let Some(profile) = profile {
            found.extend(models_of(&predictor, profile, &rows));
        }
    }
    found
}

/// Leaves out every model of some rows in turn.
fn models_of(
    predictor: &RowPredictor<'_>,
    profile: &Profile,
    rows: &[&PreparedRow],
) -> Vec<LeftOut> {
    let names: BTreeSet<&str> = rows.iter().map(|row| row.model()).collect();
    let groups: BTreeSet<&str> = rows.iter().map(|row| row.group()).collect();
    if names.len() < 2 {
        return Vec::new();
    }
    let ratio = |row: &PreparedRow, point: &Point| {
        predictor.ratio(row, &with(profile, point)).unwrap_or(1.0)
    };
    let fit = |start: &Point, without: Option<&str>| {
        refit(start, 4, &|point| {
            let rows = rows.iter().filter(|row| Some(row.model()) != without);
            loss(rows.map(|row| (row.group(), ratio(row, point))))
        })
    };
    let all = fit(&fitted(profile, is_model_key), None);
    let fitted = groups.into_iter().collect::<Vec<_>>().join("; ");
    (names.into_iter())
        .map(|name| {
            let point = fit(&all, Some(name));
            let ratios = |point: &Point| -> Vec<f64> {
                let rows = rows.iter().filter(|row| row.model() == name);
                rows.map(|row| ratio(row, point)).collect()
            };
            compare(&fitted, name, &ratios(&all), &ratios(&point))
        })
        .collect()
}

impl fmt::Display for LeaveOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fitted | left out | rows | on all rows: median | mean | worst | on all others: median | mean | worst | | missing |"
        )?;
        writeln!(f, "|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|")?;
        for one in &self.left_out {
            let verdict = if one.pass { "holds" } else { "does not" };
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {verdict} | {} |",
                one.fitted,
                one.left_out,
                one.rows,
                one.in_sample,
                one.leave_out,
                one.missing.unwrap_or_default(),
            )?;
        }
        few::write(&self.from_few, f)
    }
}

#[cfg(test)]
mod tests;
