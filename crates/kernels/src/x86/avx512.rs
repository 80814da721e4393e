//! AVX-512 leaves.
