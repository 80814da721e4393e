//! Descriptors that a sequence writes field by field.

use super::{Sequence, SequenceCommand};
use crate::syntax::{Op, SyntaxError};
use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::txn::TxnOperation;
use millrace_xdna2_words::{Record, Tile, TileKind, WordField, descriptor};

/// Fields of `npu.writebd` that are fields of the register.
const WRITE_DESCRIPTOR: &[(&str, WordField)] = &[
    ("buffer_length", WordField::Length),
    ("enable_packet", WordField::PacketEnable),
    ("out_of_order_id", WordField::OutOfOrderId),
    ("packet_id", WordField::PacketId),
    ("packet_type", WordField::PacketType),
    ("d0_size", WordField::D0Wrap),
    ("d0_stride", WordField::D0Step),
    ("d1_size", WordField::D1Wrap),
    ("d1_stride", WordField::D1Step),
    ("d2_stride", WordField::D2Step),
    ("iteration_current", WordField::IterationCurrent),
    ("iteration_size", WordField::IterationWrap),
    ("iteration_stride", WordField::IterationStep),
    ("next_bd", WordField::Next),
    ("use_next_bd", WordField::UseNext),
    ("valid_bd", WordField::Valid),
    ("lock_rel_val", WordField::ReleaseValue),
    ("lock_rel_id", WordField::ReleaseId),
    ("lock_acq_enable", WordField::AcquireEnable),
    ("lock_acq_val", WordField::AcquireValue),
    ("lock_acq_id", WordField::AcquireId),
    ("d0_zero_before", WordField::D0PadBefore),
    ("d1_zero_before", WordField::D1PadBefore),
    ("d2_zero_before", WordField::D2PadBefore),
    ("d0_zero_after", WordField::D0PadAfter),
    ("d1_zero_after", WordField::D1PadAfter),
    ("d2_zero_after", WordField::D2PadAfter),
];

/// Names that texts of early 2024 have beside those of today; which of two is meant nobody says, so they are to be zeros.
const FORMER_FIELDS: [&str; 7] = [
    "d0_stepsize",
    "d0_wrap",
    "d1_stepsize",
    "d1_wrap",
    "d2_stepsize",
    "iteration_stepsize",
    "iteration_wrap",
];

/// Refuses attributes that are no fields.
fn only_fields(op: &Op) -> Result<(), SyntaxError> {
    let fields = WRITE_DESCRIPTOR.iter().map(|row| row.0);
    let known: Vec<&str> = fields
        // mlir-aie writes no size of the third dimension: the length ends it.
        .chain([
            "d2_size",
            "column",
            "row",
            "bd_id",
            "burst_length",
            "buffer_offset",
            "ddr_id",
            "column_num",
        ])
        .chain(FORMER_FIELDS)
        .collect();
    op.only(&known)?;
    for name in FORMER_FIELDS {
        if op.number_or::<u64>(name, 0)? != 0 {
            let problem = format!("`{name}` of early 2024 is known as 0: give the stride or size");
            return Err(op.error(problem));
        }
    }
    Ok(())
}

/// Fields of a tile's descriptor, its address among them.
fn values(op: &Op, tile: Tile, bytes: u64) -> Result<Vec<(WordField, u64)>, SyntaxError> {
    let kind = tile.kind();
    let layout = descriptor::layout(kind);
    let mut values = Vec::new();
    for &(name, field) in WRITE_DESCRIPTOR {
        let value: u64 = op.number_or(name, 0)?;
        match layout.most(field) {
            Some(_) => values.push((field, value)),
            None if value == 0 => {}
            None => {
                return Err(op.error(format!(
                    "`{name}`: a descriptor of {tile} has no such field"
                )));
            }
        }
    }
    match kind {
        TileKind::Shim => {
            let burst = crate::lower::burst(op.number_or("burst_length", 0)?);
            let burst = burst.map_err(|problem| op.error(problem))?;
            values.extend([(WordField::Burst, burst), (WordField::AxCache, 2)]);
            values.push((WordField::Base, bytes / 4));
        }
        // A memory tile's is in words already.
        TileKind::Memory => values.push((WordField::Base, bytes)),
        TileKind::Core => values.push((WordField::Base, bytes / 4)),
    }
    Ok(values)
}

impl Sequence<'_> {
    /// A descriptor field by field: numbers as the register has them.
    pub(super) fn write_descriptor(&mut self, op: &Op) -> Result<(), SyntaxError> {
        only_fields(op)?;
        let tile = Tile::new(op.number("column")?, op.number_or("row", 0)?);
        let tile = tile.ok_or_else(|| op.error("an NPU2 has no such tile"))?;
        let kind = tile.kind();
        let number: u32 = op.number("bd_id")?;
        let offset = register::offset(kind, BlockKind::Descriptor, number);
        let offset =
            offset.ok_or_else(|| op.error(format!("{tile} has no descriptor {number}")))?;
        let layout = descriptor::layout(kind);
        let bytes: u64 = op.number_or("buffer_offset", 0)?;
        let values = values(op, tile, bytes)?;
        let record = Record::new(layout).with(&values);
        let record = record.map_err(|error| op.error(error.to_string()))?;
        let operation = TxnOperation::BlockWrite {
            address: tile.address(offset),
            data: record.words(),
        };
        self.raw(op, operation);
        // Texts of 2024 name the argument beside the address.
        if op.get("ddr_id").is_some() && kind == TileKind::Shim {
            let argument: u32 = op.number("ddr_id")?;
            let operation = TxnOperation::Patch {
                register: u64::from(tile.address(offset)) + 4,
                argument,
                plus_bytes: bytes,
            };
            let command = SequenceCommand::Raw {
                operation,
                argument: None,
                push: None,
                token: false,
            };
            self.push(op, command);
        }
        Ok(())
    }
}
