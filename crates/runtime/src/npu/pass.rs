//! One pass of a plan: its calls and the host's steps between them.

use super::NpuError;
use super::attention::HeadMajorCache;
use super::counters::{PhaseCounters, ns};
use super::host::{Host, Values};
use super::model::NpuModel;
use super::observe::{Observation, Observer};
use super::prepared::Prepared;
use bytemuck::{cast_slice, cast_slice_mut};
use half::bf16;
use millrace_model::graph::{Node, Op, ValueId};
use millrace_npu::{Move, Role};
use millrace_xdna2::lower::{
    Binding, Call, HostMove, HostStep, Rows, SlotUse, Step, position_slot, rope_table,
};
use std::ops::Range;
use std::time::Instant;

/// A pass about to run.
pub(super) struct Pass<'a> {
    pub(super) npu: &'a NpuModel,
    pub(super) prepared: &'a Prepared,
    /// As many as the plan takes, padding included.
    pub(super) tokens: &'a [u32],
    /// Tokens that are no padding.
    pub(super) n_real: usize,
    /// Position of the first.
    pub(super) first: usize,
    /// Number of the session.
    pub(super) session: u64,
    pub(super) values: &'a mut Values,
    pub(super) cache: &'a mut HeadMajorCache,
    pub(super) counters: &'a mut PhaseCounters,
    pub(super) observer: Option<&'a mut Observer>,
}

