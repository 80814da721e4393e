//! Commands on a mixture of experts: a token reads its chosen experts, and not all of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run::{BAD_INPUT, Finished, OK, USAGE, finish, millrace};
use millrace_model::importance::ImportanceMatrix;
use millrace_testkit::golden::Golden;

/// Two layers of six experts, of which a token uses three; 71,704 parameters.
fn mixture() -> PathBuf {
    Golden::named("qwen3moe")
        .gguf()
        .expect("a file of the fixture")
}

/// A mixture with rows of 64, which blocks of 32 divide.
fn wider() -> PathBuf {
    Golden::named("qwen2moe")
        .gguf()
        .expect("a file of the fixture")
}

fn run(home: &Path, arguments: &[&str]) -> Finished {
    finish(millrace(home).args(arguments))
}

fn json(home: &Path, arguments: &[&str]) -> Value {
    run(home, arguments).expect(OK).json()
}

/// Bytes of all experts of the mixture in f32: gates, up and down projections of 24 times 40 elements in two layers.
const EXPERT_BYTES: f64 = 138_240.0;

#[test]
fn info_counts_what_a_token_uses() {
    let home = tempfile::tempdir().unwrap();
    let path = mixture();
    let file = path.to_str().unwrap();
    let info = json(home.path(), &["info", file, "--json"]);
    // Half of the experts are active.
    let active = 71_704 - 2 * 3 * 3 * 24 * 40;
    assert_eq!(info["n_params"], 71_704);
    assert_eq!(info["n_params_active"], active);
    assert_eq!(info["config"]["n_experts"], 6);
    let text = run(home.path(), &["info", file]).expect(OK).stdout;
    assert!(text.contains("6 of width 24, 3 a token"), "{text}");
    assert!(text.contains("54.4 k of 71.7 k parameters"), "{text}");
}

#[test]
fn ceiling_and_sweep_read_distinct_experts() {
    let home = tempfile::tempdir().unwrap();
    let path = mixture();
    let file = path.to_str().unwrap();
    let arguments = ["ceiling", file, "--json", "--bandwidth", "10", "-d", "64"];
    let ceiling = json(home.path(), &arguments);
    let demand = &ceiling["demand"];
    assert_eq!(demand["expert_share"], 0.5);
    assert_eq!(demand["expert_bytes"], EXPERT_BYTES);
    let of_a_token = demand["weight_bytes"].as_f64().unwrap();
    // 10 GB/s is 0.1 ns per byte.
    let weights_ns = ceiling["bound"]["weights_ns"].as_f64().unwrap();
    assert!(
        (weights_ns - of_a_token / 10.0).abs() < 1e-3,
        "{weights_ns}"
    );
    let arguments = [
        "sweep",
        file,
        "--json",
        "--sequences",
        "1,2",
        "-n",
        "2",
        "--threads",
        "1",
    ];
    let sweep = json(home.path(), &arguments);
    let weights_ns = |i: usize| sweep["points"][i]["bound"]["weights_ns"].as_f64().unwrap();
    let bandwidth = sweep["roofs"]["bytes_per_s"].as_f64().unwrap();
    // Two tokens use three quarters of the experts on average, one token half of them.
    let more = (weights_ns(1) - weights_ns(0)) * bandwidth / 1e9;
    assert!((more - EXPERT_BYTES / 4.0).abs() < 1.0, "{more}");
}

