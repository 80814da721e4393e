//! `docs/rk3588.md` agrees with the code.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_rk3588::kv::{self, LayerAttention};
use millrace_rk3588::verify::Rule;
use millrace_rk3588::{Machine, Profile};

const PAGE: &str = include_str!("../../../docs/rk3588.md");

fn line(start: &str) -> &'static str {
    let mut lines = PAGE.lines().filter(|line| line.starts_with(start));
    lines
        .next()
        .unwrap_or_else(|| panic!("no line begins with `{start}`"))
}

#[test]
fn the_prices_of_the_cache_are_those_of_the_model() {
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    for (n_tokens, context) in [
        (1, 512),
        (1, 4096),
        (1, 16_384),
        (128, 128),
        (128, 1024),
        (128, 4096),
        (256, 4096),
    ] {
        let attention = LayerAttention {
            n_tokens,
            context,
            n_heads: 32,
            n_kv_heads: 8,
            head_dim: 64,
        };
        let price = kv::price(&attention, &machine, &profile).unwrap();
        let tokens = match n_tokens {
            1 => "1 token".to_owned(),
            n => format!("{n} tokens"),
        };
        let context = match context {
            1024 => "1,024".to_owned(),
            4096 => "4,096".to_owned(),
            16_384 => "16,384".to_owned(),
            other => other.to_string(),
        };
        let line = line(&format!("| {tokens}, context {context} |"));
        for ns in [
            price.host_ns,
            price.packed.total_ns(),
            price.resident.total_ns(),
        ] {
            assert!(line.contains(&ms(ns)), "{line}: {}", ms(ns));
        }
        if (n_tokens, &*context) == (128, "4,096") {
            the_terms_are(&price);
        }
    }
}

fn ms(ns: f64) -> String {
    match ns / 1e6 {
        ms if ms < 10.0 => format!("| {ms:.2} ms |"),
        ms => format!("| {ms:.1} ms |"),
    }
}

fn the_terms_are(price: &kv::Price) {
    let terms = price.packed;
    for (term, ns) in [
        ("tasks of both products", terms.device_ns),
        ("48 jobs", terms.submit_ns),
        ("queries and probabilities packed", terms.pack_rows_ns),
        ("keys and values packed", terms.pack_cache_ns),
        ("scores and sums read", terms.unpack_ns),
        ("softmax", terms.softmax_ns),
    ] {
        let line = line(&format!("| {term} |"));
        assert!(line.contains(&ms(ns)), "{line}: {}", ms(ns));
    }
    let resident = format!("resident {:.2} ms", price.resident.pack_cache_ns / 1e6);
    assert!(
        line("| keys and values packed |").contains(&resident),
        "{resident}"
    );
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
