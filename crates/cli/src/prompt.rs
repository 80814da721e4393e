//! Text that a command works on: from the command line, a file, or standard input.

use crate::exit::{Failure, Outcome};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Where text comes from.
#[derive(clap::Args, Debug)]
pub(crate) struct TextArgs {
    /// The text; `-` or nothing reads standard input (before one that begins with a dash put `--`)
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Read the text from a file
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "text")]
    pub(crate) file: Option<PathBuf>,
}

impl TextArgs {
    /// Whether nothing was given and a person sits at standard input.
    pub(crate) fn is_interactive(&self) -> bool {
        self.text.is_none() && self.file.is_none() && std::io::stdin().is_terminal()
    }

    /// The text. A file's last line end is not part of it: editors and `echo` add one.
    pub(crate) fn read(&self) -> Outcome<String> {
        let text = match (&self.text, &self.file) {
            (Some(text), _) if text != "-" => return Ok(text.clone()),
            (_, Some(path)) => read_file(path)?,
            _ => read_stdin()?,
        };
        let end = text
            .strip_suffix('\n')
            .map(|text| text.strip_suffix('\r').unwrap_or(text));
        Ok(end.unwrap_or(&text).to_owned())
    }
}

/// A text file.
pub(crate) fn read_file(path: &Path) -> Outcome<String> {
    let bytes = std::fs::read(path).map_err(|error| Failure::reading_file(path, &error))?;
    utf8(bytes, &path.display().to_string())
}

fn read_stdin() -> Outcome<String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::io("cannot read standard input", &error))?;
    utf8(bytes, "standard input")
}

fn utf8(bytes: Vec<u8>, source: &str) -> Outcome<String> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        Failure::bad_input(format!(
            "{source} is not UTF-8 text: the byte at offset {offset}"
        ))
    })
}

/// Refuses a text of no characters.
pub(crate) fn check_not_empty(text: &str) -> Outcome {
    if text.is_empty() {
        return Err(Failure::usage("the prompt is empty")
            .hint("give a text, a file with -f FILE, or pipe one into standard input"));
    }
    Ok(())
}
