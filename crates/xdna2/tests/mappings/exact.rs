//! Results equal the references at small, odd and minimal shapes.

use crate::mappings::{GEMMS, build, case, check};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::simulate::{self, SimulateOptions};

#[test]
fn gemm_on_every_output_path() {
    for name in GEMMS {
        check(name, "128x96x128", "tile_k_l2=32");
        check(name, "64x64x192", "");
        // The smallest case, one core.
        check(name, "8x8x8", "");
        // Odd numbers of tiles in every dimension, odd herds.
        check(
            name,
            "48x56x120",
            "tile_m=16,tile_n=40,tile_k_l2=56,tile_k_l1=8,cols=3,rows=3",
        );
        check(
            name,
            "40x24x56",
            "tile_m=8,tile_n=56,cols=5,rows=1,l1_depth=1,l2_copies=1",
        );
    }
}

#[test]
fn gemm_on_the_full_array() {
    check("gemm-f32", "512x512x512", "tile_k_l2=256");
    check("gemm-fused-cast", "512x256x512", "");
    check("gemm-drain", "256x512x512", "");
    check("gemm-direct", "512x512x512", "tile_k_l2=128");
}

#[test]
fn gemm_drained_in_pieces() {
    check(
        "gemm-drain",
        "64x64x64",
        "tile_m=64,tile_n=64,cols=1,rows=1,drain_chunks=4",
    );
    check(
        "gemm-direct",
        "64x96x96",
        "tile_m=32,tile_n=48,cols=2,rows=2,drain_chunks=3,tile_k_l2=32",
    );
}

#[test]
fn direct_truncates_once_an_l2_tile() {
    let (mapping, shape, coarse) = case("gemm-direct", "64x128x32", "tile_k_l2=128");
    let fine = coarse.clone().with("tile_k_l2", 32);
    let slots = mapping.inputs(&shape, 7);
    let results = [&coarse, &fine].map(|t| mapping.reference(&shape, t, &slots));
    assert_ne!(results[0], results[1]);
}

#[test]
fn megatile_gemm() {
    for (shape, tiling) in [
        ("128x64x64", "tile_m=8,tile_n=16,tile_k_l2=32,e_x=1,e_y=2"),
        (
            "256x128x256",
            "tile_m=16,tile_n=16,e_x=2,e_y=2,tile_k_l2=64",
        ),
        ("128x128x256", "tile_m=16,tile_n=32,e_x=2,e_y=1"),
        (
            "64x96x48",
            "tile_m=8,tile_n=8,e_x=3,e_y=2,rows=2,tile_k_l2=48,tile_k_l1=16",
        ),
        // Several products of one A, of which the second is half as wide.
        (
            "96x96x128+64+64",
            "tile_m=8,tile_n=8,e_x=2,e_y=1,cols=3,rows=4,tile_k_l2=32,tile_k_l1=16",
        ),
        ("192x1152x256+128+128", ""),
        ("8x8x8", ""),
    ] {
        check("gemm-megatile", shape, tiling);
    }
}

#[test]
fn megatile_gemm_computes_what_remains_on_fewer_columns() {
    // 8 columns of 16 rows make 128; 48 more take 3 columns.
    let tiling = "tile_m=8,tile_n=16,e_x=1,e_y=2,cols=8,tile_k_l2=32";
    for shape in ["176x64x64", "48x64x64", "16x64x64"] {
        check("gemm-megatile", shape, tiling);
    }
    let (mapping, shape, tiling) = case("gemm-megatile", "176x64x64", tiling);
    let program = mapping.build(&shape, &tiling, &Machine::npu2()).unwrap();
    let cols: Vec<u32> = program.launches.iter().map(|l| l.herds[0].cols).collect();
    assert_eq!(cols, [8, 3]);
}

#[test]
fn gemv() {
    check("gemv", "64x128", "");
    check("gemv", "256x192", "tile_m=8,m_input=4");
    check("gemv", "48x64", "cols=3,tile_m=4,m_input=1");
    check("gemv", "48x8192", "tile_m=2,m_input=2");
    check("gemv", "2x64", "");
    check("gemv", "26x64", "l1_depth=2");
    check("gemv", "256x192", "tile_m=8,m_input=4,streamed=1");
    check(
        "gemv",
        "96x64",
        "cols=3,tile_m=4,m_input=2,l1_depth=2,l2_copies=2,streamed=1",
    );
}

#[test]
fn gemv_with_sums_down_the_cascade() {
    check("gemv-cascade", "64x256", "");
    check(
        "gemv-cascade",
        "48x128",
        "cols=3,rows=2,tile_m=4,l2_copies=1",
    );
    check("gemv-cascade", "96x192", "cols=4,rows=3,tile_m=8");
    check("gemv-cascade", "2x128", "");
}

