//! Numbers at and beyond their limits, vocabularies without a model, tile programs with data.

use crate::models;
use crate::run::{BAD_INPUT, NOT_FOUND, OK, USAGE, command, finish, home, text};
use std::fs;

#[test]
fn the_number_of_tokens_is_a_maximum() {
    let home = home();
    let model = text(models::gguf());
    let run = |options: &[&str]| {
        let mut run = command(&home, &["run", model, "short", "--ignore-eos", "--json"]);
        run.args(options).args(["-c", "64"]);
        finish(&mut run).expect(OK)
    };
    // A full context ends it, not an error: 64 tokens, of which five are the prompt's.
    for n in ["-n100", "-n99999999999", "-n-1", "--max-tokens=-1"] {
        let report = run(&[n]).json();
        assert_eq!(report["finish_reason"], "context_full", "{n}");
    }
    let one = run(&["-n", "1"]).json();
    assert_eq!(one["finish_reason"], "length");
    // As separate words too.
    assert_eq!(run(&["-n", "-1"]).json()["finish_reason"], "context_full");
    let none = run(&["-n", "0"]);
    assert!(none.json()["timings"]["tokens_per_s"].is_null());
    assert!(!none.stderr.contains("tok/s"), "{}", none.stderr);
    finish(&mut command(&home, &["run", model, "x", "-n", "-2"]))
        .expect_error(USAGE, &["-2", "--max-tokens", "at least -1"]);
}

#[test]
fn a_context_beyond_the_training_is_told() {
    let home = home();
    let model = text(models::gguf());
    let trained = finish(&mut command(&home, &["info", model, "--json"])).json();
    let trained = trained["config"]["context_length"]
        .as_u64()
        .expect("a number");
    let beyond = (trained * 2).to_string();
    let warns = |options: &[&str]| {
        let mut run = command(&home, &["run", model, "x"]);
        let stderr = finish(run.args(options)).expect(OK).stderr;
        stderr.contains(&format!("trained for a context of {trained} tokens"))
    };
    assert!(warns(&["-c", &beyond, "-n", "-1", "--stop", "e"]));
    assert!(!warns(&["-c", &beyond, "-n", "4"]));
    assert!(!warns(&["-n", "4"]));
}

#[test]
fn negative_numbers_are_refused_by_name() {
    let home = home();
    let model = text(models::gguf());
    for (line, option) in [
        (vec!["run", model, "x", "-c", "-1"], "--ctx"),
        (vec!["run", model, "x", "--threads", "-4"], "--threads"),
        (vec!["run", model, "x", "--top-k", "-1"], "--top-k"),
        (vec!["run", model, "x", "--top-p", "-0.5"], "top-p"),
        (
            vec!["run", model, "x", "--temperature", "-1"],
            "temperature",
        ),
        (vec!["run", model, "x", "--seed", "-1"], "--seed"),
        (vec!["bench", model, "-p", "-1"], "--n-prompt"),
        (vec!["bench", model, "-r", "-1"], "--repetitions"),
        (vec!["perplexity", model, "x.txt", "-c", "-1"], "--ctx"),
        (
            vec!["perplexity", model, "x.txt", "--chunks", "-1"],
            "--chunks",
        ),
        (vec!["info", model, "-c", "-1"], "--ctx"),
        (vec!["kernel", "add", "256", "--seed", "-1"], "--seed"),
        (
            vec!["run", model, "x", "-c", "99999999999999999999999"],
            "--ctx",
        ),
        (vec!["run", model, "x", "-c", "many"], "--ctx"),
    ] {
        let finished = finish(&mut command(&home, &line)).expect_error(USAGE, &[option]);
        for riddle in ["invalid digit", "unexpected argument", "fit in target"] {
            assert!(
                !finished.stderr.contains(riddle),
                "{line:?}: {}",
                finished.stderr
            );
        }
    }
}

#[test]
fn info_computes_the_memory_of_any_context() {
    let home = home();
    for entry in fs::read_dir(models::folder()).expect("the model").flatten() {
        fs::copy(entry.path(), home.path().join(entry.file_name())).expect("copy");
    }
    let path = home.path().join("config.json");
    let mut config: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    config["max_position_embeddings"] = (1u64 << 31).into();
    fs::write(&path, config.to_string()).expect("write");
    // Without address space to spare beyond the program's own.
    let limited = |arguments: &str| {
        let script = format!("ulimit -v 2000000; exec \"$MILLRACE\" info . --json {arguments}");
        finish(&mut crate::run::shell(home.path(), &script))
            .expect(OK)
            .json()
    };
    let memory = limited("")["memory"].clone();
    let per_token = memory["kv_bytes"].as_u64().expect("bytes") / 8192;
    let usable = memory["usable_bytes"].as_u64().expect("bytes");
    let most = memory["max_ctx"].as_u64().expect("tokens");
    let expected = usable / per_token;
    // The cache is a page longer than the context.
    assert!(
        most.abs_diff(expected) < expected / 20,
        "{most}, about {expected}"
    );
    let long = limited("-c 2147483647")["memory"].clone();
    assert!(long["kv_bytes"].as_u64().expect("bytes") > per_token << 30);
}

