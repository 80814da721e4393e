//! From a design to the words that configure the array and run the sequence.

mod channels;
mod descriptor;
mod places;
mod queue;
mod reach;
mod route;
mod sequence;
mod switches;
mod tasks;

pub(crate) use places::{Places, chain_descriptors};

use crate::design::{Descriptor, Design, Flow, TileMemory};
use crate::syntax::{Location, SyntaxError};
use channels::{channels, last_tasks, out_of_order};
use descriptor::{burst, fields};
use millrace_xdna2_words::port::{self, Bundle};
use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::router::TilePort;
use millrace_xdna2_words::tile::{Direction, Tile, TileKind};
use millrace_xdna2_words::txn::{ScratchpadFunction, TxnOperation, TxnStream};
use millrace_xdna2_words::writer::{ChannelAt, StreamWriter, TaskPush, WriterError};
use sequence::SequenceCommand;
use std::collections::{BTreeMap, BTreeSet};

/// A design in words.
pub(crate) struct DesignProgram {
    pub(crate) stream: TxnStream,
    pub(crate) places: Places,
    /// By operation of the sequence: its place in the text.
    pub(crate) operations: BTreeMap<usize, Location>,
    /// Channels of shims that write arguments: their tasks must end.
    pub(crate) writers: Vec<ChannelAt>,
    /// All channels that have work, each with the place of its first.
    pub(crate) channels: BTreeMap<ChannelAt, Location>,
    /// The operation before which everything that the configuration starts has to settle. It is the sequence's first,
    /// if the sequence reaches into tiles whose cores are at work by then.
    pub(crate) settle: Option<usize>,
    /// Arguments that the sequence reads, and those that it writes.
    pub(crate) reads: BTreeSet<usize>,
    pub(crate) writes: BTreeSet<usize>,
    /// By channel: the place of its last task of the sequence, and the argument that the task moves.
    pub(crate) last_tasks: BTreeMap<ChannelAt, (Location, Option<usize>)>,
    /// Parts that are left out of it.
    pub(crate) notes: Vec<String>,
    /// The operation after the sequence's last.
    pub(crate) end: usize,
}

fn at_op(at: Location, op: &str) -> impl Fn(WriterError) -> SyntaxError {
    let op = op.to_owned();
    move |error| SyntaxError::new(at, error.to_string()).in_op(&op)
}

/// Columns that a design needs: up to the last that it uses.
fn columns(design: &Design) -> u8 {
    let tiles = design.names.values().filter_map(|entity| match entity {
        crate::design::Entity::Tile(tile) => Some(tile.col + 1),
        _ => None,
    });
    tiles.max().unwrap_or(1)
}

/// Lowers a design.
pub(crate) fn lower(design: &Design) -> Result<DesignProgram, SyntaxError> {
    let places = places::place(design)?;
    let mut commands = sequence::commands(design, &places)?;
    if design.queue_waits {
        commands = queue::with_waits(commands);
    }
    has_streams(design, &commands)?;
    let notes = sequence::without_lost_tokens(&mut commands, |tile| {
        tile.kind() == TileKind::Shim
            || design.switches.is_some()
            || route::has_token_way(design, tile)
    });
    let mut writer = StreamWriter::new(columns(design));
    let token_tiles = sequence::token_tiles(&commands);
    let tokens = match &design.switches {
        Some(switches) => switches::write(design, switches, &token_tiles, &mut writer)?,
        None => route::routes(design, &token_tiles, &mut writer)?,
    };
    set_up(design, &places, &commands, &tokens, &mut writer)?;
    let mut lowered = DesignProgram {
        stream: TxnStream::new(writer_header(design)),
        places,
        operations: BTreeMap::new(),
        writers: Vec::new(),
        channels: channels(design, &commands),
        settle: None,
        reads: BTreeSet::new(),
        writes: BTreeSet::new(),
        last_tasks: last_tasks(&commands),
        notes,
        end: 0,
    };
    let reaches_in = commands.iter().any(|row| row.1.reaches_into_tiles());
    lowered.settle = reaches_in.then(|| writer.n_operations());
    for (at, command) in &commands {
        lowered.operations.insert(writer.n_operations(), *at);
        issue(design, &lowered.places, (*at, command), &mut writer)?;
        note(command, &mut lowered);
    }
    lowered.writers.sort_unstable();
    lowered.writers.dedup();
    // A trace's buffer need not be full at the end.
    lowered
        .writers
        .retain(|&channel| !takes_traces(design, channel));
    lowered.stream = writer.finish();
    lowered.end = lowered.stream.operations.len();
    for channel in &lowered.writers {
        lowered.stream.push(idle_poll(*channel));
    }
    Ok(lowered)
}

/// Buffers that a call of the host has, at most, as an xclbin of mlir-aie takes them.
pub(crate) const MOST_BUFFERS: usize = 16;

