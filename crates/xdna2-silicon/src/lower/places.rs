//! Numbers for everything: DMA channels, descriptors, locks, addresses.

use super::NoWords;
use super::memory::Bottom;
use super::stage::{self, Piece, StagePieces};
use crate::core::{CoreImage, EndLink};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{Flat, FlatStage};
use millrace_xdna2_machine::streams::{MemoryEnd, StreamEnds};
use millrace_xdna2_words::WordField as F;
use millrace_xdna2_words::tile::{Tile, TileKind};
use millrace_xdna2_words::writer::{ChannelAt, TaskPush};
use std::collections::{BTreeMap, BTreeSet};

/// Descriptors that a channel executes for ever, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    pub(crate) channel: ChannelAt,
    /// Number and fields.
    pub(crate) descriptors: Vec<(u8, Vec<(F, u64)>)>,
}

impl Ring {
    /// The task that starts it.
    pub(super) fn task(&self) -> TaskPush {
        TaskPush {
            descriptor: self.descriptors.first().map_or(0, |d| d.0),
            executions: 1,
            token: false,
        }
    }
}

/// A buffer in a tile's memory.
#[derive(Clone, Debug)]
pub(crate) struct TileBuffer {
    pub(crate) tile: Tile,
    /// Bytes from the memory's beginning.
    pub(crate) address: u64,
    pub(crate) element: Element,
    pub(crate) n_elements: u64,
    /// The part of the launch that it belongs to.
    pub(crate) owner: String,
}

/// Where everything of a launch is.
#[derive(Debug)]
pub(crate) struct Places {
    /// DMA channels of the launch's streams.
    pub(crate) ends: StreamEnds,
    pub(crate) buffers: Vec<TileBuffer>,
    pub(crate) rings: Vec<Ring>,
    /// Tile, number, initial value.
    pub(crate) locks: Vec<(Tile, u8, u64)>,
    pub(crate) cores: Vec<CoreImage>,
    /// For cores whose cascade is used: the value of its register.
    pub(crate) cascades: BTreeMap<Tile, u32>,
}

/// Word address of a memory tile's own memory in its descriptors: the western tile's memory comes first.
pub(crate) const OWN_WORDS: u64 = 0x20000;
/// The same for locks.
pub(crate) const OWN_LOCKS: u64 = 64;

/// Acquire and release of a descriptor.
#[derive(Clone, Copy)]
pub(super) struct LockPair {
    pub(super) acquire: u64,
    pub(super) release: u64,
    pub(super) amount: u64,
}

impl LockPair {
    pub(super) fn fields(self) -> [(F, u64); 6] {
        [
            (F::Valid, 1),
            (F::AcquireEnable, 1),
            (F::AcquireId, self.acquire),
            // Negative: waits for that much and takes it.
            (F::AcquireValue, (128 - self.amount) & 127),
            (F::ReleaseId, self.release),
            (F::ReleaseValue, self.amount),
        ]
    }
}

/// An end of a stage before it has a channel.
struct StageEndPlan {
    end: MemoryEnd,
    /// Fields of its descriptors, without the links between them.
    descriptors: Vec<Vec<(F, u64)>>,
}

/// The pairs of locks of a stage: one a piece, or one for all.
struct StagePairs<'a> {
    pieces: &'a StagePieces,
    stage: &'a FlatStage<'a>,
    copies: u64,
    next_lock: &'a mut u8,
    /// Empty and full by fill and drain.
    known: BTreeMap<(usize, usize), (u64, u64)>,
    /// Numbers with initial values.
    locks: Vec<(u8, u64)>,
}

