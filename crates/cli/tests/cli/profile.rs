//! `profile`: tables, JSON, a trace and a page.

use crate::run::{FAILED, Finished, NOT_FOUND, OK, USAGE, finish, millrace};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::tempdir;

pub(crate) const MODEL: &str = "demo-draft";
const SHAPE: [&str; 3] = ["profile", "--geometry", "llama-tiny"];

pub(crate) fn run(home: &Path, arguments: &[&str]) -> Finished {
    finish(millrace(home).args(arguments))
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    let home = tempdir().expect("a folder");
    let arguments = [arguments, &["--json"]].concat();
    run(home.path(), &arguments).expect(OK).json()
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

#[test]
fn a_shape_is_predicted_without_files() {
    let home = tempdir().expect("a folder");
    let text = run(home.path(), &SHAPE).expect(OK).stdout;
    for part in [
        "llama-tiny",
        "modelled(air-strix-2026",
        "time to first token",
        "U_mem^rd",
        "host: embed",
        "Launches",
        "GFLOP/s",
        "% of peak",
        "feed-forward products",
        "TFLOP/s over the pass",
        "bound by",
        "Memory",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!text.contains("Measured here"), "{text}");
}

#[test]
fn the_json_has_its_fields() {
    let report = json(&[&SHAPE[..], &["--prompt-tokens", "100", "--context", "300"]].concat());
    let top = [
        "model",
        "machine",
        "mode",
        "trained_context",
        "error",
        "kernel_error_percent",
        "prediction",
        "image",
        "unchanged",
        "without",
        "measured",
    ];
    assert_eq!(keys(&report), top);
    let others = ["measured", "unchanged", "image"];
    assert!(others.iter().all(|key| report[key].is_null()));
    let prediction = &report["prediction"];
    assert_eq!(prediction["prompt_tokens"], 100);
    assert_eq!(prediction["context"], 300);
    assert_eq!(
        prediction["provenance"]["modelled"]["profile"],
        "air-strix-2026"
    );
    let pass = &prediction["prefill"][0];
    assert_eq!(
        keys(pass),
        [
            "phase", "first", "n_tokens", "n_padded", "programs", "steps", "parts", "totals",
            "energy"
        ]
    );
    assert_eq!(
        (&pass["n_tokens"], &pass["n_padded"]),
        (&100.into(), &128.into())
    );
    let program = &pass["programs"][0];
    assert_eq!(
        keys(program),
        [
            "name",
            "calls",
            "run_ns",
            "dispatch_ns",
            "load_ns",
            "switch_ns",
            "flops",
            "flops_per_s",
            "peak_share",
            "launches",
            "slots"
        ]
    );
    let call = pass["steps"].as_array().expect("steps");
    let call = call.iter().find(|s| s["kind"] == "call").expect("a call");
    for key in [
        "set",
        "call_ns",
        "write_ns",
        "run_ns",
        "read_ns",
        "written_bytes",
    ] {
        assert!(!call[key].is_null(), "{key} in {call}");
    }
    // A program's rate is over its own run, a pass's rate over all of the pass.
    let rate = |of: &Value, ns: &str| {
        let number = |key: &str| of[key].as_f64().expect("a number");
        assert!((number("flops_per_s") - number("flops") * 1e9 / number(ns)).abs() < 1e3);
        let peak = prediction["peak_flops_per_s"].as_f64().expect("a number");
        assert!((number("peak_share") - number("flops_per_s") / peak).abs() < 1e-9);
    };
    rate(program, "run_ns");
    rate(&pass["totals"], "total_ns");
    let token = &prediction["token"]["totals"];
    let per_s = prediction["tokens_per_s"].as_f64().expect("a number");
    let ns = token["total_ns"].as_f64().expect("a number");
    assert!((per_s * ns - 1e9).abs() < 1.0);
}

#[test]
fn what_if_stands_beside_what_is() {
    let twice = [
        "--set",
        "profile.ddr.read_gb_per_s=110",
        "--set",
        "profile.ddr.total_gb_per_s=170",
    ];
    let report = json(&[&SHAPE[..], &twice].concat());
    let time = |of: &Value| of["prediction"]["ttft_ns"].as_f64().expect("a number");
    assert!(time(&report) < time(&report["unchanged"]));
    let home = tempdir().expect("a folder");
    let text = run(home.path(), &[&SHAPE[..], &twice].concat())
        .expect(OK)
        .stdout;
    assert!(text.contains("as it is") && text.contains("× 0."), "{text}");
}

/// The errors were found on the machine and the profile as they are.
#[test]
fn a_changed_machine_has_no_stated_error() {
    let home = tempdir().expect("a folder");
    let of = |set: &[&str]| {
        let text = run(home.path(), &[&SHAPE[..], set].concat())
            .expect(OK)
            .stdout;
        let line = text.lines().find(|line| line.contains("modelled("));
        line.expect("a label").to_owned()
    };
    let plain = of(&[]);
    assert!(plain.contains('±') && plain.contains("a prompt"), "{plain}");
    for set in ["cols=4", "profile.ddr.read_gb_per_s=110"] {
        let changed = of(&["--set", set]);
        assert!(
            !changed.contains('±') && changed.contains("changed by --set"),
            "{changed}"
        );
        let report = json(&[&SHAPE[..], &["--set", set]].concat());
        let label = &report["prediction"]["provenance"]["modelled"];
        assert!(label["error"].is_null(), "{label}");
        assert!(report["error"].is_null() && report["kernel_error_percent"].is_null());
    }
}

#[test]
fn layers_are_counted_and_long_contexts_warned_of() {
    let of = |layers: &str| {
        let report = json(&[&SHAPE[..], &["--layers", layers]].concat());
        report["prediction"]["ttft_ns"].as_f64().expect("a number")
    };
    assert!(of("2") < of("4"));
    let home = tempdir().expect("a folder");
    let home = home.path();
    let long = [
        "profile",
        "demo-draft",
        "--timing-only",
        "--prompt-tokens",
        "9000",
    ];
    let found = run(home, &long).expect(OK);
    assert!(found.stderr.contains("was trained for"), "{}", found.stderr);
    let short = run(home, &SHAPE).expect(OK);
    assert!(
        !short.stderr.contains("was trained for"),
        "{}",
        short.stderr
    );
    run(home, &[&SHAPE[..], &["--layers", "0"]].concat()).expect_error(USAGE, &["layers"]);
    run(home, &["profile", "demo", "--layers", "2"]).expect_error(USAGE, &["--geometry"]);
}

#[test]
fn every_feature_is_left_out_once() {
    let report = json(&[&SHAPE[..], &["--features", "--prompt-tokens", "60"]].concat());
    let rows = report["without"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names.first(), Some(&"as asked for"));
    assert!(names.contains(&"the published stack"));
    for feature in [
        "buckets",
        "alias",
        "merged-blocks",
        "one-copy",
        "single-row-head",
    ] {
        let name = format!("without {feature}");
        assert!(names.contains(&name.as_str()), "{name} in {names:?}");
    }
    let of = |name: &str, key: &str| {
        let row = rows.iter().find(|row| row["name"] == name).expect("a row");
        row[key].as_f64().expect("a number")
    };
    let all = |key| of("as asked for", key);
    assert!(of("without buckets", "ttft_ns") > all("ttft_ns"));
    assert!(of("without alias", "moved_bytes") > all("moved_bytes"));
    assert!(of("without merged-blocks", "prompt_dispatches") > all("prompt_dispatches"));
    assert!(of("without one-copy", "memory_bytes") > all("memory_bytes"));
}

#[test]
fn a_model_is_run_and_measured_apart() {
    let report = json(&["profile", MODEL, "Once upon a time", "-n", "2"]);
    let measured = &report["measured"];
    assert_eq!(measured["n_tokens"], 2);
    let pass = &report["prediction"]["prefill"][0];
    // Predicted and counted values are the same.
    let counters = &measured["counters"];
    assert_eq!(counters["prefill"]["n_tokens"], pass["n_tokens"]);
    assert_eq!(
        counters["prefill"]["n_dispatches"],
        pass["totals"]["n_calls"]
    );
    assert_eq!(
        counters["prefill"]["written_bytes"],
        pass["totals"]["written_bytes"]
    );
    assert_eq!(
        counters["prefill"]["read_bytes"],
        pass["totals"]["read_bytes"]
    );
    let run_ns = pass["totals"]["run_ns"].as_f64().expect("a number");
    let device_ns = counters["prefill"]["device_ns"].as_f64().expect("a number");
    let calls = pass["totals"]["n_calls"].as_f64().expect("a number");
    assert!(
        (run_ns - device_ns).abs() <= calls,
        "{run_ns} and {device_ns}"
    );
    let only = json(&["profile", MODEL, "Once upon a time", "--timing-only"]);
    assert!(only["measured"].is_null());
    assert_eq!(only["prediction"], report["prediction"]);
}

#[test]
fn a_trace_and_a_page_are_written() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let files = ["--trace", "t.json", "--trace-cores", "--html", "p.html"];
    run(home, &[&SHAPE[..], &["--features"], &files].concat()).expect(OK);
    let trace = fs::read_to_string(home.join("t.json")).expect("the trace");
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    assert!(
        trace["traceEvents"]
            .as_array()
            .is_some_and(|e| e.len() > 100)
    );
    let page = fs::read_to_string(home.join("p.html")).expect("the page");
    for from_elsewhere in [
        "http:", "https:", "//cdn", "src=", "href=", "@import", "url(",
    ] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    assert_eq!(well_formed(&page), Ok(()));
    for part in [
        "llama-tiny",
        "modelled(",
        "<canvas",
        "What each improvement buys",
    ] {
        assert!(page.contains(part), "no `{part}`");
    }
    let data = page.split_once("id=\"data\">").expect("data").1;
    let data = data.split_once("</script>").expect("its end").0;
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["model"], "llama-tiny");
}

