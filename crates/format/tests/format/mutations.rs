//! Nearly 400,000 mutated files: every one opens or gives a named error. No panic, no allocation
//! that the file does not justify, and no tensor outside the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use millrace_format::safetensors::Index;
use millrace_format::{Checkpoint, Error, TensorInfo, TensorType, gguf, safetensors};
use tempfile::TempDir;

use crate::allocation::peak_of;
use crate::mutate::{Rng, Seed, mutate};
use crate::raw::{self, ARRAY, Gguf, STR, array, entry, entry_u32, string, tensor};

/// A file of `n` bytes may cost this much: parsed tables are larger than their text, and errors
/// carry a few strings. Found by measuring; the point is that nothing grows with the sizes that a
/// file claims.
const fn allowed_bytes(n: usize) -> usize {
    16 * n + 4096
}

/// Names the mutation when a reader panics.
struct Trace {
    what: &'static str,
    case: u64,
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("mutation {} of {}", self.case, self.what);
        }
    }
}

/// Counts of the outcomes of mutated files.
#[derive(Default)]
struct Tally {
    opened: usize,
    refused: BTreeMap<String, usize>,
}

impl Tally {
    fn add<T>(&mut self, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.opened += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                *self.refused.entry(raw::variant(error)).or_default() += 1;
            }
        }
    }

    /// Asserts that the mutations reach deep: many files open, and all these errors occur.
    #[track_caller]
    fn reached(&self, variants: &[&str]) {
        let found: BTreeSet<&str> = self.refused.keys().map(String::as_str).collect();
        for variant in variants {
            assert!(
                found.contains(variant),
                "no mutation gave {variant}: {:?}",
                self.refused
            );
        }
        assert!(
            self.opened > 50,
            "only {} opened: {:?}",
            self.opened,
            self.refused
        );
    }
}

/// Parses `count` mutations of `seed`, and walks the tensors of those that open.
fn run(
    what: &'static str,
    count: u64,
    seed: &Seed<'_>,
    other: &[u8],
    fix: impl Fn(&mut Vec<u8>),
    parse: impl Fn(&[u8]) -> Result<Vec<TensorInfo>, Error>,
) -> Tally {
    let mut tally = Tally::default();
    parse(seed.bytes).expect("the file is valid before it is mutated");
    for case in 0..count {
        let trace = Trace { what, case };
        let mut bytes = mutate(seed, other, &mut Rng(case));
        if case % 4 > 0 {
            fix(&mut bytes);
        }
        let (result, peak) = peak_of(|| parse(&bytes));
        let allowed = allowed_bytes(bytes.len());
        assert!(
            peak <= allowed,
            "{} bytes made the reader take {peak}",
            bytes.len()
        );
        if let Ok(tensors) = &result {
            walk(tensors, &bytes);
        }
        tally.add(&result);
        drop(trace);
    }
    tally
}

/// Checks the promises of [`TensorInfo`].
fn walk(tensors: &[TensorInfo], bytes: &[u8]) {
    let mut names = BTreeSet::new();
    let mut ranges = Vec::new();
    for tensor in tensors {
        assert!(names.insert(&tensor.name), "{} twice", tensor.name);
        let size_bytes = tensor.tensor_type.size_bytes(&tensor.shape);
        match tensor.tensor_type {
            TensorType::Opaque(opaque) if !opaque.is_sized() => assert_eq!(size_bytes, None),
            _ => assert_eq!(size_bytes, Some(tensor.size_bytes)),
        }
        let start = usize::try_from(tensor.offset).unwrap();
        let data = &bytes[start..start + tensor.size_bytes];
        std::hint::black_box(data.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
        if !data.is_empty() {
            ranges.push((start, start + tensor.size_bytes));
        }
    }
    ranges.sort_unstable();
    assert!(
        ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "tensors overlap"
    );
}

/// A file with every kind of metadata and several kinds of tensor.
fn rich_gguf(version: u32) -> Gguf {
    let mut file = Gguf {
        version,
        ..Gguf::valid()
    };
    for (type_id, value) in [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 2),
        (5, 4),
        (6, 4),
        (7, 1),
        (10, 8),
        (11, 8),
        (12, 8),
    ] {
        file.entries
            .push(entry(&format!("k{type_id}"), type_id, &vec![1; value]));
    }
    let tokens: Vec<u8> = ["<s>", "a", "é"]
        .iter()
        .flat_map(|t| string(t.as_bytes()))
        .collect();
    file.entries
        .push(entry("tokens", ARRAY, &array(STR, 3, &tokens)));
    file.entries
        .push(entry("scores", ARRAY, &array(6, 4, &[0; 16])));
    let inner = array(raw::U32, 2, &[0; 8]);
    file.entries.push(entry(
        "nested",
        ARRAY,
        &array(ARRAY, 2, &[inner.clone(), inner].concat()),
    ));
    file.entries.push(entry_u32("general.alignment", 32));
    file.tensors = vec![
        tensor("blk.0.q", &[32, 2], 2, 0),
        tensor("blk.0.norm", &[8], 0, 64),
        tensor("blk.0.k", &[2, 2, 2], 1, 96),
        tensor("ids", &[4], 26, 128),
    ];
    file.data = (0..144).collect();
    file
}

