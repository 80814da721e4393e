//! Programs that cannot run to their end, and the messages about them.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2_machine::program::{Program, text};
use millrace_xdna2_machine::simulate::{self, RunCounters, SimulateOptions, SimulationFault};
use std::path::Path;

fn cpu(n_threads: usize) -> Cpu {
    Cpu::new(CpuOptions {
        n_threads: Some(n_threads),
        level: None,
    })
    .unwrap()
}

fn parse(body: &str) -> Program {
    text::parse(&format!("xdna2 1\nprogram p {{ {body} }}\n")).unwrap()
}

fn run(program: &Program, slots: &mut [Vec<u8>]) -> Result<RunCounters, SimulationFault> {
    simulate::run(program, slots, &SimulateOptions::new(&cpu(2)))
}

/// Slots of a program, zeroed.
fn zeros(program: &Program) -> Vec<Vec<u8>> {
    let size = |slot: &millrace_npu::Slot| slot.size_bytes().unwrap_or(0).min(1 << 24) as usize;
    program.slots.iter().map(|s| vec![0; size(s)]).collect()
}

/// The message of a run that must fail.
fn fault(body: &str) -> SimulationFault {
    let program = parse(body);
    let mut slots = zeros(&program);
    run(&program, &mut slots).unwrap_err()
}

const ONE_CORE: &str = "launch t(x, y) {
        channel X: bf16[16] from shim(0) to core(0, 0) depth 1
        channel Y: bf16[16] from core(0, 0) to shim(0) depth 1";

#[test]
fn a_missing_block_is_a_deadlock_that_names_who_waits() {
    // The core asks for three blocks, the transfer has two.
    let fault = fault(&format!(
        "slot x: bf16[32] input slot y: bf16[48] output {ONE_CORE}
            transfer x -> X walk 0 [32:1]
            transfer y <- Y walk 0 [48:1]
            herd t at (0, 0) size (1, 1) {{
                for l0 in 3 {{
                    b0 = get X
                    b1 = new Y
                    call copy_bf16[16](b0, b1)
                    free b0
                    put b1
                }}
            }}
        }}"
    ));
    let message = fault.to_string();
    assert_eq!(fault.launch(), Some("t"));
    let site = fault.site();
    assert_eq!((site.core, site.slot), (Some((0, 0)), Some(1)));
    assert!(
        fault.reason().starts_with("it is deadlocked: "),
        "{message}"
    );
    let SimulationFault::Deadlock { waiting, .. } = fault else {
        panic!("{message}");
    };
    let who: Vec<&str> = waiting.iter().map(|w| w.who.as_str()).collect();
    assert_eq!(waiting.len(), 2, "{message}");
    assert!(who[0].contains("core t(0, 0)"), "{message}");
    assert!(
        message.contains("waits for a block of `X` (2 freed"),
        "{message}"
    );
    assert!(
        message.contains("waits for a block of `Y` (2 of 3 blocks done)"),
        "{message}"
    );
}

#[test]
fn cores_that_wait_for_each_other_are_named() {
    let fault = fault(
        "slot y: bf16[16] output
        launch t(y) {
            channel L[2]: bf16[16] from core(i0, 0) to core(1 - i0, 0) depth 1
            channel Y: bf16[16] from core(0, 0) to shim(0) depth 1
            transfer y <- Y walk 0 [16:1]
            herd t at (0, 0) size (2, 1) {
                b0 = get L[1 - x]
                b1 = new L[x]
                put b1
                free b0
                if x == 0 {
                    b2 = new Y
                    put b2
                }
            }
        }",
    );
    let message = fault.to_string();
    assert!(
        matches!(fault, SimulationFault::Deadlock { .. }),
        "{message}"
    );
    for part in ["core t(0, 0)", "core t(1, 0)", "`L[0]`", "`L[1]`", "`Y`"] {
        assert!(message.contains(part), "{part} in: {message}");
    }
}

#[test]
fn a_block_nobody_takes_is_left_over() {
    let fault = fault(&format!(
        "slot x: bf16[32] input slot y: bf16[16] output {ONE_CORE}
            transfer x -> X walk 0 [32:1]
            transfer y <- Y walk 0 [16:1]
            herd t at (0, 0) size (1, 1) {{
                b0 = get X
                b1 = new Y
                call copy_bf16[16](b0, b1)
                free b0
                put b1
            }}
        }}"
    ));
    let message = fault.to_string();
    assert!(
        matches!(fault, SimulationFault::Leftover { .. }),
        "{message}"
    );
    assert!(message.contains("channel `X` holds 1 blocks"), "{message}");
}

