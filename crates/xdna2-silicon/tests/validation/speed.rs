//! How long the board takes, within the bounds that docs/silicon.md names.

use super::*;
use crate::models::demo;
use millrace_xdna2::lower::{LowerOptions, Mode, decode};
use millrace_xdna2_silicon::device::run_program;
use std::time::{Duration, Instant};

/// Fails if a run took longer than allowed.
fn within(what: &str, start: Instant, most: Duration) {
    let took = start.elapsed();
    println!("{what}: {took:?}");
    assert!(took <= most, "{what} took {took:?} of {most:?}");
}

/// A GEMM of 512 x 512 x 512 as words behind the driver's kernel in software: the simulator's bytes, in 30 seconds.
#[test]
fn a_gemm_of_512() {
    let (program, slots) = case("gemm-drain", "512x512x512", "");
    let cpu = cpu();
    let expected = simulated(&program, &slots, &cpu);
    let mut found = slots;
    let start = Instant::now();
    let counters = run_program(&program, &Machine::npu2(), &mut found, &cpu).unwrap();
    within("a GEMM of 512", start, Duration::from_secs(30));
    assert!(counters.words > 512 * 512, "{counters:?}");
    assert!(found == expected, "other bytes");
}

/// All programs of a token of the embedded model as words, in 60 seconds.
#[test]
fn a_token_of_the_demo() {
    let options = LowerOptions::new(Mode::Fast, 64);
    let plan = decode(&demo(), &Machine::npu2(), &options).unwrap();
    let start = Instant::now();
    let wrong = crate::models::compare(&plan);
    within("a token of the demo", start, Duration::from_secs(60));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
