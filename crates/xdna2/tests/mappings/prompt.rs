//! Attention of a prompt's later passes: every grouping, windows over the rows that they range, and bits that depend on
//! neither lengths nor on where a pass begins.

use crate::mappings::{build, case, check, find, fits, refused};
use half::bf16;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_plan::KeyRange;
use millrace_xdna2::mapping::{Rule, Shape, Tiling};
use millrace_xdna2_machine::program::resident;
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::{Machine, Profile, timing};

const NAME: &str = "prompt-attention";

/// The result of the default tiling on these slots.
fn run(shape: &Shape, tiling: &Tiling, slots: &[Vec<u8>]) -> Vec<u8> {
    let program = build(find(NAME), shape, tiling, &Machine::npu2());
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let mut slots = slots.to_vec();
    simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
    slots.swap_remove(4)
}

fn bytes(values: &[bf16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn every_grouping() {
    for (shape, tiling) in [
        ("64x512 4q/1kv d64", ""),
        ("64x128 4q/4kv d64 of 200", ""),
        ("128x256 8q/4kv d64", ""),
        ("64x192 6q/2kv d16", ""),
        ("64x128 8q/1kv d16", ""),
        ("64x64 16q/1kv d64", ""),
        ("64x160 5q/1kv d16", ""),
        ("64x128 4q/1kv d256", "rows=2"),
        ("32x64 4q/2kv d256 of 100", "heads=1,spread=1,rows=4"),
        ("32x64 4q/2kv d128", "heads=2,spread=1,rows=2"),
        ("64x64 4q/1kv d64 own", ""),
        ("128x128 4q/2kv d64 own", "spread=1,rows=4"),
        (
            "128x128 8q/4kv d16 window 40 own",
            "heads=2,spread=2,rows=2",
        ),
        ("64x64 4q/1kv d256 own", "spread=1,rows=4"),
        ("64x64 4q/2kv d256 window 24 own", "heads=1,spread=1,rows=2"),
        ("256x256 4q/1kv d64 window 40 own", "spread=1,rows=4"),
        (
            "256x256 8q/4kv d16 window 33 own",
            "heads=2,spread=1,rows=2",
        ),
        (
            "128x128 8q/4kv d256 window 20 own",
            "heads=2,spread=1,rows=2",
        ),
        ("64x64 2q/2kv d72 full", ""),
        ("128x128 4q/2kv d64 full", "spread=1,rows=2"),
        ("256x256 4q/4kv d72 full", "heads=2,spread=2,rows=2"),
        ("64x64 2q/2kv d256 full", "spread=1,rows=2"),
        ("128x128 4q/2kv d64 image", "spread=1,rows=2"),
        ("64x64 4q/1kv d256 image", "spread=1,rows=4"),
        ("128x128 8q/4kv d16 window 40 image", ""),
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
    ] {
        for new in [64, 512, 2048] {
            fits(NAME, &format!("{new}x8192 {heads} of 32768"), "");
            fits(
                NAME,
                &format!("{new}x{} {heads} window 512", reached(new, heads, 512)),
                "",
            );
            for window in ["", " window 512"] {
                fits(NAME, &format!("{new}x{new} {heads}{window} own"), "");
                fits(NAME, &format!("{new}x{new} {heads}{window} image"), "");
            }
        }
    }
    for heads in ["32q/8kv d64", "32q/8kv d128", "16q/8kv d128"] {
        fits(NAME, &format!("2048x131072 {heads}"), "");
    }
    fits(NAME, "2048x4608 24q/8kv d128 of 131072", "");
    // SigLIP's so400m of 896 and 384 pixels; ViT-L.
    for shape in ["4096x4096 16q/16kv d72", "576x576 16q/16kv d64"] {
        fits(NAME, &format!("{shape} full"), "");
    }
}

/// Number of rows that so many tokens reach, and the keys of a tile.
fn reached(new: u64, heads: &str, window: u64) -> u64 {
    let (_, _, tiling) = case(NAME, &format!("{new}x8192 {heads}"), "");
    new + (window + tiling["tile_kv"] - 2).next_multiple_of(tiling["tile_kv"])
}

#[test]
fn windows_are_those_of_the_whole_cache() {
    const HEADS: &str = "4q/2kv d64";
    const ROW: usize = 2 * 64;
    const MAX: usize = 512;
    for (window, new) in [(40, 64), (1, 64), (97, 128), (300, 64)] {
        // Everything, at its own position.
        let whole = find(NAME).parse_shape(&format!("{new}x{MAX} {HEADS} window {window}"));
        let whole = whole.unwrap();
        let n_keys = reached(new, HEADS, window);
        let (mapping, shape, tiling) =
            case(NAME, &format!("{new}x{n_keys} {HEADS} window {window}"), "");
        let unit = tiling["tile_kv"];
        let range = KeyRange { window, unit };
        let mut slots = mapping.inputs(&whole, 5);
        for first in [0, 3, window as usize - 1, 200, MAX - new as usize] {
            slots[3] = bytes(&millrace_plan::position_slot(first as u32, 64));
            let expected = mapping.reference(&whole, &tiling, &slots).swap_remove(0).1;
            // Only the rows that are reached, and zeros outside the cache.
            let start = range.start(first);
            let rows = |cache: &[u8]| -> Vec<u8> {
                let row = |head: usize, row: i64| match usize::try_from(start + row) {
                    Ok(at) if at < MAX => cache[(head * MAX + at) * ROW..][..ROW].to_vec(),
                    _ => vec![0; ROW],
                };
                let row = &row;
                let of_head = |head: usize| (0..n_keys as i64).flat_map(move |i| row(head, i));
                (0..2).flat_map(of_head).collect()
            };
            let own = [
                slots[0].clone(),
                rows(&slots[1]),
                rows(&slots[2]),
                bytes(&range.slot(first, (unit * 64) as usize)),
                slots[4].clone(),
            ];
            assert!(
                run(&shape, &tiling, &own) == expected,
                "{window} from {first}"
            );
        }
    }
}

/// The number of keys read, the number of queries at once, the core that has them, and the beginning of a pass change
/// no bit.
#[test]
fn bits_do_not_depend_on_lengths() {
    const ROW: usize = 2 * 4 * 64;
    let run = |new: usize, skipped: usize, keys: usize, tiling: &str| {
        let (mapping, long, _) = case(NAME, "128x512 4q/2kv d64 of 512", "");
        let shape = format!("{new}x{keys} 4q/2kv d64 of 512");
        let (_, shape, tiling) = case(NAME, &shape, tiling);
        let mut slots = mapping.inputs(&long, 11);
        slots[0] = slots[0][skipped * ROW..][..new * ROW].to_vec();
        let n_at = (tiling["tile_kv"] * 64) as usize;
        slots[3] = bytes(&millrace_plan::position_slot(41 + skipped as u32, n_at));
        slots[4].truncate(new * ROW);
        self::run(&shape, &tiling, &slots)
    };
    let all = run(128, 0, 512, "");
    for (new, skipped, keys, tiling) in [
        (64, 0, 128, ""),
        (64, 64, 512, ""),
        (64, 16, 256, "heads=1,spread=1,rows=4"),
        (128, 0, 256, "heads=1,spread=2,rows=2"),
    ] {
        let part = &all[skipped * ROW..][..new * ROW];
        assert!(
            run(new, skipped, keys, tiling) == part,
            "{new} {keys} {tiling}"
        );
    }
    assert!(run(64, 1, 512, "") != all[..64 * ROW]);
}

/// Over the keys of the pass, a prompt's first, bits are those of a later pass that begins at position 0: a prompt may be
/// cut anywhere. A core that skipped a tile that its tokens see would change them.
#[test]
fn a_first_pass_has_the_bits_of_later_ones() {
    const D: usize = 2 * 64;
    for window in ["", " window 40"] {
        let (mapping, own, own_tiling) = case(NAME, &format!("128x128 4q/2kv d64{window} own"), "");
        let slots = mapping.inputs(&own, 7);
        let first = run(&own, &own_tiling, &slots);
        let (_, whole, _) = case(
            "cached-attention",
            &format!("128x128 4q/2kv d64{window}"),
            "",
        );
        let by_head = |rows: &[u8]| -> Vec<u8> {
            let of = |head: usize| rows.chunks(D).skip(head).step_by(2).flatten().copied();
            of(0).chain(of(1)).collect()
        };
        let cached = [
            slots[0].clone(),
            by_head(&slots[1]),
            by_head(&slots[2]),
            slots[3].clone(),
            slots[4].clone(),
        ];
        let expected = mapping
            .reference(&whole, &own_tiling, &cached)
            .swap_remove(0)
            .1;
        assert!(first == expected, "{window}");
        // Half the keys are another's: the rows before stay, those after do not.
        let mut other = slots.clone();
        other[1][64 * 2 * D..]
            .iter_mut()
            .for_each(|byte| *byte ^= 1);
        let changed = run(&own, &own_tiling, &other);
        let row = 4 * D;
        assert!(changed[..64 * row] == first[..64 * row], "{window}");
        assert!(changed[64 * row..] != first[64 * row..], "{window}");
    }
}

/// With a window and without, a first pass is one configuration of the array; cores read two of its constants when they
/// run (the Gemma 3 paper's FlowQKV and FlowQKV-SWA). Nothing is loaded between a global and a local layer.
#[test]
fn a_window_is_two_constants_of_the_same_cores() {
    let machine = Machine::npu2();
    for heads in ["4q/1kv d256", "8q/4kv d256"] {
        let launch = |window: &str| {
            let shape = format!("2048x2048 {heads}{window} own");
            let (mapping, shape, tiling) = case(NAME, &shape, "");
            let launches = build(mapping, &shape, &tiling, &machine).launches;
            // Tokens that have left the first keys behind are a launch of the same configuration.
            assert_eq!(launches.len(), if window.is_empty() { 1 } else { 2 });
            assert!(
                resident::representatives(&launches)
                    .iter()
                    .all(|&first| first == 0)
            );
            launches.into_iter().next().unwrap()
        };
        let all = ["", " window 512", " window 1024"].map(launch);
        assert_eq!(resident::representatives(&all), [0, 0, 0], "{heads}");
        let of = |at: usize| resident::parameters(&all[at]);
        let differ = of(0).iter().zip(of(1)).filter(|(a, b)| **a != *b).count();
        let n_bodies = if heads.starts_with('8') { 2 } else { 1 };
        assert_eq!(differ, 2 * n_bodies);
        // Over a cache, an iteration reads it in another walk: another program.
        let (mapping, shape, tiling) = case(NAME, &format!("2048x4096 {heads}"), "");
        let cached = build(mapping, &shape, &tiling, &machine).launches.remove(0);
        assert_eq!(resident::representatives(&[all[0].clone(), cached]), [0, 1]);
    }
}

/// Nor is anything loaded for a pass without a mask: the cores of the paper's FlowQKV-NCA are FlowQKV's, except for
/// loop counts and the values that they compare.
#[test]
fn no_mask_is_two_constants_of_the_same_cores() {
    let machine = Machine::npu2();
    for heads in ["16q/16kv d72", "4q/1kv d256"] {
        let launch = |mask: &str| {
            let (mapping, shape, tiling) = case(NAME, &format!("2048x2048 {heads} {mask}"), "");
            build(mapping, &shape, &tiling, &machine).launches.remove(0)
        };
        let all = ["own", "window 512 own", "full"].map(launch);
        assert_eq!(resident::representatives(&all), [0, 0, 0], "{heads}");
        let [own, full] = [0, 2].map(|at: usize| resident::parameters(&all[at]));
        let differ = own.iter().zip(&full).filter(|(a, b)| a != b).count();
        let n_bodies = if heads.starts_with("16") { 2 } else { 1 };
        assert_eq!(differ, 2 * n_bodies, "{heads}");
    }
}

/// The last token's result is that of a first pass, where it sees all keys too; the first one's is not.
#[test]
fn without_a_mask_all_tokens_see_what_the_last_does() {
    const ROW: usize = 2 * 4 * 64;
    let (mapping, own, tiling) = case(NAME, "128x128 4q/2kv d64 own", "");
    let (_, full, full_tiling) = case(NAME, "128x128 4q/2kv d64 full", "");
    let mut slots = mapping.inputs(&own, 7);
    let masked = run(&own, &tiling, &slots);
    let at = slots[3].len() / 2;
    slots[3] = bytes(&millrace_plan::position_slot(128, at));
    let seen = run(&full, &full_tiling, &slots);
    assert!(seen[127 * ROW..] == masked[127 * ROW..]);
    assert!(seen[..ROW] != masked[..ROW]);
    // A later key changes the first token's result.
    slots[1][100 * 2 * 2 * 64] ^= 0x80;
    assert!(run(&full, &full_tiling, &slots)[..ROW] != seen[..ROW]);
}

/// Rows of an image see each other, and no other row sees later ones: tested by changing one key.
#[test]
fn an_image_sees_itself_and_nobody_else_ahead() {
    const ROW: usize = 2 * 4 * 64;
    let (mapping, shape, tiling) = case(NAME, "128x128 4q/2kv d64 image", "spread=1,rows=2");
    let mut slots = mapping.inputs(&shape, 7);
    let n_at = slots[3].len() / 2;
    slots[3] = bytes(&millrace_plan::position_and_image(0, 30..70, n_at));
    let before = run(&shape, &tiling, &slots);
    slots[1][60 * 2 * 2 * 64] ^= 0x80;
    let after = run(&shape, &tiling, &slots);
    let moved = |token: usize| before[token * ROW..][..ROW] != after[token * ROW..][..ROW];
    for token in 0..128 {
        assert_eq!(moved(token), token >= 30, "{token}");
    }
    // Without an image it is a first pass.
    slots[3] = bytes(&millrace_plan::position_slot(0, n_at));
    let (_, own, own_tiling) = case(NAME, "128x128 4q/2kv d64 own", "spread=1,rows=2");
    assert!(run(&shape, &tiling, &slots) == run(&own, &own_tiling, &slots));
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    for (shape, tiling, rule) in [
        ("64x100 8q/8kv d64", "", Rule::Divides),
        ("64x128 8q/8kv d64 of 100", "", Rule::Range),
        ("64x128 9q/2kv d64", "", Rule::Divides),
        ("64x32 8q/8kv d64", "", Rule::Range),
        ("64x128 8q/8kv d64", "spread=2", Rule::Herd),
        ("64x128 8q/8kv d64", "tile_kv=12", Rule::Divides),
        ("64x128 8q/8kv d64", "y_rows=5", Rule::Divides),
        (
            "64x128 4q/1kv d256",
            "tile_tokens=16,rows=1,spread=1",
            Rule::L1,
        ),
        // A first pass has no keys but its own.
        ("64x128 8q/8kv d64 own", "", Rule::Range),
        ("64x64 8q/8kv d64 of 100 own", "", Rule::Range),
        ("64x128 8q/8kv d64 full", "", Rule::Range),
        ("64x64 8q/8kv d64 window 40 full", "", Rule::Range),
        ("64x128 8q/8kv d64 image", "", Rule::Range),
        // Not the rows that a window reaches.
        ("64x128 8q/8kv d64 window 40", "", Rule::Range),
        // No tile of keys that whole groups fill fits a core.
        ("64x112 7q/1kv d256", "", Rule::Divides),
    ] {
        assert_eq!(refused(NAME, shape, tiling), rule, "{shape} {tiling}");
    }
}

/// A pass is bound by the stream of keys into cores with wide heads, and by the cores themselves with narrow ones. It
/// is not bound by DDR, which brings a key once for a hundred tokens and more.
#[test]
fn a_pass_is_bound_by_cores_and_their_streams() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    for (shape, least_tflops) in [
        ("2048x4096 4q/1kv d256", 6.0),
        ("2048x16384 8q/4kv d256", 6.5),
        ("2048x4096 32q/8kv d64", 3.0),
        ("2048x4608 24q/8kv d128", 4.5),
        // Cores see only the window of an iteration's keys; and queries come past every core.
        ("2048x2576 4q/1kv d256 window 512", 3.0),
        ("2048x3088 8q/4kv d256 window 1024", 4.0),
    ] {
        let (mapping, shape, tiling) = case(NAME, shape, "");
        let program = build(mapping, &shape, &tiling, &machine);
        let timing = timing::predict(&program, &machine, &profile).unwrap();
        let launch = &timing.launches[0];
        let tflops = mapping.work(&shape).flops as f64 / launch.ns / 1e3;
        let bytes = launch.ddr_read_bytes + launch.ddr_write_bytes;
        let rate = bytes / launch.ns;
        assert!(
            rate < 0.7 * profile.ddr.read_gb_per_s,
            "{shape}: {rate} GB/s"
        );
        let by = &launch.bottleneck;
        assert!(
            tflops > least_tflops,
            "{shape} {tiling}: {tflops} TFLOP/s, {by:?}"
        );
    }
}

/// For wide heads, flash attention computes scores anew for every part of the values.
#[test]
fn a_first_pass_of_wide_heads_is_faster_than_flash_attention() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    for (new, heads) in [
        (64, "4q/1kv d256"),
        (512, "8q/4kv d256"),
        (64, "32q/8kv d128"),
        (2048, "32q/8kv d128"),
        (2048, "16q/8kv d128"),
        (2048, "4q/1kv d256"),
        (2048, "8q/4kv d256"),
    ] {
        let ns = |name: &str, shape: &str| {
            let (mapping, shape, tiling) = case(name, shape, "");
            let program = build(mapping, &shape, &tiling, &machine);
            let timing = timing::predict(&program, &machine, &profile).unwrap();
            println!("{name} {shape}: {:.3} ms", timing.launches[0].ns / 1e6);
            timing.launches[0].ns
        };
        let own = ns(NAME, &format!("{new}x{new} {heads} own"));
        let skip = "causal seq-first";
        let flash = ns("flash-attention", &format!("{new} {heads} {skip}"));
        assert!(1.5 * own < flash, "{new} {heads}: {own} and {flash} ns");
        if new == 2048 {
            ns(NAME, &format!("{new}x{new} {heads} window 512 own"));
        }
    }
}

/// Nor does the mapping for a token process any number of them faster.
#[test]
fn many_tokens_are_no_slower_than_by_the_mapping_for_one() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    for shape in [
        "64x4096 32q/8kv d64",
        "2048x4096 32q/8kv d64",
        "64x4096 8q/4kv d256",
        "64x4096 4q/1kv d256",
        "256x4608 24q/8kv d128",
    ] {
        let [many, one] = [NAME, "cached-attention"].map(|name| {
            let (mapping, shape, tiling) = case(name, shape, "");
            let program = build(mapping, &shape, &tiling, &machine);
            timing::predict(&program, &machine, &profile)
                .unwrap()
                .total_ns
        });
        assert!(many < one, "{shape}: {many} and {one} ns");
    }
}
