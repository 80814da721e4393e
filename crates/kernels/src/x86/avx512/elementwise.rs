//! The elementwise loops compiled with AVX-512.

crate::elementwise::elementwise_rows!("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");
