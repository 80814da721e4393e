//! Ways through the switches.

use super::Board;
use super::fault::BoardProblem;
use super::state::TileState;
use crate::field::{Record, WordField};
use crate::port::{self, Bundle, SwitchPort};
use crate::register::{MASTER, SLAVE, SLOT};
use crate::tile::{Direction, Tile, TileKind};
use std::sync::Arc;

/// The way of a stream's words.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// S2MM channels: tile, channel, and whether a packet's header reaches it.
    pub(super) sinks: Vec<(usize, u8, bool)>,
    /// Tiles whose control ports it reaches.
    pub(super) controls: Vec<usize>,
    /// Whether it reaches the firmware.
    pub(super) to_firmware: bool,
    /// Arbiters that a packet takes on its way, in turn.
    pub(super) arbiters: Vec<ArbiterUse>,
    /// Tiles whose switches it passes.
    pub(super) tiles: Vec<usize>,
}

/// An arbiter that a packet takes, and the selection that it takes it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArbiterUse {
    /// Tile and number.
    pub(super) arbiter: (usize, u8),
    pub(super) selection: u8,
}

/// The place where words enter a switch: tile, slave port, and the id of a packet.
pub(super) type Entry = (usize, u8, Option<u8>);

/// Tiles that a way may pass before it counts as a ring.
const MOST_HOPS: usize = 256;

fn set(value: Option<u32>, what: impl Fn() -> String) -> Result<u32, BoardProblem> {
    value.ok_or_else(|| BoardProblem::Wrong(format!("{} was not set", what())))
}

/// The shim's multiplexer field of a port to or from the south; `None` for those without one.
pub(super) fn mux_field(direction: Direction, index: u8) -> Option<WordField> {
    match (direction, index) {
        (_, 2) => Some(WordField::Port2),
        (_, 3) => Some(WordField::Port3),
        (Direction::S2mm, 4) => Some(WordField::Port4),
        (Direction::S2mm, 5) => Some(WordField::Port5),
        (Direction::Mm2s, 6) => Some(WordField::Port6),
        (Direction::Mm2s, 7) => Some(WordField::Port7),
        _ => None,
    }
}

