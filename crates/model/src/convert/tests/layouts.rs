//! Effects of each pair of layouts on numbers.

use millrace_format::{PlainType, TensorType, safetensors};
use millrace_quant::DType;

use super::*;
use millrace_graph::{Embed, Linear, Op, RopeStyle};

fn model_of(checkpoint: &Checkpoint) -> crate::Model {
    crate::Model::from_checkpoint(checkpoint).unwrap()
}

/// `sqrt(Σ(found − expected)² / Σ expected²)`
fn relative_rms(expected: &[f32], found: &[f32]) -> f64 {
    let pairs = expected.iter().zip(found);
    let error: f64 = pairs.map(|(e, f)| f64::from(e - f).powi(2)).sum();
    let norm: f64 = expected.iter().map(|e| f64::from(*e).powi(2)).sum();
    (error / norm).sqrt()
}

#[test]
fn a_folder_through_gguf_and_back_keeps_every_number() {
    for geometry in ["llama-tiny", "qwen-tiny", "gemma-tiny"] {
        let model = ModelFolder::random(geometry, "F32", "in");
        let source = model.open();
        let gguf = model.convert("middle.gguf", "F32");
        convert(&gguf, &model.beside("out"), "F32").unwrap();
        let back = Checkpoint::open(&model.beside("out")).unwrap();
        assert_eq!(
            model_of(&source).config,
            model_of(&back).config,
            "{geometry}"
        );
        assert_eq!(source.tensors().len(), back.tensors().len());
        for tensor in source.iter() {
            let name = &tensor.info.name;
            let (before, after) = (
                numbers(&source, name, [tensor.n(), tensor.k()]),
                numbers(&back, name, [tensor.n(), tensor.k()]),
            );
            // Gemma's norms went through 1 + w.
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1.2e-7;
            let same = match geometry == "gemma-tiny" && name.contains("norm") {
                true => before.iter().zip(&after).all(close),
                false => before == after,
            };
            assert!(same, "{geometry} {name}");
        }
    }
}

#[test]
fn llama_gguf_files_pair_the_rows_that_rotate_together() {
    let model = ModelFolder::random("llama-tiny", "F32", "in");
    let (source, gguf) = (model.open(), model.convert("out.gguf", "F32"));
    let (k, head_dim) = (256, 64);
    for (hf_name, gguf_name, n_heads) in [("q_proj", "attn_q", 4), ("k_proj", "attn_k", 2)] {
        let shape = [n_heads * head_dim, k];
        let before = numbers(
            &source,
            &format!("model.layers.1.self_attn.{hf_name}.weight"),
            shape,
        );
        let after = numbers(&gguf, &format!("blk.1.{gguf_name}.weight"), shape);
        for row in 0..shape[0] {
            let (head, i) = (row / head_dim, row % head_dim);
            let from = head * head_dim + i / 2 + if i % 2 == 1 { head_dim / 2 } else { 0 };
            assert_eq!(
                after[row * k..][..k],
                before[from * k..][..k],
                "{gguf_name} row {row}"
            );
        }
    }
    let shape = [128, k];
    assert_eq!(
        numbers(&source, "model.layers.1.self_attn.v_proj.weight", shape),
        numbers(&gguf, "blk.1.attn_v.weight", shape)
    );
    let rope = |checkpoint: &Checkpoint| model_of(checkpoint).graph.ropes.remove(0);
    assert_eq!(rope(&gguf).style, RopeStyle::Interleaved);
    assert_eq!(rope(&source).style, RopeStyle::HalfSplit);
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * a;
    assert!(
        rope(&source)
            .inv_freq
            .iter()
            .zip(&rope(&gguf).inv_freq)
            .all(close)
    );
}

#[test]
fn biases_are_permuted_with_their_rows() {
    let mut config = config_of("llama-tiny");
    config.biases.qkv = true;
    config.biases.attn_output = true;
    let model = ModelFolder::flat(&config);
    let path = model.path.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let source = model.open();
    let bias = &source
        .require("model.layers.0.self_attn.q_proj.bias")
        .unwrap()
        .info
        .clone();
    for i in 0..256 {
        let at = bias.offset as usize + 4 * i;
        bytes[at..at + 4].copy_from_slice(&(i as f32).to_le_bytes());
    }
    drop(source);
    std::fs::write(&path, bytes).unwrap();
    let gguf = model.convert("out.gguf", "F16");
    let permuted = numbers(&gguf, "blk.0.attn_q.bias", [1, 256]);
    assert_eq!(permuted[..4], [0.0, 32.0, 1.0, 33.0]);
    assert_eq!(permuted[64..66], [64.0, 96.0]);
}

