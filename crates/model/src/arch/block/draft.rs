//! A draft layer: one block behind the last, which predicts the token after the next (DeepSeek-AI 2024, DeepSeek-V3,
//! section 2.2). Its input is a projection of a token's embedding beside the hidden state of the token before, each
//! normed. For the first draft that state is the output of the model's last norm. For further drafts it is the output of
//! the layer's own last norm.

use super::norm;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::{LayerConfig, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::{ConcatHeads, TargetState, ValueId};

/// A family's draft layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftLayer {
    /// Builds its block.
    pub(crate) block: super::Block,
    /// Names of the parts beside the block in Hugging Face files that hold the layer separately (`mtp.`); none where it is a
    /// block behind the last.
    pub(crate) hf_modules: &'static [(WeightRole, &'static str)],
}

impl DraftLayer {
    /// A layer that is a block behind the last in all files.
    pub(in crate::arch) const fn behind(block: super::Block) -> DraftLayer {
        DraftLayer {
            block,
            hf_modules: &[],
        }
    }

    /// Its graph, as a model of one block.
    pub(crate) fn build(&self, b: &mut GraphBuilder<'_>) -> Result<(), Error> {
        let d_model = b.config().d_model;
        b.enter_layer(0);
        let embedding = match b.has_own(b.name_of(WeightRole::DraftEmbedding)) {
            true => b.embed_of(WeightRole::DraftEmbedding)?,
            false => b.embed()?,
        };
        let given = TargetState { width: d_model };
        let state = b.push("target_state", given.into(), vec![], d_model);
        let roles = [WeightRole::DraftEmbedNorm, WeightRole::DraftStateNorm];
        let embedding = norm::stream(b, "draft_embed_norm", roles[0], embedding)?;
        let state = norm::stream(b, "draft_state_norm", roles[1], state)?;
        let beside = ConcatHeads {
            n_heads: 1,
            from_a: 0..d_model,
            from_b: 0..d_model,
        };
        let inputs = vec![embedding, state];
        let both = b.push("draft_input", beside.into(), inputs, 2 * d_model);
        let x = b.linear("draft_proj", WeightRole::DraftProj, (d_model, false), both)?;
        b.hidden(x);
        let x = (self.block)(b, 0, x)?;
        b.hidden(x);
        let normed = head_norm(b, x)?;
        let head = b.has_own(b.name_of(WeightRole::DraftHead));
        let own = head.then_some(WeightRole::DraftHead);
        b.head_of(normed, own)
    }
}

/// The norm before the head: the layer's, or the model's where the layer has none.
fn head_norm(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let role = match b.has(WeightRole::DraftHeadNorm) {
        true => WeightRole::DraftHeadNorm,
        false => WeightRole::OutputNorm,
    };
    norm::stream(b, "output_norm", role, x)
}

/// The configuration of a model's draft layer, as a model of one block: it attends to everything, and has experts where the
/// model has some.
pub(crate) fn config_of(config: &ModelConfig) -> ModelConfig {
    let mut experts = config.experts.clone();
    if let Some(experts) = &mut experts {
        experts.n_dense_layers = 0;
        experts.dense_layers.clear();
        experts.every = 1;
    }
    ModelConfig {
        n_layers: 1,
        window: None,
        layer_windowed: vec![false],
        unrotated_layers: Vec::new(),
        layers: LayerConfig::default(),
        recurrent: None,
        experts,
        ..config.clone()
    }
}