/// Checks that elements nest and every attribute is quoted; skips scripts and styles.
fn well_formed(page: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').ok_or("an open `<`")?;
        rest = after;
        let name = tag.split([' ', '/', '\n']).find(|part| !part.is_empty());
        let name = name.ok_or("an empty tag")?;
        if tag.starts_with('!') || ["meta", "br"].contains(&name) {
            continue;
        }
        if tag.starts_with('/') {
            let expected = open.pop().unwrap_or("nothing");
            if expected != name {
                return Err(format!("`</{name}>` where `{expected}` is open"));
            }
            continue;
        }
        if !tag.matches('"').count().is_multiple_of(2) || tag.contains("=\u{20}") {
            return Err(format!("attributes of `<{tag}>`"));
        }
        if ["script", "style"].contains(&name) {
            let end = format!("</{name}>");
            rest = rest.split_once(&end).ok_or(format!("no `{end}`"))?.1;
            continue;
        }
        open.push(name);
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err(format!("not closed: {open:?}")),
    }
}

/// Only some profiles have powers.
#[test]
fn energy_is_told_where_the_profile_has_powers() {
    let of = |profile: &str| {
        let home = tempdir().expect("a folder");
        let arguments = [&SHAPE[..], &["--set", profile]].concat();
        run(home.path(), &arguments).expect(OK).stdout
    };
    let text = of("profile.power.npu_w=2");
    assert!(text.contains("energy while the array runs: npu"), "{text}");
    assert!(!of("profile.host.call_ns=70000").contains("energy"));
}

