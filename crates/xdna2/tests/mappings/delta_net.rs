//! A token of gated delta nets: equal to its reference at all sizes of heads, bits that no tiling changes, traffic, time.

use crate::mappings::{build, case, check, execute, find, fits};
use millrace_xdna2::mapping::moved_bytes;
use millrace_xdna2_machine::{Machine, Profile, timing};

#[test]
fn heads_of_all_sizes() {
    for shape in [
        "1x1x16",
        "2x3x32",
        "3x64x64",
        "5x96x96",
        "16x128x128",
        "7x64x128",
        "2x128x64",
        "4x256x256",
        "12x40x48",
    ] {
        check("delta-net", shape, "");
    }
    check("delta-net", "6x64x96", "cols=3,rows=1,blocks=3,l1_depth=1");
    check("delta-net", "6x64x96", "cols=2,rows=2,blocks=1,l2_copies=1");
    check("delta-net", "8x32x64", "cols=1,rows=2,blocks=2,l1_depth=1");
}

#[test]
fn random_shapes_and_tilings() {
    let mut state = 11_u64;
    let mut below = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % n
    };
    let (mapping, machine) = (find("delta-net"), Machine::npu2());
    for _ in 0..40 {
        let (heads, k, v) = (1 + below(20), 1 + below(160), 16 * (1 + below(8)));
        let shape = mapping.parse_shape(&format!("{heads}x{k}x{v}")).unwrap();
        let tilings = mapping.tilings(&shape, &machine);
        let tiling = &tilings[below(tilings.len() as u64) as usize];
        let text: Vec<String> = tiling.iter().map(|(n, v)| format!("{n}={v}")).collect();
        check("delta-net", &format!("{heads}x{k}x{v}"), &text.join(","));
    }
}

#[test]
fn no_tiling_changes_a_bit() {
    let (mapping, shape, _) = case("delta-net", "8x24x64", "");
    let tilings = mapping.tilings(&shape, &Machine::npu2());
    assert!(tilings.len() > 8, "{}", tilings.len());
    let results = tilings.iter().map(|tiling| {
        let mut slots = mapping.inputs(&shape, 5);
        execute(mapping, &shape, tiling, &mut slots);
        slots
    });
    let results: Vec<_> = results.collect();
    assert!(results.iter().all(|slots| *slots == results[0]));
}

#[test]
fn sizes_of_published_models() {
    // Qwen 3.5 0.8B and 2B, 4B and 9B, 27B; Qwen 3 Next.
    for shape in ["16x128x128", "32x128x128", "48x128x128"] {
        fits("delta-net", shape, "");
    }
}

/// A state goes down once and up once, whole.
#[test]
fn states_cross_once_each_way() {
    for (shape, n_state, n_rows, n_y) in [
        ("16x128x128", 16 * 128 * 128, 16 * (3 * 128 + 16), 16 * 128),
        ("6x64x96", 6 * 64 * 96, 6 * (2 * 64 + 96 + 16), 6 * 96),
    ] {
        let (mapping, parsed, tiling) = case("delta-net", shape, "");
        let program = build(mapping, &parsed, &tiling, &Machine::npu2());
        let moved = [0, 1, 2, 3].map(|slot| moved_bytes(&program, &[slot]));
        let expected = [4 * n_rows, 4 * n_state, 4 * n_state, 2 * n_y];
        assert_eq!(moved, expected, "{shape}");
    }
}

/// Sixteen heads of 128 × 128 are bound by DDR, not by the cores. The time is at least that of 2 MiB of states at the
/// joint rate of reading and writing. It is less than twice that, as the first blocks come before anything goes back.
#[test]
fn bytes_of_states_bound_it() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    let (mapping, shape, tiling) = case("delta-net", "16x128x128", "");
    let program = build(mapping, &shape, &tiling, &machine);
    let timing = timing::predict(&program, &machine, &profile).unwrap();
    let launch = &timing.launches[0];
    let least_ns = 2.0 * 4.0 * 16.0 * 128.0 * 128.0 / profile.ddr.total_gb_per_s;
    let (ns, resource) = (launch.ns, &launch.bottleneck.resource);
    assert!(ns > least_ns && ns < 2.0 * least_ns, "{ns} of {least_ns}");
    assert!(resource.contains("DDR"), "{resource}");
    let busy = launch.cores.iter().map(|core| core.busy_ns / launch.ns);
    assert!(busy.fold(0.0, f64::max) < 0.4);
}
