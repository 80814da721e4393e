//! The steps of a probe, and their measurements.

use super::constants::{ProbeConstants, ProbeTime};
use super::fault::ProbeFault;
use millrace_npu::Provenance;
use millrace_plan::{ProbeFigure, ProbeReport, ProbeStatus, ProbeStep};
use millrace_xdna2_silicon::amdxdna::{AmdxdnaDriver, AmdxdnaNode, CommandCost};
use millrace_xdna2_words::probe::{ProbeDesign, designs};

/// Runs of a program whose time is taken; the shortest counts.
const TIMED_RUNS: usize = 5;
/// Runs of a program on the board, each with another order of actors.
const ORDERS: usize = 2;
/// Bytes from which a program on the board runs once: it takes seconds, and smaller ones have tried its ways.
const LARGE_BYTES: usize = 256 << 10;

/// A report that grows.
pub(super) struct ProbeSteps {
    report: ProbeReport,
    /// Provenance of the times.
    times: Provenance,
    /// Time of each program.
    taken: Vec<ProbeTime>,
}

impl ProbeSteps {
    /// Steps on a device with such times.
    pub(super) fn new(place: &str, times: Provenance) -> ProbeSteps {
        ProbeSteps {
            report: ProbeReport {
                place: place.to_owned(),
                provenance: None,
                steps: Vec::new(),
                figures: Vec::new(),
                profile: None,
            },
            times,
            taken: Vec::new(),
        }
    }

    /// The constants from the programs' times, if all of them ran.
    pub(super) fn constants(&self) -> Option<ProbeConstants> {
        ProbeConstants::new(&self.taken)
    }

    /// Time of each program, in their order.
    pub(super) fn taken(&self) -> &[ProbeTime] {
        &self.taken
    }

    /// Adds the constants, and a profile with them.
    pub(super) fn found(&mut self, constants: &ProbeConstants, profile: String) {
        let figures = constants.figures().into_iter();
        self.report.figures = figures
            .map(|(name, value)| ProbeFigure { name, value })
            .collect();
        self.report.profile = Some(profile);
    }

    /// The report.
    pub(super) fn report(self) -> ProbeReport {
        self.report
    }

    fn push(&mut self, name: &str, status: ProbeStatus, detail: String, advice: Option<&str>) {
        self.report.steps.push(ProbeStep {
            name: name.to_owned(),
            status,
            detail,
            advice: advice.map(str::to_owned),
        });
    }

    /// A step that went well.
    pub(super) fn ok(&mut self, name: &str, detail: String) {
        self.push(name, ProbeStatus::Ok, detail, None);
    }

    /// A step that failed.
    pub(super) fn failed(&mut self, name: &str, problem: String, advice: &str) {
        self.push(name, ProbeStatus::Failed, problem, Some(advice));
    }

    /// Opens a node, runs all programs on it, closes it.
    pub(super) fn programs(&mut self, node: impl AmdxdnaNode, fault: Option<&ProbeFault>) {
        let designs = match designs() {
            Ok(designs) => designs,
            Err(error) => return self.failed("write", error.to_string(), ADVICE),
        };
        let mut driver = match AmdxdnaDriver::open(node) {
            Ok(driver) => driver,
            Err(fault) => {
                self.failed("device", fault.to_string(), DEVICE_ADVICE);
                return self.skip(&designs);
            }
        };
        let versions = driver.versions();
        let (major, minor) = versions.array;
        let shape = versions.shape;
        let detail = format!(
            "{} × {} tiles, array version {major}.{minor}, firmware {}",
            shape.cols, shape.rows, versions.firmware
        );
        self.ok("device", detail);
        self.report.provenance = Some(self.times.clone());
        for (number, design) in designs.iter().enumerate() {
            let mut design = design.clone();
            if let Some(fault) = fault {
                fault.in_stream(&mut design.stream);
            }
            if !self.program(&mut driver, &design) {
                self.skip(&designs[number + 1..]);
                return;
            }
        }
        match driver.close() {
            Ok(()) => self.ok("close", "everything was given back".to_owned()),
            Err(fault) => self.failed("close", fault.to_string(), DEVICE_ADVICE),
        }
    }

    fn skip(&mut self, designs: &[ProbeDesign]) {
        for design in designs {
            let detail = "a step before it failed".to_owned();
            self.push(design.name, ProbeStatus::Skipped, detail, None);
        }
    }

    /// Runs a program; returns whether its output was right.
    fn program<N: AmdxdnaNode>(
        &mut self,
        driver: &mut AmdxdnaDriver<N>,
        design: &ProbeDesign,
    ) -> bool {
        let n_bytes = design.expected.len();
        let n_runs = match self.times {
            Provenance::Measured(_) => TIMED_RUNS,
            Provenance::Modelled { .. } if design.input.len() > LARGE_BYTES => 1,
            Provenance::Modelled { .. } => ORDERS,
        };
        let cost = match shortest(driver, design, n_runs) {
            Ok(cost) => cost,
            Err(problem) => {
                self.failed(design.name, problem, ADVICE);
                return false;
            }
        };
        self.taken.push(ProbeTime {
            name: design.name,
            n_stream_bytes: cost.stream_bytes,
            read_bytes: design.input.len(),
            written_bytes: n_bytes,
            ns: cost.ns,
        });
        let detail = format!(
            "{}: {n_bytes} bytes as they should be, {} words, {:.1} us",
            design.summary,
            cost.stream_bytes / 4,
            cost.ns / 1e3
        );
        self.ok(design.name, detail);
        true
    }
}

/// Advice for a device that is not available.
const DEVICE_ADVICE: &str = "docs/silicon.md says what the driver needs, and how to report";
/// Advice after a program failed.
const ADVICE: &str = "`millrace npu words` lists a stream; docs/silicon.md says what each refusal means, and how to report";

/// The shortest of some runs of a program, or the fault.
fn shortest<N: AmdxdnaNode>(
    driver: &mut AmdxdnaDriver<N>,
    design: &ProbeDesign,
    n_runs: usize,
) -> Result<CommandCost, String> {
    let mut shortest = CommandCost {
        ns: f64::INFINITY,
        stream_bytes: 0,
    };
    for _ in 0..n_runs {
        let mut arguments = [design.input.clone(), vec![0; design.expected.len()]];
        driver
            .run(&design.stream, &mut arguments)
            .map_err(|fault| match driver.node().explanation() {
                Some(explanation) => format!("{fault}: {explanation}"),
                None => fault.to_string(),
            })?;
        let cost = driver.command();
        if cost.ns < shortest.ns {
            shortest = cost;
        }
        let found = arguments[1].iter().zip(&design.expected);
        if let Some(at) = found.clone().position(|(a, b)| a != b) {
            let n = design.expected.len();
            return Err(format!("{}: byte {at} of {n} is wrong", design.summary));
        }
    }
    Ok(shortest)
}
