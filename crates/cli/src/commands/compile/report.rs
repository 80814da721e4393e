//! Report of the compiled programs, as tables or JSON.

use crate::exit::CommandResult;
use crate::output::{Align, Out, Paint, TextTable, bytes};
use crate::plan_args::PlanSubject;
use crate::plan_text::{
    herds_text, launch_table, launches_json, sets_text, slot_bytes, slot_table, slots_json,
};
use millrace_plan::{CompiledPlan, PassKind, PlannedProgram, Planner};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// All compiled plans.
pub(super) struct CompileReport<'a> {
    pub(super) planned: &'a PlanSubject,
    pub(super) planner: &'a dyn Planner,
    /// Folder of the compiled programs, if they are kept.
    pub(super) dir: Option<&'a Path>,
    pub(super) plans: &'a [(PassKind, CompiledPlan)],
    pub(super) elapsed: Duration,
}

/// Digits shown of a hash, enough to tell programs apart.
const HASH_DIGITS: usize = 12;

impl CompileReport<'_> {
    pub(super) fn print(&self, list: bool, as_json: bool) -> CommandResult {
        let mut out = Out::new();
        if as_json {
            return out.json(&self.json());
        }
        let machine = self.planner.machine();
        out.line(format!(
            "{} on {} {} × {}, mode {}: {} plans in {:.2} s, {} of them from the cache",
            Paint::Bold.stdout(self.planned.name()),
            machine.name,
            machine.cols,
            machine.rows,
            self.planner.mode(),
            self.plans.len(),
            self.elapsed.as_secs_f64(),
            self.plans.iter().filter(|(_, c)| !c.lowered).count(),
        ))?;
        match self.dir {
            Some(dir) => out.line(format!("  kept in {}", dir.display()))?,
            None => out.line("  not kept: there is no cache folder")?,
        }
        for (kind, compiled) in self.plans {
            out.line("")?;
            self.plan(&mut out, kind, compiled)?;
            if list {
                self.programs(&mut out, compiled)?;
            }
        }
        out.flush()
    }

    fn plan(&self, out: &mut Out, kind: &PassKind, compiled: &CompiledPlan) -> CommandResult {
        let plan = &compiled.plan;
        let n_calls = plan.calls().count();
        out.line(format!(
            "{}: {} dispatches, {} host steps, {}",
            Paint::Bold.stdout(&kind.name()),
            plan.dispatches(self.planned.graph()),
            plan.steps.len() - n_calls,
            state(compiled),
        ))?;
        let mut table = TextTable::new(&[
            ("program", Align::Left),
            ("calls", Align::Right),
            ("launches", Align::Right),
            ("physical", Align::Right),
            ("herds", Align::Left),
            ("slots", Align::Right),
            ("weights a call", Align::Right),
            ("activations", Align::Right),
            ("artifact", Align::Right),
            ("hash", Align::Left),
        ]);
        for (index, planned) in plan.programs.iter().enumerate() {
            let (weights, activations) = slot_bytes(planned.slots());
            let container = &planned.container;
            let occupied = self.planner.occupied(planned, physical(planned));
            table.row(vec![
                planned.name().to_owned(),
                n_calls_of(compiled, index).to_string(),
                planned.launches.len().to_string(),
                occupied.n_launches.to_string(),
                herds_text(&occupied.herds),
                planned.slots().len().to_string(),
                bytes(weights),
                bytes(activations),
                bytes(container.encode().len() as u64),
                container.content_hash().to_string()[..HASH_DIGITS].to_owned(),
            ]);
        }
        table.print(out)
    }

    fn programs(&self, out: &mut Out, compiled: &CompiledPlan) -> CommandResult {
        for (index, planned) in compiled.plan.programs.iter().enumerate() {
            out.line("")?;
            out.line(format!(
                "  {}  {}",
                Paint::Bold.stdout(planned.name()),
                sets_text(planned.slots())
            ))?;
            launch_table(self.planner, planned).print(out)?;
            slot_table(&compiled.plan, index, self.planned.graph()).print(out)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let machine = self.planner.machine();
        let plans = self.plans.iter().map(|(kind, compiled)| {
            let plan = &compiled.plan;
            let n_calls = plan.calls().count();
            let programs = 0..plan.programs.len();
            json!({
                "name": kind.name(),
                "n_tokens": plan.n_tokens,
                "from_cache": !compiled.lowered,
                "n_dispatches": plan.dispatches(self.planned.graph()),
                "n_host_steps": plan.steps.len() - n_calls,
                "programs": programs.map(|p| self.program_json(compiled, p)).collect::<Vec<_>>(),
            })
        });
        json!({
            "model": self.planned.name(),
            "machine": machine.name,
            "cols": machine.cols,
            "rows": machine.rows,
            "mode": self.planner.mode(),
            "compiler": self.planner.identity().split(' ').take(2).collect::<Vec<_>>().join(" "),
            "cache": self.dir,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "plans": plans.collect::<Vec<_>>(),
        })
    }

    fn program_json(&self, compiled: &CompiledPlan, index: usize) -> Value {
        let plan = &compiled.plan;
        let planned = &plan.programs[index];
        let container = &planned.container;
        let (weights, activations) = slot_bytes(planned.slots());
        let occupied = self.planner.occupied(planned, physical(planned));
        json!({
            "name": planned.name(),
            "n_calls": n_calls_of(compiled, index),
            "n_physical_launches": occupied.n_launches,
            "launches": launches_json(self.planner, planned),
            "slots": slots_json(plan, index, self.planned.graph()),
            "weight_bytes_a_call": weights,
            "activation_bytes": activations,
            "artifact_bytes": container.encode().len(),
            "content_hash": container.content_hash().to_string(),
        })
    }
}

/// Range of all physical launches of a program.
fn physical(planned: &PlannedProgram) -> std::ops::Range<usize> {
    0..planned.launches.last().map_or(0, |last| last.physical.end)
}

fn state(compiled: &CompiledPlan) -> &'static str {
    match compiled.lowered {
        true => "built and verified",
        false => "from the cache",
    }
}

fn n_calls_of(compiled: &CompiledPlan, program: usize) -> usize {
    let calls = compiled.plan.calls();
    calls.filter(|call| call.program == program).count()
}
