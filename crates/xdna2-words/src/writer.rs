//! Streams written part by part: a tile's resets, switches, locks, descriptors, tasks.
//!
//! The writer's output is complete: a switch that is used has all of its ports set, so that nothing of an earlier
//! stream is left in it.

mod selection;

pub use selection::PacketRule;

use crate::descriptor;
use crate::field::{FieldError, Record, WordField};
use crate::port::{self, Bundle, SwitchPort};
use crate::register::{self, BlockKind};
use crate::tile::{Direction, Tile, TileKind};
use crate::txn::{StreamHeader, TxnOperation, TxnStream};
use std::collections::{BTreeMap, BTreeSet};

/// Why something cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriterError {
    /// A value does not fit its field.
    #[error("{tile}: {error}")]
    Field {
        /// The tile.
        tile: Tile,
        /// The error.
        error: FieldError,
    },
    /// The hardware has no such thing.
    #[error("{tile}: {problem}")]
    Hardware {
        /// The tile.
        tile: Tile,
        /// Description of the fault.
        problem: String,
    },
}

/// The ports of a tile's switch.
#[derive(Clone, Debug)]
struct SwitchWords {
    masters: Vec<u32>,
    slaves: Vec<u32>,
    /// By slave.
    slots: BTreeMap<u8, [u32; 4]>,
}

/// A task for a DMA channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPush {
    /// The first descriptor.
    pub descriptor: u8,
    /// How often its chain is executed.
    pub executions: u64,
    /// Whether a token is sent at its end.
    pub token: bool,
}

/// A DMA channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelAt {
    /// Its tile.
    pub tile: Tile,
    /// Its direction.
    pub direction: Direction,
    /// Its number.
    pub number: u8,
}

/// Writes a stream.
#[derive(Debug)]
pub struct StreamWriter {
    stream: TxnStream,
    switches: BTreeMap<Tile, SwitchWords>,
    /// Channels that are used and have a reset.
    channels: BTreeSet<ChannelAt>,
    cores: BTreeSet<Tile>,
}

impl StreamWriter {
    /// An empty stream for an NPU2 of that many columns.
    pub fn new(columns: u8) -> StreamWriter {
        StreamWriter {
            stream: TxnStream::new(StreamHeader::npu2(columns)),
            switches: BTreeMap::new(),
            channels: BTreeSet::new(),
            cores: BTreeSet::new(),
        }
    }

    /// The stream.
    pub fn finish(self) -> TxnStream {
        self.stream
    }

    /// Operations so far.
    pub fn n_operations(&self) -> usize {
        self.stream.operations.len()
    }

    /// Bytes so far, the header with them.
    pub fn n_bytes(&self) -> usize {
        self.stream.n_words() * 4
    }

    /// Adds an operation as it is.
    pub fn operation(&mut self, operation: TxnOperation) {
        self.stream.push(operation);
    }

    fn offset(tile: Tile, kind: BlockKind, number: u32) -> Result<u32, WriterError> {
        let offset = register::offset(tile.kind(), kind, number);
        offset.map(|offset| tile.address(offset)).ok_or_else(|| {
            let problem = format!("it has no {}", kind.name(number));
            WriterError::Hardware { tile, problem }
        })
    }

    /// Writes a register.
    ///
    /// # Errors
    /// The tile has none of that kind and number.
    pub fn write(
        &mut self,
        tile: Tile,
        kind: BlockKind,
        number: u32,
        value: u32,
    ) -> Result<(), WriterError> {
        let address = Self::offset(tile, kind, number)?.into();
        self.stream.push(TxnOperation::Write { address, value });
        Ok(())
    }

    fn block(
        &mut self,
        tile: Tile,
        kind: BlockKind,
        number: u32,
        data: Vec<u32>,
    ) -> Result<(), WriterError> {
        let address = Self::offset(tile, kind, number)?;
        self.stream.push(TxnOperation::BlockWrite { address, data });
        Ok(())
    }

    /// Writes words to a tile's data memory, from a byte on.
    ///
    /// # Errors
    /// The byte is not at a word of that memory.
    pub fn data(&mut self, tile: Tile, byte: u32, words: Vec<u32>) -> Result<(), WriterError> {
        self.block(tile, BlockKind::DataMemory, byte / 4, words)
    }

