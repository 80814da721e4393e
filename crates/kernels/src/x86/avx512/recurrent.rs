//! The loops of recurrent ops with AVX-512: a row of a state's block is one register.

crate::x86::recurrent::recurrent_loops!(
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c", __m512 of 16:
    _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps
    _mm512_add_ps _mm512_mul_ps _mm512_fmadd_ps _mm512_fnmadd_ps
);
