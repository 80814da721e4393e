//! Experts: a tensor each in folders, stacked in GGUF files.

use millrace_quant::DType;
use millrace_testkit::Golden;

use super::*;

/// Qwen 3's experts, in F32 and in a format of blocks, there and back: names, shapes and numbers.
#[test]
fn experts_are_stacked_and_taken_apart() {
    let golden = Golden::named("qwen3moe");
    let source = Checkpoint::open(golden.hf()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let gguf = dir.path().join("m.gguf");
    convert(&source, &gguf, "F32").unwrap();
    let stacked = Checkpoint::open(&gguf).unwrap();
    let folder = dir.path().join("back");
    convert(&stacked, &folder, "F32").unwrap();
    let back = Checkpoint::open(&folder).unwrap();
    let (n_experts, d_ff, d_model) = (6, 24, 40);
    for (role, module, [n, k]) in [
        ("gate", "gate_proj", [d_ff, d_model]),
        ("up", "up_proj", [d_ff, d_model]),
        ("down", "down_proj", [d_model, d_ff]),
    ] {
        let name = format!("blk.1.ffn_{role}_exps.weight");
        let all = numbers(&stacked, &name, [n_experts * n, k]);
        let found = stacked.tensor(&name).unwrap().info.shape.clone();
        assert_eq!(found, [n_experts, n, k]);
        for (expert, of_stack) in all.chunks_exact(n * k).enumerate() {
            let name = format!("model.layers.1.mlp.experts.{expert}.{module}.weight");
            let before = numbers(&source, &name, [n, k]);
            assert_eq!(before, of_stack, "{name}");
            assert_eq!(before, numbers(&back, &name, [n, k]), "{name}");
        }
    }
    assert_eq!(source.tensors().len(), back.tensors().len());
}

/// llama.cpp's choices: experts as what is dense, routers in F32.
#[test]
fn experts_get_the_formats_of_dense_networks() {
    let golden = Golden::named("qwen2moe");
    let source = Checkpoint::open(golden.hf()).unwrap();
    let dtypes = |source: &Checkpoint, recipe: &str, name: &str| {
        let plan = Conversion::new(source, target(Path::new("m.gguf"), recipe)).unwrap();
        let planned = plan.tensors().iter().find(|tensor| tensor.name == name);
        planned.unwrap().tensor_type
    };
    let dir = tempfile::tempdir().unwrap();
    let gguf = dir.path().join("m.gguf");
    convert(&source, &gguf, "F16").unwrap();
    let from_gguf = Checkpoint::open(&gguf).unwrap();
    for source in [&source, &from_gguf] {
        for (recipe, name, expected) in [
            ("Q8_0", "ffn_gate_inp", DType::F32),
            ("F16", "ffn_gate_inp", DType::F32),
            ("F16", "ffn_gate_exps", DType::F16),
            // Rows of 64 and of 24: neither holds a block of 256.
            ("Q4_K_M", "ffn_gate_exps", DType::Q5_0),
            ("Q4_K_M", "ffn_down_exps", DType::F16),
            ("Q4_K_M", "ffn_down_shexp", DType::Q8_0),
            ("MXFP4", "ffn_up_exps", DType::Mxfp4),
            ("MXFP4", "attn_q", DType::Q8_0),
            ("Q8_0", "ffn_up_shexp", DType::Q8_0),
        ] {
            let found = dtypes(source, recipe, &format!("blk.1.{name}.weight"));
            assert_eq!(
                found,
                millrace_format::TensorType::Weights(expected),
                "{recipe} {name}"
            );
        }
    }
}
