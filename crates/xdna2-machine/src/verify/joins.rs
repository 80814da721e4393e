//! Stages as a memory tile's descriptors and locks.
//!
//! A buffer descriptor acquires one lock before its first word and releases one after its last. So the part that a fill
//! brings to a drain is one *piece*: a stretch of the fill's stream and of the drain's. It has a descriptor on either
//! side for each copy of the block, and a pair of locks between them (full, empty), as mlir-aie links object FIFOs. A
//! join is a piece a fill, a distribution a piece a drain, and fills and drains that cross have a piece where they
//! meet.
//!
//! A drain that alternates between fills has no such pieces. MLIR-AIR counts then: there is one pair of locks for all
//! fills, and the drain takes as many as there are fills. A fill that is a block ahead takes another's place. So this
//! is sound only if none can be ahead: a grid point brings one block, and the next begins when that has reached DDR.
//! (The IR cannot express fills in turn, the daisy chain of its `use-lock-race-condition-fix-v2`.)
//!
//! Patterns are known to be in bounds and whole, and to cover the elements that are read, before this check.

mod pieces;

use super::ResourceReport;
use super::resources::TileAt;
use super::rule::{Findings, Rule, RuleFinding, group};
use crate::Machine;
use crate::program::{Affine, Env, Flat, FlatEnd, FlatStage, Indices, PatternWalk, Stage, Var};
use pieces::{Cutter, Pieces};
use std::collections::{BTreeMap, BTreeSet};

/// Grid points examined of a stage whose patterns vary.
const MAX_POINTS: u64 = 4096;
/// Elements of all stages and points examined in a launch, and tasks counted.
const MAX_VISITS: u64 = 1 << 26;

/// Refuses stages that descriptors and locks cannot keep apart, and tiles without enough of either.
pub(super) fn check(
    flat: &Flat<'_>,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    let before = findings.list.len();
    let mut joins = Joins::new(flat, machine);
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
            let finding = RuleFinding::new(Rule::Locks, message).numbers(needs.locks, limit);
            let finding = finding.fix("Let fewer fills and drains meet in its stages");
            findings.add("locks", tile.to_string(), finding);
        }
        if let Some(finding) = needs.descriptors_finding(machine) {
            findings.add("descriptors", tile.to_string(), finding);
        }
    }
}

/// Descriptors and locks of every stage; `None` of one that the verifier refuses.
pub(crate) fn stage_costs(flat: &Flat<'_>, machine: &Machine) -> Vec<Option<StageCost>> {
    let mut joins = Joins::new(flat, machine);
    let stages = flat.stages.iter();
    stages.map(|stage| joins.stage(stage).ok()).collect()
}

/// Resources that a tile's stages need.
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
    fn descriptors_finding(&self, machine: &Machine) -> Option<RuleFinding> {
        let limits = &machine.memory;
        let fix =
            "Hold fewer copies of its stages' blocks, cut them into fewer parts, or repeat less";
        let finding = |message: String, n: u64, limit: u64| {
            let finding = RuleFinding::new(Rule::Descriptors, message).numbers(n, limit);
            Some(finding.fix(fix))
        };
        let (total, limit) = (self.total(), u64::from(limits.bds));
        if total > limit {
            return finding(
                format!("{total} buffer descriptors of {limit}"),
                total,
                limit,
            );
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

/// Possible totals of the even channels, of so many, with one channel an end.
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
pub(crate) struct StageCost {
    pub(crate) fills: Vec<u64>,
    pub(crate) drains: Vec<u64>,
    pub(crate) locks: u64,
}

struct Joins<'a, 'p> {
    cutter: Cutter<'a, 'p>,
    /// The stage examined last with its walks, and its cost: those of a bundle's copies are mostly equal.
    known: Option<(&'p Stage, [Vec<PatternWalk>; 2], StageCost)>,
}

impl<'a, 'p> Joins<'a, 'p> {
    fn new(flat: &'a Flat<'p>, machine: &'a Machine) -> Joins<'a, 'p> {
        Joins {
            cutter: Cutter {
                flat,
                machine,
                budget: MAX_VISITS,
            },
            known: None,
        }
    }

    /// Cost of a stage, at its most expensive grid point.
    fn stage(&mut self, stage: &FlatStage<'p>) -> Result<StageCost, RuleFinding> {
        let varies = |e: &&FlatEnd<'_>| {
            let grid = |a: &Affine| a.terms.iter().any(|(v, _)| matches!(v, Var::Grid(_)));
            let pattern = &e.decl.pattern;
            grid(&pattern.offset) || pattern.dims.iter().any(|(size, _)| grid(size))
        };
        let ends = || stage.fills.iter().chain(&stage.drains);
        let n_points = self.cutter.flat.launch.n_grid_points().unwrap_or(u64::MAX);
        let is_single = stage.fills.len() == 1 && stage.drains.len() == 1;
        if is_single || !ends().any(|e| varies(&e)) {
            return self.at(stage, &vec![0; self.cutter.flat.launch.grid.len()]);
        }
        if n_points > MAX_POINTS {
            return Err(too_large());
        }
        let mut most = StageCost::default();
        for grid in Indices::new(&self.cutter.flat.launch.grid) {
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

    fn at(&mut self, stage: &FlatStage<'p>, grid: &[u32]) -> Result<StageCost, RuleFinding> {
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
        if let Some((decl, known, cost)) = &self.known
            && std::ptr::eq(*decl, stage.decl)
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
            _ => self.cutter.pieces(stage, &walks)?,
        };
        let cost = self.cost(stage, &pieces)?;
        // Whether locks may be counted does not depend on the walks alone.
        if !pieces.is_counted {
            self.known = Some((stage.decl, walks, cost.clone()));
        }
        Ok(cost)
    }

    /// Descriptors and locks of the pieces. With several copies, a drain has its descriptors again for each repeat;
    /// with one copy, it executes the same ones again.
    fn cost(&self, stage: &FlatStage<'p>, pieces: &Pieces) -> Result<StageCost, RuleFinding> {
        let copies = u64::from(stage.decl.copies);
        let limit = u64::from(self.cutter.machine.lock_value_max);
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
                self.cutter.flat.channel_name(end.channel),
                group(repeat)
            );
            let finding = RuleFinding::new(Rule::LockValue, message).numbers(value, limit);
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
        Ok(StageCost {
            fills,
            drains: drains.collect(),
            locks: 2 * n_pairs,
        })
    }
}

fn too_large() -> RuleFinding {
    let message = format!(
        "stages of several fills or drains with more than {} elements at all grid points, or varying \
         over more than {MAX_POINTS} points",
        group(MAX_VISITS)
    );
    RuleFinding::new(Rule::TooLarge, message).fix("Let the patterns be the same at all grid points")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_are_split_as_evenly_as_channels_allow() {
        let all = |sums: BTreeSet<u64>| sums.into_iter().collect::<Vec<_>>();
        assert_eq!(all(even_sums(&[20], 6)), [0, 20]);
        // With four ends on six channels at least one is even.
        assert_eq!(all(even_sums(&[5; 4], 6)), [5, 10, 15]);
        assert_eq!(all(even_sums(&[1, 2, 4], 3)), [3, 5, 6]);
        assert!(even_sums(&[1; 7], 6).is_empty());
    }
}
