//! Results equal the references at small, odd and minimal shapes.

use crate::{GEMMS, case, check};
use millrace_xdna2::Machine;

#[test]
fn gemm_on_every_output_path() {
    for name in GEMMS {
        check(name, "128x96x128", "tile_k_l2=32");
        check(name, "64x64x192", "");
        // The least there is, one core.
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
    check("gelu", "16384", "cols=8,rows=2,tile=256");
    for name in ["add-2d", "add-flat"] {
        check(name, "64x192", "");
        check(name, "9x50", "");
        check(name, "1x2", "");
        check(name, "32x256", "cols=4,rows=2,tile=64");
    }
}

#[test]
fn attention() {
    for (shape, tiling) in [
        // The whole array: 2 heads, 4 tiles of queries, 4 stages.
        ("64 4q/2kv d16 causal", "tile_kv=16"),
        ("64 4q/2kv d16 full", "tile_kv=16"),
        // Heads of a group share keys; three heads a group.
        ("64 6q/2kv d16 causal", "tile_kv=8"),
        ("64 4q/1kv d16 causal", "tile_kv=16"),
        ("64 2q/2kv d16 causal seq-first", "tile_kv=16"),
        // Chunks of the head dimension and of values.
        ("32 2q/1kv d32 causal", "tile_kv=8,tile_dk=8,tile_dv=16"),
        // Other lengths, one stage, one head.
        (
            "32x64 1q/1kv d8 full",
            "tile_kv=8,unroll=1,stages=2,q_tiles=4",
        ),
        (
            "16 3q/1kv d8 causal",
            "tile_kv=8,unroll=1,stages=1,q_tiles=2",
        ),
        ("8 1q/1kv d8 causal", ""),
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
    let skip = "tile_kv=16,causal_skip=1";
    check("flash-attention", "128 4q/2kv d16 causal", skip);
    check("flash-attention", "256 2q/1kv d64 causal", "causal_skip=1");
}