/// An image costs its vision encoder and a first pass that includes it. Where that is not possible, the error says why.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn a_prompt_with_an_image_is_predicted() {
    let home = tempdir().expect("a folder");
    let four = ["profile", "--geometry", "gemma-3-4b", "--layers", "2"];
    let image = [&four[..], &["--mode", "int4", "--with-image"]].concat();
    let long = [&image[..], &["--prompt-tokens", "2100"]].concat();
    let report = json(&long);
    let number = |key: &str| report["image"][key].as_f64().expect("a number");
    assert_eq!(number("n_tokens"), 256.0);
    assert_eq!(number("ttft_ns"), number("vision_ns") + number("prompt_ns"));
    let text_ns = report["prediction"]["ttft_ns"].as_f64().expect("a number");
    assert!((0.9 * text_ns..1.5 * text_ns).contains(&number("prompt_ns")));
    // 27 blocks of two calls, one call before and one after them.
    assert_eq!(report["image"]["encoder"]["n_dispatches"], 56);
    let text = run(home.path(), &long).expect(OK).stdout;
    for part in [
        "256 of the prompt's tokens",
        "encoder  ",
        "first token  after",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let short = [&image[..], &["--prompt-tokens", "200"]].concat();
    run(home.path(), &short).expect_error(FAILED, &["256 tokens", "200"]);
    let blind = [&SHAPE[..], &["--with-image"]].concat();
    run(home.path(), &blind).expect_error(USAGE, &["llama-tiny", "no images"]);
    let elsewhere = [&four[..], &["--device", "rk3588", "--with-image"]].concat();
    run(home.path(), &elsewhere).expect_error(FAILED, &["rk3588", "vision encoder"]);
}

#[test]
fn what_cannot_be_profiled_is_refused() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    run(home, &["profile"]).expect_error(USAGE, &["MODEL"]);
    run(home, &["profile", "no-such-model"]).expect_error(NOT_FOUND, &["no-such-model"]);
    run(home, &["profile", "--geometry", "none"]).expect_error(USAGE, &["llama-3.2-1b"]);
    for (arguments, mentions) in [
        (["--prompt-tokens", "0"], "--prompt-tokens"),
        (["--device", "abacus"], "xdna2"),
        (["--without", "everything"], "float-sums"),
    ] {
        run(home, &[&SHAPE[..], &arguments].concat()).expect_error(USAGE, &[mentions]);
    }
}
