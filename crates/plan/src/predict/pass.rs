//! One pass of a plan, step by step.

use super::work::{self, PartCost, Rate};
use super::{HostWork, PriceError, Pricer, ProgramCost};
use crate::{
    Binding, Buffers, Call, Chunk, Edge, End, HostMove, HostStep, Phase, Plan, PlannedProgram, Step,
};
use millrace_graph::Graph;
use millrace_npu::{Energy, Role};
use serde::Serialize;

/// Cost of a pass.
#[derive(Clone, Debug, Serialize)]
pub struct PassCost {
    /// `prefill` or `decode`.
    pub phase: &'static str,
    /// The tokens.
    #[serde(flatten)]
    pub chunk: Chunk,
    /// Programs, in the order of their first call.
    pub programs: Vec<ProgramCost>,
    /// Steps in order.
    pub steps: Vec<StepCost>,
    /// Share of the model's parts in the NPU runs.
    pub parts: Vec<PartCost>,
    /// Sums over the steps.
    pub totals: Totals,
    /// Energy while the array runs, where the profile states powers. Rails are never added.
    pub energy: Option<Energy>,
}

/// A step.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StepCost {
    /// A dispatch.
    Call(CallCost),
    /// Work of the host.
    Host(HostCost),
}

/// A call, of one dispatch or, for experts, of several: `ns = call_ns + write_ns + run_ns + read_ns`, each of all
/// dispatches.
#[derive(Clone, Debug, Serialize)]
pub struct CallCost {
    /// Key of the buffer set.
    pub set: String,
    /// Index in [`PassCost::programs`].
    pub program: usize,
    /// Dispatches; for experts the average number ([`Call::dispatches`]).
    pub n_dispatches: u64,
    /// The transformer block of its first node.
    pub layer: Option<usize>,
    /// Time since the pass's start.
    pub start_ns: f64,
    /// Time in all.
    pub ns: f64,
    /// The call on the host, beside buffers and run.
    pub call_ns: f64,
    /// BO write: copying and syncing the slots that it reads.
    pub write_ns: f64,
    /// NPU run, its dispatch included.
    pub run_ns: f64,
    /// The part of the run that loads the program's cores, because another program's were there.
    pub switch_ns: f64,
    /// BO read: syncing the slots that it wrote.
    pub read_ns: f64,
    /// Bytes that cross.
    #[serde(flatten)]
    pub crossing: Crossing,
    /// Bytes of its weights and tables.
    pub static_bytes: u64,
}

/// Bytes of a call's slots that the host writes before it and reads after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// Written and synced to the device.
    pub written_bytes: u64,
    /// Synced from the device and read.
    pub read_bytes: u64,
    /// The part of both for values on their way from one call to another: once down, and once up for each taker.
    pub relayed_bytes: u64,
}

/// A step of the host.
#[derive(Clone, Debug, Serialize)]
pub struct HostCost {
    /// Kind of step: `embed`, `append_kv`, `attention`, …
    pub name: &'static str,
    /// The transformer block.
    pub layer: Option<usize>,
    /// Time since the pass's start.
    pub start_ns: f64,
    /// Duration.
    pub ns: f64,
    /// Bytes of its operands.
    pub bytes: u64,
}

