//! Counters of a model's scheduler, readable at any time.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use std::time::Duration;

use millrace_runtime::{Finish, KvUsage, PrefixCounters};

/// Upper bounds of a histogram's buckets.
pub type Buckets = &'static [f64];

/// Seconds, for times until something happens.
pub(super) const SECONDS: Buckets = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
];

/// Number of tokens of a pass.
pub(super) const TOKENS: Buckets = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0,
];

/// Counts of values by size.
#[derive(Debug)]
pub struct Histogram {
    bounds: Buckets,
    /// One more than bounds: the last counts the rest. Not cumulative.
    counts: Vec<AtomicU64>,
    /// Sum of the values in millionths.
    sum_micro: AtomicU64,
}

impl Histogram {
    fn new(bounds: Buckets) -> Histogram {
        Histogram {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_micro: AtomicU64::new(0),
        }
    }

    pub(super) fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_micro.fetch_add((value * 1e6) as u64, Relaxed);
    }

    pub(super) fn observe_time(&self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// For each bound, the number of values up to it; then the count of all values, and their sum.
    pub fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut n = 0;
        let mut counts = self.counts.iter().map(|count| {
            n += count.load(Relaxed);
            n
        });
        let buckets: Vec<(f64, u64)> = self.bounds.iter().copied().zip(&mut counts).collect();
        let all = counts.next().unwrap_or(0);
        (buckets, all, self.sum_micro.load(Relaxed) as f64 / 1e6)
    }
}

/// Counters of one model. Those of tokens and requests only grow.
#[derive(Debug)]
pub struct ModelMetrics {
    pub(super) n_running: AtomicU64,
    pub(super) n_waiting: AtomicU64,
    pub(super) kv_used_bytes: AtomicU64,
    pub(super) kv_idle_bytes: AtomicU64,
    pub(super) kv_capacity_bytes: AtomicU64,
    pub(super) kv_capacity_pages: AtomicU64,
    pub(super) prompt_tokens: AtomicU64,
    pub(super) cached_tokens: AtomicU64,
    pub(super) generated_tokens: AtomicU64,
    pub(super) evicted_pages: AtomicU64,
    pub(super) passes: AtomicU64,
    pub(super) preemptions: AtomicU64,
    pub(super) checks: AtomicU64,
    pub(super) drafted_tokens: AtomicU64,
    pub(super) accepted_tokens: AtomicU64,
    pub(super) draft_failures: AtomicU64,
    pub(super) stopped: AtomicU64,
    pub(super) length: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) host_ns: AtomicU64,
    pub(super) device_ns: AtomicU64,
    pub(super) scheduling_ns: AtomicU64,
    /// From submission to the first token, seconds.
    pub first_token: Histogram,
    /// From one token of an answer to the next, seconds.
    pub inter_token: Histogram,
    /// From submission to admission, seconds.
    pub queued: Histogram,
    /// From submission to the end, seconds.
    pub total: Histogram,
    /// Number of tokens of a pass.
    pub pass_tokens: Histogram,
}

/// The plain numbers of [`ModelMetrics`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[allow(missing_docs)] // The names say it; `docs/server.md` lists them.
pub struct Snapshot {
    pub n_running: u64,
    pub n_waiting: u64,
    pub kv_used_bytes: u64,
    pub kv_idle_bytes: u64,
    pub kv_capacity_bytes: u64,
    pub kv_capacity_pages: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    pub evicted_pages: u64,
    pub passes: u64,
    pub preemptions: u64,
    pub checks: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    pub draft_failures: u64,
    pub stopped: u64,
    pub length: u64,
    pub aborted: u64,
    pub failed: u64,
    pub refused: u64,
    pub host_ns: u64,
    pub device_ns: u64,
    pub scheduling_ns: u64,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        let zero = AtomicU64::default;
        ModelMetrics {
            n_running: zero(),
            n_waiting: zero(),
            kv_used_bytes: zero(),
            kv_idle_bytes: zero(),
            kv_capacity_bytes: zero(),
            kv_capacity_pages: zero(),
            prompt_tokens: zero(),
            cached_tokens: zero(),
            generated_tokens: zero(),
            evicted_pages: zero(),
            passes: zero(),
            preemptions: zero(),
            checks: zero(),
            drafted_tokens: zero(),
            accepted_tokens: zero(),
            draft_failures: zero(),
            stopped: zero(),
            length: zero(),
            aborted: zero(),
            failed: zero(),
            refused: zero(),
            host_ns: zero(),
            device_ns: zero(),
            scheduling_ns: zero(),
            first_token: Histogram::new(SECONDS),
            inter_token: Histogram::new(SECONDS),
            queued: Histogram::new(SECONDS),
            total: Histogram::new(SECONDS),
            pass_tokens: Histogram::new(TOKENS),
        }
    }
}

impl ModelMetrics {
    /// The current numbers. Each is exact; together they may be from different moments.
    pub fn snapshot(&self) -> Snapshot {
        let get = |value: &AtomicU64| value.load(Relaxed);
        Snapshot {
            n_running: self.n_running.load(Acquire),
            n_waiting: get(&self.n_waiting),
            kv_used_bytes: get(&self.kv_used_bytes),
            kv_idle_bytes: get(&self.kv_idle_bytes),
            kv_capacity_bytes: get(&self.kv_capacity_bytes),
            kv_capacity_pages: get(&self.kv_capacity_pages),
            prompt_tokens: get(&self.prompt_tokens),
            cached_tokens: get(&self.cached_tokens),
            generated_tokens: get(&self.generated_tokens),
            evicted_pages: get(&self.evicted_pages),
            passes: get(&self.passes),
            preemptions: get(&self.preemptions),
            checks: get(&self.checks),
            drafted_tokens: get(&self.drafted_tokens),
            accepted_tokens: get(&self.accepted_tokens),
            draft_failures: get(&self.draft_failures),
            stopped: get(&self.stopped),
            length: get(&self.length),
            aborted: get(&self.aborted),
            failed: get(&self.failed),
            refused: get(&self.refused),
            host_ns: get(&self.host_ns),
            device_ns: get(&self.device_ns),
            scheduling_ns: get(&self.scheduling_ns),
        }
    }

    pub(super) fn add(&self, counter: &AtomicU64, n: usize) {
        counter.fetch_add(n as u64, Relaxed);
    }

    pub(super) fn set_kv(&self, usage: KvUsage, prefix: PrefixCounters) {
        self.kv_used_bytes.store(usage.used_bytes as u64, Relaxed);
        self.kv_idle_bytes.store(usage.idle_bytes as u64, Relaxed);
        self.kv_capacity_bytes
            .store(usage.capacity_bytes as u64, Relaxed);
        self.kv_capacity_pages
            .store(usage.capacity_pages as u64, Relaxed);
        self.evicted_pages.store(prefix.n_evicted_pages, Relaxed);
    }

    pub(super) fn count_finish(&self, finish: Finish) {
        let counter = match finish {
            Finish::Stop | Finish::StopText => &self.stopped,
            Finish::Length | Finish::ContextFull => &self.length,
            Finish::Cancelled => &self.aborted,
        };
        counter.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_what_is_at_most_their_bound() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 2.0, 9.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.read(), (vec![(1.0, 2), (2.0, 4)], 5, 14.0));
    }
}
