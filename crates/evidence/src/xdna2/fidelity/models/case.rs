//! How a measurement is predicted: by its software, model and unit.

use super::{
    AIR_KRACKAN, AIR_Q4_0, AIR_STRIX, BUFFERS, FLM_DECODE, FLM_PREFILL, PAPER_DECODE,
    PAPER_PREFILL, PROGRAMS, PROMPTS, PredictionCase, PredictionKind, TOKENS, no_npu, reason,
};
use crate::xdna2::fidelity::Measurement;
use crate::xdna2::fidelity::stack::{Build, StackProgram};
use crate::xdna2::forms::Weights;
use crate::xdna2::geometry::{self, Geometry};

/// How to predict a measurement, or why nothing can.
pub(super) fn case(measured: &Measurement) -> Result<PredictionCase, String> {
    if let Some(reason) = no_npu(measured) {
        return Err(reason.into());
    }
    if measured.notes.contains("approximate") || measured.notes.contains('~') {
        return Err("approximate in its source".into());
    }
    let model = geometry::find(&measured.model);
    let found = model.and_then(|model| {
        let stacked = (measured.dtype == "bf16")
            .then(|| stack_case(measured, model))
            .flatten();
        stacked
            .or_else(|| fused_decode(measured, model))
            .or_else(|| fastflowlm(measured, model))
    });
    found.ok_or_else(|| reason(measured, model.is_some()).to_owned())
}

/// Tokens in `ctx=4k`, `seq=2048`, `ATTN_MAXL=2048`: a power of two whose binary or decimal
/// thousands are given, or the plain number.
pub(crate) fn length(shape: &str) -> Option<u64> {
    let (_, text) = shape.split_once('=')?;
    match text.strip_suffix('k') {
        Some(thousands) => {
            let n: u64 = thousands.parse().ok()?;
            (0..=10)
                .map(|j| 1024 << j)
                .find(|l| l / 1024 == n || l / 1000 == n)
        }
        None => text.parse().ok(),
    }
}

/// MLIR-AIR's persistent decode.
fn fused_decode(measured: &Measurement, model: &'static Geometry) -> Option<PredictionCase> {
    let (kernel, source) = (measured.kernel.as_str(), measured.source.as_str());
    let q4_0 = measured.dtype == "Q4_0";
    if measured.phase != "decode" || !source.contains("mlir-air") {
        return None;
    }
    if !q4_0 && measured.dtype != "q4nx" {
        return None;
    }
    let experiment = ["attn_qk.cc", "PR 1801", "PR 1808"];
    if kernel.contains("staircase") || experiment.iter().any(|e| source.contains(e)) {
        return None;
    }
    // PR 1995 names no box; its figures are those of the Krackan runner.
    let krackan = measured.hardware.contains("Krackan") || source.contains("PR 1995");
    let strix = measured.hardware.contains("Strix");
    let (group, profile) = match (krackan, strix) {
        (true, _) => (AIR_KRACKAN, "air-krackan-2026"),
        (_, true) => (AIR_STRIX, "air-strix-2026"),
        _ => return None,
    };
    let windowed = kernel.contains("MM2S") || kernel.contains("single window 2048");
    let context = length(&measured.shape).or(windowed.then_some(2048))?;
    let weights = match bundles(kernel) {
        Some(bundles) => Weights::Bundles(bundles),
        None if q4_0 => return None,
        None => Weights::Stream {
            channels: if kernel.starts_with("1 weight") { 1 } else { 2 },
        },
    };
    Some(PredictionCase {
        group: if q4_0 { AIR_Q4_0 } else { group },
        profile,
        model,
        length: context,
        build: Build::Registry,
        what: PredictionKind::Decode { context, weights },
    })
}

/// `… (140 bundles)`.
fn bundles(kernel: &str) -> Option<f64> {
    let (before, _) = kernel.split_once(" bundles)")?;
    before.rsplit('(').next()?.parse().ok()
}

