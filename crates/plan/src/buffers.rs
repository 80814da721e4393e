//! Assigns a buffer to each slot of a plan, and a transfer by the host to each call.
//!
//! Without [`Plan::alias`] every call has separate buffers; inputs are written before it and outputs read after it (the
//! buffer objects of MLIR-AIR's Llama-3.2-1B example). With it a value stays in one buffer from the program that writes
//! it to the last that reads it. The host writes its own results, once, and reads the operands of its steps. Values and
//! scratch whose lives do not overlap share memory. Buffers of a size are registers, given out call by call and free
//! again after the last call that needs them. Lives are intervals of the sequence of calls, so first come, first served
//! needs the fewest registers of each size. Two slots of a call are never one buffer.
//!
//! Static buffers are one for each content in either case; caches count among them, also where a program appends to
//! them.

mod maker;

use crate::{Binding, HeadRows, HostStep, Phase, Plan, PlannedProgram, Step};
use maker::Maker;
use millrace_graph::{Graph, ValueId};
use millrace_npu::{Role, Slot, Traffic};
use std::collections::HashMap;
use std::ops::Range;

/// The buffers of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffers {
    /// All buffers, each once.
    pub buffers: Vec<PlannedBuffer>,
    /// Use of each slot: by call, in order, and by slot.
    pub calls: Vec<Vec<SlotUse>>,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedBuffer {
    /// Its size.
    pub size_bytes: u64,
    /// Kind of its content.
    pub kind: BufferKind,
    /// Name by which slots of other calls, and of other plans of the same graph, find it: the content of a static
    /// buffer, the number of a register. `None` for a buffer that one call has alone.
    pub name: Option<String>,
}

/// Kind of content of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum BufferKind {
    /// A weight or a table, filled before the first call.
    Static(Binding),
    /// A matrix of an expert: one buffer for each of so many experts, filled when the expert is first chosen.
    Expert(Binding, usize),
    /// Values that pass between programs or to and from the host; scratch at other times.
    Values,
    /// Data that programs overwrite and nobody else reads.
    Scratch,
}

/// A slot of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotUse {
    /// Index in [`Buffers::buffers`].
    pub buffer: usize,
    /// Transfer by the host at this call.
    pub host: HostMove,
}

/// Transfer of a slot by the host at a call. A `static` slot was filled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMove {
    /// No transfer: the program overwrites the slot, or its content is already there.
    None,
    /// Writes it, whole, before the call.
    Write,
    /// Reads rows of it after the call.
    Read(HostRows),
}

/// Rows of a value that the host reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostRows {
    /// The last row that is no padding.
    Last,
    /// The rows that are no padding.
    Real,
    /// All rows.
    All,
}

impl HostRows {
    /// Bytes of these rows in a buffer of `n_rows`, of which the first `n_real` are no padding.
    pub fn bytes(self, size_bytes: u64, n_rows: u64, n_real: u64) -> Range<u64> {
        let row_bytes = size_bytes / n_rows.max(1);
        let n_real = n_real.min(n_rows);
        match self {
            HostRows::Last => row_bytes * n_real.saturating_sub(1)..row_bytes * n_real,
            HostRows::Real => 0..row_bytes * n_real,
            HostRows::All => 0..size_bytes,
        }
    }
}

/// Content of a buffer of values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content<'p> {
    Scratch,
    /// Rows that chose an expert, or their results, for one dispatch only.
    Chosen,
    /// A value or a part of one, or a table of the pass's positions.
    Bound(&'p Binding),
}

/// Content on the device, from the call that brings it on.
struct Life<'p> {
    content: Content<'p>,
    size_bytes: u64,
    /// The last call that needs it.
    last: usize,
}

