//! Errors of lowering.

/// Why there is no plan. A single op that a device cannot take is no error: it goes to the host.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LowerError {
    /// A node of the graph names something that does not exist, or has the wrong number of inputs.
    #[error("node {node} (`{label}`): {problem}")]
    Graph {
        /// Index in the graph's nodes.
        node: usize,
        /// Its label.
        label: &'static str,
        /// Description of the fault.
        problem: String,
    },
    /// A prefill of no tokens, or of more than offsets hold.
    #[error("a prefill of {0} tokens: take 1 to {MAX_TOKENS}, and longer prompts in chunks")]
    Tokens(u64),
    /// A graph without logits.
    #[error("the graph computes no logits: a plan ends with them")]
    NoLogits,
    /// An op that neither the device nor the host steps of a plan compute.
    #[error("node {node} (`{label}`): {problem}; run this model on the CPU (--device cpu)")]
    Unsupported {
        /// Index in the graph's nodes.
        node: usize,
        /// Its label.
        label: &'static str,
        /// The unsupported feature.
        problem: String,
    },
    /// A program that cannot be assembled or packed: a defect of the target.
    #[error("program `{program}`: {problem}")]
    Program {
        /// The program.
        program: String,
        /// Why.
        problem: String,
    },
    /// A program that the machine refuses though it takes each launch.
    #[error("program `{program}` is refused: {}", refusals.first().map_or("", String::as_str))]
    Refused {
        /// The program.
        program: String,
        /// Every rule that it breaks, in words.
        refusals: Vec<String>,
    },
}

/// Most tokens of a prefill plan: activations of the widest models stay within 32-bit offsets.
pub const MAX_TOKENS: u64 = 1 << 16;
