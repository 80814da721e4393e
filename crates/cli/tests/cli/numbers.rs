//! `logits`, `perplexity`, `bench`, `quantize` and `synth`.

use crate::models;
use crate::run::{Finished, NOT_FOUND, OK, USAGE, finish, home, millrace, text};
use millrace_format::Checkpoint;
use serde_json::Value;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

fn ok(home: &TempDir, arguments: &[&str]) -> Finished {
    let mut command: Command = millrace(home.path());
    finish(command.args(arguments)).expect(OK)
}

/// A tensor's shape and numbers.
fn tensor(checkpoint: &Checkpoint, name: &str) -> (Vec<usize>, Vec<f32>) {
    let tensor = checkpoint.tensor(name).expect(name);
    let numbers = tensor
        .bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    (tensor.info.shape.clone(), numbers.collect())
}

#[test]
fn logits_of_the_last_token_or_of_all() {
    let home = home();
    for (i, model) in [models::gguf(), models::folder(), models::gemma()]
        .into_iter()
        .enumerate()
    {
        let (last, all) = (
            format!("last{i}.safetensors"),
            format!("all{i}.safetensors"),
        );
        let tokens = ["--tokens", "1,2,3,4,5"];
        ok(
            &home,
            &[&["logits", text(model), "--out", &last], &tokens[..]].concat(),
        );
        let more = ["--all", "--hidden-states"];
        ok(
            &home,
            &[
                &["logits", text(model), "--out", &all],
                &tokens[..],
                &more[..],
            ]
            .concat(),
        );
        let last = Checkpoint::open(&home.path().join(&last)).expect("readable");
        let all = Checkpoint::open(&home.path().join(&all)).expect("readable");
        let (shape, row) = tensor(&last, "logits");
        assert_eq!(shape, [1, 512]);
        let (shape, rows) = tensor(&all, "logits");
        assert_eq!(shape, [5, 512]);
        assert_eq!(rows[4 * 512..], row, "the last row, bit for bit");
        assert!(row.iter().all(|logit| logit.is_finite()));
        for layer in 0..=2 {
            assert_eq!(tensor(&all, &format!("hidden.{layer}")).0, [5, 256]);
        }
        assert!(all.tensor("hidden.3").is_none());
        assert!(last.tensor("hidden.0").is_none());
    }
}

#[test]
fn perplexity_of_random_weights_is_near_the_vocabulary() {
    let home = home();
    let words: String = (0..300)
        .map(|i| format!("word{} ", i * 7919 % 1000))
        .collect();
    fs::write(home.path().join("text.txt"), words).expect("write");
    let arguments = [
        "perplexity",
        text(models::gguf()),
        "text.txt",
        "-c",
        "128",
        "--chunks",
        "3",
    ];
    let json = ok(&home, &[&arguments[..], &["--json"]].concat()).json();
    let perplexity = json["perplexity"].as_f64().expect("a number");
    assert!((200.0..5000.0).contains(&perplexity), "{perplexity}");
    assert_eq!(json["n_tokens_scored"], 3 * 63);
    let plain = ok(&home, &arguments).stdout;
    assert!(
        plain.starts_with(&format!("PPL = {perplexity:.4} +/- ")),
        "{plain}"
    );
    // The cache's format changes the result little, and the threads not at all.
    let other = ok(&home, &[&arguments[..], &["--json", "-t", "1"]].concat()).json();
    assert_eq!(other["perplexity"], json["perplexity"]);
}

