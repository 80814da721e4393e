//! Drafts, sweeps, ceilings and signal-to-noise ratios: their output, and the input they refuse.

use crate::models;
use crate::run::{BAD_INPUT, Finished, NOT_FOUND, OK, USAGE, finish, home, millrace};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn run(home: &TempDir, arguments: &[&str]) -> Finished {
    finish(millrace(home.path()).args(arguments))
}

fn json(home: &TempDir, arguments: &[&str]) -> Value {
    run(home, arguments).expect(OK).json()
}

const STORY: [&str; 7] = [
    "run",
    "demo",
    "Once upon a time",
    "-n",
    "40",
    "--json",
    "-q",
];

#[test]
fn drafts_change_no_text() {
    let home = home();
    for sampling in [&["--greedy"][..], &["--seed", "7", "--temp", "0.9"]] {
        let plain = json(&home, &[&STORY[..], sampling].concat());
        assert!(plain["speculation"].is_null());
        for draft in ["demo-draft", "ngram"] {
            let drafted = json(&home, &[&STORY[..], sampling, &["--draft", draft]].concat());
            assert_eq!(drafted["tokens"], plain["tokens"], "{draft} {sampling:?}");
            let stats = &drafted["speculation"];
            let n = |name: &str| stats[name].as_u64().expect(name);
            assert!(n("n_accepted") <= n("n_drafted"), "{stats}");
            assert_eq!(
                n("n_checks") + n("n_plain_steps") + n("n_accepted"),
                39,
                "{stats}"
            );
        }
    }
    let told = run(
        &home,
        &["run", "demo", "A cat", "-n", "24", "--draft", "demo-draft"],
    )
    .expect(OK);
    assert!(told.stderr.contains("drawn ("), "{}", told.stderr);
}

/// `synth --mtp` writes a model for `--draft mtp`, in a file and in a folder.
#[test]
fn the_models_own_layer_drafts() {
    let home = home();
    for out in ["mtp.gguf", "mtp"] {
        let synth = ["-q", "synth", "qwen35-tiny", out, "--mtp", "--type", "F16"];
        run(&home, &synth).expect(OK);
        let write = [
            "run",
            out,
            "Once",
            "-n",
            "40",
            "--json",
            "-q",
            "--ignore-eos",
        ];
        let plain = json(&home, &[&write[..], &["--greedy"]].concat());
        let drafted = json(
            &home,
            &[&write[..], &["--greedy", "--draft", "mtp"]].concat(),
        );
        assert_eq!(drafted["tokens"], plain["tokens"], "{out}");
        assert!(drafted["speculation"]["n_drafted"].is_u64(), "{drafted}");
    }
    let bench = [
        "bench", "mtp.gguf", "--draft", "mtp", "-n", "48", "-r", "1", "-o", "json",
    ];
    let rows = json(&home, &bench);
    // Measured times decide whether it drafts here; the tests of the engine make it draft always.
    let count = |name: &str| rows[0]["speculation"][name].as_u64().expect(name);
    let n_drawn = count("n_plain_steps") + count("n_checks") + count("n_accepted");
    assert_eq!(n_drawn, 47, "{rows}");
    let device = [
        "run", "mtp.gguf", "Hi", "--draft", "mtp", "--device", "xdna2",
    ];
    run(&home, &device).expect_error(USAGE, &["--draft mtp runs on the CPU"]);
    let llama = ["synth", "llama-tiny", "l.gguf", "--mtp"];
    run(&home, &llama).expect_error(USAGE, &["draft layer for llama-tiny", "qwen35"]);
}

/// An assistant drafts for its model, from a file and from a folder, and does nothing else.
#[test]
fn an_assistant_drafts_for_its_model() {
    let home = home();
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let path = |file: &str| testdata.join(file).display().to_string();
    let model = path("goldens/gemma4/model.f32.gguf");
    let assistant = path("assistants/gemma4/model.f32.gguf");
    let folder = path("assistants/gemma4");
    // The tiny models have no texts, so their tokens are those of a measurement.
    let bench = |model: &str, draft: &str, more: &[&str]| {
        let of_model = ["bench", model, "-p", "8", "-n", "24", "-r", "1", "--draft"];
        run(&home, &[&of_model[..], &[draft], more].concat())
    };
    for draft in [&assistant, &folder] {
        let told = bench(&model, draft, &[]).expect(OK).stdout;
        assert!(told.contains("with drafts"), "{draft}: {told}");
    }
    let on_device = bench(&model, &assistant, &["--device", "xdna2"]);
    on_device.expect_error(USAGE, &["runs on the CPU", "an assistant reads"]);
    let alone = ["an assistant", "--draft"];
    run(&home, &["run", &assistant, "Hi"]).expect_error(BAD_INPUT, &alone);
    let told = run(&home, &["info", &assistant]).expect(OK);
    assert!(
        told.stdout.contains("it is an assistant"),
        "{}",
        told.stdout
    );
    let other = path("goldens/gemma4-keys/model.f32.gguf");
    let sizes = [
        "does not draft for",
        "key/value heads of layer 0",
        "is 1",
        "it is 2",
    ];
    bench(&other, &assistant, &[]).expect_error(BAD_INPUT, &sizes);
}

