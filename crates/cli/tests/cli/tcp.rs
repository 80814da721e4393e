//! Every command that takes a device takes `tcp`.

use crate::run::{FAILED, Finished, OK, USAGE, finish, millrace};
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

fn run(home: &Path, arguments: &[&str]) -> Finished {
    finish(millrace(home).args(arguments))
}

fn json(home: &Path, arguments: &[&str]) -> Value {
    run(home, &[arguments, &["--json"]].concat())
        .expect(OK)
        .json()
}

const TCP: [&str; 2] = ["--device", "tcp"];

#[test]
fn it_writes_what_the_cpu_writes() {
    let home = tempdir().expect("a folder");
    let args = ["run", "demo", "The dog ran to the", "--greedy", "-n", "12"];
    let by_cpu = json(home.path(), &args);
    let by_tcp = json(home.path(), &[&args[..], &TCP].concat());
    assert_eq!(by_tcp["text"], by_cpu["text"]);
    assert!(by_tcp["npu"]["decode"]["device_ns"].as_u64() > Some(0));
}

/// Checks every op of a prompt and of tokens from the device's own operands; a wrong device is found.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn every_op_is_checked() {
    let home = tempdir().expect("a folder");
    let bisect = ["diagnose", "demo-draft", "A girl", "--bisect"];
    for numerics in ["bf16", "fp8", "int4", "int8"] {
        let more = ["--numerics", numerics];
        let found = json(home.path(), &[&bisect[..], &TCP, &more].concat());
        assert!(found["n_ops"].as_u64() > Some(30), "{numerics}: {found}");
        assert_eq!(found["finding"], Value::Null, "{numerics}");
    }
    let explained = json(
        home.path(),
        &[&["explain", "demo-draft", "--prompt-tokens", "8"][..], &TCP].concat(),
    );
    let programs = explained["plans"][0]["programs"].as_array();
    for program in programs.expect("programs") {
        let name = program["name"].as_str().expect("a name");
        // The name of attention contains the number of cache rows, which depends on the context.
        if name.starts_with("attn_16x") {
            continue;
        }
        let corrupt = format!("{name}:y:double");
        let more = ["--corrupt", &corrupt];
        run(home.path(), &[&bisect[..], &TCP, &more].concat()).expect(FAILED);
    }
}

/// Blocks of ops: every command accepts the mode, the text is the same, and a fault in a block is found.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn blocks_are_for_every_command() {
    let home = tempdir().expect("a folder");
    let best = [&TCP[..], &["--mode", "best"]].concat();
    let args = ["run", "demo", "The dog ran to the", "--greedy", "-n", "12"];
    let plain = json(home.path(), &[&args[..], &TCP].concat());
    let blocks = json(home.path(), &[&args[..], &best].concat());
    assert_eq!(plain["text"], blocks["text"]);
    let calls = |found: &Value| found["npu"]["decode"]["n_dispatches"].as_u64();
    assert!(calls(&blocks) < calls(&plain), "{blocks}");
    let bisect = ["diagnose", "demo-draft", "A girl", "--bisect"];
    let found = json(home.path(), &[&bisect[..], &best].concat());
    assert!(found["n_ops"].as_u64() > Some(30), "{found}");
    assert_eq!(
        (&found["finding"], &found["unchecked"]),
        (&Value::Null, &serde_json::json!({}))
    );
    let explain = ["explain", "demo-draft", "--prompt-tokens", "8"];
    let explained = json(home.path(), &[&explain[..], &best].concat());
    let programs = explained["plans"][0]["programs"].as_array();
    let programs = programs.expect("programs");
    let name = programs[0]["name"].as_str().expect("a name");
    let corrupt = format!("{name}:attn_k_rope_y:some");
    let wrong = [&bisect[..], &best, &["--corrupt", &corrupt]].concat();
    let errors = run(home.path(), &wrong).expect(FAILED).stderr;
    assert!(errors.contains("attn_k_rope of layer 0"), "{errors}");
    let profile = ["profile", "--geometry", "llama-3.1-8b", "--features"];
    let text = run(home.path(), &[&profile[..], &best].concat())
        .expect(OK)
        .stdout;
    for row in ["without blocks", "without read-ahead"] {
        assert!(text.contains(row), "{row}: {text}");
    }
    let unknown = [&args[..], &TCP, &["--mode", "bset"]].concat();
    let errors = run(home.path(), &unknown).expect(USAGE).stderr;
    assert!(errors.contains("plain, best"), "{errors}");
}

