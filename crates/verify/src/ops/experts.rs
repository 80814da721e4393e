//! Dispatches of experts: each in isolation, with its operands and its rows of the result.
//!
//! | checked | held against | tolerance |
//! |---|---|---|
//! | gathered rows in the slot's element | the host's rows of x that chose the expert | none |
//! | the matrix | the expert's in the checkpoint | as of any weight |
//! | the product | the numbers in its slots, in f64 | that of projections |
//! | the host's rows of the result | the numbers that left the device, times the expert's scale, plus its bias | none: one rounding to bf16 |

use super::rule::{OpRule, Operation};
use super::{CallCheck, Mismatch, OpsState, statics};
use half::bf16;
use millrace_graph::{ExpertLinear, Linear, Node, Op, WeightId};
use millrace_npu::Role;
use millrace_plan::{Binding, PlannedLaunch};
use millrace_runtime::npu::{ExpertDispatch, NpuError};

/// The slots of a dispatch.
struct ExpertSlots {
    x: usize,
    w: usize,
    y: usize,
}

impl CallCheck<'_> {
    pub(super) fn expert_dispatch(
        &self,
        dispatch: ExpertDispatch<'_>,
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let call = self.seen.call;
        let wrong = |problem: &str| NpuError::plan(&call.set, problem);
        let experts = call.experts.ok_or_else(|| wrong("no call of experts"))?;
        let op = experts.op(self.graph());
        let (node, linear) = op.ok_or_else(|| wrong("no product of experts"))?;
        let launch = self.seen.plan.programs[call.program].launches.first();
        let launch = launch.ok_or_else(|| wrong("a program without a launch"))?;
        let slots = self.expert_slots(launch);
        let slots = slots.ok_or_else(|| wrong("no rows, no matrix or no result"))?;
        self.moved(state)?;
        self.gathered(&slots, (node, linear), dispatch, state);
        state.summary.n_ops += 1;
        let found = self.result(slots.y)?;
        let rule = match self.expert_rule(&slots, launch, (node, linear), dispatch)? {
            Ok(rule) => rule,
            Err(reason) => {
                state.summary.unchecked.insert(node.label, reason);
                return Ok(());
            }
        };
        let n = self.graph().weights[linear.weight.0].n;
        let n_rows = dispatch.rows.len();
        let (worst, n_wrong) = rule.compare(self.npu.cpu(), n_rows, n, &found);
        let share = state.summary.worst.entry(node.label).or_default();
        *share = share.max(worst.share);
        let what = (n_wrong > 0).then_some(Mismatch::Op {
            row: worst.row,
            col: worst.col,
            expected: worst.expected,
            found: worst.found,
            tolerance: worst.tolerance,
            n_wrong,
            n_elements: (n_rows * n) as u64,
        });
        self.report(slots.y, Some(launch), Some(experts.node), what, state);
        self.placed(&slots, (node, linear), dispatch, found, state)
    }

    fn expert_slots(&self, launch: &PlannedLaunch) -> Option<ExpertSlots> {
        let bindings = &self.seen.call.bindings;
        let find = |is: &dyn Fn(&Binding) -> bool, role: Role| {
            let mut slots = launch.slots.iter().copied();
            slots.find(|slot| {
                let of_role = self.slots()[*slot].role == role;
                (of_role || role == Role::Static) && bindings.get(*slot).is_some_and(is)
            })
        };
        let is_value = |b: &Binding| b.value().is_some();
        Some(ExpertSlots {
            x: find(&is_value, Role::Input)?,
            w: find(&|b| matches!(b, Binding::Weight { .. }), Role::Static)?,
            y: find(&is_value, Role::Output)?,
        })
    }

    /// Checks the gathered rows against the host's, if the slot holds them as they are.
    fn gathered(
        &self,
        slots: &ExpertSlots,
        (node, linear): (&Node, &ExpertLinear),
        dispatch: ExpertDispatch<'_>,
        state: &mut OpsState,
    ) {
        let Binding::Value(x) = self.seen.call.bindings[slots.x] else {
            return;
        };
        let k = self.graph().weights[linear.weight.0].k;
        let x = self.seen.value(x);
        let Ok(found) = self.bytes(slots.x) else {
            return;
        };
        let rows = dispatch.rows.iter();
        let rows = rows.flat_map(|row| x.get(row.from * k..(row.from + 1) * k).unwrap_or_default());
        let rows: Vec<f32> = rows.map(|x| x.to_f32()).collect();
        let expected = statics::encode(&rows, self.slots()[slots.x].element);
        let differing = expected.iter().zip(&found).enumerate();
        let mut differing = differing.filter(|(_, (a, b))| a != b);
        let first = differing.next().map(|(at, _)| at);
        let n_wrong = 1 + differing.count();
        state.summary.n_moved += 1;
        let what = first.map(|at| Mismatch::Value { at, n_wrong });
        let given = node.inputs.first().copied();
        let mut nodes = self.graph().nodes.iter();
        let from = nodes.position(|n| Some(n.output) == given);
        self.report(slots.x, None, from, what, state);
    }

    /// The product's rule on the contents of its slots, or the reason why they cannot be inspected.
    fn expert_rule(
        &self,
        slots: &ExpertSlots,
        launch: &PlannedLaunch,
        (node, linear): (&Node, &ExpertLinear),
        dispatch: ExpertDispatch<'_>,
    ) -> Result<Result<OpRule, String>, NpuError> {
        let (x, w) = match (self.operand(slots.x)?, self.operand(slots.w)?) {
            (Ok(x), Ok(w)) => (x, w),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
        };
        // With one of the matrices chosen, it is a plain product.
        let plain = Node {
            op: Op::Linear(Linear {
                weight: linear.weight,
                bias: None,
            }),
            ..node.clone()
        };
        Ok(OpRule::new(&Operation {
            arithmetic: self.npu.planner().arithmetic(launch),
            result: self.slots()[slots.y].element,
            node: &plain,
            launch,
            parameter: self.seen.call.bindings.get(slots.w),
            operands: vec![x],
            weights: w,
            offsets: None,
            widths: vec![self.graph().weights[linear.weight.0].k],
            n_rows: dispatch.rows.len(),
            first: self.seen.first,
            oldest_key: 0,
        }))
    }

    /// The host's rows of the result are the numbers that left the device with the expert's companions, rounded once.
    fn placed(
        &self,
        slots: &ExpertSlots,
        (node, linear): (&Node, &ExpertLinear),
        dispatch: ExpertDispatch<'_>,
        mut found: Vec<f32>,
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let n = self.graph().weights[linear.weight.0].n;
        let scale = self.companion(linear.scale, dispatch.expert, 1)?;
        let bias = self.companion(linear.bias, dispatch.expert, n)?;
        let rows = self.seen.value(node.output);
        let (mut first, mut n_wrong) = (None, 0);
        for (row, product) in dispatch.rows.iter().zip(found.chunks_exact_mut(n)) {
            for (i, x) in product.iter_mut().enumerate() {
                let scaled = scale.as_ref().map_or(*x, |scale| *x * scale[0]);
                let expected = bias.as_ref().map_or(scaled, |bias| scaled + bias[i]);
                let at = row.to * n + i;
                if rows.get(at) != Some(&bf16::from_f32(expected)) {
                    first.get_or_insert(2 * at);
                    n_wrong += 2;
                }
            }
        }
        state.summary.n_moved += 1;
        let what = first.map(|at| Mismatch::Value { at, n_wrong });
        let number = self.seen.call.experts.map(|experts| experts.node);
        self.report(slots.y, None, number, what, state);
        Ok(())
    }

    /// An expert's part, of `n` numbers, of a vector that accompanies the matrices.
    fn companion(
        &self,
        id: Option<WeightId>,
        expert: usize,
        n: usize,
    ) -> Result<Option<Vec<f32>>, NpuError> {
        let Some(id) = id else {
            return Ok(None);
        };
        let all = statics::vector(self.npu.model(), id)?;
        let part = all.get(expert * n..(expert + 1) * n);
        let missing = || NpuError::plan(&self.seen.call.set, "an expert without its companion");
        Ok(Some(part.ok_or_else(missing)?.to_vec()))
    }
}
