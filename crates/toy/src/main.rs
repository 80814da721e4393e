//! The command line with the toy as its only target.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    millrace_cli::main(&[&millrace_toy::Toy], &[])
}
