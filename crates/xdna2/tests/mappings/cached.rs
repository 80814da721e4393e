//! Attention over a cache: every grouping, odd positions, windows, and bits that depend on neither
//! length.

use crate::mappings::{build, case, check, refused};
use half::bf16;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::mapping::Rule;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::{Profile, timing};

const NAME: &str = "cached-attention";

/// The slot with a position.
fn at(position: u32, n_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; n_bytes];
    for (to, digit) in bytes.chunks_exact_mut(2).zip(position.to_le_bytes()) {
        to.copy_from_slice(&bf16::from_f32(digit.into()).to_le_bytes());
    }
    bytes
}

/// The result on these slots, compared with the reference.
fn run_on(shape: &str, overrides: &str, mut slots: Vec<Vec<u8>>) -> Vec<u8> {
    let (mapping, shape, tiling) = case(NAME, shape, overrides);
    let program = build(mapping, &shape, &tiling, &Machine::npu2());
    let expected = mapping.reference(&shape, &tiling, &slots).swap_remove(0);
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
    assert!(slots[expected.0] == expected.1, "{shape}");
    slots.swap_remove(4)
}

/// The same on seeded data at a position.
fn run_at(shape: &str, overrides: &str, position: u32) -> Vec<u8> {
    let (mapping, parsed, _) = case(NAME, shape, overrides);
    let mut slots = mapping.inputs(&parsed, 11);
    slots[3] = at(position, slots[3].len());
    run_on(shape, overrides, slots)
}

#[test]
fn every_grouping_of_one_token() {
    for group in [1, 2, 3, 4, 5, 8, 16] {
        for d in [16, 64] {
            for kv_heads in [1, 2, 8] {
                let unit = match kv_heads {
                    8 => 1,
                    _ => 8,
                };
                let tile = match group {
                    3 => 24,
                    5 => 40,
                    _ => 16,
                };
                let n_keys = 4 * unit * tile;
                let heads = group * kv_heads;
                check(NAME, &format!("1x{n_keys} {heads}q/{kv_heads}kv d{d}"), "");
            }
        }
    }
    for d in [128, 256] {
        check(NAME, &format!("1x512 8q/4kv d{d} of 700"), "");
        check(NAME, &format!("1x128 32q/8kv d{d}"), "");
    }
}

/// Two cores for each key-value head, in a separate column.
#[test]
fn pairs_of_cores() {
    for (shape, heads) in [
        ("1x512 4q/1kv d256 of 700", 1),
        ("1x256 8q/4kv d256", 4),
        ("1x512 32q/8kv d64", 8),
        ("1x224 14q/2kv d64", 2),
        ("1x96 24q/8kv d128", 8),
        ("1x128 16q/16kv d16", 8),
    ] {
        let tiling = format!("heads={heads},spread=1,rows=2");
        check(NAME, shape, &tiling);
        run_at(shape, &tiling, 77);
    }
}

#[test]
fn chunks_of_a_prompt() {
    for (shape, tiling) in [
        ("64x512 4q/1kv d64", "heads=1,spread=1"),
        ("16x512 4q/2kv d16 of 600", ""),
        ("32x256 8q/8kv d64", ""),
        ("48x768 6q/2kv d16", ""),
        ("8x448 7q/1kv d16", "heads=1,spread=2"),
        ("24x256 2q/1kv d128", "heads=1,spread=1,tile_tokens=8"),
        ("16x256 4q/2kv d256", "heads=2,spread=1"),
        (
            "16x128 2q/1kv d16",
            "heads=1,spread=1,tile_tokens=2,tile_kv=16",
        ),
    ] {
        check(NAME, shape, tiling);
    }
}

#[test]
fn any_position_of_a_token() {
    for position in [0, 1, 15, 16, 63, 64, 200, 255] {
        run_at("1x256 8q/2kv d64 of 300", "heads=2,spread=2", position);
    }
    run_at("1x1024 2q/1kv d16", "", 1023);
    // Only the rows that a query sees matter, and a window hides old ones.
    let all = run_at("1x256 8q/2kv d64", "heads=2,spread=2", 200);
    let window = |keys: u32| {
        let shape = format!("1x256 8q/2kv d64 window {keys}");
        run_at(&shape, "heads=2,spread=2", 200)
    };
    assert!(all == window(201) && all != window(200));
    window(1);
    window(17);
}

/// The number of keys read and the number of queries at once change no bit.
#[test]
fn bits_do_not_depend_on_lengths() {
    const ROW: usize = 2 * 4 * 64;
    let shape = |new: usize, keys: usize| format!("{new}x{keys} 4q/2kv d64 of 512");
    let (mapping, long, _) = case(NAME, &shape(32, 512), "");
    let slots = mapping.inputs(&long, 11);
    let run = |new: usize, keys: usize, position: u32| {
        let mut slots = slots.clone();
        slots[0].truncate(new * ROW);
        slots[3] = at(position, slots[3].len());
        slots[4].truncate(new * ROW);
        let tiling = format!("heads=2,spread=1,tile_tokens={new}");
        run_on(&shape(new, keys), &tiling, slots)
    };
    let all = run(32, 512, 40);
    for (new, keys) in [(32, 128), (16, 256), (8, 128)] {
        assert!(run(new, keys, 40) == all[..new * ROW], "{new} {keys}");
    }
    let token = run(1, 512, 63);
    assert!(run(1, 64, 63) == token && run(1, 256, 63) == token);
    assert!(run(1, 512, 62) != token);
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    for (shape, tiling, rule) in [
        ("1x100 8q/8kv d64", "", Rule::Divides),
        ("1x128 8q/8kv d64 of 100", "", Rule::Range),
        ("1x128 9q/2kv d64", "", Rule::Divides),
        ("1x128 8q/8kv d60", "", Rule::Divides),
        ("1x128 8q/8kv d64", "spread=2", Rule::Herd),
        ("1x128 8q/8kv d64", "rows=0", Rule::Herd),
        ("1x128 8q/8kv d64", "tile_kv=12", Rule::Divides),
        ("1x128 8q/8kv d64", "tile_kv=0", Rule::Divides),
        (
            "32x128 8q/8kv d64",
            "tile_tokens=24,tile_kv=16",
            Rule::Divides,
        ),
        ("256x256 8q/8kv d64", "tile_tokens=256", Rule::L1),
        ("256x128 8q/8kv d64", "", Rule::Range),
    ] {
        assert_eq!(refused(NAME, shape, tiling), rule, "{shape} {tiling}");
    }
}

/// Decode reads each byte of the cache once, and long caches at nearly the rate that DDR has.
#[test]
fn a_long_cache_is_read_once_and_near_the_rate_of_ddr() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    for (heads, kv_heads, d, n_keys) in [(32, 8, 64, 8192), (32, 8, 128, 8192), (8, 4, 256, 16_384)]
    {
        let shape = format!("1x{n_keys} {heads}q/{kv_heads}kv d{d}");
        let (mapping, shape, tiling) = case(NAME, &shape, "");
        let program = build(mapping, &shape, &tiling, &machine);
        let timing = timing::predict(&program, &machine, &profile).unwrap();
        let launch = &timing.launches[0];
        let bytes = mapping.work(&shape).ddr_bytes as f64;
        let read = launch.ddr_read_bytes + launch.ddr_write_bytes;
        assert!(
            read >= bytes && read < 1.05 * bytes,
            "{shape}: {read} of {bytes}"
        );
        let rate = bytes / launch.ns;
        assert!(
            rate > 0.9 * profile.ddr.read_gb_per_s,
            "{shape}: {rate} GB/s"
        );
    }
}
