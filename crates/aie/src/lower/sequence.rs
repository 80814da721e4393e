//! The sequence as commands.

mod loops;
mod registers;
mod views;
mod writebd;

use super::places::{Places, buffer_place};
use super::tasks::Tasks;
use crate::design::{self, BdIteration, Constants, Descriptor, Design, ShimAllocation, TileMemory};
use crate::syntax::{Attribute, Location, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::tile::Direction;
use millrace_xdna2_words::txn::TxnOperation;
use millrace_xdna2_words::writer::{ChannelAt, TaskPush};
use std::collections::BTreeMap;
use views::ArgumentView;

/// Commands for firmware, before descriptors are words.
#[derive(Clone, Debug)]
pub(super) enum SequenceCommand {
    Descriptor {
        channel: ChannelAt,
        number: u8,
        next: Option<u8>,
        descriptor: Box<Descriptor>,
    },
    Push {
        channel: ChannelAt,
        task: TaskPush,
    },
    Await(ChannelAt),
    Lock {
        tile: Tile,
        number: u8,
        value: u64,
    },
    /// An operation that the design gives word by word, with the facts known of it.
    Raw {
        operation: TxnOperation,
        argument: Option<usize>,
        push: Option<ChannelAt>,
        token: bool,
    },
}

impl SequenceCommand {
    /// The channel that it starts work on.
    pub(super) fn channel(&self) -> Option<ChannelAt> {
        match self {
            SequenceCommand::Push { channel, .. } => Some(*channel),
            SequenceCommand::Raw { push, .. } => *push,
            _ => None,
        }
    }
}

impl SequenceCommand {
    /// Whether it writes to a tile's memory or locks directly.
    pub(super) fn reaches_into_tiles(&self) -> bool {
        let address = match self {
            SequenceCommand::Lock { .. } => return true,
            SequenceCommand::Raw { operation, .. } => match operation {
                TxnOperation::Write { address, .. } | TxnOperation::MaskWrite { address, .. } => {
                    u32::try_from(*address).ok()
                }
                TxnOperation::BlockWrite { address, .. } => Some(*address),
                TxnOperation::UpdateAddress { register, .. } => Some(*register),
                _ => None,
            },
            _ => None,
        };
        let found = address.and_then(Tile::of_address);
        let found = found.and_then(|(tile, offset)| register::find(tile.kind(), offset));
        found.is_some_and(|of| matches!(of.block.kind, BlockKind::DataMemory | BlockKind::Lock))
    }
}

/// Tiles that send tokens, each with the place of the first task that has one.
pub(super) fn token_tiles(commands: &[(Location, SequenceCommand)]) -> BTreeMap<Tile, Location> {
    let tile = |command: &SequenceCommand| match command {
        SequenceCommand::Push { channel, task } => task.token.then_some(channel.tile),
        SequenceCommand::Raw {
            push: Some(channel),
            token,
            ..
        } => token.then_some(channel.tile),
        _ => None,
    };
    let mut tiles = BTreeMap::new();
    for (at, command) in commands {
        if let Some(tile) = tile(command) {
            tiles.entry(tile).or_insert(*at);
        }
    }
    tiles
}

/// Tasks whose token is neither awaited nor taken away by a stream: they are pushed without one. Returns remarks on
/// them. A second token would meet the first before the switch, so a tile may lose only one.
pub(super) fn without_lost_tokens(
    commands: &mut [(Location, SequenceCommand)],
    has_way: impl Fn(Tile) -> bool,
) -> Vec<String> {
    let is_awaited = |tile: Tile| {
        commands.iter().any(|command| match &command.1 {
            SequenceCommand::Await(channel) => channel.tile == tile,
            SequenceCommand::Raw {
                operation:
                    TxnOperation::Sync {
                        col,
                        row,
                        n_cols,
                        n_rows,
                        ..
                    },
                ..
            } => {
                let within =
                    |at: u8, first: u8, n: u8| (first..first.saturating_add(n)).contains(&at);
                within(tile.col, *col, *n_cols) && within(tile.row, *row, *n_rows)
            }
            _ => false,
        })
    };
    let mut n_tokens: BTreeMap<Tile, u32> = BTreeMap::new();
    for row in commands.iter() {
        if let SequenceCommand::Push { channel, task } = &row.1
            && task.token
        {
            *n_tokens.entry(channel.tile).or_default() += 1;
        }
    }
    let lost = n_tokens
        .into_iter()
        .filter(|&(tile, n)| n == 1 && !has_way(tile) && !is_awaited(tile));
    let lost: Vec<Tile> = lost.map(|row| row.0).collect();
    let mut notes = Vec::new();
    for row in commands.iter_mut() {
        if let SequenceCommand::Push { channel, task } = &mut row.1
            && task.token
            && lost.contains(&channel.tile)
        {
            task.token = false;
            let ChannelAt {
                tile,
                direction,
                number,
            } = channel;
            let name = direction.name();
            notes.push(format!(
                "the token of {tile} {name} {number} is not sent: it has no way to the firmware, and nobody awaits it"
            ));
        }
    }
    notes
}

/// The sequence while it is read.
pub(super) struct Sequence<'d> {
    pub(super) design: &'d Design,
    places: &'d Places,
    pub(super) constants: Constants,
    data: BTreeMap<String, Vec<u32>>,
    /// Other names of arguments, and of parts of them.
    views: BTreeMap<String, ArgumentView>,
    pub(super) commands: Vec<(Location, SequenceCommand)>,
    /// Ops so far, those of loops each time.
    n_ops: usize,
}