/// Sums over a pass. `total_ns = call_ns + write_ns + run_ns + read_ns + host_ns`, and
/// `run_ns = dispatch_ns + load_ns + launches_ns`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Dispatches; those of experts are averages.
    pub n_calls: u64,
    /// Kernels in them.
    pub n_launches: u64,
    /// Time from the first step to the last.
    pub total_ns: f64,
    /// NPU runs.
    pub run_ns: f64,
    /// The part of the runs in which launches work.
    pub launches_ns: f64,
    /// The part of the runs that loads core programs.
    pub load_ns: f64,
    /// The part of the runs for the dispatch itself.
    pub dispatch_ns: f64,
    /// BO writes.
    pub write_ns: f64,
    /// BO reads.
    pub read_ns: f64,
    /// Calls on the host.
    pub call_ns: f64,
    /// Steps of the host.
    pub host_ns: f64,
    /// `call_ns + dispatch_ns + load_ns`: the time that fewer, larger dispatches would save.
    pub overhead_ns: f64,
    /// Bytes that cross.
    #[serde(flatten)]
    pub crossing: Crossing,
    /// Bytes of weights and tables, once for each call.
    pub static_bytes: u64,
    /// Bytes that the array reads from DDR.
    pub ddr_read_bytes: f64,
    /// Bytes that it writes.
    pub ddr_write_bytes: f64,
    /// U_mem^rd over the pass: `static_bytes` over time and the machine's peak.
    pub u_mem_rd: f64,
    /// `ddr_read_bytes` over the array's time and the profile's attainable rate.
    pub ddr_utilization: f64,
    /// Share of the cores times the pass in which they compute.
    pub core_utilization: f64,
    /// Operations of all calls, and their rate over the pass, host included.
    #[serde(flatten)]
    pub rate: Rate,
    /// Their rate over the NPU runs alone.
    pub run_flops_per_s: f64,
}

/// Cost of a pass of a plan.
pub(super) fn cost(
    plan: &Plan,
    graph: &Graph,
    pricer: &mut dyn Pricer,
    chunk: Chunk,
) -> Result<PassCost, PriceError> {
    let mut programs = Vec::new();
    for planned in &plan.programs {
        programs.push(pricer.program(planned)?);
    }
    let mut pricing = PassPricing {
        host: HostWork { graph, plan, chunk },
        programs,
        // Passes follow each other, so the last call of a pass precedes the first of the next.
        before: plan.calls().last().map(|call| call.program),
        now_ns: 0.0,
    };
    let mut crossings = crossings(plan, graph, chunk.n_tokens).into_iter();
    let mut steps = Vec::new();
    for step in &plan.steps {
        let cost = match step {
            Step::Call(call) => {
                let crossing = crossings.next().unwrap_or_default();
                StepCost::Call(pricing.call(call, crossing, pricer))
            }
            Step::Host(step) => StepCost::Host(pricing.host_step(*step, pricer)),
        };
        pricing.now_ns += cost.ns();
        steps.push(cost);
    }
    let programs = pricing.programs;
    let totals = totals(&programs, &steps, pricer);
    Ok(PassCost {
        phase: match plan.phase {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        },
        energy: pricer.energy(totals.run_ns.round() as u64),
        parts: work::parts(&programs, totals.run_ns, pricer.machine().peak_flops_per_s),
        chunk,
        programs,
        steps,
        totals,
    })
}

/// A pass while its steps are priced one after the other.
struct PassPricing<'a> {
    host: HostWork<'a>,
    programs: Vec<ProgramCost>,
    /// The program of the call before.
    before: Option<usize>,
    /// Time since the pass's start.
    now_ns: f64,
}

impl PassPricing<'_> {
    fn call(&mut self, call: &Call, crossing: Crossing, pricer: &mut dyn Pricer) -> CallCost {
        let n = call.dispatches(self.host.graph, self.host.chunk.n_tokens);
        let part = pricer.call(&self.host, call, crossing);
        let all = |ns: f64| n as f64 * ns;
        let (call_ns, write_ns) = (all(part.call_ns), all(part.write_ns));
        let read_ns = all(part.read_ns);
        let program = self.programs.get_mut(call.program);
        let same = self.before.replace(call.program) == Some(call.program);
        let (run_ns, switch_ns) = program.map_or((0.0, 0.0), |program| {
            program.calls += n;
            let switch_ns = if same { 0.0 } else { program.switch_ns };
            (n as f64 * program.run_ns + switch_ns, switch_ns)
        });
        let first = call.nodes.first();
        let first = first.and_then(|n| self.host.graph.nodes.get(*n));
        CallCost {
            set: call.set.clone(),
            program: call.program,
            n_dispatches: n,
            layer: first.and_then(|node| node.layer),
            start_ns: self.now_ns,
            ns: call_ns + write_ns + run_ns + read_ns,
            call_ns,
            write_ns,
            run_ns,
            switch_ns,
            read_ns,
            crossing: crossing.times(n),
            static_bytes: n * static_bytes(self.host.plan, call),
        }
    }

    fn host_step(&self, step: HostStep, pricer: &mut dyn Pricer) -> HostCost {
        HostCost {
            name: name(step, self.host.graph),
            layer: layer(step, self.host.graph),
            start_ns: self.now_ns,
            ns: pricer.step_ns(&self.host, step),
            bytes: self.host.bytes(step),
        }
    }
}

