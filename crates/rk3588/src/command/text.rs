//! The text form of commands: one a line.
//!
//! ```text
//! cna.DATA_SIZE0 DATAIN_WIDTH=1 DATAIN_HEIGHT=0x80
//! dpu.BS_ALU_CFG
//! filler
//! marker
//! enable cna core dpu dpu_rdma
//! ```
//!
//! Fields that are not named are zero. `#` begins a comment. Printing and parsing are inverse.

use super::Command;
use crate::regs::Block;
use std::fmt::Write;

/// A line that is not a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TextError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Description of the fault.
    pub problem: String,
}

/// One command as a line, without its end.
pub fn line(command: Command) -> String {
    match command {
        Command::Marker => "marker".into(),
        Command::Filler => "filler".into(),
        Command::Enable { mask } => {
            let blocks = Block::ALL.into_iter();
            let on = blocks.filter(|b| b.enable_bit().is_some_and(|bit| mask & bit != 0));
            on.fold(String::from("enable"), |text, block| {
                text + " " + block.name()
            })
        }
        Command::Write { reg, value } => {
            let Some(register) = reg.block.register(reg.offset) else {
                return format!("{}.{:#06x}", reg.block.name(), reg.offset);
            };
            let mut text = format!("{}.{}", reg.block.name(), register.name);
            for field in register.fields {
                let bits = field.get(value);
                // A String takes any text.
                let _ = match bits {
                    0 => Ok(()),
                    1..=9 => write!(text, " {}={bits}", field.name),
                    _ => write!(text, " {}={bits:#x}", field.name),
                };
            }
            text
        }
    }
}

/// All commands, a line each.
pub fn print(commands: &[Command]) -> String {
    commands.iter().fold(String::new(), |mut text, &command| {
        text.push_str(&line(command));
        text.push('\n');
        text
    })
}

/// Parses a text into commands.
///
/// # Errors
/// [`TextError`]: the first line that is not a command, and why.
pub fn parse(text: &str) -> Result<Vec<Command>, TextError> {
    let mut commands = Vec::new();
    for (at, full) in text.lines().enumerate() {
        let words = full.split('#').next().unwrap_or("").trim();
        if words.is_empty() {
            continue;
        }
        let command = parse_line(words).map_err(|problem| TextError {
            line: at + 1,
            problem,
        })?;
        commands.push(command);
    }
    Ok(commands)
}

/// Parses a line into a command.
///
/// # Errors
/// The fault, in words.
pub fn parse_line(line: &str) -> Result<Command, String> {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or("");
    match first {
        "marker" | "filler" => match words.next() {
            None if first == "marker" => Ok(Command::Marker),
            None => Ok(Command::Filler),
            Some(extra) => Err(format!("`{first}` takes nothing, found `{extra}`")),
        },
        "enable" => {
            let mut mask = 0;
            for name in words {
                let bit = Block::from_name(name).and_then(Block::enable_bit);
                mask |= bit.ok_or_else(|| format!("`{name}` is no block that can be enabled"))?;
            }
            Ok(Command::Enable { mask })
        }
        _ => parse_write(first, words),
    }
}

fn parse_write<'a>(
    register: &str,
    fields: impl Iterator<Item = &'a str>,
) -> Result<Command, String> {
    let (block, name) = register.split_once('.').ok_or_else(|| {
        format!(
            "expected `marker`, `filler`, `enable …` or `block.REGISTER FIELD=value …`, found `{register}`"
        )
    })?;
    let block = Block::from_name(block).ok_or_else(|| format!("no block is named `{block}`"))?;
    let row = (block.registers().iter())
        .find(|r| r.name == name)
        .ok_or_else(|| format!("block `{}` has no register `{name}`", block.name()))?;
    let mut value = 0;
    let mut seen = 0;
    for word in fields {
        let (name, number) = (word.split_once('='))
            .ok_or_else(|| format!("expected `FIELD=value`, found `{word}`"))?;
        let field = (row.fields.iter())
            .find(|f| f.name == name)
            .ok_or_else(|| format!("register `{register}` has no field `{name}`"))?;
        let bits = parse_number(number).ok_or_else(|| format!("`{number}` is no number"))?;
        if bits > field.max() {
            let max = field.max();
            return Err(format!(
                "field `{name}` holds at most {max:#x}, found {bits:#x}"
            ));
        }
        if seen & field.mask() != 0 {
            return Err(format!("field `{name}` is set twice"));
        }
        seen |= field.mask();
        value |= field.put(bits);
    }
    let reg = row.reg;
    Ok(Command::Write { reg, value })
}

fn parse_number(text: &str) -> Option<u32> {
    let digits = |text: &str, radix| {
        // `from_str_radix` takes a sign, which no field has.
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric());
        plain.then(|| u32::from_str_radix(text, radix).ok())?
    };
    match text.strip_prefix("0x") {
        Some(hex) => digits(hex, 16),
        None => digits(text, 10),
    }
}