impl Sequence<'_> {
    pub(super) fn push(&mut self, op: &Op, command: SequenceCommand) {
        self.commands.push((op.at, command));
    }

    /// The shim's channel of a name.
    pub(super) fn allocation(&self, op: &Op, name: &str) -> Result<ShimAllocation, SyntaxError> {
        let found = self.design.allocations.get(name).copied();
        found.ok_or_else(|| op.error(format!("no shim's channel has the name @{name}")))
    }
}

/// The commands of a design's sequence.
pub(super) fn commands(
    design: &Design,
    places: &Places,
) -> Result<Vec<(Location, SequenceCommand)>, SyntaxError> {
    let mut sequence = Sequence {
        design,
        places,
        constants: design.numbers.clone(),
        data: BTreeMap::new(),
        views: BTreeMap::new(),
        commands: Vec::new(),
        n_ops: 0,
    };
    let mut tasks = Tasks::new(design, places);
    sequence.ops(&design.sequence, &mut tasks)?;
    Ok(sequence.commands)
}

impl Sequence<'_> {
    fn op(&mut self, op: &Op) -> Result<(), SyntaxError> {
        match op.name.as_str() {
            "aiex.npu.dma_memcpy_nd" => self.memcpy(op),
            "aiex.npu.dma_wait" => {
                op.only(&["symbol"])?;
                let channel = self.allocation(op, op.text("symbol")?)?.channel;
                self.push(op, SequenceCommand::Await(channel));
                Ok(())
            }
            "aiex.npu.sync" => self.sync(op),
            "aiex.npu.load_pdi" => self.load(op),
            "aiex.npu.create_scratchpad" => self.create_scratchpad(op),
            "aiex.npu.update_from_scratchpad" => self.update(op),
            "aiex.npu.write32" | "aiex.npu.maskwrite32" => self.write(op),
            "aiex.npu.blockwrite" => self.block_write(op),
            "aiex.npu.rtp_write" => self.rtp_write(op),
            "aiex.npu.writebd" => self.write_descriptor(op),
            // There is no other user of the array here.
            "aiex.npu.preempt" => op.only(&["level"]),
            "aiex.npu.address_patch" => self.patch(op),
            "aiex.npu.push_queue" => self.push_queue(op),
            "aiex.npu.maskpoll" => self.poll(op),
            "aiex.core_reset" | "aiex.dma_channel_reset" => self.reset(op),
            "aiex.buffer_clear" => self.clear(op),
            // Nothing is traced here.
            "aie.trace.host_config" | "aie.trace.start_config" => Ok(()),
            "memref.assume_alignment"
            | "memref.cast"
            | "memref.subview"
            | "memref.reinterpret_cast"
            | "memref.collapse_shape"
            | "memref.expand_shape"
            | "memref.view" => self.view(op),
            "aiex.set_lock" => {
                let lock = self.design.lock(op, op.operand(0)?)?;
                let tile = self.design.locks[lock].tile;
                let value = op.number("value")?;
                self.push(
                    op,
                    SequenceCommand::Lock {
                        tile,
                        number: self.places.locks[lock],
                        value,
                    },
                );
                Ok(())
            }
            "memref.get_global" => {
                let global = self.design.globals.get(op.text("name")?);
                let bytes = global.and_then(|global| global.bytes.as_ref());
                let bytes = bytes.ok_or_else(|| op.error("a global without a value"))?;
                let words = bytes
                    .chunks_exact(4)
                    .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                self.data.insert(op.result()?.to_owned(), words.collect());
                Ok(())
            }
            "aie.end" | "return" | "func.return" => Ok(()),
            _ => Err(op.error("it does not stand in a sequence")),
        }
    }

    /// A descriptor's number: a literal or a constant.
    pub(super) fn descriptor_number(&self, op: &Op, name: &str) -> Result<u8, SyntaxError> {
        let value = design::number(self.design, op, op.need(name)?, &self.constants)?;
        u8::try_from(value).map_err(|_| op.error(format!("`{name}` of {value} is out of range")))
    }

    /// Whole numbers of a list, with values that are constants.
    fn numbers(&self, op: &Op, name: &str) -> Result<Vec<i64>, SyntaxError> {
        let Attribute::Array(all) = op.need(name)? else {
            return Err(op.error(format!("`{name}` is no list")));
        };
        all.iter()
            .map(|value| design::number(self.design, op, value, &self.constants))
            .collect()
    }

    /// A transfer: descriptor, address, push. Four sizes; the outermost repeats the task, and with a
    /// stride moves it on.
    fn memcpy(&mut self, op: &Op) -> Result<(), SyntaxError> {
        op.only(&[
            "offsets",
            "sizes",
            "strides",
            "id",
            "metadata",
            "issue_token",
            "packet",
            "burst_length",
            "d0_zero_before",
            "d1_zero_before",
            "d2_zero_before",
            "d0_zero_after",
            "d1_zero_after",
            "d2_zero_after",
            "offset",
            "offset_state_table_idx",
        ])?;
        for (name, value) in &op.attributes {
            if name.contains("_zero_") && value.integer() != Some(0) {
                return Err(op.error("a shim does not pad"));
            }
        }
        let ShimAllocation { channel, packet } = self.allocation(op, op.text("metadata")?)?;
        let view = self.argument(op, op.operand(0)?)?;
        let argument = view.argument;
        let element_bytes = view.of.element_bytes();
        let transfer = self.transfer(op, element_bytes)?;
        let DmaTransfer { sizes, strides, .. } = transfer;
        if sizes[0] > 256 {
            return Err(op.error(format!("{} repetitions; a task has at most 256", sizes[0])));
        }
        let outer = (sizes[0] > 1 && strides[0] > 0).then_some(BdIteration {
            size: sizes[0],
            stride: strides[0],
            current: 0,
        });
        // The stride of a dimension of one element has no meaning.
        let dimensions = sizes[1..]
            .iter()
            .zip(&strides[1..])
            .map(|(&size, &stride)| (size, stride));
        let number = op.number::<u8>("id")?;
        let descriptor = Descriptor {
            tile: channel.tile,
            memory: TileMemory::Argument(argument),
            offset_bytes: transfer.offset_bytes.saturating_add(view.offset_bytes),
            length_bytes: transfer.length_bytes,
            element_bytes,
            dimensions: dimensions.collect(),
            padding: Vec::new(),
            iteration: outer,
            acquire: None,
            acquires_equal: false,
            release: None,
            packet: design::packet_of(op)?.or(packet),
            offset_entry: design::offset_entry(op, TileMemory::Argument(argument))?,
            out_of_order_id: None,
            by_header: false,
            burst_bytes: op.number_or("burst_length", 0)?,
            next: None,
            number: Some(number),
            at: op.at,
        };
        self.push(
            op,
            SequenceCommand::Descriptor {
                channel,
                number,
                next: None,
                descriptor: Box::new(descriptor),
            },
        );
        // A shim's writes are always followed by a token.
        let token = op.flag("issue_token") || channel.direction == Direction::S2mm;
        let task = TaskPush {
            descriptor: number,
            executions: sizes[0],
            token,
        };
        self.push(op, SequenceCommand::Push { channel, task });
        Ok(())
    }

    /// The four offsets, sizes and strides of a transfer, the outermost first.
    fn transfer(&self, op: &Op, element_bytes: u64) -> Result<DmaTransfer, SyntaxError> {
        let four = |name| -> Result<[i64; 4], SyntaxError> {
            let mut all = self.numbers(op, name)?;
            if name == "strides" && all.len() == 3 {
                // Texts of early 2024 leave out the innermost, which is 1.
                all.push(1);
            }
            all.try_into()
                .map_err(|_| op.error(format!("`{name}` has not four numbers")))
        };
        let (offsets, sizes, strides) = (four("offsets")?, four("sizes")?, four("strides")?);
        if sizes.iter().any(|&size| size < 1) || strides.iter().chain(&offsets).any(|&n| n < 0) {
            return Err(op.error("sizes from 1 on, strides and offsets from 0 on are known"));
        }
        let unsigned = |all: [i64; 4]| all.map(|n| n.unsigned_abs());
        let (offsets, sizes, strides) = (unsigned(offsets), unsigned(sizes), unsigned(strides));
        let mut rows = offsets.iter().zip(&strides);
        let offset = rows.try_fold(0u64, |sum, (offset, stride)| {
            sum.checked_add(offset.checked_mul(*stride)?)
        });
        let mut inner = sizes[1..].iter();
        let length = inner.try_fold(element_bytes, |n, size| n.checked_mul(*size));
        let bytes = offset.and_then(|offset| offset.checked_mul(element_bytes));
        let (Some(offset_bytes), Some(length_bytes)) = (bytes, length) else {
            return Err(op.error("more bytes than any memory"));
        };
        Ok(DmaTransfer {
            sizes,
            strides,
            offset_bytes,
            length_bytes,
        })
    }
}

/// A transfer's numbers.
struct DmaTransfer {
    sizes: [u64; 4],
    /// In elements.
    strides: [u64; 4],
    offset_bytes: u64,
    /// Length of the three inner dimensions.
    length_bytes: u64,
}

/// The channel whose queue a register is.
fn pushed(address: u32) -> Option<ChannelAt> {
    let (tile, offset) = Tile::of_address(address)?;
    let found = register::find(tile.kind(), offset)?;
    match found.block.kind {
        BlockKind::Queue(direction) => Some(ChannelAt {
            tile,
            direction,
            number: found.number as u8,
        }),
        _ => None,
    }
}
