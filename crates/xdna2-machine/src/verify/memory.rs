//! Contents that must fit a tile's memories: L1, L2, program memory.

use super::ResourceReport;
use super::place::at;
use super::resources::TileAt;
use super::rule::{Findings, Rule, RuleFinding, group};
use crate::Machine;
use crate::program::{ChannelLink, Flat, Herd, Op, Port};
use std::collections::{BTreeMap, BTreeSet};

/// One buffer in a memory: name, copies, bytes of one copy.
struct MemoryBuffer {
    name: String,
    copies: u64,
    bytes: u64,
}

/// Alignment of a buffer's address: a vector load of 512 bits needs it.
const ALIGN_BYTES: u64 = 64;

impl MemoryBuffer {
    /// Bytes that all copies take, to where the next buffer may begin.
    fn total(&self) -> u64 {
        let whole = self.bytes.div_ceil(ALIGN_BYTES).saturating_mul(ALIGN_BYTES);
        self.copies.saturating_mul(whole)
    }
}

/// Refuses contents that do not fit, and reports the largest usage.
pub(super) fn check(
    flat: &Flat<'_>,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    l1(flat, machine, report, findings);
    l2(flat, machine, report, findings);
    for herd in &flat.launch.herds {
        program_memory(herd, machine, report, findings);
    }
}

/// Locals, the blocks of channel ends, and shared blocks once. Blocks shared with a neighbour are in the memory that
/// both can reach. That is the lower column's for an east–west pair (a core reaches its west neighbour's memory,
/// mlir-aie isMemWest), and either core's for a north–south pair.
fn l1(flat: &Flat<'_>, machine: &Machine, report: &mut ResourceReport, findings: &mut Findings) {
    let mut parts: Vec<Vec<MemoryBuffer>> = Vec::with_capacity(flat.cores.len());
    for core in &flat.cores {
        parts.push(
            (core.decl.locals.iter())
                .map(|local| MemoryBuffer {
                    name: local.name.clone(),
                    copies: 1,
                    bytes: local.size_bytes(),
                })
                .collect(),
        );
    }
    let mut shared = Vec::new();
    for channel in &flat.channels {
        let part = || MemoryBuffer {
            name: channel.decl.name.clone(),
            copies: channel.decl.depth.into(),
            bytes: channel.decl.block_bytes(),
        };
        let cores = std::iter::once(&channel.from).chain(&channel.to);
        let cores: Vec<usize> = cores
            .filter_map(|port| match *port {
                Port::Core { core } => Some(core),
                _ => None,
            })
            .collect();
        match (channel.decl.link, &cores[..]) {
            (ChannelLink::Neighbour, &[from, to]) => shared.push((from, to, part())),
            _ => cores.iter().for_each(|&core| parts[core].push(part())),
        }
    }
    let used = |parts: &[MemoryBuffer]| {
        parts
            .iter()
            .map(MemoryBuffer::total)
            .fold(0, u64::saturating_add)
    };
    for (from, to, part) in shared {
        let ((from_col, _), (to_col, _)) = (at(flat, from), at(flat, to));
        let roomy = used(&parts[from]) <= used(&parts[to]);
        let owner = match from_col.cmp(&to_col) {
            std::cmp::Ordering::Less => from,
            std::cmp::Ordering::Greater => to,
            std::cmp::Ordering::Equal if roomy => from,
            std::cmp::Ordering::Equal => to,
        };
        parts[owner].push(part);
    }
    for (core, parts) in parts.iter().enumerate() {
        let bytes = used(parts).saturating_add(machine.stack_bytes);
        report.l1_bytes = report.l1_bytes.max(bytes);
        let limit = machine.core.data_bytes;
        if bytes > limit {
            let (col, row) = at(flat, core);
            let stack = format!(", stack {}", group(machine.stack_bytes));
            let finding = overfull(Rule::L1, "L1", parts, bytes, limit, &stack, "depth");
            let place = TileAt::Core(col, row).to_string();
            findings.add(&flat.cores[core].decl.name, place, finding);
        }
    }
}

fn l2(flat: &Flat<'_>, machine: &Machine, report: &mut ResourceReport, findings: &mut Findings) {
    let mut tiles: BTreeMap<u32, Vec<MemoryBuffer>> = BTreeMap::new();
    for (id, stage) in flat.stages.iter().enumerate() {
        tiles.entry(stage.col).or_default().push(MemoryBuffer {
            name: flat.stage_name(id),
            copies: stage.decl.copies.into(),
            bytes: stage.decl.block_bytes(),
        });
    }
    for (col, parts) in tiles {
        let bytes = parts
            .iter()
            .map(MemoryBuffer::total)
            .fold(0, u64::saturating_add);
        report.l2_bytes = report.l2_bytes.max(bytes);
        let limit = machine.memory.data_bytes;
        if bytes > limit {
            let finding = overfull(Rule::L2, "L2", &parts, bytes, limit, "", "copies");
            findings.add("memory tile", TileAt::Memory(col).to_string(), finding);
        }
    }
}