/// Programs on one core whose transfer or call is wrong, and words of the fault.
#[test]
fn what_cannot_be_done_is_said_with_place_and_limit() {
    let program = |walk: &str, call: &str| {
        format!(
            "slot x: bf16[16] input slot y: bf16[16] output {ONE_CORE}
            transfer x -> X walk {walk}
            transfer y <- Y walk 0 [16:1]
            herd t at (0, 0) size (1, 1) {{
                local s: bf16[8]
                b0 = get X
                b1 = new Y
                {call}
                free b0
                put b1
            }}
        }}"
        )
    };
    for (walk, call, words) in [
        ("1 [16:1]", "", "elements 1 to 16 of a buffer of 16"),
        ("0 [2:-16, 8:1]", "", "elements -16 to 7 of a buffer of 16"),
        (
            "0 [12:1]",
            "",
            "12 elements, not a whole number of blocks of 16",
        ),
        (
            "0 [16:1]",
            "call copy_bf16[8](b0, b1)",
            "operand x must have 8 elements",
        ),
        ("0 [16:1]", "call copy_bf16[16](s, b1)", "it has 8 of bf16"),
        (
            "0 [16:1]",
            "call cast_f32_bf16[16](b0, b1)",
            "16 elements of f32",
        ),
        (
            "0 [16:1]",
            "call copy_bf16[16](b0)",
            "takes 2 operands, 1 given",
        ),
        (
            "0 [16:1]",
            "call no_such_kernel[16](b0, b1)",
            "no tile kernel `no_such_kernel`",
        ),
        ("0 [16:1]", "free b0", "b0 names no block"),
        ("0 [16:1]", "b0 = get X", "b0 still names a block"),
        ("0 [16:1]", "call copy_bf16[16](b0, b7)", "names no block"),
    ] {
        let fault = fault(&program(walk, call));
        let message = fault.to_string();
        assert!(matches!(fault, SimulationFault::Cannot { .. }), "{message}");
        assert!(message.contains(words), "{words} in: {message}");
    }
}

#[test]
fn endless_programs_end() {
    let endless = |body: &str| {
        parse(&format!(
            "slot x: bf16[16] input slot y: bf16[16] output {ONE_CORE}
            transfer x -> X walk 0 [16:1]
            transfer y <- Y walk 0 [16:1]
            herd t at (0, 0) size (1, 1) {{ b0 = get X  b1 = new Y  {body} free b0  put b1 }}
        }}"
        ))
    };
    let cpu = cpu(1);
    let options = SimulateOptions {
        max_units: 1 << 16,
        ..SimulateOptions::new(&cpu)
    };
    for body in [
        "for l0 in 9223372036854775807 { }",
        "for l0 in 9223372036854775807 { call copy_bf16[16](b0, b1) }",
        "for l0 in 1000000 { for l1 in 1000000 { if l0 == 0 { } else { } } }",
    ] {
        let program = endless(body);
        let found = simulate::run(&program, &mut zeros(&program), &options);
        assert!(
            matches!(
                found,
                Err(SimulationFault::Budget {
                    max_units: 65_536,
                    ..
                })
            ),
            "{found:?}"
        );
    }
}

#[test]
fn memory_and_buffers_are_checked_first() {
    let program = parse(
        "slot x: bf16[16] input
        launch t(x) {
            channel X: bf16[16] from shim(0) to memory(0) depth 1
            channel Z: bf16[4000000, 1000000] from memory(0) to shim(0) depth 1
            stage s at 0: bf16[4000000, 1000000] copies 1 { fill X walk 0 [16:1] drain Z walk 0 [16:1] }
            transfer x -> X walk 0 [16:1]
            transfer x <- Z walk 0 [16:1]
        }",
    );
    let message = run(&program, &mut zeros(&program)).unwrap_err().to_string();
    assert!(
        message.contains("bytes of L1 and L2 are needed"),
        "{message}"
    );
    let message = run(&program, &mut []).unwrap_err().to_string();
    assert!(message.contains("1 slots, 0 buffers"), "{message}");
    let message = run(&program, &mut [vec![0; 31]]).unwrap_err().to_string();
    assert!(
        message.contains("slot `x`") && message.contains("31 bytes"),
        "{message}"
    );
}

/// The verifier's fixtures, run without asking it.
#[test]
fn refused_programs_run_into_a_fault_or_to_an_end_but_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rejected");
    let cpu = cpu(2);
    let options = SimulateOptions {
        max_units: 1 << 20,
        ..SimulateOptions::new(&cpu)
    };
    let mut n_deadlocks = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let program = text::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let result = simulate::run(&program, &mut zeros(&program), &options);
        n_deadlocks += u32::from(matches!(result, Err(SimulationFault::Deadlock { .. })));
    }
    assert!(n_deadlocks >= 2, "{n_deadlocks}");
}
