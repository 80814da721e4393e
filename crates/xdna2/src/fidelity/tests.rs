use super::*;

#[test]
fn every_group_attains_its_bound() {
    let report = report(Kind::Kernels);
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
