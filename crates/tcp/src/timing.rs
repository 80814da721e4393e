//! When a program's commands run: discrete events without data.
//!
//! Each context runs its commands in order. A command begins at the head of its context once its engines are free, its
//! inputs have been written, and the data that it overwrites has been read. Moves that touch HBM share its rate evenly,
//! within what their engines carry. So overlap, prefetch and waiting follow from buffers and addresses. The time of a
//! decode step is that of its moves because nothing else is as slow.
//!
//! [`cost`] gives the time of one command; [`closed`] has the same as formulas, which tests compare.

pub mod closed;
pub mod cost;
mod events;
mod hazards;

pub use cost::{CommandWork, Cost, Queue};
pub use events::CommandSpan;

use crate::flow::FlowViolation;
use crate::program::{Place, Program};
use crate::{Machine, Profile};
use millrace_npu::Trace;
use std::collections::BTreeMap;

/// A program with the costs of its commands, ready to be timed any number of times.
#[derive(Clone, Debug)]
pub struct TimedProgram {
    name: String,
    n_slots: usize,
    commands: Vec<TimedCommand>,
}

#[derive(Clone, Debug)]
struct TimedCommand {
    name: String,
    cost: Cost,
    accesses: Vec<hazards::Touch>,
}

/// Time of programs, and activity meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    /// From the first command's start to the last one's end.
    pub total_ns: f64,
    /// Time in which each queue had a command under way.
    pub busy_ns: BTreeMap<Queue, f64>,
    /// Bytes read from and written to HBM, including the waste of partial accesses.
    pub hbm_bytes: f64,
    /// Multiply-accumulates of a chip, those on padding included.
    pub n_macs: f64,
    /// When each program of the sequence ended.
    pub ends_ns: Vec<f64>,
}

impl TimedProgram {
    /// Works out a program's costs.
    ///
    /// # Errors
    /// Where a command makes no sense; a verified program's do.
    pub fn new(
        program: &Program,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<TimedProgram, FlowViolation> {
        let mut slot_of = Vec::new();
        let mut n_slots = 0;
        for tensor in &program.tensors {
            let is_slot = matches!(tensor.place, Place::Hbm { .. });
            slot_of.push(is_slot.then_some(n_slots));
            n_slots += usize::from(is_slot);
        }
        let commands = program.commands.iter().map(|command| {
            Ok(TimedCommand {
                name: command.name().to_owned(),
                cost: Cost::of(program, command, machine, profile)?,
                accesses: hazards::touches(program, command, &slot_of),
            })
        });
        Ok(TimedProgram {
            name: program.name.clone(),
            n_slots,
            commands: commands.collect::<Result<_, _>>()?,
        })
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of a command.
    ///
    /// # Panics
    /// Where there is none of that number.
    pub fn command_name(&self, command: usize) -> &str {
        &self.commands[command].name
    }

    /// Cost of a command.
    ///
    /// # Panics
    /// Where there is none of that number.
    pub fn command_cost(&self, command: usize) -> &Cost {
        &self.commands[command].cost
    }

    /// Number of its commands.
    pub(crate) fn n_commands(&self) -> usize {
        self.commands.len()
    }
}

/// A program of a sequence, with the buffer of each of its slots. Equal numbers are one buffer.
#[derive(Clone, Debug)]
pub struct Dispatch<'t> {
    /// The program.
    pub program: &'t TimedProgram,
    /// A buffer a slot.
    pub buffers: Vec<usize>,
}

impl<'t> Dispatch<'t> {
    /// A program with separate buffers, numbered from `first`.
    pub fn alone(program: &'t TimedProgram, first: usize) -> Dispatch<'t> {
        Dispatch {
            program,
            buffers: (first..first + program.n_slots).collect(),
        }
    }
}

/// Times one program by itself.
pub fn predict(program: &TimedProgram, machine: &Machine, profile: &Profile) -> Timing {
    sequence(&[Dispatch::alone(program, 0)], machine, profile).0
}

/// Times programs one after the other, as contexts and buffers let them overlap. Also gives the times of each command.
pub fn sequence(
    programs: &[Dispatch<'_>],
    machine: &Machine,
    profile: &Profile,
) -> (Timing, Vec<CommandSpan>) {
    events::run(programs, machine, profile)
}

/// Share of a part of a program in its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeShare {
    /// Time until one of its commands ended, from the previous end. The shares of all parts add up to the whole time.
    pub ns: f64,
    /// Bytes that it reads from and writes to HBM.
    pub hbm_bytes: f64,
    /// Multiply-accumulates.
    pub n_macs: f64,
}

/// Times one program by itself, and gives the shares of its parts; `part_of` finds a command's part by its name.
pub fn shares(
    program: &TimedProgram,
    machine: &Machine,
    profile: &Profile,
    (n_parts, part_of): (usize, &dyn Fn(&str) -> usize),
) -> (Timing, Vec<TimeShare>) {
    let (timing, spans) = sequence(&[Dispatch::alone(program, 0)], machine, profile);
    let mut shares = vec![TimeShare::default(); n_parts.max(1)];
    let mut before = 0.0;
    // Spans come in the order of their ends.
    for span in &spans {
        let part = part_of(program.command_name(span.command)).min(shares.len() - 1);
        let cost = program.command_cost(span.command);
        let share = &mut shares[part];
        share.ns += span.end_ns - before;
        before = span.end_ns;
        share.n_macs += cost.n_macs;
        if let CommandWork::Flow {
            bytes, hbm: true, ..
        } = cost.work
        {
            share.hbm_bytes += bytes;
        }
    }
    (timing, shares)
}

/// The spans of one program as a trace.
pub fn trace(program: &TimedProgram, machine: &Machine, profile: &Profile) -> Trace {
    let (_, spans) = sequence(&[Dispatch::alone(program, 0)], machine, profile);
    let mut trace = Trace::new(&program.name, profile.provenance());
    let mut tracks: BTreeMap<Queue, usize> = BTreeMap::new();
    for span in &spans {
        let queue = span.queue;
        let track = match tracks.get(&queue) {
            Some(&track) => track,
            None => {
                let track = trace.track("contexts", &queue.to_string());
                tracks.insert(queue, track);
                track
            }
        };
        let (start, end) = (span.start_ns.round() as u64, span.end_ns.round() as u64);
        trace.event(
            track,
            &program.commands[span.command].name,
            start,
            end - start,
        );
    }
    trace
}

#[cfg(test)]
mod tests;
