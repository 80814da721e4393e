//! Weights in Q4NX blocks: results equal the references.

use crate::check;

#[test]
fn fused_dqp() {
    check("fused-dqp", "64x256", "");
    // Odd numbers of row blocks lie one by one, columns beyond a block are padding.
    check("fused-dqp", "32x32", "");
    check("fused-dqp", "96x160", "");
    check("fused-dqp", "224x640", "cols=7");
    check("fused-dqp", "512+128+128x1152", "");
    check("fused-dqp", "128+64x2560", "cols=1");
    // Pieces of the vector that are no power of two.
    check("fused-dqp", "1024x1376", "");
}

#[test]
fn gemm_with_rows_of_a_for_each_row_of_cores() {
    check("gemm-q4nx", "8x64x32", "");
    check(
        "gemm-q4nx",
        "64x640x256+128",
        "tile_m=16,tile_k_l2=128,tile_k_l1=32,cols=2,rows=2,n_over_rows=0,hold_a=0,drain_chunks=2",
    );
    check(
        "gemm-q4nx",
        "96x288x96",
        "tile_m=24,tile_k_l2=96,tile_k_l1=16,cols=3,rows=2,n_over_rows=0,hold_a=1,drain_chunks=1",
    );
    check("gemm-q4nx", "256x512x512", "");
}

#[test]
fn gemm_with_weights_for_each_core() {
    check(
        "gemm-q4nx",
        "32x640x512+256",
        "tile_m=16,tile_k_l2=64,tile_k_l1=64,cols=2,rows=4,n_over_rows=1,hold_a=1,drain_chunks=4",
    );
    check(
        "gemm-q4nx",
        "64x1152x288",
        "tile_m=32,tile_k_l2=128,tile_k_l1=32,cols=3,rows=3,n_over_rows=1,hold_a=0,drain_chunks=1",
    );
}
