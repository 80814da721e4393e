//! matmul oracle
