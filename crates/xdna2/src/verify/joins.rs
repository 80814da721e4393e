//! Stages as a memory tile's descriptors and locks.
//!
//! A buffer descriptor acquires one lock before its first word and releases one after its last. So
//! what a fill brings to a drain is one *piece*: a stretch of the fill's stream and of the drain's,
//! a descriptor on either side for each copy of the block, and a pair of locks between them (full,
//! empty), as mlir-aie links object FIFOs. A join is a piece a fill, a distribution a piece a drain,
//! and fills and drains that cross have a piece where they meet.
//!
//! A drain that alternates between fills has no such pieces. MLIR-AIR counts then: one pair of locks
//! for all fills, of which the drain takes as many as there are fills. A fill that is a block ahead
//! takes another's place, so that is sound only while none can be: where a grid point brings one
//! block, and the next begins when that has reached DDR. (Fills in turn, the daisy chain of its
//! `use-lock-race-condition-fix-v2`, are a form that the IR has no word for.)
//!
//! Patterns are known to be in bounds, whole, and to cover what is read before this is asked.

use super::Report;
use super::descriptor::{self, Dma};
use super::flow::{end_blocks, shim_counts, transport_varies};
use super::resources::TileAt;
use super::rule::{Finding, Findings, Rule, group};
use crate::Machine;
use crate::program::{Affine, Env, Flat, FlatEnd, FlatStage, Indices, Order, Port, Var, Walk};
use std::collections::{BTreeMap, BTreeSet};

/// Grid points examined of a stage whose patterns vary.
const MAX_POINTS: u64 = 4096;
/// Elements of all stages and points examined in a launch, and tasks counted.
const MAX_VISITS: u64 = 1 << 26;

/// Refuses stages that descriptors and locks cannot keep apart, and tiles without enough of either.
pub(super) fn check(
    flat: &Flat<'_>,
    machine: &Machine,
    report: &mut Report,
    findings: &mut Findings,
) {
    let before = findings.list.len();
    let mut joins = Joins {
        flat,
        machine,
        budget: MAX_VISITS,
        known: None,
    };
    let mut tiles: BTreeMap<u32, Needs> = BTreeMap::new();
    for (id, stage) in flat.stages.iter().enumerate() {
        match joins.stage(stage) {
            Ok(cost) => {
                let tile = tiles.entry(stage.col).or_default();
                tile.descriptors[0].extend(&cost.drains);
                tile.descriptors[1].extend(&cost.fills);
                tile.locks += cost.locks;
            }
            Err(finding) => {
                let place = format!("stage {}", flat.stage_name(id));
                findings.add(&stage.decl.name, place, finding);
            }
        }
    }
    if findings.list.len() > before {
        return;
    }
    for (col, needs) in tiles {
        let tile = TileAt::Memory(col);
        report.memory_bds = report.memory_bds.max(needs.total());
        report.locks = report.locks.max(needs.locks);
        let limit = machine.memory.locks.into();
        if needs.locks > limit {
            let message = format!("{} locks of {limit}, two a part of a stage", needs.locks);
            let finding = Finding::new(Rule::Locks, message).numbers(needs.locks, limit);
            let finding = finding.fix("Let fewer fills and drains meet in its stages");
            findings.add("locks", tile.to_string(), finding);
        }
        if let Some(finding) = needs.descriptors_finding(machine) {
            findings.add("descriptors", tile.to_string(), finding);
        }
    }
}

/// What a tile's stages need.
#[derive(Default)]
struct Needs {
    /// Descriptors by DMA channel: MM2S, S2MM.
    descriptors: [Vec<u64>; 2],
    locks: u64,
}

impl Needs {
    fn total(&self) -> u64 {
        let all = self.descriptors.iter().flatten();
        all.fold(0, |sum, &n| sum.saturating_add(n))
    }

