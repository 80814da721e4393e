//! Pairs published rows with their model, profile and pass.

use crate::xdna2::fidelity::{Measurement, length};
use millrace_xdna2::target::modes::{FASTFLOWLM, INT4};
use serde::Serialize;

/// The mode that is compared: weights in the paper's blocks, expanded in DDR before a prompt's products.
pub(super) const MODE: &str = FASTFLOWLM;

/// The mode that others' figures of 4-bit weights are compared with.
pub(super) const PACKED: &str = INT4;

/// The paper's box.
pub(super) const PROFILE: &str = "paper-kraken";

/// The same chip with constants that were fitted on no whole prompts or tokens. This project's own modes are timed by it.
pub(super) const OURS: &str = "air-krackan-2026";

/// Table 5's line of prompts on the NPU.
pub(super) const PREFILL_POWER: &str = "NPU Prefill";

const DECODE_POWER: &str = "NPU Decoding";

/// The paper's title in its rows.
const PAPER: &str = "Mapping Gemma3 onto an Edge Dataflow Architecture";

/// Quantity of a model that a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PaperMetric {
    /// Time to the first token, in seconds.
    Prompt,
    /// Tokens a second after a context.
    Token,
}

/// Rows of one source, model and pass.
#[derive(Clone, Copy)]
pub(super) struct Series {
    pub(super) title: &'static str,
    /// The model as the rows name it, and as its geometry is called.
    pub(super) model: &'static str,
    pub(super) geometry: &'static str,
    pub(super) what: PaperMetric,
    pub(super) profile: &'static str,
    /// Source, hardware and weight type of the rows.
    source: &'static str,
    hardware: &'static str,
    dtype: &'static str,
}

/// The paper's tables 1 to 4.
pub(super) const OWN: [Series; 4] = [
    own(
        "Table 1: Gemma3-1B, time to the first token",
        GEMMA_1B,
        PaperMetric::Prompt,
    ),
    own(
        "Table 2: Gemma3-4B, time to the first token",
        GEMMA_4B,
        PaperMetric::Prompt,
    ),
    own("Table 3: Gemma3-1B, decoding", GEMMA_1B, PaperMetric::Token),
    own("Table 4: Gemma3-4B, decoding", GEMMA_4B, PaperMetric::Token),
];

/// A model as rows name it, and its geometry.
pub(super) type PaperModel = (&'static str, &'static str);

const GEMMA_1B: PaperModel = ("Gemma3-1B", "gemma-3-1b");
pub(super) const GEMMA_4B: PaperModel = ("Gemma3-4B", "gemma-3-4b");
const LLAMA: PaperModel = ("Llama-3.2-1B", "llama-3.2-1b");

const fn own(title: &'static str, model: PaperModel, what: PaperMetric) -> Series {
    Series {
        title,
        model: model.0,
        geometry: model.1,
        what,
        profile: PROFILE,
        source: PAPER,
        hardware: "(Kraken NPU2)",
        dtype: "Q4NX (NPU)",
    }
}

