//! The report, and the document that holds it.

use super::*;
use millrace_testkit::sample;
use std::fs;
use std::path::Path;

/// Rows that are predicted in a test of every build; `MILLRACE_TEST_ALL=1` takes all of them.
const SHORT: u64 = 1024;

/// Lines of the report's tables about published rows.
fn row_lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("| N"))
        .collect()
}

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reports/gemma3-paper.md");
    fs::read_to_string(path).expect("the document")
}

/// The text of the document after the lines that say how it was made.
fn quoted(document: &str) -> &str {
    let (head, rest) = document
        .split_once("(../gemma3.md#the-papers-tables-beside-ours).\n\n")
        .expect("its beginning");
    assert!(head.contains("which ran `millrace profile --paper gemma3`"));
    rest
}

/// The document is the command's output: a short build compares a part of every row, and all of it on request.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn the_document_is_what_the_command_prints() {
    let document = document();
    let quoted = quoted(&document);
    let all = sample::is_whole();
    let longest = if all { u64::MAX } else { SHORT };
    let text = report(longest).expect("a report").to_string();
    let write = "tools/make_reports gemma3-paper";
    if all {
        assert!(quoted.trim() == text.trim(), "write it anew: {write}");
    }
    let lines = row_lines(&text);
    assert!(lines.len() >= 19, "{}", lines.len());
    let known = row_lines(quoted);
    for line in lines {
        assert!(known.contains(&line), "write it anew: {write}\n{line}");
    }
}

