//! Caches and states of layers in docs/models.md, against the graphs of every family's fixture and of every geometry.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use millrace_format::{Checkpoint, Source};
use millrace_graph::{KvShape, SequenceMemory, StateShape};
use millrace_model::Model;
use millrace_model::arch::families;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page's rows of a table, by its first heading.
fn rows(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/models.md")).unwrap();
    let lines = page.lines().skip_while(|line| !line.starts_with(heading));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    lines.map(str::to_owned).collect()
}

/// Caches and states of a model.
fn kept(model: &Model) -> (Vec<KvShape>, Vec<StateShape>) {
    let mut kept = (Vec::new(), Vec::new());
    for node in &model.graph.nodes {
        match node.op.memory() {
            SequenceMemory::KvCache(shape) => kept.0.push(shape),
            SequenceMemory::State(shape) => kept.1.push(shape),
            _ => {}
        }
    }
    kept
}

/// The caches and states of a family's layers, in the page's words.
fn words(model: &Model) -> String {
    let (caches, states) = kept(model);
    let whole = match model.config.latent {
        Some(_) => "latents",
        None => "keys and values",
    };
    let parts = [
        (caches.iter().any(|kv| kv.window.is_none()), whole),
        (
            caches.iter().any(|kv| kv.window.is_some()),
            "keys and values of a window",
        ),
        (!states.is_empty(), "states"),
    ];
    let parts = parts.iter().filter(|(is_there, _)| *is_there);
    let parts: Vec<&str> = parts.map(|(_, words)| *words).collect();
    parts.join("; ")
}

#[test]
fn the_page_says_what_each_family_keeps() {
    let mut by_words: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for family in families() {
        let folder = root().join("testdata/goldens").join(family.golden());
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let model = Model::from_checkpoint(&checkpoint).unwrap();
        let names = by_words.entry(words(&model)).or_default();
        names.push(format!("`{}`", family.name));
    }
    let row = |(words, mut names): (String, Vec<String>)| {
        names.sort();
        format!("| {words} | {} |", names.join(", "))
    };
    let expected: Vec<String> = by_words.into_iter().map(row).collect();
    let found = rows("| a sequence keeps | families |");
    assert!(
        found == expected,
        "docs/models.md must have these rows:\n{}",
        expected.join("\n")
    );
}

/// Bytes in the page's unit.
fn mib(bytes: usize) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

#[test]
fn the_page_says_what_a_checkpoint_costs() {
    let mut expected = Vec::new();
    for geometry in ModelGeometry::all() {
        let recipe = Recipe::parse("F16").unwrap();
        let model = Model::without_weights(geometry, None, recipe, Source::Gguf).unwrap();
        let (caches, states) = kept(&model);
        if states.is_empty() || geometry.name().ends_with("-tiny") && model.config.d_model < 512 {
            continue;
        }
        let slot_bytes = 4 * states.iter().map(|state| state.n_elems).sum::<usize>();
        // Keys and values in F16, of layers without a window.
        let whole = caches.iter().filter(|kv| kv.window.is_none());
        let token_bytes = 2 * 2 * whole.map(KvShape::width).sum::<usize>();
        expected.push(format!(
            "| `{}` | {} of {} | {} | {} KiB | {} |",
            geometry.name(),
            model.config.n_layers - caches.len(),
            model.config.n_layers,
            mib(slot_bytes),
            token_bytes / 1024,
            slot_bytes / token_bytes,
        ));
    }
    let found = rows("| geometry | layers with a state |");
    assert!(
        found == expected,
        "docs/models.md must have these rows:\n{}",
        expected.join("\n")
    );
}