#[test]
fn bench_times_prompts_and_tokens() {
    let home = tempfile::tempdir().unwrap();
    let path = mixture();
    let file = path.to_str().unwrap();
    let arguments = [
        "bench", file, "-p", "8", "-n", "4", "-r", "1", "-t", "1", "-o", "json",
    ];
    let rows = json(home.path(), &arguments);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["model_n_params"], 71_704);
        assert!(row["avg_ts"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn explain_and_profile_know_where_experts_are() {
    let home = tempfile::tempdir().unwrap();
    let path = mixture();
    let file = path.to_str().unwrap();
    for device in ["xdna2", "rk3588", "tcp"] {
        let on = ["--device", device, "--json", "--prompt-tokens", "64"];
        let explained = json(home.path(), &[&["explain", file][..], &on].concat());
        let experts = &explained["summary"]["experts"];
        assert_eq!(
            experts["all_bytes"].as_f64(),
            Some(EXPERT_BYTES),
            "{device}"
        );
        assert_eq!(experts["token_bytes"].as_f64(), Some(EXPERT_BYTES / 2.0));
        let profile = json(home.path(), &[&["profile", file][..], &on].concat());
        let ttft = profile["prediction"]["ttft_ns"].as_f64();
        assert!(ttft.is_some_and(|ns| ns > 0.0), "{device}: {ttft:?}");
    }
}

/// Importances from a text, and their effect on `quantize`.
#[test]
fn an_importance_matrix_changes_what_quantize_writes() {
    let home = tempfile::tempdir().unwrap();
    let path = wider();
    let file = path.to_str().unwrap();
    let words = "the quick brown fox jumps over the lazy dog and runs away from it all. ";
    fs::write(home.path().join("text.txt"), words.repeat(40)).unwrap();
    let made = [
        "imatrix", file, "-f", "text.txt", "-o", "own.gguf", "-c", "64", "--json",
    ];
    let made = json(home.path(), &made);
    assert_eq!(made["unused_experts"], 0);
    let quantize = |out: &str, more: &[&str]| {
        let arguments = [&["quantize", file, out, "IQ4_NL"][..], more].concat();
        run(home.path(), &arguments).expect(OK);
        fs::read(home.path().join(out)).unwrap()
    };
    let plain = quantize("plain.gguf", &[]);
    let weighted = quantize("weighted.gguf", &["--imatrix", "own.gguf"]);
    assert_ne!(plain, weighted);
    // The result runs.
    let text = ["run", "weighted.gguf", "the quick", "-n", "4", "--greedy"];
    run(home.path(), &text).expect(OK);
    // A matrix of another model has other widths.
    let path = mixture();
    let other = [
        "quantize",
        path.to_str().unwrap(),
        "x.gguf",
        "IQ4_NL",
        "--imatrix",
        "own.gguf",
    ];
    let refused = run(home.path(), &other).expect(BAD_INPUT);
    for part in ["blk.0.", "belongs to another model"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert!(!home.path().join("x.gguf").exists());
}

/// Text added to an earlier matrix counts as if both had been read at once, in both formats: the older one has a single count for all
/// experts of a tensor.
#[test]
fn an_importance_matrix_goes_on_from_an_earlier_one() {
    /// Tokens of a chunk.
    const N_CHUNK: u64 = 64;
    let home = tempfile::tempdir().unwrap();
    let (path, other) = (wider(), mixture());
    let (file, other) = (path.to_str().unwrap(), other.to_str().unwrap());
    let words = "the quick brown fox jumps over the lazy dog and runs away from it all. ";
    fs::write(home.path().join("text.txt"), words.repeat(40)).unwrap();
    let make = |model: &str, arguments: &[&str]| {
        let common = [
            "imatrix", model, "-f", "text.txt", "-c", "64", "--chunks", "2",
        ];
        run(home.path(), &[&common, arguments].concat())
    };
    make(file, &["-o", "first.gguf"]).expect(OK);
    make(file, &["-o", "first.dat", "--format", "dat"]).expect(OK);
    make(file, &["-o", "a.gguf", "--in-file", "first.gguf"]).expect(OK);
    make(file, &["-o", "b.gguf", "--in-file", "first.dat"]).expect(OK);
    let read = |name: &str| ImportanceMatrix::read(&home.path().join(name)).unwrap();
    let [first, older, a, b] = ["first.gguf", "first.dat", "a.gguf", "b.gguf"].map(read);
    assert_eq!((a.chunk_count, b.chunk_count), (4, 4));
    let mut n_experts = 0;
    for (name, once) in first.entries() {
        let (older, b) = (older.entry(name).unwrap(), b.entry(name).unwrap());
        let twice: Vec<u64> = once.counts().iter().map(|n| 2 * n).collect();
        assert_eq!(a.entry(name).unwrap().counts(), twice, "{name}");
        // The older format has one count for all experts, of chunks: the new text's are added to its rows.
        assert_eq!(older.counts(), [2]);
        let counts: Vec<u64> = once.counts().iter().map(|n| 2 * N_CHUNK + n).collect();
        assert_eq!(b.counts(), counts, "{name}");
        for ((sum, older), once) in b.sums().iter().zip(older.sums()).zip(once.sums()) {
            let expected = older * N_CHUNK as f64 + once;
            // Files have sums in f32.
            assert!(
                (sum - expected).abs() <= 1e-5 * expected,
                "{name}: {sum} for {expected}"
            );
        }
        n_experts = n_experts.max(once.n_matrices());
    }
    assert!(n_experts > 1);
    // An earlier file of another model is refused before the text is read, and the text is not replaced.
    let refused = make(other, &["-o", "x.gguf", "--in-file", "first.gguf"]).expect(BAD_INPUT);
    assert!(
        refused.stderr.contains("belongs to another model"),
        "{}",
        refused.stderr
    );
    let refused = make(file, &["-o", "text.txt"]).expect(USAGE);
    assert!(
        refused.stderr.contains("is an input of this command"),
        "{}",
        refused.stderr
    );
}

#[test]
fn types_by_pattern_are_taken_where_they_fit() {
    let home = tempfile::tempdir().unwrap();
    let path = wider();
    let file = path.to_str().unwrap();
    let pattern = [
        "--tensor-type",
        "blk.0.*_exps=Q8_0",
        "--tensor-type",
        "attn_q=Q4_K",
    ];
    let arguments = [&["quantize", file, "out.gguf", "Q4_0"][..], &pattern].concat();
    let told = run(home.path(), &arguments).expect(OK).stderr;
    let info = json(home.path(), &["info", "out.gguf", "--tensors", "--json"]);
    let tensors = info["tensors"].as_array().unwrap();
    let type_of = |name: &str| {
        let found = tensors.iter().find(|tensor| tensor["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))["type"].clone()
    };
    assert_eq!(type_of("blk.0.ffn_gate_exps.weight"), "q8_0");
    assert_eq!(type_of("blk.1.ffn_gate_exps.weight"), "q4_0");
    assert_eq!(type_of("blk.1.attn_k.weight"), "q4_0");
    // Blocks of 256 do not divide rows of 64, and a user who asked for them is told.
    assert_eq!(type_of("blk.0.attn_q.weight"), "q5_0");
    for part in [
        "blk.0.attn_q.weight [64, 64]",
        "q5_0",
        "q4_k blocks do not fit",
    ] {
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }
    let unknown = [
        "quantize",
        file,
        "out.gguf",
        "Q4_0",
        "--tensor-type",
        "attn_q=Q9_K",
    ];
    let refused = run(home.path(), &unknown).expect(USAGE).stderr;
    assert!(refused.contains("attn_q=Q9_K"), "{refused}");
}
