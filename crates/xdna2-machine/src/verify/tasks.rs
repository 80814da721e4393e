//! The tasks of a transfer at a grid point.

use crate::program::{Affine, Env};

/// Calls `f` with the loop variables of every task, in order, until it returns false or the budget
/// of iterations is spent; returns whether all were visited.
pub(super) fn each_task(
    loops: &[Affine],
    env: Env<'_>,
    budget: &mut u64,
    f: &mut dyn FnMut(&[i64]) -> bool,
) -> bool {
    each_below(loops, env, budget, &mut Vec::with_capacity(loops.len()), f)
}

fn each_below(
    loops: &[Affine],
    env: Env<'_>,
    budget: &mut u64,
    values: &mut Vec<i64>,
    f: &mut dyn FnMut(&[i64]) -> bool,
) -> bool {
    let Some(count) = loops.get(values.len()) else {
        return f(values);
    };
    let count = count.at(&Env {
        loops: values,
        ..env
    });
    for i in 0..count.max(0) {
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        values.push(i);
        let go_on = each_below(loops, env, budget, values, f);
        values.pop();
        if !go_on {
            return false;
        }
    }
    true
}
