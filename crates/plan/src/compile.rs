//! Compilation ahead of time: plans and their programs come from a [`ProgramCache`], or are lowered and put there.
//!
//! A plan is an artifact as a program is: a container whose payload is JSON. It is found by the hash of everything that
//! lowering depends on: graph, kind of pass, and the planner's [identity](Lowering::identity), which includes its
//! compiler's. It names its programs by their content hashes, which are their keys, so that plans share the programs
//! they have in common. This very compiler verified each artifact before it put it into the cache, and the container's
//! hash guards the bytes; so nothing is lowered or verified again. A device verifies every program it loads all the
//! same: it trusts no cache.

use crate::{LowerError, Lowering, PassKind, Plan, PlannedLaunch, PlannedProgram};
use millrace_graph::Graph;
use millrace_npu::{Container, ContentHash, ProgramCache};
use serde::{Deserialize, Serialize};

/// A plan that is ready to be loaded.
#[derive(Clone, Debug)]
pub struct CompiledPlan {
    /// The plan.
    pub plan: Plan,
    /// Whether it was lowered just now; otherwise the cache had it.
    pub lowered: bool,
}

/// The plan of a kind of pass and its programs.
///
/// # Errors
/// There is no plan. Trouble with the cache's disk is no error: it costs time, and the cache gives notice of it.
pub fn compile(
    cache: &ProgramCache,
    planner: &dyn Lowering,
    graph: &Graph,
    kind: &PassKind,
) -> Result<CompiledPlan, LowerError> {
    let job = CompileJob {
        graph,
        planner,
        kind,
    };
    let mut made = None;
    let stored = cache.artifact(job.key(), &job.name(), || {
        let plan = planner.lower(graph, kind)?;
        let stored = job.store(&plan)?;
        made = Some(plan);
        Ok::<_, LowerError>(stored)
    })?;
    if made.is_none()
        && let Some(plan) = job.restore(cache, &stored)
    {
        return Ok(CompiledPlan {
            plan,
            lowered: false,
        });
    }
    let plan = match made {
        Some(plan) => plan,
        None => planner.lower(graph, kind)?,
    };
    Ok(CompiledPlan {
        plan: keep(cache, plan)?,
        lowered: true,
    })
}

/// Inputs of a compilation.
struct CompileJob<'a> {
    graph: &'a Graph,
    planner: &'a dyn Lowering,
    kind: &'a PassKind,
}

/// A plan as the cache stores it.
#[derive(Serialize, Deserialize)]
struct Form<P, L> {
    plan: P,
    programs: Vec<ProgramEntry<L>>,
}

/// A program of it.
#[derive(Serialize, Deserialize)]
struct ProgramEntry<L> {
    name: String,
    /// Its content hash.
    hash: String,
    launches: L,
}

impl CompileJob<'_> {
    fn key(&self) -> ContentHash {
        ContentHash::of(&[
            self.planner.target().as_bytes(),
            self.planner.identity().as_bytes(),
            format!("{:?}", self.kind).as_bytes(),
            format!("{:?}", self.graph).as_bytes(),
        ])
    }

    fn name(&self) -> String {
        format!("plan of a {}", self.kind.name())
    }

    fn store(&self, plan: &Plan) -> Result<Container, LowerError> {
        let program = |planned: &PlannedProgram| ProgramEntry {
            name: planned.name().to_owned(),
            hash: planned.container.content_hash().to_string(),
            launches: planned.launches.clone(),
        };
        let form = Form {
            plan,
            programs: plan.programs.iter().map(program).collect(),
        };
        // Plans have no maps except those with names as keys, and no number that JSON lacks.
        let payload = serde_json::to_vec(&form).unwrap_or_default();
        let packed = Container::new(self.planner.target(), &self.name(), Vec::new(), payload);
        packed.map_err(|error| LowerError::Program {
            program: self.name(),
            problem: error.to_string(),
        })
    }

    /// The plan from a stored one; `None` where some of its programs are missing.
    fn restore(&self, cache: &ProgramCache, stored: &Container) -> Option<Plan> {
        let form: Form<Plan, Vec<PlannedLaunch>> = serde_json::from_slice(stored.payload()).ok()?;
        let mut plan = form.plan;
        for ProgramEntry {
            name,
            hash,
            launches,
        } in form.programs
        {
            let key = ContentHash::from_hex(&hash)?;
            // A missing or damaged program is made again with its plan.
            let gone = || Err(());
            let container = cache.artifact(key, &name, gone).ok()?;
            let annex = self.planner.annex(&container, &launches)?;
            plan.programs.push(PlannedProgram {
                container,
                launches,
                annex,
            });
        }
        plan.check(self.graph).ok()?;
        Some(plan)
    }
}

/// Puts a lowered plan's programs into the cache, where the next plan finds them.
fn keep(cache: &ProgramCache, mut plan: Plan) -> Result<Plan, LowerError> {
    for planned in &mut plan.programs {
        let container = &planned.container;
        let build = || Ok::<_, LowerError>((**container).clone());
        planned.container = cache.artifact(container.content_hash(), container.name(), build)?;
    }
    Ok(plan)
}
