//! The conformance suite passes a right device and finds every wrong one.
use crate::ram_device::{Defect, subject};
use millrace_npu::conformance::{Subject, run, run_virtual};
use millrace_npu::held::DeviceUsage;
use millrace_npu::{
    BoundProgram, Buffer, Completion, Container, CorruptionCounts, Device, DeviceError, DeviceInfo,
    Fence, Inject, Injection, LoadedProgram, Usage,
};
use std::sync::Arc;

#[test]
fn a_right_device_passes() {
    let failures = run_virtual(&|| subject(Defect::None));
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn every_defect_is_found() {
    let defects = [
        (Defect::WrongResult, "run"),
        (Defect::SeesUnsyncedBytes, "needs_sync"),
        (Defect::ScribblesOnInputs, "leaves_inputs_alone"),
        (Defect::TakesAnyTarget, "target"),
        (Defect::TakesAnyPayload, "payload"),
        (Defect::TakesAnyBinding, "bindings"),
        (Defect::TakesForeignFences, "foreign"),
        (Defect::TakesForeignPrograms, "foreign"),
        (Defect::OneFenceForAll, "fences"),
        (Defect::HidesFaults, "fault"),
        (Defect::OtherProvenance, "run"),
        (Defect::HugeBuffers, "alloc"),
        (Defect::DirtyBuffers, "alloc"),
        (Defect::KeepsPrograms, "held"),
        (Defect::ForgetsBuffers, "held"),
        (Defect::LiesAboutMemory, "memory"),
    ];
    for (defect, check) in defects {
        let failures = run_virtual(&|| subject(defect));
        let found = failures.iter().any(|failure| failure.check == check);
        assert!(found, "{defect:?} is not found by `{check}`: {failures:#?}");
    }
}

/// Requirements that a real device need not meet are not checked on it.
#[test]
fn a_real_device_may_see_bytes_that_were_not_sent() {
    let failures = run(&|| subject(Defect::SeesUnsyncedBytes));
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A device that promises to fail on request, and does not.
struct Deaf(Arc<dyn Device>);

impl Inject for Deaf {
    fn inject_after(&self, _: u64, _: Injection) {}

    fn clear(&self) {}

    fn corrupted(&self) -> CorruptionCounts {
        CorruptionCounts::default()
    }

    fn revive(&self) {}
}

impl Device for Deaf {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn held(&self) -> DeviceUsage {
        self.0.held()
    }

    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError> {
        self.0.alloc(size_bytes, usage)
    }

    fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError> {
        self.0.load(container)
    }

    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<BoundProgram, DeviceError> {
        self.0.bind(program, buffers)
    }

    fn submit(&self, bound: &BoundProgram) -> Result<Fence, DeviceError> {
        self.0.submit(bound)
    }

    fn wait(&self, fence: Fence) -> Result<Completion, DeviceError> {
        self.0.wait(fence)
    }

    fn injector(&self) -> Option<&dyn Inject> {
        Some(self)
    }
}

#[test]
fn failures_that_do_not_come_on_request_are_found() {
    let failures = run_virtual(&|| {
        let subject = subject(Defect::None);
        Subject {
            device: Arc::new(Deaf(subject.device)),
            ..subject
        }
    });
    let found: Vec<&str> = failures.iter().map(|failure| failure.check).collect();
    assert_eq!(found, ["stops", "lost", "refuses", "corrupts"]);
}
