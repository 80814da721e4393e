//! The probe: programs of DMA alone, through the driver, on this computer's NPU or on the board.

mod fault;
mod steps;

use super::NAME;
use fault::{FAULTS, ProbeFault};
use millrace_plan::{Choice, ProbeOf, ProbeReport, Prober, SettingError, Settings};
use millrace_xdna2_silicon::amdxdna::{FakeKernel, open_node};
use millrace_xdna2_words::board::BoardOptions;
use steps::ProbeSteps;

/// Tries the array with programs that need no code on any core.
pub(super) struct Xdna2Probe;

impl Prober for Xdna2Probe {
    fn faults(&self) -> Vec<Choice> {
        let choice = |fault: &ProbeFault| Choice::new(fault.name, fault.summary);
        FAULTS.iter().map(choice).collect()
    }

    fn probe(&self, settings: &Settings, of: &ProbeOf) -> Result<ProbeReport, SettingError> {
        super::machine(settings)?;
        let fault = match of {
            ProbeOf::Hardware => return Ok(of_hardware()),
            ProbeOf::Virtual(None) => None,
            ProbeOf::Virtual(Some(name)) => {
                let known = FAULTS.iter().find(|fault| fault.name == name);
                let unknown = || SettingError::unknown(NAME, "fault", name, &self.faults());
                Some(known.ok_or_else(unknown)?)
            }
        };
        Ok(of_board(fault))
    }
}

/// This computer's device, by its node.
fn of_hardware() -> ProbeReport {
    let mut steps = ProbeSteps::measured("this computer");
    match open_node() {
        Ok((path, node, version)) => {
            let (major, minor, patch) = version.numbers;
            let driver = format!("{path}: {} {major}.{minor}.{patch}", version.name);
            steps.ok("open", driver);
            steps.programs(node, None);
        }
        Err(fault) => {
            let advice = "`--virtual` runs the same programs on the board";
            steps.failed("open", fault.to_string(), advice);
        }
    }
    steps.report()
}

/// The board behind a kernel in software.
fn of_board(fault: Option<&ProbeFault>) -> ProbeReport {
    let place = "the board, a register-level model of an NPU2; never run on hardware";
    let mut steps = ProbeSteps::modelled(place);
    let options = BoardOptions {
        seed: 1,
        max_rounds: 1 << 20,
        ..BoardOptions::default()
    };
    let faults = fault.map(ProbeFault::of_kernel).unwrap_or_default();
    steps.programs(FakeKernel::plain(options, faults), fault);
    steps.report()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_plan::ProbeStatus;

    #[test]
    fn it_passes_and_every_fault_is_found() {
        let report = of_board(None);
        assert!(report.failure().is_none(), "{:?}", report.failure());
        assert!(report.steps.len() >= 10);
        for fault in &FAULTS {
            let report = of_board(Some(fault));
            let failure = report.failure();
            assert!(
                failure.is_some_and(|step| step.advice.is_some()),
                "{}",
                fault.name
            );
            let skipped = report
                .steps
                .iter()
                .filter(|s| s.status == ProbeStatus::Skipped);
            assert!(skipped.count() > 0, "{}", fault.name);
        }
    }

    /// Without a node the report says what to do, and measures nothing.
    #[test]
    fn a_computer_without_a_node_is_told_what_to_do() {
        if std::path::Path::new("/dev/accel").exists() {
            return;
        }
        let report = of_hardware();
        let failure = report.failure().map(|step| step.detail.clone());
        assert!(
            failure
                .as_deref()
                .is_some_and(|text| text.starts_with("no node in /dev/accel")),
            "{failure:?}"
        );
        assert!(report.provenance.is_none() && report.figures.is_empty());
    }
}
