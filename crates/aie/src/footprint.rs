//! Resources of the array that a design uses, checked without running it.

use crate::core::compile;
use crate::design::{ArgumentPart, Design};
use crate::lower::lower;
use crate::syntax::SyntaxError;
use millrace_xdna2_words::{Tile, TileKind};
use std::collections::BTreeMap;

/// Resources of a design.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// By tile, in the order of columns and rows.
    pub tiles: Vec<TileUse>,
    /// Arguments that the sequence reads.
    pub reads: Vec<usize>,
    /// Arguments that it writes.
    pub writes: Vec<usize>,
    /// Whether a shim sends control packets: the host's input for them is not data.
    pub takes_control_packets: bool,
    /// Streams through the switches.
    pub n_streams: usize,
    /// Operations of the transaction stream.
    pub n_operations: usize,
    /// Its bytes.
    pub stream_bytes: usize,
    /// Unknown kernels: they are called and compute nothing.
    pub unknown_kernels: Vec<String>,
    /// Meanings given to kernels.
    pub notes: Vec<String>,
}

/// Resources of a tile that a design uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileUse {
    /// The tile, as in `memory (0, 1)`.
    pub tile: String,
    /// Bytes of buffers and stack.
    pub memory_bytes: u32,
    /// Bytes of its memory.
    pub capacity_bytes: u32,
    /// Locks.
    pub n_locks: usize,
    /// Descriptors of DMA programs; those of the sequence's tasks are not among them.
    pub n_descriptors: usize,
    /// Instructions of the core's program in this interpreter.
    pub n_instructions: usize,
}

impl Design {
    /// Checks everything that can be checked without running: places, routes, fields, programs.
    ///
    /// # Errors
    /// The first fault, with its place.
    pub fn check(&self) -> Result<Footprint, SyntaxError> {
        if self.stages.is_empty() {
            return self.check_own();
        }
        let mut all = Footprint::default();
        for stage in &self.stages {
            all.add(stage.design.check_own()?, &stage.parts);
        }
        Ok(all)
    }

    fn check_own(&self) -> Result<Footprint, SyntaxError> {
        let lowered = lower(self)?;
        let mut tiles: BTreeMap<Tile, TileUse> = BTreeMap::new();
        let mut unknown_kernels = Vec::new();
        let mut notes = self.notes.clone();
        for buffer in &self.buffers {
            let tile = of(&mut tiles, buffer.tile);
            tile.memory_bytes = tile.memory_bytes.saturating_add(buffer.bytes);
        }
        for lock in &self.locks {
            of(&mut tiles, lock.tile).n_locks += 1;
        }
        for descriptor in &self.descriptors {
            of(&mut tiles, descriptor.tile).n_descriptors += 1;
        }
        for core in &self.cores {
            let compiled = compile(self, &lowered.places, core)?;
            let tile = of(&mut tiles, core.tile);
            tile.memory_bytes = tile.memory_bytes.saturating_add(core.stack_bytes);
            tile.n_instructions = compiled.code.instructions.len();
            for name in compiled.unknown {
                if !unknown_kernels.contains(&name) {
                    unknown_kernels.push(name);
                }
            }
            for note in compiled.notes {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        Ok(Footprint {
            tiles: tiles.into_values().collect(),
            reads: (lowered.reads.into_iter())
                .filter(|&i| !self.is_given(i))
                .collect(),
            writes: lowered.writes.into_iter().collect(),
            // Packets that the design itself contains come by flows that were added for them.
            takes_control_packets: !self.arguments.iter().any(|of| of.given.is_some())
                && (self.flows.iter())
                    .any(|flow| flow.has_control() && flow.from.tile.kind() == TileKind::Shim),
            n_streams: self.flows.len(),
            n_operations: lowered.stream.operations.len(),
            stream_bytes: lowered.stream.encode().len() * 4,
            unknown_kernels,
            notes,
        })
    }
}

impl Footprint {
    /// Adds another configuration's, whose arguments are parts of this one's.
    fn add(&mut self, other: Footprint, parts: &[ArgumentPart]) {
        let argument = |i: usize| parts.get(i).map(|part| part.argument);
        let reads = other.reads.into_iter().filter_map(argument);
        let writes = other.writes.into_iter().filter_map(argument);
        add(&mut self.reads, reads);
        add(&mut self.writes, writes);
        add(&mut self.unknown_kernels, other.unknown_kernels.into_iter());
        add(&mut self.notes, other.notes.into_iter());
        self.takes_control_packets |= other.takes_control_packets;
        self.tiles.extend(other.tiles);
        self.n_streams += other.n_streams;
        self.n_operations += other.n_operations;
        self.stream_bytes += other.stream_bytes;
    }
}

/// Adds the items that are not in the list yet.
fn add<T: PartialEq>(to: &mut Vec<T>, more: impl Iterator<Item = T>) {
    for one in more {
        if !to.contains(&one) {
            to.push(one);
        }
    }
}

fn of(tiles: &mut BTreeMap<Tile, TileUse>, tile: Tile) -> &mut TileUse {
    tiles.entry(tile).or_insert_with(|| TileUse {
        tile: tile.to_string(),
        memory_bytes: 0,
        capacity_bytes: tile.kind().data_bytes(),
        n_locks: 0,
        n_descriptors: 0,
        n_instructions: 0,
    })
}
