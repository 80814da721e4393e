//! Prints the instruction sets whose kernels this processor can run, slowest first, separated by commas. Tests under an
//! emulator compare the list with the emulated processor.

use millrace_kernels::Level;

fn main() {
    let names: Vec<&str> = Level::supported()
        .iter()
        .map(|level| level.name())
        .collect();
    println!("{}", names.join(","));
}