impl Pass<'_> {
    /// Runs every step. After an error the cache may hold more than it did, beyond the positions
    /// that were complete.
    pub(super) fn run(&mut self) -> Result<(), NpuError> {
        let prepared = self.prepared;
        let _hot = self.npu.cpu.pool().enter();
        if prepared.reads_cache() {
            self.npu.own_cache(self.session, self.cache);
        }
        let mut call_index = 0;
        for (index, step) in prepared.plan.steps.iter().enumerate() {
            match step {
                Step::Call(call) => {
                    self.call(call, call_index)?;
                    self.observe(call, call_index);
                    call_index += 1;
                }
                Step::Host(step) => {
                    let start = Instant::now();
                    self.host(*step)?;
                    self.counters.host_ns += ns(start.elapsed());
                }
            }
            for value in prepared.spent(index) {
                self.values.drop(*value);
            }
        }
        self.counters.n_passes += 1;
        self.counters.n_tokens += self.n_real as u64;
        self.counters.n_padded_tokens += self.tokens.len() as u64;
        Ok(())
    }

    fn n_rows(&self, value: ValueId) -> usize {
        self.prepared.plan.n_rows(value) as usize
    }

    /// Bytes of a slot that the host reads, and how many rows that is.
    fn rows_read(&self, binding: &Binding, size_bytes: u64, rows: Rows) -> (Range<u64>, usize) {
        let n_rows = self.prepared.plan.rows_bound(binding) as usize;
        let bytes = rows.bytes(size_bytes, n_rows as u64, self.n_real as u64);
        let n_rows = match rows {
            Rows::Last => 1,
            Rows::Real => self.n_real.min(n_rows),
            Rows::All => n_rows,
        };
        (bytes, n_rows)
    }

    fn call(&mut self, call: &Call, index: usize) -> Result<(), NpuError> {
        let start = Instant::now();
        let container = self.prepared.container(call);
        let uses = self.prepared.uses(index);
        let made = self.made_inputs(call, uses)?;
        // Outputs leave their place, so that inputs can be lent beside them.
        let mut outputs: Vec<(ValueId, Vec<bf16>)> = Vec::new();
        let mut reads: Vec<Range<u64>> = vec![0..0; uses.len()];
        for (slot, (binding, used)) in call.bindings.iter().zip(uses).enumerate() {
            let (Binding::Value(value) | Binding::Part { value, .. }, HostMove::Read(rows)) =
                (binding, used.host)
            else {
                continue;
            };
            let size_bytes = container.slots()[slot].size_bytes().unwrap_or(0);
            let (bytes, n_rows) = self.rows_read(binding, size_bytes, rows);
            reads[slot] = bytes;
            if !outputs.iter().any(|(other, _)| other == value) {
                outputs.push((*value, self.values.take(*value, n_rows)));
            }
        }
        let slots = container.slots().iter().zip(uses).zip(reads);
        let moves: Vec<Move<'_>> = slots
            .zip(call.bindings.iter().zip(&made))
            .map(
                |(((slot, used), read), (binding, made))| match (used.host, binding, made) {
                    (HostMove::Write, Binding::Value(value), _) => {
                        Move::Write(cast_slice(self.values.get(*value)))
                    }
                    (HostMove::Write, _, Some(made)) => Move::Write(cast_slice(made)),
                    (HostMove::Read(_), ..) => Move::Read(read),
                    _ if slot.role == Role::Input => Move::Keep,
                    _ => Move::None,
                },
            )
            .collect();
        let mut misfit = None;
        let before = ns(start.elapsed());
        let called = Instant::now();
        let result = self.npu.cache.run_moving(
            container,
            self.prepared.key(index),
            &moves,
            |slot, bytes| {
                if !read_output(&call.bindings[slot], bytes, &mut outputs) {
                    misfit = Some(slot);
                }
            },
        );
        self.counters.call_ns += ns(called.elapsed());
        for (value, rows) in outputs {
            self.values.put(value, rows);
        }
        self.counters.host_ns += before;
        self.counters.n_dispatches += 1;
        let done = result.map_err(|error| NpuError::Call {
            call: index + 1,
            n_calls: self.prepared.plan.calls().count(),
            set: self.prepared.key(index).to_owned(),
            error,
        })?;
        self.counters.traffic += done.traffic;
        self.counters.device_ns += done.completion.duration_ns;
        match misfit {
            Some(slot) => {
                let problem = format!("output slot {slot} has not the size of its value");
                Err(NpuError::plan(&call.set, problem))
            }
            None => Ok(()),
        }
    }

    fn observe(&mut self, call: &Call, index: usize) {
        if let Some(observer) = &mut self.observer {
            observer(&Observation {
                plan: &self.prepared.plan,
                call,
                key: self.prepared.key(index),
                cache: &self.npu.cache,
                first: self.first,
                n_real: self.n_real,
            });
        }
    }

    /// Inputs that are no value as it lies: tables of one position, parts of a row.
    fn made_inputs(
        &self,
        call: &Call,
        uses: &[SlotUse],
    ) -> Result<Vec<Option<Vec<bf16>>>, NpuError> {
        let slots = self.prepared.container(call).slots();
        let mut made = Vec::with_capacity(slots.len());
        for ((slot, used), binding) in slots.iter().zip(uses).zip(&call.bindings) {
            made.push(match binding {
                _ if used.host != HostMove::Write => None,
                Binding::RopeTable { rope, rows } => {
                    let rope = &self.npu.model.model().graph.ropes[rope.0];
                    Some(rope_table(rope, *rows, self.first))
                }
                Binding::Position => {
                    let n_elems = slot.n_elements().unwrap_or(0) as usize;
                    let first = u32::try_from(self.first);
                    let first = first.map_err(|_| NpuError::plan(&call.set, "a position"))?;
                    Some(position_slot(first, n_elems))
                }
                Binding::Part { value, start, len } => {
                    let n_elems = slot.n_elements().unwrap_or(0) as usize;
                    let part = self.values.get(*value).get(*start..start + len);
                    let part =
                        part.ok_or_else(|| NpuError::plan(&call.set, "a part beyond its value"))?;
                    let mut padded = part.to_vec();
                    padded.resize(n_elems, bf16::ZERO);
                    Some(padded)
                }
                _ => None,
            });
        }
        Ok(made)
    }

    fn host(&mut self, step: HostStep) -> Result<(), NpuError> {
        let (npu, first) = (self.npu, self.first);
        let host = Host {
            cpu: &npu.cpu,
            model: &npu.model,
            vectors: &npu.vectors,
        };
        let node = |node: usize| -> Result<&Node, NpuError> {
            let node = npu.model.model().graph.nodes.get(node);
            node.ok_or_else(|| NpuError::plan("a host step", "no such node"))
        };
        match step {
            HostStep::Embed { node: n } => host.embed(node(n)?, self.tokens, self.values),
            HostStep::AppendKv { layer, k, v } => self.append(layer, k, v),
            HostStep::Attention { node: n } => self.attention(node(n)?),
            HostStep::FinalNorm { node: n } => {
                // Where the host has a single row, that one.
                let node = node(n)?;
                let width = self.values.width(node.output);
                let single = |x: &ValueId| self.values.get(*x).len() == width;
                let row = match node.inputs.iter().any(single) {
                    true => 0,
                    false => self.n_real - 1,
                };
                host.norm(node, Some(row..row + 1), self.values)
            }
            HostStep::Norm { node: n } => host.norm(node(n)?, None, self.values),
            HostStep::Linear {
                node: n,
                half_split,
            } => host.linear(node(n)?, half_split, self.values),
            HostStep::Rope { node: n } => host.rope(node(n)?, first, self.values),
            HostStep::Glu { node: n } => host.glu(node(n)?, self.values),
            HostStep::Add { node: n } => host.add(node(n)?, self.values),
        }
    }

    /// Keys and values of the tokens that are no padding.
    fn append(&mut self, layer: usize, k: ValueId, v: ValueId) -> Result<(), NpuError> {
        let width = self.cache.width(layer).unwrap_or(0) * self.n_real;
        let rows = |value: ValueId| self.values.get(value).get(..width);
        match (rows(k), rows(v)) {
            (Some(k), Some(v)) if width > 0 => {
                self.cache.append(layer, self.first, k, v);
                let n_rows = self.first + self.n_real;
                let synced = self
                    .npu
                    .sync_cache(self.prepared, self.cache, layer, n_rows);
                self.counters.traffic += synced?;
                Ok(())
            }
            _ => Err(NpuError::plan(
                format!("the cache of layer {layer}"),
                "no keys and values",
            )),
        }
    }

    /// Attention over the cache. Rows of padding are zero: nobody reads them.
    fn attention(&mut self, node: &Node) -> Result<(), NpuError> {
        let (Op::Attention(attention), Some(q)) = (&node.op, node.inputs.first()) else {
            return Err(NpuError::plan(node.label, "no attention"));
        };
        let width = attention.n_heads * attention.head_dim;
        let mut out = self.values.take(node.output, self.n_rows(node.output));
        out.fill(bf16::ZERO);
        let real = self.n_real * width;
        let fits =
            self.cache.width(attention.layer) == Some(attention.n_kv_heads * attention.head_dim);
        let (Some(q), Some(to), true) =
            (self.values.get(*q).get(..real), out.get_mut(..real), fits)
        else {
            return Err(NpuError::plan(node.label, "queries of another shape"));
        };
        self.cache
            .attend(&self.npu.cpu, attention, self.first, q, to);
        self.values.put(node.output, out);
        Ok(())
    }
}

/// Whether an output slot fits its value.
fn read_output(binding: &Binding, bytes: &[u8], outputs: &mut [(ValueId, Vec<bf16>)]) -> bool {
    let (value, range) = match binding {
        Binding::Value(value) => (value, None),
        Binding::Part { value, start, len } => (value, Some(*start..start + len)),
        _ => return true,
    };
    let Some((_, rows)) = outputs.iter_mut().find(|(other, _)| other == value) else {
        return false;
    };
    match range {
        None => {
            let to: &mut [u8] = cast_slice_mut(rows);
            let fits = to.len() == bytes.len();
            if fits {
                to.copy_from_slice(bytes);
            }
            fits
        }
        Some(range) => {
            let to = rows.get_mut(range).map(cast_slice_mut::<bf16, u8>);
            match to.and_then(|to| Some((bytes.get(..to.len())?, to))) {
                Some((from, to)) => to.copy_from_slice(from),
                None => return false,
            }
            true
        }
    }
}
