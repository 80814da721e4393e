//! A stage: blocks of L2 that are filled together, drained together, and free again.

mod end;

use end::{DmaEnd, StageGeometry};

use super::block::{BlockContent, ByteBlock};
use super::context::{LaunchContext, QUANTUM, Trouble, elements, move_units};
use super::ends::{Receiver, Sender, max_in_flight};
use super::fault::{Site, Waiting};
use super::motion::{Motion, cover};
use crate::program::Flat;
use std::collections::VecDeque;
use std::sync::Arc;

/// A stage.
#[derive(Debug)]
pub(super) struct StageActor<'p> {
    /// Index in the launch's flat stages.
    pub(super) number: usize,
    n_elements: u64,
    element_bytes: u64,
    copies: u64,
    /// Number of the oldest block in `blocks`.
    oldest: u64,
    blocks: VecDeque<L2Block<'p>>,
    fills: Vec<DmaEnd>,
    drains: Vec<DmaEnd>,
    /// Whether the fills write every element, for the motions they had when it was found out.
    covered: Option<bool>,
    spare: Vec<ByteBlock>,
}

/// A block in the memory tile.
#[derive(Debug)]
struct L2Block<'p> {
    point: u64,
    content: BlockContent<'p>,
    /// Whether the content is the channel's block itself.
    is_shared: bool,
    /// Ends that have filled it.
    n_filled: usize,
    /// Ends whose channel blocks of it have all gone.
    n_drained: usize,
}

