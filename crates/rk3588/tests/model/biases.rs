//! Products with a bias, as Qwen 2 and 2.5 have them in Q, K and V: multiplied on the NPU, the bias added
//! by the host.

use crate::planner;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_model::graph::{Graph, Op};
use millrace_npu::{Container, Device, DeviceError};
use millrace_plan::{
    Annex, Arithmetic, Binding, Lengths, LowerError, MachineFacts, OwnSlot, PassKind, Place, Plan,
    PlannedLaunch, Planner, Reason, Scales, Step, WeightSource,
};
use millrace_runtime::gate::{Verdict, Yardstick, follow, judge, record};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession, OpCheck, Wrong};
use millrace_runtime::{CpuEngine, EngineOptions, LoadedModel};
use millrace_testkit::golden::Golden;
use std::sync::Arc;

/// Forgets the bias of every product.
struct Forgetful(Arc<dyn Planner>);

impl Planner for Forgetful {
    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        let mut plan = self.0.lower(graph, kind)?;
        let mut n_forgotten = 0;
        for step in &mut plan.steps {
            let Step::Call(call) = step else { continue };
            for binding in &mut call.bindings {
                if let Binding::Packed { bias, .. } = binding {
                    n_forgotten += usize::from(bias.take().is_some());
                }
            }
        }
        assert!(n_forgotten > 0, "there is something to forget");
        Ok(plan)
    }

    fn identity(&self) -> String {
        format!("{} without biases", self.0.identity())
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

    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        self.0.fill(cpu, at, weight, out)
    }

    fn pack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        rows: &[f32],
        width: usize,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        self.0.pack(cpu, at, rows, width, out)
    }

    fn unpack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        bytes: &[u8],
        scales: &[Scales],
        width: usize,
        rows: &mut [f32],
    ) -> Result<(), String> {
        self.0.unpack(cpu, at, bytes, scales, width, rows)
    }

    fn operand(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        self.0.operand(cpu, at, bytes, scales, rows)
    }

    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        self.0.arithmetic(launch)
    }

    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        self.0.open(cpu)
    }
}

fn qwen2() -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named("qwen2").hf()).unwrap())
}

fn on_board(model: &Arc<LoadedModel>, planner: Arc<dyn Planner>) -> Arc<NpuModel> {
    let options = NpuOptions {
        n_threads: Some(2),
        ..NpuOptions::default()
    };
    Arc::new(NpuModel::load(model.clone(), planner, options).unwrap())
}

fn tokens(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 41 + salt * 97 + 5) % 263).collect()
}

/// The gate over a few prompts and what follows them.
fn gate(npu: &Arc<NpuModel>) -> Verdict {
    let cpu = Cpu::new(CpuOptions {
        n_threads: Some(2),
        level: None,
    });
    let options = EngineOptions {
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let (cpu, mut engine) = (
        cpu.unwrap(),
        CpuEngine::new(npu.model().clone(), options).unwrap(),
    );
    let mut session = NpuSession::new(npu).unwrap();
    let (mut found, mut rounding) = (Vec::new(), Vec::new());
    for salt in 0..4 {
        let path = record(&mut engine, &tokens(12 + 9 * salt, salt), 8, &|_| false).unwrap();
        let yardstick = Yardstick::new(&cpu, npu, path).unwrap();
        let each = &mut |step| {
            found.push(step);
            true
        };
        follow(&mut session, &yardstick, each).unwrap();
        rounding.extend(yardstick.rounding());
    }
    judge(&found, &rounding)
}

#[test]
fn they_are_multiplied_on_the_npu() {
    let model = qwen2();
    let graph = &model.model().graph;
    for kind in [PassKind::prefill(16), PassKind::decode()] {
        let plan = planner().lower(graph, &kind).unwrap();
        let mut n_biased = 0;
        for placed in &plan.placement {
            let node = &graph.nodes[placed.node];
            let Op::Linear { bias, .. } = node.op else {
                continue;
            };
            assert!(matches!(placed.place, Place::Device(_)), "{}", node.label);
            assert_eq!(
                placed.reason.contains("the host adds the bias"),
                bias.is_some(),
                "{}: {}",
                node.label,
                placed.reason
            );
            n_biased += usize::from(bias.is_some());
        }
        // Q, K and V of two layers.
        assert_eq!(n_biased, 6);
    }
}

#[test]
fn they_pass_the_gate_and_the_check_of_ops() {
    let npu = on_board(&qwen2(), planner());
    let verdict = gate(&npu);
    assert!(verdict.passes(), "{verdict:#?}");
    let (check, observer) = OpCheck::new(&npu);
    let mut session = NpuSession::new(&npu).unwrap();
    session.observe(Some(observer));
    session.prefill(&tokens(20, 1)).unwrap();
    session.decode(7).unwrap();
    let summary = check.summary().unwrap();
    assert_eq!(summary.finding, None);
    assert!(summary.unchecked.is_empty(), "{:?}", summary.unchecked);
    for label in ["attn_q", "attn_k", "attn_v"] {
        assert!(summary.worst.contains_key(label), "{:?}", summary.worst);
    }
}

/// A check is checked: a plan that drops the biases fails the gate, and the check of ops names the first.
#[test]
fn a_forgotten_bias_is_found() {
    let npu = on_board(&qwen2(), Arc::new(Forgetful(planner())));
    let verdict = gate(&npu);
    assert!(!verdict.passes(), "{verdict:#?}");
    let (check, observer) = OpCheck::new(&npu);
    let mut session = NpuSession::new(&npu).unwrap();
    session.observe(Some(observer));
    session.prefill(&tokens(20, 1)).unwrap();
    let finding = check.summary().unwrap().finding.unwrap();
    assert!(matches!(finding.what, Wrong::Value { .. }), "{finding:?}");
    assert_eq!(
        (finding.op, finding.layer, &*finding.slot_name),
        (Some("attn_q"), Some(0), "c")
    );
}