    /// A memory tile's descriptors fall in two banks, for even and for odd channels: the best split.
    fn descriptors_finding(&self, machine: &Machine) -> Option<Finding> {
        let limits = &machine.memory;
        let fix = "Hold fewer copies of its stages' blocks, cut them into fewer parts, or repeat less";
        let finding = |message: String, n: u64, limit: u64| {
            let finding = Finding::new(Rule::Descriptors, message).numbers(n, limit);
            Some(finding.fix(fix))
        };
        let (total, limit) = (self.total(), u64::from(limits.bds));
        if total > limit {
            return finding(format!("{total} buffer descriptors of {limit}"), total, limit);
        }
        if limits.bds_per_channel >= limits.bds {
            return None;
        }
        let [sends, takes] = [(0, limits.mm2s), (1, limits.s2mm)]
            .map(|(side, channels)| even_sums(&self.descriptors[side], channels));
        let splits = sends.iter().flat_map(|s| takes.iter().map(move |t| s + t));
        let even = splits.min_by_key(|&even| even.max(total - even));
        let used = even.map_or([total, 0], |even| [even, total - even]);
        let (most, limit) = (used[0].max(used[1]), u64::from(limits.bds_per_channel));
        let message = || {
            format!(
                "{} buffer descriptors for even and {} for odd channels; each reach {limit}",
                used[0], used[1]
            )
        };
        if most > limit {
            finding(message(), most, limit)
        } else {
            None
        }
    }
}

/// What the even ones of so many channels may need in all, one channel an end.
fn even_sums(needs: &[u64], channels: u32) -> BTreeSet<u64> {
    let mut states = BTreeSet::from([(0, 0)]);
    for need in needs {
        let more: Vec<_> = states.iter().map(|&(n, sum)| (n + 1, sum + need)).collect();
        states.extend(more);
    }
    let n_ends = needs.len() as u64;
    let (even, odd) = (u64::from(channels.div_ceil(2)), u64::from(channels / 2));
    let fits = |&&(n, _): &&(u64, u64)| n <= even && n_ends - n <= odd;
    states.iter().filter(fits).map(|&(_, sum)| sum).collect()
}

/// Descriptors of each end of a stage, and its locks.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Cost {
    fills: Vec<u64>,
    drains: Vec<u64>,
    locks: u64,
}

/// The parts of a block that go from a fill to a drain, at a grid point.
#[derive(Default)]
struct Pieces {
    /// Of each end: how many.
    fills: Vec<u64>,
    drains: Vec<u64>,
    /// Locks are counted for all fills together.
    is_counted: bool,
}

struct Joins<'a, 'p> {
    flat: &'a Flat<'p>,
    machine: &'a Machine,
    budget: u64,
    /// The walks examined last, and what they cost: those of a bundle's copies are mostly equal.
    known: Option<([Vec<Walk>; 2], *const crate::program::Stage, Cost)>,
}

