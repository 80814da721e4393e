//! Orders of actors one after the other, and the differences between them.

use super::equality::either;
use super::stage::{DesignStage, ProgramNotes};
use super::{RunOptions, RunReport, SeededRun, Verdict, difference};
use crate::design::Design;
use crate::syntax::SyntaxError;
use millrace_xdna2_words::board::{SlowActor, UnsetMemory};

/// Orders that were tried, and passed.
pub(super) struct TriedOrders<'r> {
    design: &'r Design,
    stages: &'r [DesignStage<'r>],
    notes: &'r ProgramNotes,
    first: Option<(RunReport, Vec<Vec<u8>>)>,
    orders: Vec<String>,
    /// Output of the first order with memories that begin as zeros, once it was computed; the inner `None` if it does not
    /// pass.
    zeroed: Option<Option<Vec<Vec<u8>>>>,
    /// The first order that left other bytes for memory that nothing has set, and what differed.
    unset: Option<(String, String)>,
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
            zeroed: None,
            unset: None,
        }
    }

    /// Tries one more order; returns the report if something went wrong.
    pub(super) fn one(
        &mut self,
        run: SeededRun<'_>,
        order: String,
    ) -> Result<Option<RunReport>, SyntaxError> {
        let (mut report, after, _) = either(self.design, self.stages, self.notes, run)?;
        // The output of an unknown kernel is noise.
        let has_values = self.notes.unknown.is_empty();
        let any_order = run.options.any_order;
        let differs = |before: &[Vec<u8>]| {
            has_values && !difference::is_same(self.design, (before, &after), any_order)
        };
        if report.verdict == Verdict::Pass {
            if !self.first.as_ref().is_some_and(|row| differs(&row.1)) {
                self.orders.push(order);
                self.first.get_or_insert((report, after));
                return Ok(None);
            }
            let is_unset = self.is_of_unset_memory(run)?;
            let before = self.first.as_ref().map_or(&[][..], |row| &row.1);
            let first = self.orders.first().map_or("", String::as_str);
            let told = difference::told(self.design, (before, first), (&after, is_unset));
            if is_unset {
                // Others may still hang, or fail by themselves.
                self.unset.get_or_insert((order.clone(), told));
                self.orders.push(order);
                return Ok(None);
            }
            report.verdict = Verdict::Fail;
            report.outputs.clear();
            report.problem = Some(told);
        }
        report.orders = std::mem::take(&mut self.orders);
        report.failing_order = Some(order);
        Ok(Some(report))
    }

    /// Whether a run and the first leave the same where memories begin as zeros. Then they differ by what was in memory
    /// that nothing has set, and not by the order.
    fn is_of_unset_memory(&mut self, run: SeededRun<'_>) -> Result<bool, SyntaxError> {
        if run.options.unset != UnsetMemory::Noise {
            return Ok(false);
        }
        if self.zeroed.is_none() {
            let first = SeededRun {
                seed: 0,
                starved: SlowActor::Nobody,
                ..run
            };
            self.zeroed = Some(self.zeroed(first)?);
        }
        let this = self.zeroed(run)?;
        let (Some(Some(first)), Some(this)) = (&self.zeroed, &this) else {
            return Ok(false);
        };
        let any_order = run.options.any_order;
        Ok(difference::is_same(self.design, (first, this), any_order))
    }

    /// Output of a run with memories that begin as zeros; `None` if it does not pass.
    fn zeroed(&self, run: SeededRun<'_>) -> Result<Option<Vec<Vec<u8>>>, SyntaxError> {
        let options = RunOptions {
            unset: UnsetMemory::Zeros,
            ..run.options
        };
        let run = SeededRun { options, ..run };
        let (report, after, _) = either(self.design, self.stages, self.notes, run)?;
        Ok((report.verdict == Verdict::Pass).then_some(after))
    }

    /// Words that DMA moved in a run.
    pub(super) fn words(&self) -> u64 {
        self.first.as_ref().map_or(0, |row| row.0.counters.words)
    }

    pub(super) fn passed(self, n_untried: usize) -> Result<RunReport, SyntaxError> {
        let first = self.first.map(|row| row.0);
        let mut report =
            first.ok_or_else(|| SyntaxError::new(Default::default(), "no order was tried"))?;
        report.orders = self.orders;
        report.n_untried = n_untried;
        if let Some((order, told)) = self.unset {
            report.verdict = Verdict::CannotTell;
            report.outputs.clear();
            report.problem = Some(told);
            report.failing_order = Some(order);
        } else if self.design.has_packets_on_own_routes() {
            report.verdict = Verdict::PassOnOwnRoutes;
        }
        Ok(report)
    }
}
