//! Shape of the command line: the subcommands and their common options.

pub(crate) mod layout;

use crate::commands;
use crate::exit::EXIT_CODES_HELP;
use crate::output::Ui;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

const ABOUT: &str =
    "Run large language models on this machine: one binary, any GGUF or safetensors file";

const EXAMPLES: &str = "\
Examples:
  millrace run demo \"Once upon a time\"            a story from the built-in model
  millrace chat demo                              a conversation with it
  millrace run model.gguf -f prompt.txt --json    text, timings and token counts as JSON
  millrace run hf:OWNER/REPO:Q4_K_M \"Hello\"       downloads the model first, if needed
  millrace info model.gguf -c 8192                its contents, and the memory it will take
  millrace doctor                                 checks that this machine is ready, and suggests fixes

A MODEL is `demo` or `demo-draft` (built in), a file or folder, hf:OWNER/REPO[:QUANT], or OWNER/REPO
if it has been pulled.";

const ENVIRONMENT: &str = "\
Environment:
  MILLRACE_THREADS    as --threads
  MILLRACE_CPU_LEVEL  as --cpu-level
  MILLRACE_NPU_CACHE  folder of compiled NPU programs; see `millrace compile --help`
  MILLRACE_PYTHON     Python of `verify --reference hf`
  MILLRACE_API_KEY    key that clients of `serve` must send
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
    max_term_width = layout::WIDTH,
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(clap::Args, Debug)]
struct Global {
    /// Print less: only results and errors
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        display_order = 1000
    )]
    quiet: bool,
    /// Print more detail
    #[arg(short, long, global = true, display_order = 1000)]
    verbose: bool,
}

impl Cli {
    /// Reads a command line.
    pub(crate) fn from_line(line: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let matches = Cli::definition().try_get_matches_from(line);
        let parsed = matches.and_then(|matches| {
            let cli = Cli::from_arg_matches(&matches)?;
            if let Some(warning) = crate::renamed::warning(&matches) {
                cli.ui().warn(warning);
            }
            Ok(cli)
        });
        parsed.map_err(reworded)
    }

    /// Verbosity that the global options ask for.
    fn ui(&self) -> Ui {
        Ui {
            quiet: self.global.quiet,
            verbose: self.global.verbose,
        }
    }

    /// The command line that is parsed and shown. `-1` after an option is its value, whether or not the option
    /// takes negative values. So it is refused by the option's name, and not as an unknown option.
    pub(crate) fn definition() -> clap::Command {
        let negatives = |arg: clap::Arg| match arg.get_action().takes_values() {
            true if !arg.is_positional() => arg.allow_negative_numbers(true),
            _ => arg,
        };
        let command = Cli::command().mut_subcommands(move |command| command.mut_args(negatives));
        with_layout(command)
    }
}

/// Lays out the after-help texts of a command and of its subcommands.
fn with_layout(mut command: clap::Command) -> clap::Command {
    let laid_out = |text: &StyledStr| layout::laid_out(&text.to_string());
    if let Some(text) = command.get_after_help().map(laid_out) {
        command = command.after_help(text);
    }
    if let Some(text) = command.get_after_long_help().map(laid_out) {
        command = command.after_long_help(text);
    }
    command.mut_subcommands(with_layout)
}

/// Rewords the error about a number that cannot be parsed, in terms of the number.
fn reworded(error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let (Some(option), Some(value)) = (
        text(ContextKind::InvalidArg),
        text(ContextKind::InvalidValue),
    ) else {
        return error;
    };
    let source = std::error::Error::source(&error);
    let Some(reason) = source.and_then(|source| number_reason(&value, source)) else {
        return error;
    };
    let message = format!(
        "invalid value '{value}' for '{option}': {reason}\n\nFor more information, try '--help'.\n"
    );
    clap::Error::raw(clap::error::ErrorKind::ValueValidation, message)
}

