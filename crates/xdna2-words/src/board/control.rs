//! Control packets: a tile's port by which streams write and read its registers.
//!
//! Source: mlir-aie's tests `npu-xrt/add_one_ctrl_packet*`, which run on hardware. A packet is a word with the request,
//! and words to write: bits 19:0 the first register's address in the tile, 21:20 how many words less
//! one, 23:22 the operation (0 writes, 1 reads), 28:24 the id of the packet that answers, 31 odd parity.

use super::dma::packet_word;
use super::fault::{BoardError, BoardProblem};
use super::state::STREAM_WORDS;
use super::{Board, BoardActor};
use crate::port::{self, Bundle};
use std::collections::VecDeque;

/// A tile's control port.
#[derive(Debug, Default)]
pub(super) struct ControlPort {
    /// Words of an incomplete packet.
    partial: Vec<u32>,
    /// Values that were read, each with the id of its packet.
    answers: VecDeque<(u8, Vec<u32>)>,
}

impl ControlPort {
    /// Whether an answer is waiting to be sent.
    pub(super) fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether a packet has begun and is not whole.
    pub(super) fn is_amid_packet(&self) -> bool {
        !self.partial.is_empty()
    }
}

impl Board<'_> {
    /// Takes a word of a stream that ends at a tile's control port.
    pub(super) fn take_control(&mut self, tile: usize, word: u32) -> Result<(), BoardProblem> {
        let at = self.tiles[tile].tile;
        let port = &mut self.tiles[tile].control_port;
        port.partial.push(word);
        let header = port.partial[0];
        if header.count_ones().is_multiple_of(2) {
            let problem = format!("the control packet {header:#010x} for {at} has even parity");
            return Err(BoardProblem::Wrong(problem));
        }
        let (operation, n_words) = (header >> 22 & 3, (header >> 20 & 3) as usize + 1);
        let first = at.address(header & 0xF_FFFC);
        let register = |i: usize| u64::from(first) + 4 * i as u64;
        match operation {
            0 if port.partial.len() <= n_words => {}
            0 => {
                let packet = std::mem::take(&mut port.partial);
                for (i, &value) in packet[1..].iter().enumerate() {
                    self.write_register(register(i), value)?;
                }
            }
            1 => {
                port.partial.clear();
                let read = (0..n_words).map(|i| self.read_register(register(i)));
                let words: Vec<u32> = read.collect::<Result<_, _>>()?;
                let id = (header >> 24 & 31) as u8;
                self.tiles[tile].control_port.answers.push_back((id, words));
            }
            other => {
                let problem = format!("operation {other} of a control packet for {at}");
                return Err(BoardProblem::Undefined(problem));
            }
        }
        Ok(())
    }

    /// Sends an answer as soon as its whole way is free; returns whether it did.
    pub(super) fn step_control(&mut self, tile: usize) -> Result<bool, BoardError> {
        let at = self.tiles[tile].tile;
        self.answer(tile).map_err(|problem| {
            let place = format!("the control port of {at}");
            BoardError::at(BoardActor::Core(at), place, problem)
        })
    }

    fn answer(&mut self, tile: usize) -> Result<bool, BoardProblem> {
        let Some((id, words)) = self.tiles[tile].control_port.answers.front().cloned() else {
            return Ok(false);
        };
        let at = self.tiles[tile].tile;
        let slaves = port::slaves(at.kind());
        let slave = port::number(slaves, port::port(Bundle::TileControl, 0)).unwrap_or(0);
        let route = self.route((tile, slave, Some(id)))?;
        if route.to_firmware || !route.controls.is_empty() || route.sinks.is_empty() {
            let problem = "an answer of control that leads to no DMA channel".to_owned();
            return Err(BoardProblem::Undefined(problem));
        }
        let needs = |keeps_header: bool| words.len() + usize::from(keeps_header);
        let has_room = route.sinks.iter().all(|&(of, channel, keeps_header)| {
            let inbox = &self.tiles[of].inboxes[usize::from(channel)];
            inbox.len() + needs(keeps_header) <= STREAM_WORDS
        });
        let arbiters = &self.arbiters;
        if !has_room
            || route
                .arbiters
                .iter()
                .any(|of| arbiters.contains_key(&of.arbiter))
        {
            return Ok(false);
        }
        for &(of, channel, keeps_header) in &route.sinks {
            let inbox = &mut self.tiles[of].inboxes[usize::from(channel)];
            inbox.extend(keeps_header.then(|| packet_word(at, id.into(), 0)));
            inbox.extend(&words);
        }
        self.tiles[tile].control_port.answers.pop_front();
        Ok(true)
    }
}