impl Board<'_> {
    /// The way of words that enter a switch there.
    pub(super) fn route(&mut self, entry: Entry) -> Result<Arc<Route>, BoardProblem> {
        if let Some(route) = self.routes.get(&entry) {
            return Ok(Arc::clone(route));
        }
        let mut route = Route::default();
        let (tile, slave, id) = entry;
        self.trace(tile, slave, id, &mut route)?;
        if self.routes.is_empty() && self.options.strict {
            self.check_switches()?;
        }
        let route = Arc::new(route);
        self.routes.insert(entry, Arc::clone(&route));
        Ok(route)
    }

    fn trace(
        &self,
        tile: usize,
        slave: u8,
        id: Option<u8>,
        route: &mut Route,
    ) -> Result<(), BoardProblem> {
        let state = &self.tiles[tile];
        if route.tiles.len() > MOST_HOPS {
            return Err(BoardProblem::Wrong(
                "the way of a stream is a ring".to_owned(),
            ));
        }
        route.tiles.push(tile);
        let at = state.tile;
        let from = state
            .slave_port(slave.into())
            .unwrap_or(port::port(Bundle::Trace, 0));
        let name = || format!("slave {from} of {at}");
        let word = set(state.slaves[usize::from(slave)], name)?;
        let record = Record::read(&SLAVE, &[word])?;
        if !record.is(WordField::Enable) {
            let problem = format!("words enter {}, which is not enabled", name());
            return Err(BoardProblem::Wrong(problem));
        }
        let selection = match (record.is(WordField::Packet), id) {
            (false, _) => None,
            (true, Some(id)) => Some(self.slot(state, slave, id)?),
            (true, None) => {
                let problem = format!(
                    "words without a header enter {}, which takes packets",
                    name()
                );
                return Err(BoardProblem::Wrong(problem));
            }
        };
        if let Some((arbiter, selection)) = selection {
            route.arbiters.push(ArbiterUse {
                arbiter: (tile, arbiter),
                selection,
            });
        }
        let masters = self.masters(state, slave, selection)?;
        for &(master, drops_header) in &masters {
            self.leave(state, master, (id, drops_header), route)?;
        }
        if masters.is_empty() {
            let problem = format!("what enters {} leaves nowhere", name());
            return Err(BoardProblem::Wrong(problem));
        }
        Ok(())
    }

    /// The masters that a slave's words leave by, and whether they lose their header there.
    fn masters(
        &self,
        state: &TileState,
        slave: u8,
        selection: Option<(u8, u8)>,
    ) -> Result<Vec<(SwitchPort, bool)>, BoardProblem> {
        let at = state.tile;
        let mut masters = Vec::new();
        for number in 0..state.masters.len() {
            let master = state
                .master_port(number)
                .filter(|&master| port::has_master(at, master));
            let Some(master) = master else {
                continue;
            };
            let word = set(state.masters[number], || format!("master {master} of {at}"))?;
            let record = Record::read(&MASTER, &[word])?;
            let configuration = record.get(WordField::Configuration);
            let is_packet = record.is(WordField::Packet);
            let takes = match selection {
                None => !is_packet && configuration == u64::from(slave),
                Some((arbiter, msel)) => {
                    is_packet
                        && configuration & 7 == u64::from(arbiter)
                        && configuration >> (3 + msel) & 1 == 1
                }
            };
            if takes && record.is(WordField::Enable) {
                let drops_header = selection.is_some() && record.is(WordField::DropHeader);
                masters.push((master, drops_header));
            }
        }
        Ok(masters)
    }

    /// Arbiter and selection of a packet's id.
    fn slot(&self, state: &TileState, slave: u8, id: u8) -> Result<(u8, u8), BoardProblem> {
        for slot in 0..4 {
            let number = usize::from(slave) * 4 + slot;
            let name = || format!("slot {slot} of slave {slave} of {}", state.tile);
            let record = Record::read(&SLOT, &[set(state.slots[number], name)?])?;
            let differs =
                (u64::from(id) ^ record.get(WordField::SlotId)) & record.get(WordField::SlotMask);
            if record.is(WordField::Enable) && differs == 0 {
                let [arbiter, msel] =
                    [WordField::Arbiter, WordField::Msel].map(|field| record.get(field) as u8);
                return Ok((arbiter, msel));
            }
        }
        let tile = state.tile;
        Err(BoardProblem::Wrong(format!(
            "no slot of slave {slave} of {tile} takes packets of id {id}"
        )))
    }

    /// Follows a stream out of a master port.
    fn leave(
        &self,
        state: &TileState,
        master: SwitchPort,
        (id, drops_header): (Option<u8>, bool),
        route: &mut Route,
    ) -> Result<(), BoardProblem> {
        let at = state.tile;
        if let Some((next, slave)) = port::next(at, master) {
            let number = port::number(port::slaves(next.kind()), slave).unwrap_or(0);
            return self.trace(next.index(), number, id, route);
        }
        match (at.kind(), master.bundle) {
            (TileKind::Shim, Bundle::South) => self.leave_array(state, master, drops_header, route),
            (_, Bundle::Dma) => {
                route.sinks.push((at.index(), master.index, !drops_header));
                Ok(())
            }
            (_, Bundle::TileControl) if !self.options.strict => {
                route.controls.push(at.index());
                Ok(())
            }
            _ => Err(BoardProblem::Undefined(format!(
                "words leave by {master} of {at}"
            ))),
        }
    }

    fn leave_array(
        &self,
        state: &TileState,
        master: SwitchPort,
        drops_header: bool,
        route: &mut Route,
    ) -> Result<(), BoardProblem> {
        let at = state.tile;
        if master.index == 0 {
            route.to_firmware = true;
            return Ok(());
        }
        let demux = set(state.demux, || format!("the demux of {at}"))?;
        let record = Record::read(&crate::register::DEMUX, &[demux])?;
        let field = mux_field(Direction::S2mm, master.index);
        let leads_to_dma = field.is_some_and(|field| record.get(field) == 1);
        match master.index.checked_sub(2).filter(|&channel| channel < 2) {
            Some(channel) if leads_to_dma => {
                route.sinks.push((at.index(), channel, !drops_header));
                Ok(())
            }
            _ => {
                let problem =
                    format!("words leave by {master} of {at}, which leads to no DMA channel");
                Err(BoardProblem::Wrong(problem))
            }
        }
    }

    /// Refuses ports that are enabled and lead nowhere or come from nowhere.
    fn check_switches(&self) -> Result<(), BoardProblem> {
        for state in &self.tiles {
            let mut is_driven = vec![false; state.slaves.len()];
            for (number, &word) in state.masters.iter().enumerate() {
                let Some((record, master)) = read(&MASTER, word, state.master_port(number))? else {
                    continue;
                };
                self.check_master(state, master, &record, &mut is_driven)?;
            }
            for (number, &word) in state.slaves.iter().enumerate() {
                let Some((record, slave)) = read(&SLAVE, word, state.slave_port(number))? else {
                    continue;
                };
                let name = || format!("slave {slave} of {}", state.tile);
                if !record.is(WordField::Packet) && !is_driven[number] {
                    return Err(BoardProblem::NoEffect(format!("{} leads nowhere", name())));
                }
                if !self.is_fed(state.tile, slave)? {
                    return Err(BoardProblem::NoEffect(format!(
                        "nothing comes to {}",
                        name()
                    )));
                }
                let enabled = |slot: &Option<u32>| slot.is_some_and(|word| word >> 8 & 1 == 1);
                let slots = state.slots[number * 4..number * 4 + 4].iter().any(enabled);
                if slots != record.is(WordField::Packet) {
                    let problem = format!("{} and its packet slots do not go together", name());
                    return Err(BoardProblem::NoEffect(problem));
                }
            }
        }
        Ok(())
    }

    fn check_master(
        &self,
        state: &TileState,
        master: SwitchPort,
        record: &Record,
        is_driven: &mut [bool],
    ) -> Result<(), BoardProblem> {
        let name = || format!("master {master} of {}", state.tile);
        let configuration = record.get(WordField::Configuration) as usize;
        if !record.is(WordField::Packet) {
            let slave = state.slaves.get(configuration).copied().flatten();
            if slave.is_none_or(|word| word >> 30 != 2) {
                let problem = format!("{} takes slave {configuration}, no enabled circuit", name());
                return Err(BoardProblem::Wrong(problem));
            }
            is_driven[configuration] = true;
        }
        if let Some((next, slave)) = port::next(state.tile, master) {
            let number = port::number(port::slaves(next.kind()), slave).unwrap_or(0);
            let word = self.tiles[next.index()].slaves[usize::from(number)];
            if word.is_none_or(|word| word >> 31 == 0) {
                let problem = format!(
                    "{} leads to slave {slave} of {next}, which is not enabled",
                    name()
                );
                return Err(BoardProblem::NoEffect(problem));
            }
        }
        Ok(())
    }

    /// Whether something leads to an enabled slave port.
    fn is_fed(&self, tile: Tile, slave: SwitchPort) -> Result<bool, BoardProblem> {
        let (east, north, bundle) = match slave.bundle {
            Bundle::South if tile.kind() == TileKind::Shim => {
                let mux = self.tiles[tile.index()].mux;
                let Some(field) = mux_field(Direction::Mm2s, slave.index) else {
                    return Ok(true);
                };
                let record = Record::read(&crate::register::MUX, &[mux.unwrap_or(0)])?;
                return Ok(record.get(field) != 0);
            }
            Bundle::South => (0, -1, Bundle::North),
            Bundle::North => (0, 1, Bundle::South),
            Bundle::West => (-1, 0, Bundle::East),
            Bundle::East => (1, 0, Bundle::West),
            _ => return Ok(true),
        };
        let Some(from) = tile.neighbour(east, north) else {
            return Ok(false);
        };
        let master = port::port(bundle, slave.index);
        let number = port::number(port::masters(from.kind()), master);
        let word = number.and_then(|n| self.tiles[from.index()].masters[usize::from(n)]);
        Ok(word.is_some_and(|word| word >> 31 == 1))
    }
}

/// A register's record and port if it is set and enabled.
fn read(
    layout: &'static crate::Layout,
    word: Option<u32>,
    port: Option<SwitchPort>,
) -> Result<Option<(Record, SwitchPort)>, BoardProblem> {
    let (Some(word), Some(port)) = (word, port) else {
        return Ok(None);
    };
    let record = Record::read(layout, &[word])?;
    Ok(record.is(WordField::Enable).then_some((record, port)))
}
