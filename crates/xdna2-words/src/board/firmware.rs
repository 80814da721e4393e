//! Firmware: executes a stream.

mod registers;
mod scratchpad;

use super::fault::{BoardError, BoardProblem, RacedWord};
use super::{Board, BoardEvent};
use crate::field::{Record, WordField};
use crate::register::BlockKind;
use crate::tile::{Direction, Tile, TileKind};
use crate::txn::{StreamOperation, TxnOperation};
use crate::writer::ChannelAt;
pub(super) use registers::locate;
pub(super) use scratchpad::Scratchpad;

/// How an operation went.
enum Outcome {
    Done,
    Waits,
}

impl Board<'_> {
    /// Executes an operation; `false` if it waits.
    pub(super) fn operate(
        &mut self,
        number: usize,
        operation: &StreamOperation,
    ) -> Result<bool, BoardError> {
        let checked = match self.options.strict {
            true => check_hints(operation),
            false => Ok(()),
        };
        let operation = &operation.operation;
        match checked.and_then(|()| self.perform(operation)) {
            Ok(Outcome::Done) => Ok(true),
            Ok(Outcome::Waits) => Ok(false),
            Err(problem) => {
                let what = describe(operation);
                Err(BoardError::of_operation(number, what, problem))
            }
        }
    }

    /// Records the channel of a poll after the sequence's end that has to wait.
    pub(super) fn is_late(&mut self, number: usize, operation: &StreamOperation) {
        let TxnOperation::MaskPoll { address, .. } = operation.operation else {
            return;
        };
        if self.options.end.is_none_or(|end| number < end) {
            return;
        }
        if let Ok((tile, found)) = locate(address)
            && let BlockKind::Status(direction) = found.block.kind
        {
            self.late.insert(ChannelAt {
                tile,
                direction,
                number: found.number as u8,
            });
        }
    }

    /// Channels that still had work when the last run's sequence had ended.
    pub fn late(&self) -> impl Iterator<Item = ChannelAt> {
        self.late.iter().copied()
    }

    /// The word that two parties touched at once, if that ended the run.
    pub fn raced(&self) -> Option<RacedWord> {
        self.raced.get()
    }

    fn perform(&mut self, operation: &TxnOperation) -> Result<Outcome, BoardProblem> {
        match operation {
            TxnOperation::Write { address, value } => self.write_register(*address, *value)?,
            TxnOperation::BlockWrite { address, data } => {
                for (i, &value) in data.iter().enumerate() {
                    self.write_register(u64::from(*address) + 4 * i as u64, value)?;
                }
            }
            &TxnOperation::MaskWrite {
                address,
                value,
                mask,
            } => {
                let old = self.read_register(address)?;
                self.write_register(address, old & !mask | value & mask)?;
            }
            &TxnOperation::MaskPoll {
                address,
                value,
                mask,
                ..
            } => {
                let known = known_bits(address)?;
                if mask & !known != 0 {
                    let problem = format!("bits {:#010x} of what is polled", mask & !known);
                    return Err(BoardProblem::Undefined(problem));
                }
                if self.read_register(address)? & mask != value {
                    return Ok(Outcome::Waits);
                }
            }
            TxnOperation::Noop => {}
            &TxnOperation::Sync {
                direction,
                col,
                row,
                channel,
                n_cols,
                n_rows,
            } => return self.sync(direction, (col, row), channel, (n_cols, n_rows)),
            &TxnOperation::Patch {
                register,
                argument,
                plus_bytes,
            } => self.patch(register, argument, plus_bytes)?,
            TxnOperation::CreateScratchpad { .. } | TxnOperation::UpdateAddress { .. } => {
                self.use_scratchpad(operation)?;
            }
            TxnOperation::Preempt { .. }
            | TxnOperation::LoadPdi { .. }
            | TxnOperation::Raw { .. } => {
                let problem = "what it does to the array".to_owned();
                return Err(BoardProblem::Undefined(problem));
            }
        }
        Ok(Outcome::Done)
    }

    fn sync(
        &mut self,
        direction: u8,
        (col, row): (u8, u8),
        channel: u8,
        (n_cols, n_rows): (u8, u8),
    ) -> Result<Outcome, BoardProblem> {
        let direction = [Direction::S2mm, Direction::Mm2s][usize::from(direction & 1)];
        if n_cols == 0 || n_rows == 0 {
            return Err(BoardProblem::Undefined("a wait for no tile".to_owned()));
        }
        let mut keys = Vec::new();
        for col in (0..n_cols).map(|i| u32::from(col) + u32::from(i)) {
            for row in (0..n_rows).map(|i| u32::from(row) + u32::from(i)) {
                let tile = Tile::new(col, row).filter(|tile| channel < tile.kind().channels());
                let tile = tile.ok_or_else(|| {
                    BoardProblem::Wrong(format!("no channel {channel} at column {col}, row {row}"))
                })?;
                keys.push((tile.index(), direction, channel));
            }
        }
        if keys
            .iter()
            .any(|key| self.tokens.get(key).is_none_or(|&n| n == 0))
        {
            return Ok(Outcome::Waits);
        }
        for key in keys {
            if let Some(n) = self.tokens.get_mut(&key) {
                *n -= 1;
            }
            self.event(|board| BoardEvent::Awaited {
                channel: board.event_channel(key.0, key.1, key.2),
            });
        }
        Ok(Outcome::Done)
    }

    /// Sets the address in a shim's descriptor: an argument's, and so many bytes more.
    fn patch(&mut self, register: u64, argument: u32, plus_bytes: u64) -> Result<(), BoardProblem> {
        let (tile, found) = locate(register)?;
        if found.block.kind != BlockKind::Descriptor
            || tile.kind() != TileKind::Shim
            || found.word != 1
        {
            let problem = "a patch of what is no address of a shim's descriptor".to_owned();
            return Err(BoardProblem::Wrong(problem));
        }
        let buffer = self.ddr.get(argument as usize).ok_or_else(|| {
            BoardProblem::Wrong(format!("argument {argument} of {}", self.ddr.len()))
        })?;
        let plus = buffer
            .address
            .checked_add(plus_bytes)
            .filter(|sum| sum % 4 == 0);
        let plus = plus.ok_or_else(|| {
            BoardProblem::Wrong(format!("a distance of {plus_bytes} bytes: not whole words"))
        })?;
        self.descriptor_is_free(tile, found.number as u8)?;
        let words = &mut self.tiles[tile.index()].descriptors[found.number as usize];
        let whole: Option<Vec<u32>> = words.iter().copied().collect();
        let whole = whole.ok_or_else(|| {
            BoardProblem::Wrong("a patch before the descriptor was written".to_owned())
        })?;
        let mut record = Record::read(crate::descriptor::layout(TileKind::Shim), &whole)?;
        record.set(WordField::Base, plus / 4)?;
        for (word, value) in words.iter_mut().zip(record.words()) {
            *word = Some(value);
        }
        Ok(())
    }
}

