use super::*;

#[test]
fn every_group_attains_its_bound() {
    let report = report(Kind::Kernels);
    assert!(report.pass());
    let failed: Vec<&Group> = report.groups.iter().filter(|g| !g.pass).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let names: Vec<&str> = report.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, GROUPS.iter().map(|g| g.0).collect::<Vec<_>>());
    assert!(report.rows.len() >= 160, "{} rows", report.rows.len());
}

#[test]
fn every_measurement_is_predicted_or_left_out_with_a_reason() {
    let measurements = measurements();
    assert!(measurements.len() > 800);
    let reports = [Kind::Kernels, Kind::Models].map(report);
    let n: usize = reports
        .iter()
        .map(|r| r.rows.len() + r.excluded.len())
        .sum();
    assert_eq!(n, measurements.len());
    assert!(
        reports
            .iter()
            .flat_map(|r| &r.excluded)
            .all(|e| !e.reason.is_empty())
    );
}

#[test]
fn calibration_rows_exist_and_are_marked() {
    let measurements = measurements();
    for name in Profile::builtin_names() {
        let profile = Profile::builtin(name).expect("built in");
        for row in profile.calibration_rows() {
            assert!(measurements.iter().any(|m| m.id == row), "{name}: {row}");
        }
    }
    let text = report(Kind::Kernels).to_string();
    assert!(text.contains("| N0518 \\* |") && text.contains("| N0522 |"));
}

#[test]
fn models_attain_their_bounds() {
    let report = report(Kind::Models);
    let failed: Vec<&Group> = report.groups.iter().filter(|g| !g.pass).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let names: Vec<&str> = report.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, MODEL_GROUPS.iter().map(|g| g.0).collect::<Vec<_>>());
    assert!(report.rows.len() >= 160, "{} rows", report.rows.len());
    assert!(report.pass());
}

/// What is asked of mode reference: a prompt and a token within 10 %, each program within 20 %, from the
/// programs that run.
#[test]
fn the_stack_of_the_seed_is_predicted_from_its_lowered_programs() {
    let report = report(Kind::Models);
    let seed = |row: &&Row| row.bottleneck.starts_with("lowered programs");
    let rows: Vec<&Row> = report.rows.iter().filter(seed).collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for row in rows {
        assert_eq!(row.measured.model, "Llama-3.2-1B", "{}", row.measured.id);
        let whole = [models::PROMPTS, models::TOKENS].contains(&row.group.as_str());
        let limit = if whole { 10.0 } else { 20.0 };
        let (id, error) = (&row.measured.id, row.error_percent);
        assert!(
            error.abs() <= limit,
            "{id}: {error:+.1} %, {limit} is allowed"
        );
    }
}

#[test]
fn a_report_without_rows_does_not_pass() {
    let machine = Machine::npu2();
    for kind in [Kind::Kernels, Kind::Models] {
        assert!(!report_with(kind, &[], &machine, &[]).pass());
        let unpredicted = report_with(kind, &measurements(), &machine, &[]);
        assert!(unpredicted.rows.is_empty() && !unpredicted.pass());
    }
}

#[test]
fn rows_of_models_that_come_from_elsewhere_are_predicted() {
    let line = |model: &str,
                source: &str,
                hardware: &str,
                dtype: &str,
                kernel: &str,
                value: &str| {
        format!(
            "X,{source},{hardware},{model},{dtype},decode,{kernel},ctx=2k,1,decode_tok_per_s,{value},\n"
        )
    };
    let box_ = "NPU (FastFlowLM)";
    let text = String::from("id\n")
        + &line(
            "LLaMA 3.2 3B",
            "FLM v0.1.3",
            box_,
            "4-bit",
            "end-to-end",
            "15",
        )
        + &line(
            "Phi-4-mini",
            "mlir-air PR 9",
            "Krackan",
            "q4nx",
            "fused decode",
            "20",
        )
        + &line(
            "Unheard-of-9B",
            "mlir-air PR 9",
            "Krackan",
            "q4nx",
            "fused decode",
            "20",
        );
    let profiles: Vec<Profile> = Profile::builtin_names()
        .filter_map(Profile::builtin)
        .collect();
    let report = report_with(Kind::Models, &read(&text), &Machine::npu2(), &profiles);
    let profiles: Vec<&str> = report.rows.iter().map(|r| r.profile.as_str()).collect();
    assert_eq!(profiles, ["flm-v0.1.3", "air-krackan-2026"]);
    assert_eq!(report.excluded.len(), 1);
}

#[test]
fn csv_fields_may_be_quoted() {
    let text = "id,…\nX1,\"a, \"\"b\"\"\",h,m,d,gemm,k,s,1,us,2.5,n\nbroken,line\n";
    let rows = read(text);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].source.as_str(), rows[0].value), ("a, \"b\"", 2.5));
}

#[test]
fn quantiles_are_rows() {
    assert_eq!(quantile(&[], 0.5), 0.0);
    assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.5), 3.0);
    assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.8), 4.0);
}
