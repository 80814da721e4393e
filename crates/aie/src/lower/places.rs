//! Addresses of buffers, numbers of locks and descriptors.

use crate::design::{Design, Entity};
use crate::syntax::SyntaxError;
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::TileKind;
use std::collections::{BTreeMap, BTreeSet};

/// Places of everything, by position in the design.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Bytes in the tile's memory.
    pub(crate) addresses: Vec<u32>,
    pub(crate) locks: Vec<u8>,
    /// Those that no channel reaches have the number 255.
    pub(crate) descriptors: Vec<u8>,
}

/// Alignment of a buffer's address in bytes. Vectors of 512 bits need 64; buffers that hold none need less. mlir-aie
/// packs small buffers as close, and some designs name their addresses.
fn alignment(bytes: u32) -> u32 {
    if bytes < 64 { 32 } else { 64 }
}

/// Descriptors of a chain, each once.
pub(crate) fn chain_descriptors(design: &Design, first: usize) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let next = |&at: &usize| design.descriptors[at].next;
    let all = std::iter::successors(Some(first), next);
    all.take_while(|&at| seen.insert(at)).collect()
}

pub(super) fn place(design: &Design) -> Result<Places, SyntaxError> {
    Ok(Places {
        addresses: addresses(design)?,
        locks: locks(design)?,
        descriptors: descriptors(design)?,
    })
}

/// Addresses of buffers. Given ones are kept; the rest go where there is room, the largest first.
fn addresses(design: &Design) -> Result<Vec<u32>, SyntaxError> {
    let mut taken: BTreeMap<Tile, Vec<(u32, u32)>> = BTreeMap::new();
    for core in &design.cores {
        taken
            .entry(core.tile)
            .or_default()
            .push((0, core.stack_bytes));
    }
    let mut addresses = vec![0; design.buffers.len()];
    for (address, buffer) in addresses.iter_mut().zip(&design.buffers) {
        let Some(given) = buffer.address else {
            continue;
        };
        let end = given.checked_add(buffer.bytes);
        let most = buffer.tile.kind().data_bytes();
        if given % 4 != 0 || end.is_none_or(|end| end > most) {
            let problem = format!(
                "{} bytes at {given:#x} of the {most} of {}",
                buffer.bytes, buffer.tile
            );
            return Err(SyntaxError::new(buffer.at, problem).in_op("aie.buffer"));
        }
        *address = given;
        taken
            .entry(buffer.tile)
            .or_default()
            .push((given, given + buffer.bytes));
    }
    let mut order: Vec<usize> = (0..design.buffers.len()).collect();
    order.retain(|&i| design.buffers[i].address.is_none());
    order.sort_by_key(|&i| (std::cmp::Reverse(design.buffers[i].bytes), i));
    for i in order {
        let buffer = &design.buffers[i];
        let taken = taken.entry(buffer.tile).or_default();
        let most = buffer.tile.kind().data_bytes();
        let Some(address) = free(taken, buffer.bytes, most) else {
            let held: u64 = taken.iter().map(|(from, to)| u64::from(to - from)).sum();
            let problem = format!(
                "no room for the {} bytes of {} in {}, whose {most} hold {held} already",
                buffer.bytes, buffer.name, buffer.tile
            );
            return Err(SyntaxError::new(buffer.at, problem).in_op("aie.buffer"));
        };
        addresses[i] = address;
        taken.push((address, address + buffer.bytes));
    }
    Ok(addresses)
}

/// The first address with so much room.
fn free(taken: &[(u32, u32)], bytes: u32, most: u32) -> Option<u32> {
    let mut sorted = taken.to_vec();
    sorted.sort_unstable();
    let mut at = 0u32;
    for (from, to) in sorted {
        if at.checked_add(bytes)? <= from {
            break;
        }
        at = at.max(to.next_multiple_of(alignment(bytes)));
    }
    (at.checked_add(bytes)? <= most).then_some(at)
}

fn locks(design: &Design) -> Result<Vec<u8>, SyntaxError> {
    let mut taken: BTreeSet<(Tile, u8)> = BTreeSet::new();
    for lock in &design.locks {
        if let Some(number) = lock.number
            && !taken.insert((lock.tile, number))
        {
            let problem = format!("a second lock {number} of {}", lock.tile);
            return Err(SyntaxError::new(lock.at, problem).in_op("aie.lock"));
        }
    }
    let number = |lock: &crate::design::Lock| {
        let own = lock.number.or_else(|| {
            let all = 0..lock.tile.kind().locks();
            let free = all
                .into_iter()
                .find(|&n| !taken.contains(&(lock.tile, n)))?;
            taken.insert((lock.tile, free));
            Some(free)
        });
        own.ok_or_else(|| {
            let problem = format!(
                "all {} locks of {} are taken",
                lock.tile.kind().locks(),
                lock.tile
            );
            SyntaxError::new(lock.at, problem).in_op("aie.lock")
        })
    };
    design.locks.iter().map(number).collect()
}

fn descriptors(design: &Design) -> Result<Vec<u8>, SyntaxError> {
    let mut numbers = vec![u8::MAX; design.descriptors.len()];
    let mut taken: BTreeSet<(Tile, u8)> = BTreeSet::new();
    let given = design
        .descriptors
        .iter()
        .filter_map(|d| Some((d.tile, d.number?, d.at)));
    for (tile, number, at) in given {
        if !taken.insert((tile, number)) {
            let problem = format!("a second descriptor {number} of {tile}");
            return Err(SyntaxError::new(at, problem).in_op("aie.dma_bd"));
        }
    }
    for chain_op in &design.chains {
        let channel = chain_op.channel;
        let kind = channel.tile.kind();
        for at in chain_descriptors(design, chain_op.first) {
            let descriptor = &design.descriptors[at];
            let reaches = |number: u8| kind.reaches(channel.number, number);
            let own = match descriptor.number {
                _ if numbers[at] != u8::MAX => Some(numbers[at]),
                Some(number) => Some(number),
                None => (0..kind.descriptors())
                    .find(|&n| reaches(n) && !taken.contains(&(channel.tile, n))),
            };
            let own = own.filter(|&number| reaches(number)).ok_or_else(|| {
                let problem = format!(
                    "{} {} {} reaches no free descriptor of that number",
                    channel.tile,
                    channel.direction.name(),
                    channel.number
                );
                SyntaxError::new(descriptor.at, problem).in_op("aie.dma_bd")
            })?;
            taken.insert((channel.tile, own));
            numbers[at] = own;
        }
    }
    Ok(numbers)
}

/// Where buffers are, for a report.
pub(crate) fn buffer_place(design: &Design, places: &Places, symbol: &str) -> Option<(Tile, u32)> {
    match design.symbols.get(symbol) {
        Some(Entity::Buffer(buffer)) => {
            let tile = design.buffers[*buffer].tile;
            (tile.kind() != TileKind::Shim).then_some((tile, places.addresses[*buffer]))
        }
        _ => None,
    }
}