/// FastFlowLM: the paper's tables, v0.1.3 and v0.9.22.
fn fastflowlm(measured: &Measurement, model: &'static Geometry) -> Option<PredictionCase> {
    let source = measured.source.as_str();
    let npu = measured.dtype.starts_with("Q4NX") || measured.hardware.contains("NPU (FastFlowLM)");
    if !npu || measured.kernel != "end-to-end" {
        return None;
    }
    let decode = measured.phase == "decode";
    let (group, profile) = if source.contains("Mapping Gemma3 onto") {
        let group = if decode { PAPER_DECODE } else { PAPER_PREFILL };
        (group, "paper-kraken")
    } else if source.contains("v0.1.3") && decode {
        (FLM_DECODE, "flm-v0.1.3")
    } else if source.contains("qwen3 v0.9.22") && !decode {
        (FLM_PREFILL, "flm-v0.9.22")
    } else {
        return None;
    };
    let length = length(&measured.shape)?;
    let weights = Weights::Stream { channels: 2 };
    let decode_what = PredictionKind::Decode {
        context: length,
        weights,
    };
    Some(PredictionCase {
        group,
        profile,
        model,
        length,
        build: Build::Registry,
        what: if decode {
            decode_what
        } else {
            PredictionKind::Prefill
        },
    })
}

/// The stitched bf16 stack.
fn stack_case(measured: &Measurement, model: &'static Geometry) -> Option<PredictionCase> {
    let source = measured.source.as_str();
    let stack = [
        "Llama-3.2-1B on NPU2 guide",
        "programming_examples/llms/",
        "programming_examples/llama32_1b/",
    ];
    if !stack.iter().any(|part| source.contains(part)) {
        return None;
    }
    let what = match measured.kernel.as_str() {
        "end-to-end" if measured.phase == "decode" => PredictionKind::Token,
        "end-to-end" => PredictionKind::Prompt,
        "layer wall" | "per layer" => PredictionKind::Layer,
        "NPU run sum" | "kernels only" | "NPU kernels only" => PredictionKind::Runs,
        "NPU XRT calls total" => PredictionKind::Calls,
        "BO write sum" => PredictionKind::Writes,
        kernel => program_case(kernel, &measured.metric)?,
    };
    let group = match what {
        PredictionKind::Token => TOKENS,
        PredictionKind::Run(_) | PredictionKind::Call(_) => PROGRAMS,
        PredictionKind::Write(_) | PredictionKind::Writes => BUFFERS,
        _ => PROMPTS,
    };
    Some(PredictionCase {
        group,
        profile: "air-strix-2026",
        model,
        length: length(&measured.shape).unwrap_or(2048),
        build: build(source),
        what,
    })
}

/// The guide and the documents of `llama32_1b` report its own programs. The README of all models and the documents of
/// other models report later builds.
fn build(source: &str) -> Build {
    let example = source.contains("Llama-3.2-1B on NPU2 guide") || source.contains("llama32_1b");
    if example {
        Build::Example
    } else {
        Build::Registry
    }
}

/// A program by name, and the time that the row's unit measures.
fn program_case(kernel: &str, metric: &str) -> Option<PredictionKind> {
    let program = match kernel.split(' ').next()? {
        "rms_gemms_rope" => StackProgram::RmsGemmsRope,
        "flash_attn" => StackProgram::FlashAttention,
        "o_ffn" => StackProgram::OFfn,
        "lm_head_gemv" => StackProgram::LmHead,
        "lm_head_gemm" => StackProgram::LmHeadOfAllRows,
        "rms_gemv_rope" => StackProgram::RmsGemvRope,
        "o_gemv_ffn" => StackProgram::OGemvFfn,
        _ => return None,
    };
    let decode = matches!(program, StackProgram::RmsGemvRope | StackProgram::OGemvFfn);
    match metric {
        "BO_write_ms" => Some(PredictionKind::Write(program)),
        "ms_per_call" => Some(PredictionKind::Call(program)),
        "ms" if decode && kernel.contains("per call") => Some(PredictionKind::Call(program)),
        "ms" | "NPU_run_ms" | "ms_per_layer" => Some(PredictionKind::Run(program)),
        _ => None,
    }
}
