//! Grid points that take the same time.

use crate::program::{Affine, Env, GridOrder, Herd, Indices, Launch, Op, Pattern, Place, Var};
use crate::tile;
use std::collections::HashMap;

/// Groups of grid points that are issued together. Groups that differ only in the places of their bytes are one entry.
pub(super) struct PointGroup {
    /// The points of the first group.
    pub(super) points: Vec<Vec<u32>>,
    /// The number of equal groups.
    pub(super) count: u64,
}

/// Most grid points looked at one by one.
const MAX_POINTS: u64 = 1 << 20;

/// Points of a two-dimensional grid that are issued together, by dimension: MLIR-AIR's
/// `runtime_loop_tiling_sizes`, `[2, 2]` for its GEMMs (their `run.py`).
const TOGETHER: u32 = 2;

/// How many points of a sequential launch are issued before their tokens are awaited, by dimension. Launches whose
/// memory tiles hold one copy of their input cannot run ahead: attention is built with `[1, 1]`, and without ping-pong.
fn together(launch: &Launch) -> Vec<u32> {
    let reads = |channel: usize| {
        let channel = launch.channels.get(channel);
        channel.is_some_and(|c| matches!(c.from, Place::Shim(_)))
    };
    let ping_pong = (launch.stages.iter())
        .filter(|stage| stage.fills.iter().any(|end| reads(end.channel)))
        .map(|stage| stage.copies > 1);
    let ping_pong: Vec<bool> = ping_pong.collect();
    let sequential = launch.order == GridOrder::Sequential;
    let ahead = sequential
        && launch.grid.len() == 2
        && !ping_pong.is_empty()
        && !ping_pong.contains(&false);
    vec![if ahead { TOGETHER } else { 1 }; launch.grid.len()]
}

/// Groups of grid points, in the order of their first.
pub(super) fn groups(launch: &Launch) -> Vec<PointGroup> {
    let n = launch.n_grid_points().unwrap_or(u64::MAX);
    let sizes = grid_sizes(launch);
    let together = together(launch);
    let alone = together.iter().all(|&t| t == 1);
    if (alone && sizes.is_empty()) || n > MAX_POINTS {
        return match launch.grid_points().next() {
            Some(first) => vec![PointGroup {
                points: vec![first],
                count: n,
            }],
            None => Vec::new(),
        };
    }
    let mut groups: Vec<PointGroup> = Vec::new();
    let mut by_signature: HashMap<Vec<i64>, usize> = HashMap::new();
    let tiles: Vec<u32> = (launch.grid.iter().zip(&together))
        .map(|(&size, &t)| size.div_ceil(t))
        .collect();
    for tile in Indices::new(&tiles) {
        let points = points_of(launch, &tile, &together);
        let mut signature: Vec<i64> = extent(launch, &tile, &together);
        for point in &points {
            let value = |var: Var| match var {
                Var::Grid(d) => point.get(usize::from(d)).map_or(0, |&g| i64::from(g)),
                _ => 0,
            };
            signature.extend(sizes.iter().map(|affine| affine.eval(value)));
        }
        let at = *by_signature.entry(signature).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.count += 1,
            None => groups.push(PointGroup { points, count: 1 }),
        }
    }
    groups
}

/// Whether the compiler folds the grid into the descriptors' iteration, so that nothing is written for
/// later points: a grid of one dimension whose transfers each are one stretch of bytes (MLIR-AIR's
/// GEMV; its limit of 255 repeats is one of the whole launch).
pub(super) fn folded(launch: &Launch) -> bool {
    let one_stretch = |pattern: &Pattern| {
        let walk = pattern.walk(&Env {
            grid: &vec![0; launch.grid.len()],
            index: &[0; 4],
            loops: &[0; 4],
            ..Env::default()
        });
        walk.canonical().dims.len() <= 1
    };
    launch.grid.len() == 1 && launch.transfers.iter().all(|t| one_stretch(&t.pattern))
}

/// Points of a tile of the grid in each dimension.
fn extent(launch: &Launch, tile: &[u32], together: &[u32]) -> Vec<i64> {
    let sides = launch.grid.iter().zip(tile).zip(together);
    let side = |((&size, &at), &t): ((&u32, &u32), &u32)| i64::from(t.min(size - at * t));
    sides.map(side).collect()
}

fn points_of(launch: &Launch, tile: &[u32], together: &[u32]) -> Vec<Vec<u32>> {
    let extent: Vec<u32> = (extent(launch, tile, together).iter())
        .map(|&side| side as u32)
        .collect();
    let first = || tile.iter().zip(together);
    (Indices::new(&extent))
        .map(|at| {
            first()
                .zip(at)
                .map(|((&tile, &t), at)| tile * t + at)
                .collect()
        })
        .collect()
}

/// Expressions of the grid that decide how much is moved or computed, or by which actor.
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
