//! The values that a program computes.
//!
//! A verified program's layouts hold each value exactly once, so values are kept by index and not by byte. Every tensor
//! on the chip is a dense array over its axes; only HBM is bytes in the order of its mapping. Beside time, a layout
//! decides the *order of additions*, which is followed here:
//!
//! * products are exact in `f32`, or in integers where both factors are integers;
//! * within a packet by a tree that adds the upper half onto the lower until one is left;
//! * then packet by packet in order of time, from zero;
//! * then slice by slice around the ring, in ascending order;
//! * a vector reduction likewise, its packets of four being trees of two levels.
//!
//! The hardware's own order is not published. Vector stages compute in `f32`, flush subnormal results to zero and give
//! the canonical not-a-number; casts round to nearest, ties to even. Values that nobody wrote are not-a-number.

mod array;
mod contract;
mod dma;
mod kernel;

use crate::axes::{AxesError, DigitLayout};
use crate::program::{Command, Place, Program};
use crate::verify::range;
use array::{Array, ordered};
use std::sync::Arc;

/// Called with a slot that a command wrote, and the bytes of all slots.
pub type AfterWrite<'a> = &'a dyn Fn(usize, &mut [Vec<u8>]);

/// How to run.
#[derive(Clone, Copy)]
pub struct SimulationOptions<'a> {
    /// Threads that contractions are cut over; results do not depend on it.
    pub n_threads: usize,
    /// Number of commands after which the run fails.
    pub stop_after: Option<u64>,
    /// Called after each command that writes a slot, for content that is wrong on purpose.
    pub after_write: Option<AfterWrite<'a>>,
}

impl Default for SimulationOptions<'_> {
    fn default() -> Self {
        SimulationOptions {
            n_threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(16)),
            stop_after: None,
            after_write: None,
        }
    }
}

/// Why a program stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{command}`: {reason}")]
pub struct CommandFault {
    /// The command.
    pub command: String,
    /// The slot concerned, where there is one.
    pub slot: Option<String>,
    /// Description of the fault.
    pub reason: String,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands.
    pub n_commands: u64,
    /// Multiply-accumulates.
    pub n_macs: u64,
    /// Bytes read from HBM.
    pub hbm_read_bytes: u64,
    /// Bytes written to HBM.
    pub hbm_written_bytes: u64,
}

/// Runs a verified program over the content of its slots, in order.
///
/// # Errors
/// [`CommandFault`]: an index beyond its axis, slots that do not fit, a program that was not verified.
pub fn run(
    program: &Program,
    slots: &mut [Vec<u8>],
    options: &SimulationOptions<'_>,
) -> Result<Counters, CommandFault> {
    let mut chip = Chip::new(program, slots, options)?;
    for command in &program.commands {
        let fault = |(slot, reason): (Option<usize>, String)| CommandFault {
            command: command.name().to_owned(),
            slot: slot.map(|slot| program.tensors[slot].name.clone()),
            reason,
        };
        if options.stop_after == Some(chip.counters.n_commands) {
            let reason = format!("stopped after {} commands", chip.counters.n_commands);
            return Err(fault((None, reason)));
        }
        match command {
            Command::Dma(dma) => {
                chip.dma(dma).map_err(fault)?;
                if let (Some(after), Some(slot)) =
                    (options.after_write, chip.slot_of[dma.to.tensor])
                {
                    after(slot, chip.slots);
                }
            }
            Command::Kernel(kernel) => chip.kernel(kernel).map_err(fault)?,
        }
        chip.counters.n_commands += 1;
    }
    Ok(chip.counters)
}

/// A result, or a tensor and its fault.
type SimulationResult<T> = Result<T, (Option<usize>, String)>;

struct Chip<'p> {
    program: &'p Program,
    options: &'p SimulationOptions<'p>,
    /// Slot of each tensor in HBM.
    slot_of: Vec<Option<usize>>,
    slots: &'p mut [Vec<u8>],
    /// Content of tensors on the chip.
    arrays: Vec<Option<Arc<Array>>>,
    /// Memory and bytes of tensors on the chip.
    ranges: Vec<Option<(u8, u64, u64)>>,
    counters: Counters,
    /// Memory of arrays that were dropped.
    spare: Vec<Vec<f32>>,
}

/// Most dropped arrays whose memory is kept.
const MAX_SPARE: usize = 8;

impl<'p> Chip<'p> {
    fn new(
        program: &'p Program,
        slots: &'p mut [Vec<u8>],
        options: &'p SimulationOptions<'p>,
    ) -> Result<Chip<'p>, CommandFault> {
        let mut slot_of = Vec::new();
        let mut n_slots = 0;
        for tensor in &program.tensors {
            let is_slot = matches!(tensor.place, Place::Hbm { .. });
            slot_of.push(is_slot.then_some(n_slots));
            if !is_slot {
                continue;
            }
            let expected = tensor.unit_bytes(&program.axes).unwrap_or(u64::MAX);
            let found = slots.get(n_slots).map(|bytes| bytes.len() as u64);
            if found != Some(expected) {
                return Err(CommandFault {
                    command: program.name.clone(),
                    slot: Some(tensor.name.clone()),
                    reason: format!("it has {expected} bytes, {found:?} are bound"),
                });
            }
            n_slots += 1;
        }
        let n = program.tensors.len();
        Ok(Chip {
            program,
            options,
            slot_of,
            slots,
            arrays: (0..n).map(|_| None).collect(),
            ranges: (0..n).map(|tensor| range(program, tensor)).collect(),
            counters: Counters::default(),
            spare: Vec::new(),
        })
    }

    /// Drops an array and keeps its memory for the next: new memory from the system costs more than filling it.
    fn give_back(&mut self, tensor: usize) {
        let array = self.arrays[tensor].take().and_then(Arc::into_inner);
        self.spare.extend(array.map(|array| array.data));
        if self.spare.len() > MAX_SPARE {
            self.spare.remove(0);
        }
    }

    /// The array of a tensor, `n` values of which are about to be written; arrays that it overlaps are lost.
    fn written(&mut self, tensor: usize, n: usize) -> SimulationResult<&mut Array> {
        let own = self.ranges[tensor];
        for other in 0..self.arrays.len() {
            let meets = match (own, self.ranges[other]) {
                (Some((k, f, e)), Some((kind, first, end))) => k == kind && first < e && f < end,
                _ => false,
            };
            if other != tensor && meets {
                self.give_back(other);
            }
        }
        if self.arrays[tensor].is_none() {
            let shape = self.program.tensors[tensor].shape(&self.program.axes);
            let broken = |error: AxesError| (Some(tensor), error.to_string());
            let layout = DigitLayout::of(self.program.tensors[tensor].layout(), &self.program.axes);
            let shape = ordered(shape.map_err(broken)?, &layout.map_err(broken)?);
            self.arrays[tensor] = Some(Arc::new(Array::to_write(shape, n, &mut self.spare)));
        }
        // It is shared only while a kernel streams from it. That kernel has ended by now or keeps the old values.
        let own = self.arrays[tensor].as_mut().map(Arc::make_mut);
        own.ok_or_else(|| (Some(tensor), "it has no content".to_owned()))
    }

    fn array(&self, tensor: usize) -> SimulationResult<&Arc<Array>> {
        self.arrays[tensor]
            .as_ref()
            .ok_or_else(|| (Some(tensor), "it is read before it is written".to_owned()))
    }
}

#[cfg(test)]
mod tests;
