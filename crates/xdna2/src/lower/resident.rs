//! A group's program as one configuration of the array. All of the group's projections share their cores. Next to them
//! is a separate core for every kind of norm, rotation, activation and sum. A token then loads no core (Gemma paper
//! §3.2.3).
//!
//! [`rebuilt`] builds the group's kernels anew so that they can be shared and placed side by side. [`place`] gives each
//! its core and shim channels. The verifier decides whether all of it fits.

use super::assemble::GroupSlots;
use super::group::NodeGroup;
use super::kernel::{Kernels, LoweredKernel};
use crate::mapping::{NamedNumbers, Shape, Tiling, q4nx};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{
    Affine, Flat, FlatError, IndexRange, Launch, Place, Port, Program, resident,
};
use millrace_xdna2_machine::verify::Refusal;

/// Largest block of an element-wise kernel: a few of them and the program fit a core.
const TILE_MAX: u64 = 2048;

/// The largest number of columns on which the group's projections are one configuration with everything else, or why
/// there is none. A head takes no columns from the layers before it.
pub(super) fn columns(
    group: &NodeGroup,
    kernels: &Kernels<'_>,
    machine: &Machine,
) -> Result<u64, String> {
    let all = u64::from(machine.cols);
    let mut problem = match fits(group, kernels, (all, machine)) {
        Ok(()) => return Ok(all),
        Err(problem) => problem,
    };
    if group.attends() && group.has_head(kernels) {
        let of_layers = columns(&group.of_blocks(kernels), kernels, machine)?;
        return fits(group, kernels, (of_layers, machine)).map(|()| of_layers);
    }
    for cols in (1..all).rev() {
        match fits(group, kernels, (cols, machine)) {
            Ok(()) => return Ok(cols),
            Err(other) => problem = other,
        }
    }
    Err(problem)
}

/// Whether the group fits on so many columns.
fn fits(
    group: &NodeGroup,
    kernels: &Kernels<'_>,
    (cols, machine): (u64, &Machine),
) -> Result<(), String> {
    let group = rebuilt(group, kernels, cols)
        .ok_or("one of its kernels cannot share a configuration of the array")?;
    let stitched = GroupSlots::new(&group, kernels).stitch("p", kernels);
    let (program, _) = stitched.map_err(|e| e.to_string())?;
    let placed = place(&program, machine).ok_or("no core or shim channel is left for a kernel")?;
    let refused = |refusals: Vec<Refusal>| match refusals.first() {
        Some(refusal) => refusal.to_string(),
        None => "the verifier refuses it".to_owned(),
    };
    kernels
        .verifier
        .verify(&placed)
        .map(|_| ())
        .map_err(refused)
}

/// The group with kernels that can share a configuration, projections on so many columns; `None` if a kernel cannot.
pub(super) fn rebuilt(group: &NodeGroup, kernels: &Kernels<'_>, cols: u64) -> Option<NodeGroup> {
    let cores = Cores::of(group, cols, kernels.machine)?;
    let one = |kernel: &LoweredKernel| -> Option<LoweredKernel> {
        let shape = &kernel.built.shape;
        let tiling = match kernel.built.mapping {
            q4nx::dqp::NAME => cores.projection(),
            q4nx::token::NAME => cores.attention()?,
            "rmsnorm" => alone(&[("tile_rows", 1), ("scales_first", 1)], 0),
            "rope" => alone(&[("tile_rows", 1)], 0),
            "add" | "silu-mul" | "gelu-mul" => alone(&[("tile", tile(shape))], 2),
            _ => return None,
        };
        kernels.with_tiling(kernel, tiling)
    };
    let members = group.members.iter().map(|(node, kernels)| {
        let kernels: Option<Vec<LoweredKernel>> = kernels.iter().map(one).collect();
        Some((*node, kernels?))
    });
    Some(NodeGroup {
        members: members.collect::<Option<Vec<_>>>()?,
        block: group.block,
        last_block: group.last_block,
        reason: group.reason.clone(),
    })
}

