//! What cannot be lowered.

use crate::program::StitchError;
use crate::verify::Refusal;

/// Why there is no plan. A single op that the array cannot take is no error: it goes to the host.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LowerError {
    /// A node of the graph names what is not there, or has the wrong number of inputs.
    #[error("node {node} (`{label}`): {problem}")]
    Graph {
        /// Index in the graph's nodes.
        node: usize,
        /// Its label.
        label: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A prefill of no tokens, or of more than offsets hold.
    #[error("a prefill of {0} tokens: take 1 to {MAX_TOKENS}, and longer prompts in chunks")]
    Tokens(u64),
    /// A graph without logits.
    #[error("the graph computes no logits: a plan ends with them")]
    NoLogits,
    /// An op that neither the array nor the host steps of a plan compute.
    #[error("node {node} (`{label}`): {problem}; run this model on the CPU (--device cpu)")]
    Unsupported {
        /// Index in the graph's nodes.
        node: usize,
        /// Its label.
        label: &'static str,
        /// What is not supported.
        problem: String,
    },
    /// Launches that do not fit together; a defect of the pass.
    #[error("program `{program}`: {error}")]
    Stitch {
        /// The program.
        program: String,
        /// Why.
        error: Box<StitchError>,
    },
    /// A stitched program that the machine refuses though it takes each launch.
    #[error("program `{program}` is refused: {}", refusals.first().map(ToString::to_string).unwrap_or_default())]
    Refused {
        /// The program.
        program: String,
        /// Every rule that it breaks.
        refusals: Vec<Refusal>,
    },
}

/// Most tokens of a prefill plan: activations of the widest models stay within 32-bit offsets.
pub(super) const MAX_TOKENS: u64 = 1 << 16;
