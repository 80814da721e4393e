//! One crate and one row: every command that takes a device takes this one, although nothing else knows of it.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn toy(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-toy"));
    command
        .args(args)
        .env("MILLRACE_NPU_CACHE", "")
        .env("MILLRACE_THREADS", "2")
        .env_remove("MILLRACE_CPU_LEVEL")
        .stdin(Stdio::null());
    command
}

fn ended(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Standard output of a run that ends well.
fn out(args: &[&str]) -> String {
    let output = ended(&mut toy(args));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> serde_json::Value {
    let text = out(&[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn it_is_listed_and_told_of() {
    let listed = out(&["devices"]);
    assert!(
        listed.contains("toy         a toy that multiplies"),
        "{listed}"
    );
    assert!(!listed.to_lowercase().contains("xdna"), "{listed}");
    let listed = json(&["devices"]);
    assert_eq!(listed["targets"][0]["name"], "toy");
    for command in ["run", "explain"] {
        let help = out(&[command, "--help"]);
        assert!(help.contains("toy"), "{help}");
        assert!(!help.to_lowercase().contains("xdna"), "{help}");
    }
}

/// The model's choices have margins wide enough that a device in f16 and f32 makes the same choices as the CPU.
#[test]
fn it_writes_what_the_cpu_writes() {
    let args = ["run", "demo", "The dog ran to the", "--greedy", "-n", "24"];
    let by_cpu = json(&args);
    let by_toy = json(&[&args[..], &["--device", "toy"]].concat());
    assert_eq!(by_toy["text"], by_cpu["text"]);
    assert_eq!(by_toy["npu"]["device"], "virtual toy");
    assert!(by_toy["npu"]["decode"]["device_ns"].as_u64() > Some(0));
    assert!(by_cpu.get("npu").is_none());
}

#[test]
fn it_chats() {
    let mut command = toy(&["chat", "demo", "--device", "toy", "--greedy", "-n", "8"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"Hello!\nAnd now?\n/stats\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let (text, notes) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{notes}");
    assert!(text.contains("virtual toy"), "{text}");
    // The second prompt begins with the first conversation's tokens.
    assert!(notes.contains("cached"), "{notes}");
}

/// The toy multiplies every row separately, so a check of drafts rounds as plain steps do.
#[test]
fn drafts_change_no_text_on_it() {
    let args = [
        "run",
        "demo",
        "The dog ran to the",
        "--device",
        "toy",
        "-n",
        "24",
        "--greedy",
    ];
    let plain = json(&args);
    for draft in ["demo-draft", "ngram"] {
        let drafted = json(&[&args[..], &["--draft", draft]].concat());
        assert_eq!(drafted["tokens"], plain["tokens"], "{draft}");
        // The number of drafts depends on measured times.
        assert!(drafted["speculation"]["n_drafted"].is_u64(), "{drafted}");
    }
    let ceiling = out(&["ceiling", "demo", "--device", "toy"]);
    assert!(!ceiling.to_lowercase().contains("xdna"), "{ceiling}");
    let flat = json(&[
        "sweep",
        "demo-draft",
        "--device",
        "toy",
        "--sequences",
        "1,8",
    ]);
    assert!(
        flat["verdict"].as_str().unwrap().starts_with("flat"),
        "{flat}"
    );
}

#[test]
fn it_is_measured_by_its_own_clock() {
    let args = ["bench", "demo-draft", "-p", "20", "-n", "3", "-r", "1"];
    let rows = out(&[&args[..], &["--device", "toy", "-o", "json"]].concat());
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows[0]["backends"], "toy");
    assert_eq!(rows[0]["times"], "modelled(imagination, error unknown)");
    assert!(rows[1]["avg_ts"].as_f64() > Some(0.0));
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn it_predicts_a_text_as_the_cpu_does() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.txt");
    let story = "Once upon a time there was a little girl who lived near the woods. ".repeat(12);
    std::fs::write(&text, story).unwrap();
    let text = text.to_str().unwrap();
    let args = ["perplexity", "demo", text, "-c", "64"];
    let by_cpu = json(&args)["perplexity"].as_f64().unwrap();
    let by_toy = json(&[&args[..], &["--device", "toy"]].concat());
    assert_eq!(by_toy["device"], "virtual toy");
    let by_toy = by_toy["perplexity"].as_f64().unwrap();
    assert!(
        (by_toy / by_cpu - 1.0).abs() < 0.02,
        "{by_toy} for {by_cpu}"
    );
}

#[test]
fn it_is_checked() {
    let found = json(&["verify", "demo", "--tokens", "8"]);
    assert_eq!(found["passes"], true, "{found}");
    let output = ended(&mut toy(&["diagnose", "demo"]));
    assert!(output.status.success());
    let bisect = json(&["diagnose", "demo", "--bisect"]);
    assert!(bisect["n_ops"].as_u64() > Some(50), "{bisect}");
    assert_eq!(bisect["finding"], serde_json::Value::Null);
}

/// For a mixture of experts the toy multiplies with the experts that tokens choose, one dispatch each. Every other node
/// gives its reason for being on the host.
#[test]
fn it_multiplies_with_the_chosen_experts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mixture.gguf");
    let model = path.to_str().unwrap();
    out(&["synth", "granitehybrid-tiny", model]);
    let found = json(&["verify", model, "--tokens", "8"]);
    assert_eq!(found["passes"], true, "{found}");
    let bisect = json(&["diagnose", model, "--bisect"]);
    assert_eq!(bisect["finding"], serde_json::Value::Null, "{bisect}");
    // A token uses two of eight experts: of three layers the products with gate, up and down.
    let explained = json(&["explain", model, "--prompt-tokens", "10"]);
    let summary = &explained["summary"];
    let plans = summary["plans"].as_array().unwrap();
    let token = plans.iter().find(|plan| plan["name"] == "decode").unwrap();
    assert_eq!(token["n_expert_dispatches"], 2 * 3 * 3, "{token}");
    assert!(
        summary["memory"]["expert_bytes"].as_u64() > Some(0),
        "{summary}"
    );
    let text = out(&["explain", model, "--prompt-tokens", "10"]);
    for part in [
        "of these 18 are experts'",
        "a dispatch for each chosen expert, a row of its own in each",
        "the host chooses a token's experts",
        "where each comes when it is first chosen",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The predicted dispatches of a token are the ones that run.
    let args = [
        "run", model, "A girl", "--device", "toy", "--greedy", "-n", "6",
    ];
    let ran = json(&args);
    let decode = &ran["npu"]["decode"];
    let each = decode["n_dispatches"].as_u64().unwrap() / decode["n_tokens"].as_u64().unwrap();
    assert_eq!(token["n_dispatches"].as_u64(), Some(each), "{decode}");
    let priced = json(&["profile", model, "--prompt-tokens", "10", "-n", "2"]);
    let totals = &priced["prediction"]["token"]["totals"];
    assert_eq!(totals["n_calls"].as_u64(), Some(each), "{totals}");
}

/// The check is itself checked: a toy that is wrong in one slot fails, and the report names the place.
#[test]
fn a_wrong_toy_fails() {
    let programs = json(&["explain", "demo", "--prompt-tokens", "10"]);
    let program = programs["plans"][0]["programs"][0]["name"]
        .as_str()
        .unwrap();
    let wrong_op = "attn_q of layer 0 is wrong";
    for (slot, how, finding) in [
        ("y", "double", wrong_op),
        ("w", "permute", wrong_op),
        ("x", "zero", "attn_norm of layer 0 changes on its way"),
    ] {
        let corrupt = format!("{program}:{slot}:{how}");
        let args = [
            "diagnose",
            "demo",
            "A girl",
            "--bisect",
            "--corrupt",
            &corrupt,
        ];
        let output = ended(&mut toy(&args));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{corrupt}: {errors}");
        assert!(errors.contains(finding), "{corrupt}: {errors}");
    }
    let args = ["verify", "demo", "--tokens", "4", "--corrupt"];
    let output = ended(&mut toy(
        &[&args[..], &[&format!("{program}:y:zero")]].concat()
    ));
    assert_eq!(output.status.code(), Some(1));
    let output = ended(&mut toy(&[&args[..], &["nobody:y"]].concat()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("there are matmul_"), "{errors}");
}

#[test]
fn its_plans_are_explained_compiled_and_priced() {
    let text = out(&["explain", "--geometry", "llama-3.2-1b", "--layers", "1"]);
    assert!(text.contains("all that the toy can do"), "{text}");
    assert!(text.contains("the device takes products"), "{text}");
    let op = out(&["explain", "demo", "--op", "ffn_down"]);
    assert!(op.contains("matmul"), "{op}");
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let args = ["compile", "demo", "--out", folder];
    let (first, again) = (json(&args), json(&args));
    let from_cache = |report: &serde_json::Value| report["plans"][0]["from_cache"].clone();
    assert_eq!(
        (from_cache(&first), from_cache(&again)),
        (false.into(), true.into())
    );
    assert_eq!(first["plans"].as_array().unwrap().len(), 3);
    assert!(Path::new(folder).read_dir().unwrap().count() > 5);
    let priced = json(&["profile", "demo", "--prompt-tokens", "40", "-n", "2"]);
    assert_eq!(priced["prediction"]["prefill"][0]["n_padded"], 256);
    assert!(priced["prediction"]["ttft_ns"].as_f64() > Some(0.0));
    assert_eq!(priced["measured"]["counters"]["device"], "virtual toy");
}

#[test]
fn what_it_has_not_is_refused() {
    for (args, problem) in [
        (&["kernel"][..], "no kernels to look at"),
        (&["fidelity"], "no measurements"),
        (
            &["run", "demo", "x", "--device", "toy", "--mode", "best"],
            "no mode `best` for toy",
        ),
        (
            &["run", "demo", "x", "--device", "xdna2"],
            "[possible values: cpu, toy]",
        ),
        (&["profile", "demo", "--markdown"], "nothing was published"),
    ] {
        let output = ended(&mut toy(args));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(problem), "{args:?}: {errors}");
    }
}

/// Programs that ran elsewhere than on the requested machine are counted and named. They fail a check unless that is
/// allowed.
#[test]
fn what_another_runs_is_told_and_fails_a_check() {
    let narrow = ["--device", "toy", "--simulator", "narrow"];
    let run = ["run", "demo", "The dog", "--greedy", "-n", "2"];
    let told = json(&[&run[..], &narrow].concat());
    let substitutes = told["npu"]["substitutes"].as_array().unwrap();
    assert!(!substitutes.is_empty());
    let reason = substitutes[0]["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("columns are too many, so the whole toy multiplies"),
        "{reason}"
    );
    assert!(told["npu"]["n_programs"].as_u64() > Some(1));
    let line = ended(&mut toy(&[&run[..], &narrow].concat()));
    let line = String::from_utf8_lossy(&line.stderr).into_owned();
    assert!(
        line.contains(" programs did not run on what was asked for"),
        "{line}"
    );
    let verify = ["verify", "demo", "--tokens", "2"];
    let failed = ended(&mut toy(&[&verify[..], &narrow].concat()));
    let found = String::from_utf8_lossy(&failed.stdout).into_owned();
    assert_eq!(failed.status.code(), Some(1), "{found}");
    assert!(
        found.contains("FAIL ") && found.contains("did not run on what was asked for"),
        "{found}"
    );
    let allowed = out(&[&verify[..], &narrow, &["--allow-substitutes"]].concat());
    assert!(
        allowed.contains("PASS ") && allowed.contains("did not run on what was asked for"),
        "{allowed}"
    );
    // Without a substitute there is nothing to report.
    let whole = json(&[&verify[..], &["--device", "toy"]].concat());
    assert_eq!(
        (&whole["passes"], &whole["npu"]["substitutes"]),
        (&true.into(), &serde_json::json!([]))
    );
}
