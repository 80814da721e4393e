//! DDR traffic of the mappings, counted from their shim tasks, against published formulas.

use crate::mappings::{build, case};
use millrace_xdna2::mapping::moved_bytes;
use millrace_xdna2_machine::{Machine, Program};

/// Bytes of a program's transfers on that slot.
fn bytes(program: &Program, slot: usize) -> u64 {
    moved_bytes(program, &[slot])
}

fn program(name: &str, shape: &str, tiling: &str) -> Program {
    let (mapping, shape, tiling) = case(name, shape, tiling);
    build(mapping, &shape, &tiling, &Machine::npu2())
}

/// The Gemma 3 paper, equation 5: A is read once a megatile column, B once a megatile row, C written once.
#[test]
fn megatiles_move_what_equation_5_says() {
    let size = 2 * 2048 * 2048;
    for (mega_m, tile_m) in [(128, 16), (256, 32), (512, 64)] {
        let tiling = format!("tile_m={tile_m},e_y=1,tile_n=64,e_x=2,tile_k_l2=256");
        let program = program("gemm-megatile", "2048x2048x2048", &tiling);
        assert_eq!(bytes(&program, 0), size * 2048 / 512);
        assert_eq!(bytes(&program, 1), size * 2048 / mega_m);
        assert_eq!(bytes(&program, 2), size);
    }
}

/// The rest of a short prompt reads only the rows of A that it has.
#[test]
fn a_rest_moves_its_own_rows_only() {
    let tiling = "tile_m=8,tile_n=16,e_x=1,e_y=2,cols=8,tile_k_l2=32";
    let program = program("gemm-megatile", "176x64x64", tiling);
    assert_eq!(bytes(&program, 0), 2 * 176 * 64);
    assert_eq!(bytes(&program, 1), 2 * 64 * 64 * 2);
    assert_eq!(bytes(&program, 2), 2 * 176 * 64);
}

/// Keys stream anew for every tile of 256 queries, head and chunk of values (MLIR-AIR's
/// `fa_headfirst.py`); values likewise, a chunk at a time.
#[test]
fn attention_streams_keys_for_every_iteration() {
    for (heads, d, chunks) in [(32, 64, 1), (16, 128, 2)] {
        let shape = format!("2048 {heads}q/8kv d{d} causal");
        let program = program("flash-attention", &shape, "");
        let once = 2 * (2048 / 256) * heads * 2048 * d;
        assert_eq!(bytes(&program, 1), once * chunks);
        assert_eq!(bytes(&program, 2), once);
        assert_eq!(bytes(&program, 3), 2 * heads * 2048 * d);
    }
}

/// The Gemma 3 paper's equation 13. A sweep of L keys for every chunk of Lc queries reads those up to the chunk's last:
/// 2 bytes · (1 + L / Lc) · L elements of keys and of values together for each of a head's. With a window a sweep reads
/// only the window's reach, and a cache is read whole.
#[test]
fn a_first_pass_sweeps_its_keys_as_equation_13_says() {
    let (l, h) = (2048, 256);
    for (heads, n_kv_heads) in [("4q/1kv", 1), ("8q/4kv", 4)] {
        let swept = |shape: &str| {
            let (_, _, tiling) = case("prompt-attention", shape, "");
            let chunk = tiling["spread"] * tiling["rows"] * tiling["tile_tokens"];
            let program = program("prompt-attention", shape, "");
            (moved_bytes(&program, &[1, 2]), chunk)
        };
        let of_keys = 4 * n_kv_heads * h;
        let (all, chunk) = swept(&format!("{l}x{l} {heads} d{h} own"));
        assert_eq!(all, (1 + l / chunk) * l / 2 * of_keys, "{heads}");
        let window = 512;
        let (in_window, chunk) = swept(&format!("{l}x{l} {heads} d{h} window {window} own"));
        // Chunks that have left the first key behind read 512 keys in whole tiles of 16, wherever in a tile they begin, and their own.
        let before: u64 = 528;
        let first = before.next_multiple_of(chunk);
        let rest = (l - first) / chunk;
        let sweeps = (1 + first / chunk) * first / 2 + rest * (before + chunk);
        assert_eq!(in_window, sweeps * of_keys, "{heads}");
        assert!(10 * in_window < 7 * all);
        let (cached, chunk) = swept(&format!("{l}x{l} {heads} d{h}"));
        assert_eq!(cached, l / chunk * l * of_keys, "{heads}");
    }
}

/// Decode reads the weights once.
#[test]
fn gemv_reads_weights_once() {
    let program = program("gemv", "2048x2048", "");
    assert_eq!(bytes(&program, 0), 2 * 2048 * 2048);
    // The vector goes to the cores in every iteration.
    assert_eq!(bytes(&program, 1), 2 * 2048 * (2048 / 64));
    assert_eq!(bytes(&program, 2), 2 * 2048);
}