impl<'p> StageActor<'p> {
    pub(super) fn new(number: usize, flat: &Flat<'_>) -> StageActor<'p> {
        let flat = &flat.stages[number];
        StageActor {
            number,
            n_elements: elements(&flat.decl.block).unwrap_or(u64::MAX),
            element_bytes: flat.decl.element.size_bytes(),
            copies: u64::from(flat.decl.copies),
            oldest: 0,
            blocks: VecDeque::new(),
            fills: flat.fills.iter().map(DmaEnd::new).collect(),
            drains: flat.drains.iter().map(DmaEnd::new).collect(),
            covered: None,
            spare: Vec::new(),
        }
    }

    fn geometry(&self) -> StageGeometry {
        StageGeometry {
            number: self.number,
            element_bytes: self.element_bytes,
            n_elements: self.n_elements,
        }
    }

    fn block_bytes(&self) -> usize {
        (self.n_elements * self.element_bytes) as usize
    }

    /// Moves as many blocks as it can. Returns bytes filled and drained.
    pub(super) fn step(
        &mut self,
        senders: &mut [Sender<'p>],
        receivers: &mut [Receiver<'p>],
        ctx: &LaunchContext<'_>,
        spent: &mut u64,
    ) -> Result<(u64, u64), Trouble> {
        let (mut filled, mut drained) = (0, 0);
        // Buffers that went out whole and came back.
        let whole_bytes = self.block_bytes();
        for to in senders
            .iter_mut()
            .filter(|to| to.block_bytes == whole_bytes)
        {
            self.spare.append(&mut to.spare);
        }
        self.spare.truncate(self.copies as usize + senders.len());
        loop {
            let mut moved = false;
            for (i, from) in receivers.iter_mut().enumerate() {
                moved |= self.fill(i, from, ctx, spent, &mut filled)?;
            }
            for (i, to) in senders.iter_mut().enumerate() {
                moved |= self.drain(i, to, ctx, spent, &mut drained)?;
            }
            self.settle(senders);
            moved |= self.retire(receivers);
            if !moved || *spent > QUANTUM {
                break;
            }
        }
        for (i, from) in receivers.iter_mut().enumerate() {
            from.demand = self.demand(i, ctx);
        }
        Ok((filled, drained))
    }

    /// Writes channel blocks into stage blocks.
    fn fill(
        &mut self,
        i: usize,
        from: &mut Receiver<'p>,
        ctx: &LaunchContext<'_>,
        spent: &mut u64,
        bytes: &mut u64,
    ) -> Result<bool, Trouble> {
        let (geometry, mut progress) = (self.geometry(), false);
        let flat_end = &ctx.flat.stages[self.number].fills[i];
        while self.fills[i].at < self.oldest + self.copies && *spent <= QUANTUM {
            let at = (self.fills[i].at - self.oldest) as usize;
            // A block belongs to the grid point of the end that begins it.
            let point = match (self.blocks.get(at), from.inbox.front()) {
                (Some(stored), _) => stored.point,
                (None, Some(parcel)) => parcel.point,
                (None, None) => break,
            };
            let n = self.fills[i]
                .motion_at(point, &geometry, flat_end, ctx)?
                .n_blocks();
            if self.fills[i].moved < n {
                let Some(parcel) = from.inbox.pop_front() else {
                    break;
                };
                *spent += move_units(parcel.block.len());
                *bytes += parcel.block.len() as u64;
                self.store(i, at, point, parcel.block, from);
                self.fills[i].moved += 1;
            } else if self.blocks.get(at).is_none() {
                // Nothing is visited, and no other end has begun the block: its turn is unknown.
                break;
            }
            progress = true;
            *spent += 1;
            if self.fills[i].moved >= n {
                self.fills[i].moved = 0;
                self.fills[i].at += 1;
                self.blocks[at].n_filled += 1;
            }
        }
        Ok(progress)
    }

    /// Puts one channel block into the stage block `at`, which may be its first.
    fn store(
        &mut self,
        i: usize,
        at: usize,
        point: u64,
        block: BlockContent<'p>,
        from: &mut Receiver<'p>,
    ) {
        let whole_bytes = self.block_bytes();
        let end = &self.fills[i];
        let Some(motion) = &end.motion else { return };
        if at == self.blocks.len() {
            let alone = self.fills.len() == 1 && motion.is_whole(whole_bytes);
            let content = if alone {
                // The stage block is the channel block: shared, not copied.
                block.clone()
            } else {
                BlockContent::Own(Arc::new(self.empty_block()))
            };
            self.blocks.push_back(L2Block {
                point,
                content,
                is_shared: alone,
                n_filled: 0,
                n_drained: 0,
            });
            if alone {
                return;
            }
        }
        let end = &self.fills[i];
        let Some(motion) = &end.motion else { return };
        // There is no other reference before it is full.
        let content = self.blocks[at].content.own_mut();
        motion.scatter(end.moved, content.bytes_mut(), 0, block.bytes());
        from.freed.push(block);
    }

    /// A block, poisoned where the fills leave something out.
    fn empty_block(&mut self) -> ByteBlock {
        let mut block = (self.spare.pop()).unwrap_or_else(|| ByteBlock::new(self.block_bytes()));
        let varies = self.fills.iter().any(|end| end.depends_on_grid);
        let covered = match self.covered {
            Some(covered) => covered,
            None => {
                let motions: Vec<&Motion> = self
                    .fills
                    .iter()
                    .filter_map(|e| e.motion.as_ref())
                    .collect();
                let covered = !varies && cover(&motions, self.n_elements);
                if motions.len() == self.fills.len() {
                    self.covered = Some(covered);
                }
                covered
            }
        };
        if !covered {
            block.poison();
        }
        block
    }

    /// Sends channel blocks of full stage blocks.
    fn drain(
        &mut self,
        i: usize,
        to: &mut Sender<'p>,
        ctx: &LaunchContext<'_>,
        spent: &mut u64,
        bytes: &mut u64,
    ) -> Result<bool, Trouble> {
        let (geometry, mut progress) = (self.geometry(), false);
        let n_fills = self.fills.len();
        let flat_end = &ctx.flat.stages[self.number].drains[i];
        while *spent <= QUANTUM {
            let at = (self.drains[i].at - self.oldest) as usize;
            let Some(stored) = self.blocks.get_mut(at).filter(|b| b.n_filled == n_fills) else {
                break;
            };
            let end = &mut self.drains[i];
            let moved = end.moved;
            let motion = end.motion_at(stored.point, &geometry, flat_end, ctx)?;
            let n = motion.n_blocks();
            let total = n.saturating_mul(i64::from(flat_end.decl.repeat));
            if moved < total {
                if !to.has_room() {
                    break;
                }
                *spent += move_units(to.block_bytes);
                *bytes += to.block_bytes as u64;
                let part = |part| stored.content.lent(part);
                if motion.is_whole(stored.content.len()) {
                    to.send(stored.content.clone(), stored.point);
                } else if let Some(part) = motion.contiguous(moved % n).and_then(part) {
                    to.send(part, stored.point);
                } else {
                    let mut block = to.buffer();
                    motion.gather(moved % n, stored.content.bytes(), 0, block.bytes_mut());
                    to.send_own(block, stored.point);
                }
                end.moved += 1;
            }
            progress = true;
            *spent += 1;
            if end.moved >= total {
                end.moved = 0;
                end.at += 1;
                end.unsettled.push_back(to.sent);
            }
        }
        Ok(progress)
    }

    /// Notes the drains whose channel blocks of a stage block have all gone.
    fn settle(&mut self, senders: &[Sender<'_>]) {
        for (end, to) in self.drains.iter_mut().zip(senders) {
            let n_gone = to.n_gone();
            while end.unsettled.front().is_some_and(|&sent| sent <= n_gone) {
                let at = (end.oldest() - self.oldest) as usize;
                self.blocks[at].n_drained += 1;
                end.unsettled.pop_front();
            }
        }
    }

    /// Frees the blocks that every drain has sent.
    fn retire(&mut self, receivers: &mut [Receiver<'p>]) -> bool {
        let mut progress = false;
        while let Some(stored) = self.blocks.front()
            && stored.n_filled == self.fills.len()
            && stored.n_drained == self.drains.len()
        {
            let Some(stored) = self.blocks.pop_front() else {
                break;
            };
            match receivers {
                [from] if stored.is_shared => from.freed.push(stored.content),
                _ => {
                    if let BlockContent::Own(block) = stored.content {
                        self.spare.extend(Arc::try_unwrap(block));
                    }
                }
            }
            self.oldest += 1;
            progress = true;
        }
        progress
    }

    /// Channel blocks that a fill is ready to take.
    fn demand(&self, i: usize, ctx: &LaunchContext<'_>) -> usize {
        let end = &self.fills[i];
        let free = self.oldest + self.copies - end.at;
        if free == 0 {
            return 0;
        }
        let flat_end = &ctx.flat.stages[self.number].fills[i];
        let decl = ctx.flat.channels[flat_end.channel].decl;
        let most = max_in_flight(decl.block_bytes());
        match &end.motion {
            Some(motion) if !end.depends_on_grid => {
                let all = motion.n_blocks().saturating_mul(free.min(1 << 20) as i64) - end.moved;
                (all.max(0) as usize).min(most)
            }
            // How many there will be is known once the first has come.
            _ => 1,
        }
    }

    /// Ends that wait in the middle of something.
    pub(super) fn waiting(&self, senders: &[Sender<'_>], ctx: &LaunchContext<'_>) -> Vec<Waiting> {
        let flat = &ctx.flat.stages[self.number];
        let name = ctx.flat.stage_name(self.number);
        let mut waiting = Vec::new();
        for (end, flat_end) in self.fills.iter().zip(&flat.fills) {
            let channel = ctx.flat.channel_name(flat_end.channel);
            let begun = self.blocks.get((end.at - self.oldest) as usize);
            if end.moved > 0 || begun.is_some() {
                let total = end.motion.as_ref().map_or(0, Motion::n_blocks);
                waiting.push(Waiting {
                    who: format!("stage `{name}`, block {}", end.at),
                    site: Site::default(),
                    what: format!(
                        "waits for a block of `{channel}` to fill it ({} of {total} came)",
                        end.moved
                    ),
                });
            }
        }
        for ((end, flat_end), to) in self.drains.iter().zip(&flat.drains).zip(senders) {
            let full = (self.blocks.get((end.oldest() - self.oldest) as usize))
                .is_some_and(|block| block.n_filled == self.fills.len());
            if full && to.outbox.len() >= to.room {
                let channel = ctx.flat.channel_name(flat_end.channel);
                waiting.push(Waiting {
                    who: format!("stage `{name}`, block {}", end.oldest()),
                    site: Site::default(),
                    what: format!(
                        "waits for room in `{channel}` to drain it ({} blocks sent)",
                        to.n_gone()
                    ),
                });
            }
        }
        waiting
    }

    /// Blocks that are still here.
    pub(super) fn n_blocks(&self) -> usize {
        self.blocks.len()
    }
}
