//! What was compiled, as tables or JSON.

use crate::exit::Outcome;
use crate::output::{Align, Out, Paint, Table, bytes};
use crate::plan_args::{Planned, Request, mode_name};
use crate::plan_text::{
    herds, herds_text, launch_table, launches_json, sets_text, slot_bytes, slot_table, slots_json,
};
use millrace_runtime::npu::Features;
use millrace_xdna2::Machine;
use millrace_xdna2::compile::{COMPILER, Compiled};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Everything that was compiled.
pub(super) struct Report<'a> {
    pub(super) planned: &'a Planned,
    pub(super) machine: &'a Machine,
    pub(super) features: Features,
    /// Where it is kept, if it is.
    pub(super) dir: Option<&'a Path>,
    pub(super) plans: &'a [(Request, Compiled)],
    pub(super) elapsed: Duration,
}

/// Digits of a hash that tell programs apart.
const HASH_DIGITS: usize = 12;

impl Report<'_> {
    pub(super) fn print(&self, list: bool, as_json: bool) -> Outcome {
        let mut out = Out::new();
        if as_json {
            return out.json(&self.json());
        }
        let machine = self.machine;
        out.line(format!(
            "{} on {} {} × {}, mode {}: {} plans in {:.2} s, {} of them from the cache",
            Paint::Bold.stdout(self.planned.name()),
            machine.name,
            machine.cols,
            machine.rows,
            mode_name(self.features),
            self.plans.len(),
            self.elapsed.as_secs_f64(),
            self.plans.iter().filter(|(_, c)| !c.lowered).count(),
        ))?;
        match self.dir {
            Some(dir) => out.line(format!("  kept in {}", dir.display()))?,
            None => out.line("  not kept: there is no cache folder")?,
        }
        for (request, compiled) in self.plans {
            out.line("")?;
            self.plan(&mut out, request, compiled)?;
            if list {
                self.programs(&mut out, compiled)?;
            }
        }
        out.flush()
    }

    fn plan(&self, out: &mut Out, request: &Request, compiled: &Compiled) -> Outcome {
        let plan = &compiled.plan;
        let n_calls = plan.calls().count();
        out.line(format!(
            "{}: {n_calls} dispatches, {} host steps, {}",
            Paint::Bold.stdout(&request.name()),
            plan.steps.len() - n_calls,
            state(compiled),
        ))?;
        let mut table = Table::new(&[
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
            let program = &planned.program;
            let (weights, activations) = slot_bytes(program);
            let container = &compiled.containers[index];
            table.row(vec![
                program.name.clone(),
                n_calls_of(compiled, index).to_string(),
                planned.launches.len().to_string(),
                program.launches.len().to_string(),
                herds_text(&herds(program, 0..program.launches.len())),
                program.slots.len().to_string(),
                bytes(weights),
                bytes(activations),
                bytes(container.encode().len() as u64),
                container.content_hash().to_string()[..HASH_DIGITS].to_owned(),
            ]);
        }
        table.print(out)
    }

    fn programs(&self, out: &mut Out, compiled: &Compiled) -> Outcome {
        for (index, planned) in compiled.plan.programs.iter().enumerate() {
            let program = &planned.program;
            out.line("")?;
            out.line(format!(
                "  {}  {}",
                Paint::Bold.stdout(&program.name),
                sets_text(program)
            ))?;
            launch_table(planned).print(out)?;
            slot_table(&compiled.plan, index, self.planned.graph()).print(out)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let plans = self.plans.iter().map(|(request, compiled)| {
            let plan = &compiled.plan;
            let n_calls = plan.calls().count();
            let programs = 0..plan.programs.len();
            json!({
                "name": request.name(),
                "n_tokens": plan.n_tokens,
                "from_cache": !compiled.lowered,
                "n_dispatches": n_calls,
                "n_host_steps": plan.steps.len() - n_calls,
                "programs": programs.map(|p| self.program_json(compiled, p)).collect::<Vec<_>>(),
            })
        });
        json!({
            "model": self.planned.name(),
            "machine": self.machine.name,
            "cols": self.machine.cols,
            "rows": self.machine.rows,
            "mode": mode_name(self.features),
            "compiler": COMPILER,
            "cache": self.dir,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "plans": plans.collect::<Vec<_>>(),
        })
    }

    fn program_json(&self, compiled: &Compiled, index: usize) -> Value {
        let plan = &compiled.plan;
        let planned = &plan.programs[index];
        let container = &compiled.containers[index];
        let (weights, activations) = slot_bytes(&planned.program);
        json!({
            "name": planned.program.name,
            "n_calls": n_calls_of(compiled, index),
            "n_physical_launches": planned.program.launches.len(),
            "launches": launches_json(planned),
            "slots": slots_json(plan, index, self.planned.graph()),
            "weight_bytes_a_call": weights,
            "activation_bytes": activations,
            "artifact_bytes": container.encode().len(),
            "content_hash": container.content_hash().to_string(),
        })
    }
}

fn state(compiled: &Compiled) -> &'static str {
    match compiled.lowered {
        true => "built and verified",
        false => "from the cache",
    }
}

fn n_calls_of(compiled: &Compiled, program: usize) -> usize {
    let calls = compiled.plan.calls();
    calls.filter(|call| call.program == program).count()
}
