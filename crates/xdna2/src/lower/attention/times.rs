//! Times of attention over a cache, on the array and on the host.

use crate::lower::Features;
use crate::lower::cached::{AttentionKernel, fitted};
use crate::mapping;
use millrace_graph::Attention;
use millrace_xdna2_machine::timing::{self, TimingError};
use millrace_xdna2_machine::{Machine, Profile, Program};
use std::fmt;

/// Modelled times of a layer's attention over a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionTimes {
    /// Keys read on the array.
    pub n_keys: u64,
    /// On the array: the program with its dispatch, the host's part of a call, and writing the cache's new rows, or all
    /// rows within a window's reach.
    pub array_ns: f64,
    /// On the host: every token reads the keys and values that it sees, at the rate that one thread
    /// was seen to copy (`host.write_gb_per_s`), and nothing else.
    pub host_ns: f64,
}

impl AttentionTimes {
    /// Times for `n_tokens` tokens, the last of the keys, by this program.
    ///
    /// # Errors
    /// An error of [`timing::predict`] for the program.
    pub(super) fn of(
        (program, choice): (&Program, &AttentionKernel),
        a: &Attention,
        n_tokens: u64,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<AttentionTimes, TimingError> {
        let n_keys = choice.n_keys;
        let row_bytes = (4 * a.n_kv_heads * a.head_dim) as f64;
        let copied_ns = |bytes: f64| bytes / profile.host.write_gb_per_s.max(f64::MIN_POSITIVE);
        let window = a.window.map_or(n_keys, |w| n_keys.min(w as u64)) as f64;
        // The last token of a chunk sees all keys, and each token before it one less.
        let before = (n_tokens.saturating_sub(1)) as f64 / 2.0;
        let seen = window.min((n_keys as f64 - before).max(1.0));
        let timing = timing::predict(program, machine, profile)?;
        Ok(AttentionTimes {
            n_keys,
            array_ns: timing.total_ns
                + profile.host.call_ns
                + copied_ns(row_bytes * choice.n_written as f64),
            host_ns: copied_ns(row_bytes * seen * n_tokens as f64),
        })
    }

    /// Whether the array is the faster one.
    pub fn array_wins(&self) -> bool {
        self.array_ns < self.host_ns
    }
}

impl fmt::Display for AttentionTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} µs on the array, {:.0} µs on the host, for {} keys of the cache (modelled)",
            self.array_ns / 1e3,
            self.host_ns / 1e3,
            self.n_keys
        )
    }
}

/// Times of a layer's attention of `n_tokens` new tokens over `n_keys` keys, rounded up to the number that a plan
/// reads, of a cache of `max_tokens`.
///
/// # Errors
/// A description of why the array cannot do it.
pub fn attention_times(
    a: &Attention,
    n_tokens: u64,
    (n_keys, max_tokens): (u64, u64),
    (machine, features): (&Machine, Features),
    profile: &Profile,
) -> Result<AttentionTimes, String> {
    let on = (max_tokens, machine, features);
    let choice = fitted(a, n_tokens, (n_keys, max_tokens), on)?;
    let name = choice.mapping;
    let mapping = mapping::find(name).ok_or_else(|| format!("no mapping `{name}`"))?;
    let tiling = mapping.default_tiling(&choice.shape, machine);
    let program = mapping.build(&choice.shape, &tiling, machine);
    let program = program.map_err(|e| e.to_string())?;
    AttentionTimes::of((&program, &choice), a, n_tokens, machine, profile)
        .map_err(|e| e.to_string())
}
