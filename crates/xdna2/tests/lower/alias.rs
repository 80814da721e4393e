//! Buffers of plans: the content that each slot finds when its call runs, in random plans and real ones.

use crate::lower::{MODES, graph};
use millrace_graph::{Add, Graph, Node, Op, Value, ValueId, WeightId};
use millrace_npu::{Container, Element, Role, Slot};
use millrace_plan::Annex;
use millrace_xdna2::lower::{
    self, AttentionOn, Binding, BufferKind, Buffers, Call, HeadRows, HostMove, HostRows, HostStep,
    LowerOptions, Mode, Phase, Plan, PlannedProgram, Step, WeightLayout,
};
use millrace_xdna2_machine::Machine;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Content of a buffer, as a symbol.
#[derive(Clone, Debug, PartialEq)]
enum Tag {
    Nothing,
    Static,
    Bound(Binding),
}

/// Runs a plan on names instead of numbers. Every slot must find the value that it is bound to, and every host step the
/// rows that it computes with.
struct Run<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
    buffers: &'a Buffers,
    device: Vec<Tag>,
    host: HashMap<ValueId, HostRows>,
}

fn simulate(plan: &Plan, graph: &Graph, buffers: &Buffers) -> Result<(), String> {
    let tag = |b: &lower::PlannedBuffer| match b.kind {
        BufferKind::Static(_) => Tag::Static,
        _ => Tag::Nothing,
    };
    let mut run = Run {
        plan,
        graph,
        buffers,
        device: buffers.buffers.iter().map(tag).collect(),
        host: HashMap::new(),
    };
    let mut calls = 0;
    for step in &plan.steps {
        match step {
            Step::Host(step) => run.host(*step)?,
            Step::Call(call) => {
                run.call(call, calls)?;
                calls += 1;
            }
        }
    }
    // The logits of one token, for any number of rows.
    run.has(graph.logits, HostRows::Last, "the caller")
}

