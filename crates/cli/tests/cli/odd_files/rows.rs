//! Table of files: one row per quirk of the files with weights.

use super::build::{
    F32, F64, Gguf, I64, IQ4_XS, Safetensors, UNKNOWN, latin_values, nested_value, str_value,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Construction of a file's quirk.
pub(super) enum Make {
    Gguf(fn(&mut Gguf)),
    /// For a folder: changes its weights and files at the path, and names the file to write the weights to.
    Folder(fn(&mut Safetensors, &Path)),
}

/// Expected result.
pub(super) enum Expect {
    /// The same text as the row of this name, with these words among the warnings (none: no warning).
    Like(&'static str, &'static [&'static str]),
    /// The same, except for these front ends.
    LikeBut(
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    ),
    /// Refusal, with these words.
    Refused(&'static [&'static str]),
}

use Expect::{Like, Refused};
use Make::{Folder, Gguf as File};

/// Name, quirk, and expected result.
pub(super) type Row = (&'static str, Make, Expect);

pub(super) const WEIGHTS: &[Row] = &[
    ("gguf", File(|_| ()), Like("gguf", &[])),
    ("version-2", File(|g| g.version = 2), Like("gguf", &[])),
    ("align-8", File(|g| align(g, 8)), Like("gguf", &[])),
    ("align-16", File(|g| align(g, 16)), Like("gguf", &[])),
    ("align-64", File(|g| align(g, 64)), Like("gguf", &[])),
    ("align-4096", File(|g| align(g, 4096)), Like("gguf", &[])),
    (
        "keys-reversed",
        File(|g| g.entries.reverse()),
        Like("gguf", &[]),
    ),
    (
        "tensors-reversed",
        File(|g| g.tensors.reverse()),
        Like("gguf", &[]),
    ),
    ("gaps", File(|g| g.gap_bytes = 100), Like("gguf", &[])),
    (
        "trailer",
        File(|g| g.trailer = vec![7; 99]),
        Like("gguf", &[]),
    ),
    (
        "latin-1",
        File(|g| g.set("general.author", str_value(b"Jos\xe9"))),
        Like("gguf", &[]),
    ),
    (
        "latin-1-array",
        File(|g| g.set("general.tags", latin_values())),
        Like("gguf", &[]),
    ),
    (
        "latin-1-key",
        File(|g| g.entries.push((b"k\xe9".to_vec(), str_value(b"v")))),
        Like("gguf", &[]),
    ),
    (
        "nested-array",
        File(|g| g.set("x.nested", nested_value())),
        Like("gguf", &[]),
    ),
    (
        "empty-name",
        File(|g| g.set("general.name", str_value(b""))),
        Like("gguf", &[]),
    ),
    (
        "extra-tensors",
        File(|g| {
            g.add("x.f64", &[3], F64, 24);
            g.add("x.i64", &[3], I64, 24);
            g.add("x.scalar", &[], F32, 4);
            g.add("x.none", &[4, 0], F32, 0);
            g.add("x.iq4_xs", &[256], IQ4_XS, 136);
            g.add("x.unknown", &[5], UNKNOWN, 77);
        }),
        Like(
            "gguf",
            &["has no use for `x.f64`, `x.i64`, `x.scalar` and 3 more"],
        ),
    ),
    ("padded-rows", File(pad_rows), Like("gguf", &[])),
    (
        "tied",
        File(|g| drop_tensor(g, "output.weight")),
        Like("tied", &[]),
    ),
    (
        "head-alone",
        File(|g| {
            drop_tensor(g, "output.weight");
            g.tensor("token_embd.weight").name = "output.weight".to_owned();
        }),
        Like("tied", &[]),
    ),
    (
        "derived-rope",
        File(|g| g.add("blk.0.attn_rot_embd.weight", &[16], F32, 64)),
        Like("gguf", &[]),
    ),
    (
        "same-key-twice",
        File(|g| g.entries.push(g.entries[0].clone())),
        Refused(&["metadata key", "appears twice"]),
    ),
    (
        "zero-tail",
        File(zero_tail),
        Refused(&["zeros from offset", "unfinished download"]),
    ),
    (
        "adapter",
        File(|g| g.set("general.type", str_value(b"adapter"))),
        Refused(&["a LoRA adapter", "merge"]),
    ),
    (
        "imatrix",
        File(|g| g.set("general.type", str_value(b"imatrix"))),
        Refused(&["an importance matrix"]),
    ),
    ("folder", Folder(save), Like("folder", &[])),
    (
        "stale-index",
        Folder(|w, dir| {
            save(w, dir);
            index(
                dir,
                &[("model.norm.weight", "model-00001-of-00002.safetensors")],
            );
        }),
        Like("folder", &[]),
    ),
    (
        "index-in-excess",
        Folder(|w, dir| {
            w.write(&dir.join("a.safetensors"));
            index(
                dir,
                &[
                    ("model.norm.weight", "a.safetensors"),
                    ("not.there", "a.safetensors"),
                ],
            );
        }),
        Like("folder", &[]),
    ),
    (
        "index-swapped",
        Folder(|w, dir| {
            let mut other = w.clone();
            other.tensors = w.tensors.split_off(5);
            w.write(&dir.join("a.safetensors"));
            other.write(&dir.join("b.safetensors"));
            index(
                dir,
                &[
                    ("model.norm.weight", "a.safetensors"),
                    ("lm_head.weight", "b.safetensors"),
                ],
            );
        }),
        Like("folder", &[]),
    ),
    (
        "extra-in-folder",
        Folder(|w, dir| {
            w.add("x.f8", "F8_E4M3", &[3], 3);
            w.add("x.f64", "F64", &[2], 16);
            w.add("x.odd", "Q9", &[3], 5);
            w.add("x.scalar", "I64", &[], 8);
            w.add("x.none", "F32", &[0, 4], 0);
            save(w, dir);
        }),
        Like("folder", &["has no use for `x.", "and 2 more"]),
    ),
    (
        "no-metadata",
        Folder(|w, dir| {
            (w.metadata, w.padding) = (false, 1000);
            save(w, dir);
        }),
        Like("folder", &[]),
    ),
    (
        "tied-folder",
        Folder(|w, dir| tie(w, dir, drop_head)),
        Like("tied-folder", &[]),
    ),
    (
        "tied-with-a-copy",
        Folder(|w, dir| {
            tie(w, dir, |w| {
                copy_tensor(w, "model.embed_tokens.weight", "lm_head.weight")
            })
        }),
        Like("tied-folder", &[]),
    ),
    (
        "tied-head-alone",
        Folder(|w, dir| {
            tie(w, dir, |w| {
                copy_tensor(w, "model.embed_tokens.weight", "lm_head.weight");
                w.tensors.retain(|row| row.0 != "model.embed_tokens.weight");
            });
        }),
        Like("tied-folder", &[]),
    ),
    (
        "tied-and-different",
        Folder(|w, dir| tie(w, dir, |_| ())),
        Like("folder", &["ties the head", "the file's head is used"]),
    ),
    (
        "untied-without-head",
        Folder(|w, dir| {
            drop_head(w);
            save(w, dir);
        }),
        Refused(&["`lm_head.weight`", "is missing"]),
    ),
    (
        "mlx",
        Folder(|w, dir| {
            save(w, dir);
            configure(dir, "quantization", json!({"group_size": 64, "bits": 4}));
        }),
        Refused(&["an MLX model", "4 bits"]),
    ),
];

fn align(gguf: &mut Gguf, alignment: usize) {
    gguf.alignment = alignment;
    let value = [4u32.to_le_bytes(), (alignment as u32).to_le_bytes()].concat();
    gguf.set("general.alignment", value);
}

fn drop_tensor(gguf: &mut Gguf, name: &str) {
    gguf.tensors.retain(|tensor| tensor.name != name);
}

/// Adds rows of zeros beyond the vocabulary.
fn pad_rows(gguf: &mut Gguf) {
    for name in ["token_embd.weight", "output.weight"] {
        let tensor = gguf.tensor(name);
        let (width, more) = (tensor.dims[0], 64);
        tensor.dims[1] += more;
        let len = tensor.bytes.len() + (4 * width * more) as usize;
        tensor.bytes.resize(len, 0);
    }
    // Moves the head last, so that its zeros end the file.
    let at = gguf
        .tensors
        .iter()
        .position(|tensor| tensor.name == "output.weight");
    let head = gguf.tensors.remove(at.expect("a head"));
    gguf.tensors.push(head);
}

/// Zeroes the last two fifths of the file.
fn zero_tail(gguf: &mut Gguf) {
    let total: usize = gguf.tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    let mut left = total * 2 / 5;
    for tensor in gguf.tensors.iter_mut().rev() {
        let n = left.min(tensor.bytes.len());
        let start = tensor.bytes.len() - n;
        tensor.bytes[start..].fill(0);
        left -= n;
    }
}

fn save(weights: &mut Safetensors, dir: &Path) {
    weights.write(&dir.join("model.safetensors"));
}

fn tie(weights: &mut Safetensors, dir: &Path, change: fn(&mut Safetensors)) {
    change(weights);
    save(weights, dir);
    configure(dir, "tie_word_embeddings", json!(true));
}

fn drop_head(weights: &mut Safetensors) {
    weights.tensors.retain(|row| row.0 != "lm_head.weight");
}

fn copy_tensor(weights: &mut Safetensors, from: &str, to: &str) {
    weights.tensors.retain(|row| row.0 != to);
    let source = weights.tensors.iter().find(|row| row.0 == from);
    let mut copy = source.expect(from).clone();
    copy.0 = to.to_owned();
    weights.tensors.push(copy);
}

fn configure(dir: &Path, key: &str, value: Value) {
    let path = dir.join("config.json");
    let text = fs::read_to_string(&path).expect("config.json");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config[key] = value;
    fs::write(path, config.to_string()).expect("written");
}

fn index(dir: &Path, entries: &[(&str, &str)]) {
    let map: serde_json::Map<_, _> = entries
        .iter()
        .map(|(tensor, file)| ((*tensor).to_owned(), json!(file)))
        .collect();
    let text = json!({"metadata": {}, "weight_map": map}).to_string();
    fs::write(dir.join("model.safetensors.index.json"), text).expect("written");
}
