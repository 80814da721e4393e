//! `embed` and `rerank`, and encoders where text generation is asked for.

use crate::run::{Finished, OK, USAGE, finish, millrace};
use crate::serve::Server;
use millrace_format::Checkpoint;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

fn encoder(name: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/encoders");
    root.join(name).to_str().expect("UTF-8").to_owned()
}

/// A home with texts in `texts.txt`.
fn home(texts: &str) -> TempDir {
    let home = tempdir().expect("a temporary folder");
    fs::write(home.path().join("texts.txt"), texts).expect("a file");
    home
}

fn run(home: &TempDir, arguments: &[&str]) -> Finished {
    finish(millrace(home.path()).args(arguments))
}

fn lines(finished: &Finished) -> Vec<Value> {
    let line = |line| serde_json::from_str(line).expect("JSON");
    finished.stdout.lines().map(line).collect()
}

fn vector(line: &Value) -> Vec<f64> {
    let list = line["embedding"].as_array().expect("a list");
    list.iter().map(|x| x.as_f64().expect("a number")).collect()
}

#[test]
fn a_line_is_a_vector_whatever_its_company() {
    let home = home("A dog.\n\n{\"text\": \"The dog ran to the river, and then home.\"}\nA dog.\n");
    for model in ["demo", &encoder("bert-rank")] {
        let found = run(&home, &["embed", model, "texts.txt"]).expect(OK);
        let texts = fs::File::open(home.path().join("texts.txt")).expect("the file");
        let piped = finish(
            millrace(home.path())
                .args(["embed", model, "-"])
                .stdin(texts),
        );
        assert_eq!(piped.expect(OK).stdout, found.stdout, "{model}");
        let found = lines(&found);
        let indices: Vec<_> = found.iter().map(|line| line["index"].clone()).collect();
        assert_eq!(indices, [0, 1, 2]);
        let vectors: Vec<Vec<f64>> = found.iter().map(vector).collect();
        assert_eq!(vectors[0], vectors[2], "{model}");
        assert_ne!(vectors[0], vectors[1], "{model}");
        let length: f64 = vectors[1].iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{model}: {length}");
        let one = [
            "embed",
            model,
            "texts.txt",
            "--batch",
            "1",
            "--out",
            "v.safetensors",
        ];
        run(&home, &one).expect(OK);
        let file = Checkpoint::open(&home.path().join("v.safetensors")).expect("a file");
        let tensor = file.tensor("embeddings").expect("embeddings");
        assert_eq!(tensor.info.shape, [3, vectors[0].len()]);
        let (numbers, _) = tensor.bytes.as_chunks::<4>();
        let flat = vectors.iter().flatten();
        for (bytes, expected) in numbers.iter().zip(flat) {
            assert_eq!(
                f64::from(f32::from_le_bytes(*bytes)) as f32,
                *expected as f32
            );
        }
    }
    let cut = run(&home, &["embed", "demo", "texts.txt", "--dimensions", "7"]).expect(OK);
    assert_eq!(vector(&lines(&cut)[0]).len(), 7);
    let wide = ["embed", "demo", "texts.txt", "--dimensions", "100000"];
    run(&home, &wide).expect(USAGE);
}

