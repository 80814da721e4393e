//! The `millrace` binary: the command line with every target of the registry.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    millrace_cli::main(millrace_targets::ALL)
}
