//! The probe: checks step by step whether the NPU is alive, before any model is tried.
//!
//! It opens the device, allocates, submits a product of 64 × 64 × 64 bytes, waits and compares. Then it measures the
//! clock, the bandwidth and a second core. Every step reports its finding, or its failure and advice. It uses only the
//! driver, on Linux or on a virtual board.

mod bench;

use crate::driver::{self, Driver, DriverError, OpenError};
use crate::machine::Machine;
use crate::rocket::Host;
use bench::{RunError, TaskBench};
use millrace_npu::Provenance;
use serde::Serialize;

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should.
    Ok,
    /// It works, and something is worth knowing.
    Note,
    /// It failed.
    Failed,
    /// A step before it failed.
    Skipped,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoardProbeStep {
    /// Its name (`open`).
    pub name: &'static str,
    /// How it went.
    pub status: Status,
    /// Finding of the step.
    pub detail: String,
    /// Advice, where there is something to do.
    pub advice: Option<String>,
}

/// Result of the probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoardProbeReport {
    /// Host that was probed (`Linux 6.18.2`, `virtual board, kernel 6.18.0`).
    pub host: String,
    /// Whether the times are measured or modelled; `None` where no device was opened.
    pub provenance: Option<Provenance>,
    /// The steps in order.
    pub steps: Vec<BoardProbeStep>,
    /// Clock that the array seems to run at, in Hz.
    pub clock_hz: Option<f64>,
    /// Bytes of weights that one core reads in a second.
    pub weight_bytes_per_s: Option<f64>,
    /// Bytes that the host writes into and reads from a buffer object in a second.
    pub host_bytes_per_s: Option<f64>,
    /// Gain of two open files over one, in work done.
    pub second_core_gain: Option<f64>,
}

impl BoardProbeReport {
    /// Whether every step went well.
    pub fn passed(&self) -> bool {
        let bad = |step: &BoardProbeStep| matches!(step.status, Status::Failed | Status::Skipped);
        !self.steps.iter().any(bad)
    }
}

/// The steps in order.
pub const STEPS: [&str; 8] = [
    "open",
    "allocate",
    "submit",
    "wait",
    "compare",
    "clock",
    "bandwidth",
    "second core",
];

/// A step that failed: detail and advice.
type Failure = (String, Option<String>);

/// Probes a host's NPU.
pub fn run(host: &dyn Host, machine: &Machine) -> BoardProbeReport {
    let mut report = BoardProbeReport {
        host: host.describe(),
        provenance: None,
        steps: Vec::new(),
        clock_hz: None,
        weight_bytes_per_s: None,
        host_bytes_per_s: None,
        second_core_gain: None,
    };
    if let Err((detail, advice)) = steps(host, machine, &mut report) {
        report.push(Status::Failed, detail, advice);
    }
    while report.steps.len() < STEPS.len() {
        report.push(Status::Skipped, "a step before it failed".into(), None);
    }
    report
}

impl BoardProbeReport {
    fn push(&mut self, status: Status, detail: String, advice: Option<String>) {
        let name = STEPS.get(self.steps.len()).copied().unwrap_or("more");
        self.steps.push(BoardProbeStep {
            name,
            status,
            detail,
            advice,
        });
    }

    fn ok(&mut self, detail: String) {
        self.push(Status::Ok, detail, None);
    }
}

fn steps(host: &dyn Host, machine: &Machine, report: &mut BoardProbeReport) -> Result<(), Failure> {
    let driver = Driver::open(host, 2).map_err(|error| opening(&error))?;
    let node = driver.node(0);
    report.provenance = Some(node.provenance());
    let version = &driver.version;
    let (major, minor, patch) = version.numbers;
    report.ok(format!(
        "{}: driver {} {major}.{minor}.{patch} ({})",
        driver.path, version.name, version.description
    ));
    let bench = TaskBench::small(node, machine).map_err(calling)?;
    report.ok(bench.describe());
    let submitted = bench.submit().map_err(calling)?;
    report.ok("64 x 64 x 64 of 8-bit integers, one task on one core".into());
    let ran = bench.wait(submitted).map_err(waiting)?;
    report.ok(format!("its output was written after {}", time(ran)));
    bench.compare().map_err(comparing)?;
    report.ok("all 4,096 results are those of the host".into());
    clock(&driver, machine, report)?;
    bandwidth(&driver, machine, report)?;
    second_core(&driver, machine, report)
}

fn clock(driver: &Driver, machine: &Machine, report: &mut BoardProbeReport) -> Result<(), Failure> {
    // The difference of two lengths does not contain the fixed cost of a job.
    let make = |n_tasks| TaskBench::array_bound(driver.node(0), n_tasks, machine).map_err(calling);
    let (short, long) = (make(1)?, make(3)?);
    let ns = long.best_of(2).map_err(running)? - short.best_of(2).map_err(running)?;
    let cycles = long.mac_cycles(machine) - short.mac_cycles(machine);
    let hz = cycles * 1e9 / ns.max(1.0);
    report.clock_hz = Some(hz);
    let detail = format!("the array runs at {:.0} MHz or more", hz / 1e6);
    match hz < STOCK_BELOW_HZ {
        true => report.push(
            Status::Note,
            detail,
            Some(
                "this is the 200 MHz that mainline device trees pin; raising the clock (600 MHz was \
                 stable on one board, with a module out of tree) makes products up to three times as \
                 fast"
                    .into(),
            ),
        ),
        false => report.ok(detail),
    }
    Ok(())
}

