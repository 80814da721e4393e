//! Readers read back the contents that writers wrote.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::Path;

use millrace_format::gguf::{self, GgufArray, GgufValue, Metadata};
use millrace_format::safetensors::{self, ShardedWriter};
use millrace_format::{Checkpoint, Error, PlainType, TensorSpec, TensorType};
use millrace_quant::DType;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::raw::is_error;

/// Bytes that differ from tensor to tensor.
fn bytes_of(spec: &TensorSpec) -> Vec<u8> {
    let seed = spec
        .name
        .bytes()
        .fold(7u8, |acc, b| acc.wrapping_mul(31).wrapping_add(b));
    let len = spec.size_bytes().unwrap();
    (0..len)
        .map(|i| seed.wrapping_add((i % 251) as u8))
        .collect()
}

/// Writes tensors in reverse order and in two pieces.
fn fill(specs: &[TensorSpec], mut write: impl FnMut(&str, &[u8]) -> Result<(), Error>) {
    for spec in specs.iter().rev() {
        let bytes = bytes_of(spec);
        let (head, tail) = bytes.split_at(bytes.len() / 3);
        write(&spec.name, head).unwrap();
        write(&spec.name, tail).unwrap();
    }
}

fn gguf_bytes(metadata: &Metadata, specs: &[TensorSpec]) -> Vec<u8> {
    let sink = Cursor::new(Vec::new());
    let mut writer = gguf::Writer::new(sink, Path::new("w.gguf"), metadata, specs).unwrap();
    fill(specs, |name, bytes| writer.write(name, bytes));
    writer.finish().unwrap().into_inner()
}

fn safetensors_bytes(specs: &[TensorSpec]) -> Vec<u8> {
    let sink = Cursor::new(Vec::new());
    let notes = BTreeMap::from([("made by".to_owned(), "a test".to_owned())]);
    let mut writer = safetensors::Writer::new(sink, Path::new("w"), &notes, specs).unwrap();
    fill(specs, |name, bytes| writer.write(name, bytes));
    writer.finish().unwrap().into_inner()
}

/// One tensor of every type that `holds` accepts.
fn one_of_each(holds: impl Fn(TensorType) -> bool) -> Vec<TensorSpec> {
    use PlainType::*;
    let plain = [I8, U8, I16, U16, I32, U32, I64, U64, F64, Bool].map(TensorType::Plain);
    let types = plain
        .into_iter()
        .chain(DType::all().map(TensorType::Weights));
    let spec = |tensor_type: TensorType| TensorSpec {
        name: format!("{tensor_type}"),
        tensor_type,
        shape: vec![32, 512],
    };
    types.filter(|&t| holds(t)).map(spec).collect()
}

#[test]
fn gguf_of_every_type() {
    let unsigned = [
        PlainType::U8,
        PlainType::U16,
        PlainType::U32,
        PlainType::U64,
        PlainType::Bool,
    ];
    let specs = one_of_each(|t| match t {
        TensorType::Weights(dtype) => dtype.gguf_type().is_some(),
        TensorType::Plain(plain) => !unsigned.contains(&plain),
        TensorType::Opaque(_) => false,
    });
    let numbered = DType::all().filter(|dtype| dtype.gguf_type().is_some());
    assert_eq!(specs.len(), numbered.count() + 5);
    let bytes = gguf_bytes(&Metadata::new(), &specs);
    let header = gguf::Header::parse(&bytes, Path::new("w.gguf")).unwrap();
    assert_eq!(header.version, 3);
    assert_eq!(bytes.len() % 32, 0, "the last tensor is padded too");
    for (spec, info) in specs.iter().zip(&header.tensors) {
        assert_eq!(TensorSpec::from(info), *spec);
        let start = info.offset as usize;
        assert_eq!(
            bytes[start..start + info.size_bytes],
            bytes_of(spec),
            "{}",
            spec.name
        );
    }
}