#[test]
fn drafts_that_cannot_be_are_refused() {
    let home = home();
    let refused = |arguments: &[&str], code: i32, mentions: &[&str]| {
        run(&home, arguments).expect_error(code, mentions);
    };
    let with = |model: &'static str, draft: &'static str| ["run", model, "Hi", "--draft", draft];
    let sizes = [
        "demo cannot draft for demo-draft",
        "2.2 MB",
        "exchange them",
    ];
    refused(&with("demo-draft", "demo"), USAGE, &sizes);
    refused(
        &with("demo", "no-such-model"),
        NOT_FOUND,
        &["no-such-model"],
    );
    let other = models::gguf();
    let other = other.to_str().expect("UTF-8");
    let vocabulary = [
        "its vocabulary is another one",
        "Token ",
        " there and ",
        "ngram",
    ];
    refused(&["run", "demo", "Hi", "--draft", other], USAGE, &vocabulary);
    let huge = ["-c", "2000000000"];
    let memory = [
        "demo and demo-draft do not fit",
        "of cache",
        "are free",
        "--ctx",
    ];
    refused(
        &[&with("demo", "demo-draft")[..], &huge].concat(),
        USAGE,
        &memory,
    );
    let family = ["MTP layer of a llama model", "qwen35", "glm4moe"];
    refused(&with("demo", "mtp"), BAD_INPUT, &family);
    let bench = ["bench", "demo", "--draft", "ngram"];
    refused(
        &[&bench[..], &["-d", "64"]].concat(),
        USAGE,
        &["-d", "--draft"],
    );
    refused(&[&bench[..], &["-o", "csv"]].concat(), USAGE, &["-o json"]);
    fs::write(home.path().join("short.txt"), "Too short.").expect("write");
    refused(
        &[&bench[..], &["--text", "short.txt"]].concat(),
        USAGE,
        &["too few"],
    );
}

#[test]
fn bench_sets_drafts_beside_plain_decoding() {
    let home = home();
    let bench = [
        "bench",
        "demo-draft",
        "--draft",
        "ngram",
        "-n",
        "48",
        "-r",
        "1",
    ];
    let rows = json(&home, &[&bench[..], &["-o", "json"]].concat());
    let names: Vec<_> = rows
        .as_array()
        .expect("rows")
        .iter()
        .map(|r| &r["workload"])
        .collect();
    assert_eq!(names, ["story", "repeat", "prose"]);
    // Measured times decide whether drafts are made; the counts add up either way.
    for row in rows.as_array().expect("rows") {
        let count = |name: &str| row["speculation"][name].as_u64().expect(name);
        let n_drawn = count("n_plain_steps") + count("n_checks") + count("n_accepted");
        assert_eq!((&row["n_gen"], n_drawn), (&Value::from(47), 47), "{row}");
        let (accepted, drafted) = (count("n_accepted") as f64, count("n_drafted"));
        let acceptance = (drafted > 0).then(|| accepted / drafted as f64);
        assert_eq!(row["speculation"]["acceptance"].as_f64(), acceptance);
        let is_good = row["workload"] != "repeat" || acceptance.is_none_or(|share| share > 0.8);
        assert!(is_good, "{row}");
        assert!(row["plain_tokens_per_s"].as_f64() > Some(0.0), "{row}");
    }
    let table = run(&home, &[&bench[..], &["-q"]].concat())
        .expect(OK)
        .stdout;
    assert!(
        table.contains("speed-up") && table.contains("prose"),
        "{table}"
    );
}

