//! Configurations of a design, each with its words and programs.

use super::difference;
use crate::core::{Code, compile};
use crate::design::{ArgumentPart, Design};
use crate::lower::{DesignProgram, lower};
use crate::syntax::{Location, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::board::{Board, BoardActor, BoardError, RacedWord};
use millrace_xdna2_words::writer::ChannelAt;
use std::rc::Rc;

/// A configuration and its programs.
pub(super) struct DesignStage<'d> {
    pub(super) design: &'d Design,
    pub(super) lowered: DesignProgram,
    pub(super) codes: Vec<(Tile, Rc<Code>)>,
    /// By argument of the configuration: the part of the design's argument that it is.
    pub(super) parts: Vec<ArgumentPart>,
}

/// Remarks on the programs of all configurations.
#[derive(Default)]
pub(super) struct ProgramNotes {
    pub(super) unknown: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// The configurations of a design in their order: its own, or those that its sequence loads.
pub(super) fn stages(design: &Design) -> Result<(Vec<DesignStage<'_>>, ProgramNotes), SyntaxError> {
    let mut notes = ProgramNotes::default();
    note(design.notes.clone(), &mut notes.notes);
    if design.stages.is_empty() {
        let whole = design.arguments.iter().enumerate();
        let parts = whole.map(|(argument, of)| ArgumentPart {
            argument,
            offset_bytes: 0,
            bytes: of.bytes,
        });
        let stage = stage(design, parts.collect(), &mut notes)?;
        return Ok((vec![stage], notes));
    }
    let mut all = Vec::new();
    for of in &design.stages {
        note(of.design.notes.clone(), &mut notes.notes);
        all.push(stage(&of.design, of.parts.clone(), &mut notes)?);
    }
    Ok((all, notes))
}

fn note(new: Vec<String>, to: &mut Vec<String>) {
    for one in new {
        if !to.contains(&one) {
            to.push(one);
        }
    }
}

fn stage<'d>(
    design: &'d Design,
    parts: Vec<ArgumentPart>,
    notes: &mut ProgramNotes,
) -> Result<DesignStage<'d>, SyntaxError> {
    let lowered = lower(design)?;
    note(lowered.notes.clone(), &mut notes.notes);
    let mut codes = Vec::new();
    for core in &design.cores {
        let compiled = compile(design, &lowered.places, core)?;
        codes.push((core.tile, Rc::new(compiled.code)));
        note(compiled.unknown, &mut notes.unknown);
        note(compiled.notes, &mut notes.notes);
    }
    Ok(DesignStage {
        design,
        lowered,
        codes,
        parts,
    })
}

