//! CPU kernels: a scalar oracle for every op, AVX2 and AVX-512 behind detection, the thread pool.

pub mod attention;
pub mod cpu;
pub mod elementwise;
pub mod kv;
pub mod level;
pub mod matmul;
pub mod oracle;
pub mod pool;
pub mod table;
#[cfg(target_arch = "x86_64")]
mod x86;
