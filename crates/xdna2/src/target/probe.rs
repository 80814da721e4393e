//! The probe: programs of DMA alone, through the driver, on this computer's NPU or on the board.

mod constants;
mod fault;
mod steps;

use super::NAME;
use fault::{FAULTS, ProbeFault};
use millrace_npu::Provenance;
use millrace_plan::{Choice, Hardware, ProbeOf, ProbeReport, Prober, SettingError, Settings};
use millrace_xdna2_machine::{Machine, Profile};
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
        let model = super::machine(settings)?;
        let fault = match of {
            ProbeOf::Hardware => return Ok(of_hardware(&model)),
            ProbeOf::Virtual(None) => None,
            ProbeOf::Virtual(Some(name)) => {
                let known = FAULTS.iter().find(|fault| fault.name == name);
                let unknown = || SettingError::unknown(NAME, "fault", name, &self.faults());
                Some(known.ok_or_else(unknown)?)
            }
        };
        Ok(of_board(&model, fault))
    }
}

/// An NPU of this computer, from the result of opening its node.
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

/// Why no model runs on an NPU2 of this computer.
const NO_CORE_CODE: &str = "models need code for the cores, which no compiler here makes; \
     `millrace probe --device xdna2` tries the rest of the array";

/// This computer's device, by its node.
fn of_hardware(model: &(Machine, Profile)) -> ProbeReport {
    let place = "this computer";
    let mut steps = ProbeSteps::new(place, Provenance::Measured("host clock".to_owned()));
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
    with_profile(steps, model, place)
}

/// The board behind a kernel in software.
fn of_board(model: &(Machine, Profile), fault: Option<&ProbeFault>) -> ProbeReport {
    let place = "the board, a register-level model of an NPU2; never run on hardware";
    let steps = on_board(model, fault, place);
    with_profile(steps, model, place)
}

/// All programs on a board with the profile's times.
fn on_board(
    (machine, profile): &(Machine, Profile),
    fault: Option<&ProbeFault>,
    place: &str,
) -> ProbeSteps {
    let times = Provenance::Modelled {
        profile: profile.name.clone(),
        error: None,
    };
    let mut steps = ProbeSteps::new(place, times);
    let options = BoardOptions {
        seed: 1,
        max_rounds: 1 << 20,
        ..BoardOptions::default()
    };
    let faults = fault.map(ProbeFault::of_kernel).unwrap_or_default();
    let kernel = FakeKernel::plain(options, faults)
        .with_clock(profile.clock_rates(machine), profile.dispatch.call_ns);
    steps.programs(kernel, fault);
    steps
}

/// The report with a profile of the measured constants, if all programs ran.
fn with_profile(
    mut steps: ProbeSteps,
    (machine, profile): &(Machine, Profile),
    place: &str,
) -> ProbeReport {
    if let Some(constants) = steps.constants() {
        // A file starts from a built-in profile.
        let base = Profile::builtin(&profile.name).or_else(|| Profile::builtin(Profile::DEFAULT));
        let base = base.unwrap_or_default();
        let probed = (machine.clone(), constants.applied(&base));
        let predicted = on_board(&probed, None, place);
        let error = constants::error_percent(steps.taken(), predicted.taken());
        let text = constants.toml(&base.name, place, error);
        steps.found(&constants, text);
    }
    steps.report()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;
    use crate::mapping;
    use millrace_plan::ProbeStatus;
    use millrace_xdna2_machine::profile::ErrorScope;
    use millrace_xdna2_machine::timing;
    use millrace_xdna2_silicon::amdxdna::{ArrayShape, FakeFaults};

    fn model() -> (Machine, Profile) {
        let profile = Profile::builtin(Profile::DEFAULT).unwrap();
        (Machine::npu2(), profile)
    }

    /// The board under constants that no profile has: the probed profile predicts it.
    #[test]
    fn a_probed_profile_predicts_the_device_that_was_probed() {
        let (machine, mut device) = model();
        for change in [
            "dispatch.call_ns=105000",
            "dispatch.issue_ns=1100",
            "shim.port_gb_per_s=7.5",
            "ddr.read_gb_per_s=38",
            "ddr.total_gb_per_s=46",
        ] {
            device.set(change).unwrap();
        }
        let device = (machine, device);
        let report = of_board(&device, None);
        assert!(report.failure().is_none(), "{:?}", report.failure());
        let probed = Profile::from_toml(&report.profile.unwrap(), "probed.toml").unwrap();
        let close = |found: f64, is: f64, percent: f64| {
            let error = (found / is - 1.0).abs() * 100.0;
            assert!(error <= percent, "{found} for {is}");
        };
        close(probed.dispatch.call_ns, 105_000.0, 2.0);
        close(probed.dispatch.issue_ns, 1100.0, 2.0);
        close(probed.shim.port_gb_per_s, 7.5, 2.0);
        close(probed.ddr.read_gb_per_s, 38.0, 2.0);
        close(probed.ddr.total_gb_per_s, 46.0, 2.0);
        // Programs of the probe, and kernels that it does not measure.
        let stated = probed.errors.of(ErrorScope::Kernel);
        assert!(stated > 0.0 && stated < 3.0, "{stated}");
        let times = |model| on_board(model, None, "").taken().to_vec();
        let probed = (device.0.clone(), probed);
        let error = constants::error_percent(&times(&device), &times(&probed));
        assert!(error <= stated + 0.1, "{error}, stated {stated}");
        for (name, shape) in [
            ("add", "1048576"),
            ("gemm-drain", "512x512x512"),
            ("gemv", "2048x2048"),
        ] {
            let mapping = mapping::find(name).unwrap();
            let shape = mapping.parse_shape(shape).unwrap();
            let tiling = mapping.default_tiling(&shape, &device.0);
            let program = mapping.build(&shape, &tiling, &device.0).unwrap();
            let ns = |of: &Profile| timing::predict(&program, &device.0, of).unwrap().total_ns;
            close(ns(&probed.1), ns(&device.1), stated.max(1.0));
            // The profile that it starts from predicts something else.
            assert!((ns(&model().1) / ns(&device.1) - 1.0).abs() > 0.1, "{name}");
        }
    }

    #[test]
    fn it_passes_and_every_fault_is_found() {
        let report = of_board(&model(), None);
        assert!(report.failure().is_none(), "{:?}", report.failure());
        assert!(report.steps.len() >= 10);
        for fault in &FAULTS {
            let report = of_board(&model(), Some(fault));
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

    /// Without a node the report gives advice, and measures nothing.
    #[test]
    fn a_computer_without_a_node_is_told_what_to_do() {
        if std::path::Path::new("/dev/accel").exists() {
            return;
        }
        let report = of_hardware(&model());
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
