//! `millrace npu`: decodes the words that an NPU reads.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Out, Ui};
use crate::target_args::targets;
use millrace_plan::Disassembly;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace npu words stream.bin           the operations in a stream of words
  millrace npu words stream.txt --json    the same with every field, for scripts

A file is binary (little-endian) or text of hexadecimal words of eight digits with `#` comments.
Exit codes: 3 if no known NPU reads the stream; the message names the word.";

/// Inspect the words that an NPU reads
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NpuArgs {
    #[command(subcommand)]
    command: NpuCommand,
}

#[derive(clap::Subcommand, Debug)]
enum NpuCommand {
    /// Decode a stream of words into operations
    Words(WordsArgs),
}

#[derive(clap::Args, Debug)]
struct WordsArgs {
    /// The stream: binary, as mlir-aie's insts.bin and `millrace aie words --output` have it, or text of hexadecimal words
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &NpuArgs, _ui: Ui) -> CommandResult {
    let NpuCommand::Words(args) = &args.command;
    let listing = read(&args.file)?;
    let mut out = Out::new();
    if args.json {
        out.json(&listing)?;
        return out.flush();
    }
    out.line(&listing.title)?;
    for line in &listing.operations {
        out.line(format!("{:6}  {:<14} {}", line.word, line.operation, line.text).trim_end())?;
        for detail in &line.details {
            out.line(format!("        {detail}"))?;
        }
    }
    out.flush()
}

/// Decodes a file with the first target that recognises it.
fn read(path: &Path) -> Result<Disassembly, CommandFailure> {
    let file = std::fs::read(path).map_err(|error| CommandFailure::reading_file(path, &error))?;
    let readers = targets().iter().filter_map(|target| target.disassembler());
    let mut refusal = None;
    for reader in readers {
        match reader.disassemble(&file) {
            Ok(listing) => return Ok(listing),
            Err(error) => {
                let path = path.display();
                let failure = CommandFailure::bad_input(format!("{path}: {error}"));
                let hint = format!("This command reads {}.", reader.form());
                refusal.get_or_insert(failure.hint(hint));
            }
        }
    }
    Err(refusal.unwrap_or_else(|| CommandFailure::usage("no NPU here reads words")))
}
