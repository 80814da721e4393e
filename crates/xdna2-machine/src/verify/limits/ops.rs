//! Bounds of herds and their programs.

use super::{
    Findings, MAX_DECLARATIONS, MAX_NAME, MAX_RANK, MAX_VALUE, Ranges, RuleFinding, dims_ok, large,
    name_ok, overflow, zero,
};
use crate::program::{Herd, Launch, MAX_NESTING, Op};

/// Steps of a core program, nested ones included.
const MAX_OPS: usize = 1 << 14;

/// Refuses herds whose locals or programs are too large to examine.
pub(super) fn check_herd(herd: &Herd, launch: &Launch, findings: &mut Findings) {
    if !name_ok(&herd.name, "herd", findings) {
        return;
    }
    let place = format!("herd {}", herd.name);
    if herd.cols == 0 || herd.rows == 0 {
        findings.add(&place, &place, zero("a side of the herd"));
        return;
    }
    if herd.locals.len() > MAX_DECLARATIONS {
        findings.add(&place, &place, large("local buffers", MAX_DECLARATIONS));
        return;
    }
    for local in &herd.locals {
        if name_ok(&local.name, "local", findings) {
            let what = format!("local {}", local.name);
            dims_ok(&local.shape, &what, &place, &place, findings);
        }
    }
    if depth(&herd.body, MAX_NESTING + 1) > MAX_NESTING {
        findings.add(
            &place,
            &place,
            large("nested loops and branches", MAX_NESTING),
        );
        return;
    }
    let mut count = 0;
    let mut ranges = Ranges {
        grid: &launch.grid,
        herd: [herd.cols, herd.rows],
        ..Ranges::default()
    };
    if let Err(finding) = check_ops(&herd.body, &mut ranges, &mut count) {
        findings.add(&place, &place, finding);
    }
}

/// Checks the steps of a body whose nesting is known to be bounded.
fn check_ops(ops: &[Op], ranges: &mut Ranges<'_>, count: &mut usize) -> Result<(), RuleFinding> {
    *count += ops.len();
    if *count > MAX_OPS {
        return Err(large("steps in a core program", MAX_OPS));
    }
    for op in ops {
        let ok = match op {
            Op::Loop { count: times, body } => {
                let ok = ranges.ok(times);
                let most = ranges.of(times).1.clamp(0, MAX_VALUE);
                ranges.loops.push(most);
                check_ops(body, ranges, count)?;
                ranges.loops.pop();
                ok
            }
            Op::If {
                value,
                then,
                otherwise,
                ..
            } => {
                check_ops(then, ranges, count)?;
                check_ops(otherwise, ranges, count)?;
                ranges.ok(value)
            }
            Op::Get { index, .. } | Op::New { index, .. } => {
                index.len() <= MAX_RANK && index.iter().all(|i| ranges.ok(i))
            }
            Op::Free { .. } | Op::Put { .. } => true,
            Op::Call {
                kernel,
                dims,
                operands,
                scalars,
                constants,
            } => {
                let lengths = [dims.len(), operands.len(), scalars.len(), constants.len()];
                if lengths.iter().any(|&n| n > MAX_RANK) || kernel.len() > MAX_NAME {
                    return Err(large("dimensions, operands or scalars of a call", MAX_RANK));
                }
                scalars.iter().all(|s| ranges.ok(s))
            }
        };
        if !ok {
            return Err(overflow("an expression of the core program"));
        }
    }
    Ok(())
}

/// Nesting of a body, counted up to `limit`.
fn depth(ops: &[Op], limit: usize) -> usize {
    if limit == 0 {
        return 0;
    }
    let inner = |op: &Op| match op {
        Op::Loop { body, .. } => 1 + depth(body, limit - 1),
        Op::If {
            then, otherwise, ..
        } => 1 + depth(then, limit - 1).max(depth(otherwise, limit - 1)),
        _ => 0,
    };
    ops.iter().map(inner).max().unwrap_or(0)
}

/// Steps of a body, nested ones included.
pub(super) fn count_ops(ops: &[Op]) -> u64 {
    let inner = |op: &Op| match op {
        Op::Loop { body, .. } => 1 + count_ops(body),
        Op::If {
            then, otherwise, ..
        } => 1 + count_ops(then) + count_ops(otherwise),
        _ => 1,
    };
    ops.iter().map(inner).sum()
}
