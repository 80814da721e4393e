//! Targets of a descriptor's numbers: memories, locks, ways.

use super::super::Board;
use super::super::fault::BoardProblem;
use super::super::route::{Entry, Route};
use super::DmaMemory;
use crate::field::{Record, WordField};
use crate::port;
use crate::tile::{Direction, Tile, TileKind};
use crate::writer::ChannelAt;
use std::sync::Arc;

impl Board<'_> {
    pub(in crate::board) fn route_of_channel(
        &mut self,
        at: Tile,
        channel: u8,
        id: Option<u8>,
    ) -> Result<Arc<Route>, BoardProblem> {
        let kind = at.kind();
        let port = port::of_dma(kind, Direction::Mm2s, channel);
        let slave = port.and_then(|port| port::number(port::slaves(kind), port));
        let slave = slave.ok_or_else(|| BoardProblem::Wrong("no such channel".to_owned()))?;
        if kind == TileKind::Shim {
            let mux = self.tiles[at.index()].mux;
            let mux = mux.ok_or_else(|| BoardProblem::Wrong("the mux was not set".to_owned()))?;
            let record = Record::read(&crate::register::MUX, &[mux])?;
            let field = [WordField::Port3, WordField::Port7][usize::from(channel)];
            if record.get(field) != 1 {
                let problem = "the mux joins the channel to no port".to_owned();
                return Err(BoardProblem::Wrong(problem));
            }
        }
        let entry: Entry = (at.index(), slave, id);
        let route = self.route(entry)?;
        match route.to_firmware {
            true => Err(BoardProblem::Undefined(
                "a channel sends to the firmware".to_owned(),
            )),
            false => Ok(route),
        }
    }

    /// Whether the switch treats a channel's words as packets.
    pub(in crate::board) fn takes_packets(&self, at: Tile, channel: u8) -> bool {
        let kind = at.kind();
        let port = port::of_dma(kind, Direction::Mm2s, channel);
        let slave = port.and_then(|port| port::number(port::slaves(kind), port));
        let word = slave.and_then(|slave| self.tiles[at.index()].slaves[usize::from(slave)]);
        let record = word.and_then(|word| Record::read(&crate::register::SLAVE, &[word]).ok());
        record.is_some_and(|of| of.is(WordField::Enable) && of.is(WordField::Packet))
    }

    /// Place of a descriptor's first word.
    pub(in crate::board) fn locate(
        &self,
        at: Tile,
        (direction, channel): (Direction, u8),
        record: &Record,
    ) -> Result<DmaMemory, BoardProblem> {
        let base = record.get(WordField::Base);
        match at.kind() {
            TileKind::Core => Ok(DmaMemory::Tile(at.index(), base)),
            TileKind::Memory => {
                let window = TileKind::Memory.data_bytes() as u64 / 4;
                let tile = self.side(at, channel, base / window)?;
                Ok(DmaMemory::Tile(tile, base % window))
            }
            TileKind::Shim => {
                let address = base * 4;
                let found = self.ddr.iter().position(|buffer| {
                    (buffer.address..buffer.address + buffer.bytes.len() as u64).contains(&address)
                });
                match found {
                    Some(buffer) => Ok(DmaMemory::Ddr(
                        buffer,
                        (address - self.ddr[buffer].address) / 4,
                    )),
                    None if direction == Direction::S2mm && !self.options.strict => {
                        Ok(DmaMemory::Nowhere(address))
                    }
                    None => Err(nowhere(address)),
                }
            }
        }
    }

    /// Shims' channels that wait for words with an address in no argument, each with its descriptor and that address.
    pub fn unaddressed(&self) -> Vec<(ChannelAt, u8, u64)> {
        let mut found = Vec::new();
        for (tile, state) in self.tiles.iter().enumerate() {
            for (number, channel) in (0..).zip(&state.channels[Direction::S2mm as usize]) {
                if let Some(execution) = channel.execution()
                    && let DmaMemory::Nowhere(address) = execution.memory
                {
                    let at = self.event_channel(tile, Direction::S2mm, number);
                    found.push((at, execution.number(), address));
                }
            }
        }
        found
    }

    /// The memory tile that a window names: west, own, east.
    fn side(&self, at: Tile, channel: u8, window: u64) -> Result<usize, BoardProblem> {
        let east = window as i32 - 1;
        if east != 0 && channel >= 4 {
            let problem = format!("channel {channel} reaches its own memory tile alone");
            return Err(BoardProblem::Wrong(problem));
        }
        if east == -1 && at.col == 0 && !self.options.strict {
            // Depending on where a driver puts the columns, another design's memory may be there.
            let problem = format!("the memory tile west of {at}, outside of the design's columns");
            return Err(BoardProblem::Undefined(problem));
        }
        let tile = (east <= 1).then(|| at.neighbour(east, 0)).flatten();
        let tile =
            tile.ok_or_else(|| BoardProblem::Wrong(format!("no memory tile {east} columns east")))?;
        Ok(tile.index())
    }

    pub(in crate::board) fn lock_of(
        &self,
        at: Tile,
        channel: u8,
        id: u8,
    ) -> Result<(usize, u8), BoardProblem> {
        match at.kind() {
            TileKind::Memory => Ok((self.side(at, channel, u64::from(id / 64))?, id % 64)),
            _ => Ok((at.index(), id)),
        }
    }
}

/// An address of the host that is used and lies in no argument.
pub(super) fn nowhere(address: u64) -> BoardProblem {
    BoardProblem::Wrong(format!("address {address:#x} lies in no argument"))
}
