//! Buffers, locks, descriptors and cascades of cores.

use super::NoWords;
use super::memory::Bottom;
use super::places::{LockPair, Places, tile};
use super::walk;
use crate::core::{BlockEnd, CoreImage, EndLink};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{
    ChannelLink, Env, Flat, FlatChannel, Pattern, PatternWalk, Port, flat::indexed,
};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::WordField as F;
use millrace_xdna2_words::tile::TileKind;

/// A core being laid out.
struct CoreLayout {
    image: CoreImage,
    bottom: Bottom,
    locks: u8,
    descriptors: u8,
}

/// A core's own locks and memory in its code; those of its southern, western and northern neighbours come
/// before.
const OWN: u8 = 3;
const LOCKS: u8 = 16;
const WINDOW: u32 = 0x10000;
/// East and north of a core to the tiles that its code reaches, in the order of their numbers.
const SIDES: [(i32, i32); 4] = [(0, -1), (-1, 0), (0, 1), (0, 0)];

/// The tile and byte of an address in a core's code.
pub(crate) fn place_of_address(core: Tile, address: u32) -> Option<(Tile, u64)> {
    let (east, north) = *SIDES.get((address / WINDOW).checked_sub(4)? as usize)?;
    Some((core.neighbour(east, north)?, (address % WINDOW).into()))
}

/// The tile and number of a lock in a core's code.
pub(crate) fn place_of_lock(core: Tile, lock: u8) -> Option<(Tile, u8)> {
    let (east, north) = *SIDES.get(usize::from(lock / LOCKS))?;
    Some((core.neighbour(east, north)?, lock % LOCKS))
}

/// Numbers of a side's locks and memory in a core's code.
fn seen(side: u8) -> (u8, u32) {
    (side * LOCKS, (4 + u32::from(side)) * WINDOW)
}

/// The side of a core on which another is; `None` where it cannot be reached.
fn side(of: Tile, other: Tile) -> Option<u8> {
    let found = SIDES
        .iter()
        .position(|&(east, north)| of.neighbour(east, north) == Some(other));
    found.map(|side| side as u8)
}

impl CoreLayout {
    /// The numbers of a further pair of locks.
    fn pair(&mut self) -> Result<(u8, u8), String> {
        let (empty, full) = (self.locks, self.locks + 1);
        self.locks += 2;
        match self.locks > LOCKS {
            true => Err(format!("{} locks of {LOCKS}", self.locks)),
            false => Ok((empty, full)),
        }
    }

    fn blocks(&mut self, depth: u32, bytes: u64) -> Result<Vec<u64>, String> {
        (0..depth).map(|_| self.bottom.take(bytes)).collect()
    }
}