impl StepCost {
    /// Time since the pass's start.
    pub fn start_ns(&self) -> f64 {
        match self {
            StepCost::Call(call) => call.start_ns,
            StepCost::Host(host) => host.start_ns,
        }
    }

    /// Duration.
    pub fn ns(&self) -> f64 {
        match self {
            StepCost::Call(call) => call.ns,
            StepCost::Host(host) => host.ns,
        }
    }
}

impl PassCost {
    /// The dispatches in order.
    pub fn calls(&self) -> impl Iterator<Item = &CallCost> {
        self.steps.iter().filter_map(|step| match step {
            StepCost::Call(call) => Some(call),
            StepCost::Host(_) => None,
        })
    }

    /// The host's steps in order.
    pub fn host_steps(&self) -> impl Iterator<Item = &HostCost> {
        self.steps.iter().filter_map(|step| match step {
            StepCost::Host(host) => Some(host),
            StepCost::Call(_) => None,
        })
    }
}

fn totals(programs: &[ProgramCost], steps: &[StepCost], pricer: &dyn Pricer) -> Totals {
    let machine = pricer.machine();
    let mut t = Totals::default();
    let (mut busy_ns, mut flops) = (0.0, 0);
    for step in steps {
        t.total_ns += step.ns();
        match step {
            StepCost::Host(host) => t.host_ns += host.ns,
            StepCost::Call(call) => {
                let n = call.n_dispatches;
                t.n_calls += n;
                t.call_ns += call.call_ns;
                t.write_ns += call.write_ns;
                t.run_ns += call.run_ns;
                t.read_ns += call.read_ns;
                t.crossing.add(call.crossing);
                t.static_bytes += call.static_bytes;
                let Some(program) = programs.get(call.program) else {
                    continue;
                };
                t.dispatch_ns += n as f64 * program.dispatch_ns;
                t.load_ns += n as f64 * program.load_ns + call.switch_ns;
                t.n_launches += n * program.launches.len() as u64;
                flops += n * program.rate.flops;
                for launch in &program.launches {
                    let ns = n as f64 * launch.ns;
                    t.launches_ns += ns;
                    t.ddr_read_bytes += n as f64 * launch.ddr_read_bytes;
                    t.ddr_write_bytes += n as f64 * launch.ddr_write_bytes;
                    busy_ns += ns * launch.utilization;
                }
            }
        }
    }
    t.overhead_ns = t.call_ns + t.dispatch_ns + t.load_ns;
    let over = |x: f64, ns: f64| if ns > 0.0 { x / ns } else { 0.0 };
    let peak = machine.ddr_bytes_per_s / 1e9;
    t.u_mem_rd = over(t.static_bytes as f64 / peak, t.total_ns);
    let attained = machine.attained_bytes_per_s / 1e9;
    t.ddr_utilization = over(t.ddr_read_bytes / attained, t.run_ns);
    t.core_utilization = over(busy_ns, t.total_ns);
    t.rate = Rate::new(flops, t.total_ns, machine.peak_flops_per_s);
    t.run_flops_per_s = over(flops as f64 * 1e9, t.run_ns);
    t
}

