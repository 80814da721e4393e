//! A token of gated delta nets on a device: rows made by the host, states that it wrote and kept, and the program's results.
//!
//! With u, v and λ as in the [rules](super::rule), s the state before, A the sum of |s·k| over a column, c the correction
//! `strength (value - decay·seen)`:
//!
//! | result | tolerance | rounding points |
//! |---|---|---|
//! | c | strength·(decay·λ·√k·v·A + 4v·(∣value∣ + decay·∣seen∣)) | an f32 sum of k products, then four |
//! | state behind | ∣key∣·(tolerance of c) + 4v·(∣decay·s∣ + ∣key·c∣) | two products and their sum |
//! | result | u·∣y∣ + Σ∣query∣·(tolerance of the state) + λ·√k·v·Σ∣query·state∣ | an f32 sum, one rounding to bf16 |
//!
//! A row of the host is in f32, and the reference in f64: each number is within 2⁻¹⁸ of it, absolute where it is below 1.

mod columns;

use super::rule::LargestError;
use super::{CallCheck, Mismatch, OpsState, statics};
use columns::DeltaColumns;
use millrace_graph::{DeltaNet, Node, Op};
use millrace_plan::{Binding, Phase, PlannedLaunch};
use millrace_runtime::npu::NpuError;

/// Error in f32 of the gates' exponentials and of the lengths of queries and keys.
const ROW_OFF: f64 = 1.0 / 262_144.0;

/// A state by its number, as a token's call returned it, and that token's position.
pub(super) type KeptState = (usize, usize, Vec<u8>);

/// The largest share of a tolerance, and a mismatch of `found` with `expected`, in rows of `width`.
fn compared(
    width: usize,
    expected: impl Iterator<Item = (f64, f64)>,
    found: &[f32],
) -> (f64, Option<Mismatch>) {
    let mut worst = LargestError::default();
    for (at, ((y, tolerance), found)) in expected.zip(found).enumerate() {
        worst.take_number((at / width, at % width), (y, tolerance), f64::from(*found));
    }
    let wrong = (worst.n_wrong() > 0).then(|| Mismatch::Op {
        row: worst.row,
        col: worst.col,
        expected: worst.expected,
        found: worst.found,
        tolerance: worst.tolerance,
        n_wrong: worst.n_wrong(),
        n_elements: found.len() as u64,
    });
    (worst.share, wrong)
}

