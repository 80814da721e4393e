//! Each rule by a program that breaks it and one that nearly does.
#![allow(clippy::unwrap_used)] // A test may panic.

mod cases;

use cases::{CASES, GATHER, GEMV, VECTOR};
use millrace_tcp::verify::Rule;
use millrace_tcp::{Machine, program, verify};
use std::collections::BTreeSet;

fn changed(text: &str, from: &str, to: &str) -> String {
    let (from, to) = (from.replace('|', "\n"), to.replace('|', "\n"));
    assert!(text.contains(&from), "{from}");
    text.replacen(&from, &to, 1)
}

fn refusals(text: &str) -> Vec<(&'static str, String)> {
    let program = program::parse(text).unwrap();
    match verify(&program, &Machine::rngd()) {
        Ok(_) => Vec::new(),
        Err(refusals) => refusals
            .iter()
            .map(|r| (r.rule.code(), r.to_string()))
            .collect(),
    }
}

#[test]
fn the_programs_as_they_are_are_accepted() {
    for text in [GEMV, VECTOR, GATHER] {
        assert_eq!(refusals(text), [], "{text}");
    }
}

#[test]
fn each_rule_refuses_what_breaks_it_and_nothing_less() {
    let mut wrong = Vec::new();
    for (code, text, from, bad, near) in CASES {
        let found = refusals(&changed(text, from, bad));
        if !found.iter().any(|(c, _)| c == code) {
            wrong.push(format!("{code} for `{bad}`: {found:?}"));
        }
        let found = refusals(&changed(text, from, near));
        if !found.is_empty() {
            wrong.push(format!("{code} nearly, for `{near}`: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_case() {
    // Rules whose programs are not in the table: two sums too many in flight, parts that overlap, sizes.
    let elsewhere = ["TC001", "TC304", "TC305", "TC505"];
    let tested: BTreeSet<&str> = CASES.iter().map(|case| case.0).chain(elsewhere).collect();
    for rule in Rule::ALL {
        assert!(tested.contains(rule.code()), "{rule}: {}", rule.states());
        assert!(!rule.source().is_empty());
    }
}

/// A contraction that keeps `n` sums of a lane in flight, as interleaved lanes or in sequence.
fn sums(n: u64, mode: &str) -> String {
    format!(
        "tcp 1\nprogram sums {{\n axis S = 512\n axis K = 64\n axis M = {n}
 hbm w: bf16 static m![S, K]\n hbm x: bf16 input m![M, K]\n hbm y: f32 output m![S, M]
 dm w_dm: bf16 at 0 cluster m![S / 256] slice m![S % 256] element m![K]
 dm x_dm: bf16 at 256 cluster m![2] slice m![256] element m![M, K]
 dm y_dm: f32 at 65536 cluster m![S / 256] slice m![S % 256] element m![M, 1 # 8]
 trf x_t: bf16 at 0 cluster m![2] slice m![256] lane m![1] element m![M, K]
 tdma 0 6 a: w -> w_dm\n tdma 6 2 b: x -> x_dm
 sub h {{\n fetch x_dm time m![M, K / 16] packet m![K % 16]\n collect time m![M, K / 16] packet m![K % 16]\n registers x_t\n }}
 main p {{\n fetch w_dm time m![K / 16] packet m![K % 16]\n collect time m![K / 16] packet m![K % 16]
 outer x_t time m![K / 32, M] packet m![K % 32]\n packet m![1]\n time m![M]\n lane {mode} time m![M] packet m![1 # 8]\n commit y_dm\n }}
 tdma 6 2 c: y_dm -> y\n}}\n"
    )
}

#[test]
fn sums_in_flight_fit_their_slots() {
    let codes = |n, mode| -> Vec<&str> {
        refusals(&sums(n, mode))
            .into_iter()
            .map(|(code, _)| code)
            .collect()
    };
    assert_eq!(codes(32, "sequential"), [""; 0]);
    assert_eq!(codes(33, "sequential"), ["TC304"]);
    assert_eq!(codes(48, "interleaved"), [""; 0]);
}

#[test]
fn reductions_keep_eight_results() {
    let inner = |time: &str, left: &str| {
        let from = "    fetch x_dm to f32 time m![T] packet m![D % 8]|    collect time m![T] packet m![D % 8]|    vector mul0 stream|    reduce add time m![T] packet m![1 # 8]";
        let to = format!(
            "    fetch x_dm to f32 time {time} packet m![1 # 8]|    collect time {time} packet m![1 # 8]|    vector mul0 stream|    reduce add time {left} packet m![1 # 8]"
        );
        let text = VECTOR.replace("axis T = 4", "axis T = 12");
        let found = refusals(&changed(&text, from, &to));
        found.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(inner("m![D % 8, T]", "m![T]"), ["TC305"]);
    assert_eq!(inner("m![T, D % 8]", "m![T]"), [""; 0]);
}

#[test]
fn parts_do_not_overlap_in_part() {
    let text = changed(
        GATHER,
        "  tdma 4 4 load: x -> x_dm|",
        "  dm half: bf16 at 768 cluster m![2] slice m![T] element m![D = 32]|  tdma 4 4 a: x -> half|  tdma 4 4 b: half -> x_dm|  tdma 4 4 c: half -> x_dm[D + 32]|",
    );
    assert_eq!(refusals(&text), []);
    let text = text.replace("x_dm[D + 32]", "x_dm[D + 16]");
    let found = refusals(&text);
    assert!(found.iter().any(|(code, _)| *code == "TC505"), "{found:?}");
    // Half of it alone is too little to read.
    let text = changed(
        GATHER,
        "tdma 4 4 load: x -> x_dm",
        "dm half: bf16 at 768 cluster m![2] slice m![T] element m![D = 32]|  tdma 4 4 a: x -> half|  tdma 4 4 b: half -> x_dm",
    );
    let found = refusals(&text);
    assert_eq!(found[0].0, "TC501");
    assert!(found[0].1.contains("reads more of `x_dm` than was written"));
}

#[test]
fn sums_that_padding_makes_endless_are_not_examined() {
    let padded = |n: u64| {
        let text = GEMV
            .replace("axis K = 256", "axis K = 4096")
            .replace("at 512 cluster", "at 8192 cluster")
            .replace("at 1024 cluster", "at 16384 cluster");
        let (from, to) = (
            "m![K / 16] packet",
            format!("m![K / 256 # {n}, K % 256 / 16] packet"),
        );
        let text = text.replace(from, &to);
        let to = format!("m![K / 256 # {n}, K % 256 / 32] packet");
        refusals(&text.replace("m![K / 32] packet", &to))
    };
    assert_eq!(padded(1 << 14), []);
    assert_eq!(padded(1 << 15)[0].0, "TC001");
}

#[test]
fn long_kernels_are_not_examined() {
    let stage = "    vector exp|".repeat(70);
    let text = changed(VECTOR, "    vector sigmoid|", &stage);
    assert_eq!(refusals(&text)[0].0, "TC001");
}

/// Every program that the verifier accepts runs, for any change of the text.
#[test]
fn changed_programs_are_refused_or_run() {
    let options = millrace_tcp::simulate::SimulationOptions {
        n_threads: 1,
        stop_after: None,
        after_write: None,
    };
    let (mut ran, mut refused) = (0, 0);
    for text in [GEMV, VECTOR, GATHER] {
        let numbers: Vec<(usize, usize)> = text
            .match_indices(|c: char| c.is_ascii_digit())
            .map(|(at, _)| at)
            .filter(|&at| at == 0 || !text.as_bytes()[at - 1].is_ascii_alphanumeric())
            .map(|at| {
                (
                    at,
                    text[at..].bytes().take_while(u8::is_ascii_digit).count(),
                )
            })
            .collect();
        for (at, len) in numbers {
            let old: u64 = text[at..at + len].parse().unwrap();
            for new in [old.wrapping_sub(1), old + 1, old * 2, old / 2] {
                let text = format!("{}{new}{}", &text[..at], &text[at + len..]);
                let Ok(program) = program::parse(&text) else {
                    continue;
                };
                if verify(&program, &Machine::rngd()).is_err() {
                    refused += 1;
                    continue;
                }
                let slots = program.slots().unwrap();
                let size = |slot: &millrace_npu::Slot| slot.size_bytes().unwrap() as usize;
                let mut content: Vec<Vec<u8>> = slots.iter().map(|s| vec![0; size(s)]).collect();
                millrace_tcp::simulate::run(&program, &mut content, &options).unwrap();
                ran += 1;
            }
        }
    }
    assert!(ran > 50 && refused > 200, "{ran} ran, {refused} refused");
}