impl Places {
    /// Lays out all cores: channel by channel, local buffers last.
    pub(super) fn cores(&mut self, flat: &Flat<'_>, machine: &Machine) -> Result<(), NoWords> {
        let new =
            |core: &millrace_xdna2_machine::program::FlatCore<'_>| -> Result<CoreLayout, NoWords> {
                Ok(CoreLayout {
                    image: CoreImage {
                        tile: tile(core.col, core.row + 2)?,
                        ends: Vec::new(),
                        locals: Vec::new(),
                    },
                    bottom: Bottom::new(machine.stack_bytes, TileKind::Core.data_bytes().into()),
                    locks: 0,
                    descriptors: 0,
                })
            };
        let layouts: Result<Vec<CoreLayout>, NoWords> = flat.cores.iter().map(new).collect();
        let mut layouts = layouts?;
        for (id, channel) in flat.channels.iter().enumerate() {
            let fail = |problem: String| NoWords::new(flat.channel_name(id), problem);
            if channel.decl.element == Element::I4 {
                return Err(fail("no words yet for elements of four bits".to_owned()));
            }
            match (channel.decl.link, ends(channel)) {
                (ChannelLink::Stream, ends) => {
                    for (core, is_input) in ends {
                        self.stream_end((id, channel), is_input, &mut layouts[core])
                            .map_err(fail)?;
                    }
                }
                (ChannelLink::Cascade, ends) => {
                    let tiles: Vec<Tile> =
                        ends.iter().map(|end| layouts[end.0].image.tile).collect();
                    self.cascade(&tiles).map_err(fail)?;
                    for (core, is_input) in ends {
                        self.cascade_end((id, channel), is_input, &mut layouts[core])
                            .map_err(fail)?;
                    }
                }
                (ChannelLink::Neighbour, ends) => {
                    self.shared((id, channel), &ends, &mut layouts)
                        .map_err(fail)?;
                }
            }
        }
        for (core, mut layout) in flat.cores.iter().zip(layouts) {
            for local in &core.decl.locals {
                let address = layout.bottom.take(local.size_bytes());
                let address = address.map_err(|problem| NoWords::new(&*core.decl.name, problem))?;
                let n_elements = local.size_bytes() / local.element.size_bytes();
                let of = (local.element, n_elements);
                self.hold(layout.image.tile, &[address], of, &local.name);
                let words = local.size_bytes().div_ceil(4) as usize;
                layout
                    .image
                    .locals
                    .push((seen(OWN).1 + address as u32, words));
            }
            self.cores.push(layout.image);
        }
        Ok(())
    }

    /// Blocks that a DMA channel of the core fills or sends.
    fn stream_end(
        &mut self,
        (id, channel): (usize, &FlatChannel<'_>),
        is_input: bool,
        layout: &mut CoreLayout,
    ) -> Result<(), String> {
        let (decl, at) = (channel.decl, layout.image.tile);
        let dma = match is_input {
            true => (self.ends.sinks[id].iter().copied()).find(|sink| sink.tile == at),
            false => self.ends.sources[id],
        };
        let dma = dma.ok_or("a core's end without a DMA channel")?;
        let (empty, full) = layout.pair()?;
        let depth = decl.depth as u8;
        if layout.descriptors + depth > TileKind::Core.descriptors() {
            return Err("more descriptors than a core has".to_owned());
        }
        self.locks
            .extend([(at, empty, depth.into()), (at, full, 0)]);
        let addresses = layout.blocks(decl.depth, decl.block_bytes())?;
        self.hold_blocks(at, &addresses, channel);
        let pattern = if is_input {
            &decl.to_pattern
        } else {
            &decl.from_pattern
        };
        let walk = block_walk(pattern.as_ref(), &channel.index, decl.block_elements());
        let walk = walk::fields(&walk, decl.element.size_bytes(), TileKind::Core)?;
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
        self.ring(dma, layout.descriptors, descriptors);
        layout.descriptors += depth;
        let link = link(OWN, (empty, full));
        layout
            .image
            .ends
            .push(end((id, channel), is_input, link, (OWN, &addresses)));
        Ok(())
    }

    /// Blocks in the memory of one of two neighbours.
    fn shared(
        &mut self,
        (id, channel): (usize, &FlatChannel<'_>),
        ends: &[(usize, bool)],
        layouts: &mut [CoreLayout],
    ) -> Result<(), String> {
        let tiles: Vec<Tile> = ends.iter().map(|end| layouts[end.0].image.tile).collect();
        let reaches = |owner: &&(usize, bool)| {
            let owner = layouts[owner.0].image.tile;
            tiles.iter().all(|&tile| side(tile, owner).is_some())
        };
        // The emptier of those that both reach.
        let owner = ends
            .iter()
            .filter(reaches)
            .min_by_key(|end| layouts[end.0].bottom.used());
        let owner = owner.ok_or("neither core reaches the other's memory")?.0;
        let (empty, full) = layouts[owner].pair()?;
        let at = layouts[owner].image.tile;
        self.locks
            .extend([(at, empty, channel.decl.depth.into()), (at, full, 0)]);
        let addresses = layouts[owner].blocks(channel.decl.depth, channel.decl.block_bytes())?;
        self.hold_blocks(at, &addresses, channel);
        for &(core, is_input) in ends {
            let own = layouts[core].image.tile;
            let seen = side(own, at).ok_or("a core does not reach the blocks")?;
            let link = link(seen, (empty, full));
            let end = end((id, channel), is_input, link, (seen, &addresses));
            layouts[core].image.ends.push(end);
        }
        Ok(())
    }

    /// A block that goes over the cascade is in the core's own memory.
    fn cascade_end(
        &mut self,
        (id, channel): (usize, &FlatChannel<'_>),
        is_input: bool,
        layout: &mut CoreLayout,
    ) -> Result<(), String> {
        let addresses = layout.blocks(channel.decl.depth, channel.decl.block_bytes())?;
        self.hold_blocks(layout.image.tile, &addresses, channel);
        let end = end((id, channel), is_input, EndLink::Cascade, (OWN, &addresses));
        layout.image.ends.push(end);
        Ok(())
    }

    /// Notes the blocks of a channel's end.
    fn hold_blocks(&mut self, tile: Tile, addresses: &[u64], channel: &FlatChannel<'_>) {
        let of = (channel.decl.element, channel.decl.block_elements());
        let owner = indexed(&channel.decl.name, &channel.index);
        self.hold(tile, addresses, of, &owner);
    }

    /// Directions of a cascade: to the south or east, from the north or west.
    fn cascade(&mut self, tiles: &[Tile]) -> Result<(), String> {
        let &[from, to] = tiles else {
            return Err("a cascade joins two cores".to_owned());
        };
        let is_east = match (
            from.neighbour(1, 0) == Some(to),
            from.neighbour(0, -1) == Some(to),
        ) {
            (true, _) => 1,
            (_, true) => 0,
            _ => return Err(format!("no cascade leads from {from} to {to}")),
        };
        *self.cascades.entry(from).or_default() |= is_east << 1;
        *self.cascades.entry(to).or_default() |= is_east;
        Ok(())
    }
}

/// A channel's ends at cores, and whether blocks come there.
fn ends(channel: &FlatChannel<'_>) -> Vec<(usize, bool)> {
    let core = |port: &Port| match *port {
        Port::Core { core } => Some(core),
        _ => None,
    };
    let from = core(&channel.from).map(|core| (core, false));
    let to = channel.to.iter().filter_map(core).map(|core| (core, true));
    from.into_iter().chain(to).collect()
}

fn link(side: u8, (empty, full): (u8, u8)) -> EndLink {
    let first = seen(side).0;
    EndLink::Locks {
        empty: first + empty,
        full: first + full,
    }
}

fn end(
    (id, channel): (usize, &FlatChannel<'_>),
    is_input: bool,
    link: EndLink,
    (side, addresses): (u8, &[u64]),
) -> BlockEnd {
    BlockEnd {
        channel: id,
        is_input,
        element: channel.decl.element,
        addresses: addresses
            .iter()
            .map(|&at| seen(side).1 + at as u32)
            .collect(),
        n_words: (channel.decl.block_bytes() / 4) as usize,
        link,
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
