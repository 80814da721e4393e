//! Programs on the machine: verified, run, and run with faults.
//!
//! One program of modules: each would link the crate anew.

mod simulate;
mod simulate_faults;
mod verify;
