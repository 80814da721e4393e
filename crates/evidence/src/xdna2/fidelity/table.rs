//! The report as text (Markdown).

use super::{GroupBound, GroupStats, MeasurementReport};
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for MeasurementReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| group | rows | calibration | median | 80 % within | max | bias | bound | |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|---|---|")?;
        for group in &self.groups {
            group_line(f, group)?;
        }
        for group in &self.groups {
            self.rows_of(f, group)?;
        }
        self.outliers(f)?;
        self.left_out(f)
    }
}

fn group_line(f: &mut fmt::Formatter<'_>, group: &GroupStats) -> fmt::Result {
    let bound = group.bound.map_or_else(|| "none".into(), bound_text);
    let verdict = match (group.bound.is_some(), group.pass) {
        (true, true) => "pass",
        (true, false) => "FAIL",
        (false, _) => "for information",
    };
    let name = &group.name;
    let (rows, calibration) = (group.rows, group.calibration_rows);
    if rows == calibration {
        return writeln!(
            f,
            "| {name} | {rows} | {calibration} | – | – | – | – | {bound} | {verdict} |"
        );
    }
    writeln!(
        f,
        "| {name} | {rows} | {calibration} | {:.1} % | {:.1} % | {:.1} % | {:+.1} % | {bound} | {verdict} |",
        group.median_percent, group.p80_percent, group.max_percent, group.bias_percent,
    )
}

fn bound_text(bound: GroupBound) -> String {
    let parts = [
        ("median", bound.median_percent),
        ("80 % within", bound.p80_percent),
        ("every row within", bound.max_percent),
    ];
    let parts: Vec<String> = (parts.iter())
        .filter_map(|(name, value)| Some(format!("{name} {} %", (*value)?)))
        .collect();
    parts.join(", ")
}

/// A published value with as few digits as in print.
fn value(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A cell's text: a bar would end it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

impl MeasurementReport {
    fn rows_of(&self, f: &mut fmt::Formatter<'_>, group: &GroupStats) -> fmt::Result {
        writeln!(f, "\n### {}\n", group.name)?;
        writeln!(
            f,
            "| id | mapping | shape and tiling as published | unit | measured | predicted | error | bound by |"
        )?;
        writeln!(f, "|---|---|---|---|---:|---:|---:|---|")?;
        for row in self.rows.iter().filter(|row| row.group == group.name) {
            let calibration = if row.calibration { " \\*" } else { "" };
            let outlier = if row.outlier.is_some() { " †" } else { "" };
            writeln!(
                f,
                "| {}{calibration}{outlier} | {} | {} · {} | {} | {} | {} | {:+.1} % | {} |",
                row.measured.id,
                row.mapping,
                cell(&row.measured.shape),
                cell(&row.measured.kernel),
                row.measured.metric,
                value(row.measured.value),
                value(row.predicted),
                row.error_percent,
                cell(row.bottleneck.split(", busy").next().unwrap_or_default()),
            )?;
        }
        Ok(())
    }

    fn outliers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in &self.rows {
            if let Some(reason) = &row.outlier {
                reasons.entry(reason).or_default().push(&row.measured.id);
            }
        }
        if reasons.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n### Known outliers, marked †, counted like any row\n")?;
        writeln!(f, "| reason | rows |\n|---|---|")?;
        for (reason, ids) in reasons {
            writeln!(f, "| {} | {} |", cell(reason), ids.join(" "))?;
        }
        Ok(())
    }

    fn left_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.excluded.is_empty() {
            return Ok(());
        }
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for excluded in &self.excluded {
            let ids = reasons.entry(&excluded.reason).or_default();
            ids.push(&excluded.measured.id);
        }
        writeln!(f, "\n### Rows left out\n")?;
        writeln!(f, "| reason | rows |\n|---|---|")?;
        for (reason, ids) in reasons {
            writeln!(f, "| {} | {} |", cell(reason), ids.join(" "))?;
        }
        Ok(())
    }
}
