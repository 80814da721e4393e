//! Orders of actors, tried one after the other, and what they must have alike.

use super::equality::either;
use super::stage::{DesignStage, ProgramNotes};
use super::{RunOutcome, RunReport, SeededRun, Verdict, difference};
use crate::design::Design;
use crate::syntax::SyntaxError;
use millrace_xdna2_words::board::PacketChoice;

/// Orders that were tried, and passed.
pub(super) struct TriedOrders<'r> {
    design: &'r Design,
    stages: &'r [DesignStage<'r>],
    notes: &'r ProgramNotes,
    first: Option<RunOutcome>,
    orders: Vec<String>,
}

impl<'r> TriedOrders<'r> {
    pub(super) fn new(
        design: &'r Design,
        stages: &'r [DesignStage<'r>],
        notes: &'r ProgramNotes,
    ) -> TriedOrders<'r> {
        TriedOrders {
            design,
            stages,
            notes,
            first: None,
            orders: Vec::new(),
        }
    }

    /// Tries one more; gives the report if something went wrong.
    pub(super) fn one(
        &mut self,
        run: SeededRun<'_>,
        order: String,
    ) -> Result<Option<RunReport>, SyntaxError> {
        let outcome = either(self.design, self.stages, self.notes, run)?;
        // What an unknown kernel leaves is noise.
        let has_values = self.notes.unknown.is_empty();
        let any_order = run.options.any_order;
        let mut report = outcome.report.clone();
        if report.verdict == Verdict::Pass {
            let Some(first) = &self.first else {
                self.orders.push(order);
                self.first = Some(outcome);
                return Ok(None);
            };
            let name = self.orders.first().map_or("", String::as_str);
            let pair = (&first.after[..], &outcome.after[..]);
            let is_same = !has_values || difference::is_same(self.design, pair, any_order);
            let problem = match (is_same, rewritten(first, &outcome)) {
                (_, Some(choice)) => raced(choice, name),
                (true, None) => {
                    self.orders.push(order);
                    return Ok(None);
                }
                (false, None) => difference::told(self.design, (pair.0, name), pair.1),
            };
            report.verdict = Verdict::Fail;
            report.outputs.clear();
            report.problem = Some(problem);
        }
        report.orders = std::mem::take(&mut self.orders);
        report.failing_order = Some(order);
        Ok(Some(report))
    }

    /// Words that DMA moved in a run.
    pub(super) fn words(&self) -> u64 {
        self.first
            .as_ref()
            .map_or(0, |row| row.report.counters.words)
    }

    pub(super) fn passed(self, n_untried: usize) -> Result<RunReport, SyntaxError> {
        let first = self.first.map(|row| row.report);
        let mut report =
            first.ok_or_else(|| SyntaxError::new(Default::default(), "no order was tried"))?;
        report.orders = self.orders;
        report.n_untried = n_untried;
        if self.design.has_packets_on_own_routes() {
            report.verdict = Verdict::PassOnOwnRoutes;
        }
        Ok(report)
    }
}

/// A descriptor that another number of packets took before it was written anew.
fn rewritten(first: &RunOutcome, here: &RunOutcome) -> Option<PacketChoice> {
    let pairs = first.packets.iter().zip(&here.packets);
    let mut all = pairs.flat_map(|(first, here)| {
        let differs = |of: &&PacketChoice| first.get(of) != here.get(of);
        first.keys().chain(here.keys()).filter(differs)
    });
    all.next().copied()
}

fn raced(of: PacketChoice, first: &str) -> String {
    let (tile, channel, descriptor) = (of.tile, of.channel, of.descriptor);
    format!(
        "race: descriptor {descriptor} of {tile} is written anew while {tile} S2MM {channel} receives out of order, and more or fewer packets take it as it was before than in the order {first}: await the channel's task first"
    )
}