#[test]
fn rowwise_kernels() {
    for name in ["rmsnorm", "layernorm"] {
        check(name, "32x256", "");
        check(name, "64x2048", "tile_rows=2,l1_depth=1");
        check(name, "7x18", "");
        check(name, "1x2", "");
        check(name, "24x100", "cols=4,rows=2,tile_rows=3");
    }
    for name in ["rmsnorm", "layernorm"] {
        // Through memory tiles: the whole array, odd herds, one row of cores, single blocks.
        check(name, "64x256", "rows=4,l2_copies=2");
        check(name, "360x18", "cols=5,rows=3,tile_rows=4,l2_copies=2");
        check(
            name,
            "48x100",
            "cols=4,rows=2,tile_rows=3,l2_copies=1,l1_depth=1",
        );
        check(name, "7x18", "cols=7,l2_copies=2");
        check(name, "4x2", "cols=1,rows=4,l2_copies=1");
    }
    check("rope", "64x64", "");
    check("rope", "96x128", "tile_rows=3");
    check("rope", "32x64", "cols=1,rows=1");
    check("rope", "24x256", "cols=2,rows=4");
    check("rope", "1x16", "");
}

#[test]
fn elementwise_kernels() {
    for name in ["silu-mul", "gelu-mul", "gelu", "add"] {
        check(name, "16384", "");
        check(name, "2", "");
        check(name, "4098", "");
        check(name, "4096", "cols=2,rows=4,tile=128");
        check(name, "1024", "cols=1,rows=1,tile=64,l1_depth=1");
    }
    // Through memory tiles.
    for name in ["silu-mul", "gelu-mul", "gelu", "add"] {
        check(name, "65536", "rows=4,tile=512,l2_copies=2");
        check(name, "2520", "cols=5,rows=3,tile=84,l2_copies=1");
        check(name, "1024", "cols=1,rows=4,tile=64,l1_depth=1,l2_copies=2");
        check(name, "16", "cols=8,rows=1,tile=2,l2_copies=2");
    }
    for name in ["add-2d", "add-flat"] {
        check(name, "32x256", "cols=8,rows=4,tile=64,l2_copies=2");
        check(name, "9x50", "cols=3,rows=3,tile=10,l2_copies=2");
    }
    check("gelu", "16384", "cols=8,rows=2,tile=256");
    for name in ["add-2d", "add-flat"] {
        check(name, "64x192", "");
        check(name, "9x50", "");
        check(name, "1x2", "");
        check(name, "32x256", "cols=4,rows=2,tile=64");
    }
}

