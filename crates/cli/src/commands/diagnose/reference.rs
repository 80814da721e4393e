//! References to compare with: hidden states of the CPU engine in f32, or of a file.

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult};
use millrace_format::{Checkpoint, PlainType, Tensor, TensorType};
use millrace_quant as quant;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, Level, LoadedModel, LogitsFor,
};
use std::path::Path;
use std::sync::Arc;

/// Hidden states of a prompt.
pub(super) struct States {
    /// Program that computed them.
    pub(super) source: String,
    /// The prompt, where it comes with the states.
    pub(super) tokens: Option<Vec<u32>>,
    /// Input of block `i`, and at the end the output of the last block: `[n_tokens, d_model]`.
    /// `None` where it could not be observed.
    pub(super) hidden: Vec<Option<Vec<f32>>>,
    /// Logits of the last token.
    pub(super) logits: Option<Vec<f32>>,
}

impl States {
    /// Computes the states with the CPU engine, in f32 as far as the weights' format allows. Cached
    /// keys and values are f32 too, and no instruction set that rounds operands to bf16 is used.
    pub(super) fn by_cpu(
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        prompt: &[u32],
    ) -> CommandResult<States> {
        let level = cpu.cpu_level.unwrap_or_else(Level::detect_exact);
        let options = EngineOptions {
            n_ctx: Some(prompt.len()),
            kv_type: KvType::F32,
            level: Some(level),
            ..cpu.options()
        };
        let mut engine = CpuEngine::new(model.clone(), options)?;
        let seq = engine.create()?;
        let item = BatchItem {
            hidden: true,
            ..BatchItem::new(seq, prompt, LogitsFor::Last)
        };
        let output = engine.compute(&[item])?;
        Ok(States {
            hidden: output.hidden(0).iter().cloned().map(Some).collect(),
            logits: Some(output.logits(0).to_vec()),
            source: format!("cpu ({level}, f32)"),
            tokens: None,
        })
    }

    /// Reads safetensors: `tokens` (or `input_ids`) in i32 or i64, and `hidden.<i>` `[n, d_model]` in
    /// f32, f16 or bf16, with or without a leading batch dimension of one. For `hidden_states.<i>`,
    /// from transformers' `output_hidden_states`, the last is after the final norm and left out.
    pub(super) fn read(path: &Path, model: &LoadedModel) -> CommandResult<States> {
        let file = Checkpoint::open(path)?;
        let bad =
            |problem: String| CommandFailure::bad_input(format!("{}: {problem}", path.display()));
        let config = &model.model().config;
        let tokens = file.tensor("tokens").or_else(|| file.tensor("input_ids"));
        let tokens = tokens.map(|tensor| token_ids(&tensor)).transpose();
        let tokens = tokens.map_err(bad)?;
        let known = |id: &u32| (*id as usize) < config.vocab_size;
        if tokens
            .as_ref()
            .is_some_and(|t| t.is_empty() || !t.iter().all(known))
        {
            return Err(bad(format!(
                "`tokens` must be of the vocabulary of {}",
                config.vocab_size
            )));
        }
        let mut hidden = Vec::new();
        let of_transformers = file.tensor("hidden_states.0").is_some();
        for layer in 0..=config.n_layers {
            if of_transformers && layer == config.n_layers {
                hidden.push(None);
                continue;
            }
            let name = match of_transformers {
                true => format!("hidden_states.{layer}"),
                false => format!("hidden.{layer}"),
            };
            let tensor = file.tensor(&name);
            let tensor = tensor.ok_or_else(|| bad(format!("no tensor `{name}`")))?;
            let state = state(&tensor, config.d_model);
            hidden.push(Some(
                state.map_err(|problem| bad(format!("`{name}` {problem}")))?,
            ));
        }
        Ok(States {
            source: path.display().to_string(),
            tokens,
            hidden,
            logits: None,
        })
    }
}

/// Reads token ids, in either width that PyTorch uses.
fn token_ids(tensor: &Tensor<'_>) -> Result<Vec<u32>, String> {
    let ids: Vec<i64> = match tensor.info.tensor_type {
        TensorType::Plain(PlainType::I32) => (tensor.bytes.as_chunks().0.iter())
            .map(|id| i64::from(i32::from_le_bytes(*id)))
            .collect(),
        TensorType::Plain(PlainType::I64) => (tensor.bytes.as_chunks().0.iter())
            .map(|id| i64::from_le_bytes(*id))
            .collect(),
        other => {
            let name = &tensor.info.name;
            return Err(format!("`{name}` is {other}; token ids are i32 or i64"));
        }
    };
    let ids = ids.into_iter().map(|id| {
        u32::try_from(id).map_err(|_| format!("`{}` has {id}, which is no token", tensor.info.name))
    });
    ids.collect()
}

/// Rows of a hidden state in f32.
fn state(tensor: &Tensor<'_>, d_model: usize) -> Result<Vec<f32>, String> {
    let (shape, of) = (&tensor.info.shape, tensor.info.tensor_type);
    let wrong = || format!("is {of} {shape:?}; it must be f32, f16 or bf16 [n, {d_model}]");
    let before = shape.len().checked_sub(2).map(|n| &shape[..n]);
    let is_batch_of_one = before.is_some_and(|before| before.iter().all(|n| *n == 1));
    match of {
        TensorType::Weights(dtype)
            if dtype.is_float() && is_batch_of_one && shape.last() == Some(&d_model) =>
        {
            let mut rows = vec![0.0; shape.iter().product()];
            let decoded = quant::decode_blocks(dtype, tensor.bytes, &mut rows);
            decoded.map_err(|_| wrong())?;
            Ok(rows)
        }
        _ => Err(wrong()),
    }
}
