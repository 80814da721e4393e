//! The Gemma 3 paper's FlowQKV and FlowKV: every grouping and mask, the bits of the other mapping of a prompt's
//! attention, one configuration for all variants, rings, and their bounds.

use crate::mappings::{build, case, check, find, fits, refused};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::mapping::{Rule, moved_bytes};
use millrace_xdna2_machine::program::{ChannelLink, resident};
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::verify::verify;
use millrace_xdna2_machine::{Machine, Profile, timing};

const NAME: &str = "flow-qkv";

#[test]
fn every_grouping() {
    for (shape, tiling) in [
        ("64x64 8q/4kv d256 own", ""),
        ("128x128 8q/4kv d256 own", "chunks=2"),
        ("128x128 4q/1kv d256 own", ""),
        ("64x64 4q/2kv d256 window 24 own", ""),
        ("128x128 8q/4kv d16 window 40 own", ""),
        (
            "256x256 8q/4kv d16 window 40 own",
            "chunks=1,heads=4,keys_l2=64",
        ),
        ("128x128 8q/4kv d256 window 20 own", "chunks=2"),
        (
            "256x256 4q/1kv d64 window 33 own",
            "chunks=2,tile_tokens=8,y_rows=32,keys_l2=64",
        ),
        ("128x128 4q/2kv d64 own", "heads=1,col_heads=1,chunks=2"),
        ("128x128 6q/3kv d16 own", ""),
        ("256x256 4q/4kv d72 full", ""),
        ("64x64 16q/16kv d72 full", ""),
        ("64x64 2q/2kv d256 full", ""),
        ("64x64 8q/4kv d256 image", ""),
        ("128x128 4q/1kv d256 image", ""),
        ("128x128 8q/4kv d16 window 40 image", ""),
        ("64x512 8q/4kv d64", ""),
        ("64x128 8q/8kv d64 of 200", ""),
        ("128x256 4q/1kv d64", ""),
        ("128x128 8q/4kv d256 of 200", ""),
        (
            "128x256 16q/4kv d64",
            "chunks=2,tile_tokens=8,y_rows=32,keys_l2=64",
        ),
        ("128x256 8q/4kv d64 window 40", ""),
        ("64x192 8q/4kv d256 window 90", ""),
    ] {
        check(NAME, shape, tiling);
    }
    // Gemma 3, Llama 3.2, Qwen 3.
    for heads in [
        "4q/1kv d256",
        "8q/4kv d256",
        "16q/8kv d256",
        "32q/16kv d128",
        "32q/8kv d128",
        "32q/8kv d64",
        "16q/8kv d128",
    ] {
        for new in [64, 192, 320, 512, 2048] {
            let mut kinds = vec![
                format!("{new}x8192 {heads} of 32768"),
                format!("{new}x{} {heads} window 512", reached(new, heads, 512)),
            ];
            for window in ["", " window 512"] {
                kinds.push(format!("{new}x{new} {heads}{window} own"));
                kinds.push(format!("{new}x{new} {heads}{window} image"));
            }
            for shape in kinds {
                fits(NAME, &shape, "");
            }
        }
    }
    // SigLIP's so400m of 896 and 384 pixels; ViT-L.
    for shape in ["4096x4096 16q/16kv d72", "576x576 16q/16kv d64"] {
        fits(NAME, &format!("{shape} full"), "");
    }
}

/// Number of rows that so many tokens reach: in whole pairs of tiles.
fn reached(new: u64, heads: &str, window: u64) -> u64 {
    let (_, _, tiling) = case(NAME, &format!("{new}x8192 {heads}"), "");
    let unit = 2 * tiling["tile_kv"];
    new + (window + unit - 2).next_multiple_of(unit)
}

/// Four chunks of Gemma3-4B on two columns each, with two adjacent cores a head of keys. Keys and values come on a DMA channel each.
#[test]
fn it_lies_as_the_paper_says() {
    let (mapping, shape, tiling) = case(NAME, "2048x2048 8q/4kv d256 own", "");
    let named = [
        ("chunks", 4),
        ("heads", 4),
        ("col_heads", 2),
        ("rows", 4),
        ("tile_tokens", 8),
    ];
    for (name, value) in named {
        assert_eq!(tiling[name], value, "{name}");
    }
    let program = build(mapping, &shape, &tiling, &Machine::npu2());
    let launch = &program.launches[0];
    let names: Vec<&str> = launch.channels.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names,
        ["k_in", "v_in", "y", "y_out", "k0", "v0", "k1", "v1"]
    );
    let report = verify(&program, &Machine::npu2()).unwrap();
    assert!(report.program_bytes < 16 * 1024, "{}", report.program_bytes);
}

