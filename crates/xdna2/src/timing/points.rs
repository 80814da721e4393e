//! Which grid points take the same time.

use crate::program::{Affine, Herd, Indices, Launch, Op, Pattern, Var};
use crate::tile;
use std::collections::HashMap;

/// Grid points that only differ in where their bytes lie.
pub(super) struct Group {
    /// The first of them.
    pub(super) first: Vec<u32>,
    /// How many there are.
    pub(super) count: u64,
}

/// Most grid points looked at one by one.
const MAX_POINTS: u64 = 1 << 20;

/// Groups of grid points, in the order of their first.
pub(super) fn groups(launch: &Launch) -> Vec<Group> {
    let n = launch.n_grid_points().unwrap_or(u64::MAX);
    let sizes = grid_sizes(launch);
    if sizes.is_empty() || n > MAX_POINTS {
        return match launch.grid_points().next() {
            Some(first) => vec![Group { first, count: n }],
            None => Vec::new(),
        };
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut by_signature: HashMap<Vec<i64>, usize> = HashMap::new();
    for point in Indices::new(&launch.grid) {
        let value = |var: Var| match var {
            Var::Grid(d) => point.get(usize::from(d)).map_or(0, |&g| i64::from(g)),
            _ => 0,
        };
        let signature: Vec<i64> = sizes.iter().map(|affine| affine.eval(value)).collect();
        let at = *by_signature.entry(signature).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.count += 1,
            None => groups.push(Group {
                first: point,
                count: 1,
            }),
        }
    }
    groups
}

/// Expressions with the grid in them that decide how much is moved or computed, or by whom.
fn grid_sizes(launch: &Launch) -> Vec<Affine> {
    let mut found = Vec::new();
    for transfer in &launch.transfers {
        transfer.loops.iter().for_each(|l| keep(l, &mut found));
        sizes(&transfer.pattern, &mut found);
    }
    for stage in &launch.stages {
        for end in stage.fills.iter().chain(&stage.drains) {
            sizes(&end.pattern, &mut found);
        }
    }
    for Herd { body, .. } in &launch.herds {
        ops(body, &mut found);
    }
    found
}

fn keep(affine: &Affine, found: &mut Vec<Affine>) {
    let grid: Vec<(Var, i64)> = (affine.terms.iter())
        .filter(|(var, _)| matches!(var, Var::Grid(_)))
        .copied()
        .collect();
    let affine = Affine {
        constant: 0,
        terms: grid,
    };
    if !affine.terms.is_empty() && !found.contains(&affine) {
        found.push(affine);
    }
}

fn sizes(pattern: &Pattern, found: &mut Vec<Affine>) {
    pattern.dims.iter().for_each(|(size, _)| keep(size, found));
}

fn ops(body: &[Op], found: &mut Vec<Affine>) {
    for op in body {
        match op {
            Op::Loop { count, body } => {
                keep(count, found);
                ops(body, found);
            }
            Op::If {
                value,
                then,
                otherwise,
                ..
            } => {
                keep(value, found);
                ops(then, found);
                ops(otherwise, found);
            }
            Op::Get { index, .. } | Op::New { index, .. } => {
                index.iter().for_each(|i| keep(i, found));
            }
            Op::Call {
                kernel,
                dims,
                scalars,
                ..
            } => {
                if work_needs_scalars(kernel, dims, scalars.len()) {
                    scalars.iter().for_each(|s| keep(s, found));
                }
            }
            Op::Free { .. } | Op::Put { .. } => {}
        }
    }
}

/// Whether a kernel's work depends on its scalars. Most do not: a mask is computed, not skipped.
pub(super) fn work_needs_scalars(kernel: &str, dims: &[u32], n: usize) -> bool {
    let Some(kernel) = tile::find(kernel) else {
        return false;
    };
    let at = |value: i64| (kernel.work)(dims, &vec![value; n]);
    let mixed: Vec<i64> = (0..n as i64).map(|i| i * 4096).collect();
    at(0) != at(1 << 20) || at(0) != (kernel.work)(dims, &mixed)
}
