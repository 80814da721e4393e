//! Faults that can be injected into the board.

use millrace_xdna2_silicon::amdxdna::{ArrayShape, FakeFaults, NPU2};
use millrace_xdna2_words::register::{self, BlockKind};
use millrace_xdna2_words::tile::{Tile, TileKind};
use millrace_xdna2_words::{TxnOperation, TxnStream};

/// A fault by its name.
pub(super) struct ProbeFault {
    /// Its name.
    pub(super) name: &'static str,
    /// Description of the fault.
    pub(super) summary: &'static str,
    at: FaultAt,
}

/// Place of the fault.
enum FaultAt {
    /// A stream is changed.
    Stream(fn(&mut TxnStream)),
    /// The kernel is another.
    Kernel(fn(&mut FakeFaults)),
}

impl ProbeFault {
    /// Changes a stream, if the fault is there.
    pub(super) fn in_stream(&self, stream: &mut TxnStream) {
        if let FaultAt::Stream(change) = self.at {
            change(stream);
        }
    }

    /// The kernel with the fault, if the fault is there.
    pub(super) fn of_kernel(&self) -> FakeFaults {
        let mut faults = FakeFaults::default();
        if let FaultAt::Kernel(change) = self.at {
            change(&mut faults);
        }
        faults
    }
}

const fn stream(
    name: &'static str,
    summary: &'static str,
    change: fn(&mut TxnStream),
) -> ProbeFault {
    let at = FaultAt::Stream(change);
    ProbeFault { name, summary, at }
}

const fn kernel(
    name: &'static str,
    summary: &'static str,
    change: fn(&mut FakeFaults),
) -> ProbeFault {
    let at = FaultAt::Kernel(change);
    ProbeFault { name, summary, at }
}

/// All faults.
pub(super) const FAULTS: [ProbeFault; 8] = [
    stream("lock", "a lock begins too low: nothing moves", |stream| {
        change(stream, BlockKind::Lock, 0, |_| 0);
    }),
    stream("token", "tokens are not routed to the firmware", |stream| {
        change(stream, BlockKind::Slot, 0, |_| 0);
    }),
    stream("queue", "a fifth task is pushed to a full queue", overflow),
    stream("address", "the result goes elsewhere", misplace),
    kernel(
        "firmware",
        "the firmware lacks commands of opcode 22",
        |faults| {
            faults.protocol = (6, 14);
        },
    ),
    kernel("array", "the NPU is an older one, of 5 columns", |faults| {
        faults.shape = ArrayShape { cols: 5, ..NPU2 };
    }),
    kernel("lost", "the device disappears at the 30th call", |faults| {
        faults.gone_from = Some(30);
    }),
    kernel("endless", "no command ever ends", |faults| {
        faults.is_endless = true;
    }),
];

/// Pushes the last task before the first wait four times more.
fn overflow(stream: &mut TxnStream) {
    let is_wait = |op: &millrace_xdna2_words::txn::StreamOperation| {
        matches!(op.operation, TxnOperation::Sync { .. })
    };
    if let Some(first) = stream.operations.iter().position(is_wait) {
        let push = stream.operations[..first].last().cloned();
        let pushes = std::iter::repeat_n(push, 4).flatten();
        stream.operations.splice(first..first, pushes);
    }
}

/// Moves the write by 64 bytes.
fn misplace(stream: &mut TxnStream) {
    for op in &mut stream.operations {
        if let TxnOperation::Patch {
            argument: 1,
            plus_bytes,
            ..
        } = &mut op.operation
        {
            *plus_bytes ^= 64;
        }
    }
}

/// Changes the words written to a register of any tile.
fn change(stream: &mut TxnStream, kind: BlockKind, number: u32, new: impl Fn(u32) -> u32) {
    let is_it = |address: u64| {
        let found = u32::try_from(address).ok().and_then(Tile::of_address);
        found.is_some_and(|(tile, offset)| {
            register::offset(tile.kind(), kind, number) == Some(offset)
                && (kind != BlockKind::Slot || tile.kind() == TileKind::Shim)
        })
    };
    for op in &mut stream.operations {
        match &mut op.operation {
            TxnOperation::Write { address, value } if is_it(*address) => *value = new(*value),
            TxnOperation::BlockWrite { address, data } if is_it((*address).into()) => {
                data[0] = new(data[0]);
            }
            _ => {}
        }
    }
}
