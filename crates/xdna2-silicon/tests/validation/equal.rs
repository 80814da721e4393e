//! Mappings whose words leave the simulator's bytes.

use super::*;

/// Validates with a few orders of actors.
fn equal(cases: &[(&str, &str, &str)]) {
    for &(name, shape, overrides) in cases {
        match validate(name, shape, overrides, &[1, 2]) {
            Ok(counters) => assert!(counters.iter().all(|c| c.words > 0), "{name} {shape}"),
            Err(problem) => panic!("{name} {shape} {overrides}: {problem}"),
        }
    }
}

#[test]
fn gemms() {
    equal(&[
        ("gemm-stream", "64x64x64", ""),
        ("gemm-stream-bt", "128x96x128+64", ""),
        ("gemm-i8", "64x64x64", ""),
        ("gemm-f32", "128x96x128", "tile_k_l2=32"),
        ("gemm-fused-cast", "128x96x128", "tile_k_l2=32"),
        ("gemm-drain", "128x96x128", "tile_k_l2=32"),
        ("gemm-direct", "128x96x128", "tile_k_l2=32"),
        ("gemm-direct-f32", "128x96x128", "tile_k_l2=32"),
        ("gemm-drain-bt", "128x96x128", "tile_k_l2=32"),
        ("gemm-direct-bt", "128x96x128", "tile_k_l2=32"),
        (
            "gemm-megatile",
            "128x64x64",
            "tile_m=8,tile_n=16,tile_k_l2=32,e_x=1,e_y=2",
        ),
        ("gemm-q4nx", "64x256x64", ""),
        ("gemm-q4nx-ddr", "64x256x64", ""),
    ]);
}

#[test]
fn products_of_a_matrix_and_a_vector() {
    equal(&[
        ("gemv", "64x128", ""),
        ("gemv", "256x192", "tile_m=8,m_input=4"),
        ("gemv", "256x192", "tile_m=8,m_input=4,streamed=1"),
        ("gemv-stream", "64+64x256", ""),
        ("gemv-i8", "64+64x256", ""),
        ("fused-dqp", "64+64x256", ""),
    ]);
}

#[test]
fn by_row_and_by_element() {
    equal(&[
        ("rmsnorm", "16x64", ""),
        ("layernorm", "16x64", ""),
        ("rope", "16x64", ""),
        ("silu-mul", "4096", ""),
        ("gelu-mul", "4096", ""),
        ("gelu", "4096", ""),
        ("add", "4096", ""),
        ("add-2d", "16x64", ""),
        ("add-flat", "16x64", ""),
    ]);
}

#[test]
fn attention_over_streams() {
    equal(&[
        ("prompt-attention", "64x64 8q/2kv d64", ""),
        ("flow-qkv", "64x64 8q/4kv d64 own", ""),
    ]);
}

#[test]
fn what_has_no_words_is_named() {
    let refused = |name: &str, shape: &str| validate(name, shape, "", &[1]).unwrap_err();
    let cascade = "launch `gemv`, cascade[0, 0]: no words yet for a cascade";
    assert_eq!(refused("gemv-cascade", "64x256"), cascade);
    let shared = "launch `attention`, f0[0]: no words yet for L1 shared by neighbours";
    assert_eq!(refused("flow-kv", "1x64 8q/4kv d64"), shared);
}