    /// Joins a slave port to a master port of a switch.
    ///
    /// # Errors
    /// The switch cannot, or another slave has the master already.
    pub fn circuit(
        &mut self,
        tile: Tile,
        slave: SwitchPort,
        master: SwitchPort,
    ) -> Result<(), WriterError> {
        let kind = tile.kind();
        let fail = |problem: String| Err(WriterError::Hardware { tile, problem });
        let from = port::number(port::slaves(kind), slave);
        let to = port::number(port::masters(kind), master);
        let (Some(from), Some(to)) = (from, to) else {
            return fail(format!("it has no {slave} and {master}"));
        };
        if !port::has_master(tile, master) || !port::is_legal(kind, slave, master) {
            return fail(format!("{slave} cannot be joined to {master}"));
        }
        let switch = self.switch(tile);
        let value = 1 << 31 | u32::from(from);
        let old = std::mem::replace(&mut switch.masters[usize::from(to)], value);
        if old != 0 && old != value {
            return fail(format!("{master} has another slave already"));
        }
        switch.slaves[usize::from(from)] = 1 << 31;
        Ok(())
    }

    /// Joins a slave port to a master port for packets of an id, headers and all.
    ///
    /// # Errors
    /// As [`circuit`](StreamWriter::circuit).
    pub fn packets(
        &mut self,
        tile: Tile,
        (slave, master): (SwitchPort, SwitchPort),
        id: u32,
        arbiter: u32,
    ) -> Result<(), WriterError> {
        self.circuit(tile, slave, master)?;
        let kind = tile.kind();
        let (Some(from), Some(to)) = (
            port::number(port::slaves(kind), slave),
            port::number(port::masters(kind), master),
        ) else {
            return Ok(());
        };
        let switch = self.switch(tile);
        switch.masters[usize::from(to)] = 3 << 30 | 1 << 3 | arbiter & 7;
        switch.slaves[usize::from(from)] = 3 << 30;
        let slot = (id & 31) << 24 | 31 << 16 | 1 << 8 | arbiter & 7;
        switch.slots.insert(from, [slot, 0, 0, 0]);
        Ok(())
    }

    /// Lets packets of another slave leave by a master that takes an arbiter's packets already.
    ///
    /// # Errors
    /// The master takes none of that arbiter.
    pub fn packets_also(
        &mut self,
        tile: Tile,
        (slave, master): (SwitchPort, SwitchPort),
        id: u32,
        arbiter: u32,
    ) -> Result<(), WriterError> {
        let kind = tile.kind();
        let from = port::number(port::slaves(kind), slave);
        let to = port::number(port::masters(kind), master);
        let switch = self.switch(tile);
        match (from, to) {
            (Some(from), Some(to))
                if switch.masters[usize::from(to)] == 3 << 30 | 1 << 3 | arbiter & 7 =>
            {
                switch.slaves[usize::from(from)] = 3 << 30;
                let slot = (id & 31) << 24 | 31 << 16 | 1 << 8 | arbiter & 7;
                switch.slots.insert(from, [slot, 0, 0, 0]);
                Ok(())
            }
            _ => {
                let problem = format!("{master} takes no packets of arbiter {arbiter}");
                Err(WriterError::Hardware { tile, problem })
            }
        }
    }

    fn switch(&mut self, tile: Tile) -> &mut SwitchWords {
        self.switches.entry(tile).or_insert_with(|| SwitchWords {
            masters: vec![0; usize::from(port::count(port::masters(tile.kind())))],
            slaves: vec![0; usize::from(port::count(port::slaves(tile.kind())))],
            slots: BTreeMap::new(),
        })
    }

    /// A shim's completion tokens go to the firmware.
    ///
    /// # Errors
    /// As [`circuit`](StreamWriter::circuit).
    pub fn token_route(&mut self, col: u8) -> Result<(), WriterError> {
        let tile = Tile { col, row: 0 };
        let ports = (
            port::port(Bundle::TileControl, 0),
            port::port(Bundle::South, 0),
        );
        self.packets(tile, ports, 0, 0)
    }

    /// Uses a channel: it is reset where it can be, and its control set.
    ///
    /// # Errors
    /// There is no such channel.
    pub fn open(&mut self, channel: ChannelAt) -> Result<(), WriterError> {
        let kind = BlockKind::Control(channel.direction);
        if channel.tile.kind() != TileKind::Shim && self.channels.insert(channel) {
            self.write(channel.tile, kind, channel.number.into(), 2)?;
        }
        self.write(channel.tile, kind, channel.number.into(), 0)
    }

    /// Holds a core in reset.
    ///
    /// # Errors
    /// It is not a core.
    pub fn hold(&mut self, core: Tile) -> Result<(), WriterError> {
        self.cores.insert(core);
        self.write(core, BlockKind::CoreControl, 0, 2)
    }

    /// Lets all cores that are held run.
    ///
    /// # Errors
    /// None of them is a core.
    pub fn start_cores(&mut self) -> Result<(), WriterError> {
        for core in self.cores.clone() {
            self.write(core, BlockKind::CoreControl, 0, 0)?;
            self.write(core, BlockKind::CoreControl, 0, 1)?;
        }
        Ok(())
    }

