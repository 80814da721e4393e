//! Blocks append keys and values to the chip's cache themselves.

use super::{best, demo, load, random, settings, tokens, verdict};
use millrace_graph::Graph;
use millrace_kernels::Cpu;
use millrace_npu::{Container, Device, DeviceError, Role};
use millrace_plan::{
    Annex, Arithmetic, Arrangement, Binding, CachePart, Call, Chunk, Explain, HostStep, InputId,
    Lengths, LowerError, Lowering, MachineFacts, Numerics, OperandArrangement, OwnSlot, PassKind,
    PassPosition, Phase, Plan, PlannedLaunch, Planner, Reason, Scales, Step, Target,
    WeightArrangement, WeightSource,
};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_tcp::target::TcpTarget;
use std::sync::Arc;

/// Deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// Rows go one position too far.
    Position,
    /// Keys are appended to, and read from, the cache of values, and the other way round.
    Caches,
    /// The host is given keys as values, and values as keys.
    Rows,
}

/// A planner that makes a mistake.
struct Mistaken(Arc<dyn Planner>, Mistake);

impl Mistaken {
    fn change(&self, call: &mut Call, slots: &[millrace_npu::Slot]) {
        let of_value = |call: &Call, name: &str| {
            let named = |slot: &millrace_npu::Slot| slot.name.starts_with(name);
            let at = slots
                .iter()
                .position(|s| named(s) && s.role == Role::Output);
            at.filter(|at| matches!(call.bindings[*at], Binding::Value(_)))
        };
        match self.1 {
            Mistake::Caches => {
                for binding in &mut call.bindings {
                    if let Binding::Cache { of, .. } = binding {
                        *of = match of {
                            CachePart::Keys => CachePart::Values,
                            CachePart::Values => CachePart::Keys,
                        };
                    }
                }
            }
            Mistake::Rows => {
                let both = of_value(call, "attn_k_rope").zip(of_value(call, "attn_v"));
                if let Some((k, v)) = both {
                    call.bindings.swap(k, v);
                }
            }
            Mistake::None | Mistake::Position => {}
        }
    }
}

impl Lowering for Mistaken {
    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        let mut plan = self.0.lower(graph, kind)?;
        for step in &mut plan.steps {
            if let Step::Call(call) = step {
                self.change(call, plan.programs[call.program].slots());
            }
        }
        Ok(plan)
    }

    fn identity(&self) -> String {
        format!("{} with mistake {:?}", self.0.identity(), self.1)
    }

    fn cache_rows(&self, graph: &Graph, n_ctx: u64) -> u64 {
        self.0.cache_rows(graph, n_ctx)
    }

    fn kind(&self, graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        self.0.kind(graph, phase, chunk, cache_rows)
    }

    fn decode_until(&self, first: u64) -> u64 {
        self.0.decode_until(first)
    }

    fn target(&self) -> &'static str {
        self.0.target()
    }

    fn machine(&self) -> MachineFacts {
        self.0.machine()
    }

    fn mode(&self) -> String {
        self.0.mode()
    }

    fn lengths(&self) -> Lengths {
        self.0.lengths()
    }

    fn supports(&self, graph: &Graph, kind: &PassKind, node: usize) -> Result<(), Reason> {
        self.0.supports(graph, kind, node)
    }

    fn annex(&self, container: &Container, launches: &[PlannedLaunch]) -> Option<Annex> {
        self.0.annex(container, launches)
    }
}

impl Arrangement for Mistaken {
    fn make(
        &self,
        at: &OwnSlot<'_, InputId>,
        now: &PassPosition<'_>,
        out: &mut [u8],
    ) -> Result<(), String> {
        self.0.make(at, now, out)?;
        let name = &at.program.slots()[at.slot].name;
        if self.1 == Mistake::Position && name.ends_with("position") {
            // Padding stays in its row.
            for position in out.chunks_exact_mut(4).take(now.n_real) {
                position[0] += 1;
            }
        }
        Ok(())
    }

    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        self.0.fill(cpu, at, weight, out)
    }

    fn operand(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        self.0.operand(cpu, at, bytes, scales, rows)
    }
}