/// The refusal, with the parts from the largest, and the remedy.
fn overfull(
    rule: Rule,
    memory: &str,
    parts: &[MemoryBuffer],
    bytes: u64,
    limit: u64,
    rest: &str,
    knob: &str,
) -> RuleFinding {
    let mut sorted: Vec<&MemoryBuffer> = parts.iter().collect();
    sorted.sort_by_key(|p| std::cmp::Reverse(p.total()));
    let words = |p: &&MemoryBuffer| match p.copies {
        1 => format!("{} {}", p.name, group(p.bytes)),
        n => format!("{} {n}×{}", p.name, group(p.bytes)),
    };
    let mut list = sorted
        .iter()
        .take(6)
        .map(words)
        .collect::<Vec<_>>()
        .join(", ");
    if sorted.len() > 6 {
        list.push_str(", …");
    }
    let message = format!(
        "{memory} needs {} B of {} B ({list}{rest})",
        group(bytes),
        group(limit)
    );
    let over = bytes - limit;
    let fix = fewer_copies(&sorted, over, knob).unwrap_or_else(|| match sorted.first() {
        Some(p) if p.total() > over => format!(
            "Shrink the block of {} to {} B at most",
            p.name,
            group((p.total() - over) / p.copies)
        ),
        _ => format!("Shrink the blocks by {} B in all", group(over)),
    });
    RuleFinding::new(rule, message)
        .numbers(bytes, limit)
        .fix(fix)
}

/// How many copies fewer save that many bytes, from the part that saves most; `None` where one copy
/// of each is still too much.
fn fewer_copies(parts: &[&MemoryBuffer], over: u64, knob: &str) -> Option<String> {
    let mut spare: Vec<&&MemoryBuffer> = parts.iter().filter(|p| p.copies > 1).collect();
    spare.sort_by_key(|p| std::cmp::Reverse(p.total() - p.bytes));
    let (mut left, mut steps) = (over, Vec::new());
    for part in spare {
        if left == 0 {
            break;
        }
        let fewer = left.div_ceil(part.bytes.max(1)).min(part.copies - 1);
        steps.push(format!("of {} to {}", part.name, part.copies - fewer));
        left = left.saturating_sub(fewer.saturating_mul(part.bytes));
    }
    (left == 0).then(|| format!("Lower the {knob} {}", steps.join(", ")))
}

/// Bytes of start-up code, of a step on channels or loops, of a call, and of a kernel's object.
/// No source publishes sizes; these are low, so that a refused program cannot fit. A step is a lock or branch of four
/// 16-byte bundles, a call sets a register per argument, and an object has a vector loop with its prologue.
const STARTUP_BYTES: u64 = 256;
const STEP_BYTES: u64 = 64;
const CALL_BYTES: u64 = 32;
const ARGUMENT_BYTES: u64 = 16;
const KERNEL_BYTES: u64 = 512;

fn program_memory(
    herd: &Herd,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    let mut kernels = BTreeSet::new();
    let steps = steps_bytes(&herd.body, &mut kernels);
    let objects = kernels.len() as u64 * KERNEL_BYTES;
    let bytes = STARTUP_BYTES + steps + objects;
    report.program_bytes = report.program_bytes.max(bytes);
    let limit = machine.program_bytes;
    if bytes > limit {
        let message = format!(
            "the program needs at least {} B of {} B ({} of steps, {} of {} kernel objects)",
            group(bytes),
            group(limit),
            group(steps),
            group(objects),
            kernels.len()
        );
        let finding = RuleFinding::new(Rule::ProgramMemory, message).numbers(bytes, limit);
        let finding =
            finding.fix("Write repeated steps as a loop, or split the herd's work into launches");
        findings.add(&herd.name, format!("herd {}", herd.name), finding);
    }
}

/// A kernel object: a name compiled for some dimensions.
type KernelObject<'p> = (&'p str, &'p [u32]);

fn steps_bytes<'p>(ops: &'p [Op], kernels: &mut BTreeSet<KernelObject<'p>>) -> u64 {
    let mut bytes = 0;
    for op in ops {
        bytes += match op {
            Op::Loop { body, .. } => STEP_BYTES + steps_bytes(body, kernels),
            Op::If {
                then, otherwise, ..
            } => STEP_BYTES + steps_bytes(then, kernels) + steps_bytes(otherwise, kernels),
            Op::Call {
                kernel,
                dims,
                operands,
                scalars,
                ..
            } => {
                kernels.insert((kernel, dims));
                CALL_BYTES + ARGUMENT_BYTES * (operands.len() + scalars.len()) as u64
            }
            _ => STEP_BYTES,
        };
    }
    bytes
}