#[test]
fn a_sweep_says_what_bounds_each_point() {
    let home = home();
    let sweep = [
        "sweep",
        "demo-draft",
        "--sequences",
        "4,1,2",
        "-n",
        "2",
        "--svg",
        "curve.svg",
    ];
    let found = json(&home, &[&sweep[..], &["--json"]].concat());
    let points = found["points"].as_array().expect("points");
    let numbers: Vec<_> = points.iter().map(|p| p["n_sequences"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(4)]);
    assert_eq!(found["times"], "measured");
    assert!(
        points
            .iter()
            .all(|p| p["tokens_per_s"].as_f64() > Some(0.0))
    );
    let image = fs::read_to_string(home.path().join("curve.svg")).expect("an image");
    assert_eq!(image.matches("<circle").count(), 3);

    // A device that computes one sequence after another has a flat curve, whatever its bottleneck.
    let geometry = [
        "sweep",
        "--geometry",
        "llama-3.2-1b",
        "--layers",
        "1",
        "--sequences",
        "1,64",
    ];
    let device = [&geometry[..], &["--device", "xdna2", "--json"]].concat();
    let flat = json(&home, &device);
    let rate = |i: usize| flat["points"][i]["tokens_per_s"].as_f64().expect("a rate");
    assert!((rate(1) / rate(0) - 1.0).abs() < 1e-9);
    assert!(
        flat["verdict"]
            .as_str()
            .expect("words")
            .starts_with("flat from 1 to 64")
    );
    assert!(
        flat["times"]
            .as_str()
            .expect("words")
            .starts_with("modelled(")
    );
    let here = run(&home, &geometry);
    here.expect_error(USAGE, &["--geometry is for devices", "millrace synth"]);
}

#[test]
fn a_ceiling_is_told_with_what_would_move_it() {
    let home = home();
    // The memory is so slow that no processor's arithmetic is the bound, even on a busy machine.
    let known = [
        "ceiling",
        "--geometry",
        "llama-3.1-8b",
        "--type",
        "Q4_K_M",
        "--bandwidth",
        "4",
    ];
    let found = json(&home, &[&known[..], &["-d", "8191", "--json"]].concat());
    // 32 layers of keys and values, 8 heads of 128, in 16 bits: 128 KiB per token.
    assert_eq!(found["demand"]["cache_bytes"], 131_072.0 * 8192.0);
    let weights = found["demand"]["weight_bytes"].as_f64().expect("bytes");
    assert!((4.3e9..4.9e9).contains(&weights), "{weights}");
    let rows = found["rows"].as_array().expect("rows");
    let rate = rows[0]["tokens_per_s"].as_f64().expect("a rate");
    assert!((rate - 4e9 / (weights + 131_072.0 * 8192.0)).abs() < 0.01);
    let table = run(&home, &[&known[..], &["--drafts", "8"]].concat())
        .expect(OK)
        .stdout;
    for words in [
        "4.0 GB/s",
        "cache in fp8",
        "8 drafts, 80 %",
        "A token is bound by bytes of weights",
    ] {
        assert!(table.contains(words), "no {words} in {table}");
    }
    let device = [
        "ceiling",
        "--geometry",
        "llama-3.2-1b",
        "--layers",
        "1",
        "--device",
        "xdna2",
    ];
    let table = run(&home, &device).expect(OK).stdout;
    assert!(
        table.contains("launches for nothing") && table.contains("modelled("),
        "{table}"
    );
    let refused = run(&home, &[&device[..], &["--kv-type", "q8_0"]].concat());
    refused.expect_error(USAGE, &["--kv-type q8_0"]);
    run(&home, &["ceiling", "demo", "--acceptance", "2"]).expect(USAGE);
}

#[test]
fn ratios_are_of_weights_and_of_outputs() {
    let home = home();
    let measured = "blk.0.ffn_down.weight";
    let found = json(
        &home,
        &[
            "snr",
            "demo-draft",
            "--tensor",
            measured,
            "--rows",
            "32",
            "--json",
        ],
    );
    let results = found["results"].as_array().expect("results");
    let of = |tensor: &str, pipeline: &str| {
        let mut results = results.iter();
        let found = results.find(|r| r["tensor"] == tensor && r["pipeline"] == pipeline);
        found.unwrap_or_else(|| panic!("no {pipeline} of {tensor}"))
    };
    let (name, db) = (measured, "weights_db");
    let ratio =
        |pipeline: &str, of_what: &str| of(name, pipeline)[of_what].as_f64().expect("a ratio");
    assert!(ratio("q8_0", db) > ratio("q4_k", db) + 15.0);
    let (eight, four) = (
        ratio("q4_k > int8/64", db),
        ratio("q4_k > int8/64 > int4/64", db),
    );
    assert!((eight - four - 25.0).abs() < 1.5, "{eight} {four}");
    assert!(ratio("q8_0", "outputs_int8_x_db") <= ratio("q8_0", "outputs_db"));
    let table = run(&home, &["snr", "--gaussian", "32,512", "-q"])
        .expect(OK)
        .stdout;
    assert!(table.contains("hadamard + int8/row"), "{table}");
    let refused = run(&home, &["snr", "demo-draft", "--tensor", "blk.9.nothing"]);
    refused.expect_error(NOT_FOUND, &["blk.9.nothing", "its matrices are"]);
    run(&home, &["snr"]).expect(USAGE);
}
