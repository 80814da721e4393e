//! Timing of kernels.

use super::shape::MatrixCase;
use super::weights::{MatrixCopies, random};
use millrace_kernels::matmul::{Activations, Multiplication, matmul_with};
use millrace_kernels::roof::Roof;
use millrace_kernels::table::{MatmulKernel, pick};
use millrace_kernels::{Cpu, Level};
use std::time::{Duration, Instant};

/// Limits on measuring one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasureLimits {
    pub(super) time: Duration,
    pub(super) most_samples: usize,
}

/// Minimum number of samples, whatever they cost.
const FEWEST_SAMPLES: usize = 2;

/// Minimum time of a sample, so that reading the clock does not matter.
const LEAST_SAMPLE_S: f64 = 1e-3;

/// Maximum multiplications in a sample.
const MOST_REPEATS: f64 = 1024.0;

/// Rows of a matrix that a thread works on at a time: the kernels' two panels.
const GROUP_ROWS: usize = 32;

/// How a kernel is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampling {
    /// Rows multiplied: all, or as many as the time allows.
    pub(super) n_timed: usize,
    /// Multiplications per sample.
    repeats: usize,
}

/// A measured kernel.
pub(super) struct HwbenchRow {
    pub(super) kernel: &'static MatmulKernel,
    pub(super) case: MatrixCase,
    pub(super) m: usize,
    pub(super) sampling: Sampling,
    pub(super) n_samples: usize,
    /// Minimum time of one multiplication with all rows.
    pub(super) min_s: f64,
    pub(super) median_s: f64,
    pub(super) bound: RoofLimit,
    /// Levels of this CPU at which the dispatcher picks this row.
    pub(super) picked_at: Vec<Level>,
}

impl HwbenchRow {
    pub(super) fn bytes_per_s(&self) -> f64 {
        self.case.size_bytes as f64 / self.min_s
    }

    pub(super) fn ops_per_s(&self) -> f64 {
        ops(&self.case, self.m) / self.min_s
    }

    /// Share of the limit that is reached.
    pub(super) fn share(&self) -> f64 {
        self.bound.seconds / self.min_s
    }

    /// Whether only some of the rows were multiplied.
    pub(super) fn is_partial(&self) -> bool {
        self.sampling.n_timed < self.case.n
    }
}

/// Multiplications and additions.
fn ops(case: &MatrixCase, m: usize) -> f64 {
    2.0 * m as f64 * case.n as f64 * case.k as f64
}

/// The limit that binds first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoofLimit {
    pub(super) name: &'static str,
    /// Minimum time that it allows.
    pub(super) seconds: f64,
}

impl RoofLimit {
    fn new(roof: &Roof, kernel: &MatmulKernel, case: &MatrixCase, m: usize) -> RoofLimit {
        let memory = RoofLimit {
            name: "memory",
            seconds: case.size_bytes as f64 / roof.read_bytes_per_s,
        };
        let arithmetic = roof.ops_per_s(kernel.layout).map(|ops_per_s| RoofLimit {
            name: "compute",
            seconds: ops(case, m) / ops_per_s,
        });
        arithmetic
            .filter(|arithmetic| arithmetic.seconds > memory.seconds)
            .unwrap_or(memory)
    }
}

/// Multiplies one matrix with one number of tokens.
pub(super) struct MatmulBench<'a> {
    cpu: &'a Cpu,
    weights: &'a MatrixCopies,
    m: usize,
    x: Vec<f32>,
    out: Vec<f32>,
    scratch: Activations,
    /// Index of the next matrix, the one least recently read.
    next: usize,
}

