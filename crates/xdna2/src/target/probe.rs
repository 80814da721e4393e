//! The probe: programs of DMA alone, through the driver, on this computer's NPU or on the board.

mod fault;
mod steps;

use super::NAME;
use fault::{FAULTS, ProbeFault};
use millrace_plan::{Choice, Hardware, ProbeOf, ProbeReport, Prober, SettingError, Settings};
use millrace_xdna2_silicon::amdxdna::{
    AmdxdnaNode, DriverFault, DriverVersion, FakeKernel, NPU2, NodeFault, open_node,
};
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

/// An NPU that this computer has, told from what opening its node gave.
pub(super) fn hardware<N: AmdxdnaNode>(
    opened: Result<(String, N, DriverVersion), NodeFault>,
) -> Vec<Hardware> {
    let (place, state) = match opened {
        Ok((path, mut node, _)) => {
            let state = match node.array_shape() {
                Ok(NPU2) => NO_CORE_CODE.to_owned(),
                Ok(other) => DriverFault::Array(other).to_string(),
                Err(errno) => format!("GET_INFO failed: {errno}"),
            };
            (path, state)
        }
        Err(fault) => match &fault {
            NodeFault::Permission { path } | NodeFault::Open { path, .. } => {
                (path.clone(), fault.to_string())
            }
            NodeFault::NoNode | NodeFault::OldKernel { .. } | NodeFault::OtherDriver { .. } => {
                return Vec::new();
            }
        },
    };
    vec![Hardware {
        place,
        name: "NPU of a Ryzen AI".to_owned(),
        state: Err(state),
    }]
}

/// Why no model runs on an NPU2 that is there.
const NO_CORE_CODE: &str = "models need code for the cores, which no compiler here makes; \
     `millrace probe --device xdna2` tries the rest of the array";

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
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;
    use millrace_plan::ProbeStatus;
    use millrace_xdna2_silicon::amdxdna::{ArrayShape, FakeFaults};

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

    #[test]
    fn hardware_is_what_has_a_node_and_says_what_it_lacks() {
        let told = |shape, fault: Option<NodeFault>| {
            let faults = FakeFaults {
                shape,
                ..FakeFaults::default()
            };
            let node = FakeKernel::plain(BoardOptions::default(), faults);
            let place = "/dev/accel/accel0".to_owned();
            let opened = fault.map_or(Ok((place, node, DriverVersion::default())), Err);
            let found = hardware(opened);
            found.first().map(|found| found.state.clone().unwrap_err())
        };
        let npu2 = told(NPU2, None);
        assert!(npu2.is_some_and(|state| state.contains("millrace probe")));
        let older = told(ArrayShape { cols: 5, ..NPU2 }, None);
        assert!(older.is_some_and(|state| state.contains("5 columns")));
        let path = "/dev/accel/accel0".to_owned();
        let closed = told(NPU2, Some(NodeFault::Permission { path }));
        assert!(closed.is_some_and(|state| state.contains("usermod")));
        assert_eq!(told(NPU2, Some(NodeFault::NoNode)), None);
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
