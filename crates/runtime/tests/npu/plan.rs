//! The plans of Llama-3.2-1B, sixteen layers, without its data: dispatches as MLIR-AIR's Llama-3.2-1B example counts them.

use millrace_runtime::LoadedModel;
use millrace_xdna2::lower::{self, LowerOptions, Mode, Plan};
use millrace_xdna2_machine::Machine;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

const N_LAYERS: usize = 16;

/// A model folder whose weights are a hole in a file: shapes only.
fn write_hollow(dir: &Path) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "num_hidden_layers": N_LAYERS, "hidden_size": 2048, "intermediate_size": 8192,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "vocab_size": 128_256, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0, "tie_word_embeddings": true, "hidden_act": "silu",
        "attention_bias": false, "mlp_bias": false, "torch_dtype": "bfloat16",
        "rope_scaling": {
            "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192
        }
    });
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![128_256, 2048]),
        ("model.norm.weight".to_owned(), vec![2048]),
    ];
    for layer in 0..N_LAYERS {
        for (name, shape) in [
            ("input_layernorm", vec![2048]),
            ("self_attn.q_proj", vec![2048, 2048]),
            ("self_attn.k_proj", vec![512, 2048]),
            ("self_attn.v_proj", vec![512, 2048]),
            ("self_attn.o_proj", vec![2048, 2048]),
            ("post_attention_layernorm", vec![2048]),
            ("mlp.gate_proj", vec![8192, 2048]),
            ("mlp.up_proj", vec![8192, 2048]),
            ("mlp.down_proj", vec![2048, 8192]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    let mut header = Map::new();
    let mut end = 0_u64;
    for (name, shape) in shapes {
        let start = end;
        end += 2 * shape.iter().product::<u64>();
        let tensor = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] });
        header.insert(name, tensor);
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut file = File::create(dir.join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + end - 1).unwrap();
    // Zeros up to the end would be an unfinished download.
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(&[1]).unwrap();
}

/// Calls by program, and of each program its launches.
fn calls(plan: &Plan) -> BTreeMap<String, (usize, usize)> {
    let mut calls = BTreeMap::new();
    for call in plan.calls() {
        let planned = &plan.programs[call.program];
        let name = planned.name().to_owned();
        calls.entry(name).or_insert((0, planned.launches.len())).0 += 1;
    }
    calls
}

#[test]
fn dispatches_are_those_of_the_example() {
    let dir = tempfile::tempdir().unwrap();
    write_hollow(dir.path());
    let model = LoadedModel::open(dir.path()).unwrap();
    let graph = &model.model().graph;
    let machine = Machine::npu2();
    let options = LowerOptions::new(Mode::MlirAir, 2048);
    let prefill = lower::prefill(graph, &machine, &options).unwrap();
    assert_eq!(prefill.calls().count(), 49);
    let expected = |rows: &[(&str, usize, usize)]| -> BTreeMap<String, (usize, usize)> {
        let rows = rows.iter();
        rows.map(|&(name, n, launches)| (name.to_owned(), (n, launches)))
            .collect()
    };
    let head = ("lm_head_gemv", 1, 8);
    let rows = [
        ("rms_gemms_rope", 16, 6),
        ("flash_attn", 16, 1),
        ("o_ffn", 16, 8),
        head,
    ];
    assert_eq!(calls(&prefill), expected(&rows));
    let decode = lower::decode(graph, &machine, &LowerOptions::new(Mode::MlirAir, 1)).unwrap();
    assert_eq!(decode.calls().count(), 33);
    let rows = [("rms_gemv_rope", 16, 6), ("o_gemv_ffn", 16, 8), head];
    assert_eq!(calls(&decode), expected(&rows));
}