#[test]
fn a_folder_names_what_stands_before_texts() {
    let home = home("A dog.\n");
    let folder = home.path().join("folder");
    fs::create_dir(&folder).expect("a folder");
    for file in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        fs::copy(
            Path::new(&encoder("bert-rank")).join(file),
            folder.join(file),
        )
        .expect("a copy");
    }
    let prompts =
        r#"{"prompts": {"query": "a question? ", "document": ""}, "default_prompt_name": null}"#;
    let config = folder.join("config_sentence_transformers.json");
    fs::write(&config, prompts).expect("a file");
    let embed = |more: &[&str]| {
        let found = run(
            &home,
            &[&["embed", "folder", "texts.txt"][..], more].concat(),
        );
        found.expect(OK).stdout
    };
    let plain = embed(&[]);
    let query = embed(&["--prompt-name", "query"]);
    assert_ne!(plain, query);
    assert_eq!(query, embed(&["--prefix", "a question? "]));
    assert_eq!(plain, embed(&["--prompt-name", "document"]));
    let wrong = ["embed", "folder", "texts.txt", "--prompt-name", "passage"];
    let wrong = run(&home, &wrong).expect(USAGE);
    assert!(wrong.stderr.contains("document, query"), "{}", wrong.stderr);
    // The usual prompt, unless another is asked for.
    fs::write(&config, prompts.replace("null", r#""query""#)).expect("a file");
    assert_eq!(query, embed(&[]));
    assert_eq!(plain, embed(&["--prefix", ""]));
}

#[test]
fn the_best_text_comes_first() {
    let home = home("a cat\nA dog ran along, and saw the river.\nthe fog\n");
    let model = encoder("bert-rank");
    let arguments = ["rerank", &model, "What runs to the river?", "texts.txt"];
    let found = run(&home, &[&arguments[..], &["--json"]].concat()).expect(OK);
    let found = lines(&found);
    let score = |line: &Value| line["score"].as_f64().expect("a number");
    assert_eq!(found.len(), 3);
    assert!(
        found
            .windows(2)
            .all(|pair| score(&pair[0]) >= score(&pair[1]))
    );
    // The result of transformers for this pair, from `expected.safetensors` there.
    let raw = run(
        &home,
        &[&arguments[..], &["--json", "--raw-scores"]].concat(),
    )
    .expect(OK);
    let raw = lines(&raw);
    let pair = raw
        .iter()
        .find(|line| line["index"] == 1)
        .expect("the text");
    assert!((score(pair) - 0.8007).abs() < 1e-3, "{pair}");
    let top = run(&home, &[&arguments[..], &["--top", "1"]].concat()).expect(OK);
    assert_eq!(top.stdout.lines().count(), 1);
    let none = run(&home, &["rerank", "demo", "What?", "texts.txt"]);
    assert!(
        none.code != 0 && none.stderr.contains("reranker"),
        "{}",
        none.stderr
    );
}

#[test]
fn an_encoder_is_asked_for_no_text() {
    let home = home("");
    let model = encoder("bert-rank");
    let found = run(&home, &["run", &model, "A dog"]);
    assert!(
        found.code != 0 && found.stderr.contains("encoder"),
        "{}",
        found.stderr
    );
    let info = run(&home, &["info", &model]).expect(OK);
    assert!(info.stdout.contains("makes embeddings"), "{}", info.stdout);
}

#[test]
fn a_text_beyond_the_context_is_told_of_options_that_there_are() {
    let home = home("A dog ran along, and saw the river.\n");
    let model = encoder("bert-rank");
    for arguments in [
        &["embed", &model, "texts.txt", "--ctx", "3"][..],
        &["embed", "demo", "texts.txt", "--ctx", "3"],
        &["rerank", &model, "What?", "texts.txt", "--ctx", "3"],
    ] {
        let found = run(&home, arguments);
        let found = found.expect_error(USAGE, &["do not fit the context of 3", "--ctx"]);
        assert!(!found.stderr.contains("--max-tokens"), "{}", found.stderr);
    }
}

/// A model that writes no text: its pairs are ranked, its texts have embeddings, and who wants an answer hears of it.
#[test]
fn encoders_are_served() {
    let home = home("");
    let model = format!("ranker={}", encoder("bert-rank"));
    let server = Server::start(home.path(), &[&model]);
    let json = "content-type: application/json\r\n";
    let asked =
        r#"{"model": "ranker", "query": "What runs?", "documents": ["A dog ran.", "the fog"]}"#;
    let ranked = server.ask("POST", "/v1/rerank", json, asked);
    assert!(ranked.starts_with("HTTP/1.1 200"), "{ranked}");
    assert_eq!(ranked.matches("relevance_score").count(), 2, "{ranked}");
    let asked = r#"{"model": "ranker", "input": "A dog ran."}"#;
    let embedded = server.ask("POST", "/v1/embeddings", json, asked);
    assert!(embedded.starts_with("HTTP/1.1 200"), "{embedded}");
    let asked = r#"{"model": "ranker", "prompt": "A dog", "max_tokens": 1}"#;
    let refused = server.ask("POST", "/v1/completions", json, asked);
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    assert!(refused.contains("this model is an encoder"), "{refused}");
    server.end("-TERM");
}
