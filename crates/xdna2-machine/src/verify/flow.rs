//! Blocks through channels at a grid point: each channel's users agree on their number, and all
//! actors finish. The actors are those of the functional simulator without data: cores replay
//! their traces, stages count blocks, transfers count tasks. Such networks (Kahn's, with bounded
//! channels) end the same way in every order of actors, so one run decides.

use super::cores::{
    ChannelAction, ChannelEvent, HerdBody, MAX_STEPS, Tracer, core_words, from_core,
};
use super::rule::{Findings, Rule, RuleFinding, group};
use super::run::{LaunchNetwork, Stuck};
use super::tasks::each_task;
use crate::program::{Env, Flat, FlatEnd, FlatStage, Pattern, Port, Var};

/// Grid points examined where flow varies between points; more are sampled evenly.
const MAX_POINTS: u64 = 64;
/// Blocks through all channels at the points examined.
const MAX_BLOCKS: u64 = 1 << 24;

/// Traces, balances and runs a launch, at one grid point or, where flow varies, at several.
pub(super) fn check(flat: &Flat<'_>, findings: &mut Findings) {
    let codes: Vec<HerdBody<'_>> = flat.launch.herds.iter().map(HerdBody::new).collect();
    let n = flat.launch.n_grid_points().unwrap_or(u64::MAX);
    let points = if codes.iter().any(|c| c.grid_dependent) || transport_varies(flat) {
        n.min(MAX_POINTS)
    } else {
        1
    };
    let mut budget = MAX_STEPS;
    let mut blocks = MAX_BLOCKS;
    for i in 0..points {
        // First and last are among the samples.
        let number = if points > 1 {
            i * (n - 1) / (points - 1)
        } else {
            0
        };
        let grid = point(&flat.launch.grid, number);
        check_point(flat, &codes, &grid, &mut budget, &mut blocks, findings);
        if !findings.list.is_empty() {
            return;
        }
    }
}

/// The grid point of a number, the last dimension fastest.
fn point(grid: &[u32], mut number: u64) -> Vec<u32> {
    let mut at = vec![0; grid.len()];
    for (index, &size) in at.iter_mut().zip(grid).rev() {
        *index = (number % u64::from(size)) as u32;
        number /= u64::from(size);
    }
    at
}

/// Whether numbers of blocks of transfers or stages differ between grid points.
pub(super) fn transport_varies(flat: &Flat<'_>) -> bool {
    let grid = |a: &crate::program::Affine| a.terms.iter().any(|(v, _)| matches!(v, Var::Grid(_)));
    let sizes = |p: &Pattern| p.dims.iter().any(|(size, _)| grid(size));
    let transfers = &flat.launch.transfers;
    let stages = &flat.launch.stages;
    transfers
        .iter()
        .any(|t| t.loops.iter().any(grid) || sizes(&t.pattern))
        || stages
            .iter()
            .any(|s| s.fills.iter().chain(&s.drains).any(|e| sizes(&e.pattern)))
}

