//! One pass of a plan: its calls and the host's steps between them.

mod inputs;

use super::NpuError;
use super::cached::SequencePages;
use super::counters::{PhaseCounters, ns};
use super::experts::ExpertDispatch;
use super::given::GivenExperts;
use super::host::{HostContext, HostValues};
use super::model::NpuModel;
use super::observe::{Observation, Observer};
use super::prepared::PreparedPlan;
use super::weights;
use crate::execute::Past;
use crate::image::ImageRows;
use crate::kv::KvCache;
use crate::sequences::SeqId;
use bytemuck::cast_slice;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{Node, ValueId};
use millrace_kernels::AttentionScratch;
use millrace_npu::{CacheError, CallResult, Container, Move, Role, Slot};
use millrace_plan::{Binding, Call, HostMove, HostRows, HostStep, Scales, SlotUse, Step};
use std::ops::Range;
use std::time::Instant;

/// An input's bytes, if they differ from a value on the host, and the scales kept for them.
type InputBytes = Option<(Vec<u8>, Scales)>;

/// Rows that a call fills, by value.
type Outputs = Vec<(ValueId, Vec<bf16>)>;

/// A pass about to run.
pub(super) struct Pass<'a> {
    pub(super) npu: &'a NpuModel,
    pub(super) prepared: &'a PreparedPlan,
    /// As many as the plan's length, padding included.
    pub(super) tokens: &'a [u32],
    /// The images that some of them are rows of, in order.
    pub(super) images: &'a [ImageRows],
    /// Number of tokens without padding.
    pub(super) n_real: usize,
    /// Position of the first.
    pub(super) first: usize,
    pub(super) seq: SeqId,
    /// By buffer, the scales that the planner keeps for the host's writes in this pass.
    pub(super) scales: Vec<Scales>,
    pub(super) values: &'a mut HostValues,
    /// Scores of the present key-value head, then their probabilities.
    pub(super) scores: Vec<f32>,
    /// A token's rows for the heads of the last gated delta net, and the net's node.
    pub(super) delta_rows: Option<(usize, Vec<f32>)>,
    /// With room for the pass's tokens.
    pub(super) cache: &'a mut KvCache,
    pub(super) scratch: &'a mut AttentionScratch,
    pub(super) counters: &'a mut PhaseCounters,
    pub(super) observer: Option<&'a mut Observer>,
    /// Experts that tokens use instead of their own choice.
    pub(super) given: Option<&'a GivenExperts>,
}