/// Common properties of the cores of all projections of a program, and of its attention.
struct Cores<'g> {
    cols: u64,
    /// Elements of the longest vector.
    total: u64,
    piece: u64,
    /// Shape of an attention, and the keys that a core has room for.
    attends: Option<(&'g Shape, u64)>,
}

impl<'g> Cores<'g> {
    fn of(group: &'g NodeGroup, cols: u64, machine: &Machine) -> Option<Cores<'g>> {
        let of = |name: &'static str| {
            let all = group.members.iter().flat_map(|(_, kernels)| kernels);
            let shapes = all.filter(move |k| k.built.mapping == name);
            shapes.map(|k| &k.built.shape)
        };
        let mut lengths: Vec<u64> = of(q4nx::dqp::NAME).map(|shape| shape["k"]).collect();
        let longest = lengths.iter().copied().max()?;
        for shape in of(q4nx::token::NAME) {
            lengths.extend(["n_heads", "n_kv_heads"].map(|n| shape[n] * shape["head_dim"]));
        }
        let piece = q4nx::dqp::piece(&lengths);
        let mut cores = Cores {
            cols,
            total: q4nx::dqp::padded(longest),
            piece,
            attends: None,
        };
        for shape in of(q4nx::token::NAME) {
            let vector = q4nx::dqp::padded(q4nx::token::vector(shape, piece));
            cores.total = cores.total.max(vector);
        }
        for shape in of(q4nx::token::NAME) {
            let keys = q4nx::token::keys_of_core(shape, (cols, cores.total, piece), machine)?;
            let most = cores.attends.map_or(0, |(_, keys)| keys);
            cores.attends = Some((shape, most.max(keys)));
        }
        Some(cores)
    }

    fn projection(&self) -> Tiling {
        match self.attends {
            Some(attends) => q4nx::token::shared(self.cols, self.total, self.piece, attends),
            None => q4nx::dqp::tiling(self.cols, self.total, self.piece),
        }
    }

    fn attention(&self) -> Option<Tiling> {
        let (_, keys) = self.attends?;
        Some(q4nx::token::tiling(self.cols, self.total, self.piece, keys))
    }
}

