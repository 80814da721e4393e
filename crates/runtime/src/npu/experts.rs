//! Products with the experts that tokens chose. There is one dispatch for each expert and for as many of its rows as fit
//! the program ([`millrace_plan::experts`]).

mod sets;

use super::NpuError;
use super::counters::ns;
use super::pass::Pass;
use super::weights;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{ExpertLinear, ExpertUse, Node, ValueId};
use millrace_npu::{Move, Role, Slot};
use millrace_plan::{Binding, Call, ExpertCall, Scales};
pub(super) use sets::ExpertSets;
use sets::expert_name;
use std::collections::BTreeMap;
use std::time::Instant;

/// A dispatch of an expert, for observers.
#[derive(Clone, Copy, Debug)]
pub struct ExpertDispatch<'a> {
    /// The expert: a matrix of the weight.
    pub expert: usize,
    /// Its rows of the dispatch, in their order; rows of padding after them are zeros.
    pub rows: &'a [ExpertUse],
}

/// A product of experts in a pass.
struct ExpertPass<'a> {
    call: &'a Call,
    index: usize,
    node: &'a Node,
    linear: &'a ExpertLinear,
    /// Rows of a dispatch, of an expert's matrix, and elements of a row.
    m: usize,
    n: usize,
    k: usize,
}

/// An input's bytes, and the scales kept for them.
type SlotInput = Option<(Vec<u8>, Scales)>;