/// A query takes the same tiles of keys in the same order, on any core.
#[test]
fn its_bits_are_those_of_broadcast_keys() {
    let machine = Machine::npu2();
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    for shape in [
        "128x128 8q/4kv d64 own",
        "128x128 8q/4kv d64 window 40 own",
        "128x128 4q/4kv d72 full",
        "128x256 4q/1kv d64",
    ] {
        let run = |name: &str| {
            let (mapping, shape, tiling) = case(name, shape, "");
            let program = build(mapping, &shape, &tiling, &machine);
            let mut slots = find(NAME).inputs(&shape, 3);
            simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
            slots.swap_remove(4)
        };
        assert!(run(NAME) == run("prompt-attention"), "{shape}");
    }
}

/// FlowQKV, FlowQKV-SWA and FlowQKV-NCA: the same channels, stages and cores, of which two constants differ for each of a head's programs.
#[test]
fn three_variants_are_one_configuration() {
    let machine = Machine::npu2();
    for (heads, n_bodies) in [("8q/4kv d256", 8), ("4q/1kv d256", 1), ("16q/16kv d72", 8)] {
        let launch = |mask: &str| {
            let (mapping, shape, tiling) = case(NAME, &format!("2048x2048 {heads} {mask}"), "");
            build(mapping, &shape, &tiling, &machine).launches.remove(0)
        };
        let all = ["own", "window 512 own", "full"].map(launch);
        assert_eq!(resident::representatives(&all), [0, 0, 0], "{heads}");
        let (mapping, shape, tiling) = case(NAME, &format!("2048x2048 {heads} window 512 own"), "");
        let windowed = build(mapping, &shape, &tiling, &machine).launches;
        assert_eq!(resident::representatives(&windowed), [0, 0], "{heads}");
        let [own, window, full] = [0, 1, 2].map(|at: usize| resident::parameters(&all[at]));
        for other in [window, full] {
            let differ = own.iter().zip(&other).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 2 * n_bodies, "{heads}");
        }
        // Other heads have another one.
        let (mapping, shape, tiling) = case(NAME, "2048x2048 8q/8kv d128 own", "");
        let other = build(mapping, &shape, &tiling, &machine).launches.remove(0);
        assert_eq!(resident::representatives(&[all[0].clone(), other]), [0, 1]);
    }
}

/// The Gemma 3 paper's equation 13 with a chunk's tokens for Lc: a sweep for every super-chunk reads the keys up to its last token, once for each
/// chunk in it.
#[test]
fn each_chunk_sweeps_for_itself() {
    let (l, d) = (2048, 256);
    for (heads, n_kv_heads) in [("4q/1kv", 1), ("8q/4kv", 4)] {
        let (mapping, shape, tiling) = case(NAME, &format!("{l}x{l} {heads} d{d} own"), "");
        let program = build(mapping, &shape, &tiling, &Machine::npu2());
        let tokens = tiling["rows"] / tiling["col_heads"] * tiling["tile_tokens"];
        let super_chunk = tokens * tiling["chunks"];
        let swept = moved_bytes(&program, &[1, 2]);
        let once = 2 * (1 + l / super_chunk) * l * n_kv_heads * d;
        assert_eq!(swept, once * tiling["chunks"], "{heads}");
        // The keys that a chunk reads in vain are at most those of its super-chunk.
        let seen = 2 * (1 + l / tokens) * l * n_kv_heads * d;
        assert!(swept < seen + seen / 16, "{heads}: {swept} {seen}");
    }
}

