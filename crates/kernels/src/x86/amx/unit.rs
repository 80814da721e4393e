//! The tile unit: eight registers of sixteen rows of 64 bytes, and products of them.
//!
//! Semantics are those of Intel's *Architecture Instruction Set Extensions Programming Reference*, chapter 3 (AMX).

use std::arch::asm;

/// Rows of a tile register.
pub(crate) const TILE_ROWS: usize = 16;

/// Bytes of a row.
pub(crate) const TILE_ROW_BYTES: usize = 64;

/// Tile registers.
pub(crate) const TILES: usize = 8;

/// Sums of the first tokens with the first panel.
pub(crate) const SUMS_00: usize = 0;
/// Sums of the first tokens with the second panel, or of another plane.
pub(crate) const SUMS_01: usize = 1;
/// Sums of the second tokens with the first panel.
pub(crate) const SUMS_10: usize = 2;
/// Sums of the second tokens with the second panel.
pub(crate) const SUMS_11: usize = 3;
/// The first tokens' activations.
pub(crate) const TOKENS_0: usize = 4;
/// The second tokens'.
pub(crate) const TOKENS_1: usize = 5;
/// Weights.
pub(crate) const WEIGHTS_0: usize = 6;
/// Other weights.
pub(crate) const WEIGHTS_1: usize = 7;

/// Shapes of the registers (palette 1), as `LDTILECFG` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row of each register; the architecture reserves room for sixteen.
    pub(crate) row_bytes: [u16; 16],
    /// Rows of each register.
    pub(crate) rows: [u8; 16],
}

impl Shapes {
    /// For `n_first` and `n_second` tokens (at most 16 each, the second perhaps none) and `k_bytes` of columns (at most 64, whole
    /// groups of four): the registers' roles are the constants of this module.
    pub(crate) fn new(n_first: usize, n_second: usize, k_bytes: usize) -> Shapes {
        debug_assert!(n_first > 0 && n_first.max(n_second) <= TILE_ROWS);
        debug_assert!(k_bytes.is_multiple_of(4) && (1..=TILE_ROW_BYTES).contains(&k_bytes));
        let mut shapes = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        let roles = [
            (SUMS_00, n_first, TILE_ROW_BYTES),
            (SUMS_01, n_first, TILE_ROW_BYTES),
            (SUMS_10, n_second, TILE_ROW_BYTES),
            (SUMS_11, n_second, TILE_ROW_BYTES),
            (TOKENS_0, n_first, k_bytes),
            (TOKENS_1, n_second, k_bytes),
            (WEIGHTS_0, k_bytes / 4, TILE_ROW_BYTES),
            (WEIGHTS_1, k_bytes / 4, TILE_ROW_BYTES),
        ];
        for (tile, rows, row_bytes) in roles {
            // A register of no rows must have no bytes either.
            shapes.rows[tile] = rows as u8;
            shapes.row_bytes[tile] = if rows == 0 { 0 } else { row_bytes as u16 };
        }
        shapes
    }
}

/// A unit that multiplies tiles. Registers are numbered by const parameters, because instructions name them.
///
/// # Safety Every function needs the unit's instructions, and all but the first two shapes that were set and not released. Registers that
/// take part in a product have the shapes that [`Shapes::new`] gives them.
pub(crate) trait TileUnit {
    /// A unit without shapes.
    fn new() -> Self;

    /// Sets all shapes, which zeroes all registers.
    unsafe fn set_shapes(&mut self, shapes: &Shapes);

    /// Ends the use of the registers: a thread that holds none is cheaper to switch and to put to sleep.
    unsafe fn release(&mut self);

    /// Zeroes register `T`.
    unsafe fn zero<const T: usize>(&mut self);

    /// Loads the rows of register `T`, `stride` bytes apart; they are readable.
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize);

    /// Stores the rows of register `T`, `stride` bytes apart; they are writable.
    unsafe fn store<const T: usize>(&mut self, to: *mut u8, stride: usize);

    /// `C += A · B` of signed bytes with unsigned ones, in i32 (`TDPBSUD`): row `i` of A holds a token's bytes, row `j` of B bytes
    /// `4j..4j + 4` of sixteen rows of weights, four each.
    unsafe fn dot_signed_unsigned<const C: usize, const A: usize, const B: usize>(&mut self);

    /// The same for signed with signed bytes (`TDPBSSD`).
    unsafe fn dot_signed<const C: usize, const A: usize, const B: usize>(&mut self);

    /// The same for bf16, two in place of four, in f32 (`TDPBF16PS`). Fused multiply-adds from zero sum the products of the even
    /// columns, and those of the odd ones; their sum is added to C. Subnormal inputs and results count as zero.
    unsafe fn dot_bf16<const C: usize, const A: usize, const B: usize>(&mut self);
}

/// The processor's own unit.
pub(crate) struct Amx;

// The compiler knows no tile registers where AMX is not enabled for a function. Only these blocks use them, and volatile blocks keep their
// order.
impl TileUnit for Amx {
    #[inline(always)]
    fn new() -> Amx {
        Amx
    }

    #[inline(always)]
    unsafe fn set_shapes(&mut self, shapes: &Shapes) {
        // SAFETY: reads 64 bytes; the caller vouches for the instruction.
        unsafe {
            asm!("ldtilecfg [{0}]", in(reg) shapes, options(nostack, readonly, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn release(&mut self) {
        // SAFETY: forwarded.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) }
    }

    #[inline(always)]
    unsafe fn zero<const T: usize>(&mut self) {
        // SAFETY: forwarded.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, nomem, preserves_flags)) }
    }

    #[inline(always)]
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
        // SAFETY: forwarded.
        unsafe {
            asm!(
                "tileloadd tmm{t}, [{from} + 1*{stride}]",
                t = const T,
                from = in(reg) from,
                stride = in(reg) stride,
                options(nostack, readonly, preserves_flags)
            );
        }
    }

    #[inline(always)]
    unsafe fn store<const T: usize>(&mut self, to: *mut u8, stride: usize) {
        // SAFETY: forwarded.
        unsafe {
            asm!(
                "tilestored [{to} + 1*{stride}], tmm{t}",
                t = const T,
                to = in(reg) to,
                stride = in(reg) stride,
                options(nostack, preserves_flags)
            );
        }
    }

    #[inline(always)]
    unsafe fn dot_signed_unsigned<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: forwarded.
        unsafe {
            asm!(
                "tdpbsud tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B,
                options(nostack, nomem, preserves_flags)
            );
        }
    }

    #[inline(always)]
    unsafe fn dot_signed<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: forwarded.
        unsafe {
            asm!(
                "tdpbssd tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B,
                options(nostack, nomem, preserves_flags)
            );
        }
    }

    #[inline(always)]
    unsafe fn dot_bf16<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: forwarded.
        unsafe {
            asm!(
                "tdpbf16ps tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B,
                options(nostack, nomem, preserves_flags)
            );
        }
    }
}
