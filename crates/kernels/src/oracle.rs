//! Scalar references, one for every op; never optimised.

pub mod attention;
pub mod elementwise;
pub mod matmul;
pub mod recurrent;