impl<'a> MatmulBench<'a> {
    pub(super) fn new(cpu: &'a Cpu, weights: &'a MatrixCopies, m: usize) -> MatmulBench<'a> {
        let MatrixCase { n, k, .. } = *weights.case();
        MatmulBench {
            cpu,
            weights,
            m,
            x: random(m * k),
            out: vec![0.0; m * n],
            scratch: Activations::default(),
            next: 0,
        }
    }

    /// Measures a kernel.
    pub(super) fn row(
        &mut self,
        kernel: &'static MatmulKernel,
        roof: &Roof,
        limits: &MeasureLimits,
    ) -> HwbenchRow {
        let started = Instant::now();
        let sampling = self.sampling(kernel, limits);
        let mut samples = Vec::new();
        while samples.len() < FEWEST_SAMPLES.min(limits.most_samples)
            || (samples.len() < limits.most_samples && started.elapsed() < limits.time)
        {
            samples.push(self.sample(kernel, &sampling));
        }
        let case = *self.weights.case();
        samples.sort_by(f64::total_cmp);
        let levels = Level::ALL.into_iter().filter(|level| level.is_supported());
        HwbenchRow {
            kernel,
            case,
            m: self.m,
            sampling,
            n_samples: samples.len(),
            min_s: samples[0],
            median_s: median(&samples),
            bound: RoofLimit::new(roof, kernel, &case, self.m),
            picked_at: levels
                .filter(|level| std::ptr::eq(pick(case.dtype, *level, self.m, false), kernel))
                .collect(),
        }
    }

    /// Seconds of a multiplication with all rows.
    pub(super) fn sample(&mut self, kernel: &'static MatmulKernel, sampling: &Sampling) -> f64 {
        let seconds = self.run(kernel, sampling.n_timed, sampling.repeats);
        let part = sampling.n_timed as f64 / self.weights.case().n as f64;
        seconds / sampling.repeats as f64 / part
    }

    /// Tries the kernel on a few rows and decides how to time it.
    fn sampling(&mut self, kernel: &'static MatmulKernel, limits: &MeasureLimits) -> Sampling {
        let n = self.weights.case().n;
        let few = n.min(GROUP_ROWS * self.cpu.pool().n_threads());
        // The first time also brings in code, the input and the threads' scratch.
        self.run(kernel, few, 1);
        let seconds = self.run(kernel, few, 1).max(1e-9) * n as f64 / few as f64;
        plan(n, few, seconds, limits.time.as_secs_f64())
    }

    /// Seconds of `repeats` multiplications with `n` rows, each with another copy.
    fn run(&mut self, kernel: &'static MatmulKernel, n: usize, repeats: usize) -> f64 {
        let (cpu, weights, m) = (self.cpu, self.weights, self.m);
        let _hot = cpu.pool().enter();
        let started = Instant::now();
        for _ in 0..repeats {
            self.next = (self.next + 1) % weights.n_matrices(n);
            let mut product = Multiplication {
                weight: weights.matrix(n, self.next),
                bias: None,
                out: &mut self.out[..m * n],
            };
            matmul_with(cpu, kernel, &self.x, m, &mut self.scratch, &mut product);
        }
        // A clock that did not move would make a rate infinite.
        started.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Plans the timing of a kernel that needs `seconds` for all `n` rows; `few` rows at least.
fn plan(n: usize, few: usize, seconds: f64, budget_s: f64) -> Sampling {
    let affordable = budget_s / (FEWEST_SAMPLES as f64 * seconds);
    let rows = (n as f64 * affordable) as usize / GROUP_ROWS * GROUP_ROWS;
    let n_timed = if affordable >= 1.0 { n } else { rows.max(few) };
    let sample_s = seconds * n_timed as f64 / n as f64;
    let repeats = (LEAST_SAMPLE_S / sample_s).ceil().clamp(1.0, MOST_REPEATS);
    Sampling {
        n_timed,
        repeats: repeats as usize,
    }
}

/// Median of sorted numbers.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        sorted[middle - 1].midpoint(sorted[middle])
    } else {
        sorted[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_kernels_get_fewer_rows_and_quick_ones_more_repeats() {
        let sampling = |n_timed, repeats| Sampling { n_timed, repeats };
        // n, few, seconds for n, budget in seconds.
        assert_eq!(plan(8192, 64, 0.01, 0.3), sampling(8192, 1));
        assert_eq!(plan(8192, 64, 0.000_2, 0.3), sampling(8192, 5));
        assert_eq!(plan(8192, 64, 1.0, 0.25), sampling(1024, 1));
        assert_eq!(plan(8192, 64, 1000.0, 0.3), sampling(64, 1));
        assert_eq!(plan(7, 7, 1000.0, 0.3), sampling(7, 1));
        assert_eq!(plan(7, 7, 1e-9, 0.3), sampling(7, 1024));
    }

    #[test]
    fn the_median_of_an_even_number_is_between_two() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
    }
}