impl Buffers {
    /// The buffers of a plan of the graph.
    pub fn of(plan: &Plan, graph: &Graph) -> Buffers {
        let alias = plan.alias;
        let lives = Lives::of(plan, alias);
        let wanted = WantedRows::of(plan, graph, &lives);
        let mut made = Maker::new(alias, lives.lives.len());
        let mut calls = Vec::new();
        for (index, call) in plan.calls().enumerate() {
            made.release(&lives.lives, index);
            let mut uses: Vec<SlotUse> = Vec::with_capacity(call.bindings.len());
            for (slot, (declared, binding)) in slots(plan, call.program, &call.bindings).enumerate()
            {
                let (life, written) = lives.calls[index][slot];
                let buffer = match (life, call.experts) {
                    (Some(life), _) => made.register(&lives.lives, life),
                    (None, Some(experts)) => {
                        let n_experts = experts.n_experts(graph);
                        let kind = BufferKind::Expert(binding.clone(), n_experts);
                        made.fixed(declared, kind, &uses)
                    }
                    (None, None) => {
                        made.fixed(declared, BufferKind::Static(binding.clone()), &uses)
                    }
                };
                let host = match declared.role {
                    Role::Output if call.experts.is_some() => HostMove::Read(HostRows::All),
                    Role::Input if written => HostMove::Write,
                    Role::Output => wanted.by(plan, binding, declared, alias),
                    _ => HostMove::None,
                };
                uses.push(SlotUse { buffer, host });
            }
            calls.push(uses);
        }
        Buffers {
            buffers: made.buffers,
            calls,
        }
    }

    /// Bytes of static buffers, without those of experts.
    pub fn static_bytes(&self) -> u64 {
        self.bytes_of(|kind| matches!(kind, BufferKind::Static(_)))
    }

    /// Bytes of all experts' matrices, with a buffer for each.
    pub fn expert_bytes(&self) -> u64 {
        let of = |b: &PlannedBuffer| match b.kind {
            BufferKind::Expert(_, n_experts) => b.size_bytes * n_experts as u64,
            _ => 0,
        };
        self.buffers.iter().map(of).sum()
    }

    /// Bytes of all other buffers.
    pub fn other_bytes(&self) -> u64 {
        self.bytes_of(|kind| matches!(kind, BufferKind::Values | BufferKind::Scratch))
    }

    fn bytes_of(&self, is: impl Fn(&BufferKind) -> bool) -> u64 {
        let buffers = self.buffers.iter().filter(|b| is(&b.kind));
        buffers.map(|b| b.size_bytes).sum()
    }

    /// Bytes that cross at a call, by its number, where `n_real` of the plan's tokens are no padding.
    pub fn traffic(&self, plan: &Plan, call: usize, n_real: u64) -> Traffic {
        let mut traffic = Traffic::default();
        let (Some(uses), Some(planned)) = (self.calls.get(call), plan.calls().nth(call)) else {
            return traffic;
        };
        for (used, binding) in uses.iter().zip(&planned.bindings) {
            let size_bytes = self.buffers[used.buffer].size_bytes;
            match used.host {
                HostMove::None => {}
                HostMove::Write => {
                    traffic.written_bytes += size_bytes;
                    traffic.to_device_bytes += size_bytes;
                }
                HostMove::Read(rows) => {
                    let bytes = rows.bytes(size_bytes, plan.rows_bound(binding), n_real);
                    traffic.from_device_bytes += bytes.end - bytes.start;
                    traffic.read_bytes += bytes.end - bytes.start;
                }
            }
        }
        traffic
    }
}

/// A call's slots and their content.
fn slots<'p>(
    plan: &'p Plan,
    program: usize,
    bindings: &'p [Binding],
) -> impl Iterator<Item = (&'p Slot, &'p Binding)> {
    let slots = plan.programs.get(program).map(PlannedProgram::slots);
    slots.unwrap_or_default().iter().zip(bindings)
}

/// Whether a slot's buffer depends on its content alone, in any call: weights, tables and caches, even those that a
/// program writes.
fn is_fixed(slot: &Slot, binding: &Binding) -> bool {
    let is_cache = matches!(binding, Binding::Cache { .. });
    slot.role == Role::Static || slot.role == Role::Intermediate && is_cache
}

fn size_bytes(slot: &Slot) -> u64 {
    slot.size_bytes().unwrap_or(u64::MAX)
}

/// Every content with its life.
struct Lives<'p> {
    lives: Vec<Life<'p>>,
    /// By call and slot: the life of content that is not static, and whether the host writes it.
    calls: Vec<Vec<(Option<usize>, bool)>>,
}

