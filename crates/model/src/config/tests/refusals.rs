use super::*;

fn read_gguf(change: impl FnOnce(&mut Metadata)) -> Result<ModelConfig, Error> {
    let config = ModelGeometry::named("llama-tiny").unwrap().config(None);
    let mut metadata = gguf::write(&config).unwrap();
    change(&mut metadata);
    let name = TensorName::global(WeightRole::TokenEmbedding);
    let tensors = [TensorInfo {
        name: name.gguf(),
        tensor_type: TensorType::Weights(DType::F32),
        shape: config.shape_of(name),
        nominal_shape: false,
        file: 0,
        offset: 0,
        size_bytes: 0,
    }];
    gguf::read(
        &metadata,
        &Catalog::new("test", Source::Gguf, &tensors),
        gguf::RopeTables::default(),
    )
}

#[test]
fn gguf_refusals_name_the_key() {
    assert!(read_gguf(|_| {}).is_ok());
    let text = |value: &str| GgufValue::Str(value.into());
    let cases = [
        ("general.architecture", text("rwkv6")),
        ("llama.expert_count", GgufValue::U32(8)),
        ("llama.attention.causal", GgufValue::Bool(false)),
        ("llama.attention.value_length", GgufValue::U32(32)),
        ("llama.rope.scaling.type", text("xpos")),
        (
            "llama.attention.head_count",
            GgufValue::Array(GgufArray::U32(vec![4, 8])),
        ),
        ("llama.block_count", GgufValue::Str("four".into())),
        ("llama.rope.scaling.attn_factor", GgufValue::F32(1.2)),
    ];
    for (key, value) in cases {
        let error = read_gguf(|metadata| {
            metadata.insert(key, value);
        });
        let error = error.unwrap_err().to_string();
        assert!(
            ["rwkv6", "expert"].iter().any(|word| error.contains(word)) || error.contains(key),
            "{key}: {error}"
        );
    }
    for key in [
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
    ] {
        let error = read_gguf(|metadata| metadata.retain(|other| other != key)).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    let uniform = GgufValue::Array(GgufArray::U32(vec![4; 4]));
    let config = read_gguf(|metadata| {
        metadata.insert("llama.attention.head_count", uniform);
    });
    assert_eq!(config.unwrap().n_heads, 4);
}

/// Heads that draft for another model are not models, whichever family their configuration names.
#[test]
fn heads_that_draft_are_refused_with_the_reason() {
    let heads = [
        ("llama", "LlamaForCausalLMEagle3"),
        ("muse_glimmer_assistant", "MuseGlimmerAssistantModel"),
    ];
    for (model_type, class) in heads {
        let changes = json!({ "model_type": model_type, "architectures": [class] });
        let error = read_hf(&with(&llama(), changes)).unwrap_err().to_string();
        assert!(
            error.contains("model that it helps") && error.contains("--draft"),
            "{class}: {error}"
        );
    }
    for architecture in ["eagle3", "dflash"] {
        let error = read_gguf(|metadata| {
            metadata.insert("general.architecture", architecture);
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains(architecture) && error.contains("model that it helps"),
            "{error}"
        );
    }
}