#[test]
fn perplexity_tells_what_smaller_caches_lose() {
    let home = home();
    let story = "Once upon a time there was a little dog who lived in a house near the woods. ";
    fs::write(home.path().join("text.txt"), story.repeat(30)).expect("write");
    let types = ["f16", "q8_0", "q6_0", "q5_0", "q4_0"];
    let list = types.join(",");
    let arguments = [
        "perplexity",
        "demo",
        "text.txt",
        "-c",
        "128",
        "--kv-type",
        &list,
    ];
    let json = ok(&home, &[&arguments[..], &["--json"]].concat()).json();
    let rows = json["kv_types"].as_array().expect("a row a type");
    let loss = |row: &Value| row["loss_nats"].as_f64().expect("a number").abs();
    for ((row, name), most) in rows.iter().zip(types).zip([0.0, 0.01, 0.02, 0.05, 0.1]) {
        assert_eq!(row["kv_type"], name);
        assert!(loss(row) <= most, "{row}");
    }
    assert_eq!(rows.len(), types.len());
    assert!(loss(&rows[4]) > 0.0, "four bits cost something");
    let bits: Vec<f64> = rows.iter().filter_map(|row| row["bits"].as_f64()).collect();
    assert_eq!(bits, [16.0, 8.5, 6.5, 5.5, 4.5]);
    // One of the types alone gives the same number, and the table has the same rows.
    let alone = [
        "perplexity",
        "demo",
        "text.txt",
        "-c",
        "128",
        "--kv-type",
        "q4_0",
        "--json",
    ];
    assert_eq!(
        ok(&home, &alone).json()["perplexity"],
        rows[4]["perplexity"]
    );
    let table = ok(&home, &arguments).stdout;
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let found: Vec<String> = table.lines().filter_map(first).collect();
    assert_eq!(found[1..], types, "{table}");
}

#[test]
fn bench_prints_llama_benchs_columns() {
    let home = home();
    let model = text(models::gguf());
    let tests = [
        "-p", "16,8", "-n", "4", "-pg", "8,2", "-d", "0,8", "-r", "2", "-t", "1",
    ];
    let bench = |format: &str| {
        ok(
            &home,
            &[&["bench", model, "-o", format], &tests[..]].concat(),
        )
        .stdout
    };
    let markdown = bench("md");
    let lines: Vec<&str> = markdown.lines().collect();
    assert_eq!(lines.len(), 2 + 8, "{markdown}");
    let heading: Vec<&str> = lines[0]
        .split('|')
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect();
    assert_eq!(
        heading,
        [
            "model", "size", "params", "backend", "threads", "test", "t/s"
        ]
    );
    assert!(
        markdown.contains(" pp8+tg2 @ d8 ") && markdown.contains(" ± "),
        "{markdown}"
    );

    let rows: Value = serde_json::from_str(&bench("json")).expect("JSON");
    let row = &rows[0];
    assert_eq!(rows.as_array().map(Vec::len), Some(8));
    assert_eq!(
        (&row["n_prompt"], &row["n_gen"], &row["n_depth"]),
        (&16.into(), &0.into(), &0.into())
    );
    assert_eq!(row["samples_ns"].as_array().map(Vec::len), Some(2));
    assert!(row["avg_ts"].as_f64().is_some_and(|rate| rate > 0.0));
    assert_eq!(bench("jsonl").lines().count(), 8);
    let csv = bench("csv");
    assert!(csv.starts_with("millrace_version,cpu_info,"), "{csv}");
    assert_eq!(csv.lines().count(), 9);
}

#[test]
fn bench_runs_sequences_together() {
    let home = home();
    let model = text(models::gemma());
    let tests = [
        "-p",
        "8",
        "-n",
        "3",
        "-d",
        "4",
        "--sequences",
        "1,3",
        "-r",
        "1",
    ];
    let out = ok(
        &home,
        &[&["bench", model, "-o", "json"], &tests[..]].concat(),
    );
    let rows: Value = serde_json::from_str(&out.stdout).expect("JSON");
    let rows = rows.as_array().expect("an array");
    let n_sequences: Vec<&Value> = rows.iter().map(|row| &row["n_sequences"]).collect();
    assert_eq!(n_sequences, [1, 1, 3, 3]);
    for row in rows {
        let number = |key: &str| row[key].as_f64().expect("a number");
        // The rate counts the tokens of all sequences.
        let n_tokens = number("n_sequences") * (number("n_prompt") + number("n_gen"));
        let rate = n_tokens * 1e9 / number("avg_ns");
        assert!((number("avg_ts") / rate - 1.0).abs() < 1e-6, "{row}");
    }
}