impl Pass<'_> {
    /// A call of experts: its dispatches.
    pub(super) fn expert_call(
        &mut self,
        call: &Call,
        index: usize,
        experts: ExpertCall,
    ) -> Result<(), NpuError> {
        let start = Instant::now();
        let graph = &self.npu.model.model().graph;
        let wrong = |problem: &str| NpuError::plan(&call.set, problem);
        let op = experts
            .op(graph)
            .ok_or_else(|| wrong("no product of experts"))?;
        let spec = &graph.weights[op.1.weight.0];
        let at = ExpertPass {
            call,
            index,
            node: op.0,
            linear: op.1,
            m: experts.rows as usize,
            n: spec.n,
            k: spec.k,
        };
        let chosen = self.chosen_rows(&at, spec.n_experts)?;
        let output = at.node.output;
        let mut rows = self.values.take(output, self.n_rows(output));
        rows.fill(bf16::ZERO);
        self.values.put(output, rows);
        self.counters.host_ns += ns(start.elapsed());
        for (expert, rows) in &chosen {
            for rows in rows.chunks(at.m) {
                let rows = ExpertDispatch {
                    expert: *expert,
                    rows,
                };
                self.expert_dispatch(&at, rows)?;
            }
        }
        Ok(())
    }

    /// The rows without padding that chose each expert, in the order of tokens.
    fn chosen_rows(
        &self,
        at: &ExpertPass<'_>,
        n_experts: usize,
    ) -> Result<BTreeMap<usize, Vec<ExpertUse>>, NpuError> {
        let wrong = |problem: String| NpuError::plan(&at.call.set, problem);
        let n_used = at.linear.n_used;
        let choices = at.node.inputs.get(1).map(|choice| self.values.get(*choice));
        let choices = choices.unwrap_or_default();
        let x = self.values.get(at.node.inputs[0]);
        let n_rows = choices.len() / (3 * n_used).max(1);
        let rows_of_x = if at.linear.own_rows {
            n_rows * n_used
        } else {
            n_rows
        };
        if n_rows == 0 || x.len() != rows_of_x * at.k {
            let found = x.len();
            return Err(wrong(format!(
                "{n_rows} choices of {n_used} experts for {found} numbers in rows of {}",
                at.k
            )));
        }
        let mut chosen: BTreeMap<usize, Vec<ExpertUse>> = BTreeMap::new();
        let real = choices.chunks_exact(3 * n_used).take(self.n_real);
        for (token, choice) in real.enumerate() {
            let choice = choice.to_f32_vec();
            for row in at.linear.uses(token, &choice) {
                let expert = row.expert;
                if expert >= n_experts {
                    return Err(wrong(format!("expert {expert} of {n_experts} was chosen")));
                }
                chosen.entry(expert).or_default().push(row);
            }
        }
        Ok(chosen)
    }

    fn expert_dispatch(
        &mut self,
        at: &ExpertPass<'_>,
        dispatch: ExpertDispatch<'_>,
    ) -> Result<(), NpuError> {
        let start = Instant::now();
        let (call, prepared) = (at.call, self.prepared);
        let container = prepared.container(call);
        let key = sets::key(prepared.key(at.index), dispatch.expert);
        self.npu
            .hold_expert(prepared, (call, at.index), dispatch.expert, &key)?;
        let made = self.expert_inputs(at, &dispatch)?;
        let scales = self.expert_scales(at, dispatch.expert, &made);
        let mut products = vec![0.0; at.m * at.n];
        self.counters.host_ns += ns(start.elapsed());
        let called = Instant::now();
        let mut misfit = None;
        let moves: Vec<Move<'_>> = container
            .slots()
            .iter()
            .zip(&made)
            .map(expert_move)
            .collect();
        let result = self
            .npu
            .cache
            .run_moving(container, &key, &moves, |slot, bytes| {
                let read = self.expert_output(at, slot, bytes, &scales, &mut products);
                if let Err(problem) = read {
                    misfit = Some((slot, problem));
                }
            });
        self.counters.call_ns += ns(called.elapsed());
        self.end_dispatch((call, at.index), &key, result, misfit)?;
        let placed = Instant::now();
        self.place_products(at, &dispatch, &mut products)?;
        self.counters.host_ns += ns(placed.elapsed());
        self.show((call, at.index), (&key, &scales), Some(dispatch));
        Ok(())
    }

    /// The bytes of input slots: gathered rows, and matrices that come with every call.
    fn expert_inputs(
        &self,
        at: &ExpertPass<'_>,
        dispatch: &ExpertDispatch<'_>,
    ) -> Result<Vec<SlotInput>, NpuError> {
        let container = self.prepared.container(at.call);
        let mut all = Vec::with_capacity(container.slots().len());
        for (number, slot) in container.slots().iter().enumerate() {
            if slot.role != Role::Input {
                all.push(None);
                continue;
            }
            let mut bytes = vec![0; slot.size_bytes().unwrap_or(0) as usize];
            let made = match &at.call.bindings[number] {
                Binding::Weight { .. } => {
                    let (prepared, call) = (self.prepared, at.call);
                    let expert = dispatch.expert;
                    let npu = self.npu;
                    Ok(npu.fill_expert(prepared, call, number, expert, &mut bytes)?)
                }
                Binding::Packed { value, id, .. } => {
                    let rows = self.gathered(at, *value, dispatch).to_f32_vec();
                    let own = self.prepared.own_slot(at.call, number, *id);
                    let cpu = &self.npu.cpu;
                    self.npu
                        .arrangement()
                        .pack(cpu, &own, &rows, at.k, &mut bytes)
                }
                Binding::Value(value) => {
                    let rows = self.gathered(at, *value, dispatch);
                    weights::write(&rows, slot, &mut bytes).map(|()| Scales::default())
                }
                other => Err(format!("{other:?} is no operand of an expert")),
            };
            let made = made.map_err(|problem| {
                let input = format!("input `{}` of {}", slot.name, at.call.set);
                NpuError::plan(input, problem)
            })?;
            all.push(Some((bytes, made)));
        }
        Ok(all)
    }

    /// The dispatch's rows of x, padded with zeros.
    fn gathered(
        &self,
        at: &ExpertPass<'_>,
        value: ValueId,
        dispatch: &ExpertDispatch<'_>,
    ) -> Vec<bf16> {
        let x = self.values.get(value);
        let mut rows = Vec::with_capacity(at.m * at.k);
        for row in dispatch.rows {
            rows.extend_from_slice(&x[row.from * at.k..][..at.k]);
        }
        rows.resize(at.m * at.k, bf16::ZERO);
        rows
    }

    /// By slot, the scales that the planner keeps for its contents.
    fn expert_scales(&self, at: &ExpertPass<'_>, expert: usize, made: &[SlotInput]) -> Vec<Scales> {
        let slots = self.prepared.container(at.call).slots().iter();
        let of = |(number, (slot, made)): (usize, (&Slot, &SlotInput))| match slot.role {
            Role::Static => {
                let name = expert_name(self.prepared, at.index, number, expert);
                self.npu.scales(name.as_deref())
            }
            _ => made
                .as_ref()
                .map_or_else(Scales::default, |(_, scales)| scales.clone()),
        };
        slots.zip(made).enumerate().map(of).collect()
    }

    /// Products `[m, n]` from an output slot.
    fn expert_output(
        &self,
        at: &ExpertPass<'_>,
        number: usize,
        bytes: &[u8],
        scales: &[Scales],
        products: &mut [f32],
    ) -> Result<(), String> {
        let slot = &self.prepared.container(at.call).slots()[number];
        match &at.call.bindings[number] {
            Binding::Packed { id, .. } => {
                let own = self.prepared.own_slot(at.call, number, *id);
                let cpu = &self.npu.cpu;
                let arrangement = self.npu.arrangement();
                arrangement.unpack(cpu, &own, bytes, scales, at.n, products)
            }
            _ => weights::read_f32(bytes, slot.element, products),
        }
    }

    /// Products into their rows of the result: times the expert's scale, plus its bias, rounded once.
    fn place_products(
        &mut self,
        at: &ExpertPass<'_>,
        dispatch: &ExpertDispatch<'_>,
        products: &mut [f32],
    ) -> Result<(), NpuError> {
        let wrong = |problem: &str| NpuError::plan(&at.call.set, problem);
        let (linear, vectors) = (at.linear, &self.npu.vectors);
        let scale = linear.scale.map(|id| vectors[id.0].get(dispatch.expert));
        let scale = scale.map(|scale| scale.ok_or_else(|| wrong("an expert without its scale")));
        let scale = scale.transpose()?.copied();
        let start = dispatch.expert * at.n;
        let bias = linear.bias.map(|id| vectors[id.0].get(start..start + at.n));
        let bias = bias.map(|bias| bias.ok_or_else(|| wrong("an expert without its bias")));
        let bias = bias.transpose()?;
        let output = at.node.output;
        let mut out = self.values.keep(output, self.n_rows(output));
        for (row, product) in dispatch.rows.iter().zip(products.chunks_exact_mut(at.n)) {
            if let Some(scale) = scale {
                product.iter_mut().for_each(|x| *x *= scale);
            }
            if let Some(bias) = bias {
                product
                    .iter_mut()
                    .zip(bias)
                    .for_each(|(x, bias)| *x += bias);
            }
            let to = out.get_mut(row.to * at.n..(row.to + 1) * at.n);
            to.ok_or_else(|| wrong("a result of another shape"))?
                .convert_from_f32_slice(product);
        }
        self.values.put(output, out);
        Ok(())
    }
}

/// The transfer of a slot: inputs whole, and results.
fn expert_move<'m>((slot, made): (&Slot, &'m SlotInput)) -> Move<'m> {
    match (slot.role, made) {
        (Role::Input, Some((bytes, _))) => Move::Write(bytes),
        (Role::Output, _) => Move::Read(0..slot.size_bytes().unwrap_or(0)),
        _ => Move::None,
    }
}
