//! A design: tiles, buffers, locks, descriptors, flows, cores and the sequence.
//!
//! Ops of the text become plain data with numbers in place of names. Object FIFOs become buffers, locks, descriptors
//! and flows, as in mlir-aie's `aie-objectFifo-stateful-transform`.

mod allocation;
mod arguments;
mod build;
mod choose;
mod control_packet;
mod descriptor;
mod dma;
mod fifo;
mod fifo_link;
mod flow;
mod logical;
mod overlay;
mod scope;
mod scratchpad;
mod stages;
mod switch;

pub(crate) use allocation::{ShimAllocation, channel};
pub use choose::{HostNumber, ReadOptions};
pub(crate) use descriptor::{
    Constants, LockAction, block, by_headers, constant, number, offset_entry, packet_of, use_lock,
};
pub(crate) use scratchpad::ScratchpadWord;
pub(crate) use switch::{Switch, Switches};

use crate::syntax::{Location, MemRefType, Op, SyntaxError, parse};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::port::Bundle;
use millrace_xdna2_words::router::TilePort;
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::BTreeMap;

/// A design that was read.
#[derive(Clone, Debug, Default)]
pub struct Design {
    /// The device as the text names it.
    pub device: String,
    /// Columns that the device has.
    pub(crate) n_columns: u8,
    /// Its name, where it has one.
    pub name: String,
    /// Notes for the reader: assumptions, and parts that were left out.
    pub notes: Vec<String>,
    pub(crate) arguments: Vec<Argument>,
    /// Arguments of the sequence that are numbers.
    pub(crate) numbers: Constants,
    /// The host's scratchpad, word by word.
    pub(crate) scratchpad: Vec<ScratchpadWord>,
    /// Devices of the text that have nothing: to load one changes nothing that a design relies on.
    pub(crate) empty_devices: Vec<String>,
    pub(crate) names: BTreeMap<String, Entity>,
    pub(crate) symbols: BTreeMap<String, Entity>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) descriptors: Vec<Descriptor>,
    pub(crate) chains: Vec<BdChain>,
    /// Chains that tasks of the sequence execute, by name.
    pub(crate) named_chains: BTreeMap<String, Op>,
    pub(crate) flows: Vec<Flow>,
    /// Cores that send to a neighbour by the cascade, each with that neighbour.
    pub(crate) cascades: Vec<(Tile, Tile)>,
    /// Channels of shims by the names that the sequence uses.
    pub(crate) allocations: BTreeMap<String, ShimAllocation>,
    /// Routes from the text; without them streams are routed here.
    pub(crate) switches: Option<Switches>,
    /// Ids of the packets that tiles send their tokens in, if the text has them.
    pub(crate) controllers: BTreeMap<Tile, u8>,
    pub(crate) fifos: BTreeMap<String, Fifo>,
    pub(crate) cores: Vec<Core>,
    pub(crate) functions: BTreeMap<String, Op>,
    pub(crate) globals: BTreeMap<String, Global>,
    pub(crate) sequence: Vec<Op>,
    /// Configurations that the sequence loads one after the other, each with the sequence that it runs there. Empty if
    /// everything belongs to this device.
    pub(crate) stages: Vec<DesignStage>,
    /// Whether the sequence waits for a place before a task that may find a queue full.
    pub(crate) queue_waits: bool,
    /// Whether tiles trace: packets that nothing here sends.
    pub(crate) has_traces: bool,
}

/// A configuration that a sequence loads: a design whose arguments are parts of the sequence's.
#[derive(Clone, Debug)]
pub(crate) struct DesignStage {
    pub(crate) design: Design,
    /// By argument of the design.
    pub(crate) parts: Vec<ArgumentPart>,
}

/// Part of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentPart {
    pub(crate) argument: usize,
    pub(crate) offset_bytes: u64,
    pub(crate) bytes: u64,
}

/// Meaning of a name of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entity {
    Tile(Tile),
    Buffer(usize),
    Lock(usize),
    /// A whole number.
    Constant(i64),
}

/// An argument of the sequence: host memory.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) of: MemRefType,
    /// Bytes of its type, or more if transfers reach farther.
    pub(crate) bytes: u64,
    /// Its content, if the design gives it.
    pub(crate) given: Option<Vec<u8>>,
}

/// A buffer in a tile.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) tile: Tile,
    pub(crate) of: MemRefType,
    pub(crate) bytes: u32,
    pub(crate) address: Option<u32>,
    pub(crate) initial: Option<Vec<u8>>,
    pub(crate) at: Location,
}

