//! A model on the virtual board: its state after every failure, and that nothing leaks.
#![allow(clippy::unwrap_used)] // A test may panic.

mod attention;
mod biases;

use millrace_graph::{Linear, Op};
use millrace_npu::{Device, DeviceError, DeviceUsage, Inject, Injection};
use millrace_plan::predict::{self, PromptWorkload};
use millrace_plan::{Planner, Settings, Target, WeightLayout};
use millrace_rk3588::simulate::{Board, BoardOptions, Faults};
use millrace_rk3588::target::Rk3588Target;
use millrace_rk3588::{Machine, Profile, RkDevice};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuError, NpuModel, NpuOptions, NpuSession};
use millrace_verify::ops::{Mismatch, OpCheck};
use std::path::Path;
use std::sync::Arc;

const PROMPT: [u32; 5] = [3, 141, 59, 26, 535];

fn planner() -> Arc<dyn Planner> {
    Rk3588Target.planner(&Settings::default()).unwrap()
}

/// A model with its plans, its results without failures, and its board.
struct Setup {
    board: Board,
    device: Arc<RkDevice>,
    npu: Arc<NpuModel>,
    after_prompt: Vec<f32>,
    after_token: Vec<f32>,
    /// Calls of a prompt and of a token.
    n_calls: [u64; 2],
    held: DeviceUsage,
    n_bos: u64,
}

impl Setup {
    fn new() -> Setup {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
        let model = Arc::new(LoadedModel::open(&path).unwrap());
        let board = Board::new(BoardOptions::default());
        let device = RkDevice::with_host(&board, Machine::rk3588(), 3).unwrap();
        let device = Arc::new(device);
        let options = NpuOptions {
            n_threads: Some(2),
            ..NpuOptions::default()
        };
        let npu = NpuModel::on(model, planner(), device.clone(), options).unwrap();
        let npu = Arc::new(npu);
        let mut session = NpuSession::new(&npu).unwrap();
        let after_prompt = session.prefill(&PROMPT).unwrap().to_vec();
        let after_token = session.decode(7).unwrap().to_vec();
        let counters = session.counters();
        Setup {
            n_calls: [counters.prefill.n_dispatches, counters.decode.n_dispatches],
            held: device.held(),
            n_bos: board.n_bos(),
            board,
            device,
            npu,
            after_prompt,
            after_token,
        }
    }

    /// A failed prompt or token, then the same again.
    fn disturb(&self, phase: usize, call: u64, injection: &Injection) -> NpuError {
        let mut session = NpuSession::new(&self.npu).unwrap();
        if phase == 1 {
            session.prefill(&PROMPT).unwrap();
        }
        self.device.inject_after(call, injection.clone());
        let step = |session: &mut NpuSession| match phase {
            0 => session.prefill(&PROMPT).map(|_| ()),
            _ => session.decode(7).map(|_| ()),
        };
        let error = step(&mut session).unwrap_err();
        if error.device().is_some_and(DeviceError::is_loss) {
            let again = step(&mut session).unwrap_err();
            let lost = matches!(again.device(), Some(DeviceError::Lost { .. }));
            assert!(lost, "{again}");
            assert_eq!(self.device.held(), DeviceUsage::default());
            self.device.revive();
            let mut other = NpuSession::new(&self.npu).unwrap();
            other.prefill(&PROMPT).unwrap();
            other.decode(7).unwrap();
        }
        // The last complete step, and nothing of the failed one.
        assert_eq!(session.tokens().len(), [0, PROMPT.len()][phase], "{error}");
        if phase == 0 {
            assert!(
                session.prefill(&PROMPT).unwrap() == self.after_prompt,
                "{error}"
            );
        }
        assert!(session.decode(7).unwrap() == self.after_token, "{error}");
        assert_eq!(self.device.held(), self.held, "{error}");
        assert_eq!(self.board.n_bos(), self.n_bos, "{error}");
        error
    }
}

#[test]
fn a_failed_call_says_job_task_and_core_and_can_be_repeated() {
    let setup = Setup::new();
    for (phase, n_calls) in setup.n_calls.into_iter().enumerate() {
        for call in [0, n_calls / 2, n_calls - 1] {
            for injection in [Injection::Timeout, Injection::StopAfter(0), Injection::Lose] {
                let error = setup.disturb(phase, call, &injection);
                let text = error.to_string();
                let expected = format!("call {} of {n_calls}", call + 1);
                let (place, is_kind) = match (error.device().unwrap(), &injection) {
                    (DeviceError::Timeout { place, .. }, Injection::Timeout)
                    | (DeviceError::Fault { place, .. }, Injection::StopAfter(_)) => {
                        (place.launch.clone(), true)
                    }
                    (DeviceError::Lost { .. }, Injection::Lose) => (None, true),
                    _ => (None, false),
                };
                assert!(is_kind, "{injection:?}: {text}");
                if injection != Injection::Lose {
                    let place = place.unwrap();
                    assert_eq!(place, "job 0, task 0 of worker 0 of 3", "{text}");
                }
                assert!(text.contains(&expected), "{text}: {expected}");
            }
        }
    }
}

