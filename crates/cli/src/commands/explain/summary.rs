//! What a model becomes on the array, before the details.

use super::Case;
use super::rows::folded;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Out, bytes, count};
use millrace_plan::Place;
use millrace_plan::predict::{self, Memory, Work};
use serde_json::{Value, json};

/// Longest prompt that memory is told for: each chunk more only takes time to plan.
const LONGEST: u64 = 16_384;

/// An op that the host computes, in some of the plans.
#[derive(PartialEq)]
struct Left {
    op: &'static str,
    layers: String,
    reason: String,
    /// Names of the plans.
    plans: Vec<String>,
}

pub(super) struct Summary {
    left: Vec<Left>,
    memory: Memory,
}

/// Ops of a plan that run on the array, and all.
fn on_array(case: &Case<'_>) -> (usize, usize) {
    let all = case.plan.placement.iter();
    let host = all.clone().filter(|p| p.place == Place::Host).count();
    (all.count() - host, case.plan.placement.len())
}

impl Summary {
    /// Of plans for prompts of these lengths.
    pub(super) fn of(cases: &[Case<'_>], prompts: &[u64]) -> Outcome<Option<Summary>> {
        let Some(first) = cases.first() else {
            return Ok(None);
        };
        let mut left: Vec<Left> = Vec::new();
        for case in cases {
            for row in folded(case).into_iter().filter(|row| row.program.is_none()) {
                let layers = row.layers.map_or_else(String::new, |_| row.layers_text());
                let known = left.iter_mut().find(|known| {
                    (known.op, &known.layers, &known.reason) == (row.op, &layers, &row.reason)
                });
                match known {
                    Some(known) => known.plans.push(case.kind.name()),
                    None => left.push(Left {
                        op: row.op,
                        layers,
                        reason: row.reason,
                        plans: vec![case.kind.name()],
                    }),
                }
            }
        }
        let longest = prompts.iter().copied().max().unwrap_or(1).clamp(1, LONGEST);
        let work = Work::new(longest);
        let memory = predict::memory(first.planned.graph(), first.planner, &work)
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        Ok(Some(Summary { left, memory }))
    }

    pub(super) fn print(&self, cases: &[Case<'_>], out: &mut Out) -> Outcome {
        for case in cases {
            let (array, all) = on_array(case);
            out.line(format!(
                "  {}: {array} of {all} ops on the array, by {} programs in {} dispatches",
                case.kind.name(),
                case.plan.programs.len(),
                case.plan.calls().count()
            ))?;
        }
        for left in &self.left {
            let layers = match left.layers.as_str() {
                "" => String::new(),
                layers => format!(", layers {layers}"),
            };
            let plans = match left.plans.len() == cases.len() {
                true => String::new(),
                false => format!(", {}", left.plans.join(", ")),
            };
            out.line(format!(
                "  left to the CPU: {}{layers}{plans}: {}",
                left.op, left.reason
            ))?;
        }
        let memory = &self.memory;
        out.line(format!(
            "  memory: {} for {} tokens: weights {}, RoPE tables {}, values {}, keys and values {}",
            bytes(memory.total_bytes),
            count(memory.n_cached),
            bytes(memory.weight_bytes),
            bytes(memory.table_bytes),
            bytes(memory.value_bytes),
            bytes(memory.cache_bytes)
        ))?;
        out.line(
            "  A program is one binary of several kernels, its launches; a dispatch is a call of it. Its slots are its \
             buffers:\n  static ones hold weights and tables and are written once, input ones before each call, \
             intermediate ones only by the\n  program itself; output ones are read, or taken by the next call.",
        )
    }

    pub(super) fn json(&self, cases: &[Case<'_>]) -> Value {
        let plan = |case: &Case<'_>| {
            let (array, all) = on_array(case);
            json!({
                "name": case.kind.name(),
                "n_ops": all,
                "n_ops_on_array": array,
                "n_programs": case.plan.programs.len(),
                "n_dispatches": case.plan.calls().count(),
            })
        };
        let left = |left: &Left| {
            json!({
                "op": left.op,
                "layers": left.layers,
                "plans": left.plans,
                "reason": left.reason,
            })
        };
        json!({
            "plans": cases.iter().map(plan).collect::<Vec<_>>(),
            "left_to_cpu": self.left.iter().map(left).collect::<Vec<_>>(),
            "memory": self.memory,
        })
    }
}
