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

/// llama.cpp's choices: experts as dense networks, routers in F32.
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

/// transformers' blocks and scales of an expert weight, of GGUF's blocks of MXFP4: neighbours share a byte there.
fn mxfp4_parts(blocks: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut nibbles, mut scales) = (Vec::new(), Vec::new());
    for block in blocks.chunks_exact(17) {
        scales.push(block[0]);
        let element = |i: usize| match i {
            0..16 => block[1 + i] & 15,
            _ => block[1 + i - 16] >> 4,
        };
        nibbles.extend((0..16).map(|i| element(2 * i) | element(2 * i + 1) << 4));
    }
    (nibbles, scales)
}

/// Alternating rows of two tensors.
fn in_turns(a: &[u8], b: &[u8], row_bytes: usize) -> Vec<u8> {
    let rows = a.chunks_exact(row_bytes).zip(b.chunks_exact(row_bytes));
    rows.flat_map(|(a, b)| [a, b].concat()).collect()
}

/// gpt-oss as it is published: experts in two tensors of bytes, with alternating gates and up projections. They are
/// copied into a GGUF file bit for bit.
#[test]
fn published_blocks_of_gpt_oss_become_ggufs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let golden = Golden::named("gpt-oss");
    let float = Checkpoint::open(&golden.gguf().unwrap()).unwrap();
    convert(&float, &path("mxfp4.gguf"), "MXFP4").unwrap();
    let expected = Checkpoint::open(&path("mxfp4.gguf")).unwrap();
    let (n_experts, d_ff, d_model) = (5, 32, 64);
    let u8s = millrace_format::TensorType::Plain(millrace_format::PlainType::U8);
    let mut tensors: Vec<(TensorSpec, Vec<u8>)> = Vec::new();
    for layer in 0..2 {
        let bytes = |role: &str| {
            let name = format!("blk.{layer}.ffn_{role}_exps.weight");
            let tensor = expected.tensor(&name).unwrap();
            assert_eq!(tensor.dtype().unwrap(), DType::Mxfp4);
            mxfp4_parts(tensor.bytes)
        };
        let ((gate, gate_scales), (up, up_scales)) = (bytes("gate"), bytes("up"));
        let (down, down_scales) = bytes("down");
        let n_blocks = [d_model / 32, d_ff / 32];
        let mut push = |name: &str, shape: &[usize], bytes| {
            let spec = TensorSpec {
                name: format!("model.layers.{layer}.mlp.experts.{name}"),
                tensor_type: u8s,
                shape: shape.to_vec(),
            };
            tensors.push((spec, bytes));
        };
        let both = in_turns(&gate, &up, n_blocks[0] * 16);
        push(
            "gate_up_proj_blocks",
            &[n_experts, 2 * d_ff, n_blocks[0], 16],
            both,
        );
        let both = in_turns(&gate_scales, &up_scales, n_blocks[0]);
        push(
            "gate_up_proj_scales",
            &[n_experts, 2 * d_ff, n_blocks[0]],
            both,
        );
        push(
            "down_proj_blocks",
            &[n_experts, d_model, n_blocks[1], 16],
            down,
        );
        push(
            "down_proj_scales",
            &[n_experts, d_model, n_blocks[1]],
            down_scales,
        );
    }
    let hf = Checkpoint::open(golden.hf()).unwrap();
    for info in hf.tensors() {
        let is_of_blocks =
            info.name.ends_with("experts.gate_up_proj") || info.name.ends_with("experts.down_proj");
        if !is_of_blocks {
            let bytes = hf.tensor(&info.name).unwrap().bytes.to_vec();
            tensors.push((TensorSpec::from(info), bytes));
        }
    }
    let folder = path("published");
    std::fs::create_dir(&folder).unwrap();
    let specs: Vec<TensorSpec> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
    let mut writer = ShardedWriter::create(&folder, &BTreeMap::new(), &specs, 1 << 30).unwrap();
    for (spec, bytes) in &tensors {
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
    let mut config = hf.hf().unwrap().config.clone().unwrap();
    config["quantization_config"] = serde_json::json!({ "quant_method": "mxfp4" });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let published = Checkpoint::open(&folder).unwrap();
    convert(&published, &path("again.gguf"), "MXFP4").unwrap();
    let again = Checkpoint::open(&path("again.gguf")).unwrap();
    for info in expected.tensors() {
        let found = again.tensor(&info.name).unwrap();
        assert!(
            found.bytes == expected.tensor(&info.name).unwrap().bytes,
            "{}",
            info.name
        );
    }
    // Back to a folder of plain numbers, transposed and alternating as transformers has them.
    convert(&again, &path("back"), "BF16").unwrap();
    let back = Checkpoint::open(&path("back")).unwrap();
    let name = "model.layers.1.mlp.experts.gate_up_proj";
    let shape = [n_experts * d_model, 2 * d_ff];
    let turned = numbers(&back, name, shape);
    let up = numbers(
        &expected,
        "blk.1.ffn_up_exps.weight",
        [n_experts * d_ff, d_model],
    );
    for (expert, row, column) in [(0, 0, 0), (3, 17, 40), (4, 31, 63)] {
        let found = turned[(expert * d_model + column) * 2 * d_ff + 2 * row + 1];
        assert_eq!(found, up[(expert * d_ff + row) * d_model + column]);
    }
}

/// Published folders of Qwen 3 VL hold transposed matrices of experts; transformers 5 writes them as they are multiplied.
#[test]
fn experts_that_lie_turned_convert_as_others_do() {
    let golden = Golden::named("qwen3vlmoe");
    let published = Checkpoint::open(golden.hf()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("plain");
    std::fs::create_dir(&folder).unwrap();
    let mut tensors = Vec::new();
    for info in published.tensors() {
        let mut spec = TensorSpec::from(info);
        let mut bytes = published.tensor(&info.name).unwrap().bytes.to_vec();
        if let [_, n, k] = info.shape[..] {
            spec.shape = vec![info.shape[0], k, n];
            let matrices = bytes.chunks_exact(4 * n * k);
            bytes = matrices
                .flat_map(|matrix| {
                    (0..n * k).flat_map(|i| matrix[4 * (i % n * k + i / n)..][..4].to_vec())
                })
                .collect();
        }
        tensors.push((spec, bytes));
    }
    let specs: Vec<TensorSpec> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
    let mut writer = ShardedWriter::create(&folder, &BTreeMap::new(), &specs, 1 << 30).unwrap();
    for (spec, bytes) in &tensors {
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
    let config = published.hf().unwrap().config.clone().unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let path = |name: &str| dir.path().join(name);
    convert(&published, &path("turned.gguf"), "F32").unwrap();
    convert(
        &Checkpoint::open(&folder).unwrap(),
        &path("plain.gguf"),
        "F32",
    )
    .unwrap();
    let [plain, turned] =
        ["plain.gguf", "turned.gguf"].map(|name| Checkpoint::open(&path(name)).unwrap());
    assert!(plain.tensor("blk.1.ffn_up_exps.weight").is_some());
    for info in plain.tensors() {
        let found = turned.tensor(&info.name).unwrap();
        assert_eq!(found.info.shape, info.shape);
        assert!(
            found.bytes == plain.tensor(&info.name).unwrap().bytes,
            "{}",
            info.name
        );
    }
}