/// Other software on the same chips.
pub(super) const BESIDE: [Series; 7] = [
    Series {
        title: "Llama-3.2-1B, decoding: FastFlowLM v0.1.3",
        model: "LLaMA 3.2 1B",
        profile: "flm-v0.1.3",
        source: "llama3_results.md (v0.1.3",
        hardware: "NPU (FastFlowLM)",
        dtype: "4-bit",
        ..own("", LLAMA, PaperMetric::Token)
    },
    Series {
        title: "Llama-3.2-1B, decoding: MLIR-AIR's fused decode on Krackan",
        profile: "air-krackan-2026",
        source: "mlir-air PR 1827",
        hardware: "Krackan",
        dtype: "q4nx",
        ..own("", LLAMA, PaperMetric::Token)
    },
    Series {
        title: "Gemma3-4B, decoding: MLIR-AIR's fused decode on Krackan",
        profile: "air-krackan-2026",
        source: "mlir-air PR 1827",
        hardware: "Krackan",
        dtype: "q4nx",
        ..own("", GEMMA_4B, PaperMetric::Token)
    },
    Series {
        title: "Llama-3.2-1B, first token: MLIR-AIR's 4-bit weights on Strix",
        profile: "air-strix-2026",
        source: "mlir-air PR 1910",
        hardware: "Strix",
        dtype: "q4nx",
        ..own("", LLAMA, PaperMetric::Prompt)
    },
    Series {
        title: "Gemma3-4B, first token: MLIR-AIR (4.5 s) and FastFlowLM (3.21 s) on Strix",
        profile: "air-strix-2026",
        source: "gemma3_4b_q4nx/README.md",
        hardware: "Strix",
        dtype: "q4nx",
        ..own("", GEMMA_4B, PaperMetric::Prompt)
    },
    Series {
        title: "Llama-3.2-1B, first token: MLIR-AIR's bf16 weights on Strix",
        profile: "air-strix-2026",
        source: "programming_examples/llms/README.md",
        hardware: "Strix",
        dtype: "bf16",
        ..own("", LLAMA, PaperMetric::Prompt)
    },
    Series {
        title: "Llama-3.2-1B, decoding: MLIR-AIR's bf16 weights, attention on the CPU",
        profile: "air-krackan-2026",
        source: "mlir-air PR 1995",
        hardware: "NPU2",
        dtype: "bf16",
        ..own("", LLAMA, PaperMetric::Token)
    },
];

impl Series {
    /// The same, timed by another profile.
    pub(super) fn timed_by(&self, profile: &'static str) -> Series {
        Series { profile, ..*self }
    }

    /// Its rows with their tokens, without those of more than `longest`.
    pub(super) fn rows<'m>(
        &self,
        measured: &'m [Measurement],
        longest: u64,
    ) -> Vec<(&'m Measurement, u64)> {
        let is = |row: &&Measurement| {
            row.source.contains(self.source)
                && row.hardware.contains(self.hardware)
                && row.dtype.eq_ignore_ascii_case(self.dtype)
                && row.model == self.model
                && self.what.is_metric(&row.metric)
        };
        let with_tokens = |row: &'m Measurement| length(&row.shape).map(|tokens| (row, tokens));
        let rows = measured.iter().filter(is).filter_map(with_tokens);
        rows.filter(|(_, tokens)| *tokens <= longest).collect()
    }
}

impl PaperMetric {
    fn is_metric(self, metric: &str) -> bool {
        match self {
            PaperMetric::Prompt => ["TTFT_s", "TTFT_ms"].contains(&metric),
            PaperMetric::Token => metric == "decode_tok_per_s",
        }
    }

    /// Seconds of a prompt, tokens a second of a token.
    pub(super) fn in_unit(self, ns: f64) -> f64 {
        match self {
            PaperMetric::Prompt => ns / 1e9,
            PaperMetric::Token => 1e9 / ns,
        }
    }

    /// Tokens a second for such a value.
    pub(super) fn tokens_per_s(self, value: f64, tokens: u64) -> f64 {
        match self {
            PaperMetric::Prompt => tokens as f64 / value,
            PaperMetric::Token => value,
        }
    }
}

/// The value with times in seconds.
pub(super) fn in_s(row: &Measurement) -> f64 {
    match row.metric.ends_with("_ms") {
        true => row.value / 1e3,
        false => row.value,
    }
}

/// The total of a line of the paper's table 5 about the NPU.
pub(super) fn is_power(row: &Measurement) -> bool {
    row.source.contains(PAPER)
        && row.metric == "total_W"
        && [PREFILL_POWER, DECODE_POWER].contains(&row.kernel.as_str())
}

/// The paper's image on the NPU.
pub(super) fn is_vision(row: &Measurement) -> bool {
    row.source.contains(PAPER) && row.phase == "vision" && row.hardware.contains("(Kraken NPU2)")
}
