//! Every pattern of a launch, at every point where it is walked: it is within its buffer, a whole number of blocks, and
//! one buffer descriptor.

use super::descriptor::{self, Dma};
use super::rule::{Findings, Rule, RuleFinding, group};
use super::tasks::each_task;
use crate::Machine;
use crate::program::{
    Affine, Channel, ChannelLink, Env, Flat, FlatEnd, FlatStage, FlatTransfer, Indices, Pattern,
    PatternWalk, Port, Program, Var,
};
use millrace_npu::Slot;

/// Walks examined one by one where sizes vary from point to point.
const MAX_WALKS: u64 = 1 << 20;

/// A buffer that patterns walk, and the channel's block.
struct PatternBuffer {
    elements: u64,
    block: u64,
    size_bytes: u64,
    dma: Dma,
    what: &'static str,
}

/// Refuses patterns of transfers, stages and core ends.
pub(super) fn check(
    program: &Program,
    flat: &Flat<'_>,
    machine: &Machine,
    findings: &mut Findings,
) {
    let mut budget = MAX_WALKS;
    for transfer in &flat.transfers {
        transfer_walks(program, flat, transfer, machine, &mut budget, findings);
    }
    for (id, stage) in flat.stages.iter().enumerate() {
        stage_walks(flat, id, stage, machine, &mut budget, findings);
    }
    core_walks(flat, machine, findings);
}

/// Whether sizes are the same at every grid point and loop iteration.
fn sizes_fixed(pattern: &Pattern) -> bool {
    let varies = |a: &Affine| {
        a.terms
            .iter()
            .any(|(v, _)| matches!(v, Var::Grid(_) | Var::Loop(_)))
    };
    !pattern.dims.iter().any(|(size, _)| varies(size))
}

/// Whether the counts of a transfer's loops are the same at every grid point and iteration.
fn loops_fixed(loops: &[Affine]) -> bool {
    let varies = |a: &Affine| {
        a.terms
            .iter()
            .any(|(v, _)| matches!(v, Var::Grid(_) | Var::Loop(_)))
    };
    !loops.iter().any(varies)
}

fn transfer_walks(
    program: &Program,
    flat: &Flat<'_>,
    transfer: &FlatTransfer<'_>,
    machine: &Machine,
    budget: &mut u64,
    findings: &mut Findings,
) {
    let decl = transfer.decl;
    let channel = flat.channels[transfer.channel].decl;
    let slot = &program.slots[flat.launch.args[decl.arg]];
    let number = flat
        .launch
        .transfers
        .iter()
        .position(|t| std::ptr::eq(t, decl));
    let family = format!("transfer {}", number.unwrap_or(0));
    let place = format!(
        "{family} of {} on {}",
        slot.name,
        flat.channel_name(transfer.channel)
    );
    let mut add = |finding: RuleFinding| findings.add(&family, &place, finding);
    let buffer = match transfer_buffer(slot, channel, machine) {
        Ok(buffer) => buffer,
        Err(finding) => return add(finding),
    };
    let env = Env {
        index: &transfer.index,
        ..Env::default()
    };
    let fixed = sizes_fixed(&decl.pattern) && loops_fixed(&decl.loops);
    if fixed {
        let counts: Vec<i64> = decl.loops.iter().map(|l| l.at(&env)).collect();
        if counts.iter().any(|&n| n <= 0) {
            return;
        }
        let finding = corners(
            &decl.pattern,
            env,
            &flat.launch.grid,
            &counts,
            &buffer,
            machine,
        );
        if let Some(finding) = finding {
            add(finding);
        }
        return;
    }
    for grid in Indices::new(&flat.launch.grid) {
        let env = Env { grid: &grid, ..env };
        *budget = budget.saturating_sub(1);
        let mut found = None;
        each_task(&decl.loops, env, budget, &mut |loops| {
            found = examine(&decl.pattern.walk(&Env { loops, ..env }), &buffer, machine);
            found.is_none()
        });
        if *budget == 0 {
            found = Some(out_of_budget());
        }
        if let Some(finding) = found {
            add(finding);
            return;
        }
    }
}

