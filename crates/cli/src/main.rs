//! The `millrace` binary: the command line with every target of the registry, and the published evidence about them.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    millrace_cli::main(millrace_targets::ALL, millrace_evidence::ALL)
}