/// A single core's tiling.
fn alone(first: &[(&'static str, u64)], l2_copies: u64) -> Tiling {
    let rest = [
        ("cols", 1),
        ("rows", 1),
        ("l1_depth", 2),
        ("l2_copies", l2_copies),
    ];
    NamedNumbers::new(&[first, &rest].concat())
}

/// The largest even part of all elements that does not exceed a block.
fn tile(shape: &Shape) -> u64 {
    let n = shape["n"];
    let fits = |tile: &u64| tile.is_multiple_of(2) && n.is_multiple_of(*tile);
    (1..=TILE_MAX.min(n)).rev().find(fits).unwrap_or(n)
}

/// Shim channels that no configuration has yet, by column: to read, to write.
struct Free {
    reads: Vec<u32>,
    writes: Vec<u32>,
}

/// Places the single-core launches of a program next to the others, and marks all as resident. `None` if there is no
/// room.
pub(super) fn place(program: &Program, machine: &Machine) -> Option<Program> {
    let mut placed = program.clone();
    let same = resident::representatives(&program.launches);
    let mut free = Free {
        reads: vec![machine.shim.mm2s; machine.cols as usize],
        writes: vec![machine.shim.s2mm; machine.cols as usize],
    };
    let is_first = |at: usize| same[at] == at;
    let is_alone = |launch: &Launch| launch.herds.iter().all(|h| h.cols * h.rows == 1);
    let mut rows = 0;
    for (at, launch) in program.launches.iter().enumerate() {
        if is_first(at) && !is_alone(launch) {
            free.take(launch).ok()?;
            let tops = launch.herds.iter().map(|herd| herd.row + herd.rows);
            rows = rows.max(tops.max().unwrap_or(0));
        }
    }
    // Those through memory tiles have the least choice: their column is that of their shim.
    let through = |at: &usize| !program.launches[*at].stages.is_empty();
    let singles = (0..same.len()).filter(|&at| is_first(at) && is_alone(&program.launches[at]));
    let (mut order, straight): (Vec<usize>, Vec<usize>) = singles.partition(through);
    order.extend(straight);
    let mut taken: Vec<(u32, u32)> = Vec::new();
    let mut moves: Vec<(usize, Launch)> = Vec::new();
    for at in order {
        let cores =
            (rows..machine.rows).flat_map(|row| (0..machine.cols).map(move |col| (col, row)));
        let mut cores = cores.filter(|core| !taken.contains(core));
        let (core, launch) = cores.find_map(|core| {
            let launch = free.give(&program.launches[at], core)?;
            Some((core, launch))
        })?;
        taken.push(core);
        moves.push((at, launch));
    }
    for (at, launch) in placed.launches.iter_mut().enumerate() {
        if let Some((_, moved)) = moves.iter().find(|(first, _)| *first == same[at]) {
            stand_like(launch, moved);
        }
        launch.resident = at > 0;
    }
    Some(placed)
}

/// Takes the places of a launch of the same configuration.
fn stand_like(launch: &mut Launch, moved: &Launch) {
    for (channel, moved) in launch.channels.iter_mut().zip(&moved.channels) {
        channel.from = moved.from.clone();
        channel.to = moved.to.clone();
    }
    for (stage, moved) in launch.stages.iter_mut().zip(&moved.stages) {
        stage.col = moved.col.clone();
    }
    for (herd, moved) in launch.herds.iter_mut().zip(&moved.herds) {
        (herd.col, herd.row) = (moved.col, moved.row);
    }
}

impl Free {
    /// Takes the shim channels of a launch that stays in place.
    fn take(&mut self, launch: &Launch) -> Result<(), FlatError> {
        for channel in &Flat::new(launch)?.channels {
            if let Port::Shim { col } = channel.from {
                take(&mut self.reads, col);
            }
            for to in &channel.to {
                if let Port::Shim { col } = *to {
                    take(&mut self.writes, col);
                }
            }
        }
        Ok(())
    }

    /// The launch on that core, with shim channels that are free; they then are not. `None` without any.
    fn give(&mut self, launch: &Launch, (col, row): (u32, u32)) -> Option<Launch> {
        let (mut reads, mut writes) = (self.reads.clone(), self.writes.clone());
        let mut moved = launch.clone();
        let at = |col: u32| Affine::new(i64::from(col));
        for channel in &mut moved.channels {
            let fixed = match (&channel.from, &channel.to) {
                (Place::Memory(_), _) | (_, Place::Memory(_)) => Some(col),
                _ => None,
            };
            for (place, left) in [
                (&mut channel.from, &mut reads),
                (&mut channel.to, &mut writes),
            ] {
                match place {
                    Place::Shim(shim) => *shim = at(nearest(left, fixed, col)?),
                    Place::Memory(memory) => *memory = at(col),
                    Place::Core { col: x, row: y } => {
                        (*x, *y) = (IndexRange::At(at(col)), IndexRange::At(at(row)));
                    }
                }
            }
        }
        moved
            .stages
            .iter_mut()
            .for_each(|stage| stage.col = at(col));
        for herd in &mut moved.herds {
            (herd.col, herd.row) = (col, row);
        }
        (self.reads, self.writes) = (reads, writes);
        Some(moved)
    }
}

fn take(left: &mut [u32], col: u32) {
    if let Some(left) = left.get_mut(col as usize) {
        *left = left.saturating_sub(1);
    }
}

/// The column next to `col` that has a channel left, or `fixed` if it has one.
fn nearest(left: &mut [u32], fixed: Option<u32>, col: u32) -> Option<u32> {
    let cols = (0..left.len() as u32).filter(|&c| fixed.is_none_or(|fixed| fixed == c));
    let found = cols
        .filter(|&c| left[c as usize] > 0)
        .min_by_key(|c| c.abs_diff(col))?;
    take(left, found);
    Some(found)
}