#[test]
fn gguf_files() {
    let versions = [rich_gguf(2).bytes(), rich_gguf(3).bytes()];
    for (bytes, other, what) in [
        (&versions[0], &versions[1], "gguf version 2"),
        (&versions[1], &versions[0], "gguf version 3"),
    ] {
        let seed = Seed {
            bytes,
            head_bytes: bytes.len() - 144,
            json: false,
        };
        let path = Path::new("mutated.gguf");
        let parse = |bytes: &[u8]| gguf::Header::parse(bytes, path).map(|header| header.tensors);
        let tally = run(what, 100_000, &seed, other, |_| {}, parse);
        tally.reached(&[
            "BadField",
            "BadShape",
            "BeyondFile",
            "Limit",
            "Misaligned",
            "Overlap",
            "Truncated",
            "UnknownFormat",
            "Version",
        ]);
    }
}

/// Makes the header's length right again after its text grew or shrank.
fn fix_length(old_data_bytes: usize) -> impl Fn(&mut Vec<u8>) {
    move |bytes| {
        if let Some(len) = bytes.len().checked_sub(8 + old_data_bytes) {
            bytes[..8].copy_from_slice(&(len as u64).to_le_bytes());
        }
    }
}

#[test]
fn safetensors_files() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "model.norm.weight":{"dtype":"BF16","shape":[8],"data_offsets":[0,16]},
        "w":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},
        "e":{"dtype":"F16","shape":[0,4],"data_offsets":[40,40]},
        "ids":{"dtype":"I64","shape":[2],"data_offsets":[40,56]}}"#;
    let bytes = raw::safetensors(header, &[7; 56]);
    let other = raw::safetensors(&format!("{{{}}}", raw::f32_entry("w", 2, 0)), &[0; 8]);
    let seed = Seed {
        bytes: &bytes,
        head_bytes: 8 + header.len(),
        json: true,
    };
    let path = Path::new("mutated.safetensors");
    let parse = |bytes: &[u8]| safetensors::Header::parse(bytes, path).map(|header| header.tensors);
    let tally = run("safetensors", 100_000, &seed, &other, fix_length(56), parse);
    tally.reached(&[
        "BeyondFile",
        "BadShape",
        "BadField",
        "Hole",
        "Json",
        "Limit",
        "Overlap",
        "SizeMismatch",
        "Truncated",
    ]);
}

#[test]
fn q4nx_bundles() {
    let header = r#"{"__metadata__":{"millrace.shape.a":"32,256"},
        "a":{"dtype":"I8","shape":[1,5120],"data_offsets":[0,5120]},
        "b":{"dtype":"I8","shape":[1,5120],"data_offsets":[5120,10240]},
        "c":{"dtype":"Q4NX","shape":[32,256],"data_offsets":[10240,15360]}}"#;
    let bytes = raw::safetensors(header, &[7; 15360]);
    let seed = Seed {
        bytes: &bytes,
        head_bytes: 8 + header.len(),
        json: true,
    };
    let path = Path::new("mutated.q4nx");
    let parse = |bytes: &[u8]| safetensors::Header::parse(bytes, path).map(|header| header.tensors);
    let tally = run(
        "q4nx",
        20_000,
        &seed,
        header.as_bytes(),
        fix_length(15360),
        parse,
    );
    tally.reached(&[
        "BadField",
        "BadShape",
        "BeyondFile",
        "Json",
        "SizeMismatch",
        "Truncated",
    ]);
}

#[test]
fn indices() {
    let json = r#"{"metadata": {"total_size": 123}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    let seed = Seed {
        bytes: json.as_bytes(),
        head_bytes: json.len(),
        json: true,
    };
    let parse = |bytes: &[u8]| {
        let index = Index::parse(bytes, Path::new("mutated.index.json"))?;
        for shard in index.shards() {
            assert_eq!(
                Path::new(shard).components().count(),
                1,
                "{shard:?} leaves the folder"
            );
        }
        Ok(vec![])
    };
    let tally = run("index", 50_000, &seed, json.as_bytes(), |_| {}, parse);
    tally.reached(&["Json", "UnsafeShardName", "CyclicIndex"]);
}

/// Writes a new file of the name. Rewriting the old one in place would make some file systems wait for the disk each time.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Mutates one file of a folder after the other, and opens the whole.
fn run_folder(what: &'static str, count: u64, write: fn(&Path), open: &str, json: bool) -> Tally {
    let dir = TempDir::new().unwrap();
    write(dir.path());
    let files: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let originals: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let opened = dir.path().join(open);
    let mut tally = Tally::default();
    for case in 0..count {
        let trace = Trace { what, case };
        let i = case as usize % files.len();
        let bytes = &originals[i];
        let seed = Seed {
            bytes,
            head_bytes: bytes.len(),
            json,
        };
        let other = &originals[(i + 1) % files.len()];
        replace(&files[i], &mutate(&seed, other, &mut Rng(case)));
        let result = Checkpoint::open(&opened);
        if let Ok(model) = &result {
            for tensor in model.iter() {
                std::hint::black_box(
                    tensor
                        .bytes
                        .iter()
                        .fold(0u8, |sum, byte| sum.wrapping_add(*byte)),
                );
            }
        }
        tally.add(&result);
        drop(trace);
        replace(&files[i], bytes);
    }
    tally
}

#[test]
fn splits() {
    let write = |dir: &Path| raw::write_split(dir, 2);
    let tally = run_folder("split", 4_000, write, "m-00001-of-00002.gguf", false);
    tally.reached(&["DuplicateShard", "MixedShards", "ShardCount", "Truncated"]);
}

#[test]
fn sharded_folders() {
    let tally = run_folder("sharded", 4_000, raw::write_sharded, "", true);
    tally.reached(&["Json", "MissingShard", "DuplicateTensor", "Truncated"]);
}
