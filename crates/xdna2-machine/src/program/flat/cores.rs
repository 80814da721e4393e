//! Channels that a core's program uses, as far as known without running it.

use super::check::{FlatDefect, FlatError, fail};
use super::{Flat, FlatCore, Port};
use crate::program::{Affine, Condition, Op, Var};
use std::collections::HashSet;

/// Values an expression may take.
type Interval = (i64, i64);

/// Checks every core's program against the channels' ends: a channel that it certainly uses begins
/// or ends there, and each channel that begins or ends there may be used.
///
/// Indices that depend on loops or the grid are known as intervals only, and a branch that does is taken to go both
/// ways. The run of the program decides the rest.
pub(super) fn check_uses(flat: &Flat<'_>) -> Result<(), FlatError> {
    for core in &flat.cores {
        let mut uses = CoreUses {
            flat,
            core,
            loops: Vec::new(),
            certain: true,
            gets: HashSet::new(),
            news: HashSet::new(),
        };
        let place = format!("herd `{}`", core.decl.name);
        uses.ops(&core.decl.body)
            .and_then(|()| uses.finish())
            .or_else(|p| fail(flat.launch, &place, p))?;
    }
    Ok(())
}

struct CoreUses<'a, 'p> {
    flat: &'a Flat<'p>,
    core: &'a FlatCore<'p>,
    loops: Vec<Interval>,
    /// Whether the code at hand certainly runs.
    certain: bool,
    gets: HashSet<usize>,
    news: HashSet<usize>,
}

impl CoreUses<'_, '_> {
    fn interval(&self, affine: &Affine) -> Interval {
        let start = i128::from(affine.constant);
        let (mut low, mut high) = (start, start);
        for &(var, factor) in &affine.terms {
            let (a, b) = match var {
                Var::X => (i64::from(self.core.x), i64::from(self.core.x)),
                Var::Y => (i64::from(self.core.y), i64::from(self.core.y)),
                Var::Grid(d) => {
                    let size = self.flat.launch.grid.get(usize::from(d));
                    (0, size.map_or(0, |&n| i64::from(n) - 1))
                }
                Var::Loop(d) => self.loops.get(usize::from(d)).copied().unwrap_or((0, 0)),
                Var::Index(_) | Var::Each => (0, 0),
            };
            let (a, b) = (i128::from(a), i128::from(b));
            let factor = i128::from(factor);
            low += (a * factor).min(b * factor);
            high += (a * factor).max(b * factor);
        }
        let clamp = |v: i128| v.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        (clamp(low), clamp(high))
    }

    fn ops(&mut self, ops: &[Op]) -> Result<(), FlatDefect> {
        ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), FlatDefect> {
        match op {
            Op::Loop { count, body } => {
                let (low, high) = self.interval(count);
                if high <= 0 {
                    return Ok(());
                }
                let before = self.certain;
                self.certain &= low > 0;
                self.loops.push((0, high - 1));
                let result = self.ops(body);
                self.loops.pop();
                self.certain = before;
                result
            }
            Op::If {
                value,
                condition,
                then,
                otherwise,
            } => match decide(*condition, self.interval(value)) {
                Some(true) => self.ops(then),
                Some(false) => self.ops(otherwise),
                None => {
                    let before = std::mem::replace(&mut self.certain, false);
                    let result = self.ops(then).and_then(|()| self.ops(otherwise));
                    self.certain = before;
                    result
                }
            },
            Op::Get { channel, index, .. } => self.access(*channel, index, false),
            Op::New { channel, index, .. } => self.access(*channel, index, true),
            Op::Free { .. } | Op::Put { .. } | Op::Call { .. } => Ok(()),
        }
    }

    fn access(&mut self, bundle: usize, index: &[Affine], sends: bool) -> Result<(), FlatDefect> {
        let intervals: Vec<Interval> = index.iter().map(|i| self.interval(i)).collect();
        let exact = intervals.iter().all(|(low, high)| low == high);
        let lows: Vec<i64> = intervals.iter().map(|i| i.0).collect();
        if exact && self.certain {
            let Some(id) = self.flat.channel_id(bundle, &lows) else {
                return Err(super::check::bad_index(self.flat.launch, bundle, &lows));
            };
            if !self.ends_here(id, sends) {
                return Err(FlatDefect::NotAtCore {
                    x: self.core.x,
                    y: self.core.y,
                    channel: self.flat.channel_name(id),
                    sends,
                });
            }
        }
        let ends = if sends {
            &self.core.outputs
        } else {
            &self.core.inputs
        };
        let inside = |&&id: &&usize| {
            let channel = &self.flat.channels[id];
            let at = channel.index.iter().map(|&i| i64::from(i));
            channel.bundle == bundle && at.zip(&intervals).all(|(i, r)| r.0 <= i && i <= r.1)
        };
        let ids: Vec<usize> = ends.iter().filter(inside).copied().collect();
        let used = if sends {
            &mut self.news
        } else {
            &mut self.gets
        };
        used.extend(ids);
        Ok(())
    }

    fn ends_here(&self, id: usize, sends: bool) -> bool {
        let here = |port: &Port| match *port {
            Port::Core { core } => std::ptr::eq(&self.flat.cores[core], self.core),
            _ => false,
        };
        let channel = &self.flat.channels[id];
        if sends {
            here(&channel.from)
        } else {
            channel.to.iter().any(here)
        }
    }

    fn finish(&self) -> Result<(), FlatDefect> {
        let sides = [
            (&self.core.inputs, &self.gets, false),
            (&self.core.outputs, &self.news, true),
        ];
        for (ends, used, sends) in sides {
            if let Some(&id) = ends.iter().find(|&id| !used.contains(id)) {
                return Err(FlatDefect::Ignored {
                    x: self.core.x,
                    y: self.core.y,
                    channel: self.flat.channel_name(id),
                    sends,
                });
            }
        }
        Ok(())
    }
}

/// Whether a condition holds for every value of an interval (`true`), for none (`false`), or for
/// some.
fn decide(condition: Condition, (low, high): Interval) -> Option<bool> {
    let zero = if low == 0 && high == 0 {
        Some(true)
    } else if low > 0 || high < 0 {
        Some(false)
    } else {
        None
    };
    let negative = if high < 0 {
        Some(true)
    } else if low >= 0 {
        Some(false)
    } else {
        None
    };
    match condition {
        Condition::Zero => zero,
        Condition::NotZero => zero.map(|z| !z),
        Condition::Negative => negative,
        Condition::NotNegative => negative.map(|n| !n),
    }
}
