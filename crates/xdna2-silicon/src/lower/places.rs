//! Numbers for everything: DMA channels, descriptors, locks, addresses.

use super::NoWords;
use super::memory::Bottom;
use super::stage::{self, Piece, StagePieces};
use super::walk;
use crate::core::{BlockEnd, CoreImage};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{Env, Flat, FlatCore, Pattern, PatternWalk, Port};
use millrace_xdna2_words::WordField as F;
use millrace_xdna2_words::tile::{Direction, Tile, TileKind};
use millrace_xdna2_words::writer::{ChannelAt, TaskPush};
use std::collections::{BTreeMap, BTreeSet};

/// Descriptors that a channel executes for ever, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) channel: ChannelAt,
    /// Number and fields.
    pub(super) descriptors: Vec<(u8, Vec<(F, u64)>)>,
}

impl Ring {
    /// What starts it.
    pub(super) fn task(&self) -> TaskPush {
        TaskPush {
            descriptor: self.descriptors.first().map_or(0, |d| d.0),
            executions: 1,
            token: false,
        }
    }
}

/// Where everything of a launch is.
#[derive(Debug)]
pub(super) struct Places {
    /// By channel of the launch: what sends.
    pub(super) sources: Vec<Option<ChannelAt>>,
    /// By channel of the launch: what receives, in the order of its sinks.
    pub(super) sinks: Vec<Vec<ChannelAt>>,
    pub(super) rings: Vec<Ring>,
    /// Tile, number, initial value.
    pub(super) locks: Vec<(Tile, u8, u64)>,
    pub(super) cores: Vec<CoreImage>,
}

/// What a word of its own memory is called in a memory tile's descriptor: the western one comes first.
const OWN_WORDS: u64 = 0x20000;
/// The same for locks.
const OWN_LOCKS: u64 = 64;
/// The number of a core's first own lock in its code.
const CORE_LOCKS: u8 = 48;
/// The address of a core's own memory in its code.
const CORE_MEMORY: u32 = 0x70000;

/// Acquire and release of a descriptor.
#[derive(Clone, Copy)]
struct LockPair {
    acquire: u64,
    release: u64,
    amount: u64,
}

impl LockPair {
    fn fields(self) -> [(F, u64); 6] {
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
    stage: usize,
    is_fill: bool,
    end: usize,
    channel: usize,
    /// Fields of its descriptors, without what links them.
    descriptors: Vec<Vec<(F, u64)>>,
}

/// What of a memory tile's descriptors and channels is taken.
#[derive(Default)]
struct MemoryNumbers {
    /// Descriptors of even and of odd channels.
    banks: [u8; 2],
    taken: BTreeSet<(Direction, u8)>,
}

const BANK: u8 = 24;

impl MemoryNumbers {
    /// A channel for an end of so many descriptors, in the emptier bank that has one.
    fn channel(&mut self, direction: Direction, n: usize, only: Option<u8>) -> Option<u8> {
        let free = (0..6u8).filter(|number| {
            let fits = usize::from(self.banks[usize::from(number % 2)]) + n <= usize::from(BANK);
            fits && !self.taken.contains(&(direction, *number)) && only.is_none_or(|o| o == *number)
        });
        let number = free.min_by_key(|number| (self.banks[usize::from(number % 2)], *number))?;
        self.taken.insert((direction, number));
        Some(number)
    }

    fn descriptors(&mut self, number: u8, n: usize) -> u8 {
        let bank = &mut self.banks[usize::from(number % 2)];
        let first = number % 2 * BANK + *bank;
        *bank += n as u8;
        first
    }
}

impl Places {
    /// Places everything.
    pub(super) fn new(flat: &Flat<'_>, machine: &Machine) -> Result<Places, NoWords> {
        let mut places = Places {
            sources: vec![None; flat.channels.len()],
            sinks: flat.channels.iter().map(|_| Vec::new()).collect(),
            rings: Vec::new(),
            locks: Vec::new(),
            cores: Vec::new(),
        };
        places.shims(flat)?;
        for col in 0..8 {
            places.memory_tile(flat, col)?;
        }
        for core in &flat.cores {
            places.core(flat, core, machine)?;
        }
        Ok(places)
    }

    /// All DMA channels, in order.
    pub(super) fn channels(&self) -> BTreeSet<&ChannelAt> {
        self.sources
            .iter()
            .flatten()
            .chain(self.sinks.iter().flatten())
            .collect()
    }

