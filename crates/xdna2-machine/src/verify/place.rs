//! Places: herds and columns within the array, kinds and directions of links.

use super::rule::{Findings, Rule, RuleFinding};
use crate::Machine;
use crate::program::flat::FlatDefect;
use crate::program::{ChannelLink, Flat, FlatError, Launch, Port};
use std::collections::BTreeMap;

/// Herds within the array; needs no expansion.
pub(super) fn herds(launch: &Launch, machine: &Machine, findings: &mut Findings) {
    for herd in &launch.herds {
        let sides = [
            ("columns", herd.col, herd.cols, machine.cols),
            ("rows", herd.row, herd.rows, machine.rows),
        ];
        for (what, first, len, limit) in sides {
            let end = u64::from(first) + u64::from(len);
            if end > u64::from(limit) {
                let message = format!("{what} {first} to {} of {limit}", end - 1);
                let fix = if len > limit {
                    format!("Use at most {limit} {what} and loop over the rest")
                } else {
                    format!("Begin at {} at most", limit - len)
                };
                let finding = RuleFinding::new(Rule::HerdOutside, message);
                let finding = finding.numbers(end, limit.into()).fix(fix);
                findings.add(&herd.name, format!("herd {}", herd.name), finding);
            }
        }
    }
}

/// A refusal of [`Flat::new`], as a rule.
pub(super) fn flat_error(error: &FlatError, findings: &mut Findings) {
    let (rule, fix) = match &error.problem {
        FlatDefect::CoreTaken { .. } => (Rule::HerdsOverlap, "Move one of the herds"),
        FlatDefect::NoCore { .. } => (
            Rule::NoCore,
            "Let the channel end where a herd is, or enlarge the herd",
        ),
        FlatDefect::Empty(_) => (Rule::ZeroSize, "Give it a size of at least 1"),
        FlatDefect::Copies(..) => (Rule::TooLarge, "Use fewer copies"),
        FlatDefect::Sources(_)
        | FlatDefect::Unused { .. }
        | FlatDefect::Shared(_)
        | FlatDefect::Column { .. }
        | FlatDefect::NotAtShim(_)
        | FlatDefect::NotAtMemory { .. }
        | FlatDefect::NotAtCore { .. }
        | FlatDefect::Ignored { .. } => (
            Rule::ChannelUse,
            "Give each end one transfer, stage end or core program that uses it",
        ),
        _ => (Rule::Malformed, ""),
    };
    findings.launch.clone_from(&error.launch);
    let finding = RuleFinding::new(rule, error.problem.to_string()).fix(fix);
    findings.add(&error.place, error.place.clone(), finding);
}

/// Columns, links and element types.
pub(super) fn check(flat: &Flat<'_>, machine: &Machine, findings: &mut Findings) {
    links(flat, machine, findings);
    element_types(flat, findings);
}

/// Array coordinates of a core.
pub(super) fn at(flat: &Flat<'_>, core: usize) -> (u32, u32) {
    let core = &flat.cores[core];
    (core.col, core.row)
}

fn links(flat: &Flat<'_>, machine: &Machine, findings: &mut Findings) {
    let mut cascades: BTreeMap<(u32, u32, bool), u32> = BTreeMap::new();
    for (id, channel) in flat.channels.iter().enumerate() {
        let place = format!("channel {}", flat.channel_name(id));
        let family = &channel.decl.name;
        for port in std::iter::once(&channel.from).chain(&channel.to) {
            if let Port::Shim { col } | Port::Memory { col, .. } = *port
                && col >= machine.cols
            {
                let finding = RuleFinding::new(
                    Rule::ColumnOutside,
                    format!("column {col}, the array has {}", machine.cols),
                );
                let fix = format!("Use columns 0 to {}", machine.cols - 1);
                findings.add(
                    family,
                    &place,
                    finding
                        .numbers(col.into(), (machine.cols - 1).into())
                        .fix(fix),
                );
            }
        }
        if channel.decl.link == ChannelLink::Stream {
            continue;
        }
        let patterns = channel.decl.from_pattern.is_some() || channel.decl.to_pattern.is_some();
        let (Port::Core { core: from }, [Port::Core { core: to }], false) =
            (channel.from, &channel.to[..], patterns)
        else {
            let finding = RuleFinding::new(
                Rule::LinkEnds,
                "a cascade or shared L1 joins one core to one core, in block order",
            );
            findings.add(
                family,
                &place,
                finding.fix("Make it a stream, or give it two cores and no pattern"),
            );
            continue;
        };
        let (from, to) = (at(flat, from), at(flat, *to));
        if let Some(finding) = link_direction(channel.decl.link, from, to) {
            findings.add(family, &place, finding);
        }
        if channel.decl.link == ChannelLink::Cascade {
            for (end, sends) in [(from, true), (to, false)] {
                let count = cascades.entry((end.0, end.1, sends)).or_default();
                *count += 1;
                if *count == 2 {
                    let way = if sends { "out of" } else { "into" };
                    let message = format!("a second cascade {way} core ({}, {})", end.0, end.1);
                    let finding = RuleFinding::new(Rule::Cascade, message).numbers(2, 1);
                    findings.add(family, &place, finding.fix("Send the second by stream"));
                }
            }
        }
    }
}

/// Whether a cascade or shared L1 can join these two cores.
fn link_direction(link: ChannelLink, from: (u32, u32), to: (u32, u32)) -> Option<RuleFinding> {
    let (dx, dy) = (
        i64::from(to.0) - i64::from(from.0),
        i64::from(to.1) - i64::from(from.1),
    );
    let words = format!(
        "from core ({}, {}) to core ({}, {})",
        from.0, from.1, to.0, to.1
    );
    match link {
        ChannelLink::Stream => None,
        // Row 0 is the southernmost.
        ChannelLink::Cascade if matches!((dx, dy), (1, 0) | (0, -1)) => None,
        ChannelLink::Neighbour if dx.abs() + dy.abs() == 1 => None,
        ChannelLink::Cascade => Some(
            RuleFinding::new(Rule::Cascade, format!("a cascade {words}"))
                .fix("Cascade to the next lower row or the next higher column, or use a stream"),
        ),
        ChannelLink::Neighbour => Some(
            RuleFinding::new(
                Rule::Neighbour,
                format!("shared L1 {words}, which are not adjacent"),
            )
            .fix("Place the two cores side by side, or use a stream"),
        ),
    }
}

fn element_types(flat: &Flat<'_>, findings: &mut Findings) {
    for stage in &flat.stages {
        let name = &stage.decl.name;
        if stage.fills.is_empty() || stage.drains.is_empty() {
            let what = if stage.fills.is_empty() {
                "fills"
            } else {
                "drains"
            };
            let finding = RuleFinding::new(Rule::StageEnds, format!("nothing {what} it"));
            findings.add(
                name,
                format!("stage {name}"),
                finding.fix("Add the end or remove the stage"),
            );
        }
        for end in stage.fills.iter().chain(&stage.drains) {
            let channel = flat.channels[end.channel].decl;
            if channel.element != stage.decl.element {
                let message = format!(
                    "the stage holds {}, channel {} carries {}",
                    stage.decl.element, channel.name, channel.element
                );
                let finding = RuleFinding::new(Rule::ElementType, message);
                findings.add(
                    name,
                    format!("stage {name}"),
                    finding.fix("Use one type; a core converts"),
                );
            }
        }
    }
}
