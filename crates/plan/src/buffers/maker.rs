//! Makes buffers when calls first need them.

use super::{BufferKind, Content, Life, PlannedBuffer, SlotUse, size_bytes};
use crate::Binding;
use millrace_npu::Slot;
use std::collections::HashMap;

/// Gives out buffers.
pub(super) struct Maker {
    alias: bool,
    pub(super) buffers: Vec<PlannedBuffer>,
    /// Index of each static buffer, by name.
    statics: HashMap<String, usize>,
    /// Registers that hold nothing, by size.
    free: HashMap<u64, Vec<usize>>,
    /// Number of registers made, by size.
    n_registers: HashMap<u64, usize>,
    /// Buffer of each life while it lasts.
    of_life: Vec<Option<usize>>,
}

impl Maker {
    /// A maker for so many lives.
    pub(super) fn new(alias: bool, n_lives: usize) -> Maker {
        Maker {
            alias,
            buffers: Vec::new(),
            statics: HashMap::new(),
            free: HashMap::new(),
            n_registers: HashMap::new(),
            of_life: vec![None; n_lives],
        }
    }

    /// Frees registers whose content is not needed from call `index` on.
    pub(super) fn release(&mut self, lives: &[Life<'_>], index: usize) {
        for (life, buffer) in lives.iter().zip(&mut self.of_life) {
            if life.last < index
                && let Some(buffer) = buffer.take()
                && is_named(self.alias, life)
            {
                self.free.entry(life.size_bytes).or_default().push(buffer);
            }
        }
        // The least number first, so that equal calls take equal registers.
        for free in self.free.values_mut() {
            free.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    pub(super) fn register(&mut self, lives: &[Life<'_>], life: usize) -> usize {
        if let Some(buffer) = self.of_life[life] {
            return buffer;
        }
        let Life {
            content,
            size_bytes,
            ..
        } = lives[life];
        let named = is_named(self.alias, &lives[life]);
        let free = self.free.get_mut(&size_bytes).filter(|_| named);
        let free = free.and_then(Vec::pop);
        let buffer = free.unwrap_or_else(|| self.make_register(size_bytes, named));
        if content != Content::Scratch {
            self.buffers[buffer].kind = BufferKind::Values;
        }
        self.of_life[life] = Some(buffer);
        buffer
    }

    fn make_register(&mut self, size_bytes: u64, named: bool) -> usize {
        let number = self.n_registers.entry(size_bytes).or_default();
        let name = named.then(|| format!("register {number} of {size_bytes} bytes"));
        *number += 1;
        self.buffers.push(PlannedBuffer {
            size_bytes,
            kind: BufferKind::Scratch,
            name,
        });
        self.buffers.len() - 1
    }

    /// The buffer of a slot with static content; `taken` are the call's other slots.
    pub(super) fn fixed(&mut self, slot: &Slot, kind: BufferKind, taken: &[SlotUse]) -> usize {
        let content = match &kind {
            BufferKind::Static(Binding::Weight { weight, layout }) => {
                format!("weight {} {layout:?}", weight.0)
            }
            BufferKind::Static(Binding::RopeTable { rope, rows }) => {
                format!("rope {} {rows:?}", rope.0)
            }
            BufferKind::Static(other) => format!("{other:?}"),
            BufferKind::Expert(Binding::Weight { weight, layout }, _) => {
                format!("experts {} {layout:?}", weight.0)
            }
            other => format!("{other:?}"),
        };
        let mut name = content.clone();
        let mut number = 1_usize;
        loop {
            match self.statics.get(&name) {
                Some(&buffer) if taken.iter().all(|t| t.buffer != buffer) => return buffer,
                Some(_) => {
                    number += 1;
                    name = format!("{content} #{number}");
                }
                None => break,
            }
        }
        self.statics.insert(name.clone(), self.buffers.len());
        self.buffers.push(PlannedBuffer {
            size_bytes: size_bytes(slot),
            kind,
            name: Some(name),
        });
        self.buffers.len() - 1
    }
}

/// Whether other sets know the buffer of a life by name. The sets of a layer's experts do.
fn is_named(alias: bool, life: &Life<'_>) -> bool {
    alias || life.content == Content::Chosen
}
