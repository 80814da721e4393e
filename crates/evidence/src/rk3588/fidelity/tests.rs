use super::*;

#[test]
fn every_row_is_predicted_and_every_group_attains_its_bound() {
    let machine = Machine::rk3588();
    let report = report(&machine);
    let lines = include_str!("../../../data/rk3588/measured.csv")
        .lines()
        .count()
        - 1;
    assert_eq!((measurements().len(), report.rows.len()), (lines, lines));
    let named: usize = report.groups.iter().map(|group| group.rows).sum();
    assert_eq!(named, lines, "a group is not in the list");
    for row in report
        .rows
        .iter()
        .filter(|r| r.measured.group != GROUPS[0].0)
    {
        eprintln!(
            "{} {} {:.2} {}: {:.2}, {:+.1} %{}",
            row.measured.id,
            row.measured.group,
            row.measured.value,
            row.measured.metric,
            row.predicted,
            row.error_percent,
            if row.calibration { " *" } else { "" }
        );
    }
    for group in &report.groups {
        eprintln!("{group:?}");
    }
    assert!(report.pass());
}

/// The bounds find models that are wrong.
#[test]
fn wrong_models_fail() {
    let machine = Machine::rk3588();
    let profiles: Vec<Profile> = Profile::builtin_names()
        .filter_map(Profile::builtin)
        .collect();
    let failing = |machine: &Machine, change: &dyn Fn(&mut Profile)| -> Vec<String> {
        let mut profiles = profiles.clone();
        profiles.iter_mut().for_each(change);
        let report = report_with(&measurements(), machine, &profiles);
        let failed = report.groups.into_iter().filter(|group| !group.pass);
        failed.map(|group| group.name).collect()
    };
    assert_eq!(failing(&machine, &|_| {}), [""; 0]);
    let rows = Machine {
        row_group: 1,
        ..machine.clone()
    };
    assert!(failing(&rows, &|_| {}).contains(&GROUPS[0].0.into()));
    let slow_host = |p: &mut Profile| p.host_unpack_elements_per_s /= 3.0;
    assert!(failing(&machine, &slow_host).contains(&"GEMM on rocket".into()));
    let slow_memory = |p: &mut Profile| p.ddr_bytes_per_s /= 2.0;
    assert!(failing(&machine, &slow_memory).contains(&"tokens on RKLLM".into()));
    let fast_array = |p: &mut Profile| p.mac_efficiency = 1.0;
    assert!(failing(&machine, &fast_array).contains(&"prompts of 128 on RKLLM".into()));
}

/// The error that a profile states is the largest of its groups' medians over rows that nothing was
/// fitted on, of groups that are bounded.
#[test]
fn profiles_state_the_error_of_held_out_rows() {
    let report = report(&Machine::rk3588());
    let bounded = GROUPS
        .iter()
        .filter(|(_, bound)| *bound != RknnGroupBound::None);
    for name in Profile::builtin_names() {
        let rows: Vec<RknnFidelityRow> = (report.rows.iter())
            .filter(|row| row.measured.profile == name)
            .cloned()
            .collect();
        let medians = bounded.clone().filter_map(|(group_name, bound)| {
            group(group_name, *bound, &rows).and_then(|group| group.median_percent)
        });
        let worst = medians.fold(0.0, f64::max);
        let stated = Profile::builtin(name).unwrap().error.unwrap() * 100.0;
        assert!(
            (stated - worst).abs() < 0.5,
            "{name}: {stated} stated, {worst}"
        );
    }
}

#[test]
fn fitted_rows_exist_and_are_marked() {
    let report = report(&Machine::rk3588());
    for profile in Profile::builtin_names().filter_map(Profile::builtin) {
        for id in profile.calibration_rows() {
            let row = report.rows.iter().find(|row| row.measured.id == id);
            assert!(row.is_some_and(|row| row.calibration), "{id}");
        }
    }
}
