//! `millrace completions`: completion scripts for shells.

use crate::cli::Cli;
use crate::exit::CommandResult;
use crate::output::{Out, Ui};
use clap::CommandFactory;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  millrace completions bash > ~/.local/share/bash-completion/completions/millrace
  millrace completions zsh > ~/.zfunc/_millrace        (with ~/.zfunc in fpath)
  millrace completions fish > ~/.config/fish/completions/millrace.fish";

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, _ui: Ui) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "millrace", &mut script);
    let mut out = Out::new();
    out.text(String::from_utf8_lossy(&script))?;
    out.flush()
}
