//! Formats of plain numbers, and the functions that a level has for each.
//!
//! The loops differ by level, in [`avx2`](crate::x86::avx2::float_columns) and [`avx512`](crate::x86::avx512::float_columns). AVX-512
//! masks the last columns of a row, has lines of a panel as they are, and fetches with each vector. AVX2 copies the last columns, has
//! panels in the order of its passes, and fetches with each line.

/// Formats; the codes are const parameters.
pub(in crate::x86) const F32: u8 = 0;
pub(in crate::x86) const F16: u8 = 1;
pub(in crate::x86) const BF16: u8 = 2;

/// Bytes of a weight.
pub(in crate::x86) const fn elem_bytes(format: u8) -> usize {
    if format == F32 { 4 } else { 2 }
}

/// Makes the functions of the table of `pack`, `direct` and `rows`, which take the format as a parameter.
macro_rules! functions_of_format {
    ($($pack:ident $direct:ident $rows:ident $format:ident $features:literal;)*) => {$(
        #[doc = concat!("Multiplies ", stringify!($format), " with one token.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { rows::<$format>(args) }
        }

        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe { direct::<$format>(args) }
        }
    )*};
}
pub(in crate::x86) use functions_of_format;
