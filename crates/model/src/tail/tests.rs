use std::ops::ControlFlow;
use std::path::Path;

use millrace_format::{Checkpoint, TensorSpec, gguf};

use crate::recipe::Recipe;
use crate::synth::{self, ModelGeometry, SynthOptions};
use crate::{Error, Model};

/// Two layers, with a separate head.
fn plain(dir: &Path, recipe: &str) -> Checkpoint {
    let path = dir.join(format!("{recipe}.gguf"));
    let options = SynthOptions {
        recipe: Recipe::from_name(recipe).unwrap(),
        vocab: None,
        vision: false,
        n_layers: Some(2),
        seed: 1,
        n_threads: Some(1),
    };
    let geometry = ModelGeometry::named("qwen-tiny").unwrap();
    synth::write(geometry, &path, &options, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    Checkpoint::open(&path).unwrap()
}

/// Writes the model with `last` behind the others, changed by `spoil`, and opens it.
fn spoilt(
    model: &Checkpoint,
    dir: &Path,
    last: &[&str],
    spoil: fn(&mut [Vec<u8>]),
) -> Result<Model, Error> {
    let is_last = |name: &str| last.contains(&name);
    let mut tensors: Vec<_> = model.iter().filter(|t| !is_last(&t.info.name)).collect();
    tensors.extend(last.iter().map(|name| model.require(name).unwrap()));
    let specs: Vec<TensorSpec> = tensors.iter().map(|t| t.info.into()).collect();
    let mut bytes: Vec<Vec<u8>> = tensors.iter().map(|t| t.bytes.to_vec()).collect();
    spoil(&mut bytes);
    let path = dir.join("spoilt.gguf");
    let mut writer = gguf::Writer::create(&path, model.gguf().unwrap(), &specs).unwrap();
    for (spec, bytes) in specs.iter().zip(&bytes) {
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
    Model::from_checkpoint(&Checkpoint::open(&path).unwrap())
}

/// Zeros the last tensor from a share of its bytes on, and `more` bytes.
fn zero(bytes: &mut [Vec<u8>], numerator: usize, more: usize) {
    let last = bytes.last_mut().unwrap();
    let start = last.len() * numerator / 8 + more;
    last[start..].fill(0);
}

/// Name of the case, the file's last tensors, the zeroed bytes, and the tensor that is then damaged.
type TailCase = (
    &'static str,
    &'static [&'static str],
    fn(&mut [Vec<u8>]),
    Option<&'static str>,
);

const HEAD: &str = "output.weight";
const NORM: &str = "output_norm.weight";
const DOWN: &str = "blk.1.ffn_down.weight";
const UP: &str = "blk.1.ffn_up.weight";
const OUT: &str = "blk.1.attn_output.weight";

const CASES: [TailCase; 13] = [
    ("a sound file", &[HEAD], |_| (), None),
    ("padded rows", &[HEAD], |b| zero(b, 3, 0), None),
    (
        "rows cut within one",
        &[HEAD],
        |b| zero(b, 6, 100),
        Some(HEAD),
    ),
    ("all of the head", &[HEAD], |b| zero(b, 0, 0), Some(HEAD)),
    ("rows of a matrix", &[UP], |b| zero(b, 6, 0), None),
    ("most of a matrix", &[UP], |b| zero(b, 2, 0), Some(UP)),
    ("all of a matrix", &[UP], |b| zero(b, 0, 0), Some(UP)),
    ("an identity block", &[DOWN], |b| zero(b, 0, 0), None),
    ("a norm of zeros", &[HEAD, NORM], |b| zero(b, 0, 0), None),
    (
        "a cut before a norm",
        &[HEAD, NORM],
        |b| {
            zero(b, 0, 0);
            let n = b.len() - 1;
            zero(&mut b[..n], 4, 100);
        },
        Some(HEAD),
    ),
    (
        "a cut before an identity block",
        &[UP, DOWN],
        |b| {
            zero(b, 0, 0);
            let n = b.len() - 1;
            zero(&mut b[..n], 6, 100);
        },
        Some(UP),
    ),
    (
        "two identity blocks",
        &[OUT, DOWN],
        |b| b.iter_mut().rev().take(2).for_each(|bytes| bytes.fill(0)),
        None,
    ),
    (
        "many tensors",
        &[UP, OUT, DOWN, NORM],
        |b| b.iter_mut().rev().take(4).for_each(|bytes| bytes.fill(0)),
        Some(UP),
    ),
];

#[test]
fn zeros_at_the_end_are_told_from_legal_ones() {
    let dir = tempfile::tempdir().unwrap();
    for recipe in ["F32", "BF16", "Q8_0", "Q4_K_M"] {
        let model = plain(dir.path(), recipe);
        for (what, last, spoil, damaged) in CASES {
            let found = spoilt(&model, dir.path(), last, spoil);
            match (found, damaged) {
                (Ok(_), None) => {}
                (Err(Error::ZeroTail { tensor, offset, .. }), Some(name)) => {
                    assert_eq!(tensor, name, "{recipe}, {what}");
                    assert!(offset > 0, "{recipe}, {what}");
                }
                (found, _) => panic!("{recipe}, {what}: {:?}", found.err()),
            }
        }
    }
}
