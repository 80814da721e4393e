//! Models with a draft layer that guesses most of their output.
//!
//! Every addition to the residual stream is zero, so the next token follows from the last one. It is the token whose row of
//! the head is nearest to the last one's row of the table, seen through the last norm. Random signs in that norm keep a model
//! whose head is its table from repeating one token. The layer's projection is the identity beside noise, its norms are those
//! of the model, and its block adds nothing. Its guess is the model's token unless the noise changes the maximum. The noise
//! follows from how often that may happen ([`acceptance`]).

use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use serde_json::{Value, json};

use super::SynthJob;
use super::acceptance::{self, MIN_ACCEPTANCE};
use super::plan::push_tensor;
use super::weights::{SynthRng, VECTOR_STD};
use crate::Error;
use crate::arch::{self, WeightConvention};
use crate::builder;
use crate::config::ModelConfig;
use crate::names::{ParameterKind, TensorName, WeightRole};

/// The default share of guesses that are right.
pub const DEFAULT_ACCEPTANCE: f64 = 0.95;

/// Tokens that a text mostly consists of, as the first ones of byte-pair encodings are.
pub(super) const N_FREQUENT: usize = 32_768;

/// The size of other tokens' rows: in vocabularies of 130,000 to 250,000 tokens, 3 to 7 of 100 tokens are then others. In
/// Qwen 2's vocabulary they are 5 to 10 of 100 in English pages and in programs.
pub(super) const RARE_SCALE: f32 = 0.8;

/// The seed of the signs of last norms, which a model and its layer share.
const SIGNS_SEED: u64 = 0x5167_0000;

impl SynthJob<'_> {
    /// The same with a draft layer that guesses right at this rate.
    pub(super) fn with_draft_layer(mut self, acceptance: f64) -> Result<Self, Error> {
        if !(MIN_ACCEPTANCE..=1.0).contains(&acceptance) {
            return Err(Error::BadValue {
                file: self.out.display().to_string(),
                key: "share of right guesses".into(),
                found: acceptance.to_string(),
                expected: format!("{MIN_ACCEPTANCE} to 1"),
            });
        }
        let (config, layout) = (&self.config, self.layout);
        let tensors = builder::draft_layout(config, layout);
        let tensors = tensors.filter(|_| layout != WeightConvention::Q4nx);
        let tensors = tensors.ok_or_else(|| Error::Unsupported {
            file: self.out.display().to_string(),
            feature: format!(
                "a draft layer for {} as {}",
                self.geometry.name(),
                self.options.recipe
            ),
            supported: format!("GGUF files and folders of {}", arch::with_draft_layers()),
        })?;
        for (spelled, tensor) in tensors {
            let formats = (config, layout, self.options.recipe);
            push_tensor(
                &mut self.plan,
                (tensor.name, spelled),
                &tensor.shape,
                formats,
            );
        }
        let noise = acceptance::noise(acceptance, self.config.vocab_size);
        self.draft_noise = Some(noise as f32);
        Ok(self)
    }
}

/// Records the layer in a GGUF file's metadata, where it counts as a block.
pub(super) fn write_gguf(config: &ModelConfig, out: &mut Metadata) {
    let arch = arch::by_name(config.family).gguf_arch;
    let number = |n: usize| GgufValue::U32(u32::try_from(n).unwrap_or(u32::MAX));
    out.insert(format!("{arch}.block_count"), number(config.n_layers + 1));
    out.insert(format!("{arch}.nextn_predict_layers"), number(1));
    if let Some(recurrent) = &config.recurrent {
        let mut layers = recurrent.layers.clone();
        layers.push(false);
        let layers = GgufValue::Array(GgufArray::Bool(layers));
        out.insert(format!("{arch}.attention.recurrent_layers"), layers);
    }
}

/// Records it in a folder's configuration.
pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    let stands_alone = |layer: arch::draft::DraftLayer| !layer.hf_modules.is_empty();
    let key = match arch::by_name(config.family).draft.is_some_and(stands_alone) {
        true => "mtp_num_hidden_layers",
        false => "num_nextn_predict_layers",
    };
    out[key] = json!(1);
}

/// Whether a matrix is zero in such a model: its output would be added to the stream.
pub(super) fn is_zero(name: TensorName) -> bool {
    use WeightRole::*;
    let adds = matches!(
        name.role,
        AttnOutput | FfnDown | ExpertsDown | SharedDown | SsmOut | ShortConvOut
    );
    adds && name.part == ParameterKind::Weight
}

/// Whether a matrix has a row for each token.
pub(super) fn has_row_per_token(name: TensorName) -> bool {
    use WeightRole::*;
    matches!(name.role, TokenEmbedding | Output) && name.part == ParameterKind::Weight
}

/// The vector of this name in such a model, where it differs from others; `offset` is added when it is read.
pub(super) fn vector(name: TensorName, n: usize, offset: f32) -> Option<Vec<f32>> {
    match name.role {
        WeightRole::DraftEmbedNorm | WeightRole::DraftStateNorm => Some(vec![1.0 - offset; n]),
        WeightRole::OutputNorm | WeightRole::DraftHeadNorm => {
            let mut rng = SynthRng::new(SIGNS_SEED);
            let mut element = || {
                let sign = if rng.bits().is_multiple_of(2) {
                    1.0
                } else {
                    -1.0
                };
                sign * (1.0 + VECTOR_STD * rng.normal()) - offset
            };
            Some((0..n).map(|_| element()).collect())
        }
        _ => None,
    }
}

/// The layer's projection `[d_model, 2·d_model]`: the identity beside a random matrix, whose product with a state of
/// unit elements has elements of size `noise`.
pub(super) fn projection([n, k]: [usize; 2], noise: f32, seed: u64) -> Vec<f32> {
    let mut rng = SynthRng::new(seed);
    let std = noise / (n as f32).sqrt();
    let mut values = vec![0.0; n * k];
    for (i, row) in values.chunks_exact_mut(k).enumerate() {
        let (own, given) = row.split_at_mut(k - n);
        own[i] = 1.0;
        given.iter_mut().for_each(|x| *x = std * rng.normal());
    }
    values
}