/// Bits of a register that the board returns when it is polled.
fn known_bits(address: u64) -> Result<u32, BoardProblem> {
    Ok(match locate(address)?.1.block.kind {
        // Done and enabled; stalls are not modelled.
        BlockKind::CoreStatus => 1 << 20 | 1,
        // Overflow, running and tasks that wait.
        BlockKind::Status(_) => 0x1F << 18,
        _ => u32::MAX,
    })
}

/// Checks that columns and rows given with an address are those of the address.
fn check_hints(operation: &StreamOperation) -> Result<(), BoardProblem> {
    let address = match operation.operation {
        TxnOperation::Write { address, .. }
        | TxnOperation::MaskWrite { address, .. }
        | TxnOperation::MaskPoll { address, .. } => address,
        TxnOperation::BlockWrite { address, .. } => address.into(),
        _ => return Ok(()),
    };
    let tile = locate(address)?.0;
    let expected = u32::from(tile.col) | u32::from(tile.row) << 8;
    let hints = [operation.hints.first, operation.hints.second];
    match hints
        .into_iter()
        .find(|&hint| hint != 0 && hint != expected)
    {
        None => Ok(()),
        Some(hint) => Err(BoardProblem::NoEffect(format!(
            "{hint:#x} beside an address of {tile}"
        ))),
    }
}

/// Description of an operation.
pub(super) fn describe(operation: &TxnOperation) -> String {
    let line = crate::listing::describe(operation);
    format!("{} {}", line.operation, line.text)
}
