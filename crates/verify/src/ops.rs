//! The numerics bisect: every op of a pass in isolation, on the device's own operands.
//!
//! End results show that a device is wrong, not where: an error in one op is in everything after it. So after every
//! dispatch each of its ops is computed again on the host in f64. The operands are the very bytes the device had in the
//! op's slots (intermediate ones too). The device's result must be within the tolerance that the op's rounding points
//! allow (`ops/rule.rs` states the formulas). An op that passes is right for any operands; the first that fails is the
//! defect. Bytes that are only moved must not change at all. Weights and tables move from the checkpoint into their
//! slots. Values move from the call or host step that made them to the call that takes them. Rows of the cache move
//! from the sequence's pages. The expected content of weights and tables comes from `ops/statics.rs`, not from the code
//! that fills the slots.

mod attention_products;
mod bias;
mod cache;
mod delta_net;
mod experts;
mod finding;
mod own;
mod plain;
mod result;
mod rule;
mod statics;

pub use finding::{CheckSummary, Finding, Mismatch};
use millrace_graph::{Graph, Op, ValueId};
use millrace_npu::{Element, Role, Slot};
use millrace_plan::{Binding, PlannedLaunch, Step, WeightLayout, cache_element};
use millrace_runtime::npu::{NpuError, NpuModel, Observation, Observer};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Looks at every dispatch of a session until something is wrong.
pub struct OpCheck {
    state: Arc<Mutex<OpsState>>,
}

#[derive(Default)]
struct OpsState {
    summary: CheckSummary,
    /// Values that calls of this pass returned.
    given: HashMap<ValueId, (Element, Vec<u8>)>,
    /// Scores from the last product of queries and keys.
    scores: Vec<f32>,
    /// States that calls returned.
    states: Vec<delta_net::KeptState>,
    /// Buffer sets whose static slots were checked, with the position that their tables are for.
    static_seen: HashSet<(String, usize)>,
    /// Calls of this pass so far.
    n_calls: usize,
    failed: Option<NpuError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpCheck {
    /// A check of the model's sessions, and the observer to [observe](millrace_runtime::npu::NpuSession::observe) one
    /// with.
    pub fn new(npu: &Arc<NpuModel>) -> (OpCheck, Observer) {
        let state = Arc::new(Mutex::new(OpsState::default()));
        let (shared, npu) = (state.clone(), npu.clone());
        let observer = Box::new(move |seen: &Observation<'_>| {
            let mut state = lock(&shared);
            if state.summary.finding.is_some() || state.failed.is_some() {
                return;
            }
            let check = CallCheck { npu: &npu, seen };
            if let Err(error) = check.call(&mut state) {
                state.failed = Some(error);
            }
        });
        (OpCheck { state }, observer)
    }

    /// Findings so far.
    ///
    /// # Errors
    /// If slots could not be inspected.
    pub fn summary(&self) -> Result<CheckSummary, NpuError> {
        let mut state = lock(&self.state);
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.summary.clone()),
        }
    }
}

/// One dispatch.
struct CallCheck<'a> {
    npu: &'a NpuModel,
    seen: &'a Observation<'a>,
}

