//! Pieces where the fills and drains of a block meet.

use super::super::descriptor::{self, Dma};
use super::super::flow::{end_blocks, shim_counts, transport_varies};
use super::super::rule::{Rule, RuleFinding, group};
use super::{MAX_POINTS, too_large};
use crate::Machine;
use crate::program::{Flat, FlatEnd, FlatStage, GridOrder, Indices, PatternWalk, Port};

/// The parts of a block that go from a fill to a drain, at a grid point.
pub(super) struct Pieces {
    /// Number of pieces of each end.
    pub(super) fills: Vec<u64>,
    pub(super) drains: Vec<u64>,
    /// Locks are counted for all fills together.
    pub(super) is_counted: bool,
}

/// Cuts blocks of a launch's stages.
pub(super) struct Cutter<'a, 'p> {
    pub(super) flat: &'a Flat<'p>,
    pub(super) machine: &'a Machine,
    /// Elements and tasks left to look at.
    pub(super) budget: u64,
}

impl<'p> Cutter<'_, 'p> {
    /// Cuts a block at its fills and drains, whose walks these are.
    pub(super) fn pieces(
        &mut self,
        stage: &FlatStage<'p>,
        walks: &[Vec<PatternWalk>; 2],
    ) -> Result<Pieces, RuleFinding> {
        let [fills, drains] = walks;
        let n = stage.decl.block_elements();
        let visits = walks
            .iter()
            .flatten()
            .map(|w| w.n_elements().unsigned_abs());
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
                let finding = RuleFinding::new(Rule::StageShared, message);
                return Err(finding.fix("Broadcast one drain to both, or fill two stages"));
            }
        }
        let of_drain = |(end, walk)| self.cut(stage, false, end, walk, &writer);
        let in_drains: Result<Vec<u64>, RuleFinding> =
            drains.iter().enumerate().map(of_drain).collect();
        let of_fill = |(end, walk)| self.cut(stage, true, end, walk, &reader);
        let in_fills: Result<Vec<u64>, RuleFinding> =
            fills.iter().enumerate().map(of_fill).collect();
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

    /// Pieces of an end's stream, each of one owner on the other side. Elements without an owner belong to the piece
    /// before them.
    fn cut(
        &self,
        stage: &FlatStage<'p>,
        is_fill: bool,
        end: usize,
        walk: &PatternWalk,
        owners: &Owners,
    ) -> Result<u64, RuleFinding> {
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
            let n = stretches
                .iter()
                .filter(|s| s.owner == stretch.owner)
                .count();
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
                let finding = RuleFinding::new(Rule::StagePieces, message);
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
    fn may_count(
        &mut self,
        stage: &FlatStage<'p>,
        walks: &[Vec<PatternWalk>; 2],
    ) -> Result<bool, RuleFinding> {
        let flat = self.flat;
        let mut active = stage
            .drains
            .iter()
            .zip(&walks[1])
            .filter(|(_, w)| !w.is_empty());
        let (Some((drain, _)), None) = (active.next(), active.next()) else {
            return Ok(false);
        };
        let to = &flat.channels[drain.channel].to;
        let to_shim = to.iter().all(|port| matches!(port, Port::Shim { .. }));
        let n_points = flat.launch.n_grid_points().unwrap_or(u64::MAX);
        let ordered = n_points == 1 || flat.launch.order == GridOrder::Sequential;
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

fn interleaved(is_fill: bool, own: &str, other: &str, n: usize) -> RuleFinding {
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
    RuleFinding::new(Rule::StagePieces, message).fix(fix)
}

/// Part of an end's stream.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    owner: usize,
    start: u64,
    len: u64,
}

/// The end of one side that each element of a block belongs to.
struct Owners(Vec<Option<u16>>);

impl Owners {
    fn new(n: u64) -> Owners {
        Owners(vec![None; usize::try_from(n).unwrap_or(0)])
    }

    /// Assigns the walk's elements to an end. If an element had an owner already, returns that owner and the element.
    fn mark(&mut self, walk: &PatternWalk, end: usize) -> Option<(usize, u64)> {
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
    fn along(&self, walk: &PatternWalk) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let (mut at, mut unowned) = (0, 0);
        for (start, len) in walk.runs() {
            let run = self.0.get(start as usize..(start + len) as usize);
            for same in run.unwrap_or_default().chunk_by(|a, b| a == b) {
                let len = same.len() as u64;
                match (same[0], stretches.last_mut()) {
                    (None, None) => unowned += len,
                    (None, Some(last)) => last.len += len,
                    (Some(owner), Some(last)) if last.owner == usize::from(owner) => {
                        last.len += len
                    }
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
fn part(walk: &PatternWalk, start: u64, len: u64) -> Option<PatternWalk> {
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
            return Some(PatternWalk { offset, dims });
        }
        // Within one step of this dimension, or nowhere.
        offset += i64::try_from(first).ok()? * stride;
        start = rest;
        if rest + len > inner {
            return None;
        }
    }
    (len == 1).then_some(PatternWalk {
        offset,
        dims: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(dims: &[(i64, i64)]) -> PatternWalk {
        PatternWalk {
            offset: 100,
            dims: dims.to_vec(),
        }
    }

    #[test]
    fn parts_of_a_walk_are_whole_steps_of_a_dimension() {
        let rows = walk(&[(4, 64), (8, 1)]);
        let at = |offset, dims: &[(i64, i64)]| {
            Some(PatternWalk {
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
        let elements = |walk: &PatternWalk| -> Vec<i64> {
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
    fn what_nobody_owns_goes_with_its_neighbour() {
        let mut owners = Owners::new(12);
        let linear = |offset, n| PatternWalk {
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
