//! A slot that a virtual device corrupts on purpose.

use crate::exit::{CommandFailure, CommandResult};
use crate::plan_args;
use millrace_npu::Corruption;
use millrace_plan::Sequences;
use millrace_runtime::npu::NpuModel;

/// Checks that a short prompt or a token runs that program: corrupting an unused slot would let a check pass.
pub(super) fn check(program: &str, slot: &str, npu: &NpuModel) -> CommandResult {
    let graph = &npu.model().model().graph;
    let mut known: Vec<String> = Vec::new();
    let config = &npu.model().model().config;
    let sequences = Sequences {
        graph,
        planner: &**npu.planner(),
        n_ctx: config.context_length.max(1) as u64,
    };
    for kind in plan_args::kinds(&sequences, &[1]) {
        let plan = npu.planner().lower(graph, &kind)?;
        for planned in plan.programs {
            let slots = planned.slots().iter();
            if planned.name() == program {
                if slots.clone().any(|s| s.name == slot) {
                    return Ok(());
                }
                let slots: Vec<&str> = slots.map(|s| s.name.as_str()).collect();
                let message = format!("program `{program}` has no slot `{slot}`");
                return Err(CommandFailure::not_found(message)
                    .hint(format!("its slots are {}", slots.join(", "))));
            }
            if !known.iter().any(|name| name == planned.name()) {
                known.push(planned.name().to_owned());
            }
        }
    }
    Err(CommandFailure::not_found(format!("no program `{program}`"))
        .hint(format!("there are {}", known.join(", "))))
}

/// A slot to corrupt, as `PROGRAM:SLOT` or `PROGRAM:SLOT:HOW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CorruptSlot {
    /// The program's name.
    pub(crate) program: String,
    /// The slot's name.
    pub(crate) slot: String,
    /// Kind of corruption.
    pub(crate) how: Corruption,
}

impl std::str::FromStr for CorruptSlot {
    type Err = String;

    fn from_str(text: &str) -> Result<CorruptSlot, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (program, slot, how) = match parts[..] {
            [program, slot] => (program, slot, "some"),
            [program, slot, how] => (program, slot, how),
            _ => ("", "", ""),
        };
        if program.is_empty() || slot.is_empty() {
            let problem = "write PROGRAM:SLOT or PROGRAM:SLOT:HOW; `millrace explain` lists both with their names";
            return Err(problem.to_owned());
        }
        let how = Corruption::from_name(how)
            .ok_or("HOW is some, double, zero, permute or row (each row shows the one before)")?;
        Ok(CorruptSlot {
            program: program.to_owned(),
            slot: slot.to_owned(),
            how,
        })
    }
}
