//! attention oracle
