//! Loops whose speed is a limit of the machine; see [`crate::roof`].

use super::Amx;
use super::unit::{
    SUMS_00, SUMS_01, SUMS_10, SUMS_11, Shapes, TILE_ROW_BYTES, TILE_ROWS, TOKENS_0, TOKENS_1,
    TileUnit, WEIGHTS_0, WEIGHTS_1,
};
use crate::roof::RegisterLoop;

/// Products of a round: each pair of two tiles of tokens and two of weights.
const PRODUCTS: usize = 4;

/// Dot products of bytes.
pub(crate) const INT8: RegisterLoop = RegisterLoop {
    run: byte_products,
    ops_a_round: PRODUCTS * TILE_ROWS * 16 * TILE_ROW_BYTES * 2,
};

/// Dot products of bf16 pairs.
pub(crate) const BF16: RegisterLoop = RegisterLoop {
    run: pair_products,
    ops_a_round: PRODUCTS * TILE_ROWS * 16 * (TILE_ROW_BYTES / 2) * 2,
};

/// # Safety
/// The CPU has the unit.
unsafe fn byte_products(rounds: usize) {
    let mut unit = Amx::new();
    // SAFETY: forwarded; shapes are set first, and all registers start as zeros.
    unsafe {
        unit.set_shapes(&Shapes::new(TILE_ROWS, TILE_ROWS, TILE_ROW_BYTES));
        for _ in 0..rounds {
            unit.dot_signed::<SUMS_00, TOKENS_0, WEIGHTS_0>();
            unit.dot_signed::<SUMS_01, TOKENS_0, WEIGHTS_1>();
            unit.dot_signed::<SUMS_10, TOKENS_1, WEIGHTS_0>();
            unit.dot_signed::<SUMS_11, TOKENS_1, WEIGHTS_1>();
        }
        unit.release();
    }
}

/// # Safety
/// The CPU has the unit.
unsafe fn pair_products(rounds: usize) {
    let mut unit = Amx::new();
    // SAFETY: as above.
    unsafe {
        unit.set_shapes(&Shapes::new(TILE_ROWS, TILE_ROWS, TILE_ROW_BYTES));
        for _ in 0..rounds {
            unit.dot_bf16::<SUMS_00, TOKENS_0, WEIGHTS_0>();
            unit.dot_bf16::<SUMS_01, TOKENS_0, WEIGHTS_1>();
            unit.dot_bf16::<SUMS_10, TOKENS_1, WEIGHTS_0>();
            unit.dot_bf16::<SUMS_11, TOKENS_1, WEIGHTS_1>();
        }
        unit.release();
    }
}
