//! Writes and reads: of stage blocks by fills and drains, of slots by transfers over the launches
//! of a program.
//!
//! A slot is examined in units: the largest number of elements that divides every offset, stride
//! and run of the transfers on it. Each unit remembers when it was last written.

use super::rule::{Findings, Rule, RuleFinding, group};
use super::tasks::each_task;
use crate::program::{
    Affine, Env, Flat, FlatEnd, FlatStage, FlatTransfer, GridOrder, Indices, Pattern, PatternWalk,
    Program, Var,
};
use millrace_npu::Role;

/// Most units of all slots that are examined. Slots beyond that are passed over, and the report lists them.
const MAX_UNITS: u64 = 1 << 25;
/// Units visited by all transfers of a program, and tasks.
const MAX_VISITS: u64 = 1 << 27;
/// Elements of stage blocks visited in a launch.
const MAX_STAGE_VISITS: u64 = 1 << 26;

/// Refuses overlapping fills, and drains of elements that no fill writes.
pub(super) fn stages(flat: &Flat<'_>, findings: &mut Findings) {
    let mut budget = MAX_STAGE_VISITS;
    for (id, stage) in flat.stages.iter().enumerate() {
        let varies = |e: &FlatEnd<'_>| {
            let grid = |a: &Affine| a.terms.iter().any(|(v, _)| matches!(v, Var::Grid(_)));
            let pattern = &e.decl.pattern;
            grid(&pattern.offset) || pattern.dims.iter().any(|(size, _)| grid(size))
        };
        let all = stage.fills.iter().chain(&stage.drains);
        let points: Vec<Vec<u32>> = if all.clone().any(varies) {
            Indices::new(&flat.launch.grid).take(4096).collect()
        } else {
            vec![vec![0; flat.launch.grid.len()]]
        };
        for grid in points {
            if let Some(finding) = stage_block(flat, stage, &grid, &mut budget) {
                let place = format!("stage {}", flat.stage_name(id));
                findings.add(&stage.decl.name, place, finding);
                break;
            }
        }
    }
}

/// Stages are small (512 KB), so elements are marked in runs, one bit an element.
fn stage_block(
    flat: &Flat<'_>,
    stage: &FlatStage<'_>,
    grid: &[u32],
    budget: &mut u64,
) -> Option<RuleFinding> {
    let n = stage.decl.block_elements();
    let walk = |end: &FlatEnd<'_>| {
        end.decl.pattern.walk(&Env {
            grid,
            index: &stage.index,
            each: end.each,
            ..Env::default()
        })
    };
    let cost = stage
        .fills
        .iter()
        .chain(&stage.drains)
        .map(|e| walk(e).n_elements().unsigned_abs());
    *budget = budget.checked_sub(cost.fold(n, u64::saturating_add))?;
    let mut written = vec![false; usize::try_from(n).ok()?];
    for end in &stage.fills {
        for (start, len) in walk(end).runs() {
            let run = written.get_mut(start as usize..(start + len) as usize)?;
            if let Some(at) = run.iter().position(|&w| w) {
                let message = format!(
                    "element {} of the block is written twice, the second time by {}",
                    group((start as usize + at) as u64),
                    flat.channel_name(end.channel)
                );
                let finding = RuleFinding::new(Rule::StageOverlap, message);
                return Some(finding.fix("Give each fill its own part of the block"));
            }
            run.fill(true);
        }
    }
    for end in &stage.drains {
        for (start, len) in walk(end).runs() {
            let run = written.get(start as usize..(start + len) as usize)?;
            if let Some(at) = run.iter().position(|&w| !w) {
                let holes = written.iter().filter(|w| !**w).count() as u64;
                let message = format!(
                    "{} sends element {}, which no fill writes ({} of {} are not written)",
                    flat.channel_name(end.channel),
                    group((start as usize + at) as u64),
                    group(holes),
                    group(n)
                );
                let finding = RuleFinding::new(Rule::StageHole, message).numbers(n - holes, n);
                return Some(finding.fix("Fill the whole block, or drain less of it"));
            }
        }
    }
    None
}

/// Knowledge of one slot's content.
struct SlotCoverage {
    /// Elements of a unit; 0 where the slot is not examined.
    unit: u64,
    /// When each unit was last written: 0 never, else the epoch.
    written: Vec<u32>,
}

/// Writes and reads of slots, in the order of launches and grid points.
pub(super) struct Coverage<'p> {
    program: &'p Program,
    slots: Vec<SlotCoverage>,
    epoch: u32,
    budget: u64,
    /// Names of slots passed over.
    pub skipped: Vec<String>,
}

