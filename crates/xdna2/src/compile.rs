//! Ahead of time: plans and their programs from a [`ProgramCache`], or lowered and put there.
//!
//! A plan is an artifact as a program is: a container whose payload is JSON, found by the hash of
//! everything that lowering depends on (graph, machine, options, phase, and this crate's sources).
//! It names its programs by their content hashes, which are their keys, so that plans share the
//! programs they have in common. What comes from the cache was verified by this very compiler
//! before it was put there, and the container's hash guards the bytes; so nothing is lowered or
//! verified again. A device verifies what it loads all the same: it trusts no cache.

use crate::Machine;
use crate::lower::{self, LowerError, Options, Phase, Plan};
use crate::program::Program;
use crate::program::codec::TARGET;
use millrace_model::graph::Graph;
use millrace_npu::{Container, ContainerError, ContentHash, ProgramCache};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What tells this compiler from others: the crate's version and a hash of its sources.
pub const COMPILER: &str = env!("MILLRACE_XDNA2_COMPILER");

/// A plan that is ready to be loaded.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// Its programs, packed, by their index in the plan.
    pub containers: Vec<Arc<Container>>,
    /// Whether it was lowered for this; otherwise the cache had it.
    pub lowered: bool,
}

/// Why there is nothing to load.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no plan.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A program does not fit its container; a defect of lowering.
    #[error("program `{program}` cannot be packed: {error}")]
    Container {
        /// The program.
        program: String,
        /// Why.
        error: ContainerError,
    },
}

/// The plan of a phase and its programs.
///
/// # Errors
/// [`CompileError`]. Trouble with the cache's disk is none: it costs time, and the cache gives
/// notice of it.
pub fn compile(
    cache: &ProgramCache,
    graph: &Graph,
    machine: &Machine,
    phase: Phase,
    options: &Options,
) -> Result<Compiled, CompileError> {
    let job = Job {
        graph,
        machine,
        phase,
        options,
    };
    let mut made = None;
    let stored = cache.artifact(job.key(), &job.name(), || {
        let compiled = job.lower()?;
        let stored = job.store(&compiled)?;
        made = Some(compiled);
        Ok::<_, CompileError>(stored)
    })?;
    match made {
        Some(compiled) => keep(cache, compiled),
        None => match job.restore(cache, &stored) {
            Some(compiled) => Ok(compiled),
            None => keep(cache, job.lower()?),
        },
    }
}

/// What a plan is made from.
struct Job<'a> {
    graph: &'a Graph,
    machine: &'a Machine,
    phase: Phase,
    options: &'a Options,
}

/// A plan as it is kept.
#[derive(Serialize, Deserialize)]
struct Form<P> {
    plan: P,
    /// Content hashes of its programs.
    programs: Vec<String>,
}

impl Job<'_> {
    fn key(&self) -> ContentHash {
        let of = |text: String| text.into_bytes();
        ContentHash::of(&[
            COMPILER.as_bytes(),
            &of(format!("{:?} {:?}", self.phase, self.options)),
            &of(format!("{:?}", self.machine)),
            &of(format!("{:?}", self.graph)),
        ])
    }

    fn name(&self) -> String {
        match self.phase {
            Phase::Prefill => format!("plan of a prefill of {}", self.options.n_tokens),
            Phase::Decode => "plan of a token".to_owned(),
        }
    }

    fn lower(&self) -> Result<Compiled, CompileError> {
        let plan = match self.phase {
            Phase::Prefill => lower::prefill(self.graph, self.machine, self.options)?,
            Phase::Decode => lower::decode(self.graph, self.machine, self.options)?,
        };
        let pack = |program: &Program| match program.to_container() {
            Ok(container) => Ok(Arc::new(container)),
            Err(error) => Err(CompileError::Container {
                program: program.name.clone(),
                error,
            }),
        };
        let containers = plan.programs.iter().map(|p| pack(&p.program));
        Ok(Compiled {
            containers: containers.collect::<Result<_, _>>()?,
            plan,
            lowered: true,
        })
    }

    fn store(&self, compiled: &Compiled) -> Result<Container, CompileError> {
        let hashes = compiled.containers.iter().map(|c| c.content_hash());
        let form = Form {
            plan: &compiled.plan,
            programs: hashes.map(|hash| hash.to_string()).collect(),
        };
        // Plans have no maps but those of names, and no number that JSON has not.
        let payload = serde_json::to_vec(&form).unwrap_or_default();
        let packed = Container::new(TARGET, &self.name(), Vec::new(), payload);
        packed.map_err(|error| CompileError::Container {
            program: self.name(),
            error,
        })
    }

    /// The plan of a stored one; `None` where its programs are not all there any more.
    fn restore(&self, cache: &ProgramCache, stored: &Container) -> Option<Compiled> {
        let form: Form<Plan> = serde_json::from_slice(stored.payload()).ok()?;
        let Form { mut plan, programs } = form;
        if programs.len() != plan.programs.len() {
            return None;
        }
        let mut containers = Vec::with_capacity(programs.len());
        for (hash, planned) in programs.iter().zip(&mut plan.programs) {
            let key = ContentHash::from_hex(hash)?;
            // One that is gone or damaged is made again with its plan.
            let gone = || Err(());
            let container = cache.artifact(key, &planned.program.name, gone).ok()?;
            planned.program = Program::from_container(&container).ok()?;
            containers.push(container);
        }
        plan.check(self.graph).ok()?;
        Some(Compiled {
            plan,
            containers,
            lowered: false,
        })
    }
}

/// Puts a lowered plan's programs where the next one finds them.
fn keep(cache: &ProgramCache, mut compiled: Compiled) -> Result<Compiled, CompileError> {
    for container in &mut compiled.containers {
        let build = || Ok::<_, CompileError>((**container).clone());
        *container = cache.artifact(container.content_hash(), container.name(), build)?;
    }
    Ok(compiled)
}
