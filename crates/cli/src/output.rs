//! Output for people and programs: standard output, notes on standard error, tables, units.
//!
//! Results go to standard output and nothing else does. Everything *about* the work goes to
//! standard error, so a pipe never carries chatter.

use crate::exit::{CommandFailure, CommandResult, Exit};
pub(crate) use millrace_plan::units::{bytes, duration, rate};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Verbosity of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    /// `--quiet`: errors only.
    pub(crate) quiet: bool,
    /// `--verbose`: details too.
    pub(crate) verbose: bool,
}

impl Ui {
    /// Prints a note; silent with `--quiet`.
    pub(crate) fn note(self, text: impl Display) {
        if !self.quiet {
            say(&text.to_string());
        }
    }

    /// Prints a warning about a probable fault that does not stop the work; silent with `--quiet`.
    pub(crate) fn warn(self, text: impl Display) {
        if !self.quiet {
            say(&format!("{} {text}", Paint::Warning.stderr("warning:")));
        }
    }

    /// Prints a detail for `--verbose`.
    pub(crate) fn detail(self, text: impl Display) {
        if self.verbose && !self.quiet {
            say(&Paint::Dim.stderr(&text.to_string()));
        }
    }
}

/// Prints a failure in the form common to all commands.
pub(crate) fn report(failure: &CommandFailure) {
    if !failure.message.is_empty() {
        // The message may quote a file.
        let message = printable(&failure.message);
        say(&format!("{} {message}", Paint::Error.stderr("error:")));
        if let Some(hint) = &failure.hint {
            say(&format!("{} {hint}", Paint::Bold.stderr("hint:")));
        }
    }
}

/// Prints a line on standard error. If that is closed nobody reads it, so a failure is dropped.
fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Text from a file or a model, without control characters that could affect a terminal; line ends and tabs stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let drives = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    // Printable ASCII, nearly all there is, needs no decoding.
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.contains(drives) {
        text.replace(drives, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Text styles; each becomes plain text when the stream is not a terminal or `NO_COLOR` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Bold,
    Dim,
    Good,
    Warning,
    Error,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Good => "1;32",
            Paint::Warning => "1;33",
            Paint::Error => "1;31",
        }
    }

    /// Styled for standard error.
    pub(crate) fn stderr(self, text: &str) -> String {
        self.apply(text, colours(io::stderr().is_terminal()))
    }

    /// Styled for standard output.
    pub(crate) fn stdout(self, text: &str) -> String {
        self.apply(text, colours(io::stdout().is_terminal()))
    }

    fn apply(self, text: &str, on: bool) -> String {
        if on {
            format!("\x1b[{}m{text}\x1b[0m", self.code())
        } else {
            text.to_owned()
        }
    }
}

/// Whether a stream gets colours: it is a terminal that can show them, and the user did not refuse
/// (<https://no-color.org>).
pub(crate) fn colours(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !set("NO_COLOR") && !dumb
}

/// Standard output that reports errors instead of panicking.
pub(crate) struct Out {
    writer: io::BufWriter<io::Stdout>,
    is_terminal: bool,
}

impl Out {
    pub(crate) fn new() -> Out {
        let stdout = io::stdout();
        Out {
            is_terminal: stdout.is_terminal(),
            writer: io::BufWriter::new(stdout),
        }
    }

    /// Writes text unchanged.
    pub(crate) fn text(&mut self, text: impl Display) -> CommandResult {
        write!(self.writer, "{text}").map_err(|error| stdout_failure(&error))
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl Display) -> CommandResult {
        writeln!(self.writer, "{text}").map_err(|error| stdout_failure(&error))
    }

    /// Writes a model's text and shows it at once: [`printable`] on a terminal, unchanged elsewhere.
    pub(crate) fn stream(&mut self, text: &str) -> CommandResult {
        let text = if self.is_terminal {
            printable(text)
        } else {
            text.into()
        };
        self.text(text)?;
        self.flush()
    }