/// The slot as a buffer of that channel's blocks.
fn transfer_buffer(
    slot: &Slot,
    channel: &Channel,
    machine: &Machine,
) -> Result<PatternBuffer, RuleFinding> {
    if slot.element != channel.element {
        let message = format!(
            "slot {} holds {}, the channel carries {}",
            slot.name, slot.element, channel.element
        );
        let finding = RuleFinding::new(Rule::ElementType, message);
        return Err(finding.fix("Use one type; a core converts"));
    }
    let bytes = slot.size_bytes().unwrap_or(u64::MAX);
    let limit = machine.buffer_bytes_max;
    if bytes > limit {
        let message = format!(
            "slot {} has {} B, a shim addresses {} B",
            slot.name,
            group(bytes),
            group(limit)
        );
        let fix = format!("Split the slot into {}", bytes.div_ceil(limit));
        let finding = RuleFinding::new(Rule::BufferSize, message);
        return Err(finding.numbers(bytes, limit).fix(fix));
    }
    Ok(PatternBuffer {
        elements: slot.n_elements().unwrap_or(u64::MAX),
        block: channel.block_elements(),
        size_bytes: slot.element.size_bytes(),
        dma: Dma::Shim,
        what: "slot",
    })
}

fn out_of_budget() -> RuleFinding {
    let message = format!("more than {} tasks whose sizes vary", group(MAX_WALKS));
    RuleFinding::new(Rule::TooLarge, message).fix("Let sizes depend on fewer points")
}

fn stage_walks(
    flat: &Flat<'_>,
    id: usize,
    stage: &FlatStage<'_>,
    machine: &Machine,
    budget: &mut u64,
    findings: &mut Findings,
) {
    let sides = [(&stage.fills, "fill"), (&stage.drains, "drain")];
    for (ends, side) in sides {
        for end in ends {
            let family = format!(
                "stage {} {side} {}",
                stage.decl.name, flat.channels[end.channel].decl.name
            );
            let place = format!(
                "stage {}, {side} {}",
                flat.stage_name(id),
                flat.channel_name(end.channel)
            );
            if let Some(finding) = stage_end(flat, stage, end, side, machine, budget) {
                findings.add(&family, place, finding);
            }
        }
    }
}

fn stage_end(
    flat: &Flat<'_>,
    stage: &FlatStage<'_>,
    end: &FlatEnd<'_>,
    side: &str,
    machine: &Machine,
    budget: &mut u64,
) -> Option<RuleFinding> {
    let limit = if side == "fill" {
        1
    } else {
        machine.repeat_max
    };
    if end.decl.repeat > limit {
        let message = format!(
            "the {side} repeats {} times, {limit} at most",
            end.decl.repeat
        );
        let finding = RuleFinding::new(Rule::Repeat, message);
        return Some(
            finding
                .numbers(end.decl.repeat.into(), limit.into())
                .fix("Send the panel again from DDR, or use smaller blocks"),
        );
    }
    let buffer = PatternBuffer {
        elements: stage.decl.block_elements(),
        block: flat.channels[end.channel].decl.block_elements(),
        size_bytes: stage.decl.element.size_bytes(),
        dma: Dma::Memory,
        what: "stage's block",
    };
    let env = Env {
        index: &stage.index,
        each: end.each,
        ..Env::default()
    };
    let pattern = &end.decl.pattern;
    if sizes_fixed(pattern) {
        return corners(pattern, env, &flat.launch.grid, &[], &buffer, machine);
    }
    for grid in Indices::new(&flat.launch.grid) {
        *budget = budget.saturating_sub(1);
        if *budget == 0 {
            return Some(out_of_budget());
        }
        let found = examine(&pattern.walk(&Env { grid: &grid, ..env }), &buffer, machine);
        if found.is_some() {
            return found;
        }
    }
    None
}

fn core_walks(flat: &Flat<'_>, machine: &Machine, findings: &mut Findings) {
    for (id, channel) in flat.channels.iter().enumerate() {
        let decl = channel.decl;
        let env = Env {
            index: &channel.index,
            ..Env::default()
        };
        let from_core = matches!(channel.from, Port::Core { .. });
        let to_core = channel.to.iter().any(|p| matches!(p, Port::Core { .. }));
        let ends = [
            ("sending", &decl.from_pattern, from_core),
            ("receiving", &decl.to_pattern, to_core),
        ];
        for (side, pattern, at_core) in ends {
            let finding = if !at_core {
                pattern.as_ref().map(|_| {
                    let finding =
                        RuleFinding::new(Rule::Malformed, "a pattern at an end that is no core");
                    finding.fix("Give it to the transfer or the stage")
                })
            } else if decl.link == ChannelLink::Stream {
                core_end(decl, pattern.as_ref(), &env, machine)
            } else {
                None
            };
            if let Some(finding) = finding {
                let place = format!("channel {}, {side} end", flat.channel_name(id));
                findings.add(&format!("channel {} {side}", decl.name), place, finding);
            }
        }
    }
}