#[test]
fn gemma_norms_and_embeddings_follow_the_layout() {
    let model = ModelFolder::random("gemma-tiny", "F32", "in");
    let (source, gguf, bundle) = (
        model.open(),
        model.convert("out.gguf", "F32"),
        model.convert("bundle", "Q4NX"),
    );
    let norm = numbers(&source, "model.layers.2.input_layernorm.weight", [1, 256]);
    let gguf_norm = numbers(&gguf, "blk.2.attn_norm.weight", [1, 256]);
    let bundle_norm = numbers(&bundle, "model.layers.2.input_layernorm.weight", [1, 256]);
    for ((w, g), b) in norm.iter().zip(&gguf_norm).zip(&bundle_norm) {
        assert_eq!(w + 1.0, *g);
        assert!((g - b).abs() <= 0.004 * g, "BF16 has 8 bits");
    }
    let shape = [512, 256];
    let table = numbers(&source, "model.embed_tokens.weight", shape);
    assert_eq!(table, numbers(&gguf, "token_embd.weight", shape));
    // The head is the table, and is there once.
    assert!(bundle.tensor("model.embed_tokens.weight").is_none());
    let head = numbers(&bundle, "lm_head.weight", shape);
    assert!(relative_rms(&table, &head) <= 1.05 * DType::Q4nx.error_budget());
    let scale_of = |checkpoint: &Checkpoint| match model_of(checkpoint).graph.nodes[0].op {
        Op::Embed(Embed { scale, .. }) => scale,
        _ => 0.0,
    };
    let scale = 256f32.sqrt();
    assert_eq!(scale_of(&bundle), scale);
    // And back: the head is tied again.
    convert(&bundle, &model.beside("back.gguf"), "F32").unwrap();
    let back = Checkpoint::open(&model.beside("back.gguf")).unwrap();
    assert!(back.tensor("output.weight").is_none());
    assert_eq!(numbers(&back, "token_embd.weight", shape), head);

    // As other programs write it: a scaled table beside the head.
    let both = model.beside("both");
    std::fs::create_dir(&both).unwrap();
    let name = "model.embed_tokens.weight";
    let mut specs: Vec<TensorSpec> = bundle.iter().map(|t| TensorSpec::from(t.info)).collect();
    specs.push(TensorSpec::new(name, DType::F32, &shape));
    let path = both.join("model.q4nx");
    let mut writer = safetensors::Writer::create(&path, &BTreeMap::new(), &specs).unwrap();
    for tensor in bundle.iter() {
        writer.write(&tensor.info.name, tensor.bytes).unwrap();
    }
    let scaled: Vec<u8> = (table.iter().map(|t| t * scale))
        .flat_map(f32::to_le_bytes)
        .collect();
    writer.write(name, &scaled).unwrap();
    writer.commit().unwrap();
    std::fs::copy(model.path.join("config.json"), both.join("config.json")).unwrap();
    let both = Checkpoint::open(&both).unwrap();
    assert_eq!(scale_of(&both), 1.0);
    convert(&both, &model.beside("again.gguf"), "F32").unwrap();
    let again = Checkpoint::open(&model.beside("again.gguf")).unwrap();
    let found = numbers(&again, "token_embd.weight", shape);
    let close = |(t, f): (&f32, &f32)| (t - f).abs() <= 0.004 * t.abs();
    assert!(table.iter().zip(&found).all(close));
}

/// Widths that end within a block are padded with zeros: no number of them is lost, nor added.
#[test]
fn a_bundles_tiles_reach_beyond_the_last_column() {
    let mut config = config_of("gemma-tiny");
    config.d_ff = 288;
    let model = ModelFolder::flat(&config);
    let (source, bundle) = (model.open(), model.convert("bundle", "Q4NX"));
    let name = "model.layers.1.mlp.down_proj.weight";
    let tensor = bundle.require(name).unwrap();
    assert_eq!(tensor.dtype().unwrap(), DType::Q4nx);
    let [n, k] = [config.d_model, 288];
    assert_eq!(tensor.info.shape, [n, k]);
    assert_eq!(tensor.bytes.len(), n / 32 * 2 * 5120);
    let (before, after) = (
        numbers(&source, name, [n, k]),
        numbers(&bundle, name, [n, k]),
    );
    assert!(relative_rms(&before, &after) <= 1.05 * DType::Q4nx.error_budget());
    let mut wide = vec![0.0; n * 512];
    millrace_quant::decode_rows(DType::Q4nx, tensor.bytes, n, 512, 0..n, &mut wide).unwrap();
    for (row, narrow) in wide.chunks(512).zip(after.chunks(k)) {
        assert_eq!(row[..k], *narrow);
        assert!(row[k..].iter().all(|x| *x == 0.0));
    }
}

