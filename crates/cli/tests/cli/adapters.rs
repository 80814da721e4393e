//! LoRA adapters of `run` and `serve`.

use std::path::{Path, PathBuf};

use millrace_format::{Checkpoint, TensorInfo, TensorSpec, gguf};
use tempfile::tempdir;

use crate::run::{BAD_INPUT, NOT_FOUND, OK, finish, millrace};
use crate::serve::Server;

const RANK: usize = 2;
const PROMPT: &str = "Once upon a time there was a cat, and";

/// An adapter for the demo's feed-forward products, which changes its output.
fn adapter(dir: &Path) -> PathBuf {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    let base = Checkpoint::open(&demo).expect("the demo");
    let is_down = |info: &&TensorInfo| info.name.ends_with("ffn_down.weight");
    let mut halves = Vec::new();
    for info in base.tensors().iter().filter(is_down) {
        for (half, shape) in [("a", [RANK, info.shape[1]]), ("b", [info.shape[0], RANK])] {
            halves.push((format!("{}.lora_{half}", info.name), shape));
        }
    }
    // Norms are in f32.
    let tensor_type = base
        .tensor("output_norm.weight")
        .expect("a norm")
        .info
        .tensor_type;
    let spec = |(name, shape): &(String, [usize; 2])| TensorSpec {
        name: name.clone(),
        shape: shape.to_vec(),
        tensor_type,
    };
    let specs: Vec<TensorSpec> = halves.iter().map(spec).collect();
    let own = base.gguf().expect("a GGUF file");
    let arch = own.get_str("general.architecture").expect("a key");
    let mut metadata = gguf::Metadata::new();
    metadata.insert("general.type", "adapter");
    metadata.insert("general.architecture", arch.expect("a family"));
    metadata.insert("adapter.type", "lora");
    metadata.insert("adapter.lora.alpha", 4.0_f32);
    let path = dir.join("style.gguf");
    let mut writer = gguf::Writer::create(&path, &metadata, &specs).expect("a file");
    for (name, [rows, columns]) in &halves {
        let number = |at: usize| ((at * 7 + at * at * 3) % 13) as f32 / 13.0 - 0.5;
        let bytes: Vec<u8> = (0..rows * columns)
            .flat_map(|at| number(at).to_le_bytes())
            .collect();
        writer.write(name, &bytes).expect("room on the disk");
    }
    writer.commit().expect("a file");
    path
}

fn said(home: &Path, options: &[&str]) -> String {
    let arguments = ["run", "demo", PROMPT, "--greedy", "-n", "12", "--quiet"];
    let mut run = millrace(home);
    finish(run.args(arguments).args(options)).expect(OK).stdout
}

#[test]
fn run_computes_with_adapters_and_their_factors() {
    let home = tempdir().expect("a temporary folder");
    adapter(home.path());
    let plain = said(home.path(), &[]);
    let styled = said(home.path(), &["--lora", "style.gguf"]);
    assert_ne!(plain, styled);
    assert_eq!(said(home.path(), &["--lora", "style.gguf:1"]), styled);
    assert_eq!(said(home.path(), &["--lora", "style.gguf:0"]), plain);
    let halves = ["--lora", "style.gguf:0.5", "--lora", "style.gguf:0.5"];
    assert_eq!(said(home.path(), &halves), styled);
    std::fs::write(home.path().join("wrong.gguf"), "no adapter").expect("a file");
    for (file, exit) in [("none.gguf", NOT_FOUND), ("wrong.gguf", BAD_INPUT)] {
        let mut run = millrace(home.path());
        finish(run.args(["run", "demo", PROMPT, "--lora", file])).expect_error(exit, &[file]);
    }
}

/// A server's answer to a completion request.
fn completed(server: &Server, model: &str) -> String {
    let body =
        serde_json::json!({"model": model, "prompt": PROMPT, "temperature": 0, "max_tokens": 12});
    let headers = "authorization: Bearer key\r\n";
    let answer = server.ask("POST", "/v1/completions", headers, &body.to_string());
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    body["choices"][0]["text"]
        .as_str()
        .unwrap_or(&answer)
        .to_owned()
}

#[test]
fn serve_has_adapters_from_its_start_and_from_its_folder() {
    let home = tempdir().expect("a temporary folder");
    adapter(home.path());
    let started = [
        "demo",
        "--api-key",
        "key",
        "--lora",
        "style=style.gguf",
        "--lora-dir",
        ".",
    ];
    let server = Server::start(home.path(), &started);
    let headers = "authorization: Bearer key\r\n";
    let load = r#"{"lora_name": "late", "lora_path": "style.gguf"}"#;
    let told = server.ask("POST", "/v1/load_lora_adapter", headers, load);
    assert!(
        told.ends_with("Success: LoRA adapter 'late' added successfully."),
        "{told}"
    );
    let styled = completed(&server, "style");
    assert_ne!(completed(&server, "demo"), styled);
    assert_eq!(completed(&server, "late"), styled);
    let run = said(home.path(), &["--lora", "style.gguf"]);
    assert!(
        run.trim_end().ends_with(styled.trim_end()),
        "{run:?} {styled:?}"
    );
    server.end("-TERM");
}