impl CallCheck<'_> {
    /// Slots of rows, old state, new state and result of a launch that takes rows of a gated delta net.
    pub(super) fn delta_slots(&self, launch: &PlannedLaunch) -> Option<[usize; 4]> {
        let bindings = &self.seen.call.bindings;
        let of = |is: &dyn Fn(&Binding) -> bool| {
            let mut slots = launch.slots.iter().copied();
            slots.find(|slot| bindings.get(*slot).is_some_and(is))
        };
        Some([
            of(&|b| matches!(b, Binding::DeltaRows { .. }))?,
            of(&|b| matches!(b, Binding::StateBefore { .. }))?,
            of(&|b| matches!(b, Binding::StateBehind { .. }))?,
            *launch.results().last()?,
        ])
    }

    /// Checks a launch with these slots.
    pub(super) fn delta_net(
        &self,
        number: usize,
        launch: &PlannedLaunch,
        slots: [usize; 4],
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let wrong = || NpuError::plan(&launch.name, "rows of what is no gated delta net");
        let node = self.graph().nodes.get(number).ok_or_else(wrong)?;
        let Op::DeltaNet(net) = &node.op else {
            return Err(wrong());
        };
        let [rows_slot, before_slot, behind_slot, y_slot] = slots;
        let [rows, before, behind, y] = slots.map(|slot| self.values(slot));
        let (rows, before, behind, y) = (rows?, before?, behind?, y?);
        let of = (Some(launch), Some(number));
        let wrong = self.delta_row_slot(node, net, &rows)?;
        self.report(rows_slot, of.0, of.1, wrong, state);
        self.kept_states((net.state, before_slot, behind_slot), of, state)?;

        let width = net.row_elems();
        let heads = rows
            .chunks_exact(width)
            .zip(before.chunks_exact(net.head_elems().max(1)));
        let (mut states, mut results) = (Vec::new(), Vec::new());
        for (row, before) in heads {
            DeltaColumns { net, row, before }.exact(&mut states, &mut results);
        }
        if states.len() != behind.len() || results.len() > y.len() {
            return Err(NpuError::plan(&launch.name, "states of another size"));
        }
        let (of_state, wrong) = compared(millrace_graph::STATE_LANES, states.into_iter(), &behind);
        self.report(behind_slot, of.0, of.1, wrong, state);
        let n = results.len();
        let (of_result, wrong) = compared(net.v_dim, results.into_iter(), &y[..n]);
        self.report(y_slot, of.0, of.1, wrong, state);
        let share = state.summary.worst.entry(node.label).or_default();
        *share = share.max(of_state).max(of_result);
        Ok(())
    }

    /// The rows, worked out in f64 from the host's operands.
    fn delta_row_slot(
        &self,
        node: &Node,
        net: &DeltaNet,
        found: &[f32],
    ) -> Result<Option<Mismatch>, NpuError> {
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|x| f64::from(*x)).collect() };
        let mut inputs: [Vec<f64>; 3] = Default::default();
        for (input, value) in inputs.iter_mut().zip(&node.inputs) {
            *input = self.seen.value(*value).iter().map(|x| x.to_f64()).collect();
        }
        let mut vectors: [Vec<f64>; 2] = Default::default();
        for (vector, id) in vectors.iter_mut().zip([net.rate, net.dt]) {
            *vector = wide(&statics::vector(self.npu.model(), id)?);
        }
        let expected = net.token_rows(
            inputs.each_ref().map(Vec::as_slice),
            vectors.each_ref().map(Vec::as_slice),
        );
        let expected = expected.filter(|rows| rows.len() == found.len());
        let Some(expected) = expected else {
            return Err(NpuError::plan(node.label, "operands of other lengths"));
        };
        let width = net.row_elems();
        let allowed = expected
            .into_iter()
            .map(|x| (x, ROW_OFF * x.abs().max(1.0)));
        Ok(compared(width, allowed, found).1)
    }

    /// States are moved unchanged: the next token's call takes the state that this one's returned, and the host keeps the same.
    fn kept_states(
        &self,
        (index, before, behind): (usize, usize, usize),
        (launch, node): (Option<&PlannedLaunch>, Option<usize>),
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let first = self.seen.first;
        let last = (state.states.iter()).find(|(i, at, _)| (*i, *at + 1) == (index, first));
        if let Some((_, _, given)) = last {
            let wrong = super::differs(given, &self.bytes(before)?);
            let wrong = wrong.map(|(at, n_wrong)| Mismatch::Value { at, n_wrong });
            state.summary.n_moved += 1;
            self.report(before, launch, node, wrong, state);
        }
        let given = self.bytes(behind)?;
        let kept = self.seen.state(index).unwrap_or_default();
        let kept: Vec<u8> = kept.iter().flat_map(|x| x.to_le_bytes()).collect();
        let wrong = super::differs(&given, &kept);
        let wrong = wrong.map(|(at, n_wrong)| Mismatch::Value { at, n_wrong });
        state.summary.n_moved += 1;
        self.report(behind, launch, node, wrong, state);
        state.states.retain(|(i, ..)| *i != index);
        state.states.push((index, first, given));
        Ok(())
    }

    /// A prompt's pass leaves other states: those that the host keeps when the pass's last call is over.
    pub(super) fn states_of_prompt(&self, state: &mut OpsState) {
        let plan = self.seen.plan;
        if plan.phase != Phase::Prefill {
            return;
        }
        state.states.clear();
        if state.n_calls + 1 < plan.calls().count() {
            return;
        }
        let last = self.seen.first + self.seen.n_real - 1;
        for node in &self.graph().nodes {
            let Op::DeltaNet(net) = &node.op else {
                continue;
            };
            if let Some(kept) = self.seen.state(net.state) {
                let bytes = kept.iter().flat_map(|x| x.to_le_bytes()).collect();
                state.states.push((net.state, last, bytes));
            }
        }
    }
}
