//! The verifier: reports programs that hardware would refuse, hang on or get silently wrong, before anything runs.
//!
//! [`verify`] is called before a virtual device, a driver or a cache accepts a program. It works in
//! four stages, each of which needs the one before: sizes it can examine at all; structure (names,
//! places, links); resources (memories, DMA channels, descriptors and their fields, locks,
//! routes), patterns and how stages are cut; and flow (block handling of each core, balance of every channel, deadlock,
//! writes and reads). A stage's refusals are all reported; the later stages then wait.
//!
//! Its work is bounded for every program, and it never panics. [`Rule`] lists the rules with
//! their sources; limits come from the [`Machine`].

mod cores;
mod coverage;
mod descriptor;
mod flow;
mod joins;
mod kernels;
mod known;
mod limits;
mod memory;
mod pattern;
mod place;
mod resources;
mod route;
mod rule;
mod run;
mod tasks;

pub(crate) use joins::{StageCost, stage_costs};
pub use known::Verifier;
pub use rule::{Refusal, Rule};

use crate::Machine;
use crate::program::{Flat, FlatError, Launch, Program, resident};
use known::LaunchesAlone;
use rule::{Findings, RuleFinding};

/// The most that any tile uses of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceReport {
    /// Bytes of L1 of a core, with its stack.
    pub l1_bytes: u64,
    /// Bytes of a memory tile.
    pub l2_bytes: u64,
    /// Bytes of program memory of a core, by a low estimate.
    pub program_bytes: u64,
    /// DMA channels of a tile in one direction.
    pub dma_channels: u64,
    /// Buffer descriptors of a core.
    pub core_bds: u64,
    /// Buffer descriptors of a memory tile.
    pub memory_bds: u64,
    /// Locks of a tile.
    pub locks: u64,
    /// Streams over one link between two switches.
    pub link_streams: u64,
    /// Slots that are cut too finely to examine their writes.
    pub unexamined_slots: Vec<String>,
}

impl ResourceReport {
    /// The larger of each number.
    fn most(self, other: &ResourceReport) -> ResourceReport {
        ResourceReport {
            l1_bytes: self.l1_bytes.max(other.l1_bytes),
            l2_bytes: self.l2_bytes.max(other.l2_bytes),
            program_bytes: self.program_bytes.max(other.program_bytes),
            dma_channels: self.dma_channels.max(other.dma_channels),
            core_bds: self.core_bds.max(other.core_bds),
            memory_bds: self.memory_bds.max(other.memory_bds),
            locks: self.locks.max(other.locks),
            link_streams: self.link_streams.max(other.link_streams),
            unexamined_slots: self.unexamined_slots,
        }
    }
}

/// Checks a program against a machine.
///
/// # Errors
///
/// Every rule that the program breaks, as far as they could be examined: see the module.
pub fn verify(program: &Program, machine: &Machine) -> Result<ResourceReport, Vec<Refusal>> {
    examine(program, machine, &|_| None).map(|(report, _)| report)
}

/// Launches by number, with what each uses by itself.
type LaunchReports = Vec<(usize, ResourceReport)>;