    fn shims(&mut self, flat: &Flat<'_>) -> Result<(), NoWords> {
        let mut next: BTreeMap<(u32, bool), u8> = BTreeMap::new();
        for (id, channel) in flat.channels.iter().enumerate() {
            let from = matches!(channel.from, Port::Shim { .. });
            for (port, sends) in [(Some(&channel.from), true), (channel.to.first(), false)] {
                let Some(Port::Shim { col }) = port else {
                    continue;
                };
                let number = next.entry((*col, sends)).or_default();
                if *number >= 2 || from && !sends {
                    let problem = "no DMA channel of a shim is left";
                    return Err(NoWords::new(flat.channel_name(id), problem));
                }
                let at = channel_at(tile(*col, 0)?, direction(sends), *number);
                *number += 1;
                match sends {
                    true => self.sources[id] = Some(at),
                    false => self.sinks[id].push(at),
                }
            }
        }
        Ok(())
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
        self.number_ends(flat, at, ends)
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
        let copies = addresses.len() as u64;
        let n_fills = stage.fills.len() as u64;
        let mut pairs: BTreeMap<(usize, usize), (u64, u64)> = BTreeMap::new();
        let mut pair = |places: &mut Places, key, initial: u64| {
            *pairs.entry(key).or_insert_with(|| {
                let (empty, full) = (*next_lock, *next_lock + 1);
                *next_lock = next_lock.saturating_add(2);
                places.locks.extend([(at, empty, initial), (at, full, 0)]);
                (OWN_LOCKS + u64::from(empty), OWN_LOCKS + u64::from(full))
            })
        };
        for (fill, parts) in pieces.fills.iter().enumerate() {
            let mut descriptors = Vec::new();
            for address in addresses {
                for piece in parts {
                    let times = u64::from(stage.drains[piece.other].decl.repeat);
                    let (key, initial) = match pieces.is_counted {
                        true => ((0, 0), copies * n_fills),
                        false => ((fill, piece.other), copies * times),
                    };
                    let (acquire, release) = pair(self, key, initial);
                    let locks = LockPair {
                        acquire,
                        release,
                        amount: times,
                    };
                    descriptors.push(descriptor(piece, *address, locks)?);
                }
            }
            ends.push(StageEndPlan {
                stage: id,
                is_fill: true,
                end: fill,
                channel: stage.fills[fill].channel,
                descriptors,
            });
        }
        for (drain, parts) in pieces.drains.iter().enumerate() {
            let mut descriptors = Vec::new();
            // One copy is sent again by the ring itself, as often as there is a full lock.
            let times = if copies == 1 {
                1
            } else {
                stage.drains[drain].decl.repeat
            };
            for address in addresses {
                for piece in (0..times).flat_map(|_| parts) {
                    let key = if pieces.is_counted {
                        (0, 0)
                    } else {
                        (piece.other, drain)
                    };
                    let (empty, full) = pair(self, key, 0);
                    let locks = LockPair {
                        acquire: full,
                        release: empty,
                        amount: if pieces.is_counted { n_fills } else { 1 },
                    };
                    descriptors.push(descriptor(piece, *address, locks)?);
                }
            }
            ends.push(StageEndPlan {
                stage: id,
                is_fill: false,
                end: drain,
                channel: stage.drains[drain].channel,
                descriptors,
            });
        }
        Ok(())
    }

    /// Gives the ends of a memory tile channels and descriptors, those that need most first.
    fn number_ends(
        &mut self,
        flat: &Flat<'_>,
        at: Tile,
        mut ends: Vec<StageEndPlan>,
    ) -> Result<(), NoWords> {
        let mut numbers = MemoryNumbers::default();
        // Both ends of a stream within the tile have one number: DMA i leads to DMA i alone.
        let is_loop = |end: &StageEndPlan| {
            let channel = &flat.channels[end.channel];
            let memory =
                |port: &Port| matches!(port, Port::Memory { col, .. } if *col == u32::from(at.col));
            memory(&channel.from) && channel.to.iter().any(memory)
        };
        ends.sort_by_key(|end| (!is_loop(end), std::cmp::Reverse(end.descriptors.len())));
        let mut loops: BTreeMap<usize, u8> = BTreeMap::new();
        for end in ends {
            let way = direction(!end.is_fill);
            let n = end.descriptors.len();
            let only = loops.get(&end.channel).copied();
            let Some(number) = numbers.channel(way, n, only) else {
                let problem = format!("no channel of {at} is left with {n} descriptors");
                let what = if end.is_fill { "fill" } else { "drain" };
                let stage = flat.stage_name(end.stage);
                return Err(NoWords::new(
                    format!("stage {stage}, {what} {}", end.end),
                    problem,
                ));
            };
            if is_loop(&end) {
                loops.insert(end.channel, number);
            }
            let first = numbers.descriptors(number, n);
            let channel = channel_at(at, way, number);
            match end.is_fill {
                true => self.sinks[end.channel].push(channel),
                false => self.sources[end.channel] = Some(channel),
            }
            self.ring(channel, first, end.descriptors);
        }
        Ok(())
    }