/// A lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) tile: Tile,
    pub(crate) number: Option<u8>,
    pub(crate) initial: u8,
    pub(crate) at: Location,
}

/// Memory that a descriptor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileMemory {
    Buffer(usize),
    Argument(usize),
}

/// A buffer descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    /// The tile whose DMA has it.
    pub(crate) tile: Tile,
    pub(crate) memory: TileMemory,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) element_bytes: u64,
    /// Sizes and strides in elements, the outermost first.
    pub(crate) dimensions: Vec<(u64, u64)>,
    /// Elements of padding before and after, by dimension.
    pub(crate) padding: Vec<(u64, u64)>,
    pub(crate) iteration: Option<BdIteration>,
    pub(crate) acquire: Option<(usize, u64)>,
    /// Whether it waits for just that much.
    pub(crate) acquires_equal: bool,
    pub(crate) release: Option<(usize, u64)>,
    /// Type and id.
    pub(crate) packet: Option<(u64, u64)>,
    /// The word of the scratchpad with the number of elements that its address is moved by.
    pub(crate) offset_entry: Option<u8>,
    /// The number that its packets' headers give the receiver's descriptor.
    pub(crate) out_of_order_id: Option<u64>,
    /// Whether headers of packets name it, and no chain.
    pub(crate) by_header: bool,
    pub(crate) burst_bytes: u64,
    pub(crate) next: Option<usize>,
    pub(crate) number: Option<u8>,
    pub(crate) at: Location,
}

/// How a descriptor moves on from one execution to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BdIteration {
    /// Executions until it begins again.
    pub(crate) size: u64,
    /// Elements from one to the next.
    pub(crate) stride: u64,
    /// Number of the first execution.
    pub(crate) current: u64,
}

/// Chain that a channel executes from the start.
#[derive(Clone, Debug)]
pub(crate) struct BdChain {
    pub(crate) channel: ChannelAt,
    pub(crate) first: usize,
    pub(crate) executions: u64,
    /// The word that padding sends; 0 without it.
    pub(crate) pad_value: Option<u32>,
    pub(crate) at: Location,
}

/// A stream from a port to others.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) name: String,
    pub(crate) from: TilePort,
    pub(crate) to: Vec<TilePort>,
    /// The id of its packets; `None` for a circuit.
    pub(crate) packet: Option<u8>,
    pub(crate) keeps_header: bool,
    pub(crate) at: Location,
}

impl Flow {
    /// Whether it ends at a control port.
    pub(crate) fn has_control(&self) -> bool {
        let mut ends = self.to.iter();
        ends.any(|end| end.port.bundle == Bundle::TileControl)
    }
}

/// An object FIFO as cores see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo {
    /// By tile: the end that its core has.
    pub(crate) ends: Vec<FifoEnd>,
}

/// A core's end of an object FIFO.
#[derive(Clone, Debug)]
pub(crate) struct FifoEnd {
    pub(crate) tile: Tile,
    pub(crate) is_producer: bool,
    /// Used in turn.
    pub(crate) buffers: Vec<usize>,
    /// Counts the objects that the end may take.
    pub(crate) acquire: usize,
    /// Counts the objects that the other end may take.
    pub(crate) release: usize,
    /// Units of the locks for one object.
    pub(crate) amount: u64,
}

/// A core's program.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) tile: Tile,
    pub(crate) op: Op,
    pub(crate) stack_bytes: u32,
}

/// A constant or variable of the file.
#[derive(Clone, Debug)]
pub(crate) struct Global {
    pub(crate) of: MemRefType,
    pub(crate) bytes: Option<Vec<u8>>,
}

impl DesignStage {
    fn is_on_own_routes(&self) -> bool {
        self.design.has_packets_on_own_routes()
    }
}

impl Design {
    /// Reads a design: the one device of the text that has a sequence, and its one sequence.
    ///
    /// # Errors
    /// The place, the op and the fault. An unknown op is refused by name.
    pub fn read(text: &str) -> Result<Design, SyntaxError> {
        Design::read_with(text, &ReadOptions::default())
    }

    /// Reads a design, its device and sequence by name.
    ///
    /// # Errors
    /// As [`read`](Design::read); a name that does not exist, with a list of those that do.
    pub fn read_with(text: &str, options: &ReadOptions) -> Result<Design, SyntaxError> {
        let design = build::design(&scratchpad::lowered(parse(text)?)?, options)?;
        choose::numbers_are_taken([&design], options)?;
        Ok(design)
    }

