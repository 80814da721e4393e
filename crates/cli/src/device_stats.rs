//! What an engine on a device did, for people and for programs.

use crate::output::{bytes, rate};
use millrace_npu::Provenance;
use millrace_runtime::Engine;
use millrace_runtime::npu::{PhaseCounters, PlannedEngine};
use serde_json::{Value, json};

/// What this computer measured, `host` in words, and what the device did. Of a device that is simulated
/// the host's times are the simulation's.
pub(crate) fn lines(engine: &PlannedEngine, host: &str) -> Vec<String> {
    let simulates = matches!(engine.npu().provenance(), Provenance::Modelled { .. });
    let host = match simulates {
        true => format!("simulated: {host}"),
        false => host.to_owned(),
    };
    vec![host, line(engine)]
}

/// `modelled(strix…): prompt 1.27 s on the NPU, 92.0 ms a token (10.9 tok/s) · 49 + 33 dispatches · …`.
pub(crate) fn line(engine: &PlannedEngine) -> String {
    let counters = engine.phases();
    let (prefill, decode) = (&counters.prefill, &counters.decode);
    // Averages, where there were several prompts.
    let a_prompt = |total: u64| total / prefill.n_passes.max(1);
    let a_token = |total: u64| total / decode.n_tokens.max(1);
    let prompt_ns = a_prompt(prefill.device_ns);
    let mut parts = vec![format!("prompt {} on the NPU", time(prompt_ns))];
    let n_dispatches = a_prompt(prefill.n_dispatches);
    if decode.n_tokens > 0 {
        let token_ns = a_token(decode.device_ns);
        let per_s = rate(1e9 / token_ns.max(1) as f64);
        parts.push(format!("{} a token ({per_s} tok/s)", time(token_ns)));
        let each = a_token(decode.n_dispatches);
        parts.push(format!("{n_dispatches} + {each} dispatches"));
    } else {
        parts.push(format!("{n_dispatches} dispatches"));
    }
    let check = &counters.check;
    if let Some(each_ns) = check.device_ns.checked_div(check.n_passes) {
        let each = time(each_ns);
        parts.push(format!("{} checks of drafts, {each} each", check.n_passes));
    }
    let moved = a_prompt(prefill.traffic.written_bytes + prefill.traffic.read_bytes);
    parts.push(format!("prompt moved {}", bytes(moved)));
    let memory = engine.npu().memory();
    parts.push(format!(
        "memory {} of weights, {} of activations, {} of KV",
        bytes(memory.weight_bytes),
        bytes(memory.activation_bytes),
        bytes(engine.kv_usage().used_bytes as u64 + memory.kv_bytes)
    ));
    let provenance = engine.npu().provenance();
    format!(
        "{provenance}: {}; host steps not included",
        parts.join(" · ")
    )
}

/// A time in the unit that suits it.
fn time(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    match ms {
        ms if ms >= 1e3 => format!("{:.2} s", ms / 1e3),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{:.0} µs", ms * 1e3),
    }
}

/// Everything that was counted.
pub(crate) fn json(engine: &PlannedEngine) -> Value {
    let counters = engine.phases();
    let npu = engine.npu();
    let memory = npu.memory();
    json!({
        "device": npu.device_name(),
        "times_are": npu.provenance().to_string(),
        "prefill": phase(&counters.prefill),
        "check": phase(&counters.check),
        "decode": phase(&counters.decode),
        "memory_bytes": {
            "weights": memory.weight_bytes,
            "activations": memory.activation_bytes,
            "kv_of_engine": engine.kv_usage().used_bytes as u64,
            "kv_on_device": memory.kv_bytes,
        },
    })
}

fn phase(phase: &PhaseCounters) -> Value {
    json!({
        "n_passes": phase.n_passes,
        "n_tokens": phase.n_tokens,
        "n_padded_tokens": phase.n_padded_tokens,
        "n_dispatches": phase.n_dispatches,
        "written_bytes": phase.traffic.written_bytes,
        "to_device_bytes": phase.traffic.to_device_bytes,
        "from_device_bytes": phase.traffic.from_device_bytes,
        "read_bytes": phase.traffic.read_bytes,
        "device_ns": phase.device_ns,
        "host_ns": phase.host_ns,
        "call_ns": phase.call_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time(1_270_000_000), "1.27 s");
        assert_eq!(time(92_000_000), "92.0 ms");
        assert_eq!(time(99_000), "99 µs");
    }
}