#[test]
fn a_bundle_holds_projections_in_tiles_and_the_rest_in_bf16() {
    let model = ModelFolder::random("llama-tiny", "BF16", "in");
    let (source, bundle) = (model.open(), model.convert("bundle", "Q4NX"));
    for tensor in bundle.iter() {
        // The table is the head, too.
        let name = &tensor.info.name;
        let is_matrix = name.contains("_proj") || name.contains("embed_tokens");
        let expected = if is_matrix { DType::Q4nx } else { DType::BF16 };
        assert_eq!(tensor.dtype().unwrap(), expected, "{}", tensor.info.name);
    }
    let name = "model.layers.0.mlp.down_proj.weight";
    let shape = [256, 768];
    let error = relative_rms(
        &numbers(&source, name, shape),
        &numbers(&bundle, name, shape),
    );
    assert!(error <= 1.05 * DType::Q4nx.error_budget(), "{error}");
    // Values that were decoded once are decoded exactly the same on the way to GGUF.
    convert(&bundle, &model.beside("out.gguf"), "F32").unwrap();
    let gguf = Checkpoint::open(&model.beside("out.gguf")).unwrap();
    let found = numbers(&gguf, "blk.0.ffn_down.weight", shape);
    assert_eq!(found, numbers(&bundle, name, shape));
    let ops = model_of(&bundle).graph.nodes.len();
    assert_eq!(model_of(&gguf).graph.nodes.len(), ops);
}

#[test]
fn bundles_of_both_readings_and_without_shapes_are_read() {
    let model = ModelFolder::random("llama-tiny", "BF16", "in");
    let old = model.convert("old", "Q4NX_SUB");
    let name = "model.layers.2.self_attn.q_proj.weight";
    assert_eq!(old.require(name).unwrap().dtype().unwrap(), DType::Q4nxSub);
    // From one reading to the other the blocks are made anew.
    convert(&old, &model.beside("new"), "Q4NX").unwrap();
    let new = Checkpoint::open(&model.beside("new")).unwrap();
    let shape = [256, 256];
    let (before, after) = (numbers(&old, name, shape), numbers(&new, name, shape));
    assert!(relative_rms(&before, &after) < 0.1 * DType::Q4nx.error_budget());

    // As other programs write it: blocks as I8, and no record of the matrix.
    let bare = model.beside("bare");
    std::fs::create_dir(&bare).unwrap();
    let spec = |tensor: &millrace_format::Tensor<'_>| match tensor.dtype().unwrap() {
        DType::Q4nx => TensorSpec {
            name: tensor.info.name.clone(),
            tensor_type: TensorType::Plain(PlainType::I8),
            shape: vec![tensor.bytes.len() / 5120, 5120],
        },
        _ => TensorSpec::from(tensor.info),
    };
    let specs: Vec<TensorSpec> = new.iter().map(|tensor| spec(&tensor)).collect();
    let path = bare.join("model.q4nx");
    let mut writer = safetensors::Writer::create(&path, &BTreeMap::new(), &specs).unwrap();
    for tensor in new.iter() {
        writer.write(&tensor.info.name, tensor.bytes).unwrap();
    }
    writer.commit().unwrap();
    std::fs::copy(model.path.join("config.json"), bare.join("config.json")).unwrap();
    let bare = Checkpoint::open(&bare).unwrap();
    assert!(bare.require(name).unwrap().info.nominal_shape);
    convert(&bare, &model.beside("out.gguf"), "F32").unwrap();
    convert(&new, &model.beside("same.gguf"), "F32").unwrap();
    let open = |name: &str| Checkpoint::open(&model.beside(name)).unwrap();
    for (a, b) in open("out.gguf").iter().zip(open("same.gguf").iter()) {
        assert!(a.bytes == b.bytes, "{}", a.info.name);
    }
}

#[test]
fn every_family_arrives_as_itself() {
    let mut mistral = config_of("llama-tiny");
    mistral.family = "mistral";
    (mistral.window, mistral.layer_windowed) = (Some(16), vec![true; 2]);
    mistral.rope.scaling = crate::config::RopeScaling::None;
    let mut qwen2 = config_of("llama-tiny");
    qwen2.family = "qwen2";
    qwen2.biases.qkv = true;
    qwen2.rope.scaling = crate::config::RopeScaling::None;
    for config in [
        mistral,
        qwen2,
        config_of("qwen-tiny"),
        config_of("gemma-tiny"),
    ] {
        let model = ModelFolder::flat(&config);
        let gguf = model.convert("out.gguf", "Q8_0");
        let biased = |checkpoint: &Checkpoint| {
            let nodes = model_of(checkpoint).graph.nodes;
            nodes
                .iter()
                .filter(|node| matches!(node.op, Op::Linear(Linear { bias: Some(_), .. })))
                .count()
        };
        assert_eq!(biased(&model.open()), biased(&gguf), "{}", config.family);
        convert(&gguf, &model.beside("back"), "BF16").unwrap();
        let back = Checkpoint::open(&model.beside("back")).unwrap();
        assert_eq!(model_of(&back).config, config);
    }
}
