//! The numerics bisect: an honest device passes op by op, a corrupted slot is found and named.

use crate::support::{OneLayer, demo, padded_to};
use millrace_npu::{Corruption, Inject, Injection, Role};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_verify::ops::{CheckSummary, Finding, Mismatch, OpCheck};
use millrace_xdna2::lower::{
    self, Features, LowerOptions, Mode, Phase, Plan, PlannedProgram, WeightLayout,
};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::device::VirtualDevice;
use std::sync::Arc;

const N_PADDED: u64 = 64;

struct Bench {
    device: Arc<VirtualDevice>,
    npu: Arc<NpuModel>,
}

impl Bench {
    fn new(model: &Arc<LoadedModel>, mode: Mode) -> Bench {
        Bench::with(model, mode, None)
    }

    fn with(
        model: &Arc<LoadedModel>,
        mode: Mode,
        relayout: Option<fn(WeightLayout) -> WeightLayout>,
    ) -> Bench {
        Bench::of(model, Features::of(mode), relayout)
    }

    fn of(
        model: &Arc<LoadedModel>,
        features: Features,
        relayout: Option<fn(WeightLayout) -> WeightLayout>,
    ) -> Bench {
        let device = crate::support::device();
        let options = NpuOptions {
            relayout,
            ..padded_to(N_PADDED)
        };
        let npu = crate::support::on(model, &device, features, options).unwrap();
        Bench { device, npu }
    }

    /// A prompt, and a token after it.
    fn checked(&self) -> CheckSummary {
        let mut session = NpuSession::new(&self.npu).unwrap();
        let (check, observer) = OpCheck::new(&self.npu);
        session.observe(Some(observer));
        session.prefill(&[1, 300, 25, 7, 900, 31]).unwrap();
        session.decode(55).unwrap();
        check.summary().unwrap()
    }
}

/// Ops whose operands are converted to blocks of eight with one exponent are checked against products of such blocks,
/// not against exact products.
#[test]
fn products_in_blocks_are_checked_as_such() {
    let model = demo();
    let numerics = millrace_xdna2_machine::Numerics::Bfp16;
    for mode in [Mode::Fast, Mode::MlirAir] {
        let features = Features::of(mode).with_numerics(numerics);
        let found = Bench::of(&model, features, None).checked();
        assert_eq!(found.finding, None, "{mode:?}");
        assert!(found.unchecked.is_empty(), "{found:?}");
        let worst = |label: &str| found.worst.get(label).copied().unwrap_or(0.0);
        assert!(worst("ffn_down") > 0.3, "{found:?}");
    }
}

#[test]
fn an_honest_device_has_nothing_wrong() {
    let model = demo();
    let graph = &model.model().graph;
    for mode in [Mode::Fast, Mode::MlirAir] {
        let bench = Bench::new(&model, mode);
        let found = bench.checked();
        assert_eq!(found.finding, None, "{mode:?}");
        let options = LowerOptions::new(mode, N_PADDED);
        let plans = [
            lower::prefill(graph, &Machine::npu2(), &options).unwrap(),
            lower::decode(graph, &Machine::npu2(), &options).unwrap(),
        ];
        let on_device = |plan: &Plan| plan.calls().map(|call| call.nodes.len()).sum::<usize>();
        let n_ops: usize = plans.iter().map(on_device).sum();
        assert_eq!(found.n_ops, n_ops as u64);
        assert!(found.n_moved > 0 && found.unchecked.is_empty(), "{found:?}");
        // A tolerance far above the errors would let an error pass.
        assert!(found.worst["attn_q"] > 0.05 && found.worst["ffn_residual"] > 0.3);
    }
}

/// Heads of 256: in their first pass, cores have separate tokens. Every op is checked, with a window and without, and a
/// wrong row is found.
#[test]
fn a_first_pass_of_wide_heads_is_checked() {
    for (window, mode) in [
        (None, Mode::Fast),
        (None, Mode::Int4),
        (Some(4), Mode::Int4),
        (None, Mode::FastFlowLm),
        (Some(4), Mode::FastFlowLm),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let shapes = OneLayer {
            d_model: 64,
            d_ff: 64,
            n_heads: 2,
            head_dim: 256,
            vocab: 1024,
            n_ctx: 256,
            window,
        };
        let model = shapes.write(dir.path());
        let options = LowerOptions::new(mode, N_PADDED);
        let plan = lower::prefill(&model.model().graph, &Machine::npu2(), &options).unwrap();
        let kernel = match mode {
            Mode::FastFlowLm => "flow-qkv",
            _ => "prompt-attention",
        };
        let attends = |p: &&PlannedProgram| p.launches[0].kernel == kernel;
        let name = plan.programs.iter().find(attends).unwrap().name();
        let mut launches = plan.programs.iter().flat_map(|p| &p.launches);
        let expands = launches.any(|launch| launch.kernel == "gemm-q4nx-ddr");
        assert_eq!(expands, mode == Mode::FastFlowLm);
        let bench = Bench::new(&model, mode);
        let found = bench.checked();
        assert_eq!(found.finding, None, "{window:?} {mode:?}");
        assert!(found.unchecked.is_empty(), "{found:?}");
        let found = bench.corrupted(name, "attn");
        assert!(matches!(found.what, Mismatch::Op { .. }), "{found:?}");
    }
}