/// The document's summary follows from its rows, and it has every published one.
#[test]
fn the_documents_summary_is_that_of_its_rows() {
    let document = document();
    let quoted = quoted(&document);
    let measured = fidelity::measurements();
    let tables = quoted.split("\n### ");
    let of_text = |table: &&str| table.starts_with("Table") && table.contains("| error |");
    let tables: Vec<&str> = tables.filter(of_text).collect();
    assert_eq!(tables.len(), OWN.len());
    let (mut errors, mut n_missed, mut n_rows) = (Vec::new(), 0, 0);
    for (table, series) in tables.iter().zip(&OWN) {
        let lines = row_lines(table);
        let rows = series.rows(&measured, u64::MAX);
        assert_eq!(lines.len(), rows.len(), "{}", series.title);
        for (line, (row, _)) in lines.into_iter().zip(rows) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            assert_eq!(cells[1].trim_end_matches(" \\*"), row.id);
            let error = cells[5]
                .trim_end_matches(" %")
                .parse::<f64>()
                .expect("an error");
            assert_eq!(cells[6] == "MISSED", error.abs() > ROW_PERCENT, "{line}");
            n_rows += 1;
            n_missed += usize::from(cells[6] == "MISSED");
            if !cells[1].ends_with('*') {
                errors.push(error.abs());
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let max = errors.last().expect("rows");
    for part in [
        format!("Over the {} rows of {n_rows} that nothing", errors.len()),
        format!("max {max:.1} %."),
        format!("MISSED by {n_missed} of {n_rows} rows"),
    ] {
        assert!(quoted.contains(&part), "no `{part}`");
    }
    let (_, stated) = quoted.split_once("fitted on: median ").expect("a median");
    let (stated, _) = stated.split_once(" %").expect("its unit");
    let stated: f64 = stated.parse().expect("a number");
    assert!((stated - median(&errors)).abs() < 0.11, "{stated}");
}

#[test]
fn the_papers_rows_are_all_there() {
    let measured = fidelity::measurements();
    let counts = OWN
        .each_ref()
        .map(|series| series.rows(&measured, u64::MAX).len());
    assert_eq!(counts, [6, 6, 6, 8]);
    let short = OWN
        .each_ref()
        .map(|series| series.rows(&measured, 1024).len());
    assert_eq!(short, [1, 1, 1, 1]);
    for series in &BESIDE {
        assert!(
            !series.rows(&measured, u64::MAX).is_empty(),
            "{}",
            series.title
        );
    }
    let power = power(&measured);
    let totals: Vec<f64> = power.iter().map(|row| row.total_w).collect();
    assert_eq!(totals, [4.6, 4.5, 4.3, 4.5]);
    let sum = |row: &Power| row.cpu_w + row.gpu_w + row.npu_w;
    assert!(
        power
            .iter()
            .all(|row| (sum(row) - row.total_w).abs() < 0.06)
    );
    let images: Vec<&Measurement> = measured.iter().filter(|row| rows::is_vision(row)).collect();
    let found: Vec<(&str, f64)> = images.iter().map(|row| (&*row.id, row.value)).collect();
    assert_eq!(found, [("N0079", 4.41)]);
}

#[test]
fn errors_are_counted_over_rows_that_nothing_was_fitted_on() {
    let row = |id: &str, error_percent: f64, fitted| PaperRow {
        id: id.to_owned(),
        source: String::new(),
        tokens: 1024,
        published: 1.0,
        predicted: 1.0,
        error_percent,
        launches_percent: error_percent,
        fitted,
        missed: f64::abs(error_percent) > ROW_PERCENT,
        fast: 1.0,
        published_per_w: None,
        predicted_per_w: None,
        cost: Cost::default(),
    };
    let rows = [
        row("a", -3.0, false),
        row("b", 90.0, true),
        row("c", 8.0, false),
        row("d", 12.0, false),
    ];
    let summary = Summary::of(&rows);
    assert_eq!((summary.n_rows, summary.n_fitted), (4, 1));
    assert_eq!((summary.median_percent, summary.max_percent), (8.0, 12.0));
    assert_eq!(summary.missed, ["b", "d"]);
    assert!(summary.median_is_missed);
    assert!(!Summary::of(&rows[..1]).median_is_missed);
}

/// There are as many constants as rows they are fitted on, and our profile has none of them. Every row that one names is marked.
#[test]
fn what_was_fitted_on_the_papers_rows_is_listed_and_marked() {
    let measured = fidelity::measurements();
    let constants = fitted_constants(&measured);
    let keys: Vec<&str> = constants.iter().map(|c| c.key.as_str()).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    let stack = keys.iter().filter(|key| key.starts_with("stack."));
    assert_eq!(stack.count(), 2);
    let mut rows: Vec<&str> = constants
        .iter()
        .flat_map(|c| c.rows.iter().map(String::as_str))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), 3, "{rows:?}");
    let marked = fitted(PROFILE);
    assert!(rows.iter().all(|row| marked.iter().any(|m| m == row)));
    let own = OWN.iter().flat_map(|s| s.rows(&measured, u64::MAX));
    let own: Vec<&str> = own.map(|(row, _)| row.id.as_str()).collect();
    assert!(fitted(OURS).iter().all(|row| !own.contains(&row.as_str())));
}

/// Constants fit rows exactly: there are as many equations as unknowns. Without the extra time of the stack a prompt is
/// off; a token has none.
#[test]
fn the_stack_beside_launches_is_the_papers_alone() {
    let mut predictor = PaperPredictor::default();
    let cost = |predictor: &mut PaperPredictor, series: &Series, mode| {
        predictor.cost(series, mode, SHORT).expect("a prediction")
    };
    let [_, prompt, _, token] = &OWN;
    for (series, published) in [(prompt, 1.98e9), (token, 1e9 / 14.4)] {
        let paper = cost(&mut predictor, series, MODE);
        let error = paper.whole_ns() / published - 1.0;
        assert!(error.abs() < 0.005, "{error}");
        assert_eq!(
            paper.ns < 0.9 * published,
            series.what == PaperMetric::Prompt
        );
        let packed = cost(&mut predictor, series, PACKED);
        assert_eq!(packed.stack_ns, 0.0);
    }
}

#[test]
fn a_paper_is_known_by_its_name() {
    assert_eq!(check("gemma3"), Ok(()));
    let error = check("nonsense").expect_err("no such paper").to_string();
    assert!(error.contains("gemma3"), "{error}");
}
