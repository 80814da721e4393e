//! Stitching: the launches of several programs in one dispatch, their slots wired by an explicit
//! argument map (as in MLIR-AIR's Llama-3.2-1B example). It saves dispatches, not DDR traffic: values that pass between
//! launches still go through a slot.

use super::{Launch, Place, Program};
use millrace_npu::{Role, Slot};
use std::collections::{HashMap, HashSet};

/// One program to stitch.
#[derive(Clone, Copy, Debug)]
pub struct StitchPart<'a> {
    /// The program.
    pub program: &'a Program,
    /// Prefix of its launches' names (`q` makes `gemm` into `q_gemm`); empty for none.
    pub prefix: &'a str,
    /// For each of the program's slots, in order, the name of the stitched program's slot. The
    /// same name in two parts is the same buffer: that is how data flows.
    pub arg_map: &'a [&'a str],
}

/// Why programs cannot be stitched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StitchError {
    /// The argument map does not fit the program.
    #[error("part {part}: `{program}` has {slots} slots, its arg_map names {names}")]
    ArgMap {
        /// Position of the part.
        part: usize,
        /// Its program.
        program: String,
        /// The program's slots.
        slots: usize,
        /// The map's names.
        names: usize,
    },
    /// Two parts disagree on a slot's element type or shape.
    #[error("slot `{slot}` is {first} in part {first_part} and {other} in part {part}")]
    Conflict {
        /// The stitched slot.
        slot: String,
        /// Part that used it first.
        first_part: usize,
        /// Type and shape there.
        first: String,
        /// The other part.
        part: usize,
        /// Type and shape there.
        other: String,
    },
    /// A part would write a buffer that it also reads or writes through another of its slots.
    #[error(
        "part {part}: `{a}` and `{b}` of `{program}` are both wired to `{slot}`, and it is written"
    )]
    Alias {
        /// Position of the part.
        part: usize,
        /// Its program.
        program: String,
        /// One slot of the program.
        a: String,
        /// The other.
        b: String,
        /// The stitched slot.
        slot: String,
    },
    /// A slot that the host fills is overwritten by a later part, so the next call would find
    /// other content.
    #[error(
        "slot `{slot}` is read as {role} by part {reader} and overwritten by part {writer}: \
         give the result a slot of its own"
    )]
    Overwritten {
        /// The stitched slot.
        slot: String,
        /// Its role for the reader.
        role: &'static str,
        /// The part that reads it first.
        reader: usize,
        /// The part that writes it.
        writer: usize,
    },
    /// A requested output that no part writes.
    #[error("`{0}` is asked for as an output, but no part writes it")]
    NotWritten(String),
    /// Two launches with one name.
    #[error("two launches are named `{0}`: give the parts different prefixes")]
    LaunchName(String),
    /// A launch names a slot that its program does not have.
    #[error("part {part}: launch `{launch}` names slot {slot}, its program has {slots}")]
    NoSlot {
        /// Position of the part.
        part: usize,
        /// The launch.
        launch: String,
        /// The slot's number.
        slot: usize,
        /// The number of slots.
        slots: usize,
    },
}