#[test]
fn synth_writes_the_same_bytes_again() {
    let home = home();
    for (name, threads) in [("a.gguf", "1"), ("b.gguf", "2")] {
        let options = [
            "--type", "Q4_K_M", "--layers", "1", "--seed", "5", "-t", threads,
        ];
        ok(
            &home,
            &[&["synth", "llama-tiny", name], &options[..]].concat(),
        );
    }
    let read = |name: &str| fs::read(home.path().join(name)).expect(name);
    assert!(read("a.gguf") == read("b.gguf"));
}

#[test]
fn a_vocabulary_can_be_taken_from_another_file() {
    let home = home();
    let source = text(models::gemma());
    let json = ok(
        &home,
        &[
            "synth",
            "llama-tiny",
            "v.gguf",
            "--vocab-from",
            source,
            "--json",
        ],
    )
    .json();
    assert_eq!(json["vocab_size"], 512);
    ok(&home, &["tokenize", "v.gguf", "Hello"]);
}

/// The greedy answer of a model, as token ids.
fn answer(home: &TempDir, model: &str) -> Value {
    ok(
        home,
        &["run", model, "Hello", "-n", "6", "--greedy", "--json"],
    )
    .json()["tokens"]
        .clone()
}

#[test]
fn conversions_keep_what_the_model_says() {
    let home = home();
    let folder = text(models::folder());
    let expected = answer(&home, folder);
    for (out, kind) in [("f32.gguf", "F32"), ("back", "F32"), ("f16.gguf", "F16")] {
        let source = if out == "back" { "f32.gguf" } else { folder };
        let json = ok(&home, &["quantize", source, out, kind, "--json"]).json();
        assert!(json["n_tensors"].as_u64().is_some_and(|n| n > 10));
        assert_eq!(answer(&home, out), expected, "{out}");
    }
    ok(&home, &["quantize", folder, "small.gguf", "Q4_K_M"]);
    ok(&home, &["quantize", folder, "bundle", "Q4NX"]);
    for model in ["small.gguf", "bundle"] {
        assert_eq!(
            answer(&home, model).as_array().map(Vec::len),
            Some(6),
            "{model}"
        );
    }
}

#[test]
fn adapters_are_merged_with_their_factors() {
    let home = home();
    let testdata = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata");
    let model = format!("{testdata}/goldens/llama-llama3");
    let adapter = format!("{testdata}/adapters/llama-all");
    let logits = |model: &str| {
        let out = "logits.safetensors";
        ok(&home, &["logits", model, "--tokens", "1,2,3", "--out", out]);
        let file = Checkpoint::open(&home.path().join(out)).expect("logits");
        tensor(&file, "logits").1
    };
    let merge = |out: &str, adapter: &str| {
        ok(
            &home,
            &["quantize", &model, out, "F32", "--merge-lora", adapter],
        )
    };
    let told = merge("merged.gguf", &adapter).stderr;
    assert!(
        told.contains("llama-all changes 14 matrices, times 1"),
        "{told}"
    );
    assert_ne!(logits("merged.gguf"), logits(&model));
    // With factor 0 it adds nothing.
    merge("none.gguf", &format!("{adapter}:0"));
    ok(&home, &["quantize", &model, "plain.gguf", "F32"]);
    assert_eq!(logits("none.gguf"), logits("plain.gguf"));
    let wrong = [
        (format!("{adapter}:much"), USAGE, "--merge-lora"),
        ("no-adapter.gguf".to_owned(), NOT_FOUND, "no-adapter.gguf"),
    ];
    for (adapter, exit, words) in wrong {
        let arguments = [
            "quantize",
            &model,
            "x.gguf",
            "F32",
            "--merge-lora",
            &adapter,
        ];
        finish(millrace(home.path()).args(arguments)).expect_error(exit, &[words]);
    }
    assert!(!home.path().join("x.gguf").exists());
}

#[test]
fn a_dry_run_writes_nothing() {
    let home = home();
    let plan = ok(
        &home,
        &[
            "quantize",
            text(models::folder()),
            "x.gguf",
            "q4_k",
            "--dry-run",
            "--json",
        ],
    )
    .json();
    assert!(
        plan["tensors"]
            .as_array()
            .is_some_and(|tensors| tensors.len() > 10)
    );
    assert_eq!(fs::read_dir(home.path()).expect("folder").count(), 0);
}
