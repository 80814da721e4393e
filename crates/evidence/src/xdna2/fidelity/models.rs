//! Rows of whole models: the software, model and length that each measures, and its prediction.

mod case;
use case::case;
pub(crate) use case::length;

use super::stack::{Build, Stack, StackProgram, StackWork};
use super::{FidelityRow, Measurement};
use crate::xdna2::forms::{self, Weights};
use crate::xdna2::geometry::Geometry;
use millrace_xdna2_machine::{Machine, Profile};
use std::collections::BTreeMap;

pub(super) const PROGRAMS: &str = "bf16 stack, programs";
pub(super) const PROMPTS: &str = "bf16 stack, prompts";
pub(super) const TOKENS: &str = "bf16 stack, tokens";
pub(super) const BUFFERS: &str = "bf16 stack, buffer writes";
pub(super) const PAPER_PREFILL: &str = "Gemma3 prefill, paper";
pub(super) const PAPER_DECODE: &str = "Gemma3 decode, paper";
pub(super) const FLM_DECODE: &str = "Llama decode, FastFlowLM v0.1.3";
pub(super) const FLM_PREFILL: &str = "Qwen3 prefill, FastFlowLM v0.9.22";
pub(super) const AIR_KRACKAN: &str = "fused decode, MLIR-AIR on Krackan";
pub(super) const AIR_STRIX: &str = "fused decode, MLIR-AIR on Strix";
pub(super) const AIR_Q4_0: &str = "fused decode of Q4_0 by bundle count";

/// Quantity to predict.
#[derive(Clone, Copy, Debug)]
enum PredictionKind {
    /// A token of fused decode.
    Decode { context: u64, weights: Weights },
    /// A prompt under FastFlowLM's scheme.
    Prefill,
    /// The run of a stitched program on the NPU.
    Run(StackProgram),
    /// A call of it, buffers included.
    Call(StackProgram),
    /// Its buffers' writes.
    Write(StackProgram),
    /// All runs of a prompt.
    Runs,
    /// All calls of a prompt.
    Calls,
    /// All buffer writes of a prompt.
    Writes,
    /// A layer of a prompt, host included.
    Layer,
    /// A prompt, host included.
    Prompt,
    /// A token, host included.
    Token,
}

/// How to predict a measurement.
#[derive(Clone, Copy, Debug)]
struct PredictionCase {
    group: &'static str,
    profile: &'static str,
    model: &'static Geometry,
    /// Tokens of the prompt.
    length: u64,
    /// The build of the bf16 stack.
    build: Build,
    what: PredictionKind,
}

/// Predicts rows; simulated kernels are kept by profile.
pub(super) struct RowPredictor<'a> {
    machine: &'a Machine,
    profiles: &'a [Profile],
    stacks: BTreeMap<&'a str, Stack<'a>>,
}

impl<'a> RowPredictor<'a> {
    pub(super) fn new(machine: &'a Machine, profiles: &'a [Profile]) -> RowPredictor<'a> {
        let stack = |p: &'a Profile| (p.name.as_str(), Stack::new(machine, p));
        RowPredictor {
            machine,
            profiles,
            stacks: profiles.iter().map(stack).collect(),
        }
    }

    /// A measurement with its prediction, or why there is none.
    pub(super) fn row(&self, measured: &Measurement) -> Result<FidelityRow, String> {
        let case = case(measured)?;
        let profile = (self.profiles.iter().find(|p| p.name == case.profile))
            .ok_or_else(|| format!("no profile `{}`", case.profile))?;
        let ns = self.predict(&case, profile)?;
        let predicted = in_unit(measured, &case, ns)?;
        Ok(FidelityRow {
            group: case.group.to_owned(),
            measured: measured.clone(),
            mapping: case.model.name.to_owned(),
            tiling: String::new(),
            profile: profile.name.clone(),
            predicted,
            error_percent: (predicted / measured.value - 1.0) * 100.0,
            calibration: profile.calibration_rows().contains(&measured.id.as_str()),
            bottleneck: form(&case).into(),
            outlier: outlier(&measured.id).map(str::to_owned),
        })
    }

    /// Kernels are those of the predictor's own profile of that name, everything else is `profile`'s.
    fn predict(&self, case: &PredictionCase, profile: &Profile) -> Result<f64, String> {
        let (g, length) = (case.model, case.length);
        let stack = (self.stacks.get(case.profile)).ok_or("no such profile")?;
        let work = &StackWork {
            build: case.build,
            model: g,
            length,
            host: profile.host,
        };
        match case.what {
            PredictionKind::Decode { context, weights } => {
                forms::decode_token_ns(g, context, weights, self.machine, profile)
                    .map_err(|e| e.to_string())
            }
            PredictionKind::Prefill => {
                forms::prefill_ns(g, length, self.machine, profile).map_err(|e| e.to_string())
            }
            PredictionKind::Run(program) => stack.run_ns(work, program),
            PredictionKind::Call(program) => stack.call_ns(work, program),
            PredictionKind::Write(program) => Ok(stack.write_ns(work, program)),
            PredictionKind::Runs => stack.prompt_ns(work, |program| stack.run_ns(work, program)),
            PredictionKind::Calls => stack.prompt_ns(work, |program| stack.call_ns(work, program)),
            PredictionKind::Writes => {
                stack.prompt_ns(work, |program| Ok(stack.write_ns(work, program)))
            }
            PredictionKind::Layer => stack.layer_ns(work),
            PredictionKind::Prompt => stack.ttft_ns(work),
            PredictionKind::Token => stack.token_ns(work),
        }
    }
}

