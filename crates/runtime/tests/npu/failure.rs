//! Failures of the device: their messages, the remaining state, and that nothing leaks.

use crate::support::{demo, device, padded_to, planner};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::{Device, DeviceError, DeviceUsage, ErrorPlace, Inject, Injection};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuError, NpuModel, NpuSession};
use millrace_xdna2::lower::{Features, Mode};
use millrace_xdna2_machine::device::VirtualDevice;
use std::sync::Arc;

const PROMPT: [u32; 5] = [3, 141, 59, 26, 535];

fn on(
    model: &Arc<LoadedModel>,
    device: &Arc<VirtualDevice>,
    mode: Mode,
) -> Result<Arc<NpuModel>, NpuError> {
    crate::support::on(model, device, Features::of(mode), padded_to(32))
}

/// A model whose plans are made, its results without failures, and its device.
struct Setup {
    device: Arc<VirtualDevice>,
    npu: Arc<NpuModel>,
    after_prompt: Vec<f32>,
    after_token: Vec<f32>,
    /// Calls of a prompt and of a token.
    n_calls: [u64; 2],
    held: DeviceUsage,
}

impl Setup {
    fn new(mode: Mode) -> Setup {
        let (model, device) = (demo(), device());
        let npu = on(&model, &device, mode).unwrap();
        let mut session = NpuSession::new(&npu).unwrap();
        let after_prompt = session.prefill(&PROMPT).unwrap().to_vec();
        let after_token = session.decode(7).unwrap().to_vec();
        let counters = session.counters();
        Setup {
            n_calls: [counters.prefill.n_dispatches, counters.decode.n_dispatches],
            held: device.held(),
            device,
            npu,
            after_prompt,
            after_token,
        }
    }

    /// A failed prompt, then the same again; after that a failed token, then the same again.
    fn disturb(&self, phase: usize, call: u64, injection: &Injection) -> NpuError {
        let mut session = NpuSession::new(&self.npu).unwrap();
        if phase == 1 {
            session.prefill(&PROMPT).unwrap();
        }
        self.device.inject_after(call, injection.clone());
        let failed = match phase {
            0 => session.prefill(&PROMPT).err(),
            _ => session.decode(7).err(),
        };
        let error = failed.unwrap_or_else(|| panic!("{injection:?} at call {call}: no error"));
        if error.device().is_some_and(DeviceError::is_loss) {
            self.recover(&mut session, phase);
        }
        let n_tokens = [0, PROMPT.len()][phase];
        assert_eq!(session.tokens().len(), n_tokens, "{error}");
        if phase == 0 {
            assert!(
                session.prefill(&PROMPT).unwrap() == self.after_prompt,
                "{error}"
            );
        }
        assert!(session.decode(7).unwrap() == self.after_token, "{error}");
        assert_eq!(self.device.held(), self.held, "{error}");
        error
    }

    /// Recovers from a lost device: calls fail until it is back, then load everything they need.
    fn recover(&self, session: &mut NpuSession, phase: usize) {
        let mut again = || match phase {
            0 => session.prefill(&PROMPT).unwrap_err(),
            _ => session.decode(7).unwrap_err(),
        };
        let lost = again();
        assert!(
            matches!(lost.device(), Some(DeviceError::Lost { .. })),
            "{lost}"
        );
        assert_eq!(self.device.held(), DeviceUsage::default());
        self.device.revive();
        // Both plans are on it again.
        let mut other = NpuSession::new(&self.npu).unwrap();
        other.prefill(&PROMPT).unwrap();
        other.decode(7).unwrap();
    }
}

fn place(error: &NpuError) -> &ErrorPlace {
    let place = error.device().and_then(DeviceError::place);
    place.unwrap_or_else(|| panic!("no place: {error}"))
}

/// Every kind of failed submission, at the first, a middle and the last call of either phase.
#[test]
fn a_failed_call_says_where_and_can_be_repeated() {
    for mode in [Mode::Fast, Mode::MlirAir] {
        let setup = Setup::new(mode);
        for (phase, n_calls) in setup.n_calls.into_iter().enumerate() {
            for call in [0, n_calls / 2, n_calls - 1] {
                let kinds = [
                    Injection::Timeout,
                    Injection::StopAfter(500),
                    Injection::Lose,
                ];
                for (kind, injection) in kinds.iter().enumerate() {
                    let error = setup.disturb(phase, call, injection);
                    let text = error.to_string();
                    assert!(
                        text.starts_with(&format!("call {} of {n_calls} (`", call + 1)),
                        "{text}"
                    );
                    let kinds = [
                        matches!(error.device(), Some(DeviceError::Timeout { .. })),
                        matches!(error.device(), Some(DeviceError::Fault { .. })),
                        matches!(error.device(), Some(DeviceError::Lost { .. })),
                    ];
                    assert!(kinds[kind], "{text}");
                    let place = place(&error);
                    assert!(!place.program.is_empty() && text.contains(&place.program));
                    assert!(place.launch.is_some(), "{text}");
                    assert!(place.unit.is_some() && text.contains(", core ("), "{text}");
                    assert!(place.slot.is_some() && text.contains(", slot `"), "{text}");
                }
            }
        }
    }
}

