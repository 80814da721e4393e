//! Tasks of the sequence: `aiex.dma_configure_task`, start, await, free.

use super::places::Places;
use super::sequence::{Sequence, SequenceCommand};
use crate::design::{self, Descriptor, Design, Entity, TileMemory};
use crate::syntax::{Attribute, MemRefType, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::Direction;
use millrace_xdna2_words::writer::{ChannelAt, TaskPush};
use std::collections::{BTreeMap, BTreeSet};

/// Tasks by name, and descriptors that are not free.
pub(super) struct Tasks {
    tasks: Vec<DmaTask>,
    /// The last task of a name: in a loop each turn has one.
    names: BTreeMap<String, usize>,
    taken: BTreeSet<(Tile, u8)>,
}

struct DmaTask {
    channel: ChannelAt,
    push: TaskPush,
    descriptors: Vec<u8>,
    is_free: bool,
}

impl Tasks {
    pub(super) fn new(design: &Design, places: &Places) -> Tasks {
        let fixed = design.descriptors.iter().zip(&places.descriptors);
        let fixed = fixed
            .filter(|row| *row.1 != u8::MAX)
            .map(|(of, &number)| (of.tile, number));
        Tasks {
            tasks: Vec::new(),
            names: BTreeMap::new(),
            taken: fixed.collect(),
        }
    }

    /// Reads an op of tasks; `false` for any other.
    pub(super) fn op(&mut self, sequence: &mut Sequence<'_>, op: &Op) -> Result<bool, SyntaxError> {
        match op.name.as_str() {
            "aiex.dma_configure_task" | "aiex.dma_configure_task_for" => {
                self.configure(sequence, op)?
            }
            "aiex.dma_start_task" => self.start(sequence, op, op.operand(0)?)?,
            "aiex.dma_start_bd_chain" | "aiex.dma_start_bd_chain_for" => {
                let task = of_chain(sequence, op)?;
                self.configure(sequence, &task)?;
                self.start(sequence, op, op.result()?)?;
            }
            "aiex.dma_await_task" => {
                let task = self.task(op)?;
                if !task.push.token {
                    return Err(op.error("it awaits a task that sends no token (`issue_token`)"));
                }
                let channel = task.channel;
                sequence.push(op, SequenceCommand::Await(channel));
                self.free(op)?;
            }
            "aiex.dma_free_task" => self.free(op)?,
            "aiex.dma_bd_pool_pop" => self.pop(sequence, op)?,
            "aiex.dma_bd_pool_push" => {
                let number = sequence.descriptor_number(op, "bd_id")?;
                self.taken.remove(&(pool_tile(op)?, number));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Starts the task of a name.
    fn start(
        &mut self,
        sequence: &mut Sequence<'_>,
        op: &Op,
        name: &str,
    ) -> Result<(), SyntaxError> {
        let task = self.named(op, name)?;
        if task.is_free {
            return Err(op.error("it starts a task whose descriptors were given free"));
        }
        let (channel, task) = (task.channel, task.push);
        sequence.push(op, SequenceCommand::Push { channel, task });
        Ok(())
    }

    /// A second name of a task; `false` if the first is none.
    pub(super) fn alias(&mut self, name: &str, of: &str) -> bool {
        let known = self.names.get(of).copied();
        if let Some(known) = known {
            self.names.insert(name.to_owned(), known);
        }
        known.is_some()
    }

    fn task(&mut self, op: &Op) -> Result<&mut DmaTask, SyntaxError> {
        self.named(op, op.operand(0)?)
    }

    fn named(&mut self, op: &Op, name: &str) -> Result<&mut DmaTask, SyntaxError> {
        let number = self.names.get(name).copied();
        let number = number.ok_or_else(|| op.error(format!("%{name} is no task")))?;
        Ok(&mut self.tasks[number])
    }

    fn free(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let task = self.task(op)?;
        task.is_free = true;
        let (tile, numbers) = (task.channel.tile, task.descriptors.clone());
        for number in numbers {
            self.taken.remove(&(tile, number));
        }
        Ok(())
    }

    /// Takes the lowest free number at a tile for a descriptor to come.
    fn pop(&mut self, sequence: &mut Sequence<'_>, op: &Op) -> Result<(), SyntaxError> {
        let tile = pool_tile(op)?;
        let channel: u8 = op.number_or("channel", 0)?;
        let mut all = 0..tile.kind().descriptors();
        let free =
            all.find(|&n| tile.kind().reaches(channel, n) && !self.taken.contains(&(tile, n)));
        let number = free.ok_or_else(|| op.error(format!("no descriptor of {tile} is free")))?;
        self.taken.insert((tile, number));
        let name = op.result()?.to_owned();
        sequence.constants.insert(name, number.into());
        Ok(())
    }

    fn number(&mut self, channel: ChannelAt, of: &Descriptor) -> Result<u8, SyntaxError> {
        let kind = channel.tile.kind();
        let reaches = |number: u8| kind.reaches(channel.number, number);
        let free = (0..kind.descriptors())
            .find(|&n| reaches(n) && !self.taken.contains(&(channel.tile, n)));
        let number = of.number.or(free).filter(|&number| reaches(number));
        let number = number.ok_or_else(|| {
            let problem = format!(
                "no descriptor of {} is free: none was awaited or given free",
                channel.tile
            );
            SyntaxError::new(of.at, problem).in_op("aie.dma_bd")
        })?;
        self.taken.insert((channel.tile, number));
        Ok(number)
    }

    fn configure(&mut self, sequence: &mut Sequence<'_>, op: &Op) -> Result<(), SyntaxError> {
        op.only(&[
            "alloc",
            "channel_dir",
            "channel",
            "issue_token",
            "repeat_count",
            "packet",
            "out_of_order",
        ])?;
        let mut packet = design::packet_of(op)?;
        let channel = match op.name.as_str() {
            "aiex.dma_configure_task_for" => {
                let of = sequence.allocation(op, op.text("alloc")?)?;
                packet = packet.or(of.packet);
                of.channel
            }
            _ => {
                let tile = sequence.design.tile(op, op.operand(0)?)?;
                design::channel(op, tile, op.text("channel_dir")?, op.integer("channel")?)?
            }
        };
        let mut all = descriptors(sequence, op, channel)?;
        let executions = executions(op, channel, &mut all)?;
        let mut numbers = Vec::new();
        for descriptor in &all {
            numbers.push(self.number(channel, descriptor)?);
        }
        let first = *numbers
            .first()
            .ok_or_else(|| op.error("a task without `aie.dma_bd`"))?;
        for (i, mut descriptor) in all.into_iter().enumerate() {
            descriptor.packet = descriptor.packet.or(packet);
            let command = SequenceCommand::Descriptor {
                channel,
                number: numbers[i],
                next: numbers.get(i + 1).copied(),
                descriptor: Box::new(descriptor),
            };
            sequence.push(op, command);
        }
        let push = TaskPush {
            descriptor: first,
            executions,
            token: op.flag("issue_token"),
        };
        let task = DmaTask {
            channel,
            push,
            descriptors: numbers,
            is_free: false,
        };
        self.names.insert(op.result()?.to_owned(), self.tasks.len());
        self.tasks.push(task);
        Ok(())
    }
}

/// Executions of a task's chain; of one that receives out of order the packets that it counts.
fn executions(op: &Op, channel: ChannelAt, all: &mut [Descriptor]) -> Result<u64, SyntaxError> {
    let repeats: u64 = op.number_or("repeat_count", 0)?;
    let rounds = repeats.saturating_add(1);
    match (op.flag("out_of_order"), channel.direction) {
        (false, _) => Ok(rounds),
        (true, Direction::S2mm) => design::by_headers(op, all.iter_mut(), rounds),
        (true, Direction::Mm2s) => Err(op.error("`out_of_order` is for S2MM")),
    }
}

/// The tile whose descriptors an op names.
fn pool_tile(op: &Op) -> Result<Tile, SyntaxError> {
    let tile = Tile::new(op.number("column")?, op.number("row")?);
    tile.ok_or_else(|| op.error("an NPU2 has no such tile"))
}

/// The task that executes a chain of the device: its descriptors, with the op's operands in place of its arguments.
fn of_chain(sequence: &Sequence<'_>, op: &Op) -> Result<Op, SyntaxError> {
    let name = op.text("symbol")?;
    let chain = sequence.design.named_chains.get(name);
    let chain = chain.ok_or_else(|| op.error(format!("there is no `aie.bd_chain` @{name}")))?;
    let arguments = chain.region(0)?.blocks.first();
    let arguments = arguments.map_or(&[][..], |block| &block.arguments);
    if arguments.len() != op.operands.len() {
        let (n, given) = (arguments.len(), op.operands.len());
        return Err(op.error(format!("@{name} has {n} arguments, {given} are given")));
    }
    let mut body = chain.clone();
    body.rename(&|inner| {
        let position = arguments.iter().position(|row| row.0 == inner);
        position
            .map_or(inner, |i| op.operands[i].as_str())
            .to_owned()
    });
    let mut task = op.clone();
    let kind = match op.get("alloc") {
        Some(_) => "aiex.dma_configure_task_for",
        None => "aiex.dma_configure_task",
    };
    kind.clone_into(&mut task.name);
    task.operands.clear();
    task.attributes
        .retain(|row| row.0 != "symbol" && row.0 != "tile");
    if let Some(Attribute::Value(tile)) = op.get("tile") {
        task.operands.push(tile.clone());
    }
    task.regions = body.regions;
    Ok(task)
}

/// Meaning of a name in a task: an argument, or a buffer of a tile.
fn memory_of(
    sequence: &Sequence<'_>,
    op: &Op,
    name: &str,
) -> Result<(TileMemory, MemRefType), SyntaxError> {
    if let Some(Entity::Buffer(buffer)) = sequence.design.names.get(name) {
        return Ok((
            TileMemory::Buffer(*buffer),
            sequence.design.buffers[*buffer].of.clone(),
        ));
    }
    let view = sequence.argument(op, name)?;
    Ok((TileMemory::Argument(view.argument), view.of))
}

/// The descriptors of a task, in their order.
fn descriptors(
    sequence: &Sequence<'_>,
    op: &Op,
    channel: ChannelAt,
) -> Result<Vec<Descriptor>, SyntaxError> {
    let region = op.region(0)?;
    let mut all: Vec<Descriptor> = Vec::new();
    for (i, block) in region.blocks.iter().enumerate() {
        // A block that ends a chain has no descriptor.
        if !block.ops.iter().any(|op| op.name == "aie.dma_bd") {
            continue;
        }
        let (mut descriptor, next) = design::block(
            sequence.design,
            block,
            (channel.tile, &sequence.constants),
            &|op, name| memory_of(sequence, op, name),
        )?;
        if matches!(descriptor.memory, TileMemory::Argument(_)) {
            let from = block.ops.iter().find(|op| op.name == "aie.dma_bd");
            let from = from.map(|op| sequence.argument(op, op.operand(0)?));
            let begin = from.transpose()?.map_or(0, |view| view.offset_bytes);
            descriptor.offset_bytes = descriptor.offset_bytes.saturating_add(begin);
        }
        let follows = region.blocks.get(i + 1).map(|block| &block.label);
        if next.is_some() && next.as_ref() != follows {
            return Err(op.error("the chain of a task goes from block to block"));
        }
        all.push(descriptor);
    }
    Ok(all)
}