impl DesignStage<'_> {
    /// The bytes of its arguments.
    pub(super) fn arguments(&self, of: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let part = |(i, part): (usize, &ArgumentPart)| {
            let given = self.design.arguments.get(i).and_then(|of| of.given.clone());
            if let Some(bytes) = given {
                return bytes;
            }
            let (from, n) = (part.offset_bytes as usize, part.bytes as usize);
            let bytes = of
                .get(part.argument)
                .and_then(|bytes| bytes.get(from..from + n));
            bytes.map_or_else(|| vec![0; n], <[u8]>::to_vec)
        };
        self.parts.iter().enumerate().map(part).collect()
    }

    /// Puts them back where they are from.
    pub(super) fn put(&self, arguments: &[Vec<u8>], to: &mut [Vec<u8>]) {
        for (part, bytes) in self.parts.iter().zip(arguments) {
            let (from, n) = (part.offset_bytes as usize, part.bytes as usize);
            let place = to
                .get_mut(part.argument)
                .and_then(|of| of.get_mut(from..from + n));
            if let Some(place) = place.filter(|place| place.len() == bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }

    /// Why a run cannot be judged, with its place in the text: it came to behaviour that no source documents. `None`
    /// for other errors.
    pub(super) fn refusal(&self, error: &BoardError) -> Option<SyntaxError> {
        let BoardError::Undocumented {
            actor,
            operation,
            place,
            problem,
        } = error
        else {
            return None;
        };
        let (at, op) = match (actor, operation) {
            (_, Some(operation)) => (self.place(*operation), "aie.runtime_sequence"),
            (BoardActor::Channel(channel), _) => {
                (self.lowered.channels.get(channel).copied(), "aie.dma_bd")
            }
            (BoardActor::Core(tile), _) => {
                let core = self.design.cores.iter().find(|core| core.tile == *tile);
                (core.map(|core| core.op.at), "aie.core")
            }
            (BoardActor::Firmware, None) => (None, "aie.runtime_sequence"),
        };
        let problem = match operation {
            Some(_) => problem.clone(),
            None => format!("{place}: {problem}"),
        };
        Some(SyntaxError::new(at.unwrap_or_default(), problem).in_op(op))
    }

    /// Writes that a host would read too early: shims that still wrote when the sequence had ended.
    pub(super) fn late(&self, board: &Board<'_>) -> Option<String> {
        let one = |at: ChannelAt| {
            let ChannelAt {
                tile,
                direction,
                number,
            } = at;
            let channel = format!("{tile} {} {number}", direction.name());
            let Some((place, argument)) = self.lowered.last_tasks.get(&at) else {
                return format!("{channel} has written all");
            };
            let of = argument.and_then(|i| self.design.arguments.get(i).map(|of| (i, of)));
            let what = of.map_or_else(
                || "all".to_owned(),
                |(i, of)| format!("all of argument {i} (%{})", of.name),
            );
            format!("{channel} has written {what}, by its task of {place}")
        };
        let late: Vec<String> = board.late().map(one).collect();
        (!late.is_empty()).then(|| {
            let all = late.join(", or ");
            format!("the sequence ends before {all}: nobody awaits its last task, and the host may read too early")
        })
    }

    /// The element of the design that two parties touched.
    pub(super) fn word(&self, word: RacedWord) -> Option<String> {
        let (of, name, byte) = match word {
            RacedWord::Argument(argument, word) => {
                let of = self.design.arguments.get(argument)?;
                (&of.of, &of.name, word * 4)
            }
            RacedWord::Tile(tile, word) => {
                let byte = u64::from(word) * 4;
                let places = self
                    .design
                    .buffers
                    .iter()
                    .zip(&self.lowered.places.addresses);
                let mut places = places.filter(|(of, address)| {
                    let first = u64::from(**address);
                    of.tile == tile && (first..first + u64::from(of.bytes)).contains(&byte)
                });
                let (of, &address) = places.next()?;
                (&of.of, &of.name, byte - u64::from(address))
            }
        };
        let at = difference::indices(of, byte / of.element_bytes().max(1));
        Some(format!("{name}{at}"))
    }

    /// Place of an operation of the stream in the text.
    fn place(&self, operation: usize) -> Option<Location> {
        let mut before = self.lowered.operations.range(..=operation);
        before.next_back().map(|row| *row.1)
    }

    /// Description of the fault that stopped a run, with its place in the text if it was an operation of the sequence.
    pub(super) fn failure(&self, error: &BoardError, raced: Option<RacedWord>) -> String {
        if let (BoardError::Race { .. }, Some(word)) = (error, raced) {
            let name = self.word(word);
            let name = name.map_or_else(String::new, |name| format!(", that is {name}"));
            return format!(
                "{error}{name}: no lock keeps the two apart, so what it holds depends on who is faster"
            );
        }
        let BoardError::Operation {
            operation,
            what,
            problem,
        } = error
        else {
            return error.to_string();
        };
        let place = self
            .place(*operation)
            .map_or_else(String::new, |at| format!("{at}: "));
        let hint = if problem.contains("a further one is lost") && !self.design.queue_waits {
            "; mlir-aie inserts a wait for a place before it since September 2026, and so does `--queue-waits`"
        } else if problem.contains("to be awaited first") && self.design.frees_tasks() {
            "; `aiex.dma_free_task` gives a number back and waits for nothing"
        } else {
            ""
        };
        format!("{place}{what}: {problem}{hint}")
    }
}
