//! The tile unit in plain code. Tests compare the processor's own unit with it, and run the kernels on it where there is none.

use super::unit::{Shapes, TILE_ROW_BYTES, TILE_ROWS, TILES, TileUnit};

/// The products that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileProduct {
    /// `TDPBSUD`.
    SignedUnsigned,
    /// `TDPBSSD`.
    Signed,
    /// `TDPBF16PS`.
    Bf16,
}

/// A tile register.
type TileRegister = [[u8; TILE_ROW_BYTES]; TILE_ROWS];

/// A unit whose registers are memory. Panics where the processor would raise an exception.
pub(crate) struct EmulatedUnit {
    shapes: Option<Shapes>,
    tiles: Box<[TileRegister; TILES]>,
}

impl EmulatedUnit {
    fn shape(&self, tile: usize) -> (usize, usize) {
        let shapes = self.shapes.expect("shapes are set");
        let shape = (
            usize::from(shapes.rows[tile]),
            usize::from(shapes.row_bytes[tile]),
        );
        assert!(shape.0 > 0 && shape.1 > 0, "register {tile} has no shape");
        shape
    }

    pub(super) fn zero_tile(&mut self, tile: usize) {
        self.shape(tile);
        self.tiles[tile].fill([0; TILE_ROW_BYTES]);
    }

    /// # Safety
    /// The register's rows, `stride` bytes apart, are readable.
    pub(super) unsafe fn load_tile(&mut self, tile: usize, from: *const u8, stride: usize) {
        let (rows, row_bytes) = self.shape(tile);
        self.tiles[tile].fill([0; TILE_ROW_BYTES]);
        for (r, row) in self.tiles[tile].iter_mut().enumerate().take(rows) {
            // SAFETY: forwarded.
            unsafe {
                let from = from.add(r * stride);
                std::ptr::copy_nonoverlapping(from, row.as_mut_ptr(), row_bytes);
            }
        }
    }

    /// # Safety
    /// The register's rows, `stride` bytes apart, are writable.
    pub(super) unsafe fn store_tile(&self, tile: usize, to: *mut u8, stride: usize) {
        let (rows, row_bytes) = self.shape(tile);
        for (r, row) in self.tiles[tile].iter().enumerate().take(rows) {
            // SAFETY: forwarded.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(r * stride), row_bytes) };
        }
    }

    /// `C += A · B`, of the registers named in this order.
    pub(super) fn product(&mut self, product: TileProduct, tiles: [usize; 3]) {
        match product {
            TileProduct::SignedUnsigned => self.dot(tiles, signed, unsigned, add_bytes),
            TileProduct::Signed => self.dot(tiles, signed, signed, add_bytes),
            TileProduct::Bf16 => self.dot(tiles, pair, pair, add_pairs),
        }
    }

    /// Adds to each element of C the product of a row of A and a column of B, a lane of 4 bytes of each at a time.
    fn dot<T: Copy + Default>(
        &mut self,
        [c, a, b]: [usize; 3],
        of_a: impl Fn([u8; 4]) -> T,
        of_b: impl Fn([u8; 4]) -> T,
        add: impl Fn(i32, &[T], &[T]) -> i32,
    ) {
        let (rows, row_bytes) = self.shape(c);
        let (a_rows, k_bytes) = self.shape(a);
        let (b_rows, b_row_bytes) = self.shape(b);
        assert_eq!((rows, row_bytes), (a_rows, b_row_bytes), "shapes of C");
        assert_eq!(k_bytes, 4 * b_rows, "columns of A and rows of B");
        let mut columns = [[T::default(); LANES]; LANES];
        for (j, row) in self.tiles[b][..b_rows].iter().enumerate() {
            for (column, lane) in columns.iter_mut().zip(row.as_chunks().0) {
                column[j] = of_b(*lane);
            }
        }
        let mut row = [T::default(); LANES];
        for i in 0..rows {
            for (to, lane) in row.iter_mut().zip(self.tiles[a][i].as_chunks().0) {
                *to = of_a(*lane);
            }
            let sums = self.tiles[c][i].as_chunks_mut().0.iter_mut();
            for (sum, column) in sums.zip(&columns).take(row_bytes / 4) {
                let found = add(i32::from_le_bytes(*sum), &row[..b_rows], &column[..b_rows]);
                *sum = found.to_le_bytes();
            }
        }
        // Rows beyond a register's shape are zeroed.
        self.tiles[c][rows..].fill([0; TILE_ROW_BYTES]);
    }
}

/// Lanes of a row.
const LANES: usize = TILE_ROW_BYTES / 4;

/// `sum` and the products of whole numbers.
fn add_bytes(sum: i32, a: &[[i32; 4]], b: &[[i32; 4]]) -> i32 {
    let products = a
        .iter()
        .zip(b)
        .map(|(a, b)| a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]);
    products.fold(sum, i32::wrapping_add)
}

fn signed(lane: [u8; 4]) -> [i32; 4] {
    lane.map(|byte| i32::from(byte.cast_signed()))
}

fn unsigned(lane: [u8; 4]) -> [i32; 4] {
    lane.map(i32::from)
}

/// `sum` and the products of bf16 numbers.
fn add_pairs(sum: i32, a: &[[f32; 2]], b: &[[f32; 2]]) -> i32 {
    let mut sums = [0.0_f32; 2];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = flush(a.mul_add(*b, *sum));
        }
    }
    let [even, odd] = sums;
    let sum = flush(f32::from_bits(sum.cast_unsigned()));
    flush(sum + flush(even + odd)).to_bits().cast_signed()
}

/// Subnormal numbers as zeros of their sign.
fn flush(v: f32) -> f32 {
    if v.is_subnormal() {
        0.0_f32.copysign(v)
    } else {
        v
    }
}

/// Two bf16 numbers.
fn pair(bytes: [u8; 4]) -> [f32; 2] {
    let bits = u32::from_le_bytes(bytes);
    [bits << 16, bits & 0xFFFF_0000].map(|bits| flush(f32::from_bits(bits)))
}

impl TileUnit for EmulatedUnit {
    fn new() -> EmulatedUnit {
        EmulatedUnit {
            shapes: None,
            tiles: Box::new([[[0; TILE_ROW_BYTES]; TILE_ROWS]; TILES]),
        }
    }

    unsafe fn set_shapes(&mut self, shapes: &Shapes) {
        let pairs = shapes.rows.iter().zip(shapes.row_bytes);
        for (rows, row_bytes) in pairs {
            assert_eq!(
                *rows == 0,
                row_bytes == 0,
                "no rows but bytes, or bytes but no rows"
            );
            assert!(usize::from(*rows) <= TILE_ROWS && usize::from(row_bytes) <= TILE_ROW_BYTES);
        }
        self.shapes = Some(*shapes);
        self.tiles.fill([[0; TILE_ROW_BYTES]; TILE_ROWS]);
    }

    unsafe fn release(&mut self) {
        self.shapes = None;
    }

    unsafe fn zero<const T: usize>(&mut self) {
        self.zero_tile(T);
    }

    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
        // SAFETY: forwarded.
        unsafe { self.load_tile(T, from, stride) }
    }

    unsafe fn store<const T: usize>(&mut self, to: *mut u8, stride: usize) {
        // SAFETY: forwarded.
        unsafe { self.store_tile(T, to, stride) }
    }

    unsafe fn dot_signed_unsigned<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.product(TileProduct::SignedUnsigned, [C, A, B]);
    }

    unsafe fn dot_signed<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.product(TileProduct::Signed, [C, A, B]);
    }

    unsafe fn dot_bf16<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.product(TileProduct::Bf16, [C, A, B]);
    }
}