/// As [`verify`]; `known` gives the report of a launch that was accepted before. Returns the launches that were not known, too.
fn examine(
    program: &Program,
    machine: &Machine,
    known: &dyn Fn(&Launch) -> Option<ResourceReport>,
) -> Result<(ResourceReport, LaunchReports), Vec<Refusal>> {
    let mut findings = Findings::default();
    limits::check(program, &mut findings);
    findings.stop()?;
    names(program, &mut findings);
    let flats = structure(program, machine, &mut findings)?;
    let mut alone = LaunchesAlone::new(&flats, known);
    alone.check_all(&mut findings, |flat, _, findings| {
        place::check(flat, machine, findings);
    });
    findings.stop()?;
    for (number, flat) in flats.iter().enumerate() {
        findings.launch.clone_from(&flat.launch.name);
        alone.check(number, &mut findings, |flat, report, findings| {
            resources::check(flat, machine, report, findings);
            memory::check(flat, machine, report, findings);
        });
        // Patterns are held against the slots.
        pattern::check(program, flat, machine, &mut findings);
    }
    findings.stop()?;
    alone.check_all(&mut findings, |flat, report, findings| {
        route::check(flat, machine, report, findings);
        coverage::stages(flat, findings);
    });
    findings.stop()?;
    alone.check_all(&mut findings, |flat, report, findings| {
        joins::check(flat, machine, report, findings);
    });
    findings.stop()?;
    let mut report = alone.report();
    side_by_side(program, machine, &mut report, &mut findings);
    findings.stop()?;
    alone.check_all(&mut findings, |flat, _, findings| {
        flow::check(flat, findings);
    });
    findings.stop()?;
    let mut slots = coverage::Coverage::new(program, &flats);
    for flat in &flats {
        findings.launch.clone_from(&flat.launch.name);
        slots.launch(flat, &mut findings);
    }
    findings.stop()?;
    slots.finish(&mut findings);
    findings.stop()?;
    report.unexamined_slots = slots.skipped;
    report.unexamined_slots.dedup();
    Ok((report, alone.new_ones()))
}

/// Resources that resident launches need together: the limits of the machine hold for all their configurations side by
/// side. Each was examined alone before.
fn side_by_side(
    program: &Program,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    if let Some(first) = program.launches.first().filter(|l| l.resident) {
        findings.launch.clone_from(&first.name);
        let finding = RuleFinding::new(Rule::Malformed, "resident, and no launch is before it");
        let fix = "Leave the word out of a program's first launch";
        findings.add("resident", "resident", finding.fix(fix));
    }
    for group in resident::groups(&program.launches) {
        let group = &program.launches[group];
        if group.len() < 2 {
            continue;
        }
        let mut all = resident::union(group);
        all.name = format!("{} and those resident beside it", all.name);
        findings.launch.clone_from(&all.name);
        match Flat::new(&all) {
            Ok(flat) => {
                resources::check(&flat, machine, report, findings);
                memory::check(&flat, machine, report, findings);
                route::check(&flat, machine, report, findings);
                if findings.list.is_empty() {
                    joins::check(&flat, machine, report, findings);
                }
            }
            Err(error) => place::flat_error(&error, findings),
        }
    }
}

/// Expands every launch.
fn structure<'p>(
    program: &'p Program,
    machine: &Machine,
    findings: &mut Findings,
) -> Result<Vec<Flat<'p>>, Vec<Refusal>> {
    let mut flats: Vec<Flat<'p>> = Vec::new();
    for launch in &program.launches {
        findings.launch.clone_from(&launch.name);
        if let Some(&slot) = launch.args.iter().find(|&&s| s >= program.slots.len()) {
            let message = format!(
                "argument {slot}, the program has {} slots",
                program.slots.len()
            );
            let finding = RuleFinding::new(Rule::Malformed, message);
            findings.add("args", "args", finding.fix("Name a slot of the program"));
            continue;
        }
        place::herds(launch, machine, findings);
        let broken: Result<Flat<'p>, FlatError> = Flat::new(launch);
        match broken {
            Ok(flat) => flats.push(flat),
            Err(error) => place::flat_error(&error, findings),
        }
    }
    findings.stop()?;
    Ok(flats)
}

/// Slot and launch names once each.
fn names(program: &Program, findings: &mut Findings) {
    findings.launch.clear();
    let mut seen = std::collections::HashSet::new();
    let slots = program.slots.iter().map(|s| ("slot", &s.name));
    let launches = program.launches.iter().map(|l| ("launch", &l.name));
    for (kind, name) in slots.chain(launches) {
        if !seen.insert((kind, name)) {
            let finding = RuleFinding::new(Rule::Malformed, format!("two have the name {name}"));
            findings.add(name, format!("{kind} {name}"), finding.fix("Rename one"));
        }
    }
}