/// The DMA of a core end walks the whole block; without a pattern, in order.
fn core_end(
    decl: &Channel,
    pattern: Option<&Pattern>,
    env: &Env<'_>,
    machine: &Machine,
) -> Option<RuleFinding> {
    let n = decl.block_elements();
    let whole = Pattern::linear(0, n as i64);
    let walk = pattern.unwrap_or(&whole).walk(env);
    let walked = walk.n_elements().unsigned_abs();
    if walked != n {
        let message = format!(
            "the pattern walks {} elements, the block has {}",
            group(walked),
            group(n)
        );
        let finding = RuleFinding::new(Rule::WholeBlocks, message).numbers(walked, n);
        return Some(finding.fix("Walk the whole block"));
    }
    let buffer = PatternBuffer {
        elements: n,
        block: n,
        size_bytes: decl.element.size_bytes(),
        dma: Dma::Core,
        what: "block",
    };
    examine(&walk, &buffer, machine)
}

/// A pattern of fixed sizes at all grid points and loop iterations: its offset is linear in each of
/// them, so the extremes are at corners, and every factor must keep the granularity.
fn corners(
    pattern: &Pattern,
    env: Env<'_>,
    grid: &[u32],
    loops: &[i64],
    buffer: &PatternBuffer,
    machine: &Machine,
) -> Option<RuleFinding> {
    let ranges = |var: Var| match var {
        Var::Grid(d) => grid.get(usize::from(d)).map_or(0, |&n| i64::from(n) - 1),
        Var::Loop(d) => loops.get(usize::from(d)).map_or(0, |&n| n - 1),
        _ => 0,
    };
    let walk = pattern.walk(&env);
    let (mut low, mut high) = (walk.offset, walk.offset);
    let mut odd = None;
    for &(var, factor) in &pattern.offset.terms {
        let last = ranges(var);
        if last <= 0 {
            continue;
        }
        let reach = factor.saturating_mul(last);
        low = low.saturating_add(reach.min(0));
        high = high.saturating_add(reach.max(0));
        let bytes = i128::from(factor) * i128::from(buffer.size_bytes);
        if bytes % i128::from(machine.granularity_bytes) != 0 {
            odd = Some(factor);
        }
    }
    let at = |offset| PatternWalk {
        offset,
        ..walk.clone()
    };
    examine(&at(low), buffer, machine)
        .or_else(|| {
            if high == low {
                None
            } else {
                bounds(&at(high), buffer)
            }
        })
        .or_else(|| {
            let message = format!(
                "offsets step by {} elements of {} bytes: not whole {}-byte words",
                odd?, buffer.size_bytes, machine.granularity_bytes
            );
            Some(RuleFinding::new(Rule::Granularity, message).fix("Instruction by whole words"))
        })
}

fn examine(walk: &PatternWalk, buffer: &PatternBuffer, machine: &Machine) -> Option<RuleFinding> {
    if walk.is_empty() {
        return None;
    }
    bounds(walk, buffer)
        .or_else(|| blocks(walk, buffer))
        .or_else(|| descriptor::check(walk, buffer.size_bytes, buffer.dma, machine))
}

fn bounds(walk: &PatternWalk, buffer: &PatternBuffer) -> Option<RuleFinding> {
    let (low, high) = walk.bounds()?;
    let n = buffer.elements;
    if low >= 0 && high.unsigned_abs() < n {
        return None;
    }
    let message = format!(
        "the pattern walks elements {low} to {high} of a {} of {}",
        buffer.what,
        group(n)
    );
    let fix = "Lower the offset, a size or a stride, or pad the buffer";
    let asked = if low < 0 { low } else { high };
    Some(
        RuleFinding::new(Rule::OutOfBounds, message)
            .numbers(asked.unsigned_abs(), n - 1)
            .fix(fix),
    )
}

fn blocks(walk: &PatternWalk, buffer: &PatternBuffer) -> Option<RuleFinding> {
    let n = walk.n_elements().unsigned_abs();
    if n.is_multiple_of(buffer.block) {
        return None;
    }
    let message = format!(
        "{} elements are no whole number of blocks of {}",
        group(n),
        group(buffer.block)
    );
    let down = n - n % buffer.block;
    let fix = if down == 0 {
        format!(
            "Walk {} elements, or make the block smaller",
            group(buffer.block)
        )
    } else {
        format!("Walk {} elements, or make the block a divisor", group(down))
    };
    Some(
        RuleFinding::new(Rule::WholeBlocks, message)
            .numbers(n, buffer.block)
            .fix(fix),
    )
}