/// Allocations and loads fail while a plan is set up: the partial setup is dropped, and the same
/// call succeeds afterwards.
#[test]
fn refused_buffers_and_programs_leave_nothing_behind() {
    let model = demo();
    let whole = {
        let device = device();
        let npu = on(&model, &device, Mode::Fast).unwrap();
        let loaded = device.held();
        let logits = NpuSession::new(&npu)
            .unwrap()
            .prefill(&PROMPT)
            .unwrap()
            .to_vec();
        (loaded, device.held(), logits)
    };
    let (loaded, prepared, logits) = whole;
    for injection in [Injection::NotPinned, Injection::RefuseLoad] {
        let device = device();
        for n_passed in [0, 1] {
            device.inject_after(n_passed, injection.clone());
            let error = on(&model, &device, Mode::Fast).err().unwrap();
            check_refusal(&error, &injection);
            assert_eq!(device.held(), DeviceUsage::default(), "{error}");
        }
        let npu = on(&model, &device, Mode::Fast).unwrap();
        assert_eq!(device.held(), loaded);
        let mut session = NpuSession::new(&npu).unwrap();
        for n_passed in [0, 1] {
            device.inject_after(n_passed, injection.clone());
            let error = session.prefill(&PROMPT).unwrap_err();
            check_refusal(&error, &injection);
            assert!(session.tokens().is_empty());
        }
        assert!(session.prefill(&PROMPT).unwrap() == logits);
        assert_eq!(device.held(), prepared);
        drop((session, npu));
        assert_eq!(device.held(), DeviceUsage::default());
    }
}

fn check_refusal(error: &NpuError, injection: &Injection) {
    let text = error.to_string();
    match injection {
        Injection::NotPinned => {
            assert!(
                matches!(error.device(), Some(DeviceError::NotPinned { .. })),
                "{text}"
            );
            assert!(
                text.contains("slot `") && text.contains("of program `"),
                "{text}"
            );
        }
        _ => {
            assert!(
                matches!(error.device(), Some(DeviceError::Refused { .. })),
                "{text}"
            );
            assert!(text.contains("is refused: no hardware context"), "{text}");
        }
    }
}

/// A model that is larger than the device's memory.
#[test]
fn too_little_memory_is_said_in_bytes() {
    let (model, whole) = (demo(), device());
    let npu = on(&model, &whole, Mode::Fast).unwrap();
    let needed = whole.held().buffer_bytes;
    drop(npu);
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let small = planner(Features::of(Mode::Fast)).device(cpu);
    let small = Arc::new(small.with_memory(needed - 1));
    let error = on(&model, &small, Mode::Fast).err().unwrap();
    let Some(DeviceError::OutOfMemory {
        asked_bytes,
        available_bytes,
    }) = error.device()
    else {
        panic!("{error}");
    };
    assert!(
        asked_bytes > available_bytes && *available_bytes < needed,
        "{error}"
    );
    assert_eq!(small.held(), DeviceUsage::default());
}

/// A device that was away between two calls.
#[test]
fn models_old_and_new_work_on_a_device_that_came_back() {
    let (model, device) = (demo(), device());
    let old = on(&model, &device, Mode::Fast).unwrap();
    let mut session = NpuSession::new(&old).unwrap();
    let expected = session.prefill(&PROMPT).unwrap().to_vec();
    device.lose();
    assert!(on(&model, &device, Mode::Fast).is_err());
    device.revive();
    let stale = session.decode(7).unwrap_err().to_string();
    assert!(stale.contains("from before is lost"), "{stale}");
    // The old model goes on too: its session has everything it needs.
    let after_token = session.decode(7).unwrap().to_vec();
    let new = on(&model, &device, Mode::Fast).unwrap();
    let mut session = NpuSession::new(&new).unwrap();
    assert!(session.prefill(&PROMPT).unwrap() == expected);
    assert!(session.decode(7).unwrap() == after_token);
}

/// A thousand passes that fail at one call after the other, in every way, leave nothing behind.
#[test]
fn a_thousand_failures_leak_nothing() {
    let setup = Setup::new(Mode::Fast);
    let mut session = NpuSession::new(&setup.npu).unwrap();
    session.prefill(&PROMPT).unwrap();
    let n_calls = setup.n_calls[1];
    for run in 0..1000 {
        let injection = match run % 8 {
            0 => Injection::Timeout,
            1 => Injection::StopAfter(run * 37),
            _ => Injection::StopAfter(run % 256),
        };
        setup.device.inject_after(run % n_calls, injection);
        let failed = session.decode(7).is_err();
        // A long leash lets a short program end.
        assert!(failed || run % 8 == 1, "run {run}");
        if !failed {
            session.truncate(PROMPT.len()).unwrap();
        }
        assert_eq!(setup.device.held(), setup.held, "run {run}");
        assert_eq!(session.tokens().len(), PROMPT.len());
    }
    setup.device.clear();
    assert!(session.decode(7).unwrap() == setup.after_token);
    // And a few that lose the whole device.
    for _ in 0..10 {
        setup.disturb(1, 0, &Injection::Lose);
    }
}
