//! Tasks of shims that are written while earlier work goes on.
//!
//! The compiler orders the stream of instructions of a dispatch. Two launches may share a loaded configuration
//! ([resident](crate::program::resident)). Then the command processor writes and pushes the second one's tasks while
//! the first works, when it would only wait. Their channels take up data when the cores do, and results are written
//! when there are any. If the second reads a slot that the dispatch itself writes, that task is pushed after the write.
//! The descriptors of both launches must fit at once.

use crate::program::{Flat, FlatError, GridOrder, Launch, Port, resident};
use crate::{Machine, Profile};
use std::collections::HashMap;

/// Tasks of a launch that are written while an earlier one works.
struct Ahead {
    /// That launch.
    behind: usize,
    /// Time to write them.
    ns: f64,
}

/// [`loads_ns`](super::loads_ns), less the writes that are hidden by the work of other launches of the dispatch, which takes `works_ns`.
///
/// # Errors
/// A launch that does not expand.
pub fn exposed_loads_ns(
    launches: &[Launch],
    works_ns: &[f64],
    (machine, profile): (&Machine, &Profile),
) -> Result<Vec<f64>, FlatError> {
    let mut loads_ns = super::loads_ns(launches, (machine, profile))?;
    for group in resident::groups(launches) {
        let first = group.start;
        let group = &launches[group];
        for (at, ahead) in ahead(group, machine, profile)?.into_iter().enumerate() {
            let Some(Ahead { behind, ns }) = ahead else {
                continue;
            };
            let work_ns = works_ns.get(first + behind).copied().unwrap_or(0.0);
            loads_ns[first + at] -= ns.min(work_ns);
        }
    }
    Ok(loads_ns)
}

fn ahead(
    group: &[Launch],
    machine: &Machine,
    profile: &Profile,
) -> Result<Vec<Option<Ahead>>, FlatError> {
    if group.len() < 2 {
        return Ok(vec![None]);
    }
    let same = resident::representatives(group);
    let tasks: Vec<Tasks> = group.iter().map(Tasks::of).collect::<Result<_, _>>()?;
    let written: Vec<usize> = tasks
        .iter()
        .flat_map(|t| t.writes.iter().copied())
        .collect();
    let of_launch = |at: usize| -> Option<Ahead> {
        let behind = (0..at).rev().find(|&other| same[other] == same[at])?;
        if group[at].order != GridOrder::Streamed {
            return None;
        }
        let fits = |(col, n): (&u32, &u32)| {
            let before = tasks[behind].of_shims.get(col).copied().unwrap_or(0);
            before + n <= machine.shim.bds
        };
        if !tasks[at].of_shims.iter().all(fits) {
            return None;
        }
        let waits = |slot: &&usize| written.contains(slot);
        let n_waiting = tasks[at].reads.iter().filter(waits).count();
        let n = tasks[at].of_shims.values().sum::<u32>() as usize - n_waiting;
        Some(Ahead {
            behind,
            ns: n as f64 * profile.dispatch.issue_ns,
        })
    };
    Ok((0..group.len()).map(of_launch).collect())
}

/// A launch's tasks.
struct Tasks {
    /// How many each shim has.
    of_shims: HashMap<u32, u32>,
    /// The slot that each one reads.
    reads: Vec<usize>,
    /// Slots that are written.
    writes: Vec<usize>,
}

