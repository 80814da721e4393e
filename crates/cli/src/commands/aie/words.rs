//! `millrace aie words`: the transaction stream of a design.

use super::{DesignArgs, read, refused};
use crate::exit::{CommandFailure, CommandResult};
use crate::output::Out;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
pub(super) struct WordsArgs {
    #[command(flatten)]
    of: DesignArgs,
    /// Write the stream too, as firmware takes it: words of four bytes, the lowest first. `millrace npu words` reads it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// Lists the stream, and writes it where that is asked for.
pub(super) fn words(args: &WordsArgs) -> CommandResult {
    let path = &args.of.design;
    let design = read(&args.of)?;
    let stream = millrace_aie::words(&design).map_err(|error| refused(path, &error))?;
    if let Some(file) = &args.output {
        write(file, &stream.encode())?;
    }
    let listing = millrace_aie::listing(&stream);
    let mut out = Out::new();
    if args.of.json {
        let lines = listing.lines.iter().map(|line| {
            json!({ "word": line.word, "operation": line.operation, "text": line.text, "details": line.details, "words": line.words })
        });
        out.json(&json!({ "title": listing.title, "operations": lines.collect::<Vec<_>>() }))?;
        return out.flush();
    }
    out.line(&listing.title)?;
    for line in &listing.lines {
        out.line(format!("{:6}  {:<14} {}", line.word, line.operation, line.text).trim_end())?;
        for detail in &line.details {
            out.line(format!("        {detail}"))?;
        }
    }
    out.flush()
}

fn write(path: &Path, words: &[u32]) -> CommandResult {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let written = millrace_format::output::write(path, &bytes);
    written.map_err(|error| CommandFailure::writing(&error))
}
