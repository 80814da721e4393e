//! Chooses a device of a text, and one of its sequences.

use super::Design;
use super::build::is_sequence;
use crate::syntax::{Location, Op, Region, SyntaxError};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a text to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// The device's name, or its number from 1 on in the order of the text. Otherwise it is the one that has a
    /// sequence.
    pub device: Option<String>,
    /// The sequence's name; else the only one.
    pub sequence: Option<String>,
    /// Whether the sequence waits for a place before a task that may find its channel's queue full, as mlir-aie's
    /// passes have it do since September 2026.
    pub queue_waits: bool,
    /// Numbers that a host gives in addition to memory, by their names: arguments of the sequence, words of the
    /// scratchpad.
    pub numbers: BTreeMap<String, HostNumber>,
}

/// A number that a host gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostNumber {
    /// A whole one.
    Whole(i64),
    /// One with a point.
    Point(f64),
}

impl HostNumber {
    /// Its value as a whole number, if it is one.
    pub(crate) fn whole(self) -> Option<i64> {
        match self {
            HostNumber::Whole(value) => Some(value),
            HostNumber::Point(_) => None,
        }
    }
}

/// A device that is to be read.
pub(super) struct ChosenDevice<'o> {
    pub(super) device: &'o Op,
    /// Functions, globals and parameters of its module.
    pub(super) outside: Vec<&'o Op>,
    /// Names of devices of the text that have nothing.
    pub(super) empty: Vec<String>,
    /// A later device that has its routes and no sequence.
    pub(super) routed: Option<&'o Op>,
    pub(super) notes: Vec<String>,
}

struct FoundDevice<'o> {
    op: &'o Op,
    outside: Vec<&'o Op>,
}

impl FoundDevice<'_> {
    fn name(&self) -> &str {
        // mlir-aie's name for a device without one.
        self.op.text("sym_name").unwrap_or("main")
    }

    fn has(&self, is: impl Fn(&Op) -> bool) -> bool {
        self.op.regions.iter().flat_map(Region::ops).any(is)
    }

    /// Whether it consists of routes and tiles, which a router writes after the design that it was given.
    fn is_routes_of(&self, other: &FoundDevice<'_>) -> bool {
        let device = |of: &FoundDevice<'_>| of.op.text("device").map(str::to_owned).ok();
        self.has(|op| op.name == "aie.switchbox")
            && !self.has(is_sequence)
            && device(self) == device(other)
    }
}

/// Selects the device.
pub(super) fn device<'o>(
    ops: &'o [Op],
    options: &ReadOptions,
) -> Result<ChosenDevice<'o>, SyntaxError> {
    let mut all = Vec::new();
    find(ops, &[], &mut all)?;
    let number = chosen(ops, &all, options)?;
    let (device, rest) = (&all[number], &all[number + 1..]);
    let routed = rest.first().filter(|next| next.is_routes_of(device));
    let mut notes = Vec::new();
    if let Some(routed) = routed {
        let line = routed.op.at.line;
        notes.push(format!("its routes are those of the device in line {line}"));
    }
    let n_others = all.len() - 1 - usize::from(routed.is_some());
    if n_others > 0 {
        let name = device.name();
        notes.push(format!(
            "of {} devices of the text @{name} (line {}) is taken",
            all.len(),
            device.op.at.line
        ));
    }
    Ok(ChosenDevice {
        device: device.op,
        outside: device.outside.clone(),
        empty: all
            .iter()
            .filter(|of| !of.has(|op| op.name != "aie.end"))
            .map(|of| of.name().to_owned())
            .collect(),
        routed: routed.map(|routed| routed.op),
        notes,
    })
}

/// All devices, each with the functions and globals around it.
fn find<'o>(
    ops: &'o [Op],
    outside: &[&'o Op],
    found: &mut Vec<FoundDevice<'o>>,
) -> Result<(), SyntaxError> {
    let mut around = outside.to_vec();
    let is_outside = |op: &&Op| {
        let name = op.name.as_str();
        matches!(
            name,
            "func.func" | "memref.global" | "aiex.scratchpad_parameter"
        )
    };
    around.extend(ops.iter().filter(is_outside));
    for op in ops {
        match op.name.as_str() {
            "module" | "builtin.module" => {
                for block in &op.region(0)?.blocks {
                    find(&block.ops, &around, found)?;
                }
            }
            "aie.device" => found.push(FoundDevice {
                op,
                outside: around.clone(),
            }),
            _ if is_outside(&op) => {}
            _ => return Err(op.error("it does not stand in a device")),
        }
    }
    Ok(())
}

