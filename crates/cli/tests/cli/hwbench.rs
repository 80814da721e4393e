//! `hwbench`: which rows are measured and how each is reported; never how fast they are.

use crate::models;
use crate::run::{Finished, NOT_FOUND, OK, USAGE, finish, millrace};
use millrace_kernels::Level;
use millrace_kernels::table::{kernels, pick};
use millrace_quant::DType;
use serde_json::Value;
use std::collections::BTreeSet;

/// Runs `hwbench` quickly: with few repetitions, and weights that fit a cache.
fn hwbench(arguments: &[&str]) -> Finished {
    let mut command = millrace(std::env::temp_dir().as_path());
    let quick = ["-t", "2", "-r", "2", "--time", "1", "--stream", "1"];
    finish(command.arg("hwbench").args(arguments).args(quick))
}

/// Rows of a run with `--json`.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let json = hwbench(&[arguments, &["--json"]].concat())
        .expect(OK)
        .json();
    json["rows"].as_array().expect("an array").clone()
}

fn names<'a>(rows: &'a [Value], key: &str) -> Vec<&'a str> {
    rows.iter()
        .map(|row| row[key].as_str().expect("a name"))
        .collect()
}

fn positive(value: &Value) -> f64 {
    let number = value.as_f64().expect("a number");
    assert!(number > 0.0 && number.is_finite(), "{value}");
    number
}

#[test]
fn every_kernel_of_this_cpu_is_measured() {
    let json = hwbench(&["64,256", "-m", "1,3", "--json"])
        .expect(OK)
        .json();
    let rows = json["rows"].as_array().expect("an array");
    let supported: Vec<String> = kernels()
        .filter(|kernel| kernel.level.is_supported())
        .map(|kernel| kernel.name())
        .collect();
    for m in [1, 3] {
        let of_m: Vec<Value> = rows.iter().filter(|row| row["m"] == m).cloned().collect();
        let measured: BTreeSet<&str> = names(&of_m, "kernel").into_iter().collect();
        assert_eq!(of_m.len(), measured.len(), "each once");
        assert_eq!(measured, supported.iter().map(String::as_str).collect());
    }
    for row in rows {
        let kernel = kernels().find(|kernel| row["kernel"] == kernel.name());
        let kernel = kernel.expect("a name from the table");
        assert_eq!(row["dtype"], kernel.dtype.name());
        assert_eq!(row["level"], kernel.level.name());
        assert_eq!((&row["n"], &row["k"]), (&64.into(), &256.into()));
        let size_bytes = kernel.dtype.size_bytes(64, 256).expect("whole blocks");
        assert_eq!(row["size_bytes"], size_bytes);
        assert!((1..=2).contains(&row["n_samples"].as_u64().expect("a count")));
        assert!((1..=64).contains(&row["n_timed"].as_u64().expect("a count")));
        assert!(positive(&row["min_ns"]) <= positive(&row["median_ns"]));
        for key in ["bytes_per_s", "ops_per_s", "limit_share"] {
            positive(&row[key]);
        }
        assert!(row["limit"] == "memory" || row["limit"] == "compute");
    }
    assert_eq!(json["unfit_formats"], Value::Array(Vec::new()));
    assert_eq!(json["slower_picks"], Value::Null);
    assert_eq!(json["n_threads"], 2);
}

#[test]
fn the_pick_of_each_level_is_marked() {
    let rows = rows(&["32,256", "-m", "1"]);
    for dtype in DType::all() {
        for level in Level::supported() {
            let is_marked = |row: &&Value| {
                let levels = row["picked_at"].as_array().expect("an array");
                row["dtype"] == dtype.name() && levels.contains(&level.name().into())
            };
            let marked: Vec<&Value> = rows.iter().filter(is_marked).collect();
            assert_eq!(marked.len(), 1, "{dtype} at {level}");
            assert_eq!(marked[0]["kernel"], pick(dtype, level, 1, false).name());
        }
    }
}

#[test]
fn limits_of_each_level_are_reported() {
    let json = hwbench(&["32,256", "-m", "1", "--format", "q4_0", "--json"]);
    let json = json.expect(OK).json();
    let roofs = json["roofs"].as_array().expect("an array");
    let levels: Vec<&str> = Level::supported()
        .iter()
        .map(|level| level.name())
        .collect();
    assert_eq!(names(roofs, "level"), levels);
    for roof in roofs {
        positive(&roof["read_bytes_per_s"]);
        positive(&roof["f32_flops_per_s"]);
    }
}

#[test]
fn filters_leave_what_they_name() {
    let rows = rows(&["2,32,256", "--format", "q4_k,Q8_0", "--level", "scalar"]);
    assert_eq!(
        names(&rows, "kernel"),
        ["scalar/matmul_f32/q8_0", "scalar/matmul_f32/q4_k"]
    );
    assert!(rows.iter().all(|row| row["m"] == 2));
}

#[test]
fn formats_that_cannot_hold_the_shape_are_left_out() {
    let text = hwbench(&["8,96", "-m", "1"]).expect(OK).stdout;
    let note = text.lines().last().expect("a line");
    assert!(note.contains("q4_k") && note.contains("q4nx"), "{text}");
    for part in ["GB/s", "scalar/matmul_f32/q4_0", "<-- scalar", "limits"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(!text.contains("/q4_k"), "{text}");
}

#[test]
fn a_model_gives_its_own_matrices() {
    let model = models::gguf().to_str().expect("UTF-8");
    let rows = rows(&[model, "-m", "1", "--level", "scalar"]);
    let shape = |row: &Value| {
        (
            row["dtype"].to_string(),
            row["n"].to_string(),
            row["k"].to_string(),
        )
    };
    let shapes: BTreeSet<_> = rows.iter().map(shape).collect();
    assert!(rows.len() > 2, "attention, feed-forward and head differ");
    assert_eq!(shapes.len(), rows.len(), "each once");
    hwbench(&["no-such-model"]).expect_error(NOT_FOUND, &["no-such-model"]);
}

#[test]
fn shapes_that_make_no_sense_are_refused() {
    for (shape, mention) in [
        ("5", "no shape"),
        ("0,256", "no shape"),
        ("1,2,3,4", "no shape"),
        ("4000000000,4000000000", "memory"),
    ] {
        hwbench(&[shape]).expect_error(USAGE, &[mention]);
    }
    hwbench(&["4,32,256", "-m", "1"]).expect_error(USAGE, &["twice"]);
    hwbench(&["32,100", "--format", "q4_k"]).expect_error(USAGE, &["no kernel"]);
    let format = hwbench(&["32,256", "--format", "q9"]).expect(USAGE);
    assert!(format.stderr.contains("q9"), "{}", format.stderr);
}
