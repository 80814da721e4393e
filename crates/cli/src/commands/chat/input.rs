//! User input, one message or command at a time.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Paint, Ui, colours};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{BufRead, ErrorKind, IsTerminal};

/// Delimiter of a message of several lines.
const FENCE: &str = "\"\"\"";

/// An item of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatInput {
    /// A message for the model.
    Message(String),
    /// `/name rest`.
    Command(String, String),
    /// End of input.
    End,
}

/// Source of lines: an editor at a terminal, plain lines otherwise.
pub(super) struct Input {
    editor: Option<DefaultEditor>,
    ui: Ui,
    /// Whether nothing has been read yet: a file may begin with a byte order mark.
    at_start: bool,
}

/// A line, or none at the end of input; `Some(None)` is a line abandoned with Ctrl-C.
type TypedLine = Option<Option<String>>;

impl Input {
    pub(super) fn new(ui: Ui) -> CommandResult<Input> {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let editor = is_terminal
            .then(DefaultEditor::new)
            .transpose()
            .map_err(|error| failure(&error))?;
        Ok(Input {
            editor,
            ui,
            at_start: true,
        })
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.editor.is_some()
    }

    /// Reads the next message or command, skipping empty lines.
    pub(super) fn next(&mut self) -> CommandResult<ChatInput> {
        loop {
            let prompt = if colours(self.is_terminal()) {
                Paint::Good.stdout(">>> ")
            } else {
                ">>> ".into()
            };
            let line = assemble(&mut |first| self.read(if first { &prompt } else { "... " }))?;
            let Some(text) = line else {
                return Ok(ChatInput::End);
            };
            if text.trim().is_empty() {
                continue;
            }
            if let Some(editor) = &mut self.editor {
                // A full history file must not end the conversation.
                let _ = editor.add_history_entry(text.as_str());
            }
            return Ok(classify(text));
        }
    }

    fn read(&mut self, prompt: &str) -> CommandResult<TypedLine> {
        let Some(editor) = &mut self.editor else {
            let mut line = String::new();
            let n = std::io::stdin().lock().read_line(&mut line);
            let n = n.map_err(|error| CommandFailure::io("cannot read standard input", &error))?;
            let mark = if self.at_start { "\u{feff}" } else { "" };
            self.at_start = false;
            let text = line.strip_prefix(mark).unwrap_or(&line);
            return Ok((n > 0).then(|| Some(text.trim_end_matches(['\n', '\r']).to_owned())));
        };
        match editor.readline(prompt) {
            Ok(line) => Ok(Some(Some(line))),
            Err(ReadlineError::Interrupted) => Ok(Some(None)),
            Err(ReadlineError::Eof) => Ok(None),
            // A pasted byte that is no UTF-8 must not end the conversation.
            Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                self.ui
                    .warn("that line has bytes that are not UTF-8, and is left out");
                Ok(Some(None))
            }
            Err(error) => Err(failure(&error)),
        }
    }
}

fn failure(error: &ReadlineError) -> CommandFailure {
    CommandFailure::io(
        "cannot read from the terminal",
        &std::io::Error::other(error.to_string()),
    )
}

/// Joins continued and fenced lines. The argument of `read` says whether this is the first line. An
/// unfinished message at the end of input counts.
fn assemble(
    read: &mut dyn FnMut(bool) -> CommandResult<TypedLine>,
) -> CommandResult<Option<String>> {
    let Some(typed) = read(true)? else {
        return Ok(None);
    };
    let Some(first) = typed else {
        return Ok(Some(String::new()));
    };
    let mut lines = Vec::new();
    if first.trim() == FENCE {
        while let Some(typed) = read(false)? {
            match typed {
                None => return Ok(Some(String::new())),
                Some(line) if line.trim() == FENCE => break,
                Some(line) => lines.push(line),
            }
        }
        return Ok(Some(lines.join("\n")));
    }
    let mut line = first;
    while let Some(begun) = line.strip_suffix('\\') {
        lines.push(begun.to_owned());
        match read(false)? {
            Some(Some(next)) => line = next,
            Some(None) => return Ok(Some(String::new())),
            None => return Ok(Some(lines.join("\n"))),
        }
    }
    lines.push(line);
    Ok(Some(lines.join("\n")))
}

/// A slash in the first column makes a command.
fn classify(text: String) -> ChatInput {
    let Some(command) = text.strip_prefix('/') else {
        return ChatInput::Message(text);
    };
    let (name, rest) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    match name {
        "quit" | "bye" | "exit" => ChatInput::Command("exit".to_owned(), String::new()),
        name => ChatInput::Command(name.to_owned(), rest.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(lines: &[&str]) -> Vec<String> {
        let mut rest = lines.iter();
        let mut messages = Vec::new();
        let mut read = |_| Ok(rest.next().map(|line| Some((*line).to_owned())));
        while let Ok(Some(message)) = assemble(&mut read) {
            messages.push(message);
        }
        messages
    }

    #[test]
    fn lines_join_by_backslash_and_by_fence() {
        let lines = [
            "one", "two \\", "three", FENCE, "four", "", "five", FENCE, "six\\",
        ];
        assert_eq!(
            assembled(&lines),
            ["one", "two \nthree", "four\n\nfive", "six"]
        );
    }

    #[test]
    fn ctrl_c_gives_up_what_was_begun() {
        let mut typed = vec![None, Some("begun \\".to_owned())];
        let mut read = |_| Ok(Some(typed.pop().flatten()));
        assert_eq!(assemble(&mut read).expect("no error"), Some(String::new()));
    }

    #[test]
    fn a_slash_makes_a_command() {
        for (text, line) in [
            (
                "/save  a b.json ",
                ChatInput::Command("save".into(), "a b.json".into()),
            ),
            ("/quit", ChatInput::Command("exit".into(), String::new())),
            (
                " /not a command",
                ChatInput::Message(" /not a command".into()),
            ),
        ] {
            assert_eq!(classify(text.to_owned()), line);
        }
    }
}