/// "These kernels operate in the memory-bound regime" (§5), with more than 60 GB/s of keys and values; with narrow heads and a chunk of 128 queries the cores
/// bound it.
#[test]
fn wide_heads_are_bound_by_ddr() {
    let machine = Machine::npu2();
    let profile = Profile::builtin("paper-kraken").unwrap();
    let rate = |shape: &str| {
        let (mapping, shape, tiling) = case(NAME, shape, "");
        let program = build(mapping, &shape, &tiling, &machine);
        let timing = timing::predict(&program, &machine, &profile).unwrap();
        let launch = &timing.launches[0];
        let swept = moved_bytes(&program, mapping.keys_and_values());
        (swept as f64 / launch.ns, launch.bottleneck.to_string())
    };
    for shape in ["2048x2048 8q/4kv d256 own", "2048x16384 8q/4kv d256"] {
        let (gb_per_s, bound) = rate(shape);
        assert!(
            gb_per_s > 60.0 && bound.contains("DDR"),
            "{shape}: {gb_per_s} {bound}"
        );
    }
    let (gb_per_s, bound) = rate("4096x4096 16q/16kv d72 full");
    assert!(
        gb_per_s < 40.0 && bound.contains("core"),
        "{gb_per_s} {bound}"
    );
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    for (shape, tiling, rule) in [
        ("64x100 8q/8kv d64", "", Rule::Divides),
        ("64x128 8q/8kv d64 of 100", "", Rule::Range),
        ("64x128 9q/2kv d64", "", Rule::Divides),
        ("64x128 8q/8kv d64", "chunks=5", Rule::Herd),
        ("64x128 8q/8kv d64", "heads=3", Rule::Divides),
        ("64x128 8q/8kv d64", "col_heads=3", Rule::Divides),
        ("64x128 8q/8kv d64", "tile_kv=12", Rule::Divides),
        ("64x128 8q/8kv d64", "keys_l2=48", Rule::Divides),
        ("64x128 8q/4kv d256", "tile_tokens=16", Rule::L1),
        ("64x128 8q/8kv d64 own", "", Rule::Range),
        ("64x64 8q/8kv d64 window 40 full", "", Rule::Range),
        // More blocks of keys than an iteration of a shim's descriptor counts to.
        ("2048x2048 8q/4kv d256 own", "keys_l2=16", Rule::Repeat),
        // Rows that a window reaches come in whole pairs of tiles.
        (
            "64x1152 8q/4kv d256 window 1024",
            "chunks=4,heads=4,col_heads=2,rows=4",
            Rule::Range,
        ),
    ] {
        assert_eq!(refused(NAME, shape, tiling), rule, "{shape} {tiling}");
    }
}

/// A pair's core of keys and core of values, side by side.
mod pairs {
    use super::*;
    use half::bf16;

    const NAME: &str = "flow-kv";

    #[test]
    fn every_grouping() {
        for (shape, tiling) in [
            ("1x512 4q/1kv d256 of 700", ""),
            ("1x256 8q/4kv d256", ""),
            ("1x256 8q/4kv d256", "tile_kv=16"),
            ("1x256 8q/4kv d256 of 300", "heads=2,col_heads=1"),
            ("1x512 32q/8kv d64", ""),
            ("1x128 32q/8kv d64", "heads=4"),
            ("1x224 14q/2kv d64", ""),
            ("1x96 24q/8kv d128", ""),
            ("1x128 16q/16kv d16", ""),
            ("1x96 6q/2kv d16 of 100", "tile_kv=24"),
            ("1x256 16q/1kv d64", ""),
            ("1x256 4q/2kv d64 window 200", ""),
            ("1x64 8q/4kv d256 window 33", ""),
            ("1x128 4q/1kv d256 of 500 window 100", ""),
        ] {
            check(NAME, shape, tiling);
        }
        for heads in [
            "4q/1kv d256",
            "8q/4kv d256",
            "32q/8kv d64",
            "32q/8kv d128",
            "16q/8kv d128",
        ] {
            for keys in [512, 640, 8192, 131_072] {
                fits(NAME, &format!("1x{keys} {heads}"), "");
            }
            fits(NAME, &format!("1x1088 {heads} window 1024"), "");
        }
    }

