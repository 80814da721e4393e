//! Helpers for tests of models on the virtual NPU.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::npu::{NpuError, NpuModel, NpuOptions};
use millrace_runtime::{BatchItem, Engine, LoadedModel, SeqId};
use millrace_xdna2::lower::Features;
use millrace_xdna2::target::Xdna2;
use millrace_xdna2_machine::device::VirtualDevice;
use millrace_xdna2_machine::{Machine, Profile};
use serde_json::{Map, json};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn demo() -> Arc<LoadedModel> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    Arc::new(LoadedModel::open(&path).unwrap())
}

/// A model of a built-in geometry with random weights in bf16.
pub(crate) fn random(name: &str, n_layers: Option<usize>) -> Arc<LoadedModel> {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(name);
    let options = SynthOptions {
        recipe: Recipe::parse("BF16").unwrap(),
        vocab: None,
        vision: false,
        n_layers,
        seed: 3,
        n_threads: Some(2),
    };
    let geometry = ModelGeometry::named(name).unwrap();
    let go_on = &mut |_, _| ControlFlow::Continue(());
    synth::write(geometry, &folder, &options, go_on).unwrap();
    Arc::new(LoadedModel::open(&folder).unwrap())
}

pub(crate) fn planner(features: Features) -> Arc<Xdna2> {
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    Arc::new(Xdna2::new(Machine::npu2(), profile, features))
}

pub(crate) fn device() -> Arc<VirtualDevice> {
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    Arc::new(planner(Features::NONE).device(cpu))
}

/// Every prompt padded to that many tokens.
pub(crate) fn padded_to(n_tokens: u64) -> NpuOptions {
    NpuOptions {
        prefill_tokens: Some(n_tokens),
        ..NpuOptions::default()
    }
}

pub(crate) fn on(
    model: &Arc<LoadedModel>,
    device: &Arc<VirtualDevice>,
    features: Features,
    options: NpuOptions,
) -> Result<Arc<NpuModel>, NpuError> {
    let npu = NpuModel::on(model.clone(), planner(features), device.clone(), options);
    npu.map(Arc::new)
}

pub(crate) fn load(
    model: &Arc<LoadedModel>,
    features: Features,
    options: NpuOptions,
) -> Arc<NpuModel> {
    let npu = NpuModel::load(model.clone(), planner(features), options);
    Arc::new(npu.unwrap_or_else(|error| panic!("{error}")))
}

/// Appends tokens to a sequence; the logits of the last.
pub(crate) fn append(engine: &mut dyn Engine, seq: SeqId, tokens: &[u32]) -> Vec<f32> {
    let output = engine.compute(&[BatchItem::last(seq, tokens)]);
    output.unwrap().logits(0).to_vec()
}

/// Some tokens, and different ones by salt.
pub(crate) fn noise(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 41 + salt) % 2048).collect()
}

/// How far apart two rows of logits are at most, as a share of the largest of the second.
pub(crate) fn apart(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    apart.fold(0.0_f32, f32::max) / largest
}

/// Shapes of a Llama of one layer, or a Mistral if it has a window, with as many heads of keys and values as of queries.
pub(crate) struct OneLayer {
    pub(crate) d_model: u64,
    pub(crate) d_ff: u64,
    pub(crate) n_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) vocab: u64,
    pub(crate) n_ctx: u64,
    /// Tokens that attention sees.
    pub(crate) window: Option<u64>,
}

impl OneLayer {
    /// Writes the model with random weights in bf16 into a folder, and opens it.
    pub(crate) fn write(&self, dir: &Path) -> Arc<LoadedModel> {
        let (architecture, model_type) = match self.window {
            Some(_) => ("MistralForCausalLM", "mistral"),
            None => ("LlamaForCausalLM", "llama"),
        };
        let config = json!({
            "architectures": [architecture], "model_type": model_type,
            "sliding_window": self.window,
            "num_hidden_layers": 1, "hidden_size": self.d_model,
            "intermediate_size": self.d_ff, "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_heads, "head_dim": self.head_dim,
            "vocab_size": self.vocab, "max_position_embeddings": self.n_ctx,
            "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "tie_word_embeddings": true,
            "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
            "torch_dtype": "bfloat16"
        });
        std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
        std::fs::write(dir.join("model.safetensors"), self.safetensors()).unwrap();
        Arc::new(LoadedModel::open(dir).unwrap())
    }

    fn shapes(&self) -> Vec<(String, Vec<u64>)> {
        let layer = |name: &str| format!("model.layers.0.{name}.weight");
        let (d_model, width) = (self.d_model, self.n_heads * self.head_dim);
        vec![
            (
                "model.embed_tokens.weight".to_owned(),
                vec![self.vocab, d_model],
            ),
            ("model.norm.weight".to_owned(), vec![d_model]),
            (layer("input_layernorm"), vec![d_model]),
            (layer("self_attn.q_proj"), vec![width, d_model]),
            (layer("self_attn.k_proj"), vec![width, d_model]),
            (layer("self_attn.v_proj"), vec![width, d_model]),
            (layer("self_attn.o_proj"), vec![d_model, width]),
            (layer("post_attention_layernorm"), vec![d_model]),
            (layer("mlp.gate_proj"), vec![self.d_ff, d_model]),
            (layer("mlp.up_proj"), vec![self.d_ff, d_model]),
            (layer("mlp.down_proj"), vec![d_model, self.d_ff]),
        ]
    }

    fn safetensors(&self) -> Vec<u8> {
        let mut state = self.vocab;
        let mut header = Map::new();
        let mut data: Vec<u8> = Vec::new();
        for (name, shape) in self.shapes() {
            let (start, n) = (data.len(), shape.iter().product::<u64>());
            let size = match shape[..] {
                [_, k] => 3.0 / (k as f32).sqrt(),
                _ => 1.0,
            };
            for _ in 0..n {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let uniform = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
                data.extend(half::bf16::from_f32(uniform * size).to_le_bytes());
            }
            let tensor =
                json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, data.len()] });
            header.insert(name, tensor);
        }
        let header = serde_json::to_string(&header).unwrap();
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), &data].concat()
    }
}
