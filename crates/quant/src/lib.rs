//! Block quantisation formats: bytes to numbers and back, scalar, one file a format.
//!
//! [`DType`] is the table of formats. Bytes enter and numbers leave through [`decode_blocks`] (a flat run of blocks) and [`decode_rows`]
//! (some rows of a matrix). The way back is [`encode_blocks`] and [`encode_matrix`], or [`encode_rows`] with the importance of columns.
//! These functions are the oracle that faster kernels are tested against, and they write quantised files.
//!
//! ```
//! use millrace_quant::{DType, decode_blocks, encode_blocks};
//! let weights: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin()).collect();
//! let mut bytes = vec![0; DType::Q8_0.size_bytes(1, 64).unwrap()];
//! encode_blocks(DType::Q8_0, &weights, &mut bytes)?;
//! let mut back = vec![0.0; 64];
//! decode_blocks(DType::Q8_0, &bytes, &mut back)?;
//! assert!(weights.iter().zip(&back).all(|(w, b)| (w - b).abs() < 0.005));
//! # Ok::<(), millrace_quant::Error>(())
//! ```
//!
//! # Odd input of encoders
//!
//! F32, F16 and BF16 convert as IEEE 754 does (nearest, ties to even; too large becomes infinity;
//! NaN stays NaN). The block formats store finite numbers only: NaN counts as 0 and magnitudes are
//! clamped to [`MAX_MAGNITUDE`], so every block they write decodes to finite numbers. Equal input
//! gives equal bytes.
#![forbid(unsafe_code)]

mod codec;
mod dtype;
mod error;
mod formats;
pub mod pipeline;
mod search;

pub use codec::{decode_blocks, decode_rows, encode_blocks, encode_matrix, encode_rows};
pub use dtype::TILE_GROUP;
pub use error::Error;
pub use formats::{DType, FileType};

/// The points of the codebook formats, as ggml's `iq*_grid` tables have them: an index in a block selects one. Kernels
/// look them up.
pub mod codebooks {
    pub use crate::formats::codebook::{IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
}

/// The largest magnitude that block encoders keep, the largest finite f16: most of them store
/// scales in f16.
pub const MAX_MAGNITUDE: f32 = 65504.0;
