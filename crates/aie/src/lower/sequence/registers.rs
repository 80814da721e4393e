//! Commands that name registers, queues and parameters of cores.

use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::txn::{ScratchpadFunction, TxnOperation};
use millrace_xdna2_words::writer::TaskPush;
use millrace_xdna2_words::{Tile, TileKind};

use super::{Sequence, SequenceCommand, buffer_place, pushed};
use crate::design;
use crate::syntax::{Attribute, Op, SyntaxError};

impl Sequence<'_> {
    pub(super) fn raw(&mut self, op: &Op, operation: TxnOperation) {
        self.push(
            op,
            SequenceCommand::Raw {
                operation,
                argument: None,
                push: None,
                token: false,
            },
        );
    }

    /// A configuration that is loaded before all else. It is this device's, which precedes the sequence anyway, or an
    /// empty one.
    pub(super) fn load(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let design = self.design;
        let is_known = op.text("device_ref").is_ok_and(|name| {
            name == design.name || design.empty_devices.iter().any(|n| n == name)
        });
        // A scratchpad is nothing of the array.
        let is_first = self.commands.iter().all(|row| {
            let SequenceCommand::Raw { operation, .. } = &row.1 else {
                return false;
            };
            matches!(operation, TxnOperation::CreateScratchpad { .. })
        });
        match is_known && is_first {
            true => Ok(()),
            false => {
                Err(op.error("another configuration than this device's, or in the midst of it"))
            }
        }
    }

    pub(super) fn create_scratchpad(&mut self, op: &Op) -> Result<(), SyntaxError> {
        op.only(&["size", "usage_type"])?;
        let (usage, size_bytes): (u8, u32) = (op.number_or("usage_type", 0)?, op.number("size")?);
        if usage != 0 || !(4..=128).contains(&size_bytes) || !size_bytes.is_multiple_of(4) {
            let problem = format!(
                "{size_bytes} bytes of usage {usage}: 4 to 128 bytes in whole words, of usage 0, are known"
            );
            return Err(op.error(problem));
        }
        let operation = TxnOperation::CreateScratchpad {
            usage,
            size_bytes,
            // The loader sets the address of the host's scratchpad.
            address: 0,
        };
        self.raw(op, operation);
        Ok(())
    }

    /// Adds a value derived from a word of the scratchpad to an address in two registers.
    pub(super) fn update(&mut self, op: &Op) -> Result<(), SyntaxError> {
        op.only(&[
            "state_table_idx",
            "func",
            "func_arg",
            "address",
            "buffer",
            "column",
            "row",
        ])?;
        let function = match op.get("func") {
            None => "incr",
            Some(_) => op.text("func")?,
        };
        let function = match function {
            "mul" => ScratchpadFunction::Multiply,
            "incr" => ScratchpadFunction::Add,
            "decr" => ScratchpadFunction::Subtract,
            other => return Err(op.error(format!("`{other}` is no function of a scratchpad"))),
        };
        let entry = op.number("state_table_idx")?;
        self.design.scratchpad_word(op.at, &op.name, entry)?;
        let operation = TxnOperation::UpdateAddress {
            entry,
            function,
            number: op.number_or("func_arg", 0)?,
            register: self.address(op)?,
        };
        self.raw(op, operation);
        Ok(())
    }

    /// The address of a register: absolute, in a tile, or in a buffer.
    pub(super) fn address(&self, op: &Op) -> Result<u32, SyntaxError> {
        let offset: u32 = op.number("address")?;
        if op.get("buffer").is_some() {
            let place = buffer_place(self.design, self.places, op.text("buffer")?);
            let (tile, byte) = place.ok_or_else(|| op.error("there is no such buffer"))?;
            return Ok(tile.address(byte.saturating_add(offset.saturating_mul(4))));
        }
        if op.get("column").is_none() && op.get("row").is_none() {
            return Ok(offset);
        }
        let tile = Tile::new(op.number("column")?, op.number("row")?);
        tile.map(|tile| tile.address(offset))
            .ok_or_else(|| op.error("an NPU2 has no such tile"))
    }

    pub(super) fn write(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let op = &self.spelt_out(op, &["address", "value", "mask"])?;
        op.only(&["address", "value", "mask", "column", "row", "buffer"])?;
        let address = self.address(op)?;
        let value = op.integer("value")? as u32;
        let operation = match op.name.as_str() {
            "aiex.npu.write32" => TxnOperation::Write {
                address: address.into(),
                value,
            },
            _ => TxnOperation::MaskWrite {
                address: address.into(),
                value,
                mask: op.integer("mask")? as u32,
            },
        };
        let (push, token) = match pushed(address) {
            Some(channel) => (Some(channel), value >> 31 == 1),
            None => (None, false),
        };
        self.push(
            op,
            SequenceCommand::Raw {
                operation,
                argument: None,
                push,
                token,
            },
        );
        Ok(())
    }

    /// A wait for tokens; texts of 2026 have its numbers in round brackets.
    pub(super) fn sync(&mut self, op: &Op) -> Result<(), SyntaxError> {
        const NAMES: [&str; 6] = [
            "column",
            "row",
            "direction",
            "channel",
            "column_num",
            "row_num",
        ];
        let op = &self.spelt_out(op, &NAMES)?;
        op.only(&NAMES)?;
        let operation = TxnOperation::Sync {
            direction: op.number("direction")?,
            col: op.number("column")?,
            row: op.number("row")?,
            channel: op.number("channel")?,
            n_cols: op.number("column_num")?,
            n_rows: op.number("row_num")?,
        };
        self.raw(op, operation);
        Ok(())
    }

    /// Waits until a register has a value where a mask has ones.
    pub(super) fn poll(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let op = &self.spelt_out(op, &["address", "value", "mask"])?;
        op.only(&["address", "value", "mask", "column", "row", "buffer"])?;
        let operation = TxnOperation::MaskPoll {
            address: self.address(op)?.into(),
            value: op.integer("value")? as u32,
            mask: op.integer("mask")? as u32,
            busy: false,
        };
        self.raw(op, operation);
        Ok(())
    }

    /// Bit 1 of a core's or channel's control, set and taken back.
    pub(super) fn reset(&mut self, op: &Op) -> Result<(), SyntaxError> {
        const RESET: u32 = 2;
        let tile = self.design.tile(op, op.operand(0)?)?;
        let (kind, number) = match op.name.as_str() {
            "aiex.core_reset" => (BlockKind::CoreControl, 0),
            _ => {
                let (direction, number) = (op.text("channel_dir")?, op.integer("channel")?);
                let channel = design::channel(op, tile, direction, number)?;
                (BlockKind::Control(channel.direction), channel.number.into())
            }
        };
        let found = register::offset(tile.kind(), kind, number);
        let found = found.filter(|_| tile.kind() != TileKind::Shim);
        let offset = found.ok_or_else(|| op.error(format!("{tile} has no such reset")))?;
        for value in [RESET, 0] {
            let operation = TxnOperation::MaskWrite {
                address: tile.address(offset).into(),
                value,
                mask: RESET,
            };
            self.raw(op, operation);
        }
        Ok(())
    }

    /// Writes zeros to a tile's memory: so many words from a byte on.
    pub(super) fn clear(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let tile = self.design.tile(op, op.operand(0)?)?;
        let (byte, n_words): (u32, u32) = (op.number("address")?, op.number("n_words")?);
        let end = n_words.checked_mul(4).and_then(|n| n.checked_add(byte));
        let most = tile.kind().data_bytes();
        if !byte.is_multiple_of(4) || n_words == 0 || end.is_none_or(|end| end > most) {
            let problem = format!("{n_words} words from byte {byte} of {tile}, which has {most}");
            return Err(op.error(problem));
        }
        let operation = TxnOperation::BlockWrite {
            address: tile.address(byte),
            data: vec![0; n_words as usize],
        };
        self.raw(op, operation);
        Ok(())
    }

    pub(super) fn block_write(&mut self, op: &Op) -> Result<(), SyntaxError> {
        op.only(&["address", "column", "row", "buffer"])?;
        let address = self.address(op)?;
        let data = self.data.get(op.operand(0)?).cloned();
        let data = data.ok_or_else(|| op.error("its words are no `memref.get_global`"))?;
        self.raw(op, TxnOperation::BlockWrite { address, data });
        Ok(())
    }

    pub(super) fn rtp_write(&mut self, op: &Op) -> Result<(), SyntaxError> {
        op.only(&["buffer", "index", "value"])?;
        let place = buffer_place(self.design, self.places, op.text("buffer")?);
        let (tile, byte) = place.ok_or_else(|| op.error("there is no such buffer"))?;
        let index: u32 = op.number("index")?;
        let value = design::number(self.design, op, op.need("value")?, &self.constants)?;
        let address = tile
            .address(byte.saturating_add(index.saturating_mul(4)))
            .into();
        self.raw(
            op,
            TxnOperation::Write {
                address,
                value: value as u32,
            },
        );
        Ok(())
    }

    pub(super) fn patch(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let op = &self.spelt_out(op, &["arg_plus"])?;
        op.only(&["addr", "arg_idx", "arg_plus"])?;
        let argument: u32 = op.number("arg_idx")?;
        let operation = TxnOperation::Patch {
            register: op.number("addr")?,
            argument,
            plus_bytes: op.number_or("arg_plus", 0)?,
        };
        let argument = Some(argument as usize);
        self.push(
            op,
            SequenceCommand::Raw {
                operation,
                argument,
                push: None,
                token: false,
            },
        );
        Ok(())
    }

    /// An op whose values are in round brackets, as in texts of 2026, with the values as attributes.
    fn spelt_out(&self, op: &Op, names: &[&str]) -> Result<Op, SyntaxError> {
        let mut plain = op.clone();
        let Some(Attribute::Array(items)) = op.get("items") else {
            return Ok(plain);
        };
        plain.attributes.retain(|row| row.0 != "items");
        if items.len() > names.len() {
            return Err(op.error(format!("{} values; {} are known", items.len(), names.len())));
        }
        for (name, item) in names.iter().zip(items) {
            let value = design::number(self.design, op, item, &self.constants)?;
            plain.set(name, Attribute::Integer(value));
        }
        Ok(plain)
    }

    pub(super) fn push_queue(&mut self, op: &Op) -> Result<(), SyntaxError> {
        op.only(&[
            "column",
            "row",
            "channel_dir",
            "channel",
            "bd_id",
            "issue_token",
            "repeat_count",
        ])?;
        let tile = Tile::new(op.number("column")?, op.number("row")?);
        let tile = tile.ok_or_else(|| op.error("an NPU2 has no such tile"))?;
        let channel = design::channel(op, tile, op.text("channel_dir")?, op.integer("channel")?)?;
        let number = |name: &str| match op.get(name) {
            Some(value) => design::number(self.design, op, value, &self.constants).map(Some),
            None => Ok(None),
        };
        let fits = |value: i64| u8::try_from(value).ok();
        let out_of_range = || op.error("a descriptor or repeat count out of range");
        let repeats = fits(number("repeat_count")?.unwrap_or(0)).ok_or_else(out_of_range)?;
        let repeats = u64::from(repeats);
        let descriptor = number("bd_id")?.and_then(fits).ok_or_else(out_of_range)?;
        let task = TaskPush {
            descriptor,
            executions: repeats.saturating_add(1),
            token: op.flag("issue_token"),
        };
        self.push(op, SequenceCommand::Push { channel, task });
        Ok(())
    }
}