impl Crossing {
    /// Traffic of so many dispatches.
    fn times(self, n: u64) -> Crossing {
        Crossing {
            written_bytes: n * self.written_bytes,
            read_bytes: n * self.read_bytes,
            relayed_bytes: n * self.relayed_bytes,
        }
    }

    fn add(&mut self, other: Crossing) {
        self.written_bytes += other.written_bytes;
        self.read_bytes += other.read_bytes;
        self.relayed_bytes += other.relayed_bytes;
    }
}

/// Bytes that cross, by call.
fn crossings(plan: &Plan, graph: &Graph, n_real: u64) -> Vec<Crossing> {
    let buffers = Buffers::of(plan, graph);
    let edges = plan.edges(graph);
    let steps = plan.steps.iter().enumerate();
    let calls = steps.filter_map(|(number, step)| match step {
        Step::Call(call) => Some((number, call)),
        Step::Host(_) => None,
    });
    let crossing = |(index, (step, call)): (usize, (usize, &Call))| {
        let traffic = buffers.traffic(plan, index, n_real);
        Crossing {
            written_bytes: traffic.written_bytes,
            read_bytes: traffic.read_bytes,
            relayed_bytes: relayed_bytes(plan, call, (step, index), &edges, &buffers),
        }
    };
    calls.enumerate().map(crossing).collect()
}

/// Bytes of the static slots without a sequence's cache.
fn static_bytes(plan: &Plan, call: &Call) -> u64 {
    let slots = plan.programs.get(call.program).map(PlannedProgram::slots);
    let slots = slots.unwrap_or_default().iter().zip(&call.bindings);
    let counted = slots.filter(|(slot, binding)| {
        slot.role == Role::Static && !matches!(binding, Binding::Cache { .. })
    });
    counted.filter_map(|(slot, _)| slot.size_bytes()).sum()
}

/// Bytes of a call's slots for values that pass from call to call through the host: a value is read after one call and
/// written before others.
fn relayed_bytes(
    plan: &Plan,
    call: &Call,
    (step, index): (usize, usize),
    edges: &[Edge],
    buffers: &Buffers,
) -> u64 {
    let Some(planned) = plan.programs.get(call.program) else {
        return 0;
    };
    let moved = |end: &End| {
        let call = plan.steps.iter().take(end.step);
        let call = call.filter(|s| matches!(s, Step::Call(_))).count();
        let used = buffers.calls.get(call).and_then(|uses| uses.get(end.slot));
        used.is_some_and(|used| used.host == HostMove::Write)
    };
    let uses = buffers.calls.get(index).map_or(&[][..], Vec::as_slice);
    let mut bytes = 0;
    for (slot, (declared, used)) in planned.slots().iter().zip(uses).enumerate() {
        let end = End { step, slot };
        let relays = match used.host {
            HostMove::None => false,
            HostMove::Write => edges.iter().any(|e| e.to.contains(&end)),
            HostMove::Read(_) => edges
                .iter()
                .any(|e| e.from == end && e.to.iter().any(moved)),
        };
        bytes += if relays {
            declared.size_bytes().unwrap_or(0)
        } else {
            0
        };
    }
    bytes
}

fn name(step: HostStep, graph: &Graph) -> &'static str {
    match step {
        HostStep::Embed { .. } => "embed",
        HostStep::AppendKv { .. } => "append_kv",
        HostStep::Attention { .. } => "attention",
        HostStep::Softmax { .. } => "softmax",
        HostStep::DeltaRows { .. } => "delta_rows",
        HostStep::FinalNorm { .. } => "final_norm",
        HostStep::Linear { .. } => "linear",
        HostStep::Op { node } => graph.nodes.get(node).map_or("op", |node| node.op.name()),
    }
}

fn layer(step: HostStep, graph: &Graph) -> Option<usize> {
    match step {
        HostStep::AppendKv { layer, .. } => Some(layer),
        other => other.node().and_then(|node| graph.nodes.get(node)?.layer),
    }
}
