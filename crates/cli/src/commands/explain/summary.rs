//! Summary of a model on the array, before the details.

use super::PlanCase;
use super::rows::{OpRow, folded, range_text};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Out, bytes, count};
use millrace_graph::{Depth, Graph};
use millrace_plan::NodePlace;
use millrace_plan::predict::{self, Memory, PromptWorkload};
use serde::Serialize;
use serde_json::{Value, json};

/// Longest prompt that memory is reported for: each further chunk only adds planning time.
const LONGEST: u64 = 16_384;

/// An op that the host computes in some of the plans.
#[derive(PartialEq)]
struct HostOp {
    op: &'static str,
    layers: String,
    reason: String,
    /// Names of the plans.
    plans: Vec<String>,
}

pub(super) struct ExplainSummary {
    left: Vec<HostOp>,
    memory: Memory,
    experts: Option<ExpertBytes>,
}

/// Bytes of the expert matrices that tokens choose from, as stored.
#[derive(Clone, Copy, Serialize)]
struct ExpertBytes {
    all_bytes: u64,
    /// Bytes of those that one token chooses.
    token_bytes: u64,
}

impl ExpertBytes {
    /// Computes the bytes for a model; `None` where it has no experts.
    fn of(graph: &Graph) -> Option<ExpertBytes> {
        let depth = Depth {
            n_before: 0,
            kv_elem_bytes: 2.0,
        };
        let (mut all, mut token) = (0.0, 0.0);
        for node in &graph.nodes {
            let cost = node.op.cost(graph, &depth);
            all += cost.expert_bytes;
            token += cost.expert_bytes * cost.expert_share;
        }
        (all > 0.0).then_some(ExpertBytes {
            all_bytes: all as u64,
            token_bytes: token as u64,
        })
    }
}

/// Number of a plan's ops that run on the array, and of all ops.
fn on_array(case: &PlanCase<'_>) -> (usize, usize) {
    let all = case.plan.placement.iter();
    let host = all.clone().filter(|p| p.place == NodePlace::Host).count();
    (all.count() - host, case.plan.placement.len())
}

/// Dispatches of a pass; those of experts are an average.
fn dispatches(case: &PlanCase<'_>) -> u64 {
    case.plan.dispatches(case.planned.graph())
}

/// Expert dispatches of a pass; `None` where the host multiplies by the experts, or there are none.
fn expert_dispatches(case: &PlanCase<'_>) -> Option<u64> {
    let (plan, graph) = (&case.plan, case.planned.graph());
    let experts = plan.calls().filter(|call| call.experts.is_some());
    let n = experts.map(|call| call.dispatches(graph, plan.n_tokens));
    Some(n.sum()).filter(|n| *n > 0)
}

/// Executor of each program on a virtual device, where there is something to report.
fn executions<'c>(case: &'c PlanCase<'_>) -> impl Iterator<Item = (&'c str, String)> {
    let programs = case.plan.programs.iter();
    programs.filter_map(|program| Some((program.name(), case.planner.execution(program)?)))
}

/// Ops that a plan leaves to the host: one entry per op and reason, with all its layers.
fn left_by(case: &PlanCase<'_>) -> Vec<HostOp> {
    let mut all: Vec<(OpRow, Vec<(usize, usize)>)> = Vec::new();
    for row in folded(case).into_iter().filter(|row| row.program.is_none()) {
        let same = |(known, _): &&mut (OpRow, Vec<_>)| {
            (known.op, &known.reason) == (row.op, &row.reason)
                && known.layers.is_some() == row.layers.is_some()
        };
        let layers = row.layers;
        let ranges = match all.iter_mut().find(same) {
            Some((_, ranges)) => ranges,
            None => {
                all.push((row, Vec::new()));
                let last = all.len() - 1;
                &mut all[last].1
            }
        };
        match (ranges.last_mut(), layers) {
            (Some((_, last)), Some((first, end))) if *last + 1 == first => *last = end,
            (_, Some(range)) => ranges.push(range),
            (_, None) => {}
        }
    }
    let entry = |(row, ranges): (OpRow, Vec<(usize, usize)>)| HostOp {
        op: row.op,
        layers: ranges
            .into_iter()
            .map(range_text)
            .collect::<Vec<_>>()
            .join(", "),
        reason: row.reason,
        plans: vec![case.kind.name()],
    };
    all.into_iter().map(entry).collect()
}