fn check_point(
    flat: &Flat<'_>,
    codes: &[HerdBody<'_>],
    grid: &[u32],
    budget: &mut u64,
    blocks: &mut u64,
    findings: &mut Findings,
) {
    let mut traces = Vec::with_capacity(flat.cores.len());
    for core in &flat.cores {
        match Tracer::run(flat, core, &codes[core.herd], grid, budget) {
            Ok(events) => traces.push(events),
            Err(finding) => {
                let place = format!(
                    "herd {}, {}{}",
                    core.decl.name,
                    core_words(core),
                    at_point(grid)
                );
                findings.add(&core.decl.name, place, finding);
                if *budget == 0 {
                    return;
                }
            }
        }
    }
    if !findings.list.is_empty() {
        return;
    }
    let balance = match Balance::new(flat, &traces, grid, blocks) {
        Ok(balance) => balance,
        Err(found) => {
            let (family, place, finding) = *found;
            findings.add(&family, place + &at_point(grid), finding);
            return;
        }
    };
    let network = LaunchNetwork::new(flat, &traces, &balance.sent, &balance.per_stage_block);
    if let Err(stuck) = network.run(&|id| flat.channels[id].decl.depth) {
        let fix = remedy(flat, &network, &stuck);
        let finding = RuleFinding::new(Rule::Deadlock, stuck.words()).fix(fix);
        findings.add("deadlock", format!("grid point{}", at_point(grid)), finding);
    }
}

fn at_point(grid: &[u32]) -> String {
    match grid {
        [] => String::new(),
        _ => format!(" {grid:?}"),
    }
}

/// The smallest depth of one channel among those waited for with which everything finishes.
fn remedy(flat: &Flat<'_>, network: &LaunchNetwork<'_, '_>, stuck: &Stuck) -> String {
    let order = "take blocks in the order in which they are sent, or split the stream by row";
    for &id in stuck.channels.iter().take(6) {
        let bundle = flat.channels[id].bundle;
        for depth in [2u32, 4, 8, 16, 32, 63] {
            if depth <= flat.channels[id].decl.depth {
                continue;
            }
            let deeper = |other: usize| match &flat.channels[other] {
                c if c.bundle == bundle => depth,
                c => c.decl.depth,
            };
            if network.run(&deeper).is_ok() {
                let name = &flat.channels[id].decl.name;
                return format!(
                    "With depth {depth} channel {name} would let it finish; or {order}"
                );
            }
        }
    }
    format!("Let cores {order}")
}

/// Numbers of blocks at a grid point.
pub(super) struct Balance {
    /// Blocks that each channel carries.
    pub sent: Vec<u64>,
    /// Blocks of the channel for one block of the stage, by channel and end: (drain, fill).
    pub per_stage_block: Vec<(u64, u64)>,
}

/// Family, place and finding.
pub(super) type FlowFinding = Box<(String, String, RuleFinding)>;

impl Balance {
    fn new(
        flat: &Flat<'_>,
        traces: &[Vec<ChannelEvent>],
        grid: &[u32],
        budget: &mut u64,
    ) -> Result<Balance, FlowFinding> {
        let n = flat.channels.len();
        let mut sent: Vec<Option<u64>> = vec![None; n];
        let mut taken: Vec<Vec<(usize, u64)>> = vec![Vec::new(); n];
        let counts = shim_counts(flat, grid, budget)?;
        for (id, channel) in flat.channels.iter().enumerate() {
            if let Port::Shim { .. } = channel.from {
                sent[id] = Some(counts[id]);
            } else if from_core(flat, id).is_some() {
                sent[id] = Some(0);
            }
        }
        // By channel: blocks that the current core gets.
        let mut gets = vec![0u64; n];
        for (core, events) in traces.iter().enumerate() {
            for event in events {
                match event.kind() {
                    ChannelAction::Put => {
                        if let Some(n) = &mut sent[event.channel()] {
                            *n += 1;
                        }
                    }
                    ChannelAction::Get => gets[event.channel()] += 1,
                    _ => {}
                }
            }
            for &id in &flat.cores[core].inputs {
                taken[id].push((core, std::mem::take(&mut gets[id])));
            }
        }
        let mut per_stage_block = vec![(1, 1); n];
        for stage in &flat.stages {
            for end in &stage.fills {
                per_stage_block[end.channel].1 = end_blocks(flat, stage, end, grid);
            }
            for end in &stage.drains {
                per_stage_block[end.channel].0 = end_blocks(flat, stage, end, grid);
            }
        }
        stages(flat, &mut sent, &per_stage_block)?;
        let sent: Vec<u64> = sent.into_iter().map(|n| n.unwrap_or(0)).collect();
        agree(flat, &sent, &taken, &counts)?;
        let total = sent.iter().fold(0, |n: u64, &s| n.saturating_add(s));
        *budget = budget.checked_sub(total).ok_or_else(too_many_blocks)?;
        Ok(Balance {
            sent,
            per_stage_block,
        })
    }
}

fn too_many_blocks() -> FlowFinding {
    let message = format!(
        "more than {} blocks pass at the grid points examined",
        group(MAX_BLOCKS)
    );
    let finding =
        RuleFinding::new(Rule::TooLarge, message).fix("Use larger blocks, or a larger grid");
    Box::new(("blocks".into(), "channels".into(), finding))
}

/// Blocks of the channel that a stage end takes or sends for one block of the stage.
pub(super) fn end_blocks(
    flat: &Flat<'_>,
    stage: &FlatStage<'_>,
    end: &FlatEnd<'_>,
    grid: &[u32],
) -> u64 {
    let env = Env {
        grid,
        index: &stage.index,
        each: end.each,
        ..Env::default()
    };
    let n = end.decl.pattern.walk(&env).n_elements().unsigned_abs();
    let blocks = n / flat.channels[end.channel].decl.block_elements();
    blocks.saturating_mul(end.decl.repeat.into())
}

/// Blocks of each shim channel's tasks.
pub(super) fn shim_counts(
    flat: &Flat<'_>,
    grid: &[u32],
    budget: &mut u64,
) -> Result<Vec<u64>, FlowFinding> {
    let mut counts = vec![0u64; flat.channels.len()];
    for transfer in &flat.transfers {
        let env = Env {
            grid,
            index: &transfer.index,
            ..Env::default()
        };
        let block = flat.channels[transfer.channel].decl.block_elements();
        let count = &mut counts[transfer.channel];
        let all = each_task(&transfer.decl.loops, env, budget, &mut |loops| {
            let walk = transfer.decl.pattern.walk(&Env { loops, ..env });
            *count = count.saturating_add(walk.n_elements().unsigned_abs() / block);
            true
        });
        if !all {
            return Err(too_many_blocks());
        }
    }
    Ok(counts)
}

/// Follows blocks through stages: all fills of a stage bring the same whole number of its blocks.
fn stages(
    flat: &Flat<'_>,
    sent: &mut [Option<u64>],
    per: &[(u64, u64)],
) -> Result<(), FlowFinding> {
    let mut left: Vec<usize> = (0..flat.stages.len()).collect();
    while !left.is_empty() {
        let before = left.len();
        let mut error = None;
        left.retain(|&id| {
            let stage = &flat.stages[id];
            let fills: Option<Vec<u64>> = stage.fills.iter().map(|e| sent[e.channel]).collect();
            let Some(fills) = fills else { return true };
            match stage_blocks(flat, id, &fills, per) {
                Ok(blocks) => {
                    for end in &stage.drains {
                        sent[end.channel] = Some(blocks.saturating_mul(per[end.channel].0));
                    }
                }
                Err(found) => error = error.take().or(Some(found)),
            }
            false
        });
        if let Some(error) = error {
            return Err(error);
        }
        if left.len() == before {
            let name = flat.stage_name(left[0]);
            let message = "stages fill each other in a ring, and nothing outside begins it";
            let finding =
                RuleFinding::new(Rule::Deadlock, message).fix("Fill one from a shim or a core");
            return Err(Box::new((name.clone(), format!("stage {name}"), finding)));
        }
    }
    Ok(())
}

/// Number of a stage's blocks that its fills bring, from the blocks of their channels.
fn stage_blocks(
    flat: &Flat<'_>,
    id: usize,
    fills: &[u64],
    per: &[(u64, u64)],
) -> Result<u64, FlowFinding> {
    let stage = &flat.stages[id];
    let mut blocks: Option<(u64, usize)> = None;
    for (end, &n) in stage.fills.iter().zip(fills) {
        let per_block = per[end.channel].1;
        let name = flat.channel_name(end.channel);
        let unbalanced = |message: String| {
            let finding = RuleFinding::new(Rule::Unbalanced, message);
            let finding = finding.fix("Send whole stage blocks, the same number on every fill");
            let place = format!("stage {}", flat.stage_name(id));
            Err(Box::new((stage.decl.name.clone(), place, finding)))
        };
        if per_block == 0 {
            if n == 0 {
                continue;
            }
            return unbalanced(format!(
                "channel {name} sends {n} blocks, its fill takes none"
            ));
        }
        if n % per_block != 0 {
            return unbalanced(format!(
                "channel {name} brings {n} blocks, one block of the stage takes {per_block}"
            ));
        }
        match blocks {
            Some((other, first)) if other != n / per_block => {
                let first = flat.channel_name(first);
                return unbalanced(format!(
                    "channel {first} fills {other} blocks of the stage, channel {name} {}",
                    n / per_block
                ));
            }
            _ => blocks = Some((n / per_block, end.channel)),
        }
    }
    Ok(blocks.map_or(0, |b| b.0))
}

/// Checks that each channel's source sends as many blocks as each sink takes.
fn agree(
    flat: &Flat<'_>,
    sent: &[u64],
    taken: &[Vec<(usize, u64)>],
    shim: &[u64],
) -> Result<(), FlowFinding> {
    for (id, channel) in flat.channels.iter().enumerate() {
        let source = match channel.from {
            Port::Shim { col } => format!("shim {col}"),
            Port::Memory { stage, .. } => format!("stage {}", flat.stage_name(stage)),
            Port::Core { core } => core_words(&flat.cores[core]),
        };
        let to_shim = channel.to.iter().find_map(|port| match *port {
            Port::Shim { col } => Some((format!("shim {col}"), shim[id])),
            _ => None,
        });
        let cores = taken[id]
            .iter()
            .map(|&(core, n)| (core_words(&flat.cores[core]), n));
        for (sink, n) in cores.chain(to_shim) {
            if n == sent[id] {
                continue;
            }
            let name = flat.channel_name(id);
            let message = format!(
                "{source} sends {} blocks, {sink} takes {}",
                group(sent[id]),
                group(n)
            );
            let finding = RuleFinding::new(Rule::Unbalanced, message).numbers(n, sent[id]);
            let finding = finding.fix("Make loop counts, transfers and stage patterns agree");
            return Err(Box::new((
                channel.decl.name.clone(),
                format!("channel {name}"),
                finding,
            )));
        }
    }
    Ok(())
}
