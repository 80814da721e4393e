//! Channels that a design uses, and how.

use super::sequence::SequenceCommand;
use crate::design::{Design, TileMemory};
use crate::syntax::{Location, SyntaxError};
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::{BTreeMap, BTreeSet};

/// Channels used by DMA programs or the sequence, each with the place of its first use.
pub(super) fn channels(
    design: &Design,
    commands: &[(Location, SequenceCommand)],
) -> BTreeMap<ChannelAt, Location> {
    let own = design.chains.iter().map(|chain| (chain.channel, chain.at));
    let pushed = commands
        .iter()
        .filter_map(|row| Some((row.1.channel()?, row.0)));
    let mut channels = BTreeMap::new();
    for (channel, at) in own.chain(pushed) {
        channels.entry(channel).or_insert(at);
    }
    channels
}

/// Channels that receive out of order. Each does so from the start, so none may receive in order as well.
pub(super) fn out_of_order(
    design: &Design,
    commands: &[(Location, SequenceCommand)],
) -> Result<BTreeSet<ChannelAt>, SyntaxError> {
    let own = design.chains.iter().map(|chain| {
        let first = &design.descriptors[chain.first];
        (chain.channel, first.by_header, first.at)
    });
    let tasks = commands.iter().filter_map(|(_, command)| match command {
        SequenceCommand::Descriptor {
            channel,
            descriptor,
            ..
        } => Some((*channel, descriptor.by_header, descriptor.at)),
        _ => None,
    });
    let all: Vec<_> = own.chain(tasks).collect();
    let by_header: BTreeSet<ChannelAt> = all.iter().filter(|row| row.1).map(|row| row.0).collect();
    let mixed = all.iter().find(|row| !row.1 && by_header.contains(&row.0));
    match mixed {
        None => Ok(by_header),
        Some((channel, _, at)) => {
            let problem = format!(
                "{} S2MM {} receives in order here and out of order elsewhere; one of both is known",
                channel.tile, channel.number
            );
            Err(SyntaxError::new(*at, problem).in_op("aie.dma_bd"))
        }
    }
}

/// The last task of each channel, and the argument that its channel's last descriptor moves.
pub(super) fn last_tasks(
    commands: &[(Location, SequenceCommand)],
) -> BTreeMap<ChannelAt, (Location, Option<usize>)> {
    let mut arguments = BTreeMap::new();
    let mut tasks = BTreeMap::new();
    for (at, command) in commands {
        if let SequenceCommand::Descriptor {
            channel,
            descriptor,
            ..
        } = command
            && let TileMemory::Argument(argument) = descriptor.memory
        {
            arguments.insert(*channel, argument);
        }
        if let Some(channel) = command.channel() {
            tasks.insert(channel, (*at, arguments.get(&channel).copied()));
        }
    }
    tasks
}
