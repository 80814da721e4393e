//! The blocks of a stage as pieces: the part that one fill brings one drain.

use super::NoWords;
use super::walk::{self, WalkFields};
use millrace_xdna2_machine::program::{
    Affine, Env, Flat, FlatEnd, FlatStage, GridOrder, PatternWalk, Port, Var,
};
use millrace_xdna2_words::tile::TileKind;

/// A part of an end's stream, with the other end that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The end of the other side.
    pub(super) other: usize,
    /// The words.
    pub(super) walk: WalkFields,
}

/// Pieces between the fills and the drains of a stage.
#[derive(Clone, Debug)]
pub(super) struct StagePieces {
    /// By fill, in the order of its stream.
    pub(super) fills: Vec<Vec<Piece>>,
    /// By drain.
    pub(super) drains: Vec<Vec<Piece>>,
    /// One pair of locks counts all fills; one drain takes as many as there are fills.
    pub(super) is_counted: bool,
}

fn varies(end: &FlatEnd<'_>) -> bool {
    let grid = |a: &Affine| a.terms.iter().any(|(var, _)| matches!(var, Var::Grid(_)));
    let pattern = &end.decl.pattern;
    grid(&pattern.offset) || pattern.dims.iter().any(|(size, _)| grid(size))
}

/// The pieces of a stage.
pub(super) fn pieces(flat: &Flat<'_>, id: usize) -> Result<StagePieces, NoWords> {
    let stage = &flat.stages[id];
    let name = flat.stage_name(id);
    let fail = |problem: String| Err(NoWords::new(format!("stage {name}"), problem));
    if stage.fills.iter().chain(&stage.drains).any(varies) {
        return fail("no words yet for patterns that vary over the grid".to_owned());
    }
    let walks = |ends: &[FlatEnd<'_>]| -> Vec<PatternWalk> {
        let walk = |end: &FlatEnd<'_>| {
            end.decl.pattern.walk(&Env {
                index: &stage.index,
                each: end.each,
                ..Env::default()
            })
        };
        ends.iter().map(walk).collect()
    };
    let (fills, drains) = (walks(&stage.fills), walks(&stage.drains));
    if fills.iter().chain(&drains).any(PatternWalk::is_empty) {
        return fail("no words for an end that moves nothing".to_owned());
    }
    let size = stage.decl.element.size_bytes();
    let of_walk = |walk: &PatternWalk| {
        walk::fields(walk, size, TileKind::Memory)
            .map_err(|problem| NoWords::new(format!("stage {name}"), problem))
    };
    let whole = |walk: &PatternWalk| -> Result<Vec<Piece>, NoWords> {
        let walk = of_walk(walk)?;
        Ok(vec![Piece { other: 0, walk }])
    };
    if fills.len() == 1 && drains.len() == 1 {
        return Ok(StagePieces {
            fills: vec![whole(&fills[0])?],
            drains: vec![whole(&drains[0])?],
            is_counted: false,
        });
    }
    let n = stage.decl.block_elements() as usize;
    let of = |ends: Vec<Vec<(usize, PatternWalk)>>| -> Result<Vec<Vec<Piece>>, NoWords> {
        let piece = |(other, walk): &(usize, PatternWalk)| {
            let walk = of_walk(walk)?;
            Ok(Piece {
                other: *other,
                walk,
            })
        };
        ends.iter()
            .map(|parts| parts.iter().map(piece).collect())
            .collect()
    };
    let (writer, reader) = (owners(n, &fills), owners(n, &drains));
    if let (Some(fills), Some(drains)) = (cut_all(&fills, &reader), cut_all(&drains, &writer)) {
        return Ok(StagePieces {
            fills: of(fills)?,
            drains: of(drains)?,
            is_counted: false,
        });
    }
    if !is_one_block_a_point(flat, stage) {
        return fail("fills and drains do not meet in stretches".to_owned());
    }
    let fills: Result<Vec<Vec<Piece>>, NoWords> = fills.iter().map(whole).collect();
    Ok(StagePieces {
        fills: fills?,
        drains: vec![whole(&drains[0])?],
        is_counted: true,
    })
}

