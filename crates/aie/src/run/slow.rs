//! Orders that are made to find dependence on speed.

use super::stage::DesignStage;
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::board::SlowActor;
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::BTreeSet;

/// Most words that all these orders move together: large designs have fewer orders.
const MOST_WORDS: u64 = 1 << 26;
/// Orders that every design has, however large.
const FEWEST: usize = 3;

/// Orders in which one actor is as slow as possible, the most important first, and the number of those left out.
/// `words` is the number of words that a run moves.
pub(super) fn orders(
    stages: &[DesignStage<'_>],
    words: u64,
    most: usize,
) -> (Vec<SlowActor>, usize) {
    let mut all = vec![SlowActor::Firmware, SlowActor::Channels];
    let mut cores: Vec<Tile> = Vec::new();
    for core in stages.iter().flat_map(|stage| &stage.design.cores) {
        if !cores.contains(&core.tile) {
            cores.push(core.tile);
        }
    }
    if cores.len() > 1 {
        all.push(SlowActor::Cores);
    }
    let cores = cores.into_iter().map(SlowActor::Core);
    let channels = stages
        .iter()
        .flat_map(|stage| stage.lowered.channels.keys());
    let channels = ordered(channels.copied().collect());
    let mut channels = channels.into_iter().map(SlowActor::Channel);
    // One of each in turn, so that a limit leaves both.
    for core in cores {
        all.push(core);
        all.extend(channels.next());
    }
    all.extend(channels);
    let affordable = usize::try_from(MOST_WORDS / words.max(1)).unwrap_or(usize::MAX);
    let n = most.min(affordable.max(FEWEST)).min(all.len());
    let n_untried = all.len() - n;
    all.truncate(n);
    (all, n_untried)
}

/// Channels that receive come first, those of cores before others: words that wait for them hold arbiters.
fn ordered(channels: BTreeSet<ChannelAt>) -> Vec<ChannelAt> {
    let mut all: Vec<ChannelAt> = channels.into_iter().collect();
    all.sort_by_key(|at| {
        let kind = match at.tile.kind() {
            TileKind::Core => 0,
            TileKind::Memory => 1,
            TileKind::Shim => 2,
        };
        (at.direction != Direction::S2mm, kind, *at)
    });
    all
}
