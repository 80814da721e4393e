//! Bounds that keep the work of everything after them small for every program: counts, nesting,
//! sizes, and the values that expressions can take. Runs before a program is expanded.

mod ops;

use super::rule::{Findings, Rule, RuleFinding, group};
use crate::program::{
    Affine, Channel, Herd, IndexRange, Launch, Pattern, Place, Program, Stage, Var,
};

/// Declarations of one kind.
const MAX_DECLARATIONS: usize = 4096;
/// Dimensions of a shape, bundle, grid, pattern or loop nest; operands and scalars of a call.
const MAX_RANK: usize = 32;
/// Copies in all bundles of a launch together, each weighed with its users.
const MAX_COPIES: u64 = 1 << 14;
/// Steps of all core programs of a launch times its channels.
const MAX_STEPS_TIMES_CHANNELS: u64 = 1 << 27;
/// Bytes of a name.
const MAX_NAME: usize = 200;
/// Elements, offsets, strides, counts.
pub(super) const MAX_VALUE: i128 = 1 << 48;
/// Grid points of a launch.
const MAX_POINTS: u64 = 1 << 24;

/// Refuses counts and sizes that are too large to examine, and sizes of zero.
pub(super) fn check(program: &Program, findings: &mut Findings) {
    let counts = [program.slots.len(), program.launches.len()];
    if counts.iter().any(|&n| n > MAX_DECLARATIONS) || program.name.len() > MAX_NAME {
        findings.add(
            "program",
            "program",
            large("slots or launches", MAX_DECLARATIONS),
        );
        return;
    }
    for slot in &program.slots {
        let place = format!("slot {}", name(&slot.name));
        if slot.name.len() > MAX_NAME || slot.shape.len() > MAX_RANK {
            findings.add(
                "slots",
                place,
                large("dimensions or bytes of a name", MAX_RANK),
            );
        } else if slot.shape.contains(&0) {
            findings.add(&slot.name, place, zero("a dimension of the slot"));
        } else if slot.size_bytes().is_none_or(|b| i128::from(b) > MAX_VALUE) {
            findings.add(&slot.name, place, overflow("the slot's size"));
        }
    }
    for launch in &program.launches {
        findings.launch = name(&launch.name).to_owned();
        check_launch(launch, findings);
    }
    findings.launch.clear();
}

fn large(what: &str, limit: usize) -> RuleFinding {
    RuleFinding::new(Rule::TooLarge, format!("more than {limit} {what}"))
        .fix("Split the program into launches or loops")
}

fn zero(what: &str) -> RuleFinding {
    RuleFinding::new(Rule::ZeroSize, format!("{what} is 0")).fix("Give it a size of at least 1")
}

fn overflow(what: &str) -> RuleFinding {
    RuleFinding::new(Rule::Overflow, format!("{what} reaches beyond 2^48"))
        .fix("Make its factors or ranges smaller")
}

/// A name cut to the length of a message.
fn name(name: &str) -> &str {
    let end = name.char_indices().nth(64).map_or(name.len(), |(at, _)| at);
    &name[..end]
}

fn check_launch(launch: &Launch, findings: &mut Findings) {
    let counts = [
        launch.args.len(),
        launch.channels.len(),
        launch.stages.len(),
        launch.transfers.len(),
        launch.herds.len(),
    ];
    if counts.iter().any(|&n| n > MAX_DECLARATIONS) || launch.grid.len() > MAX_RANK {
        findings.add(
            "launch",
            "launch",
            large("declarations of a kind", MAX_DECLARATIONS),
        );
        return;
    }
    if launch.grid.contains(&0) {
        findings.add("grid", "grid", zero("a dimension of the grid"));
        return;
    }
    if launch.n_grid_points().is_none_or(|n| n > MAX_POINTS) {
        findings.add("grid", "grid", large("grid points", MAX_POINTS as usize));
        return;
    }
    let before = findings.list.len();
    launch
        .channels
        .iter()
        .for_each(|c| check_channel(c, launch, findings));
    launch
        .stages
        .iter()
        .for_each(|s| check_stage(s, launch, findings));
    check_transfers(launch, findings);
    launch
        .herds
        .iter()
        .for_each(|h| ops::check_herd(h, launch, findings));
    if findings.list.len() == before {
        check_copies(launch, findings);
    }
}

