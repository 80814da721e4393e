//! Inputs of a call that differ from values on the host.

use std::ops::Range;

use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::ValueId;
use millrace_npu::Element;
use millrace_plan::{
    Binding, Call, HostMove, PassPosition, Scales, SlotUse, position_and_image, rope_table,
};

use super::{InputBytes, Pass};
use crate::npu::NpuError;
use crate::npu::weights;

impl Pass<'_> {
    /// Inputs that differ from values on the host: tables of one position, parts of a row, other
    /// element types, arrangements of the target's own, weights.
    pub(super) fn made_inputs(
        &self,
        call: &Call,
        uses: &[SlotUse],
    ) -> Result<Vec<InputBytes>, NpuError> {
        let made = uses.iter().enumerate().map(|(slot, used)| match used.host {
            HostMove::Write => self.made_input(call, slot),
            _ => Ok(None),
        });
        made.collect()
    }

    fn position(&self) -> PassPosition<'_> {
        PassPosition {
            graph: &self.npu.model.model().graph,
            tokens: self.tokens,
            n_real: self.n_real,
            first: self.first,
        }
    }

    /// The pass's first position and its first image's, in a slot of `n_elems`.
    fn position_elements(&self, n_elems: usize) -> Result<Vec<bf16>, String> {
        let first = u32::try_from(self.first).map_err(|_| "a position beyond 2^32".to_owned())?;
        let image = self.images.first().map_or(0..0, |placed| {
            let rows = &placed.rows;
            first + rows.start as u32..first + rows.end as u32
        });
        Ok(position_and_image(first, image, n_elems))
    }

    /// Elements of a value, padded with zeros.
    fn part_elements(
        &self,
        value: ValueId,
        part: Range<usize>,
        n_elems: usize,
    ) -> Result<Vec<bf16>, String> {
        let part = self.values.get(value).get(part);
        let mut padded = part.ok_or("a part beyond its value")?.to_vec();
        padded.resize(n_elems, bf16::ZERO);
        Ok(padded)
    }

    fn made_input(&self, call: &Call, number: usize) -> Result<InputBytes, NpuError> {
        let slot = &self.prepared.container(call).slots()[number];
        let binding = &call.bindings[number];
        let n_elems = slot.n_elements().unwrap_or(0) as usize;
        let mut bytes = vec![0; slot.size_bytes().unwrap_or(0) as usize];
        let mut scales = Scales::default();
        let written = match binding {
            Binding::Weight { .. } => {
                scales =
                    (self.npu).fill_slot(self.prepared, call, number, self.first, &mut bytes)?;
                Ok(())
            }
            Binding::RopeTable { rope, rows } => {
                let rope = &self.npu.model.model().graph.ropes[rope.0];
                weights::write(&rope_table(rope, *rows, self.first), slot, &mut bytes)
            }
            Binding::Position => self
                .position_elements(n_elems)
                .and_then(|position| weights::write(&position, slot, &mut bytes)),
            Binding::RangePosition { range } => {
                weights::write(&range.slot(self.first, n_elems), slot, &mut bytes)
            }
            Binding::CacheRange { layer, of, range } => {
                self.cache_range((*layer, *of, *range), slot, &mut bytes)?;
                Ok(())
            }
            Binding::DeltaRows { node } => self.delta_row_bytes(*node, &mut bytes),
            Binding::StateBefore { index } => self.state_before(*index, &mut bytes),
            Binding::PassInput { id } => {
                let at = self.prepared.own_slot(call, number, *id);
                self.npu
                    .arrangement()
                    .make(&at, &self.position(), &mut bytes)
            }
            Binding::Part { value, start, len } => self
                .part_elements(*value, *start..start + len, n_elems)
                .and_then(|part| weights::write(&part, slot, &mut bytes)),
            Binding::Packed { value, id, .. } => {
                let rows = self.values.get(*value).to_f32_vec();
                let width = self.values.width(*value);
                let (arrangement, cpu) = (self.npu.arrangement(), &self.npu.cpu);
                let at = self.prepared.own_slot(call, number, *id);
                let packed = arrangement.pack(cpu, &at, &rows, width, &mut bytes);
                packed.map(|kept| scales = kept)
            }
            Binding::AttentionProduct { .. } => {
                let packed = self.attention_input(call, number, &mut bytes);
                packed.map(|kept| scales = kept)
            }
            Binding::Value(value) if slot.element != Element::Bf16 => {
                weights::write(self.values.get(*value), slot, &mut bytes)
            }
            _ => return Ok(None),
        };
        let place = || format!("input `{}` of {}", slot.name, call.set);
        let made = written.map(|()| Some((bytes, scales)));
        made.map_err(|problem| NpuError::plan(place(), problem))
    }
}