#[test]
fn attention_in_a_window() {
    for shape in [
        "64 2q/1kv d16 causal window 24",
        "128 4q/2kv d32 causal seq-first window 40",
        "256 4q/1kv d64 causal seq-first window 1",
        "256 2q/1kv d256 causal seq-first window 64",
        "64 2q/2kv d16 causal window 500",
    ] {
        check("flash-attention", shape, "");
        check("flash-attention", shape, "causal_skip=1");
    }
    // A window as long as the prompt hides nothing.
    let results = ["64 2q/1kv d16 causal", "64 2q/1kv d16 causal window 64"].map(|text| {
        let (mapping, shape, tiling) = case("flash-attention", text, "");
        mapping.reference(&shape, &tiling, &mapping.inputs(&shape, 3))
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn attention() {
    for (shape, tiling) in [
        // The whole array: 2 heads, 4 tiles of queries, 4 stages.
        ("64 4q/2kv d16 causal", "tile_kv=16"),
        ("64 4q/2kv d16 full", "tile_kv=16"),
        // Heads of a group share keys; three heads a group.
        ("64 6q/2kv d16 causal", "tile_kv=8,tile_q=8"),
        ("64 4q/1kv d16 causal", "tile_kv=16"),
        ("64 2q/2kv d16 causal seq-first", "tile_kv=16"),
        // Chunks of the head dimension and of values.
        (
            "32 2q/1kv d32 causal",
            "tile_kv=8,tile_q=8,tile_dk=8,tile_dv=16",
        ),
        // Other lengths, one stage, one head.
        (
            "32x64 1q/1kv d8 full",
            "tile_kv=8,tile_q=8,unroll=1,stages=2,q_tiles=4",
        ),
        (
            "16 3q/1kv d8 causal",
            "tile_kv=8,tile_q=8,unroll=1,stages=1,q_tiles=2",
        ),
        ("8 1q/1kv d8 causal", ""),
        // Tiles of queries smaller than those of keys: a part of a block, one of several blocks.
        ("64 2q/1kv d16 causal", "unroll=1,q_tiles=8,tile_q=8"),
        (
            "128 2q/1kv d16 causal",
            "unroll=1,q_tiles=8,tile_q=16,tile_dk=8",
        ),
        // Fewer tiles of keys than stages, and more with a rest.
        ("128 4q/2kv d16 causal", ""),
        ("192 2q/1kv d16 causal", "unroll=2,q_tiles=1,tile_q=64"),
        ("96 2q/1kv d16 causal", "tile_kv=16,tile_q=16,q_tiles=2"),
        (
            "112 2q/1kv d16 full",
            "tile_kv=16,tile_q=16,q_tiles=1,stages=4",
        ),
        // Heads of a group side by side: a whole group, a part of one, tiles smaller than blocks,
        // two streams of keys, chunks, other stages; with and without a pause.
        (
            "64 4q/1kv d16 causal",
            "unroll=1,heads=4,q_tiles=2,tile_kv=16,tile_q=16,streamed=1,causal_skip=1,top_first=1",
        ),
        (
            "64 12q/2kv d16 causal seq-first",
            "unroll=1,heads=3,q_tiles=2,tile_kv=16,tile_q=8,streamed=1,causal_skip=1",
        ),
        (
            "64 8q/2kv d16 full seq-first",
            "unroll=2,heads=4,q_tiles=1,tile_kv=16,tile_q=16,streamed=1",
        ),
        (
            "64 8q/1kv d16 causal",
            "unroll=2,heads=2,q_tiles=2,tile_kv=16,tile_q=8",
        ),
        (
            "96 7q/1kv d32 causal",
            "unroll=1,heads=7,q_tiles=1,tile_kv=16,tile_q=16,tile_dk=16,tile_dv=16,streamed=1",
        ),
        // Dealt from the top, with a rest, with one stage, without a mask.
        (
            "112 2q/1kv d16 causal",
            "tile_kv=16,tile_q=16,q_tiles=1,stages=4,top_first=1,causal_skip=1",
        ),
        (
            "96 2q/1kv d16 full",
            "tile_kv=16,tile_q=16,q_tiles=2,unroll=1,top_first=1",
        ),
        ("8 1q/1kv d8 causal", "top_first=1,causal_skip=1"),
        (
            "32 2q/1kv d8 causal",
            "unroll=1,heads=2,q_tiles=2,tile_kv=8,tile_q=8,stages=1,streamed=1,causal_skip=1",
        ),
    ] {
        check("flash-attention", shape, tiling);
    }
}

#[test]
fn attention_at_its_production_tiles() {
    check("flash-attention", "256 2q/1kv d64 causal", "");
    check("flash-attention", "256 2q/1kv d128 causal", "");
    check("flash-attention", "256 1q/1kv d256 causal", "");
}

#[test]
fn causal_skipping_changes_no_bit() {
    let skip = "tile_kv=16,tile_q=16,causal_skip=1";
    check("flash-attention", "128 4q/2kv d16 causal", skip);
    check("flash-attention", "256 2q/1kv d64 causal", "causal_skip=1");
}

/// Results of the first `n` tokens, `row` bytes each, of a prompt of `length` tokens.
fn first_rows(length: usize, tiling: &str, n: usize) -> Vec<u8> {
    const KV_ROW: usize = 2 * 2 * 64;
    const Q_ROW: usize = 2 * KV_ROW;
    let shape = |length: usize| format!("{length} 4q/2kv d64 causal seq-first");
    let (mapping, long, _) = case("flash-attention", &shape(512), "");
    let (_, shape, tiling) = case("flash-attention", &shape(length), tiling);
    let program = build(mapping, &shape, &tiling, &Machine::npu2());
    // The prompt, followed by any rows in the longest plan.
    let mut slots = mapping.inputs(&long, 7);
    for (slot, row) in slots.iter_mut().zip([Q_ROW, KV_ROW, KV_ROW, Q_ROW]) {
        slot.truncate(length * row);
    }
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
    slots[3].truncate(n * Q_ROW);
    slots.swap_remove(3)
}

/// Plans of any length give the same bits, for any tiles of queries, and whether masked tiles are skipped or computed.
#[test]
fn attention_bits_do_not_depend_on_length() {
    for n in [24, 64, 128] {
        let expected = first_rows(512, "", n);
        let from_top = first_rows(512, "top_first=1", n);
        for length in [24, 64, 128, 192, 256, 512] {
            if length < n {
                continue;
            }
            for tiling in ["", "causal_skip=1"] {
                assert!(first_rows(length, tiling, n) == expected, "{n} of {length}");
                let tiling = format!("top_first=1,{tiling}");
                let found = first_rows(length, &tiling, n);
                assert!(found == from_top, "{n} of {length}, {tiling}");
            }
        }
        let one_head = "causal_skip=1,unroll=1,q_tiles=8";
        for (length, tile_q) in [(64, 8), (128, 16), (256, 32), (512, 64)] {
            if length >= n {
                let tiling = format!("{one_head},tile_q={tile_q}");
                let shared = "causal_skip=1,streamed=1,unroll=1,heads=2,q_tiles=4";
                let shared = format!("{shared},tile_q={}", (2 * tile_q).min(64));
                for tiling in [tiling, shared] {
                    let found = first_rows(length, &tiling, n);
                    assert!(found == expected, "{n} of {length}, {tiling}");
                    let tiling = format!("{tiling},top_first=1");
                    let found = first_rows(length, &tiling, n);
                    assert!(found == from_top, "{n} of {length}, {tiling}");
                }
            }
        }
    }
}