/// Whether dims are few, not zero, and their product small; reports otherwise.
fn dims_ok(dims: &[u32], what: &str, family: &str, place: &str, findings: &mut Findings) -> bool {
    let product = || {
        dims.iter()
            .try_fold(1u64, |n, &d| n.checked_mul(u64::from(d)))
    };
    let finding = if dims.len() > MAX_RANK {
        large(&format!("dimensions of {what}"), MAX_RANK)
    } else if dims.contains(&0) {
        zero(&format!("a dimension of {what}"))
    } else if product().is_none_or(|n| i128::from(n) > MAX_VALUE / 8) {
        overflow(&format!("the size of {what}"))
    } else {
        return true;
    };
    findings.add(family, place, finding);
    false
}

fn name_ok(text: &str, family: &str, findings: &mut Findings) -> bool {
    if text.len() > MAX_NAME {
        let place = format!("{family} {}", name(text));
        findings.add(family, place, large("bytes of a name", MAX_NAME));
    }
    text.len() <= MAX_NAME
}

/// Ranges of variables.
#[derive(Clone, Default)]
struct Ranges<'a> {
    grid: &'a [u32],
    index: &'a [u32],
    each: u32,
    herd: [u32; 2],
    loops: Vec<i128>,
}

impl Ranges<'_> {
    /// Smallest and largest value; beyond [`MAX_VALUE`] they are not exact.
    fn of(&self, affine: &Affine) -> (i128, i128) {
        let (mut low, mut high) = (i128::from(affine.constant), i128::from(affine.constant));
        for &(var, factor) in &affine.terms {
            let last = |n: Option<&u32>| n.map_or(0, |&n| i128::from(n) - 1);
            let max = match var {
                Var::Grid(d) => last(self.grid.get(usize::from(d))),
                Var::Index(d) => last(self.index.get(usize::from(d))),
                Var::Each => last(Some(&self.each)),
                Var::X => last(Some(&self.herd[0])),
                Var::Y => last(Some(&self.herd[1])),
                Var::Loop(d) => self.loops.get(usize::from(d)).map_or(0, |n| n - 1),
            };
            let reach = i128::from(factor) * max.max(0);
            low += reach.min(0);
            high += reach.max(0);
        }
        (low, high)
    }

    fn ok(&self, affine: &Affine) -> bool {
        let (low, high) = self.of(affine);
        affine.terms.len() <= MAX_RANK && low >= -MAX_VALUE && high <= MAX_VALUE
    }

    fn pattern_ok(&self, pattern: &Pattern) -> bool {
        let reach: i128 = (pattern.dims.iter())
            .map(|(size, stride)| self.of(size).1.max(0) * i128::from(*stride).abs())
            .fold(0, i128::saturating_add);
        let product = (pattern.dims.iter())
            .map(|(size, _)| self.of(size).1.max(1))
            .fold(1, i128::saturating_mul);
        self.ok(&pattern.offset)
            && pattern.dims.iter().all(|(size, _)| self.ok(size))
            && reach <= MAX_VALUE
            && product <= MAX_VALUE
    }

    fn place_ok(&self, place: &Place) -> bool {
        let span = |s: &IndexRange| match s {
            IndexRange::At(at) => self.ok(at),
            IndexRange::Range { .. } => true,
        };
        match place {
            Place::Shim(col) | Place::Memory(col) => self.ok(col),
            Place::Core { col, row } => span(col) && span(row),
        }
    }
}

fn check_channel(channel: &Channel, launch: &Launch, findings: &mut Findings) {
    if !name_ok(&channel.name, "channel", findings) {
        return;
    }
    let place = format!("channel {}", channel.name);
    let family = place.clone();
    if !dims_ok(&channel.dims, "the bundle", &family, &place, findings)
        || !dims_ok(&channel.block, "the block", &family, &place, findings)
    {
        return;
    }
    if channel.depth == 0 {
        findings.add(&family, &place, zero("the depth"));
    }
    let ranges = Ranges {
        grid: &launch.grid,
        index: &channel.dims,
        ..Ranges::default()
    };
    let patterns = [&channel.from_pattern, &channel.to_pattern];
    let patterns = patterns.into_iter().flatten().collect::<Vec<_>>();
    if patterns.iter().any(|p| p.dims.len() > MAX_RANK) {
        findings.add(&family, &place, large("dimensions of a pattern", MAX_RANK));
    } else if !patterns.iter().all(|p| ranges.pattern_ok(p))
        || !ranges.place_ok(&channel.from)
        || !ranges.place_ok(&channel.to)
    {
        findings.add(&family, &place, overflow("a pattern or place"));
    }
}

