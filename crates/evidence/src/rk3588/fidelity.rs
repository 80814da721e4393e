//! Fidelity: predictions of the timing model compared with published measurements.
//!
//! `data/rk3588/measured.csv` holds the rows, each with its source; nothing here was measured by this project,
//! and the cycle estimates are a peer's model, not silicon. [`report`] predicts every row under the
//! profile of its stack. Rows that a constant was fitted on are marked and left out of the statistics.

mod models;
mod rows;

pub use models::Geometry;
pub use rows::{RknnFigure, RowSubject, measurements};

use millrace_rk3588::machine::Machine;
use millrace_rk3588::profile::Profile;
use millrace_rk3588::tiling::{Grid, Matmul, Order, Tiling, choose_weights, price};
use millrace_rk3588::timing::{Schedule, TaskCost, vendor_cycles};
use serde::Serialize;

/// A row with its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RknnFidelityRow {
    /// The measurement.
    pub measured: RknnFigure,
    /// Predicted, in the measurement's unit.
    pub predicted: f64,
    /// (predicted / measured − 1) · 100.
    pub error_percent: f64,
    /// Whether a constant was fitted on it.
    pub calibration: bool,
    /// Remark for the reader: an assumption, or an effect that the model does not explain.
    pub remark: Option<&'static str>,
}

/// Statistics of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RknnGroupStats {
    /// Name.
    pub name: String,
    /// Rows, those of calibration included.
    pub rows: usize,
    /// Rows that constants were fitted on.
    pub calibration_rows: usize,
    /// Median of |error| over the other rows, in percent; the mean of the middle two of an even number.
    /// None where every row was fitted on.
    pub median_percent: Option<f64>,
    /// The largest of them.
    pub max_percent: Option<f64>,
    /// Bound of its errors.
    pub bound: RknnGroupBound,
    /// Whether it does.
    pub pass: bool,
}

/// Bound of a group's errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum RknnGroupBound {
    /// The median of |error| of rows that were not fitted on, in percent.
    Median(f64),
    /// |error| of every row.
    Every(f64),
    /// Nothing: all rows were fitted on.
    None,
}

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RknnFidelityReport {
    /// Groups in order.
    pub groups: Vec<RknnGroupStats>,
    /// Rows in order of the file.
    pub rows: Vec<RknnFidelityRow>,
}

impl RknnFidelityReport {
    /// Whether every group attains its bound.
    pub fn pass(&self) -> bool {
        !self.rows.is_empty() && self.groups.iter().all(|group| group.pass)
    }
}

/// Groups in the order of the report.
const GROUPS: &[(&str, RknnGroupBound)] = &[
    (
        "cycle estimates of the vendor's converter",
        RknnGroupBound::Every(2.0),
    ),
    ("GEMM on rocket", RknnGroupBound::Median(20.0)),
    ("several open files", RknnGroupBound::Median(20.0)),
    ("submit of a tiny job", RknnGroupBound::None),
    ("prompts of 512 on rocket", RknnGroupBound::Median(20.0)),
    (
        "prompts of 512 on the vendor's stack",
        RknnGroupBound::Median(20.0),
    ),
    ("prompts of 128 on RKLLM", RknnGroupBound::Median(20.0)),
    ("tokens on RKLLM", RknnGroupBound::Median(20.0)),
    ("tokens on rk-llama.cpp", RknnGroupBound::Median(20.0)),
];

/// Predicts every row.
pub fn report(machine: &Machine) -> RknnFidelityReport {
    let profiles: Vec<Profile> = (Profile::builtin_names().filter_map(Profile::builtin)).collect();
    report_with(&measurements(), machine, &profiles)
}

/// Predicts the given rows, each under the profile that it names.
pub fn report_with(
    measured: &[RknnFigure],
    machine: &Machine,
    profiles: &[Profile],
) -> RknnFidelityReport {
    let rows: Vec<RknnFidelityRow> = (measured.iter())
        .filter_map(|row| predict(row, measured, machine, profiles))
        .collect();
    let groups = GROUPS
        .iter()
        .filter_map(|(name, bound)| group(name, *bound, &rows))
        .collect();
    RknnFidelityReport { groups, rows }
}

fn predict(
    row: &RknnFigure,
    measured: &[RknnFigure],
    machine: &Machine,
    profiles: &[Profile],
) -> Option<RknnFidelityRow> {
    let profile = profiles.iter().find(|profile| profile.name == row.profile);
    let predicted = match (row.what, profile) {
        (RowSubject::CyclesDdr | RowSubject::CyclesNpu, _) => cycles(row, machine),
        (RowSubject::Gemm, Some(profile)) => gemm(row, machine, profile),
        (RowSubject::Jobs, Some(profile)) => jobs(row, alone(measured)?, machine, profile),
        (RowSubject::Submit, Some(profile)) => Some(profile.submit_ns / 1e3),
        (
            RowSubject::Prefill | RowSubject::PrefillUnpacking | RowSubject::Decode,
            Some(profile),
        ) => models::predict(row, machine, profile),
        (_, None) => None,
    }?;
    let fitted = |p: &Profile| p.calibration_rows().contains(&row.id.as_str());
    let calibration = USED.contains(&row.id.as_str()) || profiles.iter().any(fitted);
    Some(RknnFidelityRow {
        predicted,
        error_percent: (predicted / row.value - 1.0) * 100.0,
        calibration,
        remark: rows::remark(&row.id),
        measured: row.clone(),
    })
}

