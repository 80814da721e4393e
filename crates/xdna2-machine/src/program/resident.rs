//! Launches whose configurations are on the array side by side. It is configured once for all of them, and only shim
//! tasks and a few constants differ from one to the next.
//!
//! A launch that is `resident` shares the configuration of the one before it: they form a *group*, up to the first
//! launch that is not. Two launches of a group use the same cores, channels and stages if they differ only in the
//! constants that a core reads at run time (loop counts, values that it compares and passes on). All others need
//! separate cores, DMA channels, descriptors, locks and routes, side by side. [`union`] is the launch that has them
//! all. The verifier holds it to the machine's limits.

use super::{Herd, Launch, Op, Stage, StageEnd, Transfer};
use std::ops::Range;

/// The groups of a program's launches, in order.
pub fn groups(launches: &[Launch]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (at, launch) in launches.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if launch.resident => group.end = at + 1,
            _ => groups.push(at..at + 1),
        }
    }
    groups
}

/// For each launch of a group the first that has the same configuration.
pub fn representatives(group: &[Launch]) -> Vec<usize> {
    let plain: Vec<Launch> = group.iter().map(without_constants).collect();
    let first = |launch: &Launch| plain.iter().position(|other| other == launch).unwrap_or(0);
    plain.iter().map(first).collect()
}

/// The distinct configurations of a group as one launch. Its transfers are those of the first launch of each: they
/// define the shim channels, not the data that is moved.
pub fn union(group: &[Launch]) -> Launch {
    let mut all = Launch {
        name: group.first().map_or(String::new(), |l| l.name.clone()),
        ..Launch::default()
    };
    for (at, first) in representatives(group).into_iter().enumerate() {
        if at == first {
            add(&mut all, &group[at], at);
        }
    }
    all
}

fn add(all: &mut Launch, launch: &Launch, number: usize) {
    let base = all.channels.len();
    // The grid is needed only to give its points a meaning.
    let n_dims = all.grid.len().max(launch.grid.len());
    all.grid.resize(n_dims, 1);
    let name = |name: &str| format!("{name}.{number}");
    let ends = |ends: &[StageEnd]| -> Vec<StageEnd> {
        let moved = |end: &StageEnd| StageEnd {
            channel: base + end.channel,
            ..end.clone()
        };
        ends.iter().map(moved).collect()
    };
    all.channels
        .extend(launch.channels.iter().cloned().map(|mut channel| {
            channel.name = name(&channel.name);
            channel
        }));
    all.stages.extend(launch.stages.iter().map(|stage| Stage {
        name: name(&stage.name),
        fills: ends(&stage.fills),
        drains: ends(&stage.drains),
        ..stage.clone()
    }));
    all.transfers
        .extend(launch.transfers.iter().map(|t| Transfer {
            channel: base + t.channel,
            ..t.clone()
        }));
    let n_args = all.args.len();
    all.args.extend(&launch.args);
    let own = all.transfers.len() - launch.transfers.len();
    all.transfers[own..]
        .iter_mut()
        .for_each(|t| t.arg += n_args);
    all.herds.extend(launch.herds.iter().map(|herd| Herd {
        name: name(&herd.name),
        body: on_channels(&herd.body, base),
        ..herd.clone()
    }));
}

fn on_channels(body: &[Op], base: usize) -> Vec<Op> {
    let mut body = body.to_vec();
    each(&mut body, &mut |op| {
        if let Op::Get { channel, .. } | Op::New { channel, .. } = op {
            *channel += base;
        }
    });
    body
}

/// Calls `change` on every op, those within loops and branches too.
fn each(body: &mut [Op], change: &mut impl FnMut(&mut Op)) {
    for op in body {
        change(op);
        match op {
            Op::Loop { body, .. } => each(body, change),
            Op::If {
                then, otherwise, ..
            } => {
                each(then, change);
                each(otherwise, change);
            }
            _ => {}
        }
    }
}

/// The constants that a launch's cores read at run time, in the order of their programs: loop counts, values that they
/// compare, and scalars that they pass on.
pub fn parameters(launch: &Launch) -> Vec<i64> {
    let mut found = Vec::new();
    for herd in &launch.herds {
        each(&mut herd.body.clone(), &mut |op| {
            constants(op, &mut |c| found.push(*c));
        });
    }
    found
}

/// The same, but only those that the launch reads: none within a loop that it never runs.
pub fn read_parameters(launch: &Launch) -> Vec<Option<i64>> {
    let mut found = Vec::new();
    for herd in &launch.herds {
        read(&mut herd.body.clone(), true, &mut found);
    }
    found
}

fn read(body: &mut [Op], runs: bool, found: &mut Vec<Option<i64>>) {
    for op in body {
        constants(op, &mut |c| found.push(runs.then_some(*c)));
        match op {
            Op::Loop { count, body } => {
                let runs = runs && !(count.terms.is_empty() && count.constant == 0);
                read(body, runs, found);
            }
            Op::If {
                then, otherwise, ..
            } => {
                read(then, runs, found);
                read(otherwise, runs, found);
            }
            _ => {}
        }
    }
}

fn constants(op: &mut Op, see: &mut impl FnMut(&mut i64)) {
    match op {
        Op::Loop { count, .. } => see(&mut count.constant),
        Op::If { value, .. } => see(&mut value.constant),
        Op::Call { scalars, .. } => scalars.iter_mut().for_each(|s| see(&mut s.constant)),
        _ => {}
    }
}

/// The common part of two launches of one configuration.
fn without_constants(launch: &Launch) -> Launch {
    let mut plain = Launch {
        name: String::new(),
        args: Vec::new(),
        grid: Vec::new(),
        transfers: Vec::new(),
        resident: false,
        ..launch.clone()
    };
    for herd in &mut plain.herds {
        each(&mut herd.body, &mut |op| constants(op, &mut |c| *c = 0));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Affine, Condition};

    fn launch(name: &str, col: u32, n: i64) -> Launch {
        let body = vec![Op::Loop {
            count: Affine::new(n),
            body: vec![Op::If {
                value: Affine::new(n),
                condition: Condition::Negative,
                then: vec![Op::Free { block: 0 }],
                otherwise: Vec::new(),
            }],
        }];
        let herd = Herd {
            name: "cores".to_owned(),
            col,
            row: 0,
            cols: 1,
            rows: 1,
            locals: Vec::new(),
            body,
        };
        Launch {
            name: name.to_owned(),
            herds: vec![herd],
            resident: true,
            ..Launch::default()
        }
    }

    #[test]
    fn launches_of_one_configuration_count_once() {
        let launches = [launch("a", 0, 2), launch("b", 1, 2), launch("c", 0, 5)];
        assert_eq!(groups(&launches), vec![0..3]);
        assert_eq!(representatives(&launches), [0, 1, 0]);
        assert_eq!(union(&launches).herds.len(), 2);
        assert_eq!(parameters(&launches[2]), [5, 5]);
        assert_eq!(read_parameters(&launches[2]), [Some(5), Some(5)]);
        assert_eq!(read_parameters(&launch("d", 0, 0)), [Some(0), None]);
        let mut apart = launches.to_vec();
        apart[1].resident = false;
        assert_eq!(groups(&apart), [0..1, 1..3]);
    }
}