    /// Four heads of keys are two columns of two pairs, neighbours that share L1.
    #[test]
    fn it_lies_as_the_paper_says() {
        let (mapping, shape, tiling) = case(NAME, "1x4096 8q/4kv d256", "");
        assert_eq!((tiling["heads"], tiling["col_heads"]), (4, 2));
        let program = build(mapping, &shape, &tiling, &Machine::npu2());
        let launch = &program.launches[0];
        assert_eq!((launch.herds[0].cols, launch.herds[0].rows), (2, 4));
        let shared = launch
            .channels
            .iter()
            .filter(|c| c.link == ChannelLink::Neighbour);
        let shared: Vec<&str> = shared.map(|c| c.name.as_str()).collect();
        assert_eq!(shared, ["f0", "c0", "f1", "c1"]);
        // With a window it is the same configuration, but for constants.
        let (_, windowed, tiling) = case(NAME, "1x1088 8q/4kv d256 window 1024", "");
        let windowed = build(mapping, &windowed, &tiling, &Machine::npu2());
        let both = [launch.clone(), windowed.launches[0].clone()];
        assert_eq!(resident::representatives(&both), [0, 0]);
    }

    /// A ring holds the last keys of a cache of all rows: a token sees the same in both, wherever the ring wraps. Sums
    /// are taken in the order of rows, so results agree only up to that order.
    #[test]
    fn a_ring_is_the_end_of_a_cache() {
        const ROW: usize = 2 * 64;
        const RING: usize = 128;
        const MAX: usize = 512;
        let machine = Machine::npu2();
        let cpu = Cpu::new(CpuOptions::default()).unwrap();
        let run = |text: &str, slots: &[Vec<u8>]| {
            let (mapping, shape, tiling) = case(NAME, text, "");
            let program = build(mapping, &shape, &tiling, &machine);
            let mut slots = slots.to_vec();
            simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
            let y = slots.swap_remove(4);
            let values = y
                .chunks_exact(2)
                .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32());
            values.collect::<Vec<f32>>()
        };
        let whole = format!("1x{MAX} 4q/2kv d64 window 100");
        let (mapping, shape, _) = case(NAME, &whole, "");
        let mut slots = mapping.inputs(&shape, 9);
        for position in [5_usize, 99, 127, 128, 300, 511] {
            let n_at = slots[3].len() / 2;
            let at = millrace_plan::position_slot(position as u32, n_at);
            slots[3] = at.iter().flat_map(|v| v.to_le_bytes()).collect();
            let ring = |cache: &[u8]| -> Vec<u8> {
                let mut rows = vec![0; 2 * RING * ROW];
                for head in 0..2 {
                    for key in position.saturating_sub(RING - 1)..=position {
                        let to = (head * RING + key % RING) * ROW;
                        let from = (head * MAX + key) * ROW;
                        rows[to..to + ROW].copy_from_slice(&cache[from..from + ROW]);
                    }
                }
                rows
            };
            let expected = run(&whole, &slots);
            let mut short = slots.clone();
            (short[1], short[2]) = (ring(&slots[1]), ring(&slots[2]));
            let text = format!("1x{RING} 4q/2kv d64 window 100");
            let found = run(&text, &short);
            for (found, expected) in found.iter().zip(&expected) {
                assert!(
                    (found - expected).abs() < 0.03,
                    "{position}: {found} {expected}"
                );
            }
            // A visible key changes it, an invisible one does not: the row after the last seen one.
            let mut changed = short.clone();
            changed[1][position % RING * ROW + 1] ^= 0x40;
            assert!(run(&text, &changed) != found, "{position}");
            let unseen = (position + RING - 100) % RING;
            let mut changed = short.clone();
            changed[1][unseen * ROW + 1] ^= 0x40;
            assert!(run(&text, &changed) == found, "{position}");
        }
    }

    #[test]
    fn what_cannot_be_built_is_refused_by_name() {
        for (shape, tiling, rule) in [
            ("2x128 8q/4kv d256", "", Rule::Range),
            ("1x100 8q/4kv d256", "", Rule::Divides),
            ("1x128 9q/2kv d64", "", Rule::Divides),
            ("1x128 8q/4kv d64 of 100", "", Rule::Range),
            ("1x128 8q/4kv d64", "heads=3", Rule::Divides),
            ("1x128 8q/4kv d64", "col_heads=4", Rule::Herd),
            ("1x128 8q/4kv d256", "tile_kv=64", Rule::L1),
            ("1x128 16q/1kv d64", "tile_kv=8", Rule::Divides),
        ] {
            assert_eq!(refused(NAME, shape, tiling), rule, "{shape} {tiling}");
        }
    }
}
