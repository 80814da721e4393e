//! Waits for a place in a channel's queue, as mlir-aie's passes insert them since September 2026
//! (`enforce-queue-depth`, on by default there).
//!
//! Hardware drops a task that finds the queue full. Whether it does depends on how fast the channel is, so every task
//! that may is preceded by a wait.

use super::sequence::SequenceCommand;
use crate::syntax::Location;
use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::txn::TxnOperation;
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::{BTreeMap, VecDeque};

/// Tasks of a queue.
const DEPTH: usize = 4;
/// The bit of a channel's status for a full queue.
const FULL: u32 = 1 << 22;

type Commands = Vec<(Location, SequenceCommand)>;

/// Adds the waits that tasks of `dma_start_task` and `dma_memcpy_nd` need. Tasks that a design pushes word by word are
/// left alone.
pub(super) fn with_waits(commands: Commands) -> Commands {
    // By channel: whether each task that may be in its queue has a token.
    let mut queues: BTreeMap<ChannelAt, VecDeque<bool>> = BTreeMap::new();
    let mut all = Vec::with_capacity(commands.len());
    for (at, command) in commands {
        match &command {
            SequenceCommand::Push { channel, task } => {
                let queue = queues.entry(*channel).or_default();
                if queue.len() >= DEPTH {
                    all.push((at, wait(*channel)));
                    queue.pop_front();
                }
                queue.push_back(task.token);
            }
            // A token shows that its task has ended, and all before it.
            SequenceCommand::Await(channel) => {
                let queue = queues.entry(*channel).or_default();
                if let Some(ended) = queue.iter().position(|&token| token) {
                    queue.drain(..=ended);
                }
            }
            _ => {}
        }
        all.push((at, command));
    }
    all
}

fn wait(channel: ChannelAt) -> SequenceCommand {
    let kind = BlockKind::Status(channel.direction);
    let offset = register::offset(channel.tile.kind(), kind, channel.number.into());
    let operation = TxnOperation::MaskPoll {
        address: channel.tile.address(offset.unwrap_or(0)).into(),
        value: 0,
        mask: FULL,
        busy: false,
    };
    SequenceCommand::Raw {
        operation,
        argument: None,
        push: None,
        token: false,
    }
}