impl<'p> Joins<'_, 'p> {
    /// What a stage costs, at the grid point where it costs most.
    fn stage(&mut self, stage: &FlatStage<'p>) -> Result<Cost, Finding> {
        let varies = |e: &&FlatEnd<'_>| {
            let grid = |a: &Affine| a.terms.iter().any(|(v, _)| matches!(v, Var::Grid(_)));
            let pattern = &e.decl.pattern;
            grid(&pattern.offset) || pattern.dims.iter().any(|(size, _)| grid(size))
        };
        let ends = || stage.fills.iter().chain(&stage.drains);
        let n_points = self.flat.launch.n_grid_points().unwrap_or(u64::MAX);
        let is_single = stage.fills.len() == 1 && stage.drains.len() == 1;
        if is_single || !ends().any(|e| varies(&e)) {
            return self.at(stage, &vec![0; self.flat.launch.grid.len()]);
        }
        if n_points > MAX_POINTS {
            return Err(too_large());
        }
        let mut most = Cost::default();
        for grid in Indices::new(&self.flat.launch.grid) {
            let cost = self.at(stage, &grid)?;
            let larger = |into: &mut Vec<u64>, new: Vec<u64>| {
                into.resize(new.len(), 0);
                into.iter_mut().zip(new).for_each(|(a, b)| *a = b.max(*a));
            };
            larger(&mut most.fills, cost.fills);
            larger(&mut most.drains, cost.drains);
            most.locks = most.locks.max(cost.locks);
        }
        Ok(most)
    }

    fn at(&mut self, stage: &FlatStage<'p>, grid: &[u32]) -> Result<Cost, Finding> {
        let walks = [&stage.fills, &stage.drains].map(|ends| {
            let walk = |end: &FlatEnd<'_>| {
                end.decl.pattern.walk(&Env {
                    grid,
                    index: &stage.index,
                    each: end.each,
                    ..Env::default()
                })
            };
            ends.iter().map(walk).collect::<Vec<_>>()
        });
        if let Some((known, decl, cost)) = &self.known
            && *decl == std::ptr::from_ref(stage.decl)
            && *known == walks
        {
            return Ok(cost.clone());
        }
        let pieces = match (&stage.fills[..], &stage.drains[..]) {
            ([_], [_]) => Pieces {
                fills: vec![1],
                drains: vec![1],
                is_counted: false,
            },
            _ => self.pieces(stage, &walks)?,
        };
        let cost = self.cost(stage, &pieces)?;
        self.known = Some((walks, stage.decl, cost.clone()));
        Ok(cost)
    }

    /// Descriptors and locks of the pieces. A drain repeats for as many descriptors as it has
    /// copies to go through, or, with one copy, with those it has.
    fn cost(&self, stage: &FlatStage<'p>, pieces: &Pieces) -> Result<Cost, Finding> {
        let copies = u64::from(stage.decl.copies);
        let limit = u64::from(self.machine.lock_value_max);
        let parts = if pieces.is_counted {
            pieces.fills.iter().sum()
        } else {
            1
        };
        for end in &stage.drains {
            let repeat = u64::from(end.decl.repeat);
            let value = copies.saturating_mul(repeat).saturating_mul(parts);
            if value <= limit {
                continue;
            }
            let message = format!(
                "{copies} blocks, {} sent {} times each; a lock counts to {limit}",
                self.flat.channel_name(end.channel),
                group(repeat)
            );
            let finding = Finding::new(Rule::LockValue, message).numbers(value, limit);
            return Err(finding.fix(match limit / copies.max(1) {
                0 => format!("Hold at most {limit} blocks"),
                most => format!("Hold fewer blocks, or send each at most {most} times"),
            }));
        }
        let fills = pieces.fills.iter().map(|&n| copies * n.max(1)).collect();
        let of_drain = |(end, &n): (&FlatEnd<'_>, &u64)| {
            let repeat = u64::from(end.decl.repeat);
            let times = if copies == 1 { 1 } else { repeat };
            copies * n.max(1) * times
        };
        let drains = stage.drains.iter().zip(&pieces.drains).map(of_drain);
        let n_pairs = if pieces.is_counted {
            1
        } else {
            pieces.drains.iter().sum()
        };
        Ok(Cost {
            fills,
            drains: drains.collect(),
            locks: 2 * n_pairs,
        })
    }

    /// Cuts a block at its fills and drains.
    fn pieces(&mut self, stage: &FlatStage<'p>, walks: &[Vec<Walk>; 2]) -> Result<Pieces, Finding> {
        let [fills, drains] = walks;
        let n = stage.decl.block_elements();
        let visits = walks.iter().flatten().map(|w| w.n_elements().unsigned_abs());
        let cost = visits.fold(n, u64::saturating_add);
        self.budget = self.budget.checked_sub(cost).ok_or_else(too_large)?;
        let (mut writer, mut reader) = (Owners::new(n), Owners::new(n));
        for (end, walk) in fills.iter().enumerate() {
            writer.mark(walk, end);
        }
        for (end, walk) in drains.iter().enumerate() {
            if let Some((other, element)) = reader.mark(walk, end) {
                let name = |end: usize| self.flat.channel_name(stage.drains[end].channel);
                let message = format!(
                    "{} and {} both send element {}, and a full block is taken once",
                    name(other),
                    name(end),
                    group(element)
                );
                let finding = Finding::new(Rule::StageShared, message);
                return Err(finding.fix("Broadcast one drain to both, or fill two stages"));
            }
        }
        let of_drain = |(end, walk)| self.cut(stage, false, end, walk, &writer);
        let in_drains: Result<Vec<u64>, Finding> = drains.iter().enumerate().map(of_drain).collect();
        let of_fill = |(end, walk)| self.cut(stage, true, end, walk, &reader);
        let in_fills: Result<Vec<u64>, Finding> = fills.iter().enumerate().map(of_fill).collect();
        match (in_fills, in_drains) {
            (Ok(fills), Ok(drains)) => Ok(Pieces {
                fills,
                drains,
                is_counted: false,
            }),
            (_, Err(_)) if self.may_count(stage, walks)? => Ok(Pieces {
                fills: fills.iter().map(|w| u64::from(!w.is_empty())).collect(),
                drains: vec![1; drains.len()],
                is_counted: true,
            }),
            (Err(finding), _) | (_, Err(finding)) => Err(finding),
        }
    }

    /// Pieces of an end's stream, each of one owner on the other side. What nobody owns goes with the
    /// piece before it.
    fn cut(
        &self,
        stage: &FlatStage<'p>,
        is_fill: bool,
        end: usize,
        walk: &Walk,
        owners: &Owners,
    ) -> Result<u64, Finding> {
        let stretches = owners.along(walk);
        let (own, other) = if is_fill {
            (&stage.fills, &stage.drains)
        } else {
            (&stage.drains, &stage.fills)
        };
        let name = |ends: &[FlatEnd<'_>], end: usize| self.flat.channel_name(ends[end].channel);
        let mut seen = vec![false; other.len()];
        for stretch in &stretches {
            if !std::mem::replace(&mut seen[stretch.owner], true) {
                continue;
            }
            let n = stretches.iter().filter(|s| s.owner == stretch.owner).count();
            let (own, other) = (name(own, end), name(other, stretch.owner));
            return Err(interleaved(is_fill, &own, &other, n));
        }
        if stretches.len() < 2 {
            return Ok(stretches.len() as u64);
        }
        let size_bytes = stage.decl.element.size_bytes();
        for stretch in &stretches {
            let Some(part) = part(walk, stretch.start, stretch.len) else {
                let message = format!(
                    "elements {} to {} of what {} moves, those of {}, are no walk of their own",
                    group(stretch.start),
                    group(stretch.start + stretch.len - 1),
                    name(own, end),
                    name(other, stretch.owner)
                );
                let finding = Finding::new(Rule::StagePieces, message);
                let fix = "Cut the block along a dimension of the walk";
                return Err(finding.fix(fix));
            };
            let found = descriptor::check(&part, size_bytes, Dma::Memory, self.machine);
            if let Some(finding) = found {
                return Err(finding);
            }
        }
        Ok(stretches.len() as u64)
    }

    /// Whether locks can be counted: several fills, one drain to DDR that sends a block once, one
    /// block at each grid point, and the next point after it.
    fn may_count(&mut self, stage: &FlatStage<'p>, walks: &[Vec<Walk>; 2]) -> Result<bool, Finding> {
        let flat = self.flat;
        let mut active = stage.drains.iter().zip(&walks[1]).filter(|(_, w)| !w.is_empty());
        let (Some((drain, _)), None) = (active.next(), active.next()) else {
            return Ok(false);
        };
        let to = &flat.channels[drain.channel].to;
        let to_shim = to.iter().all(|port| matches!(port, Port::Shim { .. }));
        let n_points = flat.launch.n_grid_points().unwrap_or(u64::MAX);
        let ordered = n_points == 1 || flat.launch.order == Order::Sequential;
        if drain.decl.repeat > 1 || !to_shim || !ordered {
            return Ok(false);
        }
        let points: Vec<Vec<u32>> = match transport_varies(flat) {
            true if n_points > MAX_POINTS => return Err(too_large()),
            true => Indices::new(&flat.launch.grid).collect(),
            false => vec![vec![0; flat.launch.grid.len()]],
        };
        for grid in points {
            let counts = shim_counts(flat, &grid, &mut self.budget).map_err(|_| too_large())?;
            if counts[drain.channel] > end_blocks(flat, stage, drain, &grid) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn interleaved(is_fill: bool, own: &str, other: &str, n: usize) -> Finding {
    let n = group(n as u64);
    let (message, fix) = if is_fill {
        (
            format!(
                "{own} brings the elements of {other} in {n} stretches with those of other drains \
                 between, and a descriptor waits for one lock"
            ),
            "Bring each drain's elements in one stretch, which the transfer can arrange, or give \
             each drain its own stage",
        )
    } else {
        (
            format!(
                "{own} sends the elements of {other} in {n} stretches with those of other fills \
                 between, and a descriptor waits for one lock"
            ),
            "Send each fill's elements in one stretch and let the transfer arrange them, or send one \
             block to DDR at each point of a sequential grid",
        )
    };
    Finding::new(Rule::StagePieces, message).fix(fix)
}

fn too_large() -> Finding {
    let message = format!(
        "stages of several fills or drains with more than {} elements at all grid points, or varying \
         over more than {MAX_POINTS} points",
        group(MAX_VISITS)
    );
    Finding::new(Rule::TooLarge, message).fix("Let the patterns be the same at all grid points")
}

/// Part of an end's stream.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    owner: usize,
    start: u64,
    len: u64,
}

/// Which end of one side each element of a block belongs to.
struct Owners(Vec<Option<u16>>);

impl Owners {
    fn new(n: u64) -> Owners {
        Owners(vec![None; usize::try_from(n).unwrap_or(0)])
    }

    /// Gives the walk's elements to an end; says whose one of them was, and which.
    fn mark(&mut self, walk: &Walk, end: usize) -> Option<(usize, u64)> {
        let own = u16::try_from(end).ok();
        for (start, len) in walk.runs() {
            let run = self.0.get_mut(start as usize..(start + len) as usize)?;
            let taken = |o: &Option<u16>| o.is_some() && *o != own;
            if let Some(at) = run.iter().position(taken) {
                let other = run[at].unwrap_or_default();
                return Some((other.into(), (start as usize + at) as u64));
            }
            run.fill(own);
        }
        None
    }

    /// The owners along a walk.
    fn along(&self, walk: &Walk) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let (mut at, mut unowned) = (0, 0);
        for (start, len) in walk.runs() {
            let run = self.0.get(start as usize..(start + len) as usize);
            for same in run.unwrap_or_default().chunk_by(|a, b| a == b) {
                let len = same.len() as u64;
                match (same[0], stretches.last_mut()) {
                    (None, None) => unowned += len,
                    (None, Some(last)) => last.len += len,
                    (Some(owner), Some(last)) if last.owner == usize::from(owner) => last.len += len,
                    (Some(owner), _) => {
                        stretches.push(Stretch {
                            owner: owner.into(),
                            start: at - unowned,
                            len: len + unowned,
                        });
                        unowned = 0;
                    }
                }
                at += len;
            }
        }
        stretches
    }
}

/// That part of a walk's stream as a walk: whole steps of one of its dimensions.
fn part(walk: &Walk, start: u64, len: u64) -> Option<Walk> {
    let walk = walk.canonical();
    let mut inner = walk.n_elements().unsigned_abs();
    let mut offset = walk.offset;
    let mut start = start;
    for (d, &(size, stride)) in walk.dims.iter().enumerate() {
        inner /= size.unsigned_abs().max(1);
        let (first, rest) = (start / inner, start % inner);
        if rest == 0 && len.is_multiple_of(inner) && first + len / inner <= size.unsigned_abs() {
            offset += i64::try_from(first).ok()? * stride;
            let mut dims = walk.dims[d..].to_vec();
            dims[0].0 = i64::try_from(len / inner).ok()?;
            return Some(Walk { offset, dims });
        }
        // Within one step of this dimension, or nowhere.
        offset += i64::try_from(first).ok()? * stride;
        start = rest;
        if rest + len > inner {
            return None;
        }
    }
    (len == 1).then_some(Walk {
        offset,
        dims: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(dims: &[(i64, i64)]) -> Walk {
        Walk {
            offset: 100,
            dims: dims.to_vec(),
        }
    }

    #[test]
    fn parts_of_a_walk_are_whole_steps_of_a_dimension() {
        let rows = walk(&[(4, 64), (8, 1)]);
        let at = |offset, dims: &[(i64, i64)]| {
            Some(Walk {
                offset,
                dims: dims.to_vec(),
            })
        };
        assert_eq!(part(&rows, 0, 32), at(100, &[(4, 64), (8, 1)]));
        assert_eq!(part(&rows, 8, 16), at(164, &[(2, 64), (8, 1)]));
        assert_eq!(part(&rows, 18, 4), at(230, &[(4, 1)]));
        assert_eq!(part(&rows, 4, 8), None);
        assert_eq!(part(&rows, 8, 12), None);
        // Contiguous rows are one dimension, which is cut anywhere.
        assert_eq!(part(&walk(&[(4, 8), (8, 1)]), 4, 8), at(104, &[(8, 1)]));
    }

    /// Each part walks the elements that the whole walks there.
    #[test]
    fn parts_walk_what_the_whole_does() {
        let elements = |walk: &Walk| -> Vec<i64> {
            walk.runs().flat_map(|(at, len)| at..at + len).collect()
        };
        let walks = [
            walk(&[(2, 50), (3, 10), (4, 1)]),
            walk(&[(3, 7), (2, 3)]),
            walk(&[(24, 1)]),
            walk(&[(4, 1), (6, 4)]),
        ];
        let mut n_parts = 0;
        for whole in &walks {
            let all = elements(whole);
            for start in 0..all.len() {
                for len in 1..=all.len() - start {
                    if let Some(part) = part(whole, start as u64, len as u64) {
                        assert_eq!(elements(&part), all[start..start + len]);
                        n_parts += 1;
                    }
                }
            }
        }
        assert!(n_parts > 300, "{n_parts}");
    }

    #[test]
    fn banks_are_split_as_evenly_as_channels_allow() {
        let all = |sums: BTreeSet<u64>| sums.into_iter().collect::<Vec<_>>();
        assert_eq!(all(even_sums(&[20], 6)), [0, 20]);
        // Of four on six channels at least one is even.
        assert_eq!(all(even_sums(&[5; 4], 6)), [5, 10, 15]);
        assert_eq!(all(even_sums(&[1, 2, 4], 3)), [3, 5, 6]);
        assert!(even_sums(&[1; 7], 6).is_empty());
    }

    #[test]
    fn what_nobody_owns_goes_with_its_neighbour() {
        let mut owners = Owners::new(12);
        let linear = |offset, n| Walk {
            offset,
            dims: vec![(n, 1)],
        };
        assert_eq!(owners.mark(&linear(2, 3), 0), None);
        assert_eq!(owners.mark(&linear(6, 4), 1), None);
        let stretch = |owner, start, len| Stretch { owner, start, len };
        let along = owners.along(&linear(0, 12));
        assert_eq!(along, [stretch(0, 0, 6), stretch(1, 6, 6)]);
        assert_eq!(owners.mark(&linear(5, 2), 2), Some((1, 6)));
    }
}
