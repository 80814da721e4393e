//! Files put together by hand, byte by byte and without the crate's writers. They can be wrong in
//! any way, and reader and writer cannot share a mistake.

use std::path::Path;

use millrace_format::Error;

/// A GGUF file in pieces.
#[derive(Clone)]
pub(crate) struct Gguf {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    /// Instead of the true counts, if set.
    pub(crate) n_tensors: Option<u64>,
    pub(crate) n_entries: Option<u64>,
    pub(crate) entries: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) alignment: usize,
    pub(crate) data: Vec<u8>,
}

pub(crate) const U32: u32 = 4;
pub(crate) const STR: u32 = 8;
pub(crate) const ARRAY: u32 = 9;
pub(crate) const F32: u32 = 0;

pub(crate) fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

/// A metadata entry.
pub(crate) fn entry(key: &str, type_id: u32, value: &[u8]) -> Vec<u8> {
    [
        string(key.as_bytes()),
        type_id.to_le_bytes().to_vec(),
        value.to_vec(),
    ]
    .concat()
}

pub(crate) fn entry_u32(key: &str, value: u32) -> Vec<u8> {
    entry(key, U32, &value.to_le_bytes())
}

/// The value of an array entry: item type, count, items.
pub(crate) fn array(type_id: u32, count: u64, items: &[u8]) -> Vec<u8> {
    [
        &type_id.to_le_bytes(),
        count.to_le_bytes().as_slice(),
        items,
    ]
    .concat()
}

/// A row of the tensor table; `dims` fastest first, as in the file.
pub(crate) fn tensor(name: &str, dims: &[u64], type_id: u32, offset: u64) -> Vec<u8> {
    let mut row = string(name.as_bytes());
    row.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|dim| row.extend(dim.to_le_bytes()));
    row.extend(type_id.to_le_bytes());
    row.extend(offset.to_le_bytes());
    row
}

impl Gguf {
    /// Two metadata entries; `a`: f32 `[2, 4]`, `b`: q8_0 `[1, 32]`.
    pub(crate) fn valid() -> Gguf {
        Gguf {
            magic: *b"GGUF",
            version: 3,
            n_tensors: None,
            n_entries: None,
            entries: vec![
                entry("general.architecture", STR, &string(b"llama")),
                entry_u32("llama.block_count", 1),
            ],
            tensors: vec![tensor("a", &[4, 2], F32, 0), tensor("b", &[32, 1], 8, 32)],
            alignment: 32,
            data: (0..66).collect(),
        }
    }

    /// No entries, no tensors, no data.
    pub(crate) fn empty() -> Gguf {
        Gguf {
            entries: vec![],
            tensors: vec![],
            data: vec![],
            ..Gguf::valid()
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(
            self.n_tensors
                .unwrap_or(self.tensors.len() as u64)
                .to_le_bytes(),
        );
        out.extend(
            self.n_entries
                .unwrap_or(self.entries.len() as u64)
                .to_le_bytes(),
        );
        out.extend(self.entries.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(&self.data);
        out
    }

    /// The same as shard `number` (from 1) of `count`, of `total` tensors.
    pub(crate) fn shard(mut self, number: u16, count: u16, total: i32) -> Gguf {
        self.entries
            .push(entry("split.no", 2, &(number - 1).to_le_bytes()));
        self.entries
            .push(entry("split.count", 2, &count.to_le_bytes()));
        self.entries
            .push(entry("split.tensors.count", 5, &total.to_le_bytes()));
        self
    }
}

/// A safetensors file: header length, header, data.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        data,
    ]
    .concat()
}

/// The shards `m-0000N-of-0000M.gguf` of a split in `dir`, one tensor `tN` each.
pub(crate) fn write_split(dir: &Path, count: u16) {
    for number in 1..=count {
        let mut shard = Gguf::empty();
        if number == 1 {
            shard
                .entries
                .push(entry("general.architecture", STR, &string(b"llama")));
        }
        shard
            .tensors
            .push(tensor(&format!("t{number}"), &[4], F32, 0));
        shard.data = vec![number as u8; 16];
        let bytes = shard.shard(number, count, i32::from(count)).bytes();
        std::fs::write(split_path(dir, number, count), bytes).unwrap();
    }
}

pub(crate) fn split_path(dir: &Path, number: u16, count: u16) -> std::path::PathBuf {
    dir.join(format!("m-{number:05}-of-{count:05}.gguf"))
}

/// A header entry of an f32 vector of `n` elements whose data begins at `begin`.
pub(crate) fn f32_entry(name: &str, n: usize, begin: usize) -> String {
    let end = begin + 4 * n;
    format!(r#""{name}":{{"dtype":"F32","shape":[{n}],"data_offsets":[{begin},{end}]}}"#)
}

/// A model of two shards, tensors `t1` and `t2`, with its index.
pub(crate) fn write_sharded(dir: &Path) {
    for number in 1..=2 {
        let header = format!("{{{}}}", f32_entry(&format!("t{number}"), 2, 0));
        let name = format!("model-{number:05}-of-00002.safetensors");
        std::fs::write(dir.join(name), safetensors(&header, &[number as u8; 8])).unwrap();
    }
    write_index(dir, SHARDED_MAP);
}

pub(crate) const SHARDED_MAP: &str =
    r#""t1": "model-00001-of-00002.safetensors", "t2": "model-00002-of-00002.safetensors""#;

pub(crate) fn write_index(dir: &Path, weight_map: &str) {
    let json = format!(r#"{{"metadata": {{"total_size": 16}}, "weight_map": {{{weight_map}}}}}"#);
    std::fs::write(dir.join("model.safetensors.index.json"), json).unwrap();
}

/// The name of an error's variant.
pub(crate) fn variant(error: &Error) -> String {
    let debug = format!("{error:?}");
    debug.split(' ').next().unwrap_or_default().to_owned()
}

/// Asserts the variant of an error, and that its message says all of `parts`.
#[track_caller]
pub(crate) fn is_error(error: &Error, expected: &str, parts: &[&str]) {
    assert_eq!(variant(error), expected, "{error:?}");
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}