    /// Writes a value as indented JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> CommandResult {
        let text = serde_json::to_string_pretty(value)
            .expect("the values printed here have string keys and finite or null numbers");
        self.line(text)?;
        self.flush()
    }

    /// Flushes all output to the system. Call it last: a full disk shows only here.
    pub(crate) fn flush(&mut self) -> CommandResult {
        self.writer.flush().map_err(|error| stdout_failure(&error))
    }
}

/// A reader that went away (`| head`) has read enough; anything else is a failed write.
fn stdout_failure(error: &io::Error) -> CommandFailure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CommandFailure::new(Exit::Ok, ""),
        _ => CommandFailure::io("cannot write to standard output", error),
    }
}

/// Alignment of a table column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under headings, padded to the widest cell of each column.
pub(crate) struct TextTable {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
}

/// Spaces between two columns.
const GAP: usize = 2;

impl TextTable {
    pub(crate) fn new<S: AsRef<str>>(columns: &[(S, Align)]) -> TextTable {
        let named = columns
            .iter()
            .map(|(name, align)| (name.as_ref().to_owned(), *align));
        TextTable {
            columns: named.collect(),
            rows: Vec::new(),
            widths: columns
                .iter()
                .map(|(name, _)| width(name.as_ref()))
                .collect(),
        }
    }

    /// Adds a row with one cell per column. Cells may come from files, so they are made [`printable`].
    pub(crate) fn row(&mut self, mut cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        for (cell, widest) in cells.iter_mut().zip(&mut self.widths) {
            if let Cow::Owned(harmless) = printable(cell) {
                *cell = harmless;
            }
            *widest = width(cell).max(*widest);
        }
        self.rows.push(cells);
    }

    /// Prints headings and rows, indented by two spaces.
    pub(crate) fn print(&self, out: &mut Out) -> CommandResult {
        let headings = self.padded(self.columns.iter().map(|(name, _)| &name[..]));
        out.line(format_args!("  {}", Paint::Dim.stdout(&headings)))?;
        for row in &self.rows {
            let line = self.padded(row.iter().map(String::as_str));
            out.line(format_args!("  {line}"))?;
        }
        Ok(())
    }

    /// Joins a row's cells, without trailing spaces.
    fn padded<'a>(&self, cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        let columns = self.widths.iter().zip(&self.columns);
        for (i, (cell, (to, (_, align)))) in cells.zip(columns).enumerate() {
            let gap = if i > 0 { GAP } else { 0 };
            let fill = to.saturating_sub(width(cell));
            let (before, behind) = match align {
                Align::Left => (gap, fill),
                Align::Right => (gap + fill, 0),
            };
            line.extend(std::iter::repeat_n(' ', before));
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', behind));
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Number of characters, which are bytes in ASCII.
fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    }
}

/// Formats a count in decimal units as model cards do: `1.24 B`, `354 k`.
pub(crate) fn count(n: u64) -> String {
    let value = n as f64;
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1} k", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", value / 1e6),
        _ => format!("{:.2} B", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_switch_where_the_digits_do() {
        for (n, text) in [(999, "999"), (1000, "1.0 k"), (1_235_814_432, "1.24 B")] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn cells_are_padded_by_characters_not_bytes() {
        let mut table = TextTable::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["é".into(), "1".into()]);
        table.row(vec!["abcdef".into(), "100".into()]);
        assert_eq!(table.padded(["é", "1"].into_iter()), "é         1");
        assert_eq!(table.padded(["abcdef", "100"].into_iter()), "abcdef  100");
    }

    #[test]
    fn text_cannot_drive_the_terminal() {
        assert_eq!(printable("a\tb\nü"), "a\tb\nü");
        assert_eq!(
            printable("\x1b]0;x\x07\u{9b}2J\r"),
            "\u{fffd}]0;x\u{fffd}\u{fffd}2J\u{fffd}"
        );
    }

    #[test]
    fn plain_text_without_a_terminal() {
        assert_eq!(Paint::Error.apply("x", false), "x");
        assert_eq!(Paint::Bold.apply("x", true), "\x1b[1mx\x1b[0m");
        assert!(!colours(false));
    }
}