impl<'p> Coverage<'p> {
    /// Prepares the slots that the program writes.
    pub(super) fn new(program: &'p Program, flats: &[Flat<'p>]) -> Coverage<'p> {
        let mut units: Vec<u64> = vec![0; program.slots.len()];
        let mut is_written = vec![false; program.slots.len()];
        for flat in flats {
            for transfer in &flat.transfers {
                let slot = flat.launch.args[transfer.decl.arg];
                let n = program.slots[slot].n_elements().unwrap_or(0);
                if units[slot] == 0 {
                    units[slot] = n;
                }
                units[slot] = gcd(units[slot], unit(&transfer.decl.pattern, &transfer.index));
                is_written[slot] |= !transfer.reads;
            }
        }
        let mut skipped = Vec::new();
        let mut room = MAX_UNITS;
        let slots = (program.slots.iter().enumerate())
            .map(|(i, slot)| {
                let examined =
                    is_written[i] || matches!(slot.role, Role::Output | Role::Intermediate);
                let n = slot.n_elements().unwrap_or(0);
                // A slot that nothing touches is one unit.
                let unit = if units[i] == 0 { n } else { units[i] };
                let count = n / unit.max(1);
                if examined && count > room {
                    skipped.push(slot.name.clone());
                }
                let examined = examined && count <= room;
                room -= if examined { count } else { 0 };
                SlotCoverage {
                    unit: if examined { unit } else { 0 },
                    written: vec![0; if examined { count as usize } else { 0 }],
                }
            })
            .collect();
        Coverage {
            program,
            slots,
            epoch: 0,
            budget: MAX_VISITS,
            skipped,
        }
    }

    /// Follows one launch.
    pub(super) fn launch(&mut self, flat: &Flat<'p>, findings: &mut Findings) {
        let streamed = flat.launch.order == GridOrder::Streamed;
        self.epoch += 1;
        for grid in Indices::new(&flat.launch.grid) {
            if !streamed {
                self.epoch += 1;
            }
            for reads in [true, false] {
                for transfer in flat.transfers.iter().filter(|t| t.reads == reads) {
                    let found = self.transfer(flat, transfer, &grid);
                    if let Some(finding) = found {
                        let slot = &self.program.slots[flat.launch.args[transfer.decl.arg]];
                        let channel = flat.channel_name(transfer.channel);
                        let place = format!("slot {}, channel {channel}", slot.name);
                        findings.add(&slot.name, place, finding);
                    }
                }
            }
            if !findings.list.is_empty() || self.budget == 0 {
                return;
            }
        }
    }

    fn transfer(
        &mut self,
        flat: &Flat<'p>,
        transfer: &FlatTransfer<'p>,
        grid: &[u32],
    ) -> Option<RuleFinding> {
        let number = flat.launch.args[transfer.decl.arg];
        let role = self.program.slots[number].role;
        if !transfer.reads && role == Role::Static {
            let message = "the launch writes it, its role is static";
            let finding = RuleFinding::new(Rule::StaticWritten, message);
            return Some(finding.fix("Make its role output or intermediate"));
        }
        let host_writes = matches!(role, Role::Static | Role::Input);
        if (transfer.reads && host_writes) || self.slots[number].unit == 0 {
            return None;
        }
        let env = Env {
            grid,
            index: &transfer.index,
            ..Env::default()
        };
        let mut budget = self.budget;
        let mut found = None;
        let (slot, epoch) = (&mut self.slots[number], self.epoch);
        let mut visits = 0u64;
        each_task(&transfer.decl.loops, env, &mut budget, &mut |loops| {
            let walk = transfer.decl.pattern.walk(&Env { loops, ..env });
            visits = visits.saturating_add(walk.n_elements().unsigned_abs() / slot.unit);
            if visits > self.budget {
                return false;
            }
            found = if transfer.reads {
                slot.read(&walk, epoch)
            } else {
                slot.write(&walk, epoch)
            };
            found.is_none()
        });
        let spent = visits + (self.budget - budget);
        self.budget = self.budget.saturating_sub(spent);
        if self.budget == 0 {
            self.skipped.push(self.program.slots[number].name.clone());
        }
        found
    }

    /// Refuses output slots that are not written whole. Reports nothing once the budget is spent.
    pub(super) fn finish(&mut self, findings: &mut Findings) {
        if self.budget == 0 {
            return;
        }
        findings.launch.clear();
        for (decl, slot) in self.program.slots.iter().zip(&self.slots) {
            if decl.role != Role::Output || slot.unit == 0 {
                continue;
            }
            let Some(first) = slot.written.iter().position(|&w| w == 0) else {
                continue;
            };
            let holes = slot.written.iter().filter(|&&w| w == 0).count() as u64 * slot.unit;
            let n = decl.n_elements().unwrap_or(0);
            let message = if holes == n {
                "no transfer writes this output".to_string()
            } else {
                let first = first as u64 * slot.unit;
                format!(
                    "{} of {} elements are never written, the first {}",
                    group(holes),
                    group(n),
                    place(first, &decl.shape)
                )
            };
            let finding = RuleFinding::new(Rule::OutputUnwritten, message).numbers(n - holes, n);
            let fix = "Let the grid cover the slot: pad its shape to whole tiles, or take a tile \
                       that divides it";
            findings.add(&decl.name, format!("slot {}", decl.name), finding.fix(fix));
        }
    }
}