impl Numerics for Mistaken {
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        self.0.arithmetic(launch)
    }
}

impl Explain for Mistaken {}

impl Planner for Mistaken {
    fn observed(&self) -> Option<Arc<dyn Planner>> {
        let observed = self.0.observed()?;
        Some(Arc::new(Mistaken(observed, self.1)))
    }

    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        self.0.open(cpu)
    }
}

fn mistaken(mistake: Mistake) -> Arc<NpuModel> {
    let planner = TcpTarget.planner(&best("bf16")).unwrap();
    let options = NpuOptions {
        n_ctx: Some(300),
        n_threads: Some(2),
        ..NpuOptions::default()
    };
    let planner = Arc::new(Mistaken(planner, mistake));
    Arc::new(NpuModel::load(demo(), planner, options).unwrap())
}

/// A chip that appends to the wrong place, and a host that takes the wrong rows, are found. A position off by one also
/// shows in the logits.
#[test]
fn a_wrong_append_is_found() {
    for mistake in [
        Mistake::None,
        Mistake::Position,
        Mistake::Caches,
        Mistake::Rows,
    ] {
        let npu = mistaken(mistake);
        let found = super::checked(&npu, 7).finding;
        let slot = found.as_ref().map(|finding| finding.slot_name.as_str());
        let is_cache = slot.is_some_and(|slot| slot.ends_with("cache"));
        assert_eq!(is_cache, mistake != Mistake::None, "{mistake:?}: {found:?}");
        let passes = verdict(&demo(), &npu).passes();
        assert_eq!(passes, mistake != Mistake::Position, "{mistake:?}");
    }
}

/// Every layer's attention appends for itself, in the call that has the whole layer; the host's pages get the rows
/// right behind it.
#[test]
fn layers_append_for_themselves() {
    for model in [demo(), random("qwen-tiny"), random("gemma-tiny")] {
        let npu = load(&model, &best("bf16"));
        let graph = &model.model().graph;
        let sequences = npu.sequences();
        let prompt = sequences.prefill(npu.lengths().next(0, 40));
        for kind in [sequences.decode(7), prompt] {
            let plan = npu.planner().lower(graph, &kind).unwrap();
            let mut appended = Vec::new();
            for (step, next) in plan.steps.iter().zip(plan.steps.iter().skip(1)) {
                let Step::Call(call) = step else { continue };
                let layers = plan.appends(call);
                if let [layer] = layers[..] {
                    let is_taken_over = matches!(
                        next, Step::Host(HostStep::AppendKv { layer: to, .. }) if *to == layer
                    );
                    assert!(is_taken_over, "{next:?}");
                }
                appended.extend(layers);
            }
            let all: Vec<usize> = (0..model.model().config.n_layers).collect();
            assert_eq!(appended, all, "{} {kind:?}", model.name());
        }
    }
}

/// Padding overwrites no token, even where a prompt ends near the end of the context. Rows that were cut off are
/// written anew.
#[test]
fn padding_and_cut_rows_leave_no_trace() {
    let model = demo();
    let logits = |numerics: &millrace_plan::Settings| {
        let planner = TcpTarget.planner(numerics).unwrap();
        let options = NpuOptions {
            n_ctx: Some(64),
            n_threads: Some(2),
            ..NpuOptions::default()
        };
        let npu = Arc::new(NpuModel::load(model.clone(), planner, options).unwrap());
        let mut session = NpuSession::new(&npu).unwrap();
        session.prefill(&tokens(58, 500)).unwrap();
        let mut all = session.prefill(&tokens(3, 400)).unwrap().to_vec();
        for token in [5, 9, 7] {
            all.extend_from_slice(session.decode(token).unwrap());
        }
        session.truncate(20).unwrap();
        all.extend_from_slice(session.prefill(&tokens(5, 300)).unwrap());
        all.extend_from_slice(session.decode(8).unwrap());
        all
    };
    let bits = |logits: Vec<f32>| -> Vec<u32> { logits.iter().map(|x| x.to_bits()).collect() };
    let [plain, blocks] = [settings("bf16"), best("bf16")].map(|s| bits(logits(&s)));
    assert!(plain == blocks);
}