/// How far transfers of the sequence reach in each buffer of the host, in bytes; zeros if it cannot be lowered. There
/// may be more buffers than arguments: words may patch any.
pub(crate) fn argument_ends(design: &Design) -> Vec<u64> {
    let mut ends = vec![0; design.arguments.len().max(MOST_BUFFERS)];
    let commands = places::place(design).and_then(|places| sequence::commands(design, &places));
    let mut written = reach::WrittenDescriptors::default();
    for (_, command) in commands.unwrap_or_default() {
        let reach = match command {
            SequenceCommand::Descriptor { descriptor, .. } => match descriptor.memory {
                TileMemory::Argument(argument) => {
                    let more = (descriptor.offset_entry)
                        .and_then(|entry| design.scratchpad.get(usize::from(entry))?.bits)
                        .map_or(0, |n| u64::from(n).saturating_mul(descriptor.element_bytes));
                    Some((argument, descriptor.end_bytes().saturating_add(more)))
                }
                TileMemory::Buffer(_) => None,
            },
            SequenceCommand::Raw { operation, .. } => written.reach(&operation),
            _ => None,
        };
        if let Some((argument, end)) = reach
            && let Some(known) = ends.get_mut(argument)
        {
            *known = end.max(*known);
        }
    }
    ends
}

fn writer_header(design: &Design) -> millrace_xdna2_words::StreamHeader {
    millrace_xdna2_words::StreamHeader::npu2(columns(design))
}

/// Waits until a channel has no task: tasks that are not awaited must end all the same.
fn idle_poll(channel: ChannelAt) -> TxnOperation {
    const BUSY_AND_WAITING: u32 = 0xF << 19;
    let kind = BlockKind::Status(channel.direction);
    let offset = register::offset(channel.tile.kind(), kind, channel.number.into());
    TxnOperation::MaskPoll {
        address: channel.tile.address(offset.unwrap_or(0)).into(),
        value: 0,
        mask: BUSY_AND_WAITING,
        busy: false,
    }
}

/// Writes everything before the sequence: switches, locks, memories, descriptors, tasks, cores.
fn set_up(
    design: &Design,
    places: &Places,
    commands: &[(Location, SequenceCommand)],
    tokens: &BTreeMap<Tile, u8>,
    writer: &mut StreamWriter,
) -> Result<(), SyntaxError> {
    let whole = at_op(Location::default(), "aie.device");
    writer.switches().map_err(whole)?;
    for core in &design.cores {
        writer
            .hold(core.tile)
            .map_err(at_op(core.op.at, "aie.core"))?;
    }
    for (tile, value) in cascades(design) {
        let set = writer.write(tile, BlockKind::Cascade, 0, value);
        set.map_err(at_op(Location::default(), "aie.cascade_flow"))?;
    }
    for (lock, &number) in design.locks.iter().zip(&places.locks) {
        let set = writer.lock(lock.tile, number, lock.initial.into());
        set.map_err(at_op(lock.at, "aie.lock"))?;
    }
    for (buffer, &address) in design.buffers.iter().zip(&places.addresses) {
        let Some(bytes) = &buffer.initial else {
            continue;
        };
        let words = bytes.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(word)
        });
        let set = writer.data(buffer.tile, address, words.collect());
        set.map_err(at_op(buffer.at, "aie.buffer"))?;
    }
    let by_header = out_of_order(design, commands)?;
    for channel in channels(design, commands).into_keys() {
        let error = at_op(Location::default(), "aie.dma_start");
        writer.open(channel).map_err(&error)?;
        let id = tokens.get(&channel.tile).copied().unwrap_or(0);
        let value = u32::from(id) << 8 | u32::from(by_header.contains(&channel)) << 3;
        if value > 0 {
            let kind = BlockKind::Control(channel.direction);
            let set = writer.write(channel.tile, kind, channel.number.into(), value);
            set.map_err(&error)?;
        }
    }
    for chain in &design.chains {
        if let Some(value) = chain.pad_value {
            let number = chain.channel.number.into();
            let set = writer.write(chain.channel.tile, BlockKind::PadValue, number, value);
            set.map_err(at_op(chain.at, "aie.dma"))?;
        }
    }
    chains(design, places, writer)?;
    writer
        .start_cores()
        .map_err(at_op(Location::default(), "aie.core"))
}

/// Refuses a task that sends where no stream leads.
fn has_streams(
    design: &Design,
    commands: &[(Location, SequenceCommand)],
) -> Result<(), SyntaxError> {
    if design.switches.is_some() {
        return Ok(());
    }
    for (at, command) in commands {
        let sends = |channel: &ChannelAt| channel.direction == Direction::Mm2s;
        let Some(channel) = command.channel().filter(sends) else {
            continue;
        };
        let ChannelAt { tile, number, .. } = channel;
        let port = port::of_dma(tile.kind(), channel.direction, number);
        let leads = |flow: &Flow| flow.from.tile == tile && Some(flow.from.port) == port;
        if !design.flows.iter().any(leads) {
            let problem = format!(
                "no flow leads from {tile} MM2S {number}, and no tile of its column has a control port for such packets"
            );
            return Err(SyntaxError::new(*at, problem).in_op("aiex.dma_start_task"));
        }
    }
    Ok(())
}

