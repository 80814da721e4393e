//! Products whose weights are laid out as checkpoints store them, and several of them in one launch.

use crate::mappings::{case, check, execute, find, refused};
use millrace_xdna2::mapping::Rule;

/// With equal tiling, B as `[n, k]` changes no bit, even at the edges of f32.
#[test]
fn gemm_of_the_transpose_gives_the_same_bits() {
    for (name, of_transpose) in [
        ("gemm-drain", "gemm-drain-bt"),
        ("gemm-direct", "gemm-direct-bt"),
    ] {
        let (mapping, shape, tiling) = case(name, "64x96x144", "tile_n=24,tile_k_l2=32");
        let other = find(of_transpose);
        let [m, k, n] = ["m", "k", "n"].map(|d| shape[d] as usize);
        let mut slots = mapping.inputs(&shape, 3);
        // Large, tiny and not finite ones among them.
        for (at, b) in slots[1].chunks_exact_mut(2).enumerate().step_by(11) {
            let odd = [0x7f7f_u16, 0x0080, 0x0001, 0xff80, 0x7fc1][at % 5];
            b.copy_from_slice(&odd.to_le_bytes());
        }
        let element = |row: usize, col: usize| [0, 1].map(|i| slots[1][2 * (row * n + col) + i]);
        let columns = (0..n).flat_map(|col| (0..k).map(move |row| (row, col)));
        let bt = columns.flat_map(|(row, col)| element(row, col)).collect();
        let mut of_bt = vec![slots[0].clone(), bt, vec![0; 2 * m * n]];
        execute(mapping, &shape, &tiling, &mut slots);
        execute(other, &shape, &tiling, &mut of_bt);
        assert!(slots[2] == of_bt[2], "{name}");
    }
}

#[test]
fn gemv_streams_several_products() {
    check("gemv-stream", "64x128", "");
    check("gemv-stream", "256+64+64x192", "");
    check("gemv-stream", "48x64", "cols=3,streams=1,tile_m=4");
    check(
        "gemv-stream",
        "32+16x8192",
        "cols=4,streams=2,tile_m=2,l1_depth=1",
    );
    check("gemv-stream", "2x64", "");
    check("gemv-stream", "26x64", "l1_depth=2");
    check("gemv-stream", "16+32+16+16+48+16+16+16x64", "");
    let rules = [
        ("64x100", "", Rule::Divides),
        ("24+20x64", "cols=2,streams=2,tile_m=2", Rule::Divides),
        ("64x64", "cols=4,streams=1,tile_m=1", Rule::Granularity),
        ("64x64", "streams=3", Rule::Streams),
        ("64x64", "cols=9", Rule::Herd),
        ("64x16384", "cols=4,streams=2,tile_m=2", Rule::L1),
    ];
    for (shape, tiling, rule) in rules {
        assert_eq!(
            refused("gemv-stream", shape, tiling),
            rule,
            "{shape} {tiling}"
        );
    }
}

#[test]
fn gemm_streams_several_products() {
    for name in ["gemm-stream", "gemm-stream-bt", "gemm-i8"] {
        check(name, "8x8x8", "");
        check(name, "64x96x128+64+64", "");
        check(name, "256x128x512", "");
        let tiles = "tile_m=16,tile_n=16,tile_k_l2=32,tile_k_l1=16,cols=2,rows=2";
        for more in [
            "",
            ",n_over_cols=1",
            ",drain_chunks=2",
            ",l1_depth=1,l2_copies=1",
        ] {
            for hold_a in [0, 1] {
                let tiling = format!("{tiles},hold_a={hold_a}{more}");
                check(name, "96x64x64+96", &tiling);
            }
        }
        // A held for more tiles than two blocks have descriptors: one block, replaced at each step.
        let held = "tile_m=16,tile_n=8,tile_k_l2=32,tile_k_l1=16,cols=2,rows=1,hold_a=1";
        check(name, "64x32x80", held);
        check(name, "64x32x88", held);
        check(name, "64x32x504", held);
        assert_eq!(refused(name, "64x32x512", held), Rule::Repeat);
        // Odd numbers of tiles, odd herds, eight products.
        check(
            name,
            "48x56x120",
            "tile_m=16,tile_n=40,tile_k_l2=56,tile_k_l1=8,cols=3,rows=3",
        );
        check(
            name,
            "24x40x24+24+48+24+24+24+72+24",
            "tile_m=8,tile_n=8,cols=3,rows=1",
        );
        let rules = [
            ("64x64x64", "cols=9", Rule::Herd),
            ("60x64x64", "tile_m=12,cols=1", Rule::Divides),
            (
                "64x64x64+40",
                "tile_n=16,rows=4,n_over_cols=0",
                Rule::Divides,
            ),
            (
                "64x64x8192",
                "tile_m=8,tile_n=8,cols=8,rows=1,n_over_cols=0,hold_a=1,drain_chunks=1",
                Rule::Repeat,
            ),
            (
                "512x512x512",
                "tile_m=128,tile_n=128,cols=4,rows=4",
                Rule::L1,
            ),
        ];
        for (shape, tiling, rule) in rules {
            assert_eq!(refused(name, shape, tiling), rule, "{shape} {tiling}");
        }
    }
}

