//! Runs a plan without data: the content of every buffer and of the host, by name.
//!
//! It shares no code with [`Buffers`]. Three faults are errors, reported with the step: a buffer loses a value before
//! its last reader, a step runs before its operands exist, or the host does not read a row that it needs.

use millrace_graph::{Graph, Op, SequenceMemory, ValueId};
use millrace_npu::Role;
use millrace_plan::{
    AttentionPart, Binding, BufferKind, Buffers, Call, HeadRows, HostMove, HostRows, HostStep,
    Phase, Plan, Step,
};
use std::collections::{HashMap, HashSet};

/// Content of a buffer.
#[derive(Clone, Debug, PartialEq)]
enum Content {
    /// Nothing that may be read.
    Garbage,
    /// The content of that binding.
    Is(Binding),
}

/// Content of buffers and of the host.
struct State<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
    buffers: &'a Buffers,
    content: Vec<Content>,
    /// Values that the host has, and the rows that it has of each.
    host: HashMap<ValueId, HostRows>,
    /// Layers whose cache has the pass's rows.
    appended: HashSet<usize>,
    /// By node, how often it was computed.
    n_computed: Vec<usize>,
    /// Scores that the host has, then probabilities: node and key-value head.
    scores: HashSet<(usize, usize)>,
    probabilities: HashSet<(usize, usize)>,
}

/// Checks that the plan computes every node once, with its operands present.
pub(crate) fn run(plan: &Plan, graph: &Graph, buffers: &Buffers) -> Result<(), String> {
    let mut state = State {
        plan,
        graph,
        buffers,
        content: vec![Content::Garbage; buffers.buffers.len()],
        host: HashMap::new(),
        appended: HashSet::new(),
        n_computed: vec![0; graph.nodes.len()],
        scores: HashSet::new(),
        probabilities: HashSet::new(),
    };
    let mut n_calls = 0;
    for (number, step) in plan.steps.iter().enumerate() {
        let done = match step {
            Step::Call(call) => {
                n_calls += 1;
                state.call(number, n_calls - 1, call)
            }
            Step::Host(host) => state.host(*host),
        };
        done.map_err(|problem| format!("step {number}, {step:?}: {problem}"))?;
    }
    let wanted = match plan.head {
        HeadRows::Last => HostRows::Last,
        HeadRows::All => HostRows::Real,
    };
    let logits = graph.logits.ok_or("no logits")?;
    state.needs(logits, wanted)?;
    match state.n_computed.iter().position(|n| *n != 1) {
        Some(node) => Err(format!(
            "node {node} is computed {} times",
            state.n_computed[node]
        )),
        None => Ok(()),
    }
}

fn is(what: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    match what {
        true => Ok(()),
        false => Err(problem()),
    }
}