    /// Reads the design that options name. If a text has several and none is named, reads all of them: each
    /// device with a sequence, and each sequence.
    ///
    /// # Errors
    /// As [`read_with`](Design::read_with).
    pub fn read_all(
        text: &str,
        options: &ReadOptions,
    ) -> Result<Vec<(ReadOptions, Design)>, SyntaxError> {
        let ops = scratchpad::lowered(parse(text)?)?;
        let choices = choose::choices(&ops, options)?;
        let read = |choice: ReadOptions| Ok((choice.clone(), build::design(&ops, &choice)?));
        let all: Result<Vec<_>, SyntaxError> = choices.into_iter().map(read).collect();
        let all = all?;
        choose::numbers_are_taken(all.iter().map(|row| &row.1), options)?;
        Ok(all)
    }

    /// The arguments of the sequence: name, type, bytes.
    pub fn arguments(&self) -> impl Iterator<Item = (&str, String, u64)> {
        let all = self.arguments.iter();
        all.map(|a| (a.name.as_str(), a.of.to_string(), a.bytes))
    }

    /// Summary of its parts.
    pub fn summary(&self) -> String {
        if !self.stages.is_empty() {
            let names = self
                .stages
                .iter()
                .map(|stage| format!("@{}", stage.design.name));
            let names: Vec<String> = names.collect();
            return format!(
                "device {}: its sequence loads {} configurations: {}",
                self.device,
                names.len(),
                names.join(", ")
            );
        }
        let tiles = self.names.values().filter_map(|entity| match entity {
            Entity::Tile(tile) => Some(*tile),
            _ => None,
        });
        let n_tiles = tiles.collect::<std::collections::BTreeSet<Tile>>().len();
        format!(
            "device {}: {n_tiles} tiles, {} cores, {} buffers, {} locks, {} descriptors, {} streams, {} object FIFOs",
            self.device,
            self.cores.len(),
            self.buffers.len(),
            self.locks.len(),
            self.descriptors.len(),
            self.flows.len(),
            self.fifos.len()
        )
    }

    /// Whether packet streams of the design go by routes that the text lacks. The arbiters that such streams share
    /// decide whether some designs hang.
    pub(crate) fn has_packets_on_own_routes(&self) -> bool {
        // Tokens are a word each, and firmware takes them always.
        let is_token = |flow: &&Flow| flow.from.port.bundle == Bundle::TileControl;
        let packets = self.flows.iter().filter(|flow| flow.packet.is_some());
        let packets = packets.filter(|flow| !is_token(flow));
        let n = packets.count() + usize::from(self.has_traces);
        self.switches.is_none() && n > 1 || self.stages.iter().any(DesignStage::is_on_own_routes)
    }

    /// Whether its sequence frees descriptors that it does not await.
    pub(crate) fn frees_tasks(&self) -> bool {
        fn frees(op: &Op) -> bool {
            let blocks = op.regions.iter().flat_map(|region| &region.blocks);
            op.name == "aiex.dma_free_task" || blocks.flat_map(|of| &of.ops).any(frees)
        }
        self.sequence.iter().any(frees)
    }

    /// Refuses a design of several configurations for a use that needs one.
    pub(crate) fn is_one(&self, what: &str) -> Result<(), SyntaxError> {
        match self.stages.first() {
            None => Ok(()),
            Some(stage) => {
                let n = self.stages.len();
                let problem = format!(
                    "its sequence loads {n} configurations; {what} is of one, as --device-name {} gives it",
                    stage.design.name
                );
                Err(SyntaxError::new(Location::default(), problem))
            }
        }
    }

    /// Whether kernels are those of the first generation.
    pub(crate) fn is_npu1(&self) -> bool {
        self.device == "npu" || self.device.starts_with("npu1")
    }

    pub(crate) fn tile(&self, op: &Op, name: &str) -> Result<Tile, SyntaxError> {
        match self.names.get(name) {
            Some(Entity::Tile(tile)) => Ok(*tile),
            _ => Err(op.error(format!("%{name} is no tile"))),
        }
    }

    pub(crate) fn lock(&self, op: &Op, name: &str) -> Result<usize, SyntaxError> {
        match self.names.get(name) {
            Some(Entity::Lock(lock)) => Ok(*lock),
            _ => Err(op.error(format!("%{name} is no lock"))),
        }
    }
}
