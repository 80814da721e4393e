//! Statistics of an engine on a device, for people and for programs.

use crate::output::{bytes, rate};
use millrace_npu::Provenance;
use millrace_runtime::Engine;
use millrace_runtime::npu::{DeviceCounters, PhaseCounters};
use millrace_runtime::vision::VisionRun;
use serde_json::{Value, json};

/// Times of this computer (`host`, in words), and statistics of the device, if there is one. On a simulated
/// device the host's times are those of the simulation.
pub(crate) fn lines(engine: &dyn Engine, host: String) -> Vec<String> {
    let simulates = matches!(engine.device_time(), Some(Provenance::Modelled { .. }));
    let host = match simulates {
        true => format!("simulated: {host}"),
        false => host,
    };
    let mut all: Vec<String> = [Some(host), line(engine)].into_iter().flatten().collect();
    all.extend(substitutes(engine));
    all
}

/// Programs that did not run as asked: `2 of 9 programs did not run on what was asked for, which this run says
/// nothing of: gemm: …`. `None` where all ran as asked.
pub(crate) fn substitutes(engine: &dyn Engine) -> Option<String> {
    let (all, n_programs) = engine.device_model()?.substitutes();
    told(&all, n_programs)
}

fn told(all: &[(String, String)], n_programs: usize) -> Option<String> {
    if all.is_empty() {
        return None;
    }
    let each: Vec<String> = all
        .iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    Some(format!(
        "{} of {n_programs} programs did not run on what was asked for, which this run says nothing of: {}",
        names(all),
        each.join("; ")
    ))
}

/// Number of distinct programs.
fn names(all: &[(String, String)]) -> usize {
    let names: std::collections::BTreeSet<&str> = all.iter().map(|row| row.0.as_str()).collect();
    names.len()
}

/// `modelled(strix…): 4 prompt tokens 1.27 s on the NPU in 1 pass, 92.0 ms a token (10.9 tok/s), …`.
/// `None` without a device.
pub(crate) fn line(engine: &dyn Engine) -> Option<String> {
    let (npu, counters) = (engine.device_model()?, engine.device_counters()?);
    let mut parts = of_phases(counters);
    let memory = npu.memory();
    parts.push(format!(
        "memory {} of weights, {} of activations, {} of KV",
        bytes(memory.weight_bytes),
        bytes(memory.activation_bytes),
        bytes(engine.kv_usage().used_bytes as u64 + memory.kv_bytes)
    ));
    let provenance = npu.provenance();
    Some(format!(
        "{provenance}: {}; host steps not included",
        parts.join(" · ")
    ))
}

/// Cost of the phases: total for prompts, average for tokens.
fn of_phases(counters: &DeviceCounters) -> Vec<String> {
    let (prefill, decode, check) = (&counters.prefill, &counters.decode, &counters.check);
    let (n_tokens, n_passes) = (prefill.n_tokens, prefill.n_passes);
    let moved = prefill.traffic.written_bytes + prefill.traffic.read_bytes;
    let mut parts = vec![format!(
        "{n_tokens} prompt token{} {} on the NPU in {n_passes} pass{}, {} dispatches, {} moved",
        if n_tokens == 1 { "" } else { "s" },
        time(prefill.device_ns),
        if n_passes == 1 { "" } else { "es" },
        prefill.n_dispatches,
        bytes(moved),
    )];
    if let Some(token_ns) = decode.device_ns.checked_div(decode.n_tokens) {
        let per_s = rate(1e9 / token_ns.max(1) as f64);
        let each = decode.n_dispatches / decode.n_tokens;
        parts.push(format!(
            "{} a token ({per_s} tok/s), {each} dispatches",
            time(token_ns)
        ));
    }
    if let Some(each_ns) = check.device_ns.checked_div(check.n_passes) {
        let each = time(each_ns);
        parts.push(format!("{} checks of drafts, {each} each", check.n_passes));
    }
    parts
}

/// `the vision encoder, modelled(strix…): 1.02 s on the NPU, 54 dispatches; …`.
pub(crate) fn encoder(run: &VisionRun) -> String {
    format!(
        "the vision encoder, {}: {} on the NPU, {} dispatches, host steps not included",
        run.provenance,
        time(run.device_ns),
        run.n_dispatches
    )
}

/// The vision encoder's run as JSON.
pub(crate) fn vision_json(run: &VisionRun) -> Value {
    json!({
        "times_are": run.provenance.to_string(),
        "device_ns": run.device_ns,
        "n_dispatches": run.n_dispatches,
    })
}

/// Formats a time in a suitable unit.
fn time(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    match ms {
        ms if ms >= 1e3 => format!("{:.2} s", ms / 1e3),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{:.0} µs", ms * 1e3),
    }
}

/// All counters; `None` without a device.
pub(crate) fn json(engine: &dyn Engine) -> Option<Value> {
    let (npu, counters) = (engine.device_model()?, engine.device_counters()?);
    let memory = npu.memory();
    let (substitutes, n_programs) = npu.substitutes();
    let substitutes = substitutes
        .iter()
        .map(|(program, reason)| json!({ "program": program, "reason": reason }));
    Some(json!({
        "device": npu.device_name(),
        "times_are": npu.provenance().to_string(),
        "prefill": phase(&counters.prefill),
        "check": phase(&counters.check),
        "decode": phase(&counters.decode),
        "n_programs": n_programs,
        "substitutes": substitutes.collect::<Vec<_>>(),
        "memory_bytes": {
            "weights": memory.weight_bytes,
            "activations": memory.activation_bytes,
            "kv_of_engine": engine.kv_usage().used_bytes as u64,
            "kv_on_device": memory.kv_bytes,
        },
    }))
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
    use super::{of_phases, time, told};
    use millrace_runtime::npu::{DeviceCounters, PhaseCounters};

    #[test]
    fn a_prompt_of_several_passes_is_told_whole() {
        let prefill = PhaseCounters {
            n_passes: 3,
            n_tokens: 767,
            n_dispatches: 339,
            device_ns: 1_480_000_000,
            ..PhaseCounters::default()
        };
        let decode = PhaseCounters {
            n_passes: 2,
            n_tokens: 2,
            n_dispatches: 226,
            device_ns: 310_000_000,
            ..PhaseCounters::default()
        };
        let told = of_phases(&DeviceCounters {
            prefill,
            decode,
            ..DeviceCounters::default()
        });
        let expected = [
            "767 prompt tokens 1.48 s on the NPU in 3 passes, 339 dispatches, 0 B moved",
            "155.0 ms a token (6.45 tok/s), 113 dispatches",
        ];
        assert_eq!(told, expected);
    }

    /// A program with two shapes counts once; if all ran as asked there is no line.
    #[test]
    fn what_did_not_run_as_asked_is_counted_by_program() {
        assert_eq!(told(&[], 9), None);
        let row = |name: &str, why: &str| (name.to_owned(), why.to_owned());
        let all = [
            row("gemm", "no words"),
            row("gemm", "four bits"),
            row("norm", "no words"),
        ];
        let line = told(&all, 9).unwrap_or_default();
        assert!(
            line.starts_with("2 of 9 programs did not run on what was asked for"),
            "{line}"
        );
        assert!(
            line.ends_with("gemm: no words; gemm: four bits; norm: no words"),
            "{line}"
        );
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time(1_270_000_000), "1.27 s");
        assert_eq!(time(92_000_000), "92.0 ms");
        assert_eq!(time(99_000), "99 µs");
    }
}