impl ExplainSummary {
    /// Summarises plans for prompts of these lengths.
    pub(super) fn of(
        cases: &[PlanCase<'_>],
        prompts: &[u64],
    ) -> CommandResult<Option<ExplainSummary>> {
        let Some(first) = cases.first() else {
            return Ok(None);
        };
        let mut left: Vec<HostOp> = Vec::new();
        for case in cases {
            for found in left_by(case) {
                let known = left.iter_mut().find(|known| {
                    (known.op, &known.layers, &known.reason)
                        == (found.op, &found.layers, &found.reason)
                });
                match known {
                    Some(known) => known.plans.extend(found.plans),
                    None => left.push(found),
                }
            }
        }
        let longest = prompts.iter().copied().max().unwrap_or(1).clamp(1, LONGEST);
        let work = PromptWorkload::new(longest);
        let memory = predict::memory(first.planned.graph(), first.planner, &work)
            .map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
        Ok(Some(ExplainSummary {
            left,
            memory,
            experts: ExpertBytes::of(first.planned.graph()),
        }))
    }

    pub(super) fn print(&self, cases: &[PlanCase<'_>], out: &mut Out) -> CommandResult {
        for case in cases {
            let (array, all) = on_array(case);
            out.line(format!(
                "  {}: {array} of {all} ops on the array, by {} programs in {} dispatches",
                case.kind.name(),
                case.plan.programs.len(),
                dispatches(case)
            ))?;
            if let Some(experts) = expert_dispatches(case) {
                out.line(format!(
                    "    of these {experts} are experts', one for each that is chosen: so many where tokens choose evenly"
                ))?;
            }
            for (program, execution) in executions(case) {
                out.line(format!("    {program}: {execution}"))?;
            }
        }
        for left in &self.left {
            let layers = match left.layers.as_str() {
                "" => String::new(),
                layers => format!(", layers {layers}"),
            };
            let plans = match left.plans.len() == cases.len() {
                true => String::new(),
                false => format!(", in {}", left.plans.join(", ")),
            };
            out.line(format!(
                "  left to the CPU: {}{layers}{plans}: {}",
                left.op, left.reason
            ))?;
        }
        self.print_memory(out)?;
        out.line(
            "  A program is one binary of several kernels, its launches; a dispatch is a call of it. Its slots are its \
             buffers:\n  static ones hold weights and tables and are written once, input ones before each call, \
             intermediate ones only by the\n  program itself; output ones are read, or taken by the next call.",
        )
    }

    /// Prints the memory of the plans, and the share of the file's experts.
    fn print_memory(&self, out: &mut Out) -> CommandResult {
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
        if let Some(experts) = self.experts {
            let where_they_are = match self.memory.expert_bytes {
                0 => "where the host reads them".to_owned(),
                on_device => format!(
                    "{} on the device once all were chosen, where each comes when it is first chosen",
                    bytes(on_device)
                ),
            };
            out.line(format!(
                "  experts: {} of the file, {where_they_are}; a token reads {} of these",
                bytes(experts.all_bytes),
                bytes(experts.token_bytes)
            ))?;
        }
        Ok(())
    }

    pub(super) fn json(&self, cases: &[PlanCase<'_>]) -> Value {
        let plan = |case: &PlanCase<'_>| {
            let (array, all) = on_array(case);
            json!({
                "name": case.kind.name(),
                "n_ops": all,
                "n_ops_on_array": array,
                "n_programs": case.plan.programs.len(),
                "n_dispatches": dispatches(case),
                "n_expert_dispatches": expert_dispatches(case),
                "executions": executions(case)
                    .map(|(program, how)| json!({ "program": program, "execution": how }))
                    .collect::<Vec<_>>(),
            })
        };
        let left = |left: &HostOp| {
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
            "experts": self.experts,
        })
    }
}