impl Run<'_> {
    fn has(&self, value: Option<ValueId>, rows: HostRows, who: &str) -> Result<(), String> {
        let Some(value) = value else { return Ok(()) };
        let held = self.host.get(&value);
        match held {
            Some(held) if *held >= rows => Ok(()),
            _ => Err(format!(
                "{who} needs {rows:?} of {value:?}, the host has {held:?}"
            )),
        }
    }

    fn host(&mut self, step: HostStep) -> Result<(), String> {
        let (rows, node) = match step {
            HostStep::AppendKv { .. } => (HostRows::Real, None),
            HostStep::Attention { node } => (HostRows::Real, Some(node)),
            HostStep::Softmax { .. } | HostStep::DeltaRows { .. } => (HostRows::All, None),
            HostStep::FinalNorm { node } => (HostRows::Last, Some(node)),
            HostStep::Embed { node } | HostStep::Linear { node, .. } | HostStep::Op { node } => {
                (HostRows::All, Some(node))
            }
        };
        for value in step.reads(self.graph) {
            self.has(Some(value), rows, &format!("{step:?}"))?;
        }
        if let Some(node) = node {
            self.host
                .insert(self.graph.nodes[node].output, HostRows::All);
        }
        Ok(())
    }

    fn call(&mut self, call: &Call, index: usize) -> Result<(), String> {
        let slots = self.plan.programs[call.program].slots();
        let uses = &self.buffers.calls[index];
        let distinct: HashSet<usize> = uses.iter().map(|u| u.buffer).collect();
        if distinct.len() != slots.len() || uses.len() != slots.len() {
            return Err(format!(
                "{}: {} slots in {distinct:?}",
                call.set,
                slots.len()
            ));
        }
        for ((slot, binding), used) in slots.iter().zip(&call.bindings).zip(uses) {
            let place = format!("{} {}", call.set, slot.name);
            let buffer = &self.buffers.buffers[used.buffer];
            if Some(buffer.size_bytes) != slot.size_bytes() {
                return Err(format!("{place}: a buffer of {} bytes", buffer.size_bytes));
            }
            let is_static = matches!(buffer.kind, BufferKind::Static(_));
            if is_static != (slot.role == Role::Static) {
                return Err(format!("{place}: {:?}", buffer.kind));
            }
            match (slot.role, used.host) {
                (Role::Static, HostMove::None) => {
                    if buffer.kind != BufferKind::Static(binding.clone()) {
                        return Err(format!("{place}: {:?}", buffer.kind));
                    }
                }
                (Role::Input, HostMove::Write) => {
                    if let Some(value) = binding.value() {
                        self.has(Some(value), HostRows::All, &place)?;
                    }
                    self.device[used.buffer] = Tag::Bound(binding.clone());
                }
                (Role::Input, HostMove::None) => {
                    let found = &self.device[used.buffer];
                    if *found != Tag::Bound(binding.clone()) {
                        return Err(format!("{place}: {found:?} for {binding:?}"));
                    }
                }
                (Role::Intermediate, HostMove::None) | (Role::Output, _) => {}
                (role, host) => return Err(format!("{place}: {role:?} {host:?}")),
            }
        }
        for ((slot, binding), used) in slots.iter().zip(&call.bindings).zip(uses) {
            match slot.role {
                Role::Output => self.device[used.buffer] = Tag::Bound(binding.clone()),
                Role::Intermediate => self.device[used.buffer] = Tag::Nothing,
                Role::Static | Role::Input => {}
            }
            match (used.host, binding.value()) {
                (HostMove::Read(rows), Some(value)) => {
                    self.host.insert(value, rows);
                }
                (HostMove::Read(_), None) => return Err(format!("{binding:?} is read")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Checks the buffers of a plan, with and without aliasing.
fn check(plan: &Plan, graph: &Graph) {
    for alias in [false, true] {
        let plan = &Plan {
            alias,
            ..plan.clone()
        };
        let buffers = Buffers::of(plan, graph);
        let result = simulate(plan, graph, &buffers);
        result.unwrap_or_else(|problem| panic!("alias {alias}: {problem}"));
        assert_eq!(buffers, Buffers::of(plan, graph));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

const N_TOKENS: u64 = 4;

/// A plan of calls and host steps on random values: old ones are read again late, some are never read,
/// sizes are few so that buffers are reused.
fn random_plan(random: &mut Random) -> (Plan, Graph) {
    let mut graph = Graph::default();
    let mut plan = Plan {
        phase: Phase::Prefill,
        n_tokens: N_TOKENS,
        alias: true,
        head: HeadRows::Last,
        programs: Vec::new(),
        steps: Vec::new(),
        placement: Vec::new(),
        single_row: Vec::new(),
    };
    fn value(graph: &mut Graph, random: &mut Random) -> ValueId {
        let width = 1 + random.below(2);
        graph.values.push(Value { width });
        ValueId(graph.values.len() - 1)
    }
    fn host(graph: &mut Graph, inputs: Vec<ValueId>, output: ValueId) -> usize {
        graph.nodes.push(Node {
            op: Op::Add(Add),
            inputs,
            output,
            layer: None,
            label: "host",
        });
        graph.nodes.len() - 1
    }
    let first = value(&mut graph, random);
    let node = host(&mut graph, Vec::new(), first);
    plan.steps.push(Step::Host(HostStep::Embed { node }));
    for index in 0..2 + random.below(12) {
        let mut known: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
        if random.one_in(4) {
            let inputs = vec![known[random.below(known.len())]];
            let output = value(&mut graph, random);
            let node = host(&mut graph, inputs.clone(), output);
            plan.steps.push(Step::Host(match random.below(3) {
                0 => HostStep::Op { node },
                1 => HostStep::FinalNorm { node },
                _ => HostStep::AppendKv {
                    layer: 0,
                    k: inputs[0],
                    v: inputs[0],
                },
            }));
            // A cache is not a value.
            if let Some(Step::Host(HostStep::AppendKv { .. })) = plan.steps.last() {
                let node = host(&mut graph, Vec::new(), output);
                plan.steps.push(Step::Host(HostStep::Embed { node }));
            }
            continue;
        }
        let (mut slots, mut bindings) = (Vec::new(), Vec::new());
        let mut add = |role: Role, binding: Binding, width: usize| {
            slots.push(Slot {
                name: format!("s{}", slots.len()),
                element: Element::Bf16,
                shape: vec![N_TOKENS, width as u64],
                role,
            });
            bindings.push(binding);
        };
        for _ in 0..1 + random.below(3) {
            if known.is_empty() {
                break;
            }
            let input = known.swap_remove(random.below(known.len()));
            add(
                Role::Input,
                Binding::Value(input),
                graph.values[input.0].width,
            );
        }
        for _ in 0..random.below(3) {
            add(Role::Intermediate, Binding::Scratch, 1 + random.below(2));
        }
        for _ in 0..random.below(3) {
            let weight = WeightId(random.below(3));
            let layout = WeightLayout::AsStored { half_split: None };
            add(Role::Static, Binding::Weight { weight, layout }, 1);
        }
        for _ in 0..1 + random.below(2) {
            let output = value(&mut graph, random);
            add(
                Role::Output,
                Binding::Value(output),
                graph.values[output.0].width,
            );
        }
        plan.steps.push(Step::Call(Call {
            program: plan.programs.len(),
            set: format!("set {index}"),
            bindings,
            nodes: Vec::new(),
            experts: None,
        }));
        let container = Container::new("xdna2", &format!("p{index}"), slots, Vec::new());
        plan.programs.push(PlannedProgram {
            container: Arc::new(container.unwrap()),
            launches: Vec::new(),
            annex: Annex::default(),
        });
    }
    graph.logits = Some(ValueId(random.below(graph.values.len())));
    (plan, graph)
}

/// The fewest buffers of each size: as many as are in use at once at some call.
fn most_at_once(plan: &Plan, buffers: &Buffers) -> HashMap<u64, usize> {
    // Slots with the same register and nothing written between them are one life.
    let mut lives: Vec<(usize, usize, usize)> = Vec::new();
    let mut current: HashMap<usize, usize> = HashMap::new();
    for (index, (call, uses)) in plan.calls().zip(&buffers.calls).enumerate() {
        let slots = plan.programs[call.program].slots();
        for (slot, used) in slots.iter().zip(uses) {
            match (slot.role, used.host) {
                (Role::Static, _) => {}
                (Role::Input, HostMove::None) => lives[current[&used.buffer]].2 = index,
                _ => {
                    current.insert(used.buffer, lives.len());
                    lives.push((used.buffer, index, index));
                }
            }
        }
    }
    let mut most = HashMap::new();
    for index in 0..buffers.calls.len() {
        let mut now: HashMap<u64, usize> = HashMap::new();
        let alive = lives.iter().filter(|(_, a, b)| (*a..=*b).contains(&index));
        alive.for_each(|(b, ..)| *now.entry(buffers.buffers[*b].size_bytes).or_default() += 1);
        for (size, n) in now {
            let most = most.entry(size).or_insert(0);
            *most = n.max(*most);
        }
    }
    most
}

#[test]
fn slots_of_random_plans_find_what_they_should() {
    let mut random = Random(7);
    for _ in 0..2000 {
        let (plan, graph) = random_plan(&mut random);
        check(&plan, &graph);
        let buffers = Buffers::of(&plan, &graph);
        let mut made: HashMap<u64, usize> = HashMap::new();
        for buffer in &buffers.buffers {
            if !matches!(buffer.kind, BufferKind::Static(_)) {
                *made.entry(buffer.size_bytes).or_default() += 1;
            }
        }
        assert_eq!(made, most_at_once(&plan, &buffers));
    }
}

/// The check above finds a value overwritten too early, a forgotten write and a forgotten read.
#[test]
fn the_simulation_finds_mistakes() {
    let graph = graph("llama-tiny", Some(2));
    let options = LowerOptions::new(Mode::MlirAir, 64);
    let mut plan = lower::prefill(&graph, &Machine::npu2(), &options).unwrap();
    plan.alias = true;
    let good = Buffers::of(&plan, &graph);
    assert_eq!(simulate(&plan, &graph, &good), Ok(()));
    let calls: Vec<&Call> = plan.calls().collect();
    let slot = |call: usize, name: &str| {
        let slots = plan.programs[calls[call].program].slots();
        slots.iter().position(|s| s.name == name).unwrap()
    };
    // Attention writes where the residual waits for the second half of the block.
    let mut wrong = good.clone();
    let residual = good.calls[2][slot(2, "x_residual")].buffer;
    let out = plan.programs[calls[1].program].slots().len() - 1;
    wrong.calls[1][out].buffer = residual;
    assert!(simulate(&plan, &graph, &wrong).is_err());
    let mut wrong = good.clone();
    assert_eq!(wrong.calls[0][0].host, HostMove::Write);
    wrong.calls[0][0].host = HostMove::None;
    assert!(simulate(&plan, &graph, &wrong).is_err());
    let mut wrong = good.clone();
    let read = |used: &lower::SlotUse| matches!(used.host, HostMove::Read(_));
    let k = wrong.calls[0].iter().position(read);
    wrong.calls[0][k.unwrap()].host = HostMove::None;
    assert!(simulate(&plan, &graph, &wrong).is_err());
}

/// Every geometry, phase, mode and place of attention.
#[test]
fn slots_of_real_plans_find_what_they_should() {
    for name in [
        "llama-tiny",
        "gemma-tiny",
        "qwen-tiny",
        "llama-3.2-1b",
        "gemma-3-1b",
    ] {
        let graph = graph(name, Some(3));
        for mode in MODES {
            for attention in [AttentionOn::Device, AttentionOn::Host] {
                let options = LowerOptions {
                    attention,
                    ..LowerOptions::new(mode, 64)
                };
                check(
                    &lower::prefill(&graph, &Machine::npu2(), &options).unwrap(),
                    &graph,
                );
            }
            let options = LowerOptions::new(mode, 64);
            check(
                &lower::decode(&graph, &Machine::npu2(), &options).unwrap(),
                &graph,
            );
        }
    }
}
