use super::*;
use millrace_xdna2_machine::profile::ErrorScope;
use std::collections::BTreeSet;

#[test]
fn every_group_attains_its_bound() {
    let report = report(ReportKind::Kernels);
    let failed: Vec<&GroupStats> = report.groups.iter().filter(|g| !g.pass).collect();
    let megatiles = report
        .rows
        .iter()
        .filter(|row| row.group == "GEMM megatile");
    let errors: Vec<f64> = megatiles.map(|row| row.error_percent).collect();
    assert!(failed.is_empty(), "{failed:#?} {errors:.1?}");
    assert!(report.pass());
    let names: Vec<&str> = report.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, GROUPS.iter().map(|g| g.0).collect::<Vec<_>>());
    assert!(report.rows.len() >= 160, "{} rows", report.rows.len());
}

#[test]
fn every_measurement_is_predicted_or_left_out_with_a_reason() {
    let measurements = measurements();
    assert!(measurements.len() > 800);
    let reports = [ReportKind::Kernels, ReportKind::Models].map(report);
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
    let text = report(ReportKind::Kernels).to_string();
    assert!(text.contains("| N0518 \\* |") && text.contains("| N0522 |"));
}

#[test]
fn models_attain_their_bounds() {
    let report = report(ReportKind::Models);
    let failed: Vec<&GroupStats> = report.groups.iter().filter(|g| !g.pass).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let names: Vec<&str> = report.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, MODEL_GROUPS.iter().map(|g| g.0).collect::<Vec<_>>());
    assert!(report.rows.len() >= 160, "{} rows", report.rows.len());
    assert!(report.pass());
}

/// Bounds of mode mlir-air: a prompt and a token within 10 %, each program within 20 %, from the programs that run.
#[test]
fn the_published_stack_is_predicted_from_its_lowered_programs() {
    let report = report(ReportKind::Models);
    let seed = |row: &&FidelityRow| row.bottleneck.starts_with("lowered programs");
    let rows: Vec<&FidelityRow> = report.rows.iter().filter(seed).collect();
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
    for kind in [ReportKind::Kernels, ReportKind::Models] {
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
    let report = report_with(
        ReportKind::Models,
        &read(&text),
        &Machine::npu2(),
        &profiles,
    );
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
fn the_median_is_the_ordinary_one() {
    for (sorted, expected) in [
        (&[][..], 0.0),
        (&[3.0][..], 3.0),
        (&[1.0, 2.0][..], 1.5),
        (&[1.0, 2.0, 9.0][..], 2.0),
        (&[1.0, 2.0, 4.0, 100.0][..], 3.0),
    ] {
        assert_eq!(median(sorted), expected, "{sorted:?}");
    }
}

/// Every row of the file is predicted, or starred as one that a constant was fitted on, or left out
/// with a reason, and none twice.
#[test]
fn every_row_of_the_file_is_accounted_for() {
    let text = include_str!("../../../data/xdna2/measured.csv");
    let n_lines = text.lines().skip(1).filter(|line| !line.is_empty()).count();
    assert_eq!(
        measurements().len(),
        n_lines,
        "a line that is no measurement"
    );
    let reports = [ReportKind::Kernels, ReportKind::Models].map(report);
    let rows = || reports.iter().flat_map(|r| &r.rows);
    let starred = rows().filter(|row| row.calibration).count();
    let held_out = rows().filter(|row| !row.calibration).count();
    let left_out: usize = reports.iter().map(|r| r.excluded.len()).sum();
    assert_eq!(starred + held_out + left_out, n_lines);
    assert!(
        starred > 40 && held_out > 280 && left_out > 600,
        "{starred} {held_out} {left_out}"
    );
    let ids = rows().map(|r| &r.measured.id);
    let excluded = reports.iter().flat_map(|r| &r.excluded);
    let ids: BTreeSet<&String> = ids.chain(excluded.map(|e| &e.measured.id)).collect();
    assert_eq!(ids.len(), n_lines);
    let counted: usize = (reports.iter().flat_map(|r| &r.groups))
        .map(|g| g.rows - g.calibration_rows)
        .sum();
    assert_eq!(
        counted, held_out,
        "statistics are of the held-out rows and no others"
    );
}

#[test]
fn reasons_say_what_a_row_is() {
    let reports = [ReportKind::Kernels, ReportKind::Models].map(report);
    let reason = |id: &str| {
        let mut excluded = reports.iter().flat_map(|r| &r.excluded);
        let found = excluded.find(|e| e.measured.id == id);
        found.map_or_else(|| panic!("{id} is not left out"), |e| e.reason.as_str())
    };
    for (ids, words) in [
        (
            &["N0007", "N0013", "N0330"][..],
            "baseline on the CPU or the integrated GPU",
        ),
        (&["N0085", "N1028"], "not a time"),
        (
            &["N0268", "N0275", "N0223", "N0242"],
            "ordinary bf16 program",
        ),
        (&["N1165", "N1166"], "attention of one token"),
        (&["N0187", "N0797"], "driver, host or configuration"),
        (&["N0691", "N0703"], "in another build"),
        (&["N0719", "N0294"], "not the time of a kernel"),
        (&["N0725"], "integers: sums of 8"),
    ] {
        for id in ids {
            assert!(reason(id).contains(words), "{id}: {}", reason(id));
        }
    }
}

/// The report's errors are those that profiles state, within a tenth of a percent.
#[test]
fn stated_errors_are_those_of_the_report() {
    let reports = [ReportKind::Kernels, ReportKind::Models].map(report);
    for profile in Profile::builtin_names().filter_map(Profile::builtin) {
        for scope in [ErrorScope::Kernel, ErrorScope::Prompt, ErrorScope::Token] {
            let rows = reports.iter().flat_map(|r| &r.rows);
            let mut sizes: Vec<f64> = rows
                .filter(|row| row.profile == profile.name && !row.calibration)
                .filter(|row| scope_of(&row.group) == Some(scope))
                .map(|row| row.error_percent.abs())
                .collect();
            sizes.sort_by(f64::total_cmp);
            let stated = profile.errors.of(scope);
            let found = median(&sizes);
            let name = &profile.name;
            assert!(
                (stated - found).abs() <= 0.1,
                "{name} {scope:?}: {stated}, found {found:.2}"
            );
        }
    }
}

/// The bounds hold up: a constant that is off by a fifth breaks one.
#[test]
fn a_perturbed_constant_breaks_a_bound() {
    let kernels: Vec<Measurement> = (measurements().into_iter())
        .filter(|m| cases::kind(m) == ReportKind::Kernels)
        .collect();
    for (key, factor) in [
        ("ddr.read_gb_per_s", 1.25),
        ("dispatch.configure_byte_ns", 3.0),
        ("dispatch.issue_ns", 5.0),
        ("kernel.fa_softmax_bf16.cycles_per_element", 1.5),
    ] {
        let mut profiles: Vec<Profile> = Profile::builtin_names()
            .filter_map(Profile::builtin)
            .collect();
        for profile in &mut profiles {
            let known = profile.constants.iter().find(|c| c.key == key);
            let value = known.and_then(|c| c.value.number()).expect("a number") * factor;
            profile.set(&format!("{key}={value}")).expect("known");
        }
        let report = report_with(ReportKind::Kernels, &kernels, &Machine::npu2(), &profiles);
        assert!(!report.pass(), "{key} times {factor} breaks no bound");
    }
}

#[test]
fn quantiles_are_rows() {
    assert_eq!(quantile(&[], 0.5), 0.0);
    assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.5), 3.0);
    assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.8), 4.0);
}