#[test]
fn safetensors_of_every_type() {
    let specs = one_of_each(|t| match t {
        // Additive tiles have no name: they are bytes with a note.
        TensorType::Weights(dtype) => dtype.safetensors_name().is_some() || dtype == DType::Q4nx,
        TensorType::Plain(_) => true,
        TensorType::Opaque(_) => false,
    });
    let named = DType::all().filter(|dtype| dtype.safetensors_name().is_some());
    assert_eq!(specs.len(), named.count() + 1 + 10);
    let bytes = safetensors_bytes(&specs);
    let header = safetensors::Header::parse(&bytes, Path::new("w.safetensors")).unwrap();
    assert_eq!(header.metadata["format"], "pt");
    assert_eq!(header.metadata["made by"], "a test");
    assert_eq!(header.data_offset % 64, 0);
    for spec in &specs {
        let info = header
            .tensors
            .iter()
            .find(|info| info.name == spec.name)
            .unwrap();
        assert_eq!(TensorSpec::from(info), *spec);
        let start = info.offset as usize;
        assert_eq!(
            bytes[start..start + info.size_bytes],
            bytes_of(spec),
            "{}",
            spec.name
        );
    }
}

#[test]
fn wide_elements_are_aligned_whatever_the_order() {
    let spec = |name: &str, tensor_type, n| TensorSpec {
        name: name.into(),
        tensor_type,
        shape: vec![n],
    };
    let specs = [
        spec("flags", TensorType::Plain(PlainType::Bool), 3),
        TensorSpec::new("blocks", DType::Q4nx, &[32, 256]),
        spec("half", DType::F16.into(), 5),
        spec("single", DType::F32.into(), 1),
        spec("ids", TensorType::Plain(PlainType::I64), 1),
    ];
    let bytes = safetensors_bytes(&specs);
    let header = safetensors::Header::parse(&bytes, Path::new("w")).unwrap();
    let names: Vec<_> = header
        .tensors
        .iter()
        .map(|info| info.name.as_str())
        .collect();
    assert_eq!(names, ["blocks", "ids", "single", "half", "flags"]);
}

#[test]
fn alignment_of_the_metadata_is_honoured() {
    let mut metadata = Metadata::new();
    metadata.insert(gguf::ALIGNMENT_KEY, 128u32);
    let specs = [
        TensorSpec::new("a", DType::F32, &[1]),
        TensorSpec::new("b", DType::F32, &[1]),
    ];
    let bytes = gguf_bytes(&metadata, &specs);
    let header = gguf::Header::parse(&bytes, Path::new("w.gguf")).unwrap();
    assert_eq!(header.alignment, 128);
    for info in &header.tensors {
        assert_eq!(info.offset % 128, 0);
    }
}

fn gguf_refuses(metadata: &Metadata, specs: &[TensorSpec]) -> Error {
    let sink = Cursor::new(vec![]);
    gguf::Writer::new(sink, Path::new("w.gguf"), metadata, specs).unwrap_err()
}

fn safetensors_refuses(spec: TensorSpec) -> Error {
    let (sink, notes) = (Cursor::new(vec![]), BTreeMap::new());
    safetensors::Writer::new(sink, Path::new("w.safetensors"), &notes, &[spec]).unwrap_err()
}

#[test]
fn what_gguf_cannot_hold_is_refused() {
    let none = Metadata::new();
    let refused = |spec, variant: &str, parts: &[&str]| {
        let error = gguf_refuses(&none, &[spec]);
        is_error(&error, variant, &["w.gguf", "tensor `"]);
        is_error(&error, variant, parts);
    };
    let spec = |dtype, shape: &[usize]| TensorSpec::new("t", dtype, shape);
    refused(
        spec(DType::Q4nx, &[32, 256]),
        "CannotStore",
        &["`t`", "no type q4nx"],
    );
    refused(
        spec(DType::F32, &[1; 5]),
        "CannotStore",
        &["5 dimensions", "at most 4"],
    );
    refused(
        spec(DType::Q4K, &[1, 255]),
        "BadShape",
        &["[1, 255]", "blocks of 256"],
    );
    let long = TensorSpec::new("n".repeat(64), DType::F32, &[1]);
    refused(long, "CannotStore", &["64 bytes", "at most 63"]);
    let tensor_type = TensorType::Plain(PlainType::Bool);
    let flag = TensorSpec {
        tensor_type,
        ..spec(DType::F32, &[1])
    };
    refused(flag, "CannotStore", &["no type bool"]);

    let twins = [spec(DType::F32, &[1]), spec(DType::F16, &[1])];
    is_error(
        &gguf_refuses(&none, &twins),
        "DuplicateTensor",
        &["w.gguf", "`t`"],
    );
    let mut metadata = Metadata::new();
    metadata.insert(gguf::ALIGNMENT_KEY, 3u32);
    is_error(
        &gguf_refuses(&metadata, &[]),
        "KeyType",
        &["general.alignment", "found 3"],
    );
}

