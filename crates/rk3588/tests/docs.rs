//! `docs/rk3588.md` says what the code says.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_rk3588::kv::{self, Attention};
use millrace_rk3588::verify::Rule;
use millrace_rk3588::{Machine, Profile, fidelity};

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
            .filter(|_| group.bound != fidelity::Bound::None)
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

#[test]
fn the_prices_of_the_cache_are_those_of_the_model() {
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    for (n_tokens, context) in [(1, 512), (1, 4096), (1, 16_384), (128, 128), (128, 4096)] {
        let attention = Attention {
            n_tokens,
            context,
            n_heads: 32,
            n_kv_heads: 8,
            head_dim: 64,
        };
        let price = kv::price(&attention, &machine, &profile).unwrap();
        let tokens = if n_tokens == 1 {
            "1 token"
        } else {
            "128 tokens"
        };
        let context = match context {
            4096 => "4,096".to_owned(),
            16_384 => "16,384".to_owned(),
            other => other.to_string(),
        };
        let line = line(&format!("| {tokens}, context {context} |"));
        for ns in [price.host_ns, price.npu_ns] {
            let ms = ns / 1e6;
            let text = if ms < 10.0 {
                format!("{ms:.2} ms")
            } else {
                format!("{ms:.1} ms")
            };
            assert!(line.contains(&text), "{line}: {text}");
        }
    }
}

#[test]
fn every_rule_is_in_a_range_of_the_table() {
    let ranges: Vec<(u32, u32)> = (PAGE.lines())
        .filter_map(|line| line.strip_prefix("| RK"))
        .map(|line| {
            let codes = line.split(' ').next().unwrap();
            let mut codes = codes.split("–RK").map(|code| code.parse().unwrap());
            let first = codes.next().unwrap();
            (first, codes.next().unwrap_or(first))
        })
        .collect();
    for rule in Rule::ALL {
        let code: u32 = rule.code()[2..].parse().unwrap();
        assert!(
            ranges
                .iter()
                .any(|&(first, last)| (first..=last).contains(&code)),
            "{code}"
        );
    }
    let listed: u32 = ranges.iter().map(|(first, last)| last - first + 1).sum();
    assert_eq!(listed as usize, Rule::ALL.len());
}
