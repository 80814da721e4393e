//! Checks that the dispatcher's pick is the fastest.

use super::measure::{HwbenchRow, MatmulBench, MeasureLimits};
use super::shape::MatrixCase;
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use millrace_kernels::Level;
use std::fmt;
use std::time::Instant;

/// Allowed ratio of a pick's time to the fastest.
const TOLERANCE: f64 = 1.05;

/// Number of times a pair is measured again before it counts.
const ROUNDS: usize = 3;

/// Minimum samples of each kernel of a pair in a round.
const FEWEST_SAMPLES: usize = 5;

/// A pick that another row beats.
pub(super) struct Slower {
    pub(super) case: MatrixCase,
    pub(super) m: usize,
    /// Levels that pick it.
    pub(super) levels: Vec<Level>,
    pub(super) pick: String,
    pub(super) faster: String,
    /// The pick's time relative to the other's.
    pub(super) ratio: f64,
}

impl fmt::Display for Slower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixCase { dtype, n, k, .. } = self.case;
        let levels: Vec<&str> = self.levels.iter().map(|level| level.name()).collect();
        write!(
            f,
            "{dtype} {n}x{k}, m = {}, level {}: {} takes {:.2} times as long as {}",
            self.m,
            levels.join(" and "),
            self.pick,
            self.ratio,
            self.faster
        )
    }
}

/// Compares each pick among `rows` (one format, one number of tokens) with the rows that its levels could use instead.
///
/// A disturbed time is as likely as a wrong pick. So a pair that disagrees is measured again in
/// turn, and the rows keep the best times.
pub(super) fn check(
    bench: &mut MatmulBench<'_>,
    rows: &mut [HwbenchRow],
    limits: &MeasureLimits,
) -> CommandResult<Vec<Slower>> {
    let mut found = Vec::new();
    for pick in 0..rows.len() {
        // A level that this CPU does not prefer is used only when asked for.
        let taken = |level: &&Level| **level <= Level::preferred();
        let levels: Vec<Level> = rows[pick].picked_at.iter().filter(taken).copied().collect();
        let mut worst: Option<Slower> = None;
        for rival in 0..rows.len() {
            let rival_level = rows[rival].kernel.level;
            if levels.iter().any(|level| level.includes(rival_level))
                && is_slower(rows, pick, rival)
                && remains_slower(bench, rows, (pick, rival), limits)?
            {
                let slower = slower(rows, pick, rival);
                if worst
                    .as_ref()
                    .is_none_or(|worst| worst.ratio < slower.ratio)
                {
                    worst = Some(slower);
                }
            }
        }
        found.extend(worst);
    }
    Ok(found)
}

fn is_slower(rows: &[HwbenchRow], pick: usize, rival: usize) -> bool {
    rows[pick].min_s > TOLERANCE * rows[rival].min_s
}

fn slower(rows: &[HwbenchRow], pick: usize, rival: usize) -> Slower {
    let (pick, faster) = (&rows[pick], &rows[rival]);
    let could = |level: &&Level| level.includes(faster.kernel.level);
    Slower {
        case: pick.case,
        m: pick.m,
        levels: pick.picked_at.iter().filter(could).copied().collect(),
        pick: pick.kernel.name(),
        faster: faster.kernel.name(),
        ratio: pick.min_s / faster.min_s,
    }
}

/// Measures a pair in turn until the pick is fast enough or the rounds are over.
fn remains_slower(
    bench: &mut MatmulBench<'_>,
    rows: &mut [HwbenchRow],
    pair: (usize, usize),
    limits: &MeasureLimits,
) -> CommandResult<bool> {
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let mut n = 0;
        while n < FEWEST_SAMPLES || started.elapsed() < limits.time {
            if interrupt::is_raised() {
                return Err(CommandFailure::interrupted());
            }
            for index in [pair.0, pair.1] {
                let row = &mut rows[index];
                let seconds = bench.sample(row.kernel, &row.sampling);
                row.min_s = row.min_s.min(seconds);
            }
            n += 1;
        }
        if !is_slower(rows, pair.0, pair.1) {
            return Ok(false);
        }
    }
    Ok(true)
}
