//! Ways of streams, and of the tokens of shims, as words.

use super::NoWords;
use super::places::Places;
use millrace_xdna2_machine::program::Flat;
use millrace_xdna2_words::tile::TileKind;
use millrace_xdna2_words::writer::StreamWriter;
use std::collections::BTreeSet;

/// Joins ports for every stream of a launch, and for the tokens of the shims that it uses.
pub(super) fn circuits(
    flat: &Flat<'_>,
    places: &Places,
    writer: &mut StreamWriter,
) -> Result<(), NoWords> {
    for join in places.ends.ways(flat)?.iter().flatten() {
        writer.circuit(join.tile, join.slave, join.master)?;
    }
    let shims: BTreeSet<u8> = (places.channels().iter())
        .filter(|at| at.tile.kind() == TileKind::Shim)
        .map(|at| at.tile.col)
        .collect();
    for col in shims {
        writer.token_route(col)?;
    }
    Ok(())
}
