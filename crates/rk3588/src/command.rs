//! Register commands: the 64-bit words that an NPU core's program controller fetches.
//!
//! | bits | field |
//! |---|---|
//! | 63–48 | target: a block's number with the lowest bit set writes a register; `0x0041` marks the end of the writes, `0x0081` enables blocks |
//! | 47–16 | value |
//! | 15–0 | register |
//!
//! A word of zeros does nothing. [`decode`] refuses words that the table does not know; commands that it accepts [`encode`] to the same
//! words. The text form is in [`text`].

pub mod text;

use crate::regs::{Block, Field, Reg};

/// Target of the marker before the enable command.
pub(crate) const MARKER_TARGET: u16 = 0x0041;
/// Target of the enable command.
pub(crate) const ENABLE_TARGET: u16 = 0x0081;
/// Register of the enable command: the blocks' `OPERATION_ENABLE`.
pub(crate) const ENABLE_REGISTER: u16 = 0x0008;

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Writes a register.
    Write {
        /// The register.
        reg: Reg,
        /// The value.
        value: u32,
    },
    /// Ends the writes.
    Marker,
    /// Starts the blocks of the mask (`Block::enable_bit`).
    Enable {
        /// The mask.
        mask: u32,
    },
    /// Does nothing.
    Filler,
}

/// A word that is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {position} ({word:#018x}): {problem}")]
pub struct DecodeError {
    /// Index of the word.
    pub position: usize,
    /// The word.
    pub word: u64,
    /// The fault.
    pub problem: WordProblem,
}

/// Fault of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordProblem {
    /// No block has that number.
    #[error("no block is reached by target {target:#06x}")]
    Target {
        /// The target.
        target: u16,
    },
    /// The block has no such register.
    #[error("block `{}` has no register at {offset:#06x}", block.name())]
    Register {
        /// The block.
        block: Block,
        /// The offset.
        offset: u16,
    },
    /// Bits of no field are set.
    #[error(
        "`{}.{register}` has value {value:#x}, but bits {reserved:#x} are reserved",
        block.name()
    )]
    Reserved {
        /// The block.
        block: Block,
        /// The register's name.
        register: &'static str,
        /// The value.
        value: u32,
        /// The part of its bits that belong to no field.
        reserved: u32,
    },
    /// A marker with a value or a register.
    #[error("a marker has value 0 and register 0")]
    Marker,
    /// An enable command of another register or for bits of no block.
    #[error("an enable command writes register 0x0008 with bits of blocks (0x7d)")]
    Enable,
}

impl Command {
    /// Writes a register from its fields.
    pub fn write(reg: Reg, fields: &[(Field, u32)]) -> Command {
        let value = fields.iter().fold(0, |value, (field, bits)| {
            debug_assert_eq!(field.reg, reg);
            value | field.put(*bits)
        });
        Command::Write { reg, value }
    }

    /// The word.
    pub fn encode(self) -> u64 {
        let word = |target: u16, value: u32, register: u16| {
            u64::from(target) << 48 | u64::from(value) << 16 | u64::from(register)
        };
        match self {
            Command::Write { reg, value } => word(reg.block.id() | 1, value, reg.offset),
            Command::Marker => word(MARKER_TARGET, 0, 0),
            Command::Enable { mask } => word(ENABLE_TARGET, mask, ENABLE_REGISTER),
            Command::Filler => 0,
        }
    }

    /// The command of a word.
    ///
    /// # Errors
    /// [`WordProblem`] where there is none.
    pub fn decode(word: u64) -> Result<Command, WordProblem> {
        let (target, value, offset) = ((word >> 48) as u16, (word >> 16) as u32, word as u16);
        if word == 0 {
            return Ok(Command::Filler);
        }
        match target {
            MARKER_TARGET if value == 0 && offset == 0 => return Ok(Command::Marker),
            MARKER_TARGET => return Err(WordProblem::Marker),
            ENABLE_TARGET if offset == ENABLE_REGISTER && value & !all_blocks() == 0 => {
                return Ok(Command::Enable { mask: value });
            }
            ENABLE_TARGET => return Err(WordProblem::Enable),
            _ => {}
        }
        let block = Block::from_write_target(target).ok_or(WordProblem::Target { target })?;
        let register = (block.register(offset)).ok_or(WordProblem::Register { block, offset })?;
        let reserved = value & !register.mask();
        if reserved != 0 {
            return Err(WordProblem::Reserved {
                block,
                register: register.name,
                value,
                reserved,
            });
        }
        let reg = register.reg;
        Ok(Command::Write { reg, value })
    }
}

/// The enable bits of all blocks.
fn all_blocks() -> u32 {
    let bits = Block::ALL.into_iter().filter_map(Block::enable_bit);
    bits.fold(0, |mask, bit| mask | bit)
}

/// The words of commands.
pub fn encode(commands: &[Command]) -> Vec<u64> {
    commands.iter().map(|c| c.encode()).collect()
}

/// Decodes words into commands.
///
/// # Errors
/// [`DecodeError`]: the first word that is not a command, and why.
pub fn decode(words: &[u64]) -> Result<Vec<Command>, DecodeError> {
    let words = words.iter().enumerate();
    words
        .map(|(position, &word)| {
            Command::decode(word).map_err(|problem| DecodeError {
                position,
                word,
                problem,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
