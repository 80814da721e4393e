//! Files that other programs wrote, and the contents that they must have. The fixtures and
//! `expected.json` come from `tools/make_format_fixtures.py`; the vocabularies from the llama.cpp
//! project.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use millrace_format::gguf::{GgufArray, GgufValue, Header, Writer};
use millrace_format::{Checkpoint, TensorSpec, safetensors};
use serde_json::Value as Json;

use crate::raw::is_error;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn expected(name: &str) -> Json {
    let all: Json = serde_json::from_slice(&fs::read(fixture("expected.json")).unwrap()).unwrap();
    all[name].clone()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_tensors(model: &Checkpoint, expected: &Json) {
    let expected = expected["tensors"].as_object().unwrap();
    assert_eq!(model.tensors().len(), expected.len());
    for (name, row) in expected {
        let tensor = model.require(name).unwrap();
        assert_eq!(tensor.info.tensor_type.name(), row["type"], "{name}");
        assert_eq!(
            serde_json::to_value(&tensor.info.shape).unwrap(),
            row["shape"],
            "{name}"
        );
        assert_eq!(hex(tensor.bytes), row["hex"], "{name}");
    }
}

fn to_json(value: &GgufValue) -> Json {
    match value {
        GgufValue::F32(v) => (*v).into(),
        GgufValue::F64(v) => (*v).into(),
        GgufValue::Bool(v) => (*v).into(),
        GgufValue::Str(v) => v.as_str().into(),
        GgufValue::Array(array) => array_to_json(array),
        GgufValue::U64(v) => (*v).into(),
        other => i64::try_from(other.as_int().unwrap()).unwrap().into(),
    }
}

fn array_to_json(array: &GgufArray) -> Json {
    (0..array.len())
        .map(|i| to_json(&array.get(i).unwrap()))
        .collect()
}

#[test]
fn gguf_files_of_the_reference_writer() {
    for name in [
        "v3.gguf",
        "v2.gguf",
        "align64.gguf",
        "split-00001-of-00003.gguf",
    ] {
        let name = format!("gguf/{name}");
        let model = Checkpoint::open(&fixture(&name)).unwrap();
        let expected = expected(&name);
        check_tensors(&model, &expected);
        let bytes = fs::read(fixture(&name)).unwrap();
        let header = Header::parse(&bytes, Path::new(&name)).unwrap();
        assert_eq!(expected["version"], header.version);
        assert_eq!(expected["alignment"], header.alignment);
        let metadata = model.gguf().unwrap();
        for (key, row) in expected["metadata"].as_object().unwrap() {
            let value = metadata
                .get(key)
                .unwrap_or_else(|| panic!("{name} has no {key}"));
            assert_eq!(value.type_name(), row[0], "{key}");
            assert_eq!(to_json(value), row[1], "{key}");
        }
    }
    let split = Checkpoint::open(&fixture("gguf/split-00003-of-00003.gguf")).unwrap();
    assert_eq!(split.files().len(), 3);
}

/// Our writer lays out the same metadata and tensors as the reference one does, to the byte.
#[test]
fn rewriting_a_reference_file_gives_the_same_bytes() {
    for name in ["gguf/v3.gguf", "gguf/align64.gguf"] {
        let model = Checkpoint::open(&fixture(name)).unwrap();
        let specs: Vec<_> = model.tensors().iter().map(TensorSpec::from).collect();
        let (sink, metadata) = (Cursor::new(Vec::new()), model.gguf().unwrap());
        let mut writer = Writer::new(sink, Path::new(name), metadata, &specs).unwrap();
        for tensor in model.iter() {
            writer.write(&tensor.info.name, tensor.bytes).unwrap();
        }
        let written = writer.finish().unwrap().into_inner();
        assert!(
            written == fs::read(fixture(name)).unwrap(),
            "{name} differs"
        );
    }
}

#[test]
fn a_big_endian_file_of_the_reference_writer() {
    let error = Checkpoint::open(&fixture("gguf/big_endian.gguf")).unwrap_err();
    is_error(
        &error,
        "BigEndian",
        &["big_endian.gguf", "big-endian", "version 3", "convert"],
    );
}

#[test]
fn safetensors_files_of_the_reference_writer() {
    let name = "safetensors/types.safetensors";
    let model = Checkpoint::open(&fixture(name)).unwrap();
    let expected = expected(name);
    check_tensors(&model, &expected);
    let bytes = fs::read(fixture(name)).unwrap();
    let header = safetensors::Header::parse(&bytes, Path::new(name)).unwrap();
    assert_eq!(
        serde_json::to_value(&header.metadata).unwrap(),
        expected["metadata"]
    );

    let model = Checkpoint::open(&fixture("safetensors/float8.safetensors")).unwrap();
    let error = model.require("w").unwrap().dtype().unwrap_err();
    is_error(
        &error,
        "UnsupportedType",
        &["float8.safetensors", "`w`", "F8_E4M3"],
    );
}

#[test]
fn a_sharded_model_of_the_reference_writer() {
    let model = Checkpoint::open(&fixture("safetensors/sharded")).unwrap();
    check_tensors(&model, &expected("safetensors/sharded"));
}

/// Real metadata: a quarter of a million strings in the largest.
#[test]
fn published_vocabularies() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vocab");
    let tokens = [
        ("gpt-2", 50257),
        ("llama-bpe", 128256),
        ("llama-spm", 32000),
        ("qwen2", 151936),
    ];
    for (name, n_tokens) in tokens {
        let path = folder.join(format!("ggml-vocab-{name}.gguf"));
        if !path.exists() {
            println!("skipped: {} is absent", path.display());
            continue;
        }
        let model = Checkpoint::open(&path).unwrap();
        assert_eq!(model.tensors(), []);
        let metadata = model.gguf().unwrap();
        let tokens = metadata
            .get_str_array("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap();
        assert_eq!(tokens.len(), n_tokens, "{name}");
        let types = metadata
            .get_i32_array("tokenizer.ggml.token_type")
            .unwrap()
            .unwrap();
        assert_eq!(types.len(), n_tokens, "{name}");
        assert!(metadata.get_str("tokenizer.ggml.model").unwrap().is_some());
    }
}
