//! Metadata and side files.

use millrace_format::gguf::{self, GgufValue};
use millrace_format::{TensorType, hf};
use serde_json::json;

use super::*;

fn text(checkpoint: &Checkpoint, key: &str) -> String {
    checkpoint
        .gguf()
        .unwrap()
        .get_str(key)
        .unwrap()
        .unwrap()
        .to_owned()
}

#[test]
fn requantising_keeps_metadata_and_unknown_tensors() {
    let model = ModelFolder::random("llama-tiny", "F16", "in.gguf");
    // The same file with a note and a tensor that no family knows.
    let source = model.open();
    let mut metadata = source.gguf().unwrap().clone();
    metadata.insert("general.license", "mit");
    metadata.insert("split.count", 1u16);
    let mut specs: Vec<TensorSpec> = source.tensors().iter().map(TensorSpec::from).collect();
    specs.push(TensorSpec::new("extra.table", DType::Q5_1, &[2, 32]));
    let path = model.beside("more.gguf");
    let mut writer = gguf::Writer::create(&path, &metadata, &specs).unwrap();
    for tensor in source.iter() {
        writer.write(&tensor.info.name, tensor.bytes).unwrap();
    }
    let extra: Vec<u8> = (0..48).collect();
    writer.write("extra.table", &extra).unwrap();
    writer.commit().unwrap();

    let source = Checkpoint::open(&path).unwrap();
    let out = model.beside("out.gguf");
    let summary = convert(&source, &out, "Q4_K_M").unwrap();
    let result = Checkpoint::open(&out).unwrap();
    let found = result.gguf().unwrap();
    assert_eq!(found.get_u32("general.file_type").unwrap(), Some(15));
    assert_eq!(found.get("split.count"), None);
    for (key, value) in metadata.iter() {
        if key != "general.file_type" && key != "split.count" {
            assert_eq!(found.get(key), Some(value), "{key}");
        }
    }
    assert_eq!(result.require("extra.table").unwrap().bytes, extra);
    let order = |checkpoint: &Checkpoint| -> Vec<String> {
        checkpoint
            .tensors()
            .iter()
            .map(|info| info.name.clone())
            .collect()
    };
    assert_eq!(order(&source), order(&result));
    let dtype = |name: &str| result.require(name).unwrap().info.tensor_type;
    assert_eq!(dtype("token_embd.weight"), TensorType::Weights(DType::Q6K));
    assert_eq!(
        dtype("blk.0.attn_q.weight"),
        TensorType::Weights(DType::Q4K)
    );
    assert_eq!(
        dtype("blk.0.attn_norm.weight"),
        TensorType::Weights(DType::F32)
    );
    assert_eq!(summary.n_tensors, specs.len());
    assert_eq!(summary.written_bytes, result.size_bytes());
    let by_type: u64 = summary.by_type.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(by_type, summary.written_bytes);
    assert_eq!(summary.files, [out]);
}