fn check_stage(stage: &Stage, launch: &Launch, findings: &mut Findings) {
    if !name_ok(&stage.name, "stage", findings) {
        return;
    }
    let place = format!("stage {}", stage.name);
    let family = place.clone();
    if !dims_ok(&stage.dims, "the bundle", &family, &place, findings)
        || !dims_ok(&stage.block, "the block", &family, &place, findings)
    {
        return;
    }
    let ends = stage.fills.iter().chain(&stage.drains);
    if stage.fills.len() + stage.drains.len() > MAX_RANK * 4
        || ends
            .clone()
            .any(|e| e.pattern.dims.len() > MAX_RANK || e.index.len() > MAX_RANK)
    {
        findings.add(
            &family,
            &place,
            large("ends, or dimensions of one", MAX_RANK * 4),
        );
        return;
    }
    if stage.copies == 0 || ends.clone().any(|e| e.each == 0 || e.repeat == 0) {
        findings.add(
            &family,
            &place,
            zero("`copies`, or `each` or `repeat` of an end,"),
        );
    }
    let ranges = |each| Ranges {
        grid: &launch.grid,
        index: &stage.dims,
        each,
        ..Ranges::default()
    };
    let end_ok = |end: &crate::program::StageEnd| {
        let ranges = ranges(end.each);
        end.index.iter().all(|i| ranges.ok(i)) && ranges.pattern_ok(&end.pattern)
    };
    if !ranges(1).ok(&stage.col) || !ends.clone().all(end_ok) {
        findings.add(&family, &place, overflow("an index or a pattern"));
    }
}

fn check_transfers(launch: &Launch, findings: &mut Findings) {
    for (number, transfer) in launch.transfers.iter().enumerate() {
        let place = format!("transfer {number}");
        let ranks = [
            transfer.loops.len(),
            transfer.index.len(),
            transfer.pattern.dims.len(),
        ];
        if ranks.iter().any(|&n| n > MAX_RANK) {
            findings.add(&place, &place, large("loops or dimensions", MAX_RANK));
            continue;
        }
        if !dims_ok(&transfer.dims, "the bundle", &place, &place, findings) {
            continue;
        }
        let mut ranges = Ranges {
            grid: &launch.grid,
            index: &transfer.dims,
            ..Ranges::default()
        };
        let mut ok = transfer.index.iter().all(|i| ranges.ok(i));
        for count in &transfer.loops {
            ok &= ranges.ok(count);
            let most = ranges.of(count).1.clamp(0, MAX_VALUE);
            ranges.loops.push(most);
        }
        if !ok || !ranges.pattern_ok(&transfer.pattern) {
            findings.add(&place, &place, overflow("an index, a loop or the pattern"));
        }
    }
}

/// Refuses bundles and bodies whose expansion would be large.
fn check_copies(launch: &Launch, findings: &mut Findings) {
    let product = |dims: &[u32]| {
        let times = |n: u64, &d: &u32| n.saturating_mul(u64::from(d));
        dims.iter().fold(1, times)
    };
    let channels = (launch.channels.iter())
        .map(|c| product(&c.dims))
        .fold(0, u64::saturating_add);
    let ends = |s: &Stage| -> u64 {
        let ends = s.fills.iter().chain(&s.drains);
        1 + ends.map(|e| u64::from(e.each)).sum::<u64>()
    };
    let stages = (launch.stages.iter())
        .map(|s| product(&s.dims).saturating_mul(ends(s)))
        .fold(0, u64::saturating_add);
    let transfers = (launch.transfers.iter())
        .map(|t| product(&t.dims))
        .fold(0, u64::saturating_add);
    let cores = |h: &Herd| u64::from(h.cols) * u64::from(h.rows);
    let n_cores = launch.herds.iter().map(cores).fold(0, u64::saturating_add);
    if [channels, stages, transfers, n_cores]
        .iter()
        .any(|&n| n > MAX_COPIES)
    {
        let finding = large(
            "channels, stage ends, transfers or cores",
            MAX_COPIES as usize,
        );
        findings.add("copies", "launch", finding);
        return;
    }
    let steps = (launch.herds.iter())
        .map(|h| cores(h) * ops::count_ops(&h.body))
        .fold(0, u64::saturating_add);
    if steps.saturating_mul(channels.max(1)) > MAX_STEPS_TIMES_CHANNELS {
        let finding = RuleFinding::new(
            Rule::TooLarge,
            format!(
                "{} steps in all core programs and {} channels",
                group(steps),
                group(channels)
            ),
        );
        findings.add(
            "copies",
            "launch",
            finding.fix("Write repeated steps as loops"),
        );
    }
}