fn cycles(row: &RknnFigure, machine: &Machine) -> Option<f64> {
    let shape = row.shape?;
    let parts = vendor_cycles(shape.m, shape.n, shape.k, shape.kind, machine);
    let part = row.notes.strip_prefix("part ")?.parse::<usize>().ok()?;
    let part = parts.get(part)?;
    Some(match row.what {
        RowSubject::CyclesDdr => part.ddr,
        _ => part.npu,
    })
}

/// One product with weights in place: packing A, device, reading C back.
fn gemm(row: &RknnFigure, machine: &Machine, profile: &Profile) -> Option<f64> {
    let shape = row.shape?;
    let ns = product_ns(shape, row.workers, machine, profile)?;
    let ops = 2.0 * f64::from(shape.m) * f64::from(shape.n) * f64::from(shape.k);
    Some(ops / ns)
}

/// Time of a product under a profile, cut as its stack cuts.
pub(crate) fn product_ns(
    shape: Matmul,
    workers: u32,
    machine: &Machine,
    profile: &Profile,
) -> Option<f64> {
    // A worker is a thread of the host that packs and reads for itself.
    let profile = Profile {
        host_threads: profile.host_threads.min(f64::from(workers)),
        ..profile.clone()
    };
    if profile.name.starts_with("rocket") {
        let tiling = rocket_userspace(workers);
        let grid = Grid::new(shape, tiling, machine).ok()?;
        return Some(price(&grid, tiling.job_tasks, machine, &profile).total_ns());
    }
    let (_, chosen) = choose_weights(shape, workers, machine, &profile).ok()?;
    Some(chosen.price.total_ns())
}

/// How rocket-userspace cuts: 256 columns stay in the CBUF while rows change, which leaves 512 of k for
/// 16-bit operands. That it takes 512 for narrower ones too is inferred from its rates, which hardly
/// differ by type.
fn rocket_userspace(workers: u32) -> Tiling {
    Tiling {
        rows: 128,
        cols: 256,
        depth: 512,
        workers,
        order: Order::Rows,
        job_tasks: 320,
    }
}

/// Jobs a second from so many open files, each with one job in flight. All jobs have the length of the first row's.
fn jobs(row: &RknnFigure, alone_per_s: f64, machine: &Machine, profile: &Profile) -> Option<f64> {
    const STEP_NS: f64 = 20e3;
    const END_NS: f64 = 3e9;
    let mut schedule = Schedule::new(machine, profile);
    let task = [TaskCost {
        fixed_ns: 1e9 / alone_per_s - profile.submit_ns,
        ..TaskCost::default()
    }];
    let mut in_flight: Vec<_> = (0..u64::from(row.workers))
        .map(|worker| schedule.submit(worker, 0.0, &task, false))
        .collect();
    let (mut now_ns, mut n_ended) = (0.0, 0);
    while now_ns < END_NS {
        now_ns += STEP_NS;
        schedule.advance(now_ns);
        for (worker, job) in in_flight.iter_mut().enumerate() {
            if schedule.run_until(*job, now_ns).is_some() {
                n_ended += 1;
                let ready_ns = now_ns + profile.submit_ns;
                *job = schedule.submit(worker as u64, ready_ns, &task, false);
            }
        }
    }
    Some(f64::from(n_ended) * 1e9 / END_NS)
}

/// The rate of one open file; the job's length of those rows is derived from it.
fn alone(measured: &[RknnFigure]) -> Option<f64> {
    let mut rows = measured.iter();
    let first = rows.find(|row| row.what == RowSubject::Jobs && row.workers == 1);
    first.map(|row| row.value)
}

/// Rows that serve as inputs: the job's length, and the published constant itself.
const USED: [&str; 2] = ["C01", "S01"];

fn group(name: &str, bound: RknnGroupBound, rows: &[RknnFidelityRow]) -> Option<RknnGroupStats> {
    let all: Vec<&RknnFidelityRow> =
        (rows.iter().filter(|row| row.measured.group == name)).collect();
    if all.is_empty() {
        return None;
    }
    let mut held_out: Vec<f64> = (all.iter().filter(|row| !row.calibration))
        .map(|row| row.error_percent.abs())
        .collect();
    held_out.sort_by(f64::total_cmp);
    let half = held_out.len() / 2;
    let median_percent = match held_out.len() {
        0 => None,
        n if n.is_multiple_of(2) => Some((held_out[half - 1] + held_out[half]) / 2.0),
        _ => Some(held_out[half]),
    };
    let worst = all
        .iter()
        .map(|row| row.error_percent.abs())
        .fold(0.0, f64::max);
    let pass = match bound {
        RknnGroupBound::Median(limit) => median_percent.is_some_and(|median| median <= limit),
        RknnGroupBound::Every(limit) => worst <= limit,
        RknnGroupBound::None => true,
    };
    Some(RknnGroupStats {
        name: name.to_owned(),
        rows: all.len(),
        calibration_rows: all.len() - held_out.len(),
        median_percent,
        max_percent: held_out.last().copied(),
        bound,
        pass,
    })
}

#[cfg(test)]
mod tests;