impl StagePairs<'_> {
    /// Empty and full lock between a fill and a drain.
    fn pair(&mut self, fill: usize, drain: usize) -> (u64, u64) {
        let n_fills = self.stage.fills.len() as u64;
        let times = u64::from(self.stage.drains[drain].decl.repeat);
        let (key, initial) = match self.pieces.is_counted {
            true => ((0, 0), self.copies * n_fills),
            false => ((fill, drain), self.copies * times),
        };
        *self.known.entry(key).or_insert_with(|| {
            let (empty, full) = (*self.next_lock, *self.next_lock + 1);
            *self.next_lock = self.next_lock.saturating_add(2);
            self.locks.extend([(empty, initial), (full, 0)]);
            (OWN_LOCKS + u64::from(empty), OWN_LOCKS + u64::from(full))
        })
    }

    /// A fill takes as many empty ones as the drain will send the piece.
    fn of_fill(&mut self, fill: usize, drain: usize) -> LockPair {
        let (acquire, release) = self.pair(fill, drain);
        LockPair {
            acquire,
            release,
            amount: self.stage.drains[drain].decl.repeat.into(),
        }
    }

    /// A drain that counts takes the blocks of all fills.
    fn of_drain(&mut self, fill: usize, drain: usize) -> LockPair {
        let (release, acquire) = self.pair(fill, drain);
        let n_fills = self.stage.fills.len() as u64;
        LockPair {
            acquire,
            release,
            amount: if self.pieces.is_counted { n_fills } else { 1 },
        }
    }
}

impl Places {
    /// Places everything.
    pub(crate) fn new(flat: &Flat<'_>, machine: &Machine) -> Result<Places, NoWords> {
        let mut places = Places {
            ends: StreamEnds::none(flat),
            buffers: Vec::new(),
            rings: Vec::new(),
            locks: Vec::new(),
            cores: Vec::new(),
            cascades: BTreeMap::new(),
        };
        places.ends.shims(flat)?;
        for col in 0..8 {
            places.memory_tile(flat, col)?;
        }
        places.ends.cores(flat)?;
        places.cores(flat, machine)?;
        Ok(places)
    }

    /// All DMA channels, in order.
    pub(crate) fn channels(&self) -> BTreeSet<&ChannelAt> {
        self.ends.channels()
    }

    /// Cascades that are used, each from a core to the next.
    pub(crate) fn cascade_links(&self) -> Vec<(Tile, Tile)> {
        let sends = |core: &&CoreImage| {
            let mut ends = core.ends.iter();
            ends.any(|end| !end.is_input && end.link == EndLink::Cascade)
        };
        let link = |core: &CoreImage| {
            let is_east = self.cascades.get(&core.tile)? >> 1 & 1 == 1;
            let (east, north) = if is_east { (1, 0) } else { (0, -1) };
            Some((core.tile, core.tile.neighbour(east, north)?))
        };
        self.cores.iter().filter(sends).filter_map(link).collect()
    }

    fn memory_tile(&mut self, flat: &Flat<'_>, col: u32) -> Result<(), NoWords> {
        let at = tile(col, 1)?;
        let mut ends = Vec::new();
        let mut bottom = Bottom::new(0, TileKind::Memory.data_bytes().into());
        let mut next_lock = 0u8;
        for (id, stage) in flat
            .stages
            .iter()
            .enumerate()
            .filter(|row| row.1.col == col)
        {
            let name = || format!("stage {}", flat.stage_name(id));
            if stage.decl.element == Element::I4 {
                return Err(NoWords::new(
                    name(),
                    "no words yet for elements of four bits",
                ));
            }
            let addresses: Result<Vec<u64>, String> = (0..stage.decl.copies)
                .map(|_| bottom.take(stage.decl.block_bytes()))
                .collect();
            let addresses = addresses.map_err(|problem| NoWords::new(name(), problem))?;
            let of = (stage.decl.element, stage.decl.block_elements());
            self.hold(at, &addresses, of, &name());
            let pieces = stage::pieces(flat, id)?;
            self.stage(
                flat,
                id,
                at,
                &pieces,
                (&addresses, &mut next_lock),
                &mut ends,
            )?;
        }
        if next_lock > TileKind::Memory.locks() {
            let problem = format!("{next_lock} locks of {}", TileKind::Memory.locks());
            return Err(NoWords::new(at.to_string(), problem));
        }
        self.number_ends(flat, col, ends)
    }

