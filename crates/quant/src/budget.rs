//! Error budgets: the worst relative root-mean-square error of encode → decode on standard normal
//! data.
//!
//! Relative RMS error is `sqrt(Σ(decoded − x)² / Σx²)`. The tests hold every encoder to its
//! constant from both sides, so a budget is neither exceeded nor slack by more than a tenth.

/// Exact.
pub const F32: f64 = 0.0;
/// 11 significant bits.
pub const F16: f64 = 0.000211;
/// 8 significant bits.
pub const BF16: f64 = 0.00169;
/// 16 levels, one scale in 32.
pub const Q4_0: f64 = 0.0868;
/// 16 levels, scale and minimum in 32.
pub const Q4_1: f64 = 0.0788;
/// 32 levels, one scale in 32.
pub const Q5_0: f64 = 0.0431;
/// 32 levels, scale and minimum in 32.
pub const Q5_1: f64 = 0.0382;
/// 255 levels, one scale in 32.
pub const Q8_0: f64 = 0.00541;
/// 255 levels, one scale in 32.
pub const Q8_1: f64 = 0.00541;
/// 4 levels, 4-bit scale and minimum in 16.
pub const Q2_K: f64 = 0.2705;
/// 8 levels, 6-bit scale in 16.
pub const Q3_K: f64 = 0.1465;
/// 16 levels, 6-bit scale and minimum in 32.
pub const Q4_K: f64 = 0.0712;
/// 32 levels, 6-bit scale and minimum in 32.
pub const Q5_K: f64 = 0.0351;
/// 64 levels, 8-bit scale in 16.
pub const Q6_K: f64 = 0.0175;
/// 255 levels, one f32 scale in 256.
pub const Q8_K: f64 = 0.00708;
/// 16 uneven levels, one scale in 32.
pub const IQ4_NL: f64 = 0.0745;
/// 15 floating-point levels, a power of two as scale in 32.
pub const MXFP4: f64 = 0.1165;
/// 16 levels, bf16 scale and minimum in 32.
pub const Q4NX: f64 = 0.0708;
/// 16 levels, bf16 scale and zero point in 32.
pub const Q4NX_SUB: f64 = 0.0708;