/// Concatenates the launches of the parts, in order.
///
/// The stitched slots are in the order in which the argument maps first name them. Their element
/// type and shape must agree; a one-dimensional slot agrees with any shape of as many elements
/// (the residual add works on flattened matrices), and the shape with more dimensions is kept.
/// Each slot's role follows from its roles in the parts, in their order:
///
/// | in the parts | stitched |
/// |---|---|
/// | only read, `static` everywhere | `static` |
/// | only read, `input` anywhere | `input` (written before each call, which is right for both) |
/// | written, and read by a later part | `intermediate` |
/// | written as `intermediate` only | `intermediate` |
/// | written as `output`, not read after | `output` |
/// | written, and named in `outputs` | `output` |
/// | read first, written later | refused: the host's content would be lost |
///
/// # Errors
/// [`StitchError`]: every conflict, by name.
pub fn stitch(
    name: &str,
    parts: &[StitchPart<'_>],
    outputs: &[&str],
) -> Result<Program, StitchError> {
    let mut stitched = StitchBuilder::default();
    for (number, part) in parts.iter().enumerate() {
        stitched.add(number, part)?;
    }
    let StitchBuilder { launches, uses, .. } = stitched;
    let mut slots = Vec::with_capacity(uses.len());
    for slot in uses {
        let role = slot.role(outputs.contains(&slot.name.as_str()))?;
        slots.push(Slot {
            name: slot.name,
            element: slot.slot.element,
            shape: slot.slot.shape,
            role,
        });
    }
    if let Some(missing) = outputs
        .iter()
        .find(|o| !slots.iter().any(|s| s.name == **o))
    {
        return Err(StitchError::NotWritten((*missing).to_owned()));
    }
    Ok(Program {
        name: name.to_owned(),
        slots,
        launches,
    })
}

#[derive(Default)]
struct StitchBuilder {
    launches: Vec<Launch>,
    launch_names: HashSet<String>,
    uses: Vec<SlotUses>,
    by_name: HashMap<String, usize>,
}

/// A stitched slot and how the parts use it, in their order.
struct SlotUses {
    name: String,
    slot: Slot,
    first_part: usize,
    uses: Vec<(usize, Role)>,
}

impl StitchBuilder {
    fn add(&mut self, number: usize, part: &StitchPart<'_>) -> Result<(), StitchError> {
        let program = part.program;
        if program.slots.len() != part.arg_map.len() {
            return Err(StitchError::ArgMap {
                part: number,
                program: program.name.clone(),
                slots: program.slots.len(),
                names: part.arg_map.len(),
            });
        }
        refuse_aliases(number, part)?;
        let mut wires = Vec::with_capacity(program.slots.len());
        for (slot, &name) in program.slots.iter().zip(part.arg_map) {
            wires.push(self.wire(number, slot, name)?);
        }
        for launch in &program.launches {
            let mut launch = launch.clone();
            for arg in &mut launch.args {
                *arg = *wires.get(*arg).ok_or_else(|| StitchError::NoSlot {
                    part: number,
                    launch: launch.name.clone(),
                    slot: *arg,
                    slots: wires.len(),
                })?;
            }
            if !part.prefix.is_empty() {
                launch.name = format!("{}_{}", part.prefix, launch.name);
            }
            if !self.launch_names.insert(launch.name.clone()) {
                return Err(StitchError::LaunchName(launch.name));
            }
            self.launches.push(launch);
        }
        Ok(())
    }

    /// The stitched slot of that name, made or checked.
    fn wire(&mut self, part: usize, slot: &Slot, name: &str) -> Result<usize, StitchError> {
        let Some(&at) = self.by_name.get(name) else {
            self.by_name.insert(name.to_owned(), self.uses.len());
            self.uses.push(SlotUses {
                name: name.to_owned(),
                slot: slot.clone(),
                first_part: part,
                uses: vec![(part, slot.role)],
            });
            return Ok(self.uses.len() - 1);
        };
        let known = &mut self.uses[at];
        let flat = known.slot.shape.len() <= 1 || slot.shape.len() <= 1;
        let same_shape = known.slot.shape == slot.shape
            || (flat
                && known.slot.n_elements().is_some()
                && known.slot.n_elements() == slot.n_elements());
        if known.slot.element != slot.element || !same_shape {
            let describe = |slot: &Slot| format!("{}{:?}", slot.element, slot.shape);
            return Err(StitchError::Conflict {
                slot: name.to_owned(),
                first_part: known.first_part,
                first: describe(&known.slot),
                part,
                other: describe(slot),
            });
        }
        if slot.shape.len() > known.slot.shape.len() {
            known.slot.shape.clone_from(&slot.shape);
        }
        known.uses.push((part, slot.role));
        Ok(at)
    }
}

fn writes(role: Role) -> bool {
    matches!(role, Role::Output | Role::Intermediate)
}

fn refuse_aliases(number: usize, part: &StitchPart<'_>) -> Result<(), StitchError> {
    let program = part.program;
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (at, &name) in part.arg_map.iter().enumerate() {
        let Some(&before) = seen.get(name) else {
            seen.insert(name, at);
            continue;
        };
        let (a, b) = (&program.slots[before], &program.slots[at]);
        if writes(a.role) || writes(b.role) {
            return Err(StitchError::Alias {
                part: number,
                program: program.name.clone(),
                a: a.name.clone(),
                b: b.name.clone(),
                slot: name.to_owned(),
            });
        }
    }
    Ok(())
}

impl SlotUses {
    fn role(&self, asked: bool) -> Result<Role, StitchError> {
        let writer = self.uses.iter().find(|(_, role)| writes(*role));
        let (Some(&(first, role)), Some(&(writer, _))) = (self.uses.first(), writer) else {
            if asked {
                return Err(StitchError::NotWritten(self.name.clone()));
            }
            let input = self.uses.iter().any(|(_, role)| *role == Role::Input);
            return Ok(if input { Role::Input } else { Role::Static });
        };
        if !writes(role) {
            return Err(StitchError::Overwritten {
                slot: self.name.clone(),
                role: role.name(),
                reader: first,
                writer,
            });
        }
        if asked {
            return Ok(Role::Output);
        }
        // Only the last result counts: a buffer may be reused for several.
        let last = self.uses.last().map_or(role, |(_, role)| *role);
        Ok(match last {
            Role::Output => Role::Output,
            _ => Role::Intermediate,
        })
    }
}

impl Launch {
    /// Whether the launch reads or writes each of its arguments, as (reads, writes) by argument.
    pub fn arg_uses(&self) -> Vec<(bool, bool)> {
        let mut uses = vec![(false, false); self.args.len()];
        for transfer in &self.transfers {
            let channel = self.channels.get(transfer.channel);
            if let (Some(channel), Some(used)) = (channel, uses.get_mut(transfer.arg)) {
                match channel.from {
                    Place::Shim(_) => used.0 = true,
                    _ => used.1 = true,
                }
            }
        }
        uses
    }
}

#[cfg(test)]
mod tests;
