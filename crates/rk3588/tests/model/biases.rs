//! Products with a bias, as Qwen 2 and 2.5 have them in Q, K and V: multiplied on the NPU, the bias added
//! by the host.

use crate::model::planner;
use millrace_format::Checkpoint;
use millrace_graph::{Graph, Linear, Op};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_model::convert::{Conversion, ConversionTarget, OutputContainer, Recipe};
use millrace_npu::{self as npu, Device, DeviceError};
use millrace_plan::{
    Annex, Arithmetic, Arrangement, Bias, Binding, Chunk, Explain, Lengths, LowerError, Lowering,
    MachineFacts, NodePlace, Numerics, OperandArrangement, OwnSlot, PassKind, Phase, Plan,
    PlannedLaunch, Planner, Reason, Scales, Step, ValueArrangement, WeightArrangement,
    WeightSource,
};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_runtime::{CpuEngine, EngineOptions, LoadedModel};
use millrace_testkit::golden::Golden;
use millrace_verify::ops::{CheckSummary, Mismatch, OpCheck};
use millrace_verify::verification::{Verdict, Verification, follow, judge, record};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Makes a mistake in the bias of every product.
fn mistaken(planner: Arc<dyn Planner>, change: fn(Bias) -> Option<Bias>) -> Arc<dyn Planner> {
    let in_step = move |step: &mut Step| {
        let Step::Call(call) = step else { return };
        for binding in &mut call.bindings {
            if let Binding::Packed { bias, .. } = binding {
                *bias = bias.and_then(change);
            }
        }
    };
    Arc::new(Changed(planner, in_step))
}

/// Makes a mistake in every step of a plan.
pub(super) struct Changed<F>(pub(super) Arc<dyn Planner>, pub(super) F);

impl<F: Fn(&mut Step) + Send + Sync> Lowering for Changed<F> {
    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        let mut plan = self.0.lower(graph, kind)?;
        plan.steps.iter_mut().for_each(&self.1);
        Ok(plan)
    }

    fn kind(&self, graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        self.0.kind(graph, phase, chunk, cache_rows)
    }

    fn decode_until(&self, first: u64) -> u64 {
        self.0.decode_until(first)
    }

    fn identity(&self) -> String {
        format!("{} with mistakes", self.0.identity())
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

    fn annex(&self, container: &npu::Container, launches: &[PlannedLaunch]) -> Option<Annex> {
        self.0.annex(container, launches)
    }
}

impl<F: Fn(&mut Step) + Send + Sync> Arrangement for Changed<F> {
    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        self.0.fill(cpu, at, weight, out)
    }

    fn pack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        rows: &[f32],
        width: usize,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        self.0.pack(cpu, at, rows, width, out)
    }

    fn unpack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
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
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        self.0.operand(cpu, at, bytes, scales, rows)
    }
}

impl<F: Fn(&mut Step) + Send + Sync> Numerics for Changed<F> {
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        self.0.arithmetic(launch)
    }
}

impl<F: Fn(&mut Step) + Send + Sync> Explain for Changed<F> {}

impl<F: Fn(&mut Step) + Send + Sync> Planner for Changed<F> {
    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        self.0.open(cpu)
    }
}

fn qwen2() -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named("qwen2").hf()).unwrap())
}

pub(super) fn on_board(model: &Arc<LoadedModel>, planner: Arc<dyn Planner>) -> Arc<NpuModel> {
    let options = NpuOptions {
        n_threads: Some(2),
        ..NpuOptions::default()
    };
    Arc::new(NpuModel::load(model.clone(), planner, options).unwrap())
}

/// Tokens within the smallest vocabulary of the models here.
pub(super) fn tokens(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 41 + salt * 97 + 5) % 131).collect()
}

/// Result of the check of ops for a prompt and a token.
fn checked(npu: &Arc<NpuModel>) -> CheckSummary {
    let (check, observer) = OpCheck::new(npu);
    let mut session = NpuSession::new(npu).unwrap();
    session.observe(Some(observer));
    session.prefill(&tokens(20, 1)).unwrap();
    session.decode(7).unwrap();
    check.summary().unwrap()
}

/// The verdict over a few prompts and their continuations.
pub(super) fn verified(npu: &Arc<NpuModel>) -> Verdict {
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
    let verification = Verification::new(&cpu, npu).unwrap();
    let (mut found, mut rounding) = (Vec::new(), Vec::new());
    for salt in 0..4 {
        let continuation =
            record(&mut engine, &tokens(12 + 9 * salt, salt), 8, &|_| false).unwrap();
        let baseline = verification.baseline(continuation).unwrap();
        let each = &mut |step| {
            found.push(step);
            true
        };
        follow(&mut session, &baseline, each).unwrap();
        rounding.extend(baseline.rounding());
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
            let Op::Linear(Linear { bias, .. }) = node.op else {
                continue;
            };
            assert!(
                matches!(placed.place, NodePlace::Device(_)),
                "{}",
                node.label
            );
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
fn they_pass_verification_and_the_check_of_ops() {
    let npu = on_board(&qwen2(), planner());
    let verdict = verified(&npu);
    assert!(verdict.passes(), "{verdict:#?}");
    let found = checked(&npu);
    assert_eq!(found.finding, None);
    assert!(found.unchecked.is_empty(), "{:?}", found.unchecked);
    for label in ["attn_q", "attn_k", "attn_v"] {
        assert!(found.worst.contains_key(label), "{:?}", found.worst);
    }
}

/// The check is itself checked: a plan that drops the biases fails, and the check of ops names the first.
#[test]
fn a_forgotten_bias_is_found() {
    let npu = on_board(&qwen2(), mistaken(planner(), |_| None));
    let verdict = verified(&npu);
    assert!(!verdict.passes(), "{verdict:#?}");
    let finding = checked(&npu).finding.unwrap();
    assert!(
        matches!(finding.what, Mismatch::Value { .. }),
        "{finding:?}"
    );
    assert_eq!(
        (finding.op, finding.layer, &*finding.slot_name),
        (Some("attn_q"), Some(0), "c")
    );
}

/// GGUF files of Llama have Q and K interleaved: their biases move with the rows of their weights.
#[test]
fn a_bias_goes_where_the_rows_of_its_weight_go() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    let golden = Checkpoint::open(Golden::named("llama-linear-bias").hf()).unwrap();
    let target = ConversionTarget {
        container: OutputContainer::Gguf,
        recipe: Recipe::parse("F32").unwrap(),
    };
    let conversion = Conversion::new(&golden, target).unwrap();
    let written = conversion.write(&file, 2, &mut |_| ControlFlow::Continue(()));
    written.unwrap();
    let model = Arc::new(LoadedModel::open(&file).unwrap());

    let right = checked(&on_board(&model, planner()));
    assert_eq!((right.finding, right.unchecked.len()), (None, 0));
    let in_place = |bias: Bias| {
        assert!(bias.half_split.is_none_or(|head_dim| head_dim > 2));
        Some(Bias {
            half_split: None,
            ..bias
        })
    };
    let wrong = checked(&on_board(&model, mistaken(planner(), in_place)));
    let finding = wrong.finding.unwrap();
    assert!(
        matches!(finding.what, Mismatch::Value { .. }),
        "{finding:?}"
    );
    assert_eq!((finding.op, finding.layer), (Some("attn_q"), Some(0)));
}