/// Whether only trace units send to a channel.
fn takes_traces(design: &Design, channel: ChannelAt) -> bool {
    let port = port::of_dma(channel.tile.kind(), channel.direction, channel.number);
    let comes = |flow: &&Flow| {
        let is_end = |end: &TilePort| end.tile == channel.tile && Some(end.port) == port;
        flow.to.iter().any(is_end)
    };
    let mut flows = design.flows.iter().filter(comes).peekable();
    flows.peek().is_some() && flows.all(|flow| flow.from.port.bundle == Bundle::Trace)
}

/// Directions of the cores' cascades: bit 0 takes from the west, else the north, bit 1 sends to the east, else
/// the south.
fn cascades(design: &Design) -> BTreeMap<Tile, u32> {
    let mut values = BTreeMap::new();
    for &(from, to) in &design.cascades {
        let is_east = u32::from(from.neighbour(1, 0) == Some(to));
        *values.entry(from).or_default() |= is_east << 1;
        *values.entry(to).or_default() |= is_east;
    }
    values
}

/// The descriptors and tasks of DMA programs.
fn chains(design: &Design, places: &Places, writer: &mut StreamWriter) -> Result<(), SyntaxError> {
    for chain in &design.chains {
        for number in chain_descriptors(design, chain.first) {
            let descriptor = &design.descriptors[number];
            let next = descriptor.next.map(|next| places.descriptors[next]);
            let fields = fields(design, places, descriptor, (chain.channel, next))?;
            let set = writer.descriptor(descriptor.tile, places.descriptors[number], &fields);
            set.map_err(at_op(descriptor.at, "aie.dma_bd"))?;
        }
    }
    for chain in &design.chains {
        let task = TaskPush {
            descriptor: places.descriptors[chain.first],
            executions: chain.executions,
            token: false,
        };
        let push = writer.push(chain.channel, task);
        push.map_err(at_op(chain.at, "aie.dma_start"))?;
    }
    Ok(())
}

/// The words of a command of the sequence.
fn issue(
    design: &Design,
    places: &Places,
    (at, command): (Location, &SequenceCommand),
    writer: &mut StreamWriter,
) -> Result<(), SyntaxError> {
    match command {
        SequenceCommand::Descriptor {
            channel,
            number,
            next,
            descriptor,
        } => {
            let fields = fields(design, places, descriptor, (*channel, *next))?;
            let error = at_op(descriptor.at, "aie.dma_bd");
            writer
                .descriptor(descriptor.tile, *number, &fields)
                .map_err(&error)?;
            if let TileMemory::Argument(argument) = descriptor.memory {
                let patch = writer.patch(
                    descriptor.tile,
                    *number,
                    argument as u32,
                    descriptor.offset_bytes,
                );
                patch.map_err(error)?;
                if let Some(entry) = descriptor.offset_entry {
                    writer.operation(moved(design, descriptor, *number, entry)?);
                }
            }
        }
        SequenceCommand::Push { channel, task } => {
            writer
                .push(*channel, *task)
                .map_err(at_op(at, "aiex.dma_start_task"))?;
        }
        SequenceCommand::Await(channel) => writer.await_token(*channel),
        SequenceCommand::Lock {
            tile,
            number,
            value,
        } => {
            writer
                .lock(*tile, *number, *value)
                .map_err(at_op(at, "aiex.set_lock"))?;
        }
        SequenceCommand::Raw { operation, .. } => writer.operation(operation.clone()),
    }
    Ok(())
}

/// Moves the block of a shim's descriptor by the number of elements in a word of the scratchpad.
fn moved(
    design: &Design,
    descriptor: &Descriptor,
    number: u8,
    entry: u8,
) -> Result<TxnOperation, SyntaxError> {
    design.scratchpad_word(descriptor.at, "aie.dma_bd", entry)?;
    let tile = descriptor.tile;
    let offset = register::offset(tile.kind(), BlockKind::Descriptor, number.into());
    Ok(TxnOperation::UpdateAddress {
        entry,
        function: ScratchpadFunction::Multiply,
        number: descriptor.element_bytes as u32,
        // The address begins in the second word.
        register: tile.address(offset.unwrap_or(0)) + 4,
    })
}

/// Records the arguments of a command, and the channels that write them.
fn note(command: &SequenceCommand, lowered: &mut DesignProgram) {
    match command {
        SequenceCommand::Descriptor {
            channel,
            descriptor,
            ..
        } => {
            if let TileMemory::Argument(argument) = descriptor.memory {
                match channel.direction {
                    Direction::Mm2s => lowered.reads.insert(argument),
                    Direction::S2mm => lowered.writes.insert(argument),
                };
            }
        }
        SequenceCommand::Push { channel, .. } if is_writer(*channel) => {
            lowered.writers.push(*channel)
        }
        SequenceCommand::Raw {
            argument: Some(argument),
            ..
        } => {
            // A patch does not say which way its descriptor goes.
            lowered.reads.insert(*argument);
            lowered.writes.insert(*argument);
        }
        SequenceCommand::Raw {
            push: Some(channel),
            ..
        } if is_writer(*channel) => lowered.writers.push(*channel),
        _ => {}
    }
}

fn is_writer(channel: ChannelAt) -> bool {
    channel.tile.kind() == TileKind::Shim && channel.direction == Direction::S2mm
}