    /// Writes all switches that were joined.
    ///
    /// # Errors
    /// None.
    pub fn switches(&mut self) -> Result<(), WriterError> {
        for (tile, switch) in std::mem::take(&mut self.switches) {
            if tile.kind() == TileKind::Shim {
                let joined = |order: &[(Bundle, u8)], words: &[u32], port| {
                    let at = port::number(order, port);
                    at.is_some_and(|at| words[usize::from(at)] >> 31 == 1)
                };
                let south = |index| port::port(Bundle::South, index);
                let slave =
                    |index| joined(port::slaves(TileKind::Shim), &switch.slaves, south(index));
                let master =
                    |index| joined(port::masters(TileKind::Shim), &switch.masters, south(index));
                let mux = u32::from(slave(3)) << 10 | u32::from(slave(7)) << 14;
                let demux = u32::from(master(2)) << 4 | u32::from(master(3)) << 6;
                self.write(tile, BlockKind::Mux, 0, mux)?;
                self.write(tile, BlockKind::Demux, 0, demux)?;
            }
            for (slave, slots) in switch.slots {
                self.block(tile, BlockKind::Slot, u32::from(slave) * 4, slots.to_vec())?;
            }
            self.block(tile, BlockKind::Slave, 0, switch.slaves)?;
            self.block(tile, BlockKind::Master, 0, switch.masters)?;
        }
        Ok(())
    }

    /// Sets a lock.
    ///
    /// # Errors
    /// There is no such lock, or the value is more than it holds.
    pub fn lock(&mut self, tile: Tile, lock: u8, value: u64) -> Result<(), WriterError> {
        let record = Record::new(&register::LOCK).with(&[(WordField::LockValue, value)]);
        let record = record.map_err(|error| WriterError::Field { tile, error })?;
        self.write(tile, BlockKind::Lock, lock.into(), record.word())
    }

    /// Writes a descriptor. A shim's comes without an address, which a patch adds.
    ///
    /// # Errors
    /// There is no such descriptor, or a field does not hold its value.
    pub fn descriptor(
        &mut self,
        tile: Tile,
        number: u8,
        fields: &[(WordField, u64)],
    ) -> Result<(), WriterError> {
        let record = Record::new(descriptor::layout(tile.kind())).with(fields);
        let record = record.map_err(|error| WriterError::Field { tile, error })?;
        self.block(tile, BlockKind::Descriptor, number.into(), record.words())
    }

    /// Has the address of an argument, and so many bytes, added to a shim's descriptor.
    ///
    /// # Errors
    /// The tile has no such descriptor.
    pub fn patch(
        &mut self,
        tile: Tile,
        number: u8,
        argument: u32,
        plus_bytes: u64,
    ) -> Result<(), WriterError> {
        let register = u64::from(Self::offset(tile, BlockKind::Descriptor, number.into())?) + 4;
        self.stream.push(TxnOperation::Patch {
            register,
            argument,
            plus_bytes,
        });
        Ok(())
    }

    /// Pushes a task.
    ///
    /// # Errors
    /// There is no such channel, or a field does not hold its value.
    pub fn push(&mut self, channel: ChannelAt, task: TaskPush) -> Result<(), WriterError> {
        let tile = channel.tile;
        let layout = match tile.kind() {
            TileKind::Memory => &register::MEMORY_QUEUE,
            _ => &register::QUEUE,
        };
        let record = Record::new(layout).with(&[
            (WordField::StartDescriptor, task.descriptor.into()),
            (WordField::Repeat, task.executions.saturating_sub(1)),
            (WordField::Token, task.token.into()),
        ]);
        let record = record.map_err(|error| WriterError::Field { tile, error })?;
        let kind = BlockKind::Queue(channel.direction);
        self.write(tile, kind, channel.number.into(), record.word())
    }

    /// Waits for a channel's token.
    pub fn await_token(&mut self, channel: ChannelAt) {
        self.stream.push(TxnOperation::Sync {
            direction: channel.direction as u8,
            col: channel.tile.col,
            row: channel.tile.row,
            channel: channel.number,
            n_cols: 1,
            n_rows: 1,
        });
    }

    /// Leaves the array quiet: waits for the cores' ends and stops them, takes all tasks from channels
    /// of cores and memory tiles.
    ///
    /// # Errors
    /// None.
    pub fn quieten(&mut self) -> Result<(), WriterError> {
        const DONE: u32 = 1 << 20;
        for core in std::mem::take(&mut self.cores) {
            let address = Self::offset(core, BlockKind::CoreStatus, 0)?.into();
            self.stream.push(TxnOperation::MaskPoll {
                address,
                value: DONE,
                mask: DONE,
                busy: false,
            });
            self.write(core, BlockKind::CoreControl, 0, 2)?;
        }
        for channel in std::mem::take(&mut self.channels) {
            let kind = BlockKind::Control(channel.direction);
            self.write(channel.tile, kind, channel.number.into(), 2)?;
        }
        Ok(())
    }
}
