//! `profile`: the report of the documentation, and tables beside a paper's.

use crate::profile::{MODEL, json, run};
use crate::run::{OK, USAGE};
use crate::transcripts::plain_words;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::tempdir;

/// The report in `docs/reports` is current; if not, the failure names the command that writes it anew.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn the_report_is_current() {
    let home = tempdir().expect("a folder");
    let arguments = ["profile", "--geometry", "llama-3.2-1b", "--markdown"];
    let page = plain_words(run(home.path(), &arguments).expect(OK));
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reports/profile-llama-3.2-1b.md");
    let report = fs::read_to_string(&path).expect("the report");
    assert!(
        page == report,
        "write {} anew: tools/make_reports profile",
        path.display()
    );
}

/// Covers rows of up to a thousand tokens; the device's own test covers the document of all rows.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn a_papers_tables_stand_beside_predictions() {
    let home = tempdir().expect("a folder");
    let paper = ["profile", "--paper", "gemma3", "--up-to", "1024"];
    let report = json(&paper);
    let rows = |table: usize| report["tables"][table]["rows"].as_array().expect("rows");
    let ids = |table: usize| rows(table).iter().map(|row| row["id"].clone()).collect();
    let found: Vec<Vec<Value>> = (0..4).map(ids).collect();
    assert_eq!(found, [["N0001"], ["N0019"], ["N0037"], ["N0055"]]);
    let number = |row: &Value, key: &str| row[key].as_f64().expect("a number");
    let mut n_missed = 0;
    for row in (0..4).flat_map(rows) {
        let error = 100.0 * (number(row, "predicted") / number(row, "published") - 1.0);
        assert!((error - number(row, "error_percent")).abs() < 1e-9, "{row}");
        assert_eq!(row["missed"], error.abs() > 10.0);
        n_missed += usize::from(row["missed"] == true);
        assert_eq!(row["fitted"], row["id"] != "N0001");
    }
    let missed = &report["summary"]["missed"];
    assert_eq!(missed.as_array().map(Vec::len), Some(n_missed));
    assert_eq!(report["images"][0]["published"], 4.41);
    let shorter = [&paper[..4], &["512"]].concat();
    let text = plain_words(run(home.path(), &shorter).expect(OK));
    for part in [
        "modelled(paper-kraken)",
        "| N0079 |",
        "left out",
        "| N1152 |",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let nonsense = ["profile", "--paper", "nonsense"];
    run(home.path(), &nonsense).expect_error(USAGE, &["nonsense", "gemma3"]);
    let elsewhere = [&nonsense[..], &["--device", "tcp"]].concat();
    run(home.path(), &elsewhere).expect_error(USAGE, &["tcp", "none to choose"]);
    let both = [&paper[..], &["--geometry", "llama-tiny"]].concat();
    run(home.path(), &both).expect_error(USAGE, &["--geometry"]);
    run(home.path(), &["profile", MODEL, "--up-to", "512"]).expect_error(USAGE, &["--up-to"]);
}