impl CallCheck<'_> {
    fn call(&self, state: &mut OpsState) -> Result<(), NpuError> {
        let (plan, call) = (self.seen.plan, self.seen.call);
        let steps = plan.steps.iter();
        let position = steps.enumerate().filter_map(|(step, s)| match s {
            Step::Call(c) => Some((step, c)),
            Step::Host(_) => None,
        });
        let found = position.enumerate().find(|(_, (_, c))| c.set == call.set);
        let Some((index, (step, _))) = found else {
            return Err(NpuError::plan(&call.set, "no call of its plan"));
        };
        if index == 0 {
            state.given.clear();
        }
        state.n_calls = index;
        if let Some(product) = self.head_product() {
            return self.head_product_call(&product, state);
        }
        if let Some(dispatch) = self.seen.expert {
            return self.expert_dispatch(dispatch, state);
        }
        self.moved(state)?;
        self.states_of_prompt(state);
        let graph = self.graph();
        let values = plan.slot_values(step, graph);
        let mut seen = HashSet::new();
        let mut appended = self.appends();
        for (launch, nodes) in plan.launches_at(step) {
            let Some(launch) = plan.programs[call.program].launches.get(launch) else {
                return Err(NpuError::plan(&call.set, "a launch beyond its program"));
            };
            for part in 0..launch.results().len() {
                // Parts of the head all belong to one node; in a launch of several ops, the slot tells whose result it is.
                let result = launch.results()[part];
                let bound = call.bindings.get(result).and_then(Binding::value);
                let gives = |n: &&usize| graph.nodes.get(**n).map(|n| n.output) == bound;
                let own = nodes.iter().find(gives).copied();
                let number = own.unwrap_or(nodes[part.min(nodes.len() - 1)]);
                if seen.insert(number) {
                    state.summary.n_ops += 1;
                }
                if let Some(Op::Attention(a)) = graph.nodes.get(number).map(|node| &node.op) {
                    self.appended(&mut appended, Some(a.layer), state)?;
                }
                if state.summary.finding.is_some() {
                    continue;
                }
                match self.delta_slots(launch) {
                    Some(slots) => self.delta_net(number, launch, slots, state)?,
                    None => self.op(number, launch, part, &values, state)?,
                }
            }
        }
        self.biases(state)?;
        self.appended(&mut appended, None, state)?;
        self.keep_given(state)
    }

    fn graph(&self) -> &Graph {
        &self.npu.model().model().graph
    }

    fn bytes(&self, slot: usize) -> Result<Vec<u8>, NpuError> {
        Ok(self.seen.cache.peek(self.seen.key, slot)?)
    }

    /// A slot's numbers, exactly as the device has them: f32 holds every number of the slots'
    /// types.
    fn values(&self, slot: usize) -> Result<Vec<f32>, NpuError> {
        let bytes = self.bytes(slot)?;
        let declared = &self.slots()[slot];
        let element = match self.seen.call.bindings.get(slot) {
            Some(Binding::Cache { .. }) => cache_element(declared),
            _ => declared.element,
        };
        let numbers: Vec<f32> = match element {
            Element::Bf16 => {
                let numbers = bytes.chunks_exact(2).map(|x| [0, 0, x[0], x[1]]);
                numbers.map(f32::from_le_bytes).collect()
            }
            _ => {
                let numbers = bytes.chunks_exact(element.size_bytes() as usize);
                let number = |x: &[u8]| element.number(x).unwrap_or(f64::NAN) as f32;
                numbers.map(number).collect()
            }
        };
        Ok(self.in_order(slot, numbers))
    }

    /// The slots of the call's program.
    fn slots(&self) -> &[Slot] {
        self.seen.plan.programs[self.seen.call.program].slots()
    }

    /// Number of rows of a value without padding.
    fn n_rows(&self, value: ValueId) -> usize {
        let n_rows = self.seen.plan.n_rows(value) as usize;
        n_rows.min(self.seen.n_real)
    }

    /// Bytes that the program found: weights, tables, and values of earlier calls and of the host.
    fn moved(&self, state: &mut OpsState) -> Result<(), NpuError> {
        let (call, first) = (self.seen.call, self.seen.first);
        let slots = self.slots();
        let statics = state.static_seen.insert((self.seen.key.to_owned(), first));
        for (slot, binding) in call.bindings.iter().enumerate() {
            let role = slots[slot].role;
            match binding {
                Binding::Weight {
                    layout: WeightLayout::Own { .. },
                    ..
                } => {
                    if role == Role::Static && !statics {
                        continue;
                    }
                    state.summary.n_moved += 1;
                    let what = self.own_weight(slot, binding)?;
                    self.report(slot, None, None, what, state);
                }
                Binding::Weight { .. } | Binding::RopeTable { .. } if role == Role::Static => {
                    if !statics {
                        continue;
                    }
                    let found = self.bytes(slot)?;
                    let expected = self.static_slot(binding, slots[slot].element, first, &found)?;
                    let wrong = |(at, n_wrong)| Mismatch::Static { at, n_wrong };
                    state.summary.n_moved += 1;
                    let what = differs(&expected, &found).map(wrong);
                    self.report(slot, None, None, what, state);
                }
                Binding::Value(_) if self.seen.expert.is_some() => {}
                Binding::Value(value) if role == Role::Input => {
                    self.report_value(slot, *value, state)?;
                }
                Binding::Cache { layer, of } if role == Role::Static => {
                    self.report_cache(slot, (*layer, *of, None), state)?;
                }
                Binding::CacheRange { layer, of, range } => {
                    let start = range.start(self.seen.first);
                    self.report_cache(slot, (*layer, *of, Some(start)), state)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A value on its way from the call or host step that gave it.
    fn report_value(
        &self,
        slot: usize,
        value: ValueId,
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let element = self.slots()[slot].element;
        // If the two slots have different element types, the host rounded in between.
        let given = state.given.get(&value).filter(|(e, _)| *e == element);
        let written = || {
            let values = self.seen.written(slot)?.iter();
            let values: Vec<f32> = values.map(|x| x.to_f32()).collect();
            Some(statics::encode(&values, element))
        };
        let given = given.map(|(_, given)| given.clone());
        let Some(given) = given.or_else(written) else {
            return Ok(());
        };
        let width = self.graph().values[value.0].width;
        let size = element.size_bytes() as usize;
        let n_bytes = size * width * self.n_rows(value);
        let found = self.bytes(slot)?;
        let rows = given.get(..n_bytes).zip(found.get(..n_bytes));
        let wrong = |(at, n_wrong)| Mismatch::Value { at, n_wrong };
        let differs = rows.map(|(given, found)| differs(given, found));
        // A slot too small for its value differs from its end on.
        let what = differs.unwrap_or(Some((found.len(), n_bytes))).map(wrong);
        state.summary.n_moved += 1;
        let node = self.graph().nodes.iter().position(|n| n.output == value);
        self.report(slot, None, node, what, state);
        Ok(())
    }

    /// Checks the content of a weight's or table's slot.
    fn static_slot(
        &self,
        binding: &Binding,
        element: Element,
        first: usize,
        found: &[u8],
    ) -> Result<Vec<u8>, NpuError> {
        let encode = |values: &[f32]| statics::encode(values, element);
        Ok(match binding {
            Binding::Weight { weight, layout } => {
                let matrix = (*weight, self.matrix());
                encode(&statics::weight(self.npu.model(), matrix, layout)?)
            }
            Binding::RopeTable { rope, rows } => {
                let size = element.size_bytes() as usize;
                let numbers = found.chunks_exact(size).map(|x| element.number(x));
                let found: Vec<f64> = numbers.map(|x| x.unwrap_or(f64::NAN)).collect();
                encode(&statics::table(
                    &self.graph().ropes[rope.0],
                    *rows,
                    first,
                    &found,
                ))
            }
            _ => Vec::new(),
        })
    }

    /// Keeps the values that this call returned, for the calls that take them.
    fn keep_given(&self, state: &mut OpsState) -> Result<(), NpuError> {
        let call = self.seen.call;
        let slots = self.slots();
        for (slot, binding) in call.bindings.iter().enumerate() {
            if let Binding::Value(value) = binding
                && slots[slot].role == Role::Output
            {
                let given = (slots[slot].element, self.bytes(slot)?);
                state.given.insert(*value, given);
            }
        }
        Ok(())
    }

    fn report(
        &self,
        slot: usize,
        launch: Option<&PlannedLaunch>,
        node: Option<usize>,
        what: Option<Mismatch>,
        state: &mut OpsState,
    ) {
        let (Some(what), None) = (what, &state.summary.finding) else {
            return;
        };
        let (plan, call) = (self.seen.plan, self.seen.call);
        let program = &plan.programs[call.program];
        let op = node.and_then(|node| self.graph().nodes.get(node));
        state.summary.finding = Some(Finding {
            phase: plan.phase,
            first: self.seen.first,
            call: state.n_calls,
            program: program.name().to_owned(),
            set: self.seen.key.to_owned(),
            launch: launch.map(|launch| launch.name.clone()),
            slot,
            slot_name: program.slots()[slot].name.clone(),
            op: op.map(|node| node.label),
            node,
            layer: op.and_then(|node| node.layer),
            what,
        });
    }
}

/// The first byte that differs, and how many do; one that only one of the two has differs too.
fn differs(expected: &[u8], found: &[u8]) -> Option<(usize, usize)> {
    if expected.len() != found.len() {
        let (less, more) = (
            expected.len().min(found.len()),
            expected.len().max(found.len()),
        );
        return Some((less, more - less));
    }
    let mut wrong = (expected.iter().zip(found).enumerate()).filter(|(_, (a, b))| a != b);
    let first = wrong.next()?.0;
    Some((first, 1 + wrong.count()))
}
