//! Table rows: one per op, with equal layers folded.

use super::PlanCase;
use millrace_plan::{NodePlace, Placement};

/// Placement of an op that is the same in one or several layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpRow {
    /// First and last layer; none for ops outside of blocks.
    pub(super) layers: Option<(usize, usize)>,
    /// The op's label.
    pub(super) op: &'static str,
    /// Program and its launches: the first, their number, and the program's total.
    pub(super) program: Option<(String, usize, usize, usize)>,
    /// Reason for the placement.
    pub(super) reason: String,
}

/// `0–15`, or `3` for a single layer.
pub(super) fn range_text((first, last): (usize, usize)) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    }
}

impl OpRow {
    fn of(case: &PlanCase<'_>, placement: &Placement) -> OpRow {
        let node = &case.planned.graph().nodes[placement.node];
        let program = match &placement.place {
            NodePlace::Host => None,
            NodePlace::Device(device) => {
                let planned = &case.plan.programs[device.program];
                let launches = device.computed_by();
                let name = planned.name().to_owned();
                Some((name, launches.start, launches.len(), planned.launches.len()))
            }
        };
        OpRow {
            layers: node.layer.map(|layer| (layer, layer)),
            op: node.label,
            program,
            reason: placement.reason.clone(),
        }
    }

    /// `array` or `CPU`.
    pub(super) fn device(&self) -> &'static str {
        match self.program {
            Some(_) => "array",
            None => "CPU",
        }
    }

    /// `0–15`.
    pub(super) fn layers_text(&self) -> String {
        match self.layers {
            None => "–".to_owned(),
            Some(range) => range_text(range),
        }
    }

    /// `2–8 of 8`, counted from 0.
    pub(super) fn launch_text(&self) -> String {
        match &self.program {
            None => String::new(),
            Some((_, first, 1, of)) => format!("{first} of {of}"),
            Some((_, first, n, of)) => format!("{first}–{} of {of}", first + n - 1),
        }
    }

    fn same(&self, other: &OpRow) -> bool {
        let OpRow {
            layers: _,
            op,
            program,
            reason,
        } = self;
        *op == other.op && *program == other.program && *reason == other.reason
    }
}

/// Every op of a plan in graph order; identical layers are folded into one.
pub(super) fn folded(case: &PlanCase<'_>) -> Vec<OpRow> {
    let mut blocks: Vec<Vec<OpRow>> = Vec::new();
    for placement in &case.plan.placement {
        let row = OpRow::of(case, placement);
        match blocks.last_mut() {
            Some(block) if block[0].layers == row.layers => block.push(row),
            _ => blocks.push(vec![row]),
        }
    }
    let mut folded: Vec<Vec<OpRow>> = Vec::new();
    for block in blocks {
        match folded.last_mut() {
            Some(last) if is_next(last, &block) => {
                for row in last.iter_mut() {
                    row.layers = row.layers.zip(block[0].layers).map(|(l, n)| (l.0, n.1));
                }
            }
            _ => folded.push(block),
        }
    }
    folded.into_iter().flatten().collect()
}

/// Whether a layer runs like the ones before it.
fn is_next(before: &[OpRow], block: &[OpRow]) -> bool {
    let consecutive = match (before[0].layers, block[0].layers) {
        (Some((_, last)), Some((first, _))) => last + 1 == first,
        _ => false,
    };
    let alike = before.iter().zip(block).all(|(a, b)| a.same(b));
    consecutive && before.len() == block.len() && alike
}
