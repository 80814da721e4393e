//! `compile`, `explain` and `diagnose`: plans and ops of the virtual NPU from the command line.

use crate::run::{FAILED, Finished, NOT_FOUND, OK, USAGE, finish, millrace};
use serde_json::Value;
use std::fs;
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

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

const COMPILE: [&str; 3] = ["compile", "--geometry", "llama-tiny"];

#[test]
fn what_was_compiled_is_found_again() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let first = json(home, &COMPILE);
    let plans = array(&first["plans"]);
    let named = |start: &str| {
        let names = plans.iter().filter_map(|plan| plan["name"].as_str());
        names.filter(|name| name.starts_with(start)).count()
    };
    // Fourteen lengths. Tokens have two plans: one where the host attends, and one where the array does.
    assert_eq!((named("prefill of "), named("decode")), (14, 2));
    assert_eq!(named("decode over "), 1);
    assert_eq!(plans.len(), 16);
    assert!(plans.iter().all(|plan| plan["from_cache"] == false));
    assert!(home.join(".cache/millrace/npu/manifest.json").is_file());
    let mut again = json(home, &COMPILE);
    for plan in array(&again["plans"]) {
        assert_eq!(plan["from_cache"], true, "{}", plan["name"]);
    }
    // Nothing else differs.
    let plans = again["plans"].as_array_mut().expect("plans");
    plans
        .iter_mut()
        .for_each(|plan| plan["from_cache"] = false.into());
    assert_eq!(first["plans"], again["plans"]);
    // Another machine, mode or number of layers makes other plans.
    for more in [
        &["--set", "cols=4"][..],
        &["--mode", "mlir-air"],
        &["--layers", "2"],
    ] {
        let other = json(home, &[&COMPILE[..], more].concat());
        let plans = array(&other["plans"]);
        assert!(
            plans.iter().all(|plan| plan["from_cache"] == false),
            "{more:?}"
        );
    }
    let text = run(home, &[&COMPILE[..], &["--list"]].concat())
        .expect(OK)
        .stdout;
    for mentions in ["from the cache", "lm_head", "static {", "8×", "flash_attn"] {
        assert!(text.contains(mentions), "no `{mentions}` in\n{text}");
    }
}

#[test]
fn a_damaged_cache_is_built_again() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let arguments = [&COMPILE[..], &["--prompt-tokens", "30", "--out", "kept"]].concat();
    let first = json(home, &arguments);
    for entry in fs::read_dir(home.join("kept")).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "npu") {
            let mut bytes = fs::read(&path).expect("an artifact");
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(&path, bytes).expect("written");
        }
    }
    let found = run(home, &arguments[..]).expect(OK);
    assert!(found.stderr.contains("built again"), "{}", found.stderr);
    let again = json(home, &arguments);
    for (a, b) in array(&first["plans"]).iter().zip(array(&again["plans"])) {
        assert_eq!(
            (&a["programs"], &b["from_cache"]),
            (&b["programs"], &true.into())
        );
    }
}

#[test]
fn an_empty_variable_keeps_nothing() {
    let home = tempdir().expect("a folder");
    let mut command = millrace(home.path());
    command.args(COMPILE).env("MILLRACE_NPU_CACHE", "");
    let found = finish(&mut command).expect(OK);
    assert!(found.stdout.contains("not kept"), "{}", found.stdout);
    assert!(!home.path().join(".cache").exists());
}

