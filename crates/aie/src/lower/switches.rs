//! Routes of the text as words, and the extra routes of tokens.

use super::route::{TO_FIRMWARE, TOKENS};
use crate::design::{Design, Switch, Switches};
use crate::syntax::{Location, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::TileKind;
use millrace_xdna2_words::writer::{PacketRule, StreamWriter, WriterError};
use std::collections::{BTreeMap, BTreeSet};

/// Writes all switches of the text. Returns the ids of the tokens of tiles that send some.
pub(super) fn write(
    design: &Design,
    switches: &Switches,
    token_tiles: &BTreeMap<Tile, Location>,
    writer: &mut StreamWriter,
) -> Result<BTreeMap<Tile, u8>, SyntaxError> {
    for (&tile, switch) in &switches.tiles {
        let fail = |problem: WriterError| {
            SyntaxError::new(switch.at, problem.to_string()).in_op("aie.switchbox")
        };
        for &(slave, master) in &switch.circuits {
            writer.circuit(tile, slave, master).map_err(fail)?;
        }
        for master in &switch.masters {
            let takes = (master.arbiter, master.selections);
            writer
                .packet_master(tile, master.port, takes, master.drops_header)
                .map_err(fail)?;
        }
        for (slave, rules) in &switch.slaves {
            writer.packet_slave(tile, *slave, rules).map_err(fail)?;
        }
    }
    let none = Switch::default();
    let mut ids = BTreeMap::new();
    for &tile in token_tiles.keys() {
        let switch = switches.tiles.get(&tile).unwrap_or(&none);
        let id = match switch.rules(TOKENS).first() {
            Some(rule) => design.controllers.get(&tile).copied().unwrap_or(rule.id),
            None => add_tokens(tile, switch, writer)?,
        };
        ids.insert(tile, id);
    }
    Ok(ids)
}

/// A shim's tokens go to the firmware through an arbiter that the text leaves free.
fn add_tokens(tile: Tile, switch: &Switch, writer: &mut StreamWriter) -> Result<u8, SyntaxError> {
    let fail = |problem: &str| {
        let problem = format!("the tokens of {tile} have no way to the firmware: {problem}");
        SyntaxError::new(switch.at, problem)
    };
    if tile.kind() != TileKind::Shim {
        return Err(fail("the routes of the text have none for them"));
    }
    if switch.has_master(TO_FIRMWARE) || switch.has_slave(TOKENS) {
        return Err(fail(
            "the routes of the text use South 0 or TileControl 0 otherwise",
        ));
    }
    let used: BTreeSet<u8> = switch.masters.iter().map(|master| master.arbiter).collect();
    let arbiter = (0..8).rev().find(|arbiter| !used.contains(arbiter));
    let arbiter = arbiter.ok_or_else(|| fail("all 8 arbiters are in use"))?;
    let rule = PacketRule {
        id: 0,
        mask: 31,
        arbiter,
        selection: 0,
    };
    let joined = writer
        .packet_master(tile, TO_FIRMWARE, (arbiter, 1), false)
        .and_then(|()| writer.packet_slave(tile, TOKENS, &[rule]));
    joined.map_err(|error| fail(&error.to_string()))?;
    Ok(0)
}