/// Devices with a sequence that no other's loads.
fn roots(all: &[FoundDevice<'_>]) -> Vec<usize> {
    let loaded: Vec<(usize, &str)> = (all.iter().enumerate())
        .flat_map(|(i, of)| loaded_by(of.op).into_iter().map(move |name| (i, name)))
        .collect();
    let is_root = |i: &usize| {
        let mut loaded = loaded.iter();
        all[*i].has(is_sequence) && !loaded.any(|&(by, name)| by != *i && name == all[*i].name())
    };
    (0..all.len()).filter(is_root).collect()
}

/// Devices that the ops within one load.
fn loaded_by(op: &Op) -> Vec<&str> {
    let inner = op.regions.iter().flat_map(Region::ops);
    let own = (op.name == "aiex.configure")
        .then(|| op.text("symbol").ok())
        .flatten();
    own.into_iter().chain(inner.flat_map(loaded_by)).collect()
}

/// All choices that options leave open: each device that has a sequence, and each sequence.
pub(super) fn choices(ops: &[Op], options: &ReadOptions) -> Result<Vec<ReadOptions>, SyntaxError> {
    let mut all = Vec::new();
    find(ops, &[], &mut all)?;
    let devices = match (&options.device, roots(&all)) {
        (None, roots) if roots.len() > 1 => roots,
        _ => vec![chosen(ops, &all, options)?],
    };
    let mut choices = Vec::new();
    for &i in &devices {
        let body = all[i].op.region(0)?.ops();
        let sequences: Vec<&Op> = body.filter(|op| is_sequence(op)).collect();
        let device = match devices.len() {
            1 => options.device.clone(),
            // Names may be equal; numbers are not.
            _ => Some((i + 1).to_string()),
        };
        let names: Vec<Option<String>> = match (&options.sequence, &sequences[..]) {
            (None, [_, _, ..]) => sequences.iter().map(|op| Some(name_of(op))).collect(),
            (given, _) => vec![given.clone()],
        };
        choices.extend(names.into_iter().map(|sequence| ReadOptions {
            device: device.clone(),
            sequence,
            queue_waits: options.queue_waits,
            numbers: options.numbers.clone(),
        }));
    }
    Ok(choices)
}

fn name_of(sequence: &Op) -> String {
    sequence.text("sym_name").unwrap_or("sequence").to_owned()
}

/// The number of the selected device.
fn chosen(
    ops: &[Op],
    all: &[FoundDevice<'_>],
    options: &ReadOptions,
) -> Result<usize, SyntaxError> {
    let names = || {
        let name = |(i, of): (usize, &FoundDevice<'_>)| {
            format!("{} @{} in line {}", i + 1, of.name(), of.op.at.line)
        };
        let names: Vec<String> = all.iter().enumerate().map(name).collect();
        names.join(", ")
    };
    if all.is_empty() {
        let at = ops.first().map(|op| op.at).unwrap_or_default();
        return Err(SyntaxError::new(at, "the text has no `aie.device`"));
    }
    if let Some(name) = &options.device {
        let plain = name.trim_start_matches('@');
        let number = plain.parse().ok().and_then(|n: usize| n.checked_sub(1));
        let mut named = (0..all.len()).filter(|&i| all[i].name() == plain);
        return match (named.next(), named.next(), number) {
            (Some(one), None, _) => Ok(one),
            (None, _, Some(number)) if number < all.len() => Ok(number),
            (Some(_), Some(_), _) => Err(all[0].op.error(format!(
                "several devices are called @{plain}: {}; --device-name takes a number as well",
                names()
            ))),
            _ => {
                let problem = format!("there is no device @{plain}; there are {}", names());
                Err(all[0].op.error(problem))
            }
        };
    }
    if all.len() == 1 {
        return Ok(0);
    }
    let with_sequence = roots(all);
    match with_sequence[..] {
        [one] => Ok(one),
        // A design without a sequence, and its routes.
        [] if all.len() == 2 && all[1].is_routes_of(&all[0]) => Ok(0),
        _ => {
            let n = with_sequence.len();
            Err(all[0].op.error(format!(
                "{n} of {} devices have a sequence: say which is meant by --device-name ({})",
                all.len(),
                names()
            )))
        }
    }
}

/// The selected sequence; `None` if there is none.
pub(super) fn sequence<'o>(
    body: &[&'o Op],
    options: &ReadOptions,
) -> Result<Option<&'o Op>, SyntaxError> {
    let all: Vec<&Op> = body.iter().copied().filter(|op| is_sequence(op)).collect();
    let name = name_of;
    let names = || {
        let names: Vec<String> = all.iter().map(|op| format!("@{}", name(op))).collect();
        names.join(", ")
    };
    match (&options.sequence, &all[..]) {
        (None, []) => Ok(None),
        (None, [one]) => Ok(Some(one)),
        (None, [_, second, ..]) => Err(second.error(format!(
            "{} sequences: say which is to run by --sequence ({})",
            all.len(),
            names()
        ))),
        (Some(wanted), _) => {
            let plain = wanted.trim_start_matches('@');
            let found = all.iter().copied().find(|op| name(op) == plain);
            let at = body.first().map(|op| op.at).unwrap_or_default();
            found.map(Some).ok_or_else(|| {
                let there = match all.is_empty() {
                    true => "the device has none".to_owned(),
                    false => format!("there are {}", names()),
                };
                SyntaxError::new(at, format!("there is no sequence @{plain}; {there}"))
            })
        }
    }
}

/// Refuses a number that none of the designs takes, with the names of those that they do.
pub(super) fn numbers_are_taken<'d>(
    designs: impl IntoIterator<Item = &'d Design>,
    options: &ReadOptions,
) -> Result<(), SyntaxError> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut words: BTreeSet<&str> = BTreeSet::new();
    for design in designs {
        let stages = design.stages.iter().map(|stage| &stage.design);
        for design in std::iter::once(design).chain(stages) {
            names.extend(design.numbers.keys().map(String::as_str));
            for (i, word) in design.scratchpad.iter().enumerate() {
                let is_plain = word.name == format!("scratchpad{i}");
                let of = if is_plain { &mut words } else { &mut names };
                of.insert(&word.name);
            }
        }
    }
    let is_known = |name: &&String| names.contains(name.as_str()) || words.contains(name.as_str());
    let Some(unknown) = options.numbers.keys().find(|name| !is_known(name)) else {
        return Ok(());
    };
    let names: Vec<&str> = names.into_iter().collect();
    let there = match names.is_empty() {
        true => "the design takes none by name".to_owned(),
        false => format!("the design takes {}", names.join(", ")),
    };
    let problem = format!(
        "--number {unknown}: no number has that name; {there}, and words of the scratchpad as scratchpad0 to scratchpad31 where no parameter has them"
    );
    Err(SyntaxError::new(Location::default(), problem))
}
