//! Launches that need not be examined again.

use super::rule::Findings;
use super::{Refusal, ResourceReport, examine};
use crate::Machine;
use crate::program::{Flat, Launch, Program};
use std::cell::RefCell;

/// A verifier of one machine that knows the launches of the programs it accepted.
///
/// Most rules concern a launch alone, whatever its name and whichever slots are its arguments. A stitched program has the launches of
/// its parts, and a model's layers repeat theirs. So rules about a launch alone examine equal launches once. Findings and reports are
/// those of [`verify`](super::verify()).
pub struct Verifier<'m> {
    machine: &'m Machine,
    known: RefCell<Vec<KnownLaunch>>,
}

/// An accepted launch.
struct KnownLaunch {
    /// Its name and arguments do not count.
    launch: Launch,
    /// What it uses by itself.
    report: ResourceReport,
}

impl<'m> Verifier<'m> {
    /// A verifier that knows no launch yet.
    pub fn new(machine: &'m Machine) -> Verifier<'m> {
        Verifier {
            machine,
            known: RefCell::default(),
        }
    }

    /// Checks a program, and remembers its launches if it is accepted.
    ///
    /// # Errors
    /// Those of [`verify`](super::verify()).
    pub fn verify(&self, program: &Program) -> Result<ResourceReport, Vec<Refusal>> {
        let known = |launch: &Launch| {
            let known = self.known.borrow();
            let found = known.iter().find(|known| is_like(&known.launch, launch));
            found.map(|known| known.report.clone())
        };
        let (report, new) = examine(program, self.machine, &known)?;
        let new = new.into_iter().map(|(number, report)| KnownLaunch {
            launch: program.launches[number].clone(),
            report,
        });
        self.known.borrow_mut().extend(new);
        Ok(report)
    }
}

/// Whether two launches differ at most in their names and arguments.
fn is_like(a: &Launch, b: &Launch) -> bool {
    (&a.grid, a.order, a.resident) == (&b.grid, b.order, b.resident)
        && a.channels == b.channels
        && a.stages == b.stages
        && a.transfers == b.transfers
        && a.herds == b.herds
}

/// The launches of a program under the rules that concern a launch alone.
pub(super) struct LaunchesAlone<'a, 'p> {
    flats: &'a [Flat<'p>],
    /// By launch: the first that is like it.
    first: Vec<usize>,
    /// By launch: whether an earlier program had it.
    is_known: Vec<bool>,
    /// By launch: whether it passed the rules of the current stage.
    passes: Vec<bool>,
    /// By launch: what it uses; nothing for one that is like an earlier one.
    reports: Vec<ResourceReport>,
}

impl<'a, 'p> LaunchesAlone<'a, 'p> {
    /// `known` gives the report of a launch that was accepted before.
    pub(super) fn new(
        flats: &'a [Flat<'p>],
        known: &dyn Fn(&Launch) -> Option<ResourceReport>,
    ) -> LaunchesAlone<'a, 'p> {
        let mut first: Vec<usize> = Vec::with_capacity(flats.len());
        for (number, flat) in flats.iter().enumerate() {
            let mut firsts = (0..number).filter(|&earlier| first[earlier] == earlier);
            let like = firsts.find(|&earlier| is_like(flats[earlier].launch, flat.launch));
            first.push(like.unwrap_or(number));
        }
        let mut reports: Vec<Option<ResourceReport>> = vec![None; flats.len()];
        for (number, flat) in flats.iter().enumerate() {
            reports[number] = match first[number] == number {
                true => known(flat.launch),
                false => reports[first[number]].clone(),
            };
        }
        LaunchesAlone {
            flats,
            first,
            is_known: reports.iter().map(Option::is_some).collect(),
            passes: vec![false; flats.len()],
            reports: reports.into_iter().map(Option::unwrap_or_default).collect(),
        }
    }

    /// Applies a stage's rules to every launch.
    pub(super) fn check_all(
        &mut self,
        findings: &mut Findings,
        rules: impl Fn(&Flat<'p>, &mut ResourceReport, &mut Findings),
    ) {
        for (number, flat) in self.flats.iter().enumerate() {
            findings.launch.clone_from(&flat.launch.name);
            self.check(number, findings, &rules);
        }
    }

    /// Applies a stage's rules to a launch, unless it is known or like an earlier one that passed them.
    pub(super) fn check(
        &mut self,
        number: usize,
        findings: &mut Findings,
        rules: impl FnOnce(&Flat<'p>, &mut ResourceReport, &mut Findings),
    ) {
        let first = self.first[number];
        if self.is_known[number] || (first < number && self.passes[first]) {
            return;
        }
        let n_before = findings.list.len();
        rules(&self.flats[number], &mut self.reports[number], findings);
        self.passes[number] = findings.list.len() == n_before;
    }

    /// The most that any launch uses.
    pub(super) fn report(&self) -> ResourceReport {
        let most = ResourceReport::default();
        self.reports.iter().fold(most, ResourceReport::most)
    }

    /// Launches that were not known, one of each kind, with their reports.
    pub(super) fn new_ones(self) -> Vec<(usize, ResourceReport)> {
        let LaunchesAlone {
            first, is_known, ..
        } = self;
        let reports = self.reports.into_iter().enumerate();
        reports
            .filter(|(number, _)| first[*number] == *number && !is_known[*number])
            .collect()
    }
}
