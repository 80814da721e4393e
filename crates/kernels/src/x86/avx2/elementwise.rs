//! The elementwise loops compiled with AVX2 and FMA.

crate::elementwise::elementwise_rows!("avx2,fma,f16c");