impl Pass<'_> {
    /// Runs every step. After an error the cache may hold more than it did, beyond the positions
    /// that were complete.
    pub(super) fn run(&mut self) -> Result<(), NpuError> {
        let prepared = self.prepared;
        let _hot = self.npu.cpu.pool().enter();
        let reads = prepared.reads_cache();
        self.npu.device_cache.enter(self.seq, self.first, reads);
        let (mut next, mut call_index) = (0, 0);
        while let Some(step) = prepared.plan.steps.get(next) {
            let first = next;
            next += 1;
            match step {
                Step::Call(call) => {
                    let appended = prepared.plan.appends(call);
                    let behind = prepared.plan.appended_behind(first);
                    self.bring(&behind)?;
                    self.bring(&appended)?;
                    match call.experts {
                        Some(experts) => self.expert_call(call, call_index, experts)?,
                        None => self.call(call, call_index)?,
                    }
                    self.brought(&appended);
                    // The pages must have the pass's rows before an observer looks.
                    while let Some(step) = own_append(prepared.plan.steps.get(next), &behind) {
                        self.timed(step)?;
                        next += 1;
                    }
                    // Each dispatch of experts was looked at when it ended.
                    if call.experts.is_none() {
                        self.observe(call, call_index);
                    }
                    call_index += 1;
                }
                Step::Host(step) => self.timed(*step)?,
            }
            for value in (first..next).flat_map(|step| prepared.spent(step)) {
                self.values.drop(*value);
            }
        }
        self.counters.n_passes += 1;
        self.counters.n_tokens += self.n_real as u64;
        self.counters.n_padded_tokens += self.tokens.len() as u64;
        Ok(())
    }

    pub(super) fn n_rows(&self, value: ValueId) -> usize {
        self.prepared.plan.n_rows(value) as usize
    }

    /// Bytes of a slot that the host reads, and how many rows that is.
    fn rows_read(&self, binding: &Binding, size_bytes: u64, rows: HostRows) -> (Range<u64>, usize) {
        let n_rows = self.prepared.plan.rows_bound(binding) as usize;
        let bytes = rows.bytes(size_bytes, n_rows as u64, self.n_real as u64);
        let n_rows = match rows {
            HostRows::Last => 1,
            HostRows::Real => self.n_real.min(n_rows),
            HostRows::All => n_rows,
        };
        (bytes, n_rows)
    }

    fn call(&mut self, call: &Call, index: usize) -> Result<(), NpuError> {
        let start = Instant::now();
        let container = self.prepared.container(call);
        let uses = self.prepared.uses(index);
        let made = self.made_inputs(call, uses)?;
        for (made, used) in made.iter().zip(uses) {
            if let Some((_, scales)) = made {
                self.scales[used.buffer] = scales.clone();
            }
        }
        let scales = self.scales(container, index);
        let (reads, mut outputs) = self.take_outputs(call, index);
        let mut scores = std::mem::take(&mut self.scores);
        let slots = container.slots().iter().zip(uses).zip(reads);
        let moves: Vec<Move<'_>> = slots
            .zip(call.bindings.iter().zip(&made))
            .map(|((slot, read), input)| self.slot_move(slot, read, input))
            .collect();
        let mut misfit = None;
        let key = self.prepared.key(index);
        let before = ns(start.elapsed());
        let called = Instant::now();
        let cache = &self.npu.cache;
        let mut states = Vec::new();
        let result = cache.run_moving(container, key, &moves, |slot, bytes| {
            let read = match call.bindings[slot] {
                Binding::AttentionProduct { .. } => {
                    let from = (bytes, &scales[..]);
                    self.attention_output(call, slot, from, &mut outputs, &mut scores)
                }
                Binding::StateBehind { index } => {
                    states.push((slot, index, bytes.to_vec()));
                    Ok(())
                }
                _ => self.read_output(call, slot, bytes, &scales, &mut outputs),
            };
            if let Err(problem) = read {
                misfit = Some((slot, problem));
            }
        });
        self.scores = scores;
        self.counters.host_ns += before;
        self.counters.call_ns += ns(called.elapsed());
        for (value, rows) in outputs {
            self.values.put(value, rows);
        }
        for (slot, index, bytes) in states.iter().filter(|_| result.is_ok()) {
            if let Err(problem) = self.keep_state(*index, bytes) {
                misfit = Some((*slot, problem));
            }
        }
        self.end_dispatch((call, index), key, result, misfit)
    }

    /// Counts a dispatch, or reports the failure: of the device, or of a slot's output.
    pub(super) fn end_dispatch(
        &mut self,
        (call, index): (&Call, usize),
        key: &str,
        result: Result<CallResult, CacheError>,
        misfit: Option<(usize, String)>,
    ) -> Result<(), NpuError> {
        self.counters.n_dispatches += 1;
        let done = result.map_err(|error| NpuError::Call {
            call: index + 1,
            n_calls: self.prepared.plan.calls().count(),
            set: key.to_owned(),
            error,
        })?;
        self.counters.traffic += done.traffic;
        self.counters.device_ns += done.completion.duration_ns;
        match misfit {
            Some((slot, problem)) => {
                let slot = format!("output slot {slot} of {}", call.set);
                Err(NpuError::plan(slot, problem))
            }
            None => Ok(()),
        }
    }

    /// The bytes that the host reads from each slot, and the values they go to. The values are moved out of their place,
    /// so that inputs can be borrowed at the same time.
    fn take_outputs(&mut self, call: &Call, index: usize) -> (Vec<Range<u64>>, Outputs) {
        let container = self.prepared.container(call);
        let uses = self.prepared.uses(index);
        let mut outputs = Outputs::new();
        let mut reads = vec![0..0; uses.len()];
        for (slot, (binding, used)) in call.bindings.iter().zip(uses).enumerate() {
            let HostMove::Read(rows) = used.host else {
                continue;
            };
            let size_bytes = container.slots()[slot].size_bytes().unwrap_or(0);
            let (bytes, n_rows) = self.rows_read(binding, size_bytes, rows);
            reads[slot] = bytes;
            let Some(value) = binding.value() else {
                continue;
            };
            if !outputs.iter().any(|(other, _)| *other == value) {
                let rows = match binding {
                    // It holds the parts of other heads.
                    Binding::AttentionProduct { .. } => self.values.keep(value, n_rows),
                    _ => self.values.take(value, n_rows),
                };
                outputs.push((value, rows));
            }
        }
        (reads, outputs)
    }

    /// The transfer between host and device for one slot.
    fn slot_move<'m>(
        &'m self,
        (slot, used): (&Slot, &SlotUse),
        read: Range<u64>,
        (binding, made): (&Binding, &'m InputBytes),
    ) -> Move<'m> {
        match (used.host, binding, made) {
            (HostMove::Write, _, Some((made, _))) => Move::Write(made),
            (HostMove::Write, Binding::Value(value), _) => {
                Move::Write(cast_slice(self.values.get(*value)))
            }
            (HostMove::Read(_), ..) => Move::Read(read),
            _ if slot.role == Role::Input => Move::Keep,
            _ => Move::None,
        }
    }

    /// The scales that the planner keeps for the slots of call number `index`.
    fn scales(&self, container: &Container, index: usize) -> Vec<Scales> {
        let uses = self.prepared.uses(index).iter();
        let slots = uses.zip(container.slots()).enumerate();
        let of = |(slot, (used, declared)): (usize, (&SlotUse, &Slot))| match declared.role {
            Role::Static => self.npu.scales(self.prepared.buffer_name(index, slot)),
            _ => self.scales[used.buffer].clone(),
        };
        slots.map(of).collect()
    }

    fn observe(&mut self, call: &Call, index: usize) {
        let scales = match self.observer {
            Some(_) => self.scales(self.prepared.container(call), index),
            None => Vec::new(),
        };
        let key = self.prepared.key(index);
        self.show((call, index), (key, &scales), None);
    }

    /// Shows a dispatch to the observer; `key` is its buffer set's.
    pub(super) fn show(
        &mut self,
        (call, index): (&Call, usize),
        (key, scales): (&str, &[Scales]),
        expert: Option<ExpertDispatch<'_>>,
    ) {
        let cached = SequencePages::of(self.cache, self.seq);
        if let Some(observer) = &mut self.observer {
            observer(&Observation {
                plan: &self.prepared.plan,
                call,
                key,
                cache: &self.npu.cache,
                scales,
                expert,
                first: self.first,
                n_real: self.n_real,
                tokens: self.tokens,
                uses: self.prepared.uses(index),
                values: &*self.values,
                cached,
            });
        }
    }

    /// An output slot's bytes into the rows of its value.
    fn read_output(
        &self,
        call: &Call,
        number: usize,
        bytes: &[u8],
        scales: &[Scales],
        outputs: &mut [(ValueId, Vec<bf16>)],
    ) -> Result<(), String> {
        let slot = &self.prepared.container(call).slots()[number];
        let binding = &call.bindings[number];
        let Some(value) = binding.value() else {
            return Ok(());
        };
        let Some((_, rows)) = outputs.iter_mut().find(|(other, _)| *other == value) else {
            return Err("nobody wants its value".to_owned());
        };
        match binding {
            Binding::Packed { id, bias, .. } => {
                let width = self.values.width(value);
                let mut read = vec![0.0; rows.len()];
                let (arrangement, cpu) = (self.npu.arrangement(), &self.npu.cpu);
                let at = self.prepared.own_slot(call, number, *id);
                arrangement.unpack(cpu, &at, bytes, scales, width, &mut read)?;
                if let Some(bias) = bias {
                    let stored = self.npu.vectors.get(bias.weight.0);
                    let stored = stored.filter(|stored| stored.len() == width);
                    bias.add(stored.ok_or("a bias of another width")?, &mut read);
                }
                rows.convert_from_f32_slice(&read);
                Ok(())
            }
            Binding::Part { start, len, .. } => {
                let width = self.values.width(value);
                weights::read_part(bytes, slot.element, (*start, *len), width, rows)
            }
            _ => weights::read(bytes, slot.element, rows),
        }
    }

    fn timed(&mut self, step: HostStep) -> Result<(), NpuError> {
        let start = Instant::now();
        let done = self.host(step);
        self.counters.host_ns += ns(start.elapsed());
        done
    }

    fn host(&mut self, step: HostStep) -> Result<(), NpuError> {
        let (npu, first) = (self.npu, self.first);
        let host = HostContext {
            cpu: &npu.cpu,
            model: &npu.model,
            vectors: &npu.vectors,
            ropes: step.node().map_or(&npu.ropes, |node| npu.ropes_of(node)),
        };
        let node = |node: usize| -> Result<&Node, NpuError> {
            let node = npu.model.model().graph.nodes.get(node);
            node.ok_or_else(|| NpuError::plan("a host step", "no such node"))
        };
        match step {
            HostStep::Embed { node: n } => {
                host.embed(node(n)?, (self.tokens, self.images), self.values)
            }
            HostStep::AppendKv { layer, k, v } => self.append(layer, k, v),
            HostStep::Attention { node: n } => self.attention(node(n)?),
            HostStep::Softmax { node, n_keys, .. } => self.softmax(node, n_keys),
            HostStep::DeltaRows { node: n } => self.make_delta_rows(n, node(n)?),
            HostStep::FinalNorm { node: n } => {
                // Where the host has a single row, that one.
                let node = node(n)?;
                let width = self.values.width(node.output);
                let single = |x: &ValueId| self.values.get(*x).len() == width;
                let row = match node.inputs.iter().any(single) {
                    true => 0,
                    false => self.n_real - 1,
                };
                let rows = (first, Some(row..row + 1), 1);
                host.op(node, rows, self.tokens, self.values)
            }
            HostStep::Linear {
                node: n,
                half_split,
            } => host.linear(node(n)?, half_split, self.values),
            HostStep::Op { node: n } => {
                let node = node(n)?;
                if node.op.memory().is_none() {
                    let rows = (first, None, self.n_real);
                    host.op(node, rows, self.tokens, self.values)?;
                    return self.give_experts(n);
                }
                let mut cache = self.cache.parts();
                let past = Past::of(&mut cache, self.seq);
                let real = &self.tokens[..self.n_real];
                host.over_memory(node, (first, real), past, self.values)
            }
        }
    }
}

/// The step, if it copies a call's outputs for those layers into the host's pages.
fn own_append(step: Option<&Step>, layers: &[usize]) -> Option<HostStep> {
    match step? {
        Step::Host(step @ HostStep::AppendKv { layer, .. }) if layers.contains(layer) => {
            Some(*step)
        }
        _ => None,
    }
}
