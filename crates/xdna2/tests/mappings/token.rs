//! A token's attention on the cores of its projections: heads, positions, windows, and one core program for both.

use crate::mappings::{build, case, check, refused};
use half::bf16;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::mapping::Rule;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::resident;
use millrace_xdna2_machine::simulate::{self, SimulateOptions};

const NAME: &str = "token-attention";

#[test]
fn heads_and_lengths() {
    for (shape, tiling) in [
        ("1x80 8q/8kv d64", ""),
        ("1x640 4q/1kv d64 of 641", ""),
        ("1x240 32q/8kv d64 of 2048", ""),
        ("1x320 14q/2kv d64", ""),
        ("1x160 24q/8kv d128", "total=6144"),
        ("1x160 8q/2kv d128 of 200", ""),
        ("1x80 8q/4kv d256 of 100", ""),
        ("1x480 4q/1kv d256 window 100", ""),
        ("1x40 10q/2kv d256", "cols=2,keys=20"),
        ("1x320 6q/1kv d32", "cols=2,keys=160"),
        ("1x64 3q/3kv d160", "cols=3,keys=32"),
        ("1x80 5q/1kv d320", "cols=5,keys=8"),
    ] {
        check(NAME, shape, tiling);
    }
    // In several launches, the last one shorter.
    check(NAME, "1x1280 8q/2kv d64", "keys=40");
    check(NAME, "1x1120 4q/2kv d64 of 1200", "keys=80");
    check(NAME, "1x12000 32q/8kv d64", "");
    // Room for more keys than the launch reads.
    check(NAME, "1x160 8q/2kv d128 of 200", "keys=80");
}

/// The result on seeded data at a position, with the first key that counts.
fn run_at(shape: &str, (position, oldest): (u32, u32)) -> Vec<u8> {
    let (mapping, shape, tiling) = case(NAME, shape, "");
    let mut slots = mapping.inputs(&shape, 3);
    let digits = [position, oldest].map(u32::to_le_bytes).concat();
    for (to, digit) in slots[3].chunks_exact_mut(2).zip(digits) {
        to.copy_from_slice(&bf16::from_f32(digit.into()).to_le_bytes());
    }
    let program = build(mapping, &shape, &tiling, &Machine::npu2());
    let expected = mapping.reference(&shape, &tiling, &slots).swap_remove(0);
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
    assert!(slots[expected.0] == expected.1, "{shape} at {position}");
    slots.swap_remove(expected.0)
}

#[test]
fn any_position() {
    let shape = "1x640 8q/2kv d64 of 700";
    for position in [0, 1, 39, 40, 41, 319, 320, 600, 640] {
        run_at(shape, (position, 0));
    }
    assert!(run_at(shape, (500, 0)) != run_at(shape, (501, 0)));
    assert!(run_at(shape, (500, 450)) != run_at(shape, (500, 0)));
    // A window that reaches all, and one that does not.
    let windowed = |n: u32| run_at(&format!("{shape} window {n}"), (500, 0));
    assert!(windowed(501) == run_at(shape, (500, 0)));
    assert!(windowed(500) != run_at(shape, (500, 0)));
    // Far beyond the first lap of a ring.
    let ring = |n: u32| format!("1x640 8q/2kv d64 of 640 window {n}");
    assert!(run_at(&ring(600), (7_000, 0)) != run_at(&ring(500), (7_000, 0)));
    assert!(run_at(&ring(600), (7_000, 6_900)) != run_at(&ring(600), (7_000, 0)));
    // Rows of no key yet, and then of all.
    assert!(run_at(&ring(641), (640, 0)) == run_at("1x640 8q/2kv d64", (640, 0)));
    // A token that sees only itself gives its value.
    run_at(&format!("{shape} window 1"), (500, 0));
}

#[test]
fn what_cores_cannot_do_is_refused() {
    for (shape, tiling, rule) in [
        ("2x640 4q/2kv d64", "cols=8,keys=80", Rule::Range),
        ("1x640 4q/3kv d64", "cols=6,keys=80", Rule::Divides),
        ("1x640 6q/3kv d64", "cols=8,keys=80", Rule::Divides),
        ("1x640 4q/2kv d64", "cols=16,keys=40", Rule::Herd),
        ("1x641 4q/2kv d64", "", Rule::Divides),
        ("1x640 4q/2kv d48", "", Rule::Divides),
        ("1x640 4q/2kv d96", "", Rule::Divides),
        ("1x640 4q/2kv d64", "cols=2,keys=40", Rule::Range),
        ("1x640 4q/2kv d64", "keys=0", Rule::Divides),
        ("1x640 4q/2kv d64", "keys=8000", Rule::L1),
        ("1x640 4q/2kv d64 of 600", "", Rule::Range),
        ("1x640 4q/2kv d64", "total=512", Rule::Range),
        ("1x640 4q/2kv d64", "piece=96", Rule::Divides),
    ] {
        assert_eq!(refused(NAME, shape, tiling), rule, "{shape} {tiling}");
    }
}

/// The reason that it costs no loading: with the same sizes a projection's cores are the same as attention's except for
/// constants, and all launches are side by side.
#[test]
fn a_projection_has_the_same_cores() {
    let machine = Machine::npu2();
    let attention = {
        let (mapping, shape, tiling) = case(NAME, "1x1600 32q/8kv d64", "total=8192,piece=512");
        build(mapping, &shape, &tiling, &machine)
    };
    let projection = |keys: u64| {
        let (mapping, shape, _) = case("fused-dqp", "2048+512+512x2048", "");
        let sizes = [
            ("cols", 8),
            ("total", 8192),
            ("piece", 512),
            ("head_dim", 64),
            ("n_heads", 32),
            ("n_kv_heads", 8),
            ("keys", keys),
        ];
        let tiling = millrace_xdna2::mapping::NamedNumbers::new(&sizes);
        build(mapping, &shape, &tiling, &machine)
    };
    let distinct = |keys: u64| {
        let launches = [&attention.launches[..], &projection(keys).launches].concat();
        let mut first = resident::representatives(&launches);
        first.dedup();
        first
    };
    assert_eq!(distinct(800), [0, 1, 0]);
    assert_eq!(distinct(840), [0, 1, 2]);
}