impl Tasks {
    fn of(launch: &Launch) -> Result<Tasks, FlatError> {
        let flat = Flat::new(launch)?;
        let mut tasks = Tasks {
            of_shims: HashMap::new(),
            reads: Vec::new(),
            writes: Vec::new(),
        };
        for transfer in &flat.transfers {
            let channel = &flat.channels[transfer.channel];
            let ends = std::iter::once(&channel.from).chain(&channel.to);
            for end in ends {
                if let Port::Shim { col } = *end {
                    *tasks.of_shims.entry(col).or_default() += 1;
                }
            }
            let slot = launch.args.get(transfer.decl.arg).copied();
            match transfer.reads {
                true => tasks.reads.extend(slot),
                false => tasks.writes.extend(slot),
            }
        }
        Ok(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{
        Affine, Channel, ChannelLink, Herd, IndexRange, Op, Pattern, Place, Transfer,
    };
    use millrace_npu::Element;

    /// One core that `n` tasks bring a slot each. The last task's slot is the core's output.
    fn launch(n: usize, args: &[usize]) -> Launch {
        let core = || Place::Core {
            col: IndexRange::At(Affine::new(0)),
            row: IndexRange::At(Affine::new(0)),
        };
        let shim = || Place::Shim(Affine::new(0));
        let channel = |name: &str, from, to| Channel {
            name: name.to_owned(),
            dims: Vec::new(),
            element: Element::Bf16,
            block: vec![32],
            from,
            to,
            depth: 2,
            link: ChannelLink::Stream,
            from_pattern: None,
            to_pattern: None,
        };
        let transfer = |arg: usize, channel: usize| Transfer {
            dims: Vec::new(),
            loops: Vec::new(),
            arg,
            channel,
            index: Vec::new(),
            pattern: Pattern::new(Affine::new(0), &[(32, 1)]),
        };
        let mut transfers: Vec<Transfer> = (0..n).map(|arg| transfer(arg, 0)).collect();
        transfers.push(transfer(n, 1));
        Launch {
            name: "a".to_owned(),
            args: args.to_vec(),
            order: GridOrder::Streamed,
            channels: vec![channel("x", shim(), core()), channel("y", core(), shim())],
            transfers,
            herds: vec![Herd {
                name: "c".to_owned(),
                col: 0,
                row: 0,
                cols: 1,
                rows: 1,
                locals: Vec::new(),
                body: vec![
                    Op::Get {
                        channel: 0,
                        index: Vec::new(),
                        block: 0,
                    },
                    Op::Free { block: 0 },
                    Op::New {
                        channel: 1,
                        index: Vec::new(),
                        block: 1,
                    },
                    Op::Put { block: 1 },
                ],
            }],
            resident: true,
            ..Launch::default()
        }
    }

    #[test]
    fn what_need_not_wait_is_hidden_by_work() {
        let (machine, profile) = (
            Machine::npu2(),
            Profile::builtin(Profile::DEFAULT).expect("a profile"),
        );
        // The first writes slot 9 and the second reads it.
        let launches = [launch(2, &[0, 1, 9]), launch(3, &[9, 2, 3, 10])];
        let serial = super::super::loads_ns(&launches, (&machine, &profile)).expect("legal");
        let exposed = |works_ns: &[f64]| {
            let loads = exposed_loads_ns(&launches, works_ns, (&machine, &profile));
            loads.expect("legal")
        };
        let issue_ns = profile.dispatch.issue_ns;
        assert_eq!(serial[1], 4.0 * issue_ns);
        let hidden = |works_ns: f64| serial[1] - exposed(&[works_ns, 0.0])[1];
        assert!((hidden(1e6) - 3.0 * issue_ns).abs() < 1e-6);
        assert!((hidden(issue_ns) - issue_ns).abs() < 1e-6);
        assert_eq!(exposed(&[1e6, 1e6])[0], serial[0]);
        // Without descriptors for both, or another configuration: one after the other.
        let mut small = machine.clone();
        small.shim.bds = 6;
        let loads = exposed_loads_ns(&launches, &[1e6, 1e6], (&small, &profile)).expect("legal");
        assert_eq!(loads, serial);
        let mut apart = launches.to_vec();
        apart[1].resident = false;
        let serial = super::super::loads_ns(&apart, (&machine, &profile)).expect("legal");
        let loads = exposed_loads_ns(&apart, &[1e6, 1e6], (&machine, &profile)).expect("legal");
        assert_eq!(loads, serial);
    }
}