#[test]
fn what_safetensors_cannot_hold_is_refused() {
    let refused = |name: &str, dtype, shape: &[usize], variant: &str, parts: &[&str]| {
        let error = safetensors_refuses(TensorSpec::new(name, dtype, shape));
        is_error(&error, variant, &["w.safetensors", name]);
        is_error(&error, variant, parts);
    };
    refused("t", DType::Q4K, &[1, 256], "CannotStore", &["no type q4_k"]);
    refused(
        "t",
        DType::Q4nx,
        &[2, 32, 256],
        "CannotStore",
        &["matrices", "[2, 32, 256]"],
    );
    refused(
        "t",
        DType::Q4nx,
        &[31, 256],
        "BadShape",
        &["[31, 256]", "[32, 256]"],
    );
    refused(
        "__metadata__",
        DType::F32,
        &[1],
        "CannotStore",
        &["keeps this name"],
    );
}

#[test]
fn bytes_that_were_not_announced_are_refused() {
    let spec = [TensorSpec::new("t", DType::F32, &[2])];
    let sink = Cursor::new(vec![]);
    let mut writer = gguf::Writer::new(sink, Path::new("w.gguf"), &Metadata::new(), &spec).unwrap();
    let error = writer.write("u", &[0; 4]).unwrap_err();
    is_error(&error, "CannotStore", &["w.gguf", "`u`", "not announced"]);
    writer.write("t", &[0; 5]).unwrap();
    let error = writer.write("t", &[0; 4]).unwrap_err();
    is_error(&error, "WrongLength", &[]);
}

#[test]
fn sharded_models() {
    let dir = TempDir::new().unwrap();
    let specs: Vec<_> = (0..7)
        .map(|i| TensorSpec::new(format!("t{i}"), DType::BF16, &[i, 64]))
        .collect();
    let mut writer = ShardedWriter::create(dir.path(), &BTreeMap::new(), &specs, 1000).unwrap();
    assert!(writer.write("nobody", &[]).is_err());
    fill(&specs, |name, bytes| writer.write(name, bytes));
    let files = writer.commit().unwrap();
    // Of 128·i bytes each: 0+1+2+3, 4, 5, 6.
    assert_eq!(files.len(), 4 + 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files.len());
    let model = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(model.files(), &files[..4]);
    for spec in &specs {
        let tensor = model.require(&spec.name).unwrap();
        assert_eq!(TensorSpec::from(tensor.info), *spec);
        assert_eq!(tensor.bytes, bytes_of(spec));
    }

    let error = ShardedWriter::create(dir.path(), &BTreeMap::new(), &specs, u64::MAX).unwrap_err();
    is_error(&error, "OtherWeights", &[]);
    ShardedWriter::create(dir.path(), &BTreeMap::new(), &specs, 1000)
        .expect("its own names may be replaced");

    let dir = TempDir::new().unwrap();
    let mut writer = ShardedWriter::create(dir.path(), &BTreeMap::new(), &specs, u64::MAX).unwrap();
    fill(&specs, |name, bytes| writer.write(name, bytes));
    let files = writer.commit().unwrap();
    assert_eq!(files, [dir.path().join("model.safetensors")]);
    assert_eq!(Checkpoint::open(dir.path()).unwrap().tensors().len(), 7);
}

