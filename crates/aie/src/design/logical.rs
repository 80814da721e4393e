//! Tiles that a design leaves to a placer: `aie.logical_tile<CoreTile>(?, ?)`.
//!
//! Any place with the requested resources is right. Here each tile takes the first free one. Cores go column by column.
//! Memory tiles and shims take a column each while there are columns, then places where channels are left.

use super::Design;
use crate::syntax::{Op, SyntaxError};
use millrace_xdna2_words::tile::{ROWS, Tile, TileKind};
use std::collections::BTreeMap;

/// Tiles placed in a column, and its channels that send and receive.
#[derive(Clone, Copy, Default)]
struct ColumnUse {
    tiles: u32,
    channels: [u32; 2],
}

/// Places of all logical tiles by their names.
pub(super) fn places(design: &Design, body: &[&Op]) -> Result<BTreeMap<String, Tile>, SyntaxError> {
    let mut taken: BTreeMap<Tile, ColumnUse> = BTreeMap::new();
    for op in body.iter().filter(|op| op.name == "aie.tile") {
        let place = [op.integer("col")?, op.integer("row")?].map(|n| u32::try_from(n).ok());
        if let [Some(col), Some(row)] = place
            && let Some(tile) = Tile::new(col, row)
        {
            take(&mut taken, tile, channels(body, op));
        }
    }
    let mut places = BTreeMap::new();
    for op in body.iter().filter(|op| op.name == "aie.logical_tile") {
        op.only(&[
            "tile_type",
            "col",
            "row",
            "controller_id",
            "allocation_scheme",
        ])?;
        let kind = match op.text("tile_type")? {
            "CoreTile" => TileKind::Core,
            "MemTile" => TileKind::Memory,
            "ShimNOCTile" => TileKind::Shim,
            other => return Err(op.error(format!("an NPU2 has no {other}"))),
        };
        let asks = channels(body, op);
        let tile = place(design, op, (kind, asks), &taken)?;
        take(&mut taken, tile, asks);
        places.insert(op.result()?.to_owned(), tile);
    }
    Ok(places)
}

fn take(taken: &mut BTreeMap<Tile, ColumnUse>, tile: Tile, asks: [u32; 2]) {
    let of = taken.entry(tile).or_default();
    of.tiles += 1;
    for (held, more) in of.channels.iter_mut().zip(asks) {
        *held += more;
    }
}

/// Channels that object FIFOs need of a tile: those that send, those that receive.
fn channels(body: &[&Op], tile: &Op) -> [u32; 2] {
    let Some(name) = tile.results.first() else {
        return [0, 0];
    };
    let mut asks = [0, 0];
    for fifo in body.iter().filter(|op| op.name == "aie.objectfifo") {
        for (i, end) in fifo.operands.iter().enumerate() {
            asks[usize::from(i > 0)] += u32::from(end == name);
        }
    }
    asks
}

fn place(
    design: &Design,
    op: &Op,
    (kind, asks): (TileKind, [u32; 2]),
    taken: &BTreeMap<Tile, ColumnUse>,
) -> Result<Tile, SyntaxError> {
    let number = |name| -> Result<Option<u8>, SyntaxError> {
        op.get(name).map(|_| op.number(name)).transpose()
    };
    let (col, row) = (number("col")?, number("row")?);
    let columns = 0..design.n_columns;
    let all = columns.flat_map(|col| (0..ROWS).map(move |row| Tile { col, row }));
    let mut all = all.filter(|tile| {
        tile.kind() == kind
            && col.is_none_or(|col| col == tile.col)
            && row.is_none_or(|row| row == tile.row)
    });
    let free = all.clone().find(|tile| !taken.contains_key(tile));
    let has_room = |tile: &Tile| {
        let held = taken.get(tile).copied().unwrap_or_default();
        let most = u32::from(kind.channels());
        // A core has one program.
        kind != TileKind::Core && (0..2).all(|i| held.channels[i] + asks[i] <= most)
    };
    free.or_else(|| all.find(has_room)).ok_or_else(|| {
        let device = &design.device;
        op.error(format!("{device} has no place left for it"))
    })
}
