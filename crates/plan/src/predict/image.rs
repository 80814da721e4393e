//! Cost of an image at the beginning of a prompt.

use super::{PassCost, PredictError, PriceError, Pricer, one_pass};
use crate::{AttentionOn, Lowering, PassKind, VisionCost, VisionShape};
use millrace_graph::Graph;
use millrace_model::VisionConfig;

/// Cost of an image's vision encoder, and of the first pass of a prompt of so many tokens. That pass has the image's
/// rows, as the engine runs it.
#[derive(Clone, Debug)]
pub struct ImagePass {
    /// The vision encoder's programs, and the host's work between them.
    pub encoder: VisionCost,
    /// The pass, whose attention knows where the image is.
    pub pass: PassCost,
}

/// Predicts both. A longer prompt's other passes are as without an image.
///
/// # Errors
/// A device that has no programs for the vision encoder; a prompt whose first pass has no room for the image; see
/// [`PredictError`].
pub fn image(
    graph: &Graph,
    vision: &VisionConfig,
    planner: &dyn Lowering,
    pricer: &mut dyn Pricer,
    prompt_tokens: u64,
) -> Result<ImagePass, PredictError> {
    let encoder = planner.vision_encoder(&VisionShape::of(vision));
    let encoder = encoder.map_err(|reason| PriceError(reason.to_string()))?;
    let chunk = planner.lengths().next(0, prompt_tokens);
    let n_rows = vision.n_tokens as u64;
    if chunk.n_tokens <= n_rows {
        let found = chunk.n_tokens;
        let problem = format!("an image is {n_rows} tokens: a pass of {found} has no room for it");
        return Err(PriceError(problem).into());
    }
    let programs = encoder.programs().map(|program| &program.program);
    pricer.prime(&programs)?;
    let encoder = encoder.cost(vision.n_layers, pricer)?;
    let kind = PassKind::prefill(chunk.n_padded).with_attention(AttentionOn::Image);
    let pass = one_pass(graph, planner, pricer, (&kind, chunk))?;
    Ok(ImagePass { encoder, pass })
}