/// Shows the programs of MLIR-AIR's Llama-3.2-1B example by their names and slots.
#[test]
fn explain_shows_the_published_programs() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let common = [
        "explain",
        "--geometry",
        "llama-3.2-1b",
        "--mode",
        "mlir-air",
    ];
    let report = json(home, &common);
    let prefill = &report["plans"][0];
    assert_eq!(prefill["n_dispatches"], 49);
    let names: Vec<&str> = array(&prefill["programs"])
        .iter()
        .filter_map(|program| program["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["rms_gemms_rope", "flash_attn", "o_ffn", "lm_head_gemv"]
    );
    assert_eq!(array(&prefill["programs"][0]["slots"]).len(), 13);
    let host = array(&prefill["ops"])
        .iter()
        .filter(|op| op["device"] == "CPU");
    let host: Vec<&str> = host.filter_map(|op| op["op"].as_str()).collect();
    assert_eq!(host, ["embed", "output_norm"]);
    let text = run(home, &common).expect(OK).stdout;
    for mentions in [
        "1–15",
        "static {1, 3, 5, 7, 9, 10}",
        "transposed [k, n]",
        "flash attention takes as many queries as keys",
        "16 buffer sets rms_gemms_rope_L0",
    ] {
        assert!(text.contains(mentions), "no `{mentions}` in\n{text}");
    }
}

#[test]
fn explain_begins_with_a_summary() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let text = run(home, &["explain", "demo-draft"]).expect(OK).stdout;
    let summary = text.split("\n\n").next().expect("a paragraph");
    for mentions in [
        "ops on the array",
        "dispatches",
        "left to the CPU: embed",
        "memory: ",
        "A program is",
    ] {
        assert!(summary.contains(mentions), "no `{mentions}` in\n{summary}");
    }
    let report = json(home, &["explain", "demo-draft"]);
    let summary = &report["summary"];
    let plans = array(&summary["plans"]);
    assert_eq!(plans.len(), array(&report["plans"]).len());
    for (plan, full) in plans.iter().zip(array(&report["plans"])) {
        assert_eq!(plan["n_dispatches"], full["n_dispatches"]);
        let ops = array(&full["ops"]);
        let on_array = ops.iter().filter(|op| op["device"] == "array").count();
        assert_eq!(plan["n_ops_on_array"], on_array);
        assert_eq!(plan["n_ops"], ops.len());
    }
    assert!(summary["memory"]["total_bytes"].as_u64() > Some(1 << 20));
    let op = json(home, &["explain", "demo-draft", "--op", "attn"]);
    assert!(op["summary"].is_null());
}

/// The summary's statement about an op and a layer in a plan matches that plan, and nothing is stated twice.
#[test]
fn the_summary_says_of_every_plan_what_it_does() {
    let home = tempdir().expect("a folder");
    for model in ["demo", "demo-draft"] {
        for more in [
            &[][..],
            &["--mode", "mlir-air"],
            &["--mode", "int4"],
            &["--prompt-tokens", "30,3000"],
        ] {
            let report = json(home.path(), &[&["explain", model][..], more].concat());
            for plan in array(&report["plans"]) {
                check_summary(&report, plan, &format!("{model} {more:?}"));
            }
        }
    }
}

fn check_summary(report: &Value, plan: &Value, what: &str) {
    let left = array(&report["summary"]["left_to_cpu"]).iter();
    let of_plan: Vec<&Value> = left
        .filter(|left| array(&left["plans"]).contains(&plan["name"]))
        .collect();
    let covers = |left: &Value, layer: &Value| {
        let text = left["layers"].as_str().unwrap_or_default();
        let number = |text: &str| text.parse::<u64>().expect("a layer");
        let mut ranges = text.split(", ").filter(|text| !text.is_empty());
        match layer.as_u64() {
            None => text.is_empty(),
            Some(layer) => ranges.any(|range| match range.split_once('–') {
                Some((first, last)) => (number(first)..=number(last)).contains(&layer),
                None => number(range) == layer,
            }),
        }
    };
    for op in array(&plan["ops"]) {
        let said: Vec<&Value> = of_plan
            .iter()
            .filter(|left| left["op"] == op["op"] && covers(left, &op["layer"]))
            .map(|left| &left["reason"])
            .collect();
        let expected: &[&Value] = match op["device"] == "CPU" {
            true => &[&op["reason"]],
            false => &[],
        };
        assert_eq!(said, expected, "{what}, {}: {}", plan["name"], op["op"]);
    }
    // An op with one reason has one line, for any number of layers.
    let mut lines: Vec<String> = of_plan
        .iter()
        .map(|left| format!("{} {}", left["op"], left["reason"]))
        .collect();
    let n = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), n, "{what}, {}", plan["name"]);
}