#[test]
fn a_tokenizer_needs_no_model() {
    let home = home();
    let folder = models::folder();
    let expected = finish(&mut command(
        &home,
        &["tokenize", text(folder), "Hello", "--ids"],
    ))
    .expect(OK)
    .stdout;
    let alone = home.path().join("alone");
    fs::create_dir(&alone).expect("folder");
    fs::copy(folder.join("tokenizer.json"), alone.join("tokenizer.json")).expect("copy");
    for name in ["alone", "alone/tokenizer.json"] {
        let ids = finish(&mut command(&home, &["tokenize", name, "Hello", "--ids"])).expect(OK);
        assert_eq!(ids.stdout, expected, "{name}");
    }
    fs::create_dir(home.path().join("empty")).expect("folder");
    finish(&mut command(&home, &["tokenize", "empty", "Hello"]))
        .expect_error(BAD_INPUT, &["empty"]);
}

#[test]
fn a_vocabulary_of_any_architecture_without_weights() {
    use millrace_format::gguf::{GgufArray, GgufValue, Metadata, Writer};
    let home = home();
    let mut metadata = Metadata::new();
    let strings = |texts: &[&str]| {
        GgufValue::Array(GgufArray::Str(texts.iter().map(|t| (*t).into()).collect()))
    };
    metadata.insert("general.architecture", GgufValue::Str("rwkv6".into()));
    metadata.insert("tokenizer.ggml.model", GgufValue::Str("gpt2".into()));
    metadata.insert("tokenizer.ggml.pre", GgufValue::Str("gpt-2".into()));
    metadata.insert("tokenizer.ggml.tokens", strings(&["a", "b", "ab"]));
    metadata.insert(
        "tokenizer.ggml.token_type",
        GgufValue::Array(GgufArray::I32(vec![1, 1, 1])),
    );
    metadata.insert("tokenizer.ggml.merges", strings(&["a b"]));
    let writer = Writer::create(&home.path().join("vocab.gguf"), &metadata, &[]);
    writer.expect("create").commit().expect("commit");
    let ids = finish(&mut command(
        &home,
        &["tokenize", "vocab.gguf", "abab", "--ids"],
    ))
    .expect(OK);
    assert_eq!(ids.stdout, "2,2\n");
    finish(&mut command(&home, &["run", "vocab.gguf", "x"]))
        .expect_error(BAD_INPUT, &["vocab.gguf holds no weights", "tokenize"]);
    let info = finish(&mut command(&home, &["info", "vocab.gguf"]))
        .expect(OK)
        .stdout;
    let why = info
        .lines()
        .find(|line| line.contains("runs here"))
        .expect("the line");
    assert!(
        why.contains("no weights") && !why.contains("vocab.gguf"),
        "{why}"
    );
}

/// Encodes numbers as little-endian bf16.
fn bf16(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values
        .flat_map(|value| value.to_le_bytes()[2..].to_vec())
        .collect()
}

#[test]
fn a_program_from_a_file_computes() {
    let home = home();
    let printed = finish(&mut command(&home, &["kernel", "add", "4096", "--print"])).expect(OK);
    fs::write(home.path().join("add.tile"), &printed.stdout).expect("write");
    let line = ["kernel", "--program", "add.tile"];
    let wrong = finish(command(&home, &line).args(["--input", "nothing=x.bin"]));
    let wrong = wrong.expect_error(USAGE, &["no slot `nothing`", "8192 bytes"]);
    let slots: Vec<String> = wrong
        .stderr
        .lines()
        .last()
        .expect("a hint")
        .split("its slots: ")
        .nth(1)
        .expect("slots")
        .split("; ")
        .map(|slot| slot.split(':').next().expect("a name").to_owned())
        .collect();
    let [a, b, y] = <[String; 3]>::try_from(slots).expect("two inputs and an output");

    fs::write(
        home.path().join("a.bin"),
        bf16((0..4096).map(|i| (i % 100) as f32)),
    )
    .expect("write");
    fs::write(
        home.path().join("b.bin"),
        bf16((0..4096).map(|i| (i % 3) as f32)),
    )
    .expect("write");
    let files = [
        "--input".to_owned(),
        format!("{a}=a.bin"),
        "--input".to_owned(),
        format!("{b}=b.bin"),
        "--output".to_owned(),
        format!("{y}=y.bin"),
    ];
    let run = finish(command(&home, &line).args(&files)).expect(OK);
    assert!(
        run.stdout.contains("predicted") && run.stdout.contains("verified"),
        "{}",
        run.stdout
    );
    let sum = fs::read(home.path().join("y.bin")).expect("the output");
    assert!(
        sum == bf16((0..4096).map(|i| (i % 100 + i % 3) as f32)),
        "the sums are wrong"
    );

    // Without files the inputs are random, and the same for the same seed.
    let seeded = |seed: &str| {
        let report = finish(command(&home, &line).args(["--seed", seed, "--json"])).expect(OK);
        report.json()["computed"]["outputs"].to_string()
    };
    assert_eq!(seeded("1"), seeded("1"));
    assert_ne!(seeded("1"), seeded("2"));

    fs::write(home.path().join("short.bin"), [0; 10]).expect("write");
    let short = ["--input".to_owned(), format!("{a}=short.bin")];
    finish(command(&home, &line).args(short))
        .expect_error(BAD_INPUT, &["short.bin has 10 bytes", "8192 bytes", "bf16"]);
    let missing = ["--input".to_owned(), format!("{a}=missing.bin")];
    finish(command(&home, &line).args(missing)).expect_error(NOT_FOUND, &["missing.bin"]);
    finish(command(&home, &["kernel", "--program", "none.tile"]).args(&[] as &[&str]))
        .expect_error(NOT_FOUND, &["none.tile"]);
}
