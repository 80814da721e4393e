//! The graphs compute the same numbers as transformers: every fixture, from Hugging Face and from
//! GGUF files, run by an interpreter that follows the ops' definitions word by word in double
//! precision.

#[path = "goldens/hostile.rs"]
mod hostile;
#[path = "goldens/interpret.rs"]
mod interpret;

use std::path::Path;

use millrace_format::Checkpoint;
use millrace_model::Model;
use millrace_testkit::{Agreement, Golden, GoldenValues, assert_logits_close};

fn check(path: &Path, expected: &GoldenValues, what: &str) {
    let checkpoint = Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"));
    let n_tokens = Some(expected.tokens.len());
    let model = Model::from_checkpoint_for(&checkpoint, n_tokens).unwrap_or_else(|e| panic!("{e}"));
    let output = interpret::run(&model.graph, &checkpoint, &expected.tokens);
    assert_logits_close(&output.logits, &expected.logits, what);
    for (layer, (found, expected)) in output.hidden.iter().zip(&expected.hidden).enumerate() {
        let agreement = Agreement::of(found, expected);
        assert!(
            agreement.nmse < 1e-10,
            "{what}: hidden state {layer}: {agreement:?}"
        );
    }
    assert_eq!(output.hidden.len(), expected.hidden.len(), "{what}");
}

#[test]
fn hugging_face_folders() {
    for golden in Golden::all() {
        check(golden.hf(), &golden.expected(), &golden.name);
    }
}

#[test]
fn gguf_files_by_llama_cpp() {
    for golden in Golden::all() {
        if let Some(path) = golden.gguf() {
            check(
                &path,
                &golden.expected(),
                &format!("{} (GGUF)", golden.name),
            );
        }
    }
}
