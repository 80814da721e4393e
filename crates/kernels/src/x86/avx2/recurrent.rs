//! The loops of recurrent ops with AVX2 and FMA: a row of a state's block is two registers.

crate::x86::recurrent::recurrent_loops!(
    "avx2,fma,f16c", __m256 of 8:
    _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps
    _mm256_add_ps _mm256_mul_ps _mm256_fmadd_ps _mm256_fnmadd_ps
);
