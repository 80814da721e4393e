//! Memory of a model at a context length, as the engine would allocate it.

use crate::exit::CommandResult;
use crate::output::{Out, Paint, bytes};
use millrace_runtime::{CpuEngine, EngineMemory, EngineOptions, HostMemory, KvType, LoadedModel};
use serde::Serialize;

/// Bytes by purpose.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MemoryPlan {
    n_ctx: usize,
    kv_type: &'static str,
    weights_bytes: u64,
    kv_bytes: u64,
    /// Slots of recurrent states, part of the cache.
    n_state_slots: usize,
    state_slot_bytes: u64,
    scratch_bytes: u64,
    total_bytes: u64,
    /// Memory available on this machine now.
    usable_bytes: Option<u64>,
    fits: Option<bool>,
    /// Longest context that would fit.
    max_ctx: Option<usize>,
    trained_ctx: usize,
}

impl MemoryPlan {
    /// Plans for `n_ctx` tokens, or the engine's default.
    pub(super) fn of(
        model: &LoadedModel,
        n_ctx: Option<usize>,
        kv_type: KvType,
    ) -> CommandResult<MemoryPlan> {
        let memory = |n_ctx| {
            let options = EngineOptions {
                n_ctx,
                kv_type,
                ..EngineOptions::default()
            };
            CpuEngine::memory(model, &options)
        };
        let EngineMemory {
            n_ctx,
            kv_bytes,
            n_state_slots,
            state_slot_bytes,
            scratch_bytes,
        } = memory(n_ctx)?;
        let (kv_bytes, scratch_bytes) = (kv_bytes as u64, scratch_bytes as u64);
        let weights_bytes = model.checkpoint().size_bytes();
        let fixed_bytes = weights_bytes.saturating_add(scratch_bytes);
        let total_bytes = fixed_bytes.saturating_add(kv_bytes);
        let usable_bytes = HostMemory::read().usable_bytes();
        let trained_ctx = model.model().config.context_length;
        let fits = |n, usable| {
            memory(Some(n))
                .is_ok_and(|memory| fixed_bytes.saturating_add(memory.kv_bytes as u64) <= usable)
        };
        let max_ctx = usable_bytes.map(|usable| longest(trained_ctx, |n| fits(n, usable)));
        Ok(MemoryPlan {
            n_ctx,
            kv_type: kv_type.name(),
            weights_bytes,
            kv_bytes,
            n_state_slots,
            state_slot_bytes: state_slot_bytes as u64,
            scratch_bytes,
            total_bytes,
            usable_bytes,
            fits: usable_bytes.map(|usable| total_bytes <= usable),
            max_ctx,
            trained_ctx,
        })
    }

    pub(super) fn print(&self, out: &mut Out) -> CommandResult {
        let title = format!("Memory for a context of {} tokens", self.n_ctx);
        out.line(format!("\n{}", Paint::Bold.stdout(&title)))?;
        let cache = format!("cache ({})", self.kv_type);
        for (name, n) in [
            ("weights", self.weights_bytes),
            (cache.as_str(), self.kv_bytes),
            ("scratch", self.scratch_bytes),
            ("total", self.total_bytes),
        ] {
            out.line(format!("  {name:<14} {}", bytes(n)))?;
        }
        if self.n_state_slots > 0 {
            out.line(format!(
                "  states         {} slots of {}, part of the cache; one keeps a sequence's states at a page's end",
                self.n_state_slots,
                bytes(self.state_slot_bytes)
            ))?;
        }
        let (Some(usable), Some(fits)) = (self.usable_bytes, self.fits) else {
            return Ok(());
        };
        let verdict = match fits {
            true => Paint::Good.stdout("fits"),
            false => Paint::Warning.stdout("does not fit"),
        };
        let max_ctx = match self.max_ctx {
            Some(0) | None => "no context fits".to_owned(),
            Some(n) if n == self.trained_ctx => {
                let so = if fits { "so does" } else { "what fits is" };
                format!("{so} all it was trained for ({n})")
            }
            Some(n) => format!("at most {n} tokens do"),
        };
        out.line(format!(
            "  free here      {}: {verdict}; {max_ctx}",
            bytes(usable)
        ))
    }
}

/// The largest `n` up to `max` that `fits`, in steps of 64; 0 if none does.
fn longest(max: usize, fits: impl Fn(usize) -> bool) -> usize {
    if fits(max) {
        return max;
    }
    const STEP: usize = 64;
    let (mut low, mut high) = (0, max / STEP);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if fits(middle * STEP) {
            low = middle
        } else {
            high = middle
        }
    }
    low * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_context_is_found() {
        assert_eq!(longest(1000, |_| true), 1000);
        assert_eq!(longest(1000, |_| false), 0);
        assert_eq!(longest(100_000, |n| n <= 5000), 4992);
    }
}