/// A mode's former name is accepted, gives one warning with the new name, and makes the same plans.
#[test]
fn former_names_of_modes_are_taken_with_a_warning() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let explained = |mode: &str, more: &[&str]| {
        let explain = ["explain", "demo-draft", "--prompt-tokens", "30", "--mode"];
        run(home, &[&explain[..], &[mode], more].concat()).expect(OK)
    };
    for (former, name) in [("reference", "mlir-air"), ("best", "fast")] {
        let (old, new) = (explained(former, &[]), explained(name, &[]));
        assert_eq!(old.stdout, new.stdout, "{former}");
        let told = format!("is called {name}: `--mode {name}`");
        assert_eq!(old.stderr.matches(&told).count(), 1, "{}", old.stderr);
        assert!(!new.stderr.contains("is called"), "{}", new.stderr);
        let quiet = explained(former, &["--quiet"]).stderr;
        assert!(!quiet.contains("is called"), "{quiet}");
    }
    let names = "fast, int4, int8, fastflowlm, mlir-air, mlir-air-first";
    // The guide lists all former names.
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let devices = json(home, &["devices"]).to_string();
    for name in names.split(", ") {
        assert!(guide.contains(&format!("\n| `{name}` | ")), "{name}");
        assert!(devices.contains(&format!("\"name\":\"{name}\"")), "{name}");
    }
    let unknown = run(home, &["explain", "demo-draft", "--mode", "bset"]);
    assert!(unknown.stderr.contains(names), "{}", unknown.stderr);
}

/// The file's weights decide the mode where none is given, in every command alike; their conversion is reported.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn files_of_four_bit_weights_keep_them() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    for (name, recipe, mode) in [
        ("k.gguf", "Q4_K_M", "int4"),
        ("z.gguf", "Q4_0", "int4"),
        ("e.gguf", "Q8_0", "fast"),
        ("b.gguf", "BF16", "fast"),
    ] {
        let synth = [
            "synth",
            "llama-tiny",
            name,
            "--type",
            recipe,
            "--layers",
            "2",
        ];
        run(home, &synth).expect(OK);
        let explained = json(home, &["explain", name, "--prompt-tokens", "64"]);
        assert_eq!(explained["mode"], mode, "{name}");
        assert_eq!(explained["mode_reason"].is_null(), mode == "fast", "{name}");
        let compiled = json(home, &["compile", name, "--prompt-tokens", "64"]);
        assert_eq!(compiled["mode"], mode, "{name}");
        // Commands that run the model do the same: their message comes from the planner.
        let run_it = ["run", name, "a", "-n", "1", "--device", "xdna2", "-v"];
        let told = run(home, &run_it).expect(OK).stderr;
        assert_eq!(
            told.contains("mode int4: "),
            mode == "int4",
            "{name}: {told}"
        );
        let asked = [&run_it[..], &["--mode", "fast"]].concat();
        let told = run(home, &asked).expect(OK).stderr;
        assert!(!told.contains("mode int4"), "{name}: {told}");
        // A given mode is used.
        let best = ["explain", name, "--prompt-tokens", "64", "--mode", "fast"];
        let best = json(home, &best);
        assert_eq!(
            (&best["mode"], &best["mode_reason"]),
            (&"fast".into(), &Value::Null)
        );
        let becomes = |report: &Value, format: &str| -> Vec<String> {
            let of = array(&report["weights"]).iter();
            of.filter(|w| w["format"] == format)
                .filter_map(|w| w["becomes"].as_str().map(str::to_owned))
                .collect()
        };
        if mode == "int4" {
            run(home, &["verify", name]).expect(OK);
        }
        if recipe == "Q4_K_M" {
            assert_eq!(
                becomes(&explained, "q4_k"),
                ["kept in 4 bits, scales rounded to bf16"]
            );
            assert_eq!(
                becomes(&explained, "q6_k"),
                ["quantised anew to 4 bits, which loses precision"]
            );
            assert_eq!(becomes(&best, "q4_k"), ["expanded to bf16"]);
        }
    }
}