/// The parts of each walk with their owners on the other side; `None` if a walk has an owner's part twice.
fn cut_all(
    walks: &[PatternWalk],
    owners: &[Option<usize>],
) -> Option<Vec<Vec<(usize, PatternWalk)>>> {
    let cut = |walk: &PatternWalk| -> Option<Vec<(usize, PatternWalk)>> {
        let stretches = along(walk, owners);
        let is_first = |(at, stretch): (usize, &(usize, u64, u64))| {
            stretches[..at].iter().all(|other| other.0 != stretch.0)
        };
        if stretches.is_empty() || !stretches.iter().enumerate().all(is_first) {
            return None;
        }
        match stretches[..] {
            [(owner, _, _)] => Some(vec![(owner, walk.clone())]),
            _ => (stretches.iter())
                .map(|&(owner, start, len)| Some((owner, part(walk, start, len)?)))
                .collect(),
        }
    };
    walks.iter().map(cut).collect()
}

/// Whether fills can be counted: one drain, to DDR, whose blocks come one a grid point. The verifier has checked that
/// no point brings more.
fn is_one_block_a_point(flat: &Flat<'_>, stage: &FlatStage<'_>) -> bool {
    let [drain] = &stage.drains[..] else {
        return false;
    };
    let to_shim = flat.channels[drain.channel]
        .to
        .iter()
        .all(|port| matches!(port, Port::Shim { .. }));
    let ordered =
        flat.launch.order == GridOrder::Sequential || flat.launch.n_grid_points() == Some(1);
    to_shim && ordered && drain.decl.repeat == 1
}

fn owners(n: usize, walks: &[PatternWalk]) -> Vec<Option<usize>> {
    let mut owners = vec![None; n];
    for (end, walk) in walks.iter().enumerate() {
        for (start, len) in walk.runs() {
            if let Some(run) = owners.get_mut(start as usize..(start + len) as usize) {
                run.fill(Some(end));
            }
        }
    }
    owners
}

/// Stretches of a walk's stream with one owner: owner, start, length. Elements without an owner join a neighbouring
/// stretch.
fn along(walk: &PatternWalk, owners: &[Option<usize>]) -> Vec<(usize, u64, u64)> {
    let mut stretches: Vec<(usize, u64, u64)> = Vec::new();
    let (mut at, mut unowned) = (0, 0);
    for (start, len) in walk.runs() {
        let run = owners
            .get(start as usize..(start + len) as usize)
            .unwrap_or_default();
        for same in run.chunk_by(|a, b| a == b) {
            let len = same.len() as u64;
            match (same[0], stretches.last_mut()) {
                (None, None) => unowned += len,
                (None, Some(last)) => last.2 += len,
                (Some(owner), Some(last)) if last.0 == owner => last.2 += len,
                (Some(owner), _) => {
                    stretches.push((owner, at - unowned, len + unowned));
                    unowned = 0;
                }
            }
            at += len;
        }
    }
    stretches
}

/// That part of a walk's stream as a walk of whole steps of one of its dimensions.
fn part(walk: &PatternWalk, start: u64, len: u64) -> Option<PatternWalk> {
    let walk = walk.canonical();
    let mut inner = walk.n_elements().unsigned_abs();
    let (mut offset, mut start) = (walk.offset, start);
    for (d, &(size, stride)) in walk.dims.iter().enumerate() {
        inner /= size.unsigned_abs().max(1);
        let (first, rest) = (start / inner, start % inner);
        offset += i64::try_from(first).ok()? * stride;
        if rest == 0 && len.is_multiple_of(inner) && first + len / inner <= size.unsigned_abs() {
            let mut dims = walk.dims[d..].to_vec();
            dims[0].0 = i64::try_from(len / inner).ok()?;
            return Some(PatternWalk { offset, dims });
        }
        start = rest;
        if rest + len > inner {
            return None;
        }
    }
    None
}