/// Description of the fault in a number; none where the error is about something else.
fn number_reason(value: &str, source: &(dyn std::error::Error + 'static)) -> Option<String> {
    let is_negative = value.parse::<f64>().is_ok_and(|number| number < 0.0);
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        return Some(match error.kind() {
            _ if is_negative => "it must not be negative".to_owned(),
            IntErrorKind::PosOverflow => "it is too large".to_owned(),
            _ => "it must be a whole number".to_owned(),
        });
    }
    if source.is::<ParseFloatError>() {
        return Some("it must be a number".to_owned());
    }
    // clap's own ranges: `0 is not in 1..=4294967295`, or half open.
    let text = source.to_string();
    let (least, most) = text.split_once(" is not in ")?.1.split_once("..")?;
    let limit = most
        .trim_start_matches('=')
        .parse::<u64>()
        .unwrap_or(u64::MAX);
    // A bound that comes only from the type means just "too large".
    let by_type = limit >= u64::from(u32::MAX);
    let too_large = by_type && !is_negative && value.len() >= most.trim_start_matches('=').len();
    Some(match by_type {
        _ if too_large => "it is too large".to_owned(),
        true => format!("it must be at least {least}"),
        false => format!("it must be from {least} to {most}").replace("to =", "to "),
    })
}

/// Declares the subcommands once: variant, module, in the order of the help.
macro_rules! subcommands {
    ($($variant:ident($args:ident) => $module:ident,)*) => {
        #[derive(Subcommand, Debug)]
        enum CliCommand {
            $($variant(commands::$module::$args),)*
        }

        impl Cli {
            /// Runs the subcommand.
            pub(crate) fn run(&self) -> crate::exit::CommandResult {
                let ui = self.ui();
                match &self.command {
                    $(CliCommand::$variant(args) => commands::$module::run(args, ui),)*
                }
            }
        }
    };
}

subcommands! {
    Run(RunArgs) => run,
    Chat(ChatArgs) => chat,
    Serve(ServeArgs) => serve,
    Batch(BatchArgs) => batch,
    Pull(PullArgs) => pull,
    List(ListArgs) => list,
    Rm(RmArgs) => rm,
    Info(InfoArgs) => info,
    Bench(BenchArgs) => bench,
    Sweep(SweepArgs) => sweep,
    Ceiling(CeilingArgs) => ceiling,
    Hwbench(HwbenchArgs) => hwbench,
    Kernel(KernelArgs) => kernel,
    Fidelity(FidelityArgs) => fidelity,
    Compile(CompileArgs) => compile,
    Export(ExportArgs) => export,
    Explain(ExplainArgs) => explain,
    Profile(ProfileArgs) => profile,
    Verify(VerifyArgs) => verify,
    Diagnose(DiagnoseArgs) => diagnose,
    Perplexity(PerplexityArgs) => perplexity,
    Tokenize(TokenizeArgs) => tokenize,
    Logits(LogitsArgs) => logits,
    Embed(EmbedArgs) => embed,
    Rerank(RerankArgs) => rerank,
    Imatrix(ImatrixArgs) => imatrix,
    Quantize(QuantizeArgs) => quantize,
    Snr(SnrArgs) => snr,
    Synth(SynthArgs) => synth,
    Devices(DevicesArgs) => devices,
    Probe(ProbeArgs) => probe,
    Npu(NpuArgs) => npu,
    Aie(AieArgs) => aie,
    Doctor(DoctorArgs) => doctor,
    Completions(CompletionsArgs) => completions,
    Man(ManArgs) => man,
}

#[cfg(test)]
mod examples;

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn errors_of_numbers_are_about_the_number() {
        for (line, reason) in [
            (
                "millrace run m x --ctx -1",
                "'--ctx <TOKENS>': it must not be negative",
            ),
            ("millrace run m x --ctx 1e3", "it must be a whole number"),
            (
                "millrace run m x --ctx 99999999999999999999",
                "it is too large",
            ),
            ("millrace run m x --top-p few", "it must be a number"),
            ("millrace run m x -n -2", "it must be at least -1"),
            ("millrace info m --ctx 0", "it must be at least 1"),
            ("millrace info m --ctx 99999999999", "it is too large"),
            ("millrace bench m -r 0", "it must be at least 1"),
        ] {
            let error = Cli::from_line(line.split(' ').map(OsString::from));
            let text = error.expect_err(line).to_string();
            assert!(text.contains(reason), "{line}: {text}");
        }
    }
}