fn form(case: &PredictionCase) -> &'static str {
    match (case.what, case.build) {
        (PredictionKind::Decode { weights, .. }, _) => match weights {
            Weights::Stream { .. } => "closed form 8",
            Weights::Bundles(_) => "closed form 8, bundles",
        },
        (PredictionKind::Prefill, _) => "closed form 9",
        (PredictionKind::Write(_) | PredictionKind::Writes, _) => "bytes over a rate",
        (PredictionKind::Run(_) | PredictionKind::Runs, Build::Example) => "lowered programs",
        (PredictionKind::Run(_) | PredictionKind::Runs, Build::Registry) => "simulated kernels",
        (_, Build::Example) => "lowered programs and host",
        (_, Build::Registry) => "simulated kernels and host",
    }
}

fn in_unit(measured: &Measurement, case: &PredictionCase, ns: f64) -> Result<f64, String> {
    match measured.metric.as_str() {
        "us" => Ok(ns / 1e3),
        "ms" | "ms_per_token" | "ms_per_call" | "ms_per_layer" | "NPU_run_ms" | "BO_write_ms"
        | "TTFT_ms" => Ok(ns / 1e6),
        "s" | "TTFT_s" | "wall_s" => Ok(ns / 1e9),
        "decode_tok_per_s" => Ok(1e9 / ns),
        "prefill_tok_per_s" => Ok(case.length as f64 * 1e9 / ns),
        "ms_total" => Ok(ns / 1e6 * case.model.n_layers as f64),
        other => Err(format!("the unit `{other}` is no time or rate of a model")),
    }
}

/// Rows that no monotone form can meet, or that other rows of the same source contradict.
fn outlier(id: &str) -> Option<&'static str> {
    Some(match id {
        "N0061" | "N0062" => {
            "above any form that grows with the cache: 83 GB/s between 64k and 128k"
        }
        "N0160" | "N0153" | "N0214" => {
            "30 % slower in the program than the registry's own attention at that shape; half of it is the \
             layout's short bursts, of the rest no cause is known"
        }
        "N1068" => {
            "exact at 131k, and the other models of PR 1993 at 1k are within 13 %; a builder of its own"
        }
        "N0278" => {
            "0.62 us a block of keys between 256 and 2048; N1068 and N1069 need 1.9 for this model"
        }
        "N0231" => "N0291 of the same project, the same window, is 37 % faster",
        "N0284" => "N0291 of the same README, the same window, is 11 % faster",
        "N1100" | "N1101" | "N1102" => {
            "PR 1827 measures the same model 7 % faster at 16k, and PR 1993 agrees at 131k"
        }
        _ => return None,
    })
}

