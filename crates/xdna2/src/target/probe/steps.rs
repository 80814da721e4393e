//! The steps of a probe, and what they measure.

use super::fault::ProbeFault;
use millrace_npu::Provenance;
use millrace_plan::{ProbeFigure, ProbeReport, ProbeStatus, ProbeStep};
use millrace_xdna2_silicon::amdxdna::{AmdxdnaDriver, AmdxdnaNode};
use millrace_xdna2_words::probe::{ProbeDesign, designs};
use std::time::{Duration, Instant};

/// Runs of a program whose time is taken; the shortest counts.
const TIMED_RUNS: usize = 5;
/// Runs of a program on the board, each with another order of actors.
const ORDERS: usize = 2;

/// A report that grows.
pub(super) struct ProbeSteps {
    report: ProbeReport,
    /// Whether times mean something.
    is_timed: bool,
}

impl ProbeSteps {
    /// Of a device, whose times are measured.
    pub(super) fn measured(place: &str) -> ProbeSteps {
        ProbeSteps::new(place, true)
    }

    /// Of a model without a clock.
    pub(super) fn modelled(place: &str) -> ProbeSteps {
        ProbeSteps::new(place, false)
    }

    fn new(place: &str, is_timed: bool) -> ProbeSteps {
        ProbeSteps {
            report: ProbeReport {
                place: place.to_owned(),
                provenance: None,
                steps: Vec::new(),
                figures: Vec::new(),
            },
            is_timed,
        }
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

    fn figure(&mut self, name: &'static str, value: f64) {
        self.report.figures.push(ProbeFigure { name, value });
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
        if self.is_timed {
            self.report.provenance = Some(Provenance::Measured("host clock".to_owned()));
        }
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

    /// Runs a program; says whether it left what it should.
    fn program<N: AmdxdnaNode>(
        &mut self,
        driver: &mut AmdxdnaDriver<N>,
        design: &ProbeDesign,
    ) -> bool {
        let n_words = design.stream.encode().len();
        let n_bytes = design.expected.len();
        let n_runs = if self.is_timed { TIMED_RUNS } else { ORDERS };
        let took = match shortest(driver, design, n_runs) {
            Ok(took) => took,
            Err(problem) => {
                self.failed(design.name, problem, ADVICE);
                return false;
            }
        };
        let mut detail = format!(
            "{}: {n_bytes} bytes as they should be, {n_words} words",
            design.summary
        );
        if self.is_timed {
            let us = took.as_secs_f64() * 1e6;
            detail.push_str(&format!(", {us:.0} us with its buffers"));
            if let Some((name, value)) = figure(design, took) {
                self.figure(name, value);
            }
        }
        self.ok(design.name, detail);
        true
    }
}

/// A figure that a program's time is good for. Times hold the making of buffers and their copies.
fn figure(design: &ProbeDesign, took: Duration) -> Option<(&'static str, f64)> {
    let ns = took.as_secs_f64() * 1e9;
    let moved_bytes = (design.input.len() + design.expected.len()) as f64;
    match design.name {
        "copy" => Some(("dispatch_ns", ns)),
        "stream" => Some(("column_bytes_per_s", moved_bytes / ns * 1e9)),
        "columns" => Some(("array_bytes_per_s", moved_bytes / ns * 1e9)),
        _ => None,
    }
}

/// What to do about a device that cannot be had.
const DEVICE_ADVICE: &str = "docs/silicon.md says what the driver needs, and how to report";
/// Where to look for what went wrong in a program.
const ADVICE: &str = "`millrace npu words` lists a stream; docs/silicon.md says what each refusal means, and how to report";

/// The shortest of some runs of a program, or what is wrong.
fn shortest<N: AmdxdnaNode>(
    driver: &mut AmdxdnaDriver<N>,
    design: &ProbeDesign,
    n_runs: usize,
) -> Result<Duration, String> {
    let mut shortest = Duration::MAX;
    for _ in 0..n_runs {
        let mut arguments = [design.input.clone(), vec![0; design.expected.len()]];
        let start = Instant::now();
        driver
            .run(&design.stream, &mut arguments)
            .map_err(|fault| match driver.node().explanation() {
                Some(explanation) => format!("{fault}: {explanation}"),
                None => fault.to_string(),
            })?;
        shortest = shortest.min(start.elapsed());
        let found = arguments[1].iter().zip(&design.expected);
        if let Some(at) = found.clone().position(|(a, b)| a != b) {
            let n = design.expected.len();
            return Err(format!("{}: byte {at} of {n} is wrong", design.summary));
        }
    }
    Ok(shortest)
}
