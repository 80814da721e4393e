//! Commands that name registers, queues and parameters of cores.

use millrace_xdna2_words::Tile;
use millrace_xdna2_words::txn::TxnOperation;
use millrace_xdna2_words::writer::TaskPush;

use super::{Sequence, SequenceCommand, buffer_place, pushed};
use crate::design;
use crate::syntax::{Op, SyntaxError};

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
        let repeats: u64 = op.number_or("repeat_count", 0)?;
        let task = TaskPush {
            descriptor: op.number("bd_id")?,
            executions: repeats.saturating_add(1),
            token: op.flag("issue_token"),
        };
        self.push(op, SequenceCommand::Push { channel, task });
        Ok(())
    }
}
