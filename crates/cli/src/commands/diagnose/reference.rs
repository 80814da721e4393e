//! What to compare with: hidden states of the CPU engine in f32, or of a file.

use crate::engine_args::CpuArgs;
use crate::exit::{Failure, Outcome};
use millrace_format::Checkpoint;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, Level, LoadedModel, LogitsFor,
};
use std::path::Path;
use std::sync::Arc;

/// Hidden states of a prompt.
pub(super) struct States {
    /// Who computed them.
    pub(super) source: String,
    /// The prompt, where it comes with the states.
    pub(super) tokens: Option<Vec<u32>>,
    /// What enters block `i`, and at the end what leaves the last one: `[n_tokens, d_model]`. `None`
    /// where it could not be seen.
    pub(super) hidden: Vec<Option<Vec<f32>>>,
    /// Of the last token.
    pub(super) logits: Option<Vec<f32>>,
}

impl States {
    /// By the engine, in f32 as far as the weights' format allows: cached keys and values too, and
    /// without an instruction set that rounds operands to bf16.
    pub(super) fn by_cpu(
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        prompt: &[u32],
    ) -> Outcome<States> {
        let level = cpu.cpu_level.unwrap_or(match Level::detect() {
            Level::Avx512Bf16 => Level::Avx512,
            level => level,
        });
        let options = EngineOptions {
            n_ctx: Some(prompt.len()),
            kv_type: KvType::F32,
            level: Some(level),
            ..cpu.options()
        };
        let mut engine = CpuEngine::new(model.clone(), options)?;
        let seq = engine.create()?;
        let item = BatchItem {
            seq,
            tokens: prompt,
            logits: LogitsFor::Last,
            hidden: true,
        };
        let output = engine.compute(&[item])?;
        Ok(States {
            hidden: output.hidden(0).iter().cloned().map(Some).collect(),
            logits: Some(output.logits(0).to_vec()),
            source: format!("cpu ({level}, f32)"),
            tokens: None,
        })
    }

    /// From safetensors: `tokens` i64 `[n]` and `hidden.<i>` f32 `[n, d_model]`.
    pub(super) fn read(path: &Path, model: &LoadedModel) -> Outcome<States> {
        let file = Checkpoint::open(path)?;
        let bad = |problem: String| Failure::bad_input(format!("{}: {problem}", path.display()));
        let config = &model.model().config;
        let tokens = file.tensor("tokens").map(|tensor| {
            let id = |bytes: &[u8]| bytes.try_into().map(i64::from_le_bytes).unwrap_or(-1);
            let ids = tensor.bytes.chunks(8).map(id).map(u32::try_from);
            ids.collect::<Result<Vec<u32>, _>>()
        });
        let tokens = tokens.transpose();
        let tokens = tokens.map_err(|_| bad("`tokens` must be i64 token ids".to_owned()))?;
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
        for layer in 0..=config.n_layers {
            let name = format!("hidden.{layer}");
            let tensor = file.tensor(&name);
            let tensor = tensor.ok_or_else(|| bad(format!("no tensor `{name}`")))?;
            let width = tensor.info.shape.last().copied();
            let n_elems: usize = tensor.info.shape.iter().product();
            if width != Some(config.d_model) || tensor.bytes.len() != 4 * n_elems {
                return Err(bad(format!("`{name}` must be f32 [n, {}]", config.d_model)));
            }
            let value = |b: &[u8]| b.try_into().map(f32::from_le_bytes).unwrap_or(f32::NAN);
            hidden.push(Some(tensor.bytes.chunks(4).map(value).collect()));
        }
        Ok(States {
            source: path.display().to_string(),
            tokens,
            hidden,
            logits: None,
        })
    }
}
