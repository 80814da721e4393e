use super::*;

#[test]
fn the_search_finds_a_minimum_and_leaves_what_does_not_matter() {
    let start: Point = [("a", 1.0), ("b", 30.0), ("idle", 7.0)]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec();
    let found = refit(&start, 8, &|p| {
        (p[0].1 - 3.0).abs() + (p[1].1 - 20.0).abs() / 10.0
    });
    assert!((found[0].1 - 3.0).abs() < 0.05, "{found:?}");
    assert!((found[1].1 - 20.0).abs() < 0.3, "{found:?}");
    assert_eq!(found[2].1, 7.0);
}

/// A sample of the output of `millrace fidelity --leave-out`: closed forms of decode, which take no time.
#[test]
fn decode_of_models_that_were_left_out_is_predicted() {
    let groups = [models::FLM_DECODE, models::AIR_KRACKAN];
    let found = whole_models(&super::super::measurements(), &|group| {
        groups.contains(&group)
    });
    assert!(found.len() >= 7, "{found:#?}");
    let fine: Vec<&LeftOut> = found.iter().filter(|one| one.pass).collect();
    assert!(fine.len() * 2 > found.len(), "{found:#?}");
    let unnamed: Vec<&LeftOut> = (found.iter())
        .filter(|one| !one.pass && one.missing.is_none())
        .collect();
    assert!(unnamed.is_empty(), "{unnamed:#?}");
}

#[test]
fn an_evaluation_without_rows_does_not_pass() {
    let nothing = LeaveOut {
        left_out: kernels(&[], &|_| true),
        from_few: few::evaluate(&[]),
    };
    assert!(!nothing.pass());
}

fn bad_sizes() -> ErrorSizes {
    ErrorSizes::of(&[1.05, 0.9, 1.24])
}

#[test]
fn a_family_that_needs_its_own_rows_is_told() {
    let fine = compare("f", "x", &[1.02, 0.97], &[1.03, 0.97]);
    assert!(fine.pass && fine.in_sample.median_percent < fine.leave_out.median_percent);
    let sizes = [
        bad_sizes().median_percent,
        bad_sizes().mean_percent,
        bad_sizes().max_percent,
    ];
    assert!(
        sizes
            .iter()
            .zip([10.0, 13.0, 24.0])
            .all(|(a, b)| (a - b).abs() < 1e-9),
        "{sizes:?}"
    );
    let bad = compare("f", "x", &[1.02, 0.97], &[1.2, 0.9]);
    assert!(!bad.pass && bad.missing.is_none());
    let all = LeaveOut {
        left_out: vec![fine, bad],
        from_few: Vec::new(),
    };
    assert!(!all.pass());
}