impl State<'_> {
    fn needs(&self, value: ValueId, rows: HostRows) -> Result<(), String> {
        let has = self.host.get(&value);
        is(has.is_some_and(|has| *has >= rows), || {
            format!("value {} on the host: {has:?}, needed {rows:?}", value.0)
        })
    }

    fn call(&mut self, step: usize, index: usize, call: &Call) -> Result<(), String> {
        let slots = self.plan.programs[call.program].slots();
        let uses = self.buffers.calls[index].clone();
        is(
            uses.len() == slots.len() && call.bindings.len() == slots.len(),
            || "not one use and one binding a slot".to_owned(),
        )?;
        let distinct: HashSet<usize> = uses.iter().map(|used| used.buffer).collect();
        is(distinct.len() == uses.len(), || {
            "two slots share a buffer".to_owned()
        })?;
        let all = || uses.iter().zip(slots).zip(&call.bindings);
        for ((used, slot), binding) in all() {
            let buffer = &self.buffers.buffers[used.buffer];
            is(Some(buffer.size_bytes) == slot.size_bytes(), || {
                format!("{} bytes for {}", buffer.size_bytes, slot.name)
            })?;
            let is_cache = matches!(binding, Binding::Cache { .. });
            let is_fixed = slot.role == Role::Static || is_cache;
            let holds = match &buffer.kind {
                BufferKind::Static(content) => {
                    is_fixed && content == binding && call.experts.is_none()
                }
                BufferKind::Expert(content, n_experts) => {
                    let n = call.experts.map(|experts| experts.n_experts(self.graph));
                    is_fixed && content == binding && n == Some(*n_experts)
                }
                _ => !is_fixed,
            };
            is(holds, || {
                format!("{} in a buffer of {:?}", slot.name, buffer.kind)
            })?;
            self.takes(step, used.buffer, used.host, slot.role, binding)?;
        }
        if let Some(choice) = call.experts.and_then(|experts| experts.choice(self.graph)) {
            self.needs(choice, HostRows::All)?;
        }
        for ((used, slot), binding) in all() {
            match slot.role {
                // Of the last dispatch's expert.
                Role::Output if call.experts.is_some() => {
                    self.content[used.buffer] = Content::Garbage;
                }
                Role::Output => self.content[used.buffer] = Content::Is(binding.clone()),
                Role::Intermediate => self.content[used.buffer] = Content::Garbage,
                Role::Input | Role::Static => {}
            }
            if let HostMove::Read(rows) = used.host {
                is(slot.role == Role::Output, || {
                    "reads what is no output".to_owned()
                })?;
                self.read(binding, rows);
            }
        }
        let attends = |b: &Binding| matches!(b, Binding::AttentionProduct { .. });
        if !call.bindings.iter().any(attends) {
            for &node in &call.nodes {
                self.n_computed[node] += 1;
            }
        }
        Ok(())
    }

    /// Checks a slot before the program runs.
    fn takes(
        &mut self,
        step: usize,
        buffer: usize,
        host: HostMove,
        role: Role,
        binding: &Binding,
    ) -> Result<(), String> {
        match (role, binding) {
            (Role::Static, Binding::Cache { layer, .. }) => {
                return is(self.appended.contains(layer), || {
                    format!("the cache of layer {layer} has not the pass's rows")
                });
            }
            (Role::Intermediate, Binding::Cache { layer, .. }) => {
                let behind = self.plan.appended_behind(step);
                let before = self.appended.contains(layer);
                return is(!before && behind.contains(layer), || {
                    format!("the host's pages of layer {layer} have no rows behind the call")
                });
            }
            (Role::Input, _) => {}
            _ => return Ok(()),
        }
        if host == HostMove::Write {
            match binding {
                Binding::Value(value) | Binding::Packed { value, .. } => {
                    self.needs(*value, HostRows::All)?;
                }
                Binding::AttentionProduct {
                    node, kv_head, of, ..
                } => self.operand((*node, *kv_head), *of)?,
                _ => {}
            }
            // Gathered rows are not a value: the buffer must be written again before its next reader.
            let gathered = matches!(&self.plan.steps[step], Step::Call(c) if c.experts.is_some());
            if gathered {
                self.content[buffer] = Content::Garbage;
                return Ok(());
            }
            self.content[buffer] = Content::Is(binding.clone());
        }
        is(self.content[buffer] == Content::Is(binding.clone()), || {
            format!(
                "{binding:?} is read, buffer {buffer} has {:?}",
                self.content[buffer]
            )
        })
    }

    fn operand(&self, at: (usize, usize), of: AttentionPart) -> Result<(), String> {
        let SequenceMemory::KvCache(kv) = self.graph.nodes[at.0].op.memory() else {
            return Err("no attention".to_owned());
        };
        match of {
            AttentionPart::Queries(value) => self.needs(value, HostRows::All),
            AttentionPart::Keys | AttentionPart::Values => {
                is(self.appended.contains(&kv.layer), || {
                    "no rows in the cache".to_owned()
                })
            }
            AttentionPart::Probabilities => is(self.probabilities.contains(&at), || {
                "no softmax before".to_owned()
            }),
            AttentionPart::Scores | AttentionPart::Sums(_) => Err("a result as operand".to_owned()),
        }
    }

    fn read(&mut self, binding: &Binding, rows: HostRows) {
        match binding {
            Binding::AttentionProduct {
                node, kv_head, of, ..
            } => match of {
                AttentionPart::Scores => {
                    self.scores.insert((*node, *kv_head));
                }
                AttentionPart::Sums(value) => {
                    let Op::Attention(attention) = &self.graph.nodes[*node].op else {
                        return;
                    };
                    // Each head gives a share: the value is whole with the last.
                    if *kv_head + 1 == attention.n_kv_heads {
                        self.host.insert(*value, rows);
                        self.n_computed[*node] += 1;
                    }
                }
                _ => {}
            },
            _ => {
                if let Some(value) = binding.value() {
                    self.host.insert(value, rows);
                }
            }
        }
    }

    fn host(&mut self, step: HostStep) -> Result<(), String> {
        let needed = match step {
            HostStep::FinalNorm { .. } => HostRows::Last,
            HostStep::AppendKv { .. } | HostStep::Attention { .. } => HostRows::Real,
            _ => HostRows::All,
        };
        let needed = match self.plan.phase {
            Phase::Decode => HostRows::All,
            Phase::Prefill => needed,
        };
        for value in step.reads(self.graph) {
            self.needs(value, needed)?;
        }
        match step {
            HostStep::AppendKv { layer, .. } => {
                return is(self.appended.insert(layer), || "appended twice".to_owned());
            }
            HostStep::Softmax { node, kv_head, .. } => {
                is(self.scores.remove(&(node, kv_head)), || {
                    "no scores".to_owned()
                })?;
                self.probabilities.insert((node, kv_head));
                return Ok(());
            }
            HostStep::Attention { node } => {
                let SequenceMemory::KvCache(kv) = self.graph.nodes[node].op.memory() else {
                    return Err("no attention".to_owned());
                };
                is(self.appended.contains(&kv.layer), || {
                    "attends before it appends".to_owned()
                })?;
            }
            _ => {}
        }
        let node = step.node().ok_or("no node")?;
        self.n_computed[node] += 1;
        self.host
            .insert(self.graph.nodes[node].output, HostRows::All);
        Ok(())
    }
}
