//! The `millrace` command line, for the targets that its caller registers.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod describe;
mod device_stats;
mod download;
mod draft_args;
mod engine_args;
mod exit;
mod guest;
mod image_args;
mod interrupt;
mod lora_args;
mod machine;
mod model_arg;

mod output;
mod plan_args;
mod plan_text;
mod program_cache;
mod progress;
mod prompt;
mod ranks;
mod remote;
mod renamed;
mod roofs;
mod sampler_args;
mod sampling_args;
mod stats;
mod target_args;
mod tokens;

use exit::Exit;
use millrace_plan::{Evidence, Target};
use std::ffi::OsString;
use std::process::ExitCode;

/// The arguments. llama-bench's `-pg`, the only short option of two letters, is rewritten to `--pg`.
fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().map(|arg| {
        if arg == "-pg" {
            OsString::from("--pg")
        } else {
            arg
        }
    })
}

/// Runs the command line of this process, with these targets as values of `--device`, and with published evidence
/// about them.
pub fn main(
    targets: &'static [&'static dyn Target],
    evidence: &'static [&'static dyn Evidence],
) -> ExitCode {
    target_args::register(targets, evidence);
    if let Some(code) = guest::main() {
        return code;
    }
    guest::install();
    let cli = match cli::Cli::from_line(arguments()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are reported this way too; a closed pipe leaves nobody to read them.
            let _ = error.print();
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            };
            return exit.into();
        }
    };
    let result = interrupt::install().and_then(|()| cli.run());
    ranks::finish(result.is_ok());
    if interrupt::is_pressed() {
        // The user asked for an end, whatever the work's own result.
        return Exit::Interrupted.into();
    }
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            output::report(&failure);
            failure.exit.into()
        }
    }
}
