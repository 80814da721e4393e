//! elementwise oracle