#[test]
fn an_incomplete_sharded_model_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let specs: Vec<_> = (0..3)
        .map(|i| TensorSpec::new(format!("t{i}"), DType::F32, &[64]))
        .collect();
    let mut writer = ShardedWriter::create(dir.path(), &BTreeMap::new(), &specs, 300).unwrap();
    writer.write("t0", &[0; 256]).unwrap();
    writer.write("t2", &[0; 256]).unwrap();
    let error = writer.commit().unwrap_err();
    is_error(&error, "WrongLength", &[]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn any_array() -> impl Strategy<Value = GgufArray> {
    let flat = prop_oneof![
        vec(any::<u8>(), 0..4).prop_map(GgufArray::U8),
        vec(any::<i8>(), 0..4).prop_map(GgufArray::I8),
        vec(any::<u16>(), 0..4).prop_map(GgufArray::U16),
        vec(any::<i16>(), 0..4).prop_map(GgufArray::I16),
        vec(any::<u32>(), 0..4).prop_map(GgufArray::U32),
        vec(any::<i32>(), 0..4).prop_map(GgufArray::I32),
        vec(any::<u64>(), 0..4).prop_map(GgufArray::U64),
        vec(any::<i64>(), 0..4).prop_map(GgufArray::I64),
        vec(any::<f32>(), 0..4).prop_map(GgufArray::F32),
        vec(any::<f64>(), 0..4).prop_map(GgufArray::F64),
        vec(any::<bool>(), 0..4).prop_map(GgufArray::Bool),
        vec(".{0,8}", 0..4).prop_map(GgufArray::Str),
    ];
    flat.prop_recursive(3, 16, 3, |inner| {
        vec(inner, 0..3).prop_map(GgufArray::Array)
    })
}

fn any_value() -> impl Strategy<Value = GgufValue> {
    prop_oneof![
        any::<u8>().prop_map(GgufValue::U8),
        any::<i8>().prop_map(GgufValue::I8),
        any::<u16>().prop_map(GgufValue::U16),
        any::<i16>().prop_map(GgufValue::I16),
        any::<u32>().prop_map(GgufValue::U32),
        any::<i32>().prop_map(GgufValue::I32),
        any::<u64>().prop_map(GgufValue::U64),
        any::<i64>().prop_map(GgufValue::I64),
        any::<f32>().prop_map(GgufValue::F32),
        any::<f64>().prop_map(GgufValue::F64),
        any::<bool>().prop_map(GgufValue::Bool),
        ".{0,16}".prop_map(GgufValue::Str),
        any_array().prop_map(GgufValue::Array),
    ]
}

proptest! {
    #[test]
    fn any_metadata(entries in vec((".{0,12}", any_value()), 0..8)) {
        let mut metadata = Metadata::new();
        for (key, value) in entries {
            metadata.insert(key, value);
        }
        let bytes = gguf_bytes(&metadata, &[]);
        let header = gguf::Header::parse(&bytes, Path::new("w.gguf")).unwrap();
        let read: Vec<_> = header.metadata.iter().collect();
        prop_assert_eq!(read, metadata.iter().collect::<Vec<_>>());
    }

    #[test]
    fn any_shapes(shapes in vec(vec(0usize..5, 0..4), 0..6)) {
        let spec = |(i, shape): (usize, &Vec<usize>)| TensorSpec::new(format!("t {i}"), DType::F16, shape);
        let specs: Vec<_> = shapes.iter().enumerate().map(spec).collect();
        let bytes = gguf_bytes(&Metadata::new(), &specs);
        let header = gguf::Header::parse(&bytes, Path::new("w.gguf")).unwrap();
        prop_assert_eq!(header.tensors.iter().map(TensorSpec::from).collect::<Vec<_>>(), specs.clone());
        let bytes = safetensors_bytes(&specs);
        let header = safetensors::Header::parse(&bytes, Path::new("w")).unwrap();
        for spec in &specs {
            let info = header.tensors.iter().find(|info| info.name == spec.name).unwrap();
            prop_assert_eq!(&info.shape, &spec.shape);
            let start = info.offset as usize;
            prop_assert_eq!(&bytes[start..start + info.size_bytes], bytes_of(spec));
        }
    }
}
