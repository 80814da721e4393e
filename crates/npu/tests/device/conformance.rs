//! The conformance suite passes a right device and finds every wrong one.
use crate::ram_device::{Defect, subject};
use millrace_npu::conformance::run;

#[test]
fn a_right_device_passes() {
    let failures = run(&|| subject(Defect::None));
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
        let failures = run(&|| subject(defect));
        let found = failures.iter().any(|failure| failure.check == check);
        assert!(found, "{defect:?} is not found by `{check}`: {failures:#?}");
    }
}