/// Between the stock clock and the next.
const STOCK_BELOW_HZ: f64 = 300e6;

fn bandwidth(
    driver: &Driver,
    machine: &Machine,
    report: &mut BoardProbeReport,
) -> Result<(), Failure> {
    let bench = TaskBench::memory_bound(driver.node(0), machine).map_err(calling)?;
    let ns = bench.best_of(3).map_err(running)?;
    let rate = bench.weight_bytes() as f64 * 1e9 / ns;
    report.weight_bytes_per_s = Some(rate);
    let start = std::time::Instant::now();
    let copied = bench.copy_weights().map_err(calling)?;
    let host = copied as f64 / start.elapsed().as_secs_f64().max(1e-9);
    report.host_bytes_per_s = Some(host);
    report.ok(format!(
        "one core reads {:.1} GB/s of weights; the host copies {:.1} GB/s to and from its mapping \
         (measured)",
        rate / 1e9,
        host / 1e9
    ));
    Ok(())
}

fn second_core(
    driver: &Driver,
    machine: &Machine,
    report: &mut BoardProbeReport,
) -> Result<(), Failure> {
    let make =
        |worker: usize| TaskBench::array_bound(driver.node(worker), 3, machine).map_err(calling);
    let (one, two) = (make(0)?, make(1)?);
    let alone = one.best_of(2).map_err(running)?;
    let started = driver.node(0).now_ns();
    let (first, second) = (
        one.submit().map_err(calling)?,
        two.submit().map_err(calling)?,
    );
    one.wait(first).map_err(running)?;
    two.wait(second).map_err(running)?;
    let both = (driver.node(0).now_ns() - started) as f64;
    let gain = 2.0 * alone / both.max(1.0);
    report.second_core_gain = Some(gain);
    let detail = format!("two open files do {gain:.2} times as much as one");
    match gain > 1.4 {
        true => report.ok(detail),
        false => report.push(
            Status::Note,
            detail,
            Some(
                "two cores should give nearly 2: check that the device tree enables all three cores \
                 (`dmesg | grep rocket`) and that nothing else uses the NPU"
                    .into(),
            ),
        ),
    }
    Ok(())
}

fn time(ns: f64) -> String {
    match ns < 1e6 {
        true => format!("{:.0} us", ns / 1e3),
        false => format!("{:.2} ms", ns / 1e6),
    }
}

/// The message of an open error is its own advice after the colon.
fn opening(error: &OpenError) -> Failure {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((what, advice)) => (what.to_owned(), Some(advice.to_owned())),
        None => (text, None),
    }
}

fn calling(error: DriverError) -> Failure {
    use rustix::io::Errno;
    let advice = match error.errno {
        _ if error.is_gone() => "the device has disappeared: look into `dmesg`, reload the driver",
        Errno::NOMEM => "free memory: other programs hold it",
        Errno::NOSPC => "the NPU's address space is full, which no probe does: look into `dmesg`",
        Errno::INVAL => {
            "the driver does not know this call: check that the kernel is 6.18 or newer and the driver \
             mainline's `rocket`"
        }
        _ => "look into `dmesg`",
    };
    (error.to_string(), Some(advice.into()))
}

fn waiting(error: RunError) -> Failure {
    match error {
        RunError::Driver(error) => calling(error),
        RunError::Unwritten { waited_ns, log } if waited_ns >= 450_000_000 => (
            format!(
                "the output is not written after {}: the kernel reset the job{}",
                time(waited_ns as f64),
                logged(&log)
            ),
            Some(
                "look into `dmesg` for IOMMU faults and timeouts of fdab0000.npu; check the NPU's \
                 power domains and clocks in the device tree"
                    .into(),
            ),
        ),
        RunError::Unwritten { log, .. } => (
            format!("the job ended without writing its output{}", logged(&log)),
            Some(
                "the driver ignores jobs that it finds wrong: update the kernel; look into `dmesg`"
                    .into(),
            ),
        ),
        RunError::Wrong { .. } => comparing(error),
    }
}

/// The failure of a later product.
fn running(error: RunError) -> Failure {
    let (detail, advice) = waiting(error);
    (format!("a larger product: {detail}"), advice)
}

fn logged(log: &[String]) -> String {
    match log.is_empty() {
        true => String::new(),
        false => format!(" (the kernel says: {})", log.join("; ")),
    }
}

fn comparing(error: RunError) -> Failure {
    match error {
        RunError::Wrong {
            n_wrong,
            row,
            col,
            found,
            expected,
        } => (
            format!("{n_wrong} of 4,096 results are wrong; the first at ({row}, {col}) is {found}, not {expected}"),
            Some(
                "the NPU computes, but not this: lower its clock if it was raised, check its voltage, \
                 and report the kernel and board"
                    .into(),
            ),
        ),
        other => waiting(other),
    }
}

/// Whether a host has an NPU that can be opened; for lists of devices.
///
/// # Errors
/// Why not, and what to do.
pub fn found(host: &dyn Host) -> Result<String, OpenError> {
    driver::open(host).map(|(path, ..)| path)
}
