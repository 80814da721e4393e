//! Receiving out of order: each packet's header names the descriptor that places it.
//!
//! Source: mlir-aie's test `npu-xrt/dma_s2mm_ooo`. A header keeps its way to the channel, the descriptors are enabled for
//! packets and not chained, and a task counts packets: its repeats and one more, whichever descriptors they name.

use super::super::Board;
use super::super::fault::BoardProblem;
use super::super::route::Route;
use super::{DmaChannel, Execution, Task};
use crate::field::{Record, WordField};
use crate::tile::Direction;

/// Position of the descriptor's number in a header (an assumption: no source says).
pub(super) const ID_SHIFT: u32 = 5;
const ID_MASK: u32 = 0x3F;

/// The descriptor that a header names.
fn named(header: u32) -> u8 {
    (header >> ID_SHIFT & ID_MASK) as u8
}

impl DmaChannel {
    /// Whether headers choose its descriptors.
    pub(in crate::board) fn is_out_of_order(&self) -> bool {
        self.control.is_some_and(|control| control >> 3 & 1 == 1)
    }
}

impl Board<'_> {
    /// The execution that a channel's task begins with; `None` while no header came that names its descriptor.
    pub(super) fn start(
        &mut self,
        tile: usize,
        direction: Direction,
        number: u8,
        task: Task,
    ) -> Result<Option<Execution>, BoardProblem> {
        if !self.tiles[tile]
            .channel(direction, number)
            .is_out_of_order()
        {
            return self.begin(tile, direction, number, task.start).map(Some);
        }
        let inbox = &self.tiles[tile].inboxes[usize::from(number)];
        let Some(&header) = inbox.front() else {
            return Ok(None);
        };
        let at = named(header);
        let from = format!("packet {} names descriptor {at}", header & 31);
        let words = self.tiles[tile].descriptors.get(usize::from(at));
        if words.is_some_and(|words| words.contains(&None)) {
            // A sequence may set it a moment later; whether the channel waits for that, no source says.
            let problem = format!("{from}, which nothing has set by then");
            return Err(BoardProblem::Undefined(problem));
        }
        let begun = self.begin(tile, direction, number, at);
        let execution = begun.map_err(|problem| match problem {
            BoardProblem::Wrong(problem) => BoardProblem::Wrong(format!("{from}: {problem}")),
            other => other,
        })?;
        if execution.packet.is_none() {
            let problem = format!("{from}, which is not enabled for packets");
            return Err(BoardProblem::Wrong(problem));
        }
        if let Some(next) = execution.next {
            let problem = format!("{from}, which names descriptor {next} as the next one");
            return Err(BoardProblem::Undefined(problem));
        }
        self.tiles[tile].inboxes[usize::from(number)].pop_front();
        self.tiles[tile].taken[usize::from(number)] += 1;
        self.free_arbiters(tile, number);
        Ok(Some(execution))
    }

    /// Refuses a packet for a channel that receives out of order if its header does not reach it, or if its length
    /// differs from the descriptor that it names.
    pub(super) fn fits_receivers(
        &self,
        execution: &Execution,
        route: &Route,
    ) -> Result<(), BoardProblem> {
        for &(tile, number, has_header) in &route.sinks {
            let state = &self.tiles[tile];
            let channel = &state.channels[Direction::S2mm as usize][usize::from(number)];
            if !channel.is_out_of_order() {
                continue;
            }
            let to = format!("{} S2MM {number}", state.tile);
            let header = execution.header.filter(|_| has_header);
            let header = header.ok_or_else(|| {
                let problem = format!(
                    "{to} receives out of order, and no header comes there: its stream is to be of packets that keep it (`keep_pkt_header`)"
                );
                BoardProblem::Wrong(problem)
            })?;
            let words = &state.descriptors;
            let Some(words) = words.get(usize::from(named(header))) else {
                continue;
            };
            // An unset descriptor is a fault when the packet arrives.
            let words: Option<Vec<u32>> = words.iter().copied().collect();
            let Some(words) = words else {
                continue;
            };
            let record = Record::read(crate::descriptor::layout(state.tile.kind()), &words)?;
            let (sent, taken) = (execution.walk.left, record.get(WordField::Length));
            if sent != taken {
                let at = named(header);
                let problem = format!(
                    "a packet of {sent} words names descriptor {at} of {to}, which takes {taken}"
                );
                return Err(BoardProblem::Wrong(problem));
            }
        }
        Ok(())
    }
}
