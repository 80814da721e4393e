//! Dependencies of commands: writes before reads, reads before writes, by address.

use crate::program::{Command, Place, Program};
use crate::verify::{accesses, range};
use millrace_npu::Role;
use std::sync::Arc;

/// Bytes or a buffer that a command reads or writes.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    pub memory: Memory,
    pub first: u64,
    pub end: u64,
    pub is_write: bool,
    /// Tensor and part, where known: two parts of one tensor may not meet.
    pub part: Option<(usize, Arc<HazardExtent>)>,
    /// Whether the part is the whole tensor.
    pub is_whole: bool,
}

/// Start and extent along each axis.
type HazardExtent = [(usize, u64, u64)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Chip(u8),
    Slot(usize),
}

/// Bytes that a command touches. Reads of data that nobody writes are left out.
pub(super) fn touches(
    program: &Program,
    command: &Command,
    slot_of: &[Option<usize>],
) -> Vec<Touch> {
    let mut all = Vec::new();
    for access in accesses(program, command) {
        let tensor = &program.tensors[access.tensor];
        let shape = tensor.shape(&program.axes).unwrap_or_default();
        let is_whole = access.part.as_ref().is_some_and(|part| {
            let moved: u64 = part.iter().map(|(_, _, extent)| extent).product();
            moved == shape.iter().map(|(_, extent)| extent).product::<u64>()
        });
        let (memory, first, end) = match (range(program, access.tensor), slot_of[access.tensor]) {
            (Some((kind, first, end)), _) => (Memory::Chip(kind), first, end),
            (None, Some(slot)) => {
                let constant = matches!(
                    tensor.place,
                    Place::Hbm {
                        role: Role::Static | Role::Input,
                        ..
                    }
                );
                if constant {
                    continue;
                }
                (Memory::Slot(slot), 0, 1)
            }
            (None, None) => continue,
        };
        all.push(Touch {
            memory,
            first,
            end,
            is_write: access.is_write,
            part: access.part.map(|part| (access.tensor, part.into())),
            is_whole,
        });
    }
    all
}

/// Touches that later commands may have to wait for.
#[derive(Default)]
pub(super) struct Open {
    entries: Vec<(usize, usize, Touch)>,
}

impl Open {
    /// Enters a command's touches and gives the commands it has to wait for. `program` distinguishes parts of different
    /// programs.
    pub(super) fn enter(
        &mut self,
        command: usize,
        program: usize,
        touches: impl Iterator<Item = Touch>,
    ) -> Vec<usize> {
        let mut wait: Vec<usize> = Vec::new();
        let touches: Vec<Touch> = touches.collect();
        for touch in &touches {
            for (other, of, entry) in &self.entries {
                let meets = entry.memory == touch.memory
                    && entry.first < touch.end
                    && touch.first < entry.end
                    && (entry.is_write || touch.is_write)
                    && !(*of == program && apart(entry, touch));
                if meets {
                    wait.push(*other);
                }
            }
        }
        for touch in touches {
            if touch.is_write && touch.is_whole {
                // A later command that touches these bytes waits for this one, which waited for those.
                self.entries.retain(|(_, _, entry)| {
                    entry.memory != touch.memory
                        || entry.first < touch.first
                        || entry.end > touch.end
                });
            }
            self.entries.push((command, program, touch));
        }
        wait.sort_unstable();
        wait.dedup();
        wait.retain(|&other| other != command);
        wait
    }
}

/// Whether two touches are of disjoint parts of one tensor.
fn apart(a: &Touch, b: &Touch) -> bool {
    let (Some((t, a)), Some((u, b))) = (&a.part, &b.part) else {
        return false;
    };
    let separate = |&(axis, start, extent): &(usize, u64, u64)| {
        let other = b.iter().find(|(a, _, _)| *a == axis);
        other.is_some_and(|&(_, s, e)| s >= start + extent || start >= s + e)
    };
    t == u && a.iter().any(separate)
}
