//! The figures of `docs/rk3588.md` are the report's.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_evidence::rk3588::fidelity;
use millrace_rk3588::Machine;

const PAGE: &str = include_str!("../../../docs/rk3588.md");

fn line(start: &str) -> &'static str {
    let mut lines = PAGE.lines().filter(|line| line.starts_with(start));
    lines
        .next()
        .unwrap_or_else(|| panic!("no line begins with `{start}`"))
}

#[test]
fn the_table_of_groups_is_that_of_the_report() {
    let report = fidelity::report(&Machine::rk3588());
    for group in &report.groups {
        let Some(median) = group
            .median_percent
            .filter(|_| group.bound != fidelity::RknnGroupBound::None)
        else {
            continue;
        };
        let line = line(&format!("| {} ", group.name));
        let rows = format!("{} ({})", group.rows, group.calibration_rows);
        let median = format!("{median:.1} %");
        assert!(
            line.contains(&rows) && line.contains(&median),
            "{line}: {rows}, {median}"
        );
    }
}