#[test]
fn a_folder_gives_a_gguf_file_its_metadata() {
    let model = ModelFolder::random("gemma-tiny", "BF16", "my-model");
    let template = "{{ bos_token }}{{ messages[0].content }}";
    std::fs::write(model.path.join("chat_template.jinja"), template).unwrap();
    let generation = json!({ "do_sample": true, "top_k": 64, "top_p": 0.95 });
    std::fs::write(
        model.path.join("generation_config.json"),
        generation.to_string(),
    )
    .unwrap();
    let result = model.convert("out.gguf", "Q8_0");
    assert_eq!(text(&result, "general.architecture"), "gemma3");
    assert_eq!(text(&result, "general.name"), "my-model");
    assert_eq!(text(&result, "tokenizer.chat_template"), template);
    let metadata = result.gguf().unwrap();
    assert_eq!(metadata.iter().next().unwrap().0, "general.architecture");
    assert_eq!(metadata.get_u32("general.file_type").unwrap(), Some(7));
    assert_eq!(
        metadata.get_u32("gemma3.attention.sliding_window").unwrap(),
        Some(32)
    );
    assert_eq!(
        metadata.get_i32("general.sampling.top_k").unwrap(),
        Some(64)
    );
    assert_eq!(
        metadata.get_f32("general.sampling.top_p").unwrap(),
        Some(0.95)
    );
    assert_eq!(
        metadata
            .get_str_array("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap()
            .len(),
        512
    );

    convert(&result, &model.beside("back"), "F16").unwrap();
    let back = hf::Files::read(&model.beside("back")).unwrap();
    assert_eq!(back.chat_template.unwrap(), template);
    let config = back.config.unwrap();
    assert_eq!(
        (&config["model_type"], &config["dtype"]),
        (&json!("gemma3_text"), &json!("float16"))
    );
    let generation = back.generation_config.unwrap();
    assert_eq!(
        (&generation["top_k"], &generation["top_p"]),
        (&json!(64), &json!(0.95))
    );
    assert!(back.tokenizer_json.is_some() && back.tokenizer_config.is_some());
}

#[test]
fn a_folder_without_a_tokenizer_is_converted_with_a_note() {
    let model = ModelFolder::flat(&config_of("llama-tiny"));
    let source = model.open();
    let out = model.beside("out.gguf");
    let plan = Conversion::new(&source, target(&out, "Q4_0")).unwrap();
    assert!(
        plan.notes()[0].contains("tokenizer.json"),
        "{:?}",
        plan.notes()
    );
    plan.write(&out, 1, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let result = Checkpoint::open(&out).unwrap();
    assert_eq!(text(&result, "tokenizer.ggml.model"), "no_vocab");
    convert(&result, &model.beside("back"), "F32").unwrap();
    let files = ["config.json", "model.safetensors"];
    assert_eq!(names_in(&model.beside("back")), files);
}

#[test]
fn between_folders_everything_else_stays_as_it_is() {
    let model = ModelFolder::random("llama-tiny", "F32", "in");
    let config = std::fs::read_to_string(model.path.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["made_by"] = json!("a test");
    config["torch_dtype"] = json!("float32");
    std::fs::write(model.path.join("config.json"), config.to_string()).unwrap();
    std::fs::write(model.path.join("special_tokens_map.json"), "{}").unwrap();
    let result = model.convert("out", "BF16");
    let found = result.hf().unwrap();
    config["torch_dtype"] = json!("bfloat16");
    assert_eq!(found.config, Some(config));
    assert_eq!(
        found.tokenizer_json,
        model.open().hf().unwrap().tokenizer_json
    );
    assert!(model.beside("out").join("special_tokens_map.json").exists());
    let bf16 = TensorType::Weights(DType::BF16);
    assert!(result.tensors().iter().all(|info| info.tensor_type == bf16));
    // In place too: the files are replaced when all is done.
    convert(&model.open(), &model.path, "F16").unwrap();
    let f16 = TensorType::Weights(DType::F16);
    assert!(
        model
            .open()
            .tensors()
            .iter()
            .all(|info| info.tensor_type == f16)
    );
}

/// An older folder has the vocabulary and the merges alone; its class says how texts are split.
#[test]
fn a_vocabulary_and_its_merges_become_the_same_tokenizer() {
    let model = ModelFolder::random("llama-tiny", "F32", "in");
    let path = |name: &str| model.path.join(name);
    let whole = std::fs::read(path("tokenizer.json")).unwrap();
    let whole: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    let expected = model.convert("whole.gguf", "F32");
    std::fs::remove_file(path("tokenizer.json")).unwrap();
    std::fs::write(path("vocab.json"), whole["model"]["vocab"].to_string()).unwrap();
    let merges = whole["model"]["merges"].as_array().unwrap();
    let line = |merge: &serde_json::Value| match merge.as_array() {
        Some(pair) => format!(
            "{} {}\n",
            pair[0].as_str().unwrap(),
            pair[1].as_str().unwrap()
        ),
        None => format!("{}\n", merge.as_str().unwrap()),
    };
    let lines: String = merges.iter().map(line).collect();
    std::fs::write(path("merges.txt"), format!("#version: 0.2\n{lines}")).unwrap();
    // The names of special tokens, and the class.
    let mut config = json!({"tokenizer_class": "GPT2TokenizerFast", "eos_token": "<|end|>",
        "bos_token": null, "unk_token": null});
    std::fs::write(path("tokenizer_config.json"), config.to_string()).unwrap();
    let result = model.convert("separate.gguf", "F32");
    let (found, expected) = (result.gguf().unwrap(), expected.gguf().unwrap());
    for key in ["model", "pre", "tokens", "merges", "add_bos_token"] {
        let key = format!("tokenizer.ggml.{key}");
        assert_eq!(found.get(&key), expected.get(&key), "{key}");
    }
    let eos = found.get_u32("tokenizer.ggml.eos_token_id").unwrap();
    let tokens = found.get_str_array("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.unwrap()[eos.unwrap() as usize], "<|end|>");
    // A class that is not known says nothing of how texts are split.
    config["tokenizer_class"] = json!("BioGptTokenizer");
    std::fs::write(path("tokenizer_config.json"), config.to_string()).unwrap();
    let result = model.convert("unknown.gguf", "F32");
    assert_eq!(text(&result, "tokenizer.ggml.model"), "no_vocab");
}

/// `ModelProto` of SentencePiece: pieces with their kinds.
fn sentence_piece_model(pieces: &[(String, u8)]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let head = [number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        [&head, bytes].concat()
    };
    let piece = |(text, kind): &(String, u8)| {
        let score = [0x15, 0, 0, 0, 0];
        let body = [&field(1, text.as_bytes())[..], &score, &[0x18, *kind]].concat();
        field(1, &body)
    };
    pieces.iter().flat_map(piece).collect()
}

#[test]
fn pieces_of_a_sentencepiece_model_become_a_vocabulary() {
    let model = ModelFolder::random("llama-tiny", "F32", "in");
    let path = |name: &str| model.path.join(name);
    std::fs::remove_file(path("tokenizer.json")).unwrap();
    let named = |text: &str, kind: u8| (text.to_owned(), kind);
    let mut pieces = vec![named("<unk>", 2), named("<s>", 3), named("</s>", 3)];
    pieces.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 6)));
    pieces.extend(["▁", "a", "b", "ab", "▁ab"].map(|text| named(text, 1)));
    std::fs::write(path("tokenizer.model"), sentence_piece_model(&pieces)).unwrap();
    let config = json!({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true});
    std::fs::write(path("tokenizer_config.json"), config.to_string()).unwrap();
    let result = model.convert("pieces.gguf", "F32");
    assert_eq!(text(&result, "tokenizer.ggml.model"), "llama");
    let found = result.gguf().unwrap();
    let tokens = found
        .get_str_array("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap();
    for ((text, _), token) in pieces.iter().zip(tokens) {
        assert_eq!(text, token);
    }
    for (key, id) in [("bos", 1), ("eos", 2), ("unknown", 0)] {
        let key = format!("tokenizer.ggml.{key}_token_id");
        assert_eq!(found.get_u32(&key).unwrap(), Some(id), "{key}");
    }
    std::fs::write(path("tokenizer.model"), "no model").unwrap();
    let source = model.open();
    let error = Conversion::new(&source, target(Path::new("x.gguf"), "F32"));
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.model"), "{error}");
}

#[test]
fn rows_that_do_not_divide_are_reported() {
    let mut config = config_of("qwen-tiny");
    (config.d_model, config.d_ff) = (288, 1000);
    let model = ModelFolder::flat(&config);
    let source = model.open();
    let plan = Conversion::new(&source, target(Path::new("x.gguf"), "Q4_K_M")).unwrap();
    let found: Vec<(&str, DType, DType)> = plan
        .fallbacks()
        .iter()
        .filter(|fallback| fallback.tensor.starts_with("blk.1."))
        .map(|fallback| (fallback.tensor.as_str(), fallback.wanted, fallback.given))
        .collect();
    let expected = [
        ("blk.1.attn_q.weight", DType::Q4K, DType::Q5_0),
        ("blk.1.attn_k.weight", DType::Q4K, DType::Q5_0),
        ("blk.1.attn_v.weight", DType::Q6K, DType::Q8_0),
        ("blk.1.ffn_gate.weight", DType::Q4K, DType::Q5_0),
        ("blk.1.ffn_up.weight", DType::Q4K, DType::Q5_0),
        ("blk.1.ffn_down.weight", DType::Q6K, DType::F16),
    ];
    assert_eq!(found, expected);
    let plan = Conversion::new(&source, target(Path::new("x"), "Q4NX")).unwrap();
    assert!(
        plan.fallbacks()
            .iter()
            .all(|fallback| fallback.given == DType::BF16)
    );
    let result = model.convert("out.gguf", "Q4_K_M");
    let metadata = result.gguf().unwrap();
    assert_eq!(
        metadata.get("general.quantization_version"),
        Some(&GgufValue::U32(2))
    );
}

#[test]
fn tensors_of_other_models_are_skipped_and_named() {
    let config = config_of("qwen-tiny");
    let model = ModelFolder::flat(&config);
    // The folder's weights once more, with a vision encoder beside them.
    let source = model.open();
    let path = model.beside("eyes");
    std::fs::create_dir(&path).unwrap();
    let mut specs: Vec<TensorSpec> = source.tensors().iter().map(TensorSpec::from).collect();
    specs.push(TensorSpec::new(
        "vision_tower.patch.weight",
        DType::F32,
        &[4, 3, 2, 2],
    ));
    let mut writer = ShardedWriter::create(&path, &BTreeMap::new(), &specs, 1 << 20).unwrap();
    for tensor in source.iter() {
        writer.write(&tensor.info.name, tensor.bytes).unwrap();
    }
    writer
        .write("vision_tower.patch.weight", &[0; 192])
        .unwrap();
    assert!(writer.commit().unwrap().len() > 2, "the model is sharded");
    std::fs::copy(model.path.join("config.json"), path.join("config.json")).unwrap();
    let source = Checkpoint::open(&path).unwrap();
    let plan = Conversion::new(&source, target(Path::new("x.gguf"), "Q8_0")).unwrap();
    assert_eq!(plan.skipped(), ["vision_tower.patch.weight"]);
    // Between folders it stays.
    convert(&source, &model.beside("out"), "F16").unwrap();
    let result = Checkpoint::open(&model.beside("out")).unwrap();
    assert_eq!(
        result
            .require("vision_tower.patch.weight")
            .unwrap()
            .info
            .shape,
        [4, 3, 2, 2]
    );
}
