//! Arguments that a run reads and writes.

use super::stage::DesignStage;
use super::{OutputBytes, shown};
use crate::design::Design;
use crate::lower::DesignProgram;
use std::collections::BTreeSet;

/// Arguments that configurations use, as the design numbers them.
pub(super) fn used(
    stages: &[DesignStage<'_>],
    of: fn(&DesignProgram) -> &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let part = |stage: &DesignStage<'_>, i: &usize| Some(stage.parts.get(*i)?.argument);
    let all = stages.iter().flat_map(|stage| {
        of(&stage.lowered)
            .iter()
            .filter_map(move |i| part(stage, i))
    });
    all.collect()
}

pub(super) fn outputs(
    design: &Design,
    stages: &[DesignStage<'_>],
    after: &[Vec<u8>],
) -> Vec<OutputBytes> {
    let output = |argument: usize| {
        let of = design.arguments.get(argument)?;
        let bytes = after.get(argument)?.clone();
        Some(OutputBytes {
            argument,
            name: of.name.clone(),
            shown: shown::first(&of.of.element, &bytes),
            bytes,
        })
    };
    let writes = used(stages, |lowered| &lowered.writes);
    writes.into_iter().filter_map(output).collect()
}
