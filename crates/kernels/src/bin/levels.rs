//! Prints the instruction sets whose kernels this processor can run, slowest first, with commas: what tests under an emulator
//! compare with the processor that is emulated.

use millrace_kernels::Level;

fn main() {
    let names: Vec<&str> = Level::supported()
        .iter()
        .map(|level| level.name())
        .collect();
    println!("{}", names.join(","));
}
