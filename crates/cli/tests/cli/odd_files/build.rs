//! Model files in parts, so that they can be odd in any way: written here and not by the program's own writers.

use millrace_format::Checkpoint;
use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::{Map, json};
use std::fs;
use std::path::Path;

/// Type ids of ggml.
pub(super) const F32: u32 = 0;
pub(super) const IQ4_XS: u32 = 23;
pub(super) const I64: u32 = 27;
pub(super) const F64: u32 = 28;
pub(super) const UNKNOWN: u32 = 99;

/// A GGUF file in parts.
#[derive(Clone)]
pub(super) struct Gguf {
    pub(super) version: u32,
    pub(super) alignment: usize,
    /// Keys with their types and values, in the file's order.
    pub(super) entries: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) tensors: Vec<GgufTensor>,
    /// Bytes between tensors beyond the alignment.
    pub(super) gap_bytes: usize,
    pub(super) trailer: Vec<u8>,
}

#[derive(Clone)]
pub(super) struct GgufTensor {
    pub(super) name: String,
    /// Fastest-varying dimension first, as in the file.
    pub(super) dims: Vec<u64>,
    pub(super) type_id: u32,
    pub(super) bytes: Vec<u8>,
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Bytes of the kinds of values that synthetic models have, after their type ids.
fn value(value: &GgufValue) -> Vec<u8> {
    let with = |id: u32, bytes: &[u8]| [&id.to_le_bytes(), bytes].concat();
    match value {
        GgufValue::U32(v) => with(4, &v.to_le_bytes()),
        GgufValue::I32(v) => with(5, &v.to_le_bytes()),
        GgufValue::F32(v) => with(6, &v.to_le_bytes()),
        GgufValue::Bool(v) => with(7, &[u8::from(*v)]),
        GgufValue::Str(text) => str_value(text.as_bytes()),
        GgufValue::Array(GgufArray::Str(items)) => {
            let mut out = array_head(8, items.len());
            items
                .iter()
                .for_each(|item| string(&mut out, item.as_bytes()));
            out
        }
        GgufValue::Array(GgufArray::I32(items)) => {
            let mut out = array_head(5, items.len());
            items.iter().for_each(|item| out.extend(item.to_le_bytes()));
            out
        }
        GgufValue::Array(GgufArray::F32(items)) => {
            let mut out = array_head(6, items.len());
            items.iter().for_each(|item| out.extend(item.to_le_bytes()));
            out
        }
        other => panic!("no synthetic model has {}", other.type_name()),
    }
}

pub(super) fn str_value(bytes: &[u8]) -> Vec<u8> {
    let mut out = 8u32.to_le_bytes().to_vec();
    string(&mut out, bytes);
    out
}

pub(super) fn bool_value(value: bool) -> Vec<u8> {
    [&7u32.to_le_bytes()[..], &[u8::from(value)]].concat()
}

fn array_head(item: u32, len: usize) -> Vec<u8> {
    [
        9u32.to_le_bytes().as_slice(),
        &item.to_le_bytes(),
        &(len as u64).to_le_bytes(),
    ]
    .concat()
}

/// Array of two arrays with one number each.
pub(super) fn nested_value() -> Vec<u8> {
    let mut out = array_head(9, 2);
    for number in 0..2u32 {
        out.extend(&array_head(4, 1)[4..]);
        out.extend(number.to_le_bytes());
    }
    out
}

/// Array of strings, one of them in Latin-1.
pub(super) fn latin_values() -> Vec<u8> {
    let mut out = array_head(8, 2);
    string(&mut out, b"plain");
    string(&mut out, b"Jos\xe9");
    out
}

impl Gguf {
    pub(super) fn read(path: &Path) -> Gguf {
        let checkpoint = Checkpoint::open(path).expect("a model");
        let metadata = checkpoint.gguf().expect("a GGUF file");
        let entries = metadata.iter();
        let tensors = checkpoint.iter().map(|tensor| GgufTensor {
            name: tensor.info.name.clone(),
            dims: tensor
                .info
                .shape
                .iter()
                .rev()
                .map(|dim| *dim as u64)
                .collect(),
            type_id: F32,
            bytes: tensor.bytes.to_vec(),
        });
        Gguf {
            version: 3,
            alignment: 32,
            entries: entries
                .map(|(key, v)| (key.as_bytes().to_vec(), value(v)))
                .collect(),
            tensors: tensors.collect(),
            gap_bytes: 0,
            trailer: Vec::new(),
        }
    }

    pub(super) fn set(&mut self, key: &str, value: Vec<u8>) {
        self.entries.retain(|(old, _)| old != key.as_bytes());
        self.entries.push((key.as_bytes().to_vec(), value));
    }

    pub(super) fn add(&mut self, name: &str, dims: &[u64], type_id: u32, n_bytes: usize) {
        self.tensors.push(GgufTensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            type_id,
            bytes: vec![1; n_bytes],
        });
    }

    pub(super) fn tensor(&mut self, name: &str) -> &mut GgufTensor {
        let mut tensors = self.tensors.iter_mut();
        tensors.find(|tensor| tensor.name == name).expect(name)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            string(&mut out, key);
            out.extend(value);
        }
        let mut data = Vec::new();
        for tensor in &self.tensors {
            string(&mut out, tensor.name.as_bytes());
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor
                .dims
                .iter()
                .for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.type_id.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            data.extend(&tensor.bytes);
            data.resize(
                (data.len() + self.gap_bytes).next_multiple_of(self.alignment),
                0,
            );
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        [out, data, self.trailer.clone()].concat()
    }
}

/// A safetensors file in parts: name, type, shape, bytes.
#[derive(Clone)]
pub(super) struct Safetensors {
    pub(super) tensors: Vec<(String, &'static str, Vec<usize>, Vec<u8>)>,
    pub(super) metadata: bool,
    /// Number of spaces after the header.
    pub(super) padding: usize,
}

impl Safetensors {
    pub(super) fn read(path: &Path) -> Safetensors {
        let checkpoint = Checkpoint::open(path).expect("a model");
        let tensors = checkpoint.iter().map(|tensor| {
            let info = tensor.info;
            (
                info.name.clone(),
                "F32",
                info.shape.clone(),
                tensor.bytes.to_vec(),
            )
        });
        Safetensors {
            tensors: tensors.collect(),
            metadata: true,
            padding: 0,
        }
    }

    pub(super) fn add(&mut self, name: &str, dtype: &'static str, shape: &[usize], n_bytes: usize) {
        let row = (name.to_owned(), dtype, shape.to_vec(), vec![1; n_bytes]);
        self.tensors.push(row);
    }

    pub(super) fn write(&self, path: &Path) {
        let mut header = Map::new();
        if self.metadata {
            header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
        }
        let mut data = Vec::new();
        for (name, dtype, shape, bytes) in &self.tensors {
            let begin = data.len();
            data.extend(bytes);
            let entry =
                json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]});
            header.insert(name.clone(), entry);
        }
        let mut header = serde_json::Value::Object(header).to_string();
        header.push_str(&" ".repeat(self.padding));
        let bytes = [
            &(header.len() as u64).to_le_bytes(),
            header.as_bytes(),
            &data,
        ]
        .concat();
        fs::write(path, bytes).expect("written");
    }
}
