//! The emulated unit against Intel's reference, and the shapes.

#[cfg(target_os = "linux")]
mod trap;

use super::emulated::EmulatedUnit;
use super::unit::*;

/// Writes bf16 numbers, two to a lane, to the rows of a tile.
fn pairs(rows: &[[f32; 32]]) -> Vec<u8> {
    let numbers = rows.as_flattened().iter();
    numbers
        .flat_map(|v| half::bf16::from_f32(*v).to_le_bytes())
        .collect()
}

/// Row `j` of the weights' tile has columns `2j` and `2j + 1` of sixteen rows.
fn weights(w: &[[f32; 32]; 16]) -> Vec<[f32; 32]> {
    (0..16)
        .map(|j| std::array::from_fn(|i| w[i / 2][2 * j + i % 2]))
        .collect()
}

fn product(x: &[[f32; 32]], w: &[[f32; 32]; 16], sums: &[[f32; 16]]) -> Vec<[f32; 16]> {
    let mut found = sums.to_vec();
    let (x, w) = (pairs(x), pairs(&weights(w)));
    let mut unit = EmulatedUnit::new();
    // SAFETY: tiles have rows of 64 bytes, as many as the shapes say.
    unsafe {
        unit.set_shapes(&Shapes::new(sums.len(), 0, TILE_ROW_BYTES));
        unit.load::<SUMS_00>(found.as_ptr().cast(), TILE_ROW_BYTES);
        unit.load::<TOKENS_0>(x.as_ptr(), TILE_ROW_BYTES);
        unit.load::<WEIGHTS_0>(w.as_ptr(), TILE_ROW_BYTES);
        unit.dot_bf16::<SUMS_00, TOKENS_0, WEIGHTS_0>();
        unit.store::<SUMS_00>(found.as_mut_ptr().cast(), TILE_ROW_BYTES);
        unit.release();
    }
    found
}

#[test]
fn products_of_pairs_add_even_and_odd_columns_apart() {
    let mut x = [[0.0; 32]; 2];
    let mut w = [[0.0; 32]; 16];
    // Even columns: 2²⁴, then 1, which is lost beside it; odd ones: 1 and 1. In one sum from left to right, all three would be lost.
    x[1][..4].copy_from_slice(&[4096.0, 1.0, 1.0, 1.0]);
    w[5][..4].copy_from_slice(&[4096.0, 1.0, 1.0, 1.0]);
    let found = product(&x, &w, &[[0.5; 16]; 2]);
    // 2²⁴ + 2 is representable; half of one beside it is not.
    assert_eq!(found[1][5], 16_777_218.0);
    assert_eq!(found[0], [0.5; 16]);
    assert_eq!(found[1][4], 0.5);
}

#[test]
fn subnormal_numbers_are_zero() {
    let mut x = [[0.0; 32]; 1];
    let mut w = [[0.0; 32]; 16];
    x[0][0] = 1e-39;
    w[0][0] = 1e30;
    x[0][2] = 1e-20;
    w[1][2] = 1e-20;
    assert_eq!(product(&x, &w, &[[0.0; 16]]), [[0.0; 16]]);
    assert_eq!(product(&x, &w, &[[1e-40; 16]]), [[0.0; 16]]);
}

#[test]
fn products_of_bytes_are_signed_as_the_instructions_say() {
    let x = [[-128_i8; 64]; 3];
    let w = [[255_u8; 64]; 16];
    let mut sums = [[[7_i32; 16]; 3]; 2];
    let mut unit = EmulatedUnit::new();
    // SAFETY: as above.
    unsafe {
        unit.set_shapes(&Shapes::new(3, 0, TILE_ROW_BYTES));
        unit.load::<TOKENS_0>(x.as_ptr().cast(), TILE_ROW_BYTES);
        unit.load::<WEIGHTS_0>(w.as_ptr().cast(), TILE_ROW_BYTES);
        unit.load::<SUMS_00>(sums[0].as_ptr().cast(), TILE_ROW_BYTES);
        unit.dot_signed_unsigned::<SUMS_00, TOKENS_0, WEIGHTS_0>();
        unit.store::<SUMS_00>(sums[0].as_mut_ptr().cast(), TILE_ROW_BYTES);
        unit.load::<SUMS_00>(sums[1].as_ptr().cast(), TILE_ROW_BYTES);
        unit.dot_signed::<SUMS_00, TOKENS_0, WEIGHTS_0>();
        unit.store::<SUMS_00>(sums[1].as_mut_ptr().cast(), TILE_ROW_BYTES);
        unit.release();
    }
    assert_eq!(sums[0], [[7 - 64 * 128 * 255; 16]; 3]);
    assert_eq!(sums[1], [[7 + 64 * 128; 16]; 3]);
}

/// Intel's layout of the 64 bytes that LDTILECFG reads.
#[test]
fn shapes_lie_where_the_processor_reads_them() {
    let shapes = Shapes::new(16, 5, 32);
    // SAFETY: plain numbers without padding.
    let bytes: [u8; 64] = unsafe { std::mem::transmute(shapes) };
    assert_eq!(bytes[..2], [1, 0]);
    assert_eq!(
        bytes[16..32],
        [64, 0, 64, 0, 64, 0, 64, 0, 32, 0, 32, 0, 64, 0, 64, 0]
    );
    assert_eq!(bytes[48..56], [16, 16, 5, 5, 16, 5, 8, 8]);
    assert_eq!(Shapes::new(1, 0, 64).row_bytes[SUMS_10], 0);
}
