//! The two ends of a channel, each owned by one actor, so that actors run in parallel without
//! sharing. Blocks and room travel between them at the end of a round.

use super::block::{BlockContent, ByteBlock, Parcel};
use super::motion::Motion;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that a channel between two DMA engines may have under way, at least one block. Its sink says how much it can
/// take, and this bounds how much of that is requested at once.
const IN_FLIGHT_BYTES: u64 = 4 << 20;

/// Most blocks of a channel that a DMA sink requests at once.
pub(super) fn max_in_flight(block_bytes: u64) -> usize {
    (IN_FLIGHT_BYTES / block_bytes.max(1)).clamp(1, 256) as usize
}

/// The source end of a channel.
#[derive(Debug)]
pub(super) struct Sender<'p> {
    pub(super) channel: usize,
    pub(super) block_bytes: usize,
    /// Buffers of a core's end. A DMA engine has none: it reads its own memory when the sink has
    /// room.
    pub(super) buffers: Option<usize>,
    /// Blocks that `new` gave and `put` has not taken back.
    pub(super) held: usize,
    /// Blocks the sink still has of buffers it shares with this end.
    pub(super) beyond: usize,
    /// Blocks every sink can take.
    pub(super) room: usize,
    /// Blocks a DMA engine may make before the sinks have room, to save the host a round. They are copies of data that
    /// its memory still holds: they count as sent when there is room.
    pub(super) ahead: usize,
    pub(super) outbox: VecDeque<Parcel<'p>>,
    /// Blocks sent so far, with those made ahead.
    pub(super) sent: u64,
    /// How sinks that are cores store the stream, unless in order.
    pub(super) reorder: Option<Motion>,
    pub(super) spare: Vec<ByteBlock>,
}

impl<'p> Sender<'p> {
    pub(super) fn new(channel: usize, block_bytes: usize, buffers: Option<usize>) -> Sender<'p> {
        Sender {
            channel,
            block_bytes,
            buffers,
            held: 0,
            beyond: 0,
            room: 0,
            ahead: 0,
            outbox: VecDeque::new(),
            sent: 0,
            reorder: None,
            spare: Vec::new(),
        }
    }

    /// Whether another block can be begun.
    pub(super) fn has_room(&self) -> bool {
        match self.buffers {
            Some(buffers) => self.held + self.outbox.len() + self.beyond < buffers,
            None => self.outbox.len() < self.room + self.ahead,
        }
    }

    /// Blocks made that the sinks have no room for.
    pub(super) fn n_ahead(&self) -> usize {
        self.outbox.len().saturating_sub(self.room)
    }

    /// Blocks sent that the sinks have, or have room for.
    pub(super) fn n_gone(&self) -> u64 {
        self.sent - self.n_ahead() as u64
    }

    /// A buffer for a block, with undefined content.
    pub(super) fn buffer(&mut self) -> ByteBlock {
        self.spare
            .pop()
            .unwrap_or_else(|| ByteBlock::new(self.block_bytes))
    }

    /// Sends a block whose content is in stream order.
    pub(super) fn send(&mut self, block: BlockContent<'p>, point: u64) {
        let block = match &self.reorder {
            None => block,
            Some(motion) => {
                let mut stored =
                    (self.spare.pop()).unwrap_or_else(|| ByteBlock::new(self.block_bytes));
                stored.poison();
                motion.scatter(0, stored.bytes_mut(), 0, block.bytes());
                self.recycle(block);
                BlockContent::Own(Arc::new(stored))
            }
        };
        self.outbox.push_back(Parcel { block, point });
        self.sent += 1;
    }

    /// Sends a buffer whose content is in stream order.
    pub(super) fn send_own(&mut self, block: ByteBlock, point: u64) {
        self.send(BlockContent::Own(Arc::new(block)), point);
    }

    /// Takes a buffer back when it has no other reader.
    pub(super) fn recycle(&mut self, block: BlockContent<'_>) {
        if let BlockContent::Own(block) = block
            && let Ok(block) = Arc::try_unwrap(block)
            && block.len() == self.block_bytes
        {
            self.spare.push(block);
        }
    }
}

/// A sink end of a channel.
#[derive(Debug)]
pub(super) struct Receiver<'p> {
    pub(super) channel: usize,
    /// Buffers of a core's end.
    pub(super) buffers: Option<usize>,
    /// Blocks that a DMA engine is ready to take.
    pub(super) demand: usize,
    pub(super) inbox: VecDeque<Parcel<'p>>,
    /// Blocks that `get` took and `free` has not given back.
    pub(super) borrowed: usize,
    /// Blocks received so far.
    pub(super) received: u64,
    /// Blocks done with, for the sender to use again.
    pub(super) freed: Vec<BlockContent<'p>>,
}

impl<'p> Receiver<'p> {
    pub(super) fn new(channel: usize, buffers: Option<usize>) -> Receiver<'p> {
        Receiver {
            channel,
            buffers,
            demand: 0,
            inbox: VecDeque::new(),
            borrowed: 0,
            received: 0,
            freed: Vec::new(),
        }
    }

    /// Blocks it can take.
    pub(super) fn room(&self) -> usize {
        match self.buffers {
            Some(buffers) => buffers.saturating_sub(self.inbox.len() + self.borrowed),
            None => self.demand.saturating_sub(self.inbox.len()),
        }
    }

    /// Blocks it has, borrowed or not.
    pub(super) fn holds(&self) -> usize {
        self.inbox.len() + self.borrowed
    }
}