/// Sums of integers are exact in every tiling: those of the largest bytes, and for K beyond the integers that f32
/// holds.
#[test]
fn products_of_integers_are_exact() {
    check("gemv-i8", "64x128", "");
    check("gemv-i8", "256+64+64x192", "");
    check("gemv-i8", "45x64", "cols=3,streams=1,tile_m=3");
    check(
        "gemv-i8",
        "32+16x8192",
        "cols=4,streams=2,tile_m=2,l1_depth=1",
    );
    check("gemv-i8", "1x64", "cols=1,streams=1,tile_m=1,l1_depth=1");
    check(
        "gemm-i8",
        "96x40x288",
        "cols=4,tile_m=24,tile_n=24,tile_k_l1=40,tile_k_l2=40,drain_chunks=3,rows=3,n_over_cols=0",
    );
    check(
        "gemm-i8",
        "192x64x192",
        "tile_m=96,tile_n=96,tile_k_l1=64,tile_k_l2=64,cols=2,rows=2,drain_chunks=12,hold_a=0,n_over_cols=0",
    );
    let rules = [
        ("64x100", "", Rule::Divides),
        ("64x64", "streams=3", Rule::Streams),
        ("64x64", "cols=9", Rule::Herd),
        ("64x32768", "cols=4,streams=2,tile_m=2", Rule::L1),
    ];
    for (shape, tiling, rule) in rules {
        assert_eq!(refused("gemv-i8", shape, tiling), rule, "{shape} {tiling}");
    }
    for (name, shape, b) in [("gemm-i8", "8x4096x8", 8), ("gemv-i8", "8x4096", 8)] {
        let (mapping, shape, tiling) = case(name, shape, "");
        let mut slots = mapping.inputs(&shape, 3);
        let n_rows = slots[0].len() / 4096;
        slots[0].fill(i8::MIN.cast_unsigned());
        slots[1].fill(i8::MIN.cast_unsigned());
        // One product that f32 would lose next to 4,095 of 2^14.
        slots[1][0] = 1_i8.cast_unsigned();
        execute(mapping, &shape, &tiling, &mut slots);
        let sums = slots[2]
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b));
        let whole = 4096 << 14;
        let row = |at: usize| {
            if at.is_multiple_of(b) {
                whole - (1 << 14) - (1 << 7)
            } else {
                whole
            }
        };
        assert_eq!(
            sums.collect::<Vec<_>>(),
            (0..n_rows * b).map(row).collect::<Vec<_>>(),
            "{name}"
        );
    }
}

/// Joined, streamed and held, the bits are those of the drained GEMM.
#[test]
fn streamed_products_are_the_drained_ones() {
    let (drain, shape, tiling) = case("gemm-drain-bt", "64x96x128", "");
    let (streamed, joined, other) = case("gemm-stream-bt", "64x96x128+64", "");
    let mut slots = drain.inputs(&shape, 5);
    let second = slots[1][..2 * 96 * 64].to_vec();
    let empty = |n: usize| vec![0; 2 * 64 * n];
    let mut both = vec![
        slots[0].clone(),
        slots[1].clone(),
        second,
        empty(128),
        empty(64),
    ];
    execute(drain, &shape, &tiling, &mut slots);
    execute(streamed, &joined, &other, &mut both);
    assert!(slots[2] == both[3]);
    // The second product is the first's leading columns.
    let rows = both[3].chunks(256).zip(both[4].chunks(128));
    assert!(rows.into_iter().all(|(whole, part)| &whole[..128] == part));
}
