//! The scratchpad: words that a host gives a run in addition to its arguments.
//!
//! Source: mlir-aie's `AIEX.td` (`npu.create_scratchpad`, `npu.update_from_scratchpad`). Firmware copies the host's words
//! once, and adds a value derived from one of them to an address of 48 bits in two registers. The address's two lowest
//! bits become 0, and its sixteen highest stay.

use super::super::Board;
use super::super::fault::BoardProblem;
use super::locate;
use crate::register::BlockKind;
use crate::txn::{ScratchpadFunction, TxnOperation};

/// Bytes of a scratchpad, at most.
const MOST_BYTES: u32 = 128;
/// The bits of a first register that are an address.
const LOW: u32 = 0xFFFF_FFFC;
/// The bits of a second register that are an address.
const HIGH: u32 = 0xFFFF;

/// A scratchpad's words.
#[derive(Default)]
pub(in crate::board) struct Scratchpad {
    /// The host's.
    host: Option<Vec<u32>>,
    /// The firmware's copy, once a stream has created it.
    pub(in crate::board) firmware: Option<Vec<u32>>,
}

impl Board<'_> {
    /// Sets the content of the host's scratchpad for streams from here on.
    pub fn give_scratchpad(&mut self, words: Vec<u32>) {
        self.scratchpad.host = Some(words);
    }

    /// Makes the scratchpad, or adds a value derived from a word of it; other operations do nothing here.
    pub(super) fn use_scratchpad(&mut self, operation: &TxnOperation) -> Result<(), BoardProblem> {
        match *operation {
            TxnOperation::CreateScratchpad {
                usage, size_bytes, ..
            } => self.create_scratchpad(usage, size_bytes),
            TxnOperation::UpdateAddress {
                entry,
                function,
                number,
                register,
            } => self.update_address(entry, (function, number), register),
            _ => Ok(()),
        }
    }

    fn create_scratchpad(&mut self, usage: u8, bytes: u32) -> Result<(), BoardProblem> {
        let wrong = |problem: String| Err(BoardProblem::Wrong(problem));
        if usage != 0 {
            return Err(BoardProblem::Undefined(format!(
                "a scratchpad of usage {usage}"
            )));
        }
        if !(4..=MOST_BYTES).contains(&bytes) || !bytes.is_multiple_of(4) {
            return wrong(format!(
                "a scratchpad of {bytes} bytes; it has whole words, and {MOST_BYTES} bytes at most"
            ));
        }
        if self.scratchpad.firmware.is_some() {
            return wrong("a second scratchpad in one stream".to_owned());
        }
        let Some(host) = &self.scratchpad.host else {
            return wrong("the host gave no scratchpad".to_owned());
        };
        let n_words = bytes as usize / 4;
        let words = host.get(..n_words).map(<[u32]>::to_vec);
        let Some(words) = words else {
            let n = host.len();
            return wrong(format!("{n_words} words; the host's scratchpad has {n}"));
        };
        self.scratchpad.firmware = Some(words);
        Ok(())
    }

    /// Adds to the address in a register and the next one.
    fn update_address(
        &mut self,
        entry: u8,
        (function, number): (ScratchpadFunction, u32),
        register: u32,
    ) -> Result<(), BoardProblem> {
        let Some(scratchpad) = &self.scratchpad.firmware else {
            let problem = "there is no scratchpad yet".to_owned();
            return Err(BoardProblem::Wrong(problem));
        };
        let word = scratchpad.get(usize::from(entry)).copied();
        let word = word.ok_or_else(|| {
            let n = scratchpad.len();
            BoardProblem::Wrong(format!("word {entry} of a scratchpad of {n} words"))
        })?;
        let more = match function {
            ScratchpadFunction::Multiply => word.checked_mul(number),
            ScratchpadFunction::Add => word.checked_add(number),
            ScratchpadFunction::Subtract => word.checked_sub(number),
        };
        // No source says how many bits they have, and whether they are signed.
        let more = more.ok_or_else(|| {
            let sign = function.sign();
            BoardProblem::Undefined(format!("{word} {sign} {number}, which 32 bits do not hold"))
        })?;
        let [first, second] = [u64::from(register), u64::from(register) + 4];
        let (low, high) = (self.word_at(first)?, self.word_at(second)?);
        let address = u64::from(high & HIGH) << 32 | u64::from(low & LOW);
        let sum = address + u64::from(more);
        self.write_register(first, sum as u32 & LOW)?;
        self.write_register(second, high & !HIGH | (sum >> 32) as u32 & HIGH)
    }

    /// A word as firmware finds it; for descriptors the written value.
    fn word_at(&mut self, address: u64) -> Result<u32, BoardProblem> {
        let (tile, found) = locate(address)?;
        if found.block.kind != BlockKind::Descriptor {
            return self.read_register(address);
        }
        let words = &self.tiles[tile.index()].descriptors[found.number as usize];
        words[found.word as usize].ok_or_else(|| {
            BoardProblem::Wrong("an update before the descriptor was written".to_owned())
        })
    }
}