impl Bench {
    fn corrupt(&self, program: &str, slot: &str) {
        self.device.inject(Injection::Corrupt {
            program: program.to_owned(),
            slot: slot.to_owned(),
            how: Corruption::Some,
        });
    }

    /// The finding when a slot of every run of a program is wrong.
    fn corrupted(&self, program: &str, slot: &str) -> Finding {
        self.corrupt(program, slot);
        let found = self.checked().finding;
        self.device.clear();
        let found = found.unwrap_or_else(|| panic!("{program} {slot}: not found"));
        assert_eq!(found.phase, Phase::Prefill);
        assert_eq!(
            (&*found.program, &*found.slot_name),
            (program, slot),
            "{found:?}"
        );
        found
    }
}

/// Every slot that a program writes, wrong, one after the other.
#[test]
fn a_corrupted_result_is_named() {
    let model = demo();
    let graph = &model.model().graph;
    for mode in [Mode::Fast, Mode::MlirAir] {
        let bench = Bench::new(&model, mode);
        let plan =
            lower::prefill(graph, &Machine::npu2(), &LowerOptions::new(mode, N_PADDED)).unwrap();
        for planned in &plan.programs {
            let name = planned.name();
            let written = |role| matches!(role, Role::Intermediate | Role::Output);
            let slots = planned.slots().iter().enumerate();
            for (number, slot) in slots.filter(|(_, slot)| written(slot.role)) {
                let found = bench.corrupted(name, &slot.name);
                assert_eq!(found.slot, number);
                let Mismatch::Op {
                    expected,
                    found: value,
                    tolerance,
                    n_wrong,
                    ..
                } = found.what
                else {
                    panic!("{found:?}");
                };
                assert!((expected - value).abs() > tolerance && n_wrong > 0);
                let launch = planned
                    .launches
                    .iter()
                    .find(|l| l.results().contains(&number));
                assert_eq!(found.launch.as_ref(), launch.map(|l| &l.name));
                let first = plan.calls().find(|c| plan.programs[c.program] == *planned);
                assert!(first.unwrap().nodes.contains(&found.node.unwrap()));
            }
        }
        assert_eq!(bench.checked().finding, None);
    }
}

/// A value changed on its way from call to call is named, and so is a weight that is read wrong, which is its op's
/// error.
#[test]
fn what_is_read_wrong_is_named() {
    let model = demo();
    for mode in [Mode::Fast, Mode::MlirAir] {
        let found = Bench::new(&model, mode).corrupted("flash_attn", "attn_q_rope");
        assert_eq!((found.op, found.layer), (Some("attn_q_rope"), Some(0)));
        assert!(
            matches!(found.what, Mismatch::Value { at: 0, .. }),
            "{found:?}"
        );
        let bench = Bench::new(&model, mode);
        bench.corrupt("rms_gemms_rope", "attn_q_w");
        let found = bench.checked().finding.unwrap();
        assert_eq!((found.op, found.layer), (Some("attn_q"), Some(0)));
        assert!(matches!(found.what, Mismatch::Op { .. }), "{found:?}");
    }
}

/// A writer of weights with a fault in one kind of layout, each kind in turn: a check that calls none of its code names
/// the wrong slots.
#[test]
fn weights_that_are_written_wrong_are_named() {
    fn unsplit(layout: WeightLayout) -> WeightLayout {
        match layout {
            WeightLayout::AsStored { .. } => WeightLayout::AsStored { half_split: None },
            WeightLayout::Transposed { .. } => WeightLayout::Transposed { half_split: None },
            other => other,
        }
    }
    fn turned(layout: WeightLayout) -> WeightLayout {
        match layout {
            WeightLayout::AsStored { half_split } => WeightLayout::Transposed { half_split },
            WeightLayout::Transposed { half_split } => WeightLayout::AsStored { half_split },
            other => other,
        }
    }
    fn a_row_early(layout: WeightLayout) -> WeightLayout {
        match layout {
            WeightLayout::Rows {
                start,
                len,
                padded_to,
            } => WeightLayout::Rows {
                start: start.saturating_sub(1),
                len,
                padded_to,
            },
            other => other,
        }
    }
    fn off_by_one(layout: WeightLayout) -> WeightLayout {
        match layout {
            WeightLayout::Vector { offset } => WeightLayout::Vector {
                offset: offset + 1.0,
            },
            other => other,
        }
    }
    let model = demo();
    type Relayout = fn(WeightLayout) -> WeightLayout;
    let writers: [(Relayout, &str); 4] = [
        (unsplit, "attn_q_w"),
        (turned, "attn_q_w"),
        (a_row_early, "lm_head_"),
        (off_by_one, "attn_norm_w"),
    ];
    for mode in [Mode::Fast, Mode::MlirAir] {
        for (relayout, slot) in writers {
            let bench = Bench::with(&model, mode, Some(relayout));
            let found = bench.checked().finding.unwrap();
            assert!(found.slot_name.starts_with(slot), "{mode:?} {found:?}");
            let Mismatch::Static { n_wrong, .. } = found.what else {
                panic!("{found:?}");
            };
            assert!(n_wrong > 100);
        }
    }
}