impl<'p> Lives<'p> {
    fn of(plan: &'p Plan, alias: bool) -> Lives<'p> {
        let mut lives: Vec<Life<'p>> = Vec::new();
        let mut calls = Vec::new();
        for (index, call) in plan.calls().enumerate() {
            let mut of_call: Vec<(Option<usize>, bool)> = Vec::with_capacity(call.bindings.len());
            for (slot, binding) in slots(plan, call.program, &call.bindings) {
                let size_bytes = size_bytes(slot);
                let content = match slot.role {
                    Role::Intermediate => Content::Scratch,
                    _ if call.experts.is_some() => Content::Chosen,
                    _ => Content::Bound(binding),
                };
                // A device refuses one buffer in two slots of a call, even if their content is equal.
                let there = |number: &usize| {
                    let life = &lives[*number];
                    let is_same = life.content == content && life.size_bytes == size_bytes;
                    is_same && !of_call.iter().any(|(other, _)| *other == Some(*number))
                };
                let known = match slot.role {
                    Role::Input if alias && call.experts.is_none() => (0..lives.len()).find(there),
                    _ => None,
                };
                of_call.push(match (known, slot.role) {
                    _ if is_fixed(slot, binding) => (None, false),
                    (Some(known), _) => {
                        lives[known].last = index;
                        (Some(known), false)
                    }
                    (None, role) => {
                        lives.push(Life {
                            content,
                            size_bytes,
                            last: index,
                        });
                        (Some(lives.len() - 1), role == Role::Input)
                    }
                });
            }
            calls.push(of_call);
        }
        Lives { lives, calls }
    }
}

/// Rows of values that the host needs, where programs compute them.
struct WantedRows(HashMap<ValueId, HostRows>);

impl WantedRows {
    fn of(plan: &Plan, graph: &Graph, lives: &Lives<'_>) -> WantedRows {
        let mut wanted = WantedRows(HashMap::new());
        for step in &plan.steps {
            if let Step::Host(host) = step {
                for value in host.reads(graph) {
                    wanted.add(value, rows_read(plan.phase, *host));
                }
            }
        }
        if let Some(logits) = graph.logits {
            wanted.add(
                logits,
                match plan.head {
                    // One token's, however many rows the head computed.
                    HeadRows::Last => HostRows::Last,
                    HeadRows::All => HostRows::Real,
                },
            );
        }
        for experts in plan.calls().filter_map(|call| call.experts) {
            let choice = experts.choice(graph);
            choice
                .into_iter()
                .for_each(|value| wanted.add(value, HostRows::All));
        }
        // Values that a later call takes from the host.
        for (call, of_call) in plan.calls().zip(&lives.calls) {
            for (binding, (_, written)) in call.bindings.iter().zip(of_call) {
                if let (Some(value), true) = (binding.value(), *written) {
                    wanted.add(value, HostRows::All);
                }
            }
        }
        wanted
    }

    fn add(&mut self, value: ValueId, rows: HostRows) {
        let wanted = self.0.entry(value).or_insert(rows);
        *wanted = rows.max(*wanted);
    }

    fn by(&self, plan: &Plan, binding: &Binding, slot: &Slot, alias: bool) -> HostMove {
        // Scores, and a head's share of a value, always go to the host.
        if let Binding::AttentionProduct { .. } = binding {
            return HostMove::Read(HostRows::All);
        }
        // The host keeps states from token to token.
        if let Binding::StateBehind { .. } = binding {
            return HostMove::Read(HostRows::All);
        }
        let Some(value) = binding.value() else {
            return HostMove::None;
        };
        let n_rows = plan.rows_bound(binding);
        let is_part = matches!(binding, Binding::Part { .. });
        match self.0.get(&value) {
            // A packed value is whole or nothing.
            rows if matches!(binding, Binding::Packed { .. }) => match (rows, alias) {
                (None, true) => HostMove::None,
                _ => HostMove::Read(HostRows::All),
            },
            // Parts belong to the head: of many rows of logits the published host, too, reads one.
            _ if !(alias || is_part && n_rows > 1) => HostMove::Read(HostRows::All),
            None => HostMove::None,
            Some(rows) if n_rows > 1 && size_bytes(slot).is_multiple_of(n_rows) => {
                HostMove::Read(*rows)
            }
            Some(_) => HostMove::Read(HostRows::All),
        }
    }
}

/// Rows of its operands that a host step reads.
fn rows_read(phase: Phase, step: HostStep) -> HostRows {
    match step {
        _ if phase == Phase::Decode => HostRows::All,
        HostStep::FinalNorm { .. } => HostRows::Last,
        HostStep::AppendKv { .. } | HostStep::Attention { .. } => HostRows::Real,
        HostStep::Softmax { .. }
        | HostStep::DeltaRows { .. }
        | HostStep::Embed { .. }
        | HostStep::Linear { .. }
        | HostStep::Op { .. } => HostRows::All,
    }
}