#[test]
fn explain_tells_of_one_op_and_of_other_machines() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let common = [
        "explain",
        "--geometry",
        "llama-tiny",
        "--prompt-tokens",
        "30",
    ];
    let down = [&common[..], &["--op", "ffn_down"]].concat();
    let text = run(home, &down).expect(OK).stdout;
    for mentions in ["tiling", "L1 ", "prefill of 64", "decode", "why"] {
        assert!(text.contains(mentions), "no `{mentions}` in\n{text}");
    }
    let on_host = |set: &[&str]| {
        let report = json(home, &[&common[..], set].concat());
        let ops = array(&report["plans"][0]["ops"]).to_vec();
        ops.iter().filter(|op| op["device"] == "CPU").count()
    };
    // The cores are too small for any tile of a product: the CPU computes it, and the reason is shown.
    let small = ["--set", "core.data_bytes=2048"];
    assert!(on_host(&small) > on_host(&[]));
    let text = run(home, &[&down[..], &small].concat()).expect(OK).stdout;
    assert!(
        text.contains("the CPU") && text.contains("fits no tiling"),
        "{text}"
    );
    let unknown = [&common[..], &["--op", "ffn_dwn"]].concat();
    run(home, &unknown).expect_error(NOT_FOUND, &["ffn_dwn", "ffn_down"]);
    run(home, &["explain"]).expect_error(USAGE, &["MODEL"]);
}

#[test]
fn diagnose_compares_layers_and_is_no_verdict() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    for mode in ["fast", "mlir-air"] {
        let report = json(
            home,
            &["diagnose", "demo-draft", "Once upon", "--mode", mode],
        );
        let states = array(&report["states"]);
        assert!(states.len() > 3);
        for state in states {
            let min = state["cosine"]["min"].as_f64().expect("a cosine");
            assert!(min > 0.99 && min <= 1.0 + 1e-9, "{mode}: {state}");
        }
        assert_eq!(states.last().expect("one")["state"], "logits");
    }
    // A wrong device is shown, but is not a failure.
    let arguments = ["diagnose", "demo-draft", "--corrupt", "flash_attn:attn"];
    let report = json(home, &arguments);
    let states = array(&report["states"]);
    let max = |state: &Value| state["max_abs"].as_f64().expect("a number");
    assert!(max(&states[1]) > 10.0 * max(&states[0]), "{states:?}");
}

#[test]
fn bisect_names_the_op_that_is_wrong() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let common = ["diagnose", "demo-draft", "Once upon", "--bisect"];
    let honest = json(home, &common);
    assert_eq!(honest["passes"], true);
    assert!(honest["n_ops"].as_u64() > Some(30) && honest["finding"].is_null());
    let corrupt = ["--corrupt", "flash_attn:attn"];
    let found = run(home, &[&common[..], &corrupt, &["--json"]].concat());
    assert_eq!(found.code, FAILED, "{}", found.stderr);
    let report: Value = serde_json::from_str(&found.stdout).expect("JSON in spite of it");
    let finding = &report["finding"];
    assert_eq!(finding["op"], "attn");
    assert_eq!(
        (&finding["layer"], &finding["slot"]),
        (&0.into(), &3.into())
    );
    assert_eq!(finding["program"], "flash_attn");
    let text = run(home, &[&common[..], &corrupt].concat()).expect(FAILED);
    for mentions in [
        "attn of layer 0 is wrong",
        "expected",
        "tolerance",
        "slot      3",
    ] {
        assert!(text.stdout.contains(mentions), "{}", text.stdout);
    }
    for (what, code, mentions) in [
        ("x", USAGE, "PROGRAM:SLOT"),
        ("no_program:attn", NOT_FOUND, "flash_attn"),
        ("flash_attn:no_slot", NOT_FOUND, "attn_q_rope"),
    ] {
        let arguments = [&common[..], &["--corrupt", what]].concat();
        run(home, &arguments).expect_error(code, &[mentions]);
    }
}