/// `[row, column]` of an element of a row-major shape.
fn place(mut element: u64, shape: &[u64]) -> String {
    let mut at = vec![0; shape.len()];
    for (index, &size) in at.iter_mut().zip(shape).rev() {
        *index = element % size;
        element /= size;
    }
    format!("{at:?}")
}

impl SlotCoverage {
    fn units(&self, run: (i64, i64)) -> std::ops::Range<usize> {
        // Bounds and divisibility by the unit are known.
        let start = run.0.unsigned_abs() / self.unit;
        let len = run.1.unsigned_abs().div_ceil(self.unit);
        start as usize..((start + len) as usize).min(self.written.len())
    }

    fn write(&mut self, walk: &PatternWalk, epoch: u32) -> Option<RuleFinding> {
        for run in walk.runs() {
            let units = self.units(run);
            let first = units.start;
            for (i, unit) in self.written.get_mut(units)?.iter_mut().enumerate() {
                if *unit == epoch {
                    let element = (first + i) as u64 * self.unit;
                    let message = format!(
                        "element {} is written by two tasks that nothing orders",
                        group(element)
                    );
                    let finding = RuleFinding::new(Rule::WrittenTwice, message);
                    return Some(
                        finding.fix("Give each task its own part, or order them by the grid"),
                    );
                }
                *unit = epoch;
            }
        }
        None
    }

    fn read(&self, walk: &PatternWalk, epoch: u32) -> Option<RuleFinding> {
        for run in walk.runs() {
            let units = self.units(run);
            let first = units.start;
            let fresh = |&w: &u32| w == 0 || w == epoch;
            if let Some(i) = self.written.get(units)?.iter().position(fresh) {
                let element = (first + i) as u64 * self.unit;
                let message = format!(
                    "element {} is read, and nothing wrote it before",
                    group(element)
                );
                let finding = RuleFinding::new(Rule::ReadUnwritten, message);
                return Some(finding.fix(
                    "Write it in an earlier launch or grid point, or make the slot an input",
                ));
            }
        }
        None
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Elements that divide every offset, stride and run of a pattern's walks.
fn unit(pattern: &Pattern, index: &[u32]) -> u64 {
    let env = Env {
        index,
        ..Env::default()
    };
    let varying = |a: &Affine| {
        a.terms
            .iter()
            .filter(|(v, _)| !matches!(v, Var::Index(_)))
            .fold(0, |g, (_, factor)| gcd(g, factor.unsigned_abs()))
    };
    let mut unit = gcd(
        varying(&pattern.offset),
        pattern.offset.at(&env).unsigned_abs(),
    );
    let mut contiguous = false;
    for (size, stride) in &pattern.dims {
        if *stride == 1 {
            contiguous = true;
            unit = gcd(unit, gcd(varying(size), size.at(&env).unsigned_abs()));
        } else {
            unit = gcd(unit, stride.unsigned_abs());
        }
    }
    if contiguous { unit.max(1) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_divide_everything() {
        let tile = Pattern::new(
            Affine::of(Var::Grid(0), 512).plus(Var::Index(0), 128),
            &[(64, 2048), (128, 1)],
        );
        assert_eq!(unit(&tile, &[3]), 128);
        assert_eq!(unit(&Pattern::new(96, &[(64, 2048), (128, 1)]), &[]), 32);
        assert_eq!(unit(&Pattern::new(0, &[(64, 2048)]), &[]), 1);
        assert_eq!(unit(&Pattern::linear(0, 4096), &[]), 4096);
    }
}