#[test]
fn a_thousand_failing_runs_leave_no_buffer() {
    let setup = Setup::new();
    let mut session = NpuSession::new(&setup.npu).unwrap();
    session.prefill(&PROMPT).unwrap();
    let n_calls = setup.n_calls[1];
    for run in 0..1000 {
        let injection = match run % 2 {
            0 => Injection::Timeout,
            _ => Injection::StopAfter(0),
        };
        // Mostly early calls, to keep it quick; now and then a late one.
        let call = if run % 100 == 99 {
            n_calls - 1
        } else {
            run % 3
        };
        setup.device.inject_after(call, injection);
        assert!(session.decode(7).is_err(), "run {run}");
        assert_eq!(session.tokens().len(), PROMPT.len());
    }
    assert_eq!(setup.device.held(), setup.held);
    assert_eq!(setup.board.n_bos(), setup.n_bos);
    assert!(session.decode(7).unwrap() == setup.after_token);
}

/// The check is itself checked: weights in another order than the plan's are named before any product is.
#[test]
fn weights_in_a_wrong_order_are_found() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    let model = Arc::new(LoadedModel::open(&path).unwrap());
    let found = |relayout: Option<fn(WeightLayout) -> WeightLayout>| {
        let options = NpuOptions {
            n_threads: Some(2),
            relayout,
            ..NpuOptions::default()
        };
        let npu = Arc::new(NpuModel::load(model.clone(), planner(), options).unwrap());
        let (check, observer) = OpCheck::new(&npu);
        let mut session = NpuSession::new(&npu).unwrap();
        session.observe(Some(observer));
        session.prefill(&PROMPT).unwrap();
        let summary = check.summary().unwrap();
        assert!(summary.unchecked.is_empty(), "{:?}", summary.unchecked);
        assert!(summary.n_ops > 10 || summary.finding.is_some());
        summary.finding
    };
    assert_eq!(found(None), None);
    let wrong = found(Some(|layout| match layout {
        WeightLayout::Own { id, .. } => WeightLayout::Own {
            id,
            half_split: None,
        },
        other => other,
    }));
    let wrong = wrong.unwrap();
    assert!(matches!(wrong.what, Mismatch::Static { .. }), "{wrong:?}");
    assert_eq!(
        (wrong.set.starts_with("attn_q_L0"), &*wrong.slot_name),
        (true, "b")
    );
}

#[test]
fn a_full_address_space_ends_the_load_with_its_size() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    let model = Arc::new(LoadedModel::open(&path).unwrap());
    let board = Board::new(BoardOptions::default());
    board.set_faults(Faults {
        domain_bytes: Some(64 * 4096),
        ..Faults::default()
    });
    let device = Arc::new(RkDevice::with_host(&board, Machine::rk3588(), 3).unwrap());
    let npu = NpuModel::on(model, planner(), device, NpuOptions::default());
    let error = match npu {
        Err(error) => error,
        // Objects are made when a program is bound to them.
        Ok(npu) => {
            let npu = Arc::new(npu);
            let mut session = NpuSession::new(&npu).unwrap();
            session.decode(7).unwrap_err()
        }
    };
    let full = matches!(error.device(), Some(DeviceError::OutOfMemory { .. }));
    assert!(full, "{error}");
}

/// Weights that are unpacked before every product have a price, with packing at a byte each: every weight once a pass.
#[test]
fn unpacking_at_every_call_is_priced() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    let loaded = LoadedModel::open(&path).unwrap();
    let model = loaded.model();
    let ns = |mode: &str| {
        let settings = Settings {
            mode: Some(mode.to_owned()),
            ..Settings::default()
        };
        let planner = Rk3588Target.planner(&settings).unwrap();
        let mut pricer = planner.pricer().unwrap();
        let found = predict::model(
            &model.graph,
            &*planner,
            &mut *pricer,
            &PromptWorkload::new(16),
        )
        .unwrap();
        found.token.totals.total_ns
    };
    let profile = Profile::rocket_200();
    let products = model.graph.nodes.iter().filter_map(|node| match node.op {
        Op::Linear(Linear { weight, .. }) => Some(&model.graph.weights[weight.0]),
        _ => None,
    });
    let n_weights: f64 = products.map(|w| w.n as f64 * w.k as f64).sum();
    let thread_s = 1.0 / profile.host_fill_elements_per_s + 1.0 / profile.host_pack_bytes_per_s;
    let expected = n_weights * thread_s / profile.host_threads * 1e9;
    let added = ns("per-call") - ns("at-load");
    assert!(
        (added / expected - 1.0).abs() < 1e-6,
        "{added} ns, {expected}"
    );
}