/// Why a row does not measure an NPU.
fn no_npu(measured: &Measurement) -> Option<&'static str> {
    let baseline = ["iGPU (baseline", "CPU (baseline"];
    if measured.phase == "power" {
        Some("a power, an energy or a temperature, not a time")
    } else if baseline.iter().any(|on| measured.hardware.contains(on)) {
        Some("a baseline on the CPU or the integrated GPU beside the NPU's row")
    } else {
        None
    }
}

/// A row of a model that can be predicted, for the leave-out evaluation.
pub(super) struct PreparedRow {
    pub(super) measured: Measurement,
    case: PredictionCase,
}

impl PreparedRow {
    pub(super) fn new(measured: &Measurement) -> Option<PreparedRow> {
        let case = case(measured).ok()?;
        Some(PreparedRow {
            measured: measured.clone(),
            case,
        })
    }

    pub(super) fn group(&self) -> &'static str {
        self.case.group
    }

    pub(super) fn model(&self) -> &'static str {
        self.case.model.name
    }

    pub(super) fn profile(&self) -> &'static str {
        self.case.profile
    }
}

impl RowPredictor<'_> {
    /// A row's prediction over its measurement under a profile of the row's name whose constants of
    /// whole models may differ.
    pub(super) fn ratio(&self, row: &PreparedRow, profile: &Profile) -> Option<f64> {
        let ns = self.predict(&row.case, profile).ok()?;
        let predicted = in_unit(&row.measured, &row.case, ns).ok()?;
        Some(predicted / row.measured.value)
    }
}

/// Programs of a call that contain a product with weights that were 4-bit.
const BF16_OF_4_BIT: &[&str] = &["qwen25_3b_q4", "gemma3_4b_q4nx", "llama31_8b_q4nx"];

/// Why a row of a model has no prediction.
fn reason(measured: &Measurement, known: bool) -> &'static str {
    let source = measured.source.as_str();
    let has = |text: &str| source.contains(text) || measured.kernel.contains(text);
    let bf16 = measured.dtype.starts_with("bf16");
    let program = measured.metric.ends_with("_per_call") || measured.metric == "ms_total";
    if program && measured.dtype.contains("bf16 GEMM") && BF16_OF_4_BIT.iter().any(|of| has(of)) {
        return "an ordinary bf16 program of a stack with 4-bit weights: which GEMM method, tiles and host \
                work it has is not published";
    }
    if has("AMD XDNA2 NPU backend changelog") {
        "decode on an integrated GPU: 214 GB/s, which the NPU does not read"
    } else if measured.phase == "vision" {
        "a vision encoder: Gemma 3's programs are timed by `profile --paper gemma3`, other vision encoders' are not built here"
    } else if measured.hardware.contains("Ryzen AI SW") {
        "another software stack of which one model was measured"
    } else if has("IRON baseline") || has("CPU matmul") {
        "a baseline that its source replaced, or work on the host"
    } else if !known {
        "a hybrid, mixture or other model whose dimensions or operators the forms do not cover"
    } else if bf16 && has("CPU attention") && has("PR 1995") {
        "attention on the CPU over a long context: measures Python on an unnamed host"
    } else if bf16 && (has("llms/") || has("Llama-3.2-1B on NPU2 guide")) {
        "host work or a buffer sync printed with one digit; some are what the host constants are fitted on"
    } else if has("staircase") {
        "the widths of the staircase are not published"
    } else if has("attn_qk.cc") || has("PR 1801") || has("PR 1808") {
        "compilations of one kernel compared; not a release, and the box is doubtful"
    } else if has("decode_geometry") {
        "a size, not a time; the tests check it against the table of dimensions"
    } else if measured.dtype == "Q4_0" && measured.phase == "decode" {
        "Q4_0 decode without the bundle count of its weight kernel"
    } else if measured.dtype.contains("q4nx")
        || measured.dtype.contains("Q4_0")
        || measured.dtype.contains("int4")
    {
        "4-bit weights made bf16 on the host or in the cores: schedules that no form here covers"
    } else if has("Strix Halo") || measured.hardware.contains("Halo") {
        "another box, of which only rounded figures are public"
    } else if has("PR 602") || has("release notes") || has("issue") {
        "a version or prompt length that is not stated"
    } else if has("v0.9.22") {
        "decode of v0.9.22 slows down less from 16k to 32k than from 1k to 2k; no form here does"
    } else {
        "no software, model and length that a profile stands for"
    }
}
