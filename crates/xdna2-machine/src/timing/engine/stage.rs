//! Buffers on memory tiles: blocks filled by all fills together, then read by all drains together.

use crate::timing::TimingError;
use crate::timing::network::TimingNetwork;

/// Progress of one end, in blocks of the stage.
#[derive(Clone, Copy, Default)]
struct StageProgress {
    /// Stage blocks it is done with.
    done: u64,
    /// Channel blocks of the current stage block.
    at: u64,
    /// Channel blocks of one stage block; 0 for an end that moves nothing.
    of: u64,
}

impl StageProgress {
    /// Counts a channel block; whether that ended a stage block.
    fn step(&mut self) -> bool {
        self.at += 1;
        if self.at < self.of {
            return false;
        }
        self.at = 0;
        self.done += 1;
        true
    }
}

/// A stage's state.
pub(super) struct StageState {
    copies: u64,
    fills: Vec<StageProgress>,
    drains: Vec<StageProgress>,
}

/// Blocks that all of these ends are done with. Ends that move nothing hold no one up.
fn done(ends: &[StageProgress]) -> u64 {
    let moving = ends.iter().filter(|end| end.of > 0);
    moving.map(|end| end.done).min().unwrap_or(u64::MAX)
}

impl StageState {
    pub(super) fn new(
        net: &TimingNetwork<'_>,
        stage: usize,
        grid: &[u32],
    ) -> Result<StageState, TimingError> {
        let flat = &net.flat.stages[stage];
        let ends = |fills: bool, n: usize| {
            (0..n)
                .map(|end| {
                    let of = net.stage_blocks(stage, fills, end, grid)?;
                    Ok(StageProgress {
                        of,
                        ..StageProgress::default()
                    })
                })
                .collect::<Result<Vec<_>, TimingError>>()
        };
        Ok(StageState {
            copies: u64::from(flat.decl.copies.max(1)),
            fills: ends(true, flat.fills.len())?,
            drains: ends(false, flat.drains.len())?,
        })
    }

    /// Whether a fill may write: within a block, or a block is free.
    pub(super) fn can_fill(&self, end: usize) -> bool {
        let fill = self.fills[end];
        fill.at > 0 || fill.done < done(&self.drains).saturating_add(self.copies)
    }

    /// Whether a drain may read: within a block, or a block is full.
    pub(super) fn can_drain(&self, end: usize) -> bool {
        let drain = self.drains[end];
        drain.of > 0 && (drain.at > 0 || drain.done < done(&self.fills))
    }

    /// A block came through a fill; whether drains may have been waiting for it.
    pub(super) fn filled(&mut self, end: usize) -> bool {
        self.fills[end].step()
    }

    /// A block left through a drain; whether fills may have been waiting for it.
    pub(super) fn drained(&mut self, end: usize) -> bool {
        self.drains[end].step()
    }
}
