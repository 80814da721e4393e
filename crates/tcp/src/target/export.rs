//! Plans as a crate for the vendor's toolchain.

use super::planner;
use crate::Program;
use crate::export::{PackageCall, Pass, package};
use crate::lower::Weights;
use millrace_plan::{
    AttentionOn, BenchError, Export, Lowering, NodePlace, Phase, Plan, SourceFile, Step,
};

/// The crate of a model's passes.
///
/// # Errors
/// A setting; a pass that is not lowered; a program that the vendor's interface has no words for.
pub(super) fn files(request: &Export<'_>) -> Result<Vec<SourceFile>, BenchError> {
    let planner = planner(request.settings)?;
    if planner.style.blocks {
        return Err(BenchError::Usage {
            message: "products of a block share registers, which furiosa-opt-std 0.10.0 takes \
                      for one mapping of the stream alone"
                .to_owned(),
            hint: "take --mode plain: a function for each op".to_owned(),
        });
    }
    if planner.weights == Weights::Int8 {
        return Err(BenchError::Usage {
            message: "sums of integers are not printed for furiosa-opt-std 0.10.0 yet".to_owned(),
            hint: "take --numerics bf16 or fp8".to_owned(),
        });
    }
    if planner.weights == Weights::Int4 {
        return Err(BenchError::Usage {
            message: "furiosa-opt-std 0.10.0 has no fetch that widens int4 to what is multiplied"
                .to_owned(),
            hint: "take --numerics bf16 or fp8".to_owned(),
        });
    }
    let lowered = request
        .kinds
        .iter()
        .map(|kind| planner.lower(request.graph, kind));
    let plans: Result<Vec<Plan>, _> = lowered.collect();
    let plans = plans.map_err(|error| BenchError::Failed(error.to_string()))?;
    let passes = request.kinds.iter().zip(&plans);
    let passes: Result<Vec<Pass<'_>>, BenchError> = passes
        .map(|(kind, plan)| {
            let keys = match kind.attention {
                AttentionOn::Cached { n_keys, .. } => format!(", {n_keys} keys"),
                _ => String::new(),
            };
            let title = match kind.phase {
                Phase::Prefill => format!("A prompt of {} tokens{keys}", kind.n_tokens),
                Phase::Decode => format!("A token{keys}"),
            };
            pass(title, request, plan)
        })
        .collect();
    let numbers = planner.mode();
    let what = format!("{} ({numbers})", request.model);
    let name = format!("{}-tcp", request.model);
    package(&name, &what, &passes?).map_err(|error| BenchError::Failed(error.to_string()))
}

fn pass<'p>(title: String, request: &Export<'_>, plan: &'p Plan) -> Result<Pass<'p>, BenchError> {
    let mut calls: Vec<PackageCall<'p>> = Vec::new();
    let mut order: Vec<usize> = Vec::new();
    for step in &plan.steps {
        let Step::Call(call) = step else { continue };
        if let Some(at) = order.iter().position(|program| *program == call.program) {
            calls[at].n_calls += 1;
            continue;
        }
        let planned = &plan.programs[call.program];
        let program = planned.annex.get::<Program>().ok_or_else(|| {
            BenchError::Failed(format!("`{}` is not this target's", planned.name()))
        })?;
        let reasons = plan.placement.iter();
        let reasons = reasons.filter(|placed| call.nodes.contains(&placed.node));
        order.push(call.program);
        calls.push(PackageCall {
            program,
            notes: reasons.map(|placed| placed.reason.clone()).collect(),
            n_calls: 1,
        });
    }
    let mut host: Vec<(String, String)> = Vec::new();
    for placed in plan
        .placement
        .iter()
        .filter(|placed| placed.place == NodePlace::Host)
    {
        let line = (
            request.graph.nodes[placed.node].label.to_owned(),
            placed.reason.clone(),
        );
        if !host.contains(&line) {
            host.push(line);
        }
    }
    Ok(Pass { title, calls, host })
}
