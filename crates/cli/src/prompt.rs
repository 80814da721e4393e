//! Input text of a command: from the command line, a file, or standard input.

use crate::exit::{CommandFailure, CommandResult};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Source of the text.
#[derive(clap::Args, Debug)]
pub(crate) struct TextArgs {
    /// Text; `-` or nothing reads standard input (put `--` before a text that begins with a dash)
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Read the text from a file (`-`: standard input)
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "text")]
    pub(crate) file: Option<PathBuf>,
}

impl TextArgs {
    /// Whether no text was given and standard input is a terminal.
    pub(crate) fn is_interactive(&self) -> bool {
        self.text.is_none() && self.file.is_none() && std::io::stdin().is_terminal()
    }

    /// Reads the text. A file's last line end is not part of it: editors and `echo` add one.
    pub(crate) fn read(&self) -> CommandResult<String> {
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

/// Reads a text file, or standard input for `-`: UTF-8, or UTF-16 with a byte order mark. The mark is not part of the text.
pub(crate) fn read_file(path: &Path) -> CommandResult<String> {
    if path == Path::new("-") {
        return read_stdin();
    }
    let bytes = std::fs::read(path).map_err(|error| CommandFailure::reading_file(path, &error))?;
    decode(&bytes, &path.display().to_string())
}

fn read_stdin() -> CommandResult<String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| CommandFailure::io("cannot read standard input", &error))?;
    decode(&bytes, "standard input")
}

/// Decodes UTF-8, or the encoding that a byte order mark names.
pub(crate) fn decode(bytes: &[u8], source: &str) -> CommandResult<String> {
    match bytes {
        // UTF-32's little-endian mark begins with UTF-16's.
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => Err(CommandFailure::bad_input(format!(
            "{source} is UTF-32 text: save it as UTF-8"
        ))),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes, source),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes, source),
        _ => utf8(bytes, source),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16, source: &str) -> CommandResult<String> {
    let bad = |offset: usize| {
        CommandFailure::bad_input(format!(
            "{source} is not UTF-16 text, as its byte order mark says: the bytes at offset {offset}"
        ))
    };
    const MARK_BYTES: usize = 2;
    let (units, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(bad(MARK_BYTES + bytes.len() - 1));
    }
    let mut text = String::with_capacity(bytes.len() / 2);
    let mut offset = MARK_BYTES;
    for decoded in char::decode_utf16(units.iter().map(|bytes| unit(*bytes))) {
        let character = decoded.map_err(|_| bad(offset))?;
        offset += 2 * character.len_utf16();
        text.push(character);
    }
    Ok(text)
}

fn utf8(bytes: &[u8], source: &str) -> CommandResult<String> {
    const MARK: &[u8] = b"\xEF\xBB\xBF";
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{FEFF}').unwrap_or(text).to_owned()),
        Err(error) => {
            let offset = error.valid_up_to();
            // Text of the first planes in UTF-16 has a zero byte in each character.
            let looks_wide = bytes.iter().take(64).filter(|byte| **byte == 0).count() > 16;
            let advice = match looks_wide && !bytes.starts_with(MARK) {
                true => "; it looks like UTF-16 without a byte order mark: save it as UTF-8",
                false => "; save it as UTF-8",
            };
            Err(CommandFailure::bad_input(format!(
                "{source} is not UTF-8 text: the byte at offset {offset}{advice}"
            )))
        }
    }
}

/// Refuses an empty text.
pub(crate) fn check_not_empty(text: &str) -> CommandResult {
    if text.is_empty() {
        return Err(CommandFailure::usage("the prompt is empty")
            .hint("give a text, a file with -f FILE, or pipe one into standard input"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_marks_are_no_text() {
        for (bytes, text) in [
            (b"h\xc3\xa9".as_slice(), "h\u{e9}"),
            (b"\xef\xbb\xbfhi", "hi"),
            (b"\xef\xbb\xbf\xef\xbb\xbfhi", "\u{feff}hi"),
            (b"\xff\xfeh\0\xe9\0\x3d\xd8\0\xde", "h\u{e9}\u{1f600}"),
            (b"\xfe\xff\0h\0\xe9", "h\u{e9}"),
            (b"\xff\xfe", ""),
            (b"", ""),
        ] {
            assert_eq!(decode(bytes, "p.txt").expect(text), text);
        }
        for (bytes, said) in [
            (
                b"caf\xe9".as_slice(),
                "p.txt is not UTF-8 text: the byte at offset 3",
            ),
            (
                b"\xff\xfeh\0i",
                "not UTF-16 text, as its byte order mark says: the bytes at offset 4",
            ),
            (b"\xff\xfeh\0\x3d\xd8h\0", "the bytes at offset 4"),
            (b"\xff\xfe\0\0h\0\0\0", "UTF-32 text: save it as UTF-8"),
            (
                &b"\xe9\0".repeat(40),
                "looks like UTF-16 without a byte order mark",
            ),
        ] {
            let failure = decode(bytes, "p.txt").expect_err(said);
            assert!(failure.message.contains(said), "{}", failure.message);
        }
    }
}