    /// Records buffers of a tile: their elements and their owner.
    pub(super) fn hold(
        &mut self,
        tile: Tile,
        addresses: &[u64],
        (element, n_elements): (Element, u64),
        owner: &str,
    ) {
        let buffers = addresses.iter().map(|&address| TileBuffer {
            tile,
            address,
            element,
            n_elements,
            owner: owner.to_owned(),
        });
        self.buffers.extend(buffers);
    }

    /// Locks and descriptors of a stage.
    fn stage(
        &mut self,
        flat: &Flat<'_>,
        id: usize,
        at: Tile,
        pieces: &StagePieces,
        (addresses, next_lock): (&[u64], &mut u8),
        ends: &mut Vec<StageEndPlan>,
    ) -> Result<(), NoWords> {
        let stage = &flat.stages[id];
        let mut pairs = StagePairs {
            pieces,
            stage,
            copies: addresses.len() as u64,
            next_lock,
            known: BTreeMap::new(),
            locks: Vec::new(),
        };
        let end = |is_fill: bool, end: usize, descriptors: Vec<_>| StageEndPlan {
            end: MemoryEnd {
                channel: if is_fill { &stage.fills } else { &stage.drains }[end].channel,
                is_fill,
                n_descriptors: descriptors.len(),
            },
            descriptors,
        };
        for (fill, parts) in pieces.fills.iter().enumerate() {
            let mut descriptors = Vec::new();
            for address in addresses {
                for piece in parts {
                    let locks = pairs.of_fill(fill, piece.other);
                    descriptors.push(descriptor(piece, *address, locks)?);
                }
            }
            ends.push(end(true, fill, descriptors));
        }
        for (drain, parts) in pieces.drains.iter().enumerate() {
            let mut descriptors = Vec::new();
            // A single copy is sent again by the ring itself, once for each full lock.
            let times = match addresses.len() {
                1 => 1,
                _ => stage.drains[drain].decl.repeat,
            };
            for address in addresses {
                for piece in (0..times).flat_map(|_| parts) {
                    let locks = pairs.of_drain(piece.other, drain);
                    descriptors.push(descriptor(piece, *address, locks)?);
                }
            }
            ends.push(end(false, drain, descriptors));
        }
        let locks = pairs.locks.into_iter();
        self.locks
            .extend(locks.map(|(lock, value)| (at, lock, value)));
        Ok(())
    }

    /// Gives the ends of a memory tile channels and descriptors.
    fn number_ends(
        &mut self,
        flat: &Flat<'_>,
        col: u32,
        mut plans: Vec<StageEndPlan>,
    ) -> Result<(), NoWords> {
        let ends: Vec<MemoryEnd> = plans.iter().map(|plan| plan.end).collect();
        for numbered in self.ends.memory_tile(flat, col, &ends)? {
            let descriptors = std::mem::take(&mut plans[numbered.end].descriptors);
            self.ring(numbered.at, numbered.first, descriptors);
        }
        Ok(())
    }

    /// Links descriptors to a ring.
    pub(super) fn ring(&mut self, channel: ChannelAt, first: u8, descriptors: Vec<Vec<(F, u64)>>) {
        let n = descriptors.len() as u8;
        let numbered = (0..n).zip(descriptors).map(|(i, mut fields)| {
            fields.push((F::UseNext, 1));
            fields.push((F::Next, u64::from(first + (i + 1) % n)));
            (first + i, fields)
        });
        let descriptors = numbered.collect();
        self.rings.push(Ring {
            channel,
            descriptors,
        });
    }
}

fn descriptor(piece: &Piece, address: u64, locks: LockPair) -> Result<Vec<(F, u64)>, NoWords> {
    let mut fields = piece.walk.fields.clone();
    fields.push((F::Base, OWN_WORDS + (address + piece.walk.offset_bytes) / 4));
    fields.extend(locks.fields());
    Ok(fields)
}

pub(super) fn tile(col: u32, row: u32) -> Result<Tile, NoWords> {
    Tile::new(col, row).ok_or_else(|| NoWords::new("the array", format!("no tile ({col}, {row})")))
}
