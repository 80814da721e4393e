//! Configurations of a design, each with its words and programs.

use crate::core::{Code, compile};
use crate::design::{ArgumentPart, Design};
use crate::lower::{DesignProgram, lower};
use crate::syntax::{Location, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::board::{Board, BoardActor, BoardError};
use std::rc::Rc;

/// A configuration and what is run there.
pub(super) struct DesignStage<'d> {
    pub(super) design: &'d Design,
    pub(super) lowered: DesignProgram,
    pub(super) codes: Vec<(Tile, Rc<Code>)>,
    /// By argument of it: which part of whose argument it is.
    pub(super) parts: Vec<ArgumentPart>,
}

/// What is said of programs of all configurations.
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

/// What a host would read too early: shims that still wrote when the sequence had ended.
pub(super) fn late(board: &Board<'_>) -> Option<String> {
    let names = board
        .late()
        .map(|at| format!("{} {} {}", at.tile, at.direction.name(), at.number));
    let names: Vec<String> = names.collect();
    let all = names.join(", ");
    (!names.is_empty()).then(|| {
        format!("the sequence ends before {all} has written all: nobody awaits its last task, and the host may read too early")
    })
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
        let part = |part: &ArgumentPart| {
            let (from, n) = (part.offset_bytes as usize, part.bytes as usize);
            let bytes = of
                .get(part.argument)
                .and_then(|bytes| bytes.get(from..from + n));
            bytes.map_or_else(|| vec![0; n], <[u8]>::to_vec)
        };
        self.parts.iter().map(part).collect()
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

    /// Why a run cannot be judged, with its place in the text: it came to what no source documents. `None` of what
    /// can be.
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

    /// Where an operation of the stream stands in the text.
    fn place(&self, operation: usize) -> Option<Location> {
        let mut before = self.lowered.operations.range(..=operation);
        before.next_back().map(|row| *row.1)
    }

    /// What stopped a run, with its place in the text where it was an operation of the sequence.
    pub(super) fn failure(&self, error: &BoardError) -> String {
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
        let hint = match problem.contains("a further one is lost") && !self.design.queue_waits {
            true => {
                "; mlir-aie inserts a wait for a place before it since September 2026, and so does `--queue-waits`"
            }
            false => "",
        };
        format!("{place}{what}: {problem}{hint}")
    }
}