    /// Links descriptors to a ring.
    fn ring(&mut self, channel: ChannelAt, first: u8, descriptors: Vec<Vec<(F, u64)>>) {
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

    fn core(
        &mut self,
        flat: &Flat<'_>,
        core: &FlatCore<'_>,
        machine: &Machine,
    ) -> Result<(), NoWords> {
        let at = tile(core.col, core.row + 2)?;
        let name = format!("{} at {at}", core.decl.name);
        let fail = |problem: String| NoWords::new(&*name, problem);
        let mut bottom = Bottom::new(machine.stack_bytes, TileKind::Core.data_bytes().into());
        let mut image = CoreImage {
            tile: at,
            ends: Vec::new(),
            locals: Vec::new(),
        };
        let (mut lock, mut next) = (0u8, 0u8);
        for (is_input, ids) in [(true, &core.inputs), (false, &core.outputs)] {
            for (number, &id) in (0u8..).zip(ids) {
                let channel = &flat.channels[id];
                let decl = channel.decl;
                if decl.element == Element::I4 {
                    return Err(fail("no words yet for elements of four bits".to_owned()));
                }
                let depth = decl.depth as usize;
                let (empty, full) = (lock, lock + 1);
                lock += 2;
                if number >= 2 || lock > 16 || usize::from(next) + depth > 16 {
                    return Err(fail(
                        "more channels, locks or descriptors than a core has".to_owned(),
                    ));
                }
                self.locks
                    .extend([(at, empty, depth as u64), (at, full, 0)]);
                let addresses: Result<Vec<u64>, String> = (0..depth)
                    .map(|_| bottom.take(decl.block_bytes()))
                    .collect();
                let addresses = addresses.map_err(fail)?;
                let pattern = if is_input {
                    &decl.to_pattern
                } else {
                    &decl.from_pattern
                };
                let walk = block_walk(pattern.as_ref(), &channel.index, decl.block_elements());
                let walk =
                    walk::fields(&walk, decl.element.size_bytes(), TileKind::Core).map_err(fail)?;
                let [acquire, release] = if is_input {
                    [empty, full]
                } else {
                    [full, empty]
                };
                let locks = LockPair {
                    acquire: acquire.into(),
                    release: release.into(),
                    amount: 1,
                };
                let of_copy = |address: &u64| {
                    let mut fields = walk.fields.clone();
                    fields.push((F::Base, (address + walk.offset_bytes) / 4));
                    fields.extend(locks.fields());
                    fields
                };
                let descriptors: Vec<_> = addresses.iter().map(of_copy).collect();
                let channel = channel_at(at, direction(!is_input), number);
                match is_input {
                    true => self.sinks[id].push(channel),
                    false => self.sources[id] = Some(channel),
                }
                self.ring(channel, next, descriptors);
                next += depth as u8;
                image.ends.push(BlockEnd {
                    channel: id,
                    is_input,
                    element: decl.element,
                    addresses: addresses.iter().map(|&a| CORE_MEMORY + a as u32).collect(),
                    n_words: (decl.block_bytes() / 4) as usize,
                    empty: CORE_LOCKS + empty,
                    full: CORE_LOCKS + full,
                });
            }
        }
        for local in &core.decl.locals {
            let address = bottom.take(local.size_bytes()).map_err(fail)?;
            image.locals.push((
                CORE_MEMORY + address as u32,
                local.size_bytes().div_ceil(4) as usize,
            ));
        }
        self.cores.push(image);
        Ok(())
    }
}

/// How a core's descriptor walks its block.
fn block_walk(pattern: Option<&Pattern>, index: &[u32], n: u64) -> PatternWalk {
    let linear = PatternWalk {
        offset: 0,
        dims: vec![(n as i64, 1)],
    };
    pattern.map_or(linear, |pattern| {
        pattern.walk(&Env {
            index,
            ..Env::default()
        })
    })
}

fn descriptor(piece: &Piece, address: u64, locks: LockPair) -> Result<Vec<(F, u64)>, NoWords> {
    let mut fields = piece.walk.fields.clone();
    fields.push((F::Base, OWN_WORDS + (address + piece.walk.offset_bytes) / 4));
    fields.extend(locks.fields());
    Ok(fields)
}

fn direction(sends: bool) -> Direction {
    if sends {
        Direction::Mm2s
    } else {
        Direction::S2mm
    }
}

fn channel_at(tile: Tile, direction: Direction, number: u8) -> ChannelAt {
    ChannelAt {
        tile,
        direction,
        number,
    }
}

fn tile(col: u32, row: u32) -> Result<Tile, NoWords> {
    Tile::new(col, row).ok_or_else(|| NoWords::new("the array", format!("no tile ({col}, {row})")))
}
