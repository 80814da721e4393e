//! The command line's shape: the subcommands and what all of them take.

use crate::commands;
use crate::exit::EXIT_CODES_HELP;
use crate::output::Ui;
use clap::{Parser, Subcommand};

const ABOUT: &str =
    "Run large language models on this machine: one binary, any GGUF or safetensors file";

const EXAMPLES: &str = "\
Examples:
  millrace run demo \"Once upon a time\"            a story from the built-in model
  millrace chat demo                              a conversation with it
  millrace run model.gguf -f prompt.txt --json    text, timings and token counts as JSON
  millrace run hf:OWNER/REPO:Q4_K_M \"Hello\"       downloads the model first, if it must
  millrace info model.gguf -c 8192                what is inside, and the memory it will take
  millrace doctor                                 is this machine ready, and if not, what to do

A MODEL is `demo` or `demo-draft` (built in), a file or folder, hf:OWNER/REPO[:QUANT], or OWNER/REPO
if it has been pulled.";

const ENVIRONMENT: &str = "\
Environment:
  MILLRACE_THREADS    as --threads
  MILLRACE_CPU_LEVEL  as --cpu-level
  MILLRACE_NPU_CACHE  folder of compiled NPU programs; see `millrace compile --help`
  MILLRACE_PYTHON     Python of `verify --reference hf`
  HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE   see `millrace pull --help`
  NO_COLOR            no colours";

fn long_help() -> String {
    format!("{EXAMPLES}\n\n{ENVIRONMENT}\n\n{EXIT_CODES_HELP}")
}

/// The whole command line.
#[derive(Parser, Debug)]
#[command(
    name = "millrace",
    bin_name = "millrace",
    version,
    about = ABOUT,
    after_help = EXAMPLES,
    after_long_help = long_help(),
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100,
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Args, Debug)]
struct Global {
    /// Say less: only results and errors
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        display_order = 1000
    )]
    quiet: bool,
    /// Say more about what is done and why
    #[arg(short, long, global = true, display_order = 1000)]
    verbose: bool,
}

/// Declares the subcommands once: variant, module, in the order of the help.
macro_rules! subcommands {
    ($($variant:ident => $module:ident,)*) => {
        #[derive(Subcommand, Debug)]
        enum Command {
            $($variant(commands::$module::Args),)*
        }

        impl Cli {
            /// Runs the subcommand.
            pub(crate) fn run(&self) -> crate::exit::Outcome {
                let ui = Ui { quiet: self.global.quiet, verbose: self.global.verbose };
                match &self.command {
                    $(Command::$variant(args) => commands::$module::run(args, ui),)*
                }
            }
        }
    };
}

subcommands! {
    Run => run,
    Chat => chat,
    Pull => pull,
    Info => info,
    Bench => bench,
    Hwbench => hwbench,
    Kernel => kernel,
    Fidelity => fidelity,
    Compile => compile,
    Explain => explain,
    Profile => profile,
    Verify => verify,
    Diagnose => diagnose,
    Perplexity => perplexity,
    Tokenize => tokenize,
    Logits => logits,
    Quantize => quantize,
    Synth => synth,
    Devices => devices,
    Doctor => doctor,
    Completions => completions,
    Man => man,
}

#[cfg(test)]
mod examples;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(
                command.get_about().is_some(),
                "{name} says nothing about itself"
            );
            let examples = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                examples.contains(&format!("millrace {name}")),
                "{name} has no example"
            );
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{name}: {} has no help",
                    argument.get_id()
                );
            }
        }
    }
}