#[test]
fn the_gate_passes() {
    let home = tempdir().expect("a folder");
    for numerics in ["bf16", "fp8"] {
        let args = [
            "verify",
            "demo-draft",
            "--tokens",
            "6",
            "--numerics",
            numerics,
        ];
        let found = json(home.path(), &[&args[..], &TCP].concat());
        assert_eq!(found["passes"], true, "{numerics}: {found}");
    }
}

#[test]
fn ops_are_explained_over_named_axes() {
    let home = tempdir().expect("a folder");
    let args = ["explain", "--geometry", "llama-tiny"];
    let text = run(home.path(), &[&args[..], &TCP].concat())
        .expect(OK)
        .stdout;
    for expected in [
        "[B, s_q, D] × [D, F] → [B, s_q, F]",
        "contraction engine",
        "reduce: packet",
        "exp(s - max(s))",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn several_chips_share_a_model() {
    let home = tempdir().expect("a folder");
    let args = [
        "profile",
        "--geometry",
        "llama-3.1-70b",
        "--numerics",
        "fp8",
    ];
    let chips = |n: &'static str, how: &'static str| {
        [&args[..], &TCP, &["--chips", n, "--parallel", how]].concat()
    };
    for how in ["pp", "tp"] {
        let found = json(home.path(), &chips("4", how));
        assert!(found["cost"]["token_ns"].as_f64() > Some(1e6), "{found}");
    }
    for (n, how, problem) in [
        ("1", "pp", "the weights take"),
        ("3", "tp", "a multiple of the 3 chips"),
        ("2", "zz", "no parallel `zz`"),
    ] {
        let output = run(home.path(), &chips(n, how));
        let code = if how == "zz" { USAGE } else { FAILED };
        let errors = output.expect(code).stderr;
        assert!(errors.contains(problem), "{errors}");
    }
}

/// The export is a crate for the vendor's toolchain; a device without an export names one that has it.
#[test]
fn it_exports_its_programs() {
    let home = tempdir().expect("a folder");
    let dir = home.path().join("crate");
    let out = dir.to_str().expect("a path");
    let export = ["export", "demo-draft", "--out", out];
    run(home.path(), &[&export[..], &TCP].concat()).expect(OK);
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).expect("a file");
    let readme = read("README.md");
    assert!(readme.contains("## A prompt of 16 tokens"), "{readme}");
    for module in read("src/lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod "))
    {
        let module = module.trim_end_matches(';');
        let text = read(&format!("src/{module}.rs"));
        assert!(text.contains(&format!("pub fn {module}(")), "{module}");
        assert!(readme.contains(&format!("| `{module}` |")), "{module}");
    }
    let int4 = [&export[..], &TCP, &["--numerics", "int4"]].concat();
    run(home.path(), &int4).expect(USAGE);
    let best = [&export[..], &TCP, &["--mode", "best"]].concat();
    let errors = run(home.path(), &best).expect(USAGE).stderr;
    assert!(errors.contains("--mode plain"), "{errors}");
    let other = run(
        home.path(),
        &[&export[..], &["--device", "rk3588"]].concat(),
    )
    .expect(USAGE);
    assert!(
        other.stderr.contains("--device tcp writes"),
        "{}",
        other.stderr
    );
}
