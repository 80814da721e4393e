//! RegisterAt blocks of each kind of tile.
//!
//! Source: aie-rt `xaie2pgbl_params.h` and `xaie2pgbl_reginit.c`; the shim's multiplexers mlir-aie's
//! aie-sim `ShimMux.cpp`; the reset bit of a channel mlir-aie's `aie-lower-dma-channel-reset` pass.

use crate::descriptor;
use crate::field::{Layout, WordField};
use crate::tile::{Direction, TileKind};

/// Kind of a block of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// L1 or L2.
    DataMemory,
    /// A core's code.
    ProgramMemory,
    /// Buffer descriptors.
    Descriptor,
    /// Control of DMA channels.
    Control(Direction),
    /// Task queues of DMA channels.
    Queue(Direction),
    /// Status of DMA channels, to read.
    Status(Direction),
    /// Values of locks.
    Lock,
    /// Requests to locks.
    LockRequest,
    /// Ports out of the stream switch.
    Master,
    /// Ports into the stream switch.
    Slave,
    /// Packet slots of the ports into the stream switch.
    Slot,
    /// Sources of the ports from the south of a shim.
    Mux,
    /// Targets of the ports to the south of a shim.
    Demux,
    /// The word that padding sends.
    PadValue,
    /// A core's run and reset bits.
    CoreControl,
    /// A core's state, to read.
    CoreStatus,
    /// Where the accumulator cascade comes from and goes to.
    Cascade,
    /// Counters, timers, marks or traces of events, or a core's view of registers. Nothing that moves depends on it.
    Observer(&'static str),
    /// Known by name, not modelled.
    Other(&'static str),
}

/// A run of registers of the same kind.
#[derive(Clone, Copy, Debug)]
pub struct RegisterBlock {
    /// Its kind.
    pub kind: BlockKind,
    /// Offset of the first in the tile.
    pub base: u32,
    /// Bytes from one to the next.
    pub pitch: u32,
    /// Number of registers.
    pub count: u32,
    /// Words of one.
    pub n_words: u32,
    /// Its fields, if it has any.
    pub layout: Option<&'static Layout>,
}

/// A register: block, number in it, word of it.
#[derive(Clone, Copy, Debug)]
pub struct RegisterAt {
    /// The block.
    pub block: &'static RegisterBlock,
    /// Number of the register in the block.
    pub number: u32,
    /// Number of the word in the register.
    pub word: u32,
}

macro_rules! register {
    ($(#[$doc:meta])* $name:ident, $text:literal, [$(($field:ident, $hi:literal, $lo:literal)),* $(,)?]) => {
        $(#[$doc])*
        pub static $name: Layout = Layout {
            name: $text,
            n_words: 1,
            fields: &[$((WordField::$field, &[(0, $hi, $lo)])),*],
        };
    };
}

register!(
    /// Control of a channel of a core or memory tile.
    CONTROL, "channel control", [(ControllerId, 15, 8), (OutOfOrder, 3, 3), (Reset, 1, 1)]
);
register!(
    /// Control of a shim's channel, which has no reset.
    SHIM_CONTROL, "channel control", [(ControllerId, 15, 8), (OutOfOrder, 3, 3)]
);
register!(
    /// A task for a memory tile's channel.
    MEMORY_QUEUE, "task", [(StartDescriptor, 5, 0), (Repeat, 23, 16), (Token, 31, 31)]
);
register!(
    /// A task for a channel of a core or shim.
    QUEUE, "task", [(StartDescriptor, 3, 0), (Repeat, 23, 16), (Token, 31, 31)]
);
register!(
    /// A lock's value.
    LOCK, "lock", [(LockValue, 5, 0)]
);
register!(
    /// A port out of a switch. Circuit: the configuration is the slave's index. Packets: bits 2:0 the arbiter, 6:3 the
    /// mask of its four selections that are taken.
    MASTER, "master", [(Enable, 31, 31), (Packet, 30, 30), (DropHeader, 7, 7), (Configuration, 6, 0)]
);
register!(
    /// A port into a switch.
    SLAVE, "slave", [(Enable, 31, 31), (Packet, 30, 30)]
);
register!(
    /// A packet slot: ids that agree with `id` in the bits of `mask` go to the arbiter's selection.
    SLOT, "slot", [(SlotId, 28, 24), (SlotMask, 20, 16), (Enable, 8, 8), (Msel, 5, 4), (Arbiter, 2, 0)]
);
register!(
    /// Sources of shim ports from the south: 0 PL, 1 DMA, 2 NoC.
    MUX, "mux", [(Port2, 9, 8), (Port3, 11, 10), (Port6, 13, 12), (Port7, 15, 14)]
);
register!(
    /// Targets of shim ports to the south: 0 PL, 1 DMA, 2 NoC.
    DEMUX, "demux", [(Port2, 5, 4), (Port3, 7, 6), (Port4, 9, 8), (Port5, 11, 10)]
);
register!(
    /// A core's control.
    CORE_CONTROL, "core control", [(Enable, 0, 0), (Reset, 1, 1)]
);
register!(
    /// The cascade: input 0 from the north, 1 from the west; output 0 to the south, 1 to the east.
    CASCADE, "cascade", [(CascadeInput, 0, 0), (CascadeOutput, 1, 1)]
);
register!(
    /// A word without fields.
    WORD, "word", [(Value, 31, 0)]
);

const fn block(
    kind: BlockKind,
    (base, pitch, count): (u32, u32, u32),
    n_words: u32,
    layout: Option<&'static Layout>,
) -> RegisterBlock {
    RegisterBlock {
        kind,
        base,
        pitch,
        count,
        n_words,
        layout,
    }
}

use BlockKind as B;
use Direction::{Mm2s, S2mm};

/// Timers, generated and broadcast events, trace units and their events: the same offsets from a base in each module.
const fn events(base: u32) -> RegisterBlock {
    block(B::Observer("events and trace"), (base, 4, 0x180), 1, None)
}

const fn performance(base: u32) -> RegisterBlock {
    block(
        B::Observer("performance counters"),
        (base, 4, 0x40),
        1,
        None,
    )
}

const fn watched_ports(base: u32) -> RegisterBlock {
    block(
        B::Observer("ports that events watch"),
        (base, 4, 2),
        1,
        None,
    )
}

static SHIM_BLOCKS: [RegisterBlock; 20] = [
    block(B::Lock, (0x14000, 0x10, 16), 1, Some(&LOCK)),
    block(
        B::Descriptor,
        (0x1D000, 0x20, 16),
        8,
        Some(&descriptor::SHIM),
    ),
    block(B::Control(S2mm), (0x1D200, 8, 2), 1, Some(&SHIM_CONTROL)),
    block(B::Queue(S2mm), (0x1D204, 8, 2), 1, Some(&QUEUE)),
    block(B::Control(Mm2s), (0x1D210, 8, 2), 1, Some(&SHIM_CONTROL)),
    block(B::Queue(Mm2s), (0x1D214, 8, 2), 1, Some(&QUEUE)),
    block(B::Status(S2mm), (0x1D220, 4, 2), 1, None),
    block(B::Status(Mm2s), (0x1D228, 4, 2), 1, None),
    block(B::Mux, (0x1F000, 4, 1), 1, Some(&MUX)),
    block(B::Demux, (0x1F004, 4, 1), 1, Some(&DEMUX)),
    block(B::Master, (0x3F000, 4, 22), 1, Some(&MASTER)),
    block(B::Slave, (0x3F100, 4, 23), 1, Some(&SLAVE)),
    block(B::Slot, (0x3F200, 4, 92), 1, Some(&SLOT)),
    block(B::Other("deterministic merge"), (0x3F800, 4, 8), 1, None),
    block(B::LockRequest, (0x40000, 0x400, 16), 256, None),
    performance(0x31000),
    events(0x34000),
    watched_ports(0x3FF00),
    block(B::Other("column clock"), (0xFFF20, 4, 1), 1, None),
    block(B::Other("column reset"), (0xFFF28, 4, 1), 1, None),
];

static MEMORY_BLOCKS: [RegisterBlock; 19] = [
    block(B::DataMemory, (0, 4, 512 << 8), 1, Some(&WORD)),
    block(
        B::Descriptor,
        (0xA0000, 0x20, 48),
        8,
        Some(&descriptor::MEMORY),
    ),
    block(B::Control(S2mm), (0xA0600, 8, 6), 1, Some(&CONTROL)),
    block(B::Queue(S2mm), (0xA0604, 8, 6), 1, Some(&MEMORY_QUEUE)),
    block(B::Control(Mm2s), (0xA0630, 8, 6), 1, Some(&CONTROL)),
    block(B::Queue(Mm2s), (0xA0634, 8, 6), 1, Some(&MEMORY_QUEUE)),
    block(B::Status(S2mm), (0xA0660, 4, 6), 1, None),
    block(B::Status(Mm2s), (0xA0680, 4, 6), 1, None),
    block(B::PadValue, (0xA06E0, 4, 6), 1, Some(&WORD)),
    block(B::Master, (0xB0000, 4, 17), 1, Some(&MASTER)),
    block(B::Slave, (0xB0100, 4, 18), 1, Some(&SLAVE)),
    block(B::Slot, (0xB0200, 4, 72), 1, Some(&SLOT)),
    block(B::Other("deterministic merge"), (0xB0800, 4, 8), 1, None),
    performance(0x91000),
    events(0x94000),
    block(
        B::Observer("channels that events watch"),
        (0xA06A0, 4, 1),
        1,
        None,
    ),
    watched_ports(0xB0F00),
    block(B::Lock, (0xC0000, 0x10, 64), 1, Some(&LOCK)),
    block(B::LockRequest, (0xD0000, 0x400, 64), 256, None),
];

static CORE_BLOCKS: [RegisterBlock; 27] = [
    block(B::DataMemory, (0, 4, 64 << 8), 1, Some(&WORD)),
    block(B::ProgramMemory, (0x20000, 4, 16 << 8), 1, Some(&WORD)),
    block(
        B::Descriptor,
        (0x1D000, 0x20, 16),
        6,
        Some(&descriptor::CORE),
    ),
    block(B::Control(S2mm), (0x1DE00, 8, 2), 1, Some(&CONTROL)),
    block(B::Queue(S2mm), (0x1DE04, 8, 2), 1, Some(&QUEUE)),
    block(B::Control(Mm2s), (0x1DE10, 8, 2), 1, Some(&CONTROL)),
    block(B::Queue(Mm2s), (0x1DE14, 8, 2), 1, Some(&QUEUE)),
    block(B::Status(S2mm), (0x1DF00, 4, 2), 1, None),
    block(B::Status(Mm2s), (0x1DF10, 4, 2), 1, None),
    block(B::Lock, (0x1F000, 0x10, 16), 1, Some(&LOCK)),
    block(B::Other("lock overflow"), (0x1F120, 4, 1), 1, None),
    block(B::Other("lock underflow"), (0x1F128, 4, 1), 1, None),
    performance(0x11000),
    events(0x14000),
    performance(0x31500),
    block(B::CoreControl, (0x32000, 4, 1), 1, Some(&CORE_CONTROL)),
    block(B::CoreStatus, (0x32004, 4, 1), 1, None),
    block(B::Observer("processor bus"), (0x32038, 4, 1), 1, None),
    events(0x34000),
    block(B::Cascade, (0x36060, 4, 1), 1, Some(&CASCADE)),
    block(B::Master, (0x3F000, 4, 23), 1, Some(&MASTER)),
    block(B::Slave, (0x3F100, 4, 25), 1, Some(&SLAVE)),
    block(B::Slot, (0x3F200, 4, 100), 1, Some(&SLOT)),
    watched_ports(0x3FF00),
    block(B::LockRequest, (0x40000, 0x400, 16), 256, None),
    block(B::Other("module clocks"), (0x60000, 4, 1), 1, None),
    block(B::Other("module resets"), (0x60010, 4, 1), 1, None),
];

/// The blocks of a kind of tile.
pub fn blocks(kind: TileKind) -> &'static [RegisterBlock] {
    match kind {
        TileKind::Shim => &SHIM_BLOCKS,
        TileKind::Memory => &MEMORY_BLOCKS,
        TileKind::Core => &CORE_BLOCKS,
    }
}

/// The register at an offset of a tile.
pub fn find(kind: TileKind, offset: u32) -> Option<RegisterAt> {
    blocks(kind).iter().find_map(|block| {
        let from = offset.checked_sub(block.base)?;
        let (number, byte) = (from / block.pitch, from % block.pitch);
        let here = number < block.count && byte % 4 == 0 && byte / 4 < block.n_words;
        here.then_some(RegisterAt {
            block,
            number,
            word: byte / 4,
        })
    })
}

/// Offset of a register of a kind of tile; `None` if there is no such block or number.
pub fn offset(kind: TileKind, of: BlockKind, number: u32) -> Option<u32> {
    let block = blocks(kind).iter().find(|block| block.kind == of)?;
    (number < block.count).then(|| block.base + number * block.pitch)
}

impl BlockKind {
    /// Its name in text, with the register's number.
    pub fn name(self, number: u32) -> String {
        let numbered = |name: &str| format!("{name} {number}");
        match self {
            B::DataMemory => format!("data memory {:#07x}", number * 4),
            B::ProgramMemory => format!("program memory {:#06x}", number * 4),
            B::Descriptor => numbered("descriptor"),
            B::Control(direction) => format!("{} {number} control", direction.name()),
            B::Queue(direction) => format!("{} {number} queue", direction.name()),
            B::Status(direction) => format!("{} {number} status", direction.name()),
            B::Lock => numbered("lock"),
            B::LockRequest => numbered("lock request"),
            B::Master => numbered("master"),
            B::Slave => numbered("slave"),
            B::Slot => format!("slot {} of slave {}", number % 4, number / 4),
            B::Mux => "shim mux".to_owned(),
            B::Demux => "shim demux".to_owned(),
            B::PadValue => numbered("pad value"),
            B::CoreControl => "core control".to_owned(),
            B::CoreStatus => "core status".to_owned(),
            B::Cascade => "cascade".to_owned(),
            B::Observer(name) | B::Other(name) => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every register is found at its own offset, so no blocks overlap.
    #[test]
    fn blocks_do_not_overlap() {
        for kind in [TileKind::Shim, TileKind::Memory, TileKind::Core] {
            for block in blocks(kind) {
                for number in 0..block.count {
                    for word in 0..block.n_words {
                        let at = block.base + number * block.pitch + word * 4;
                        let found = find(kind, at);
                        let found = found.map(|r| (r.block.kind, r.number, r.word));
                        assert_eq!(found, Some((block.kind, number, word)), "{at:#x}");
                    }
                }
                if let Some(layout) = block.layout {
                    assert_eq!(layout.n_words, block.n_words as usize);
                }
            }
            assert!(find(kind, 0x3).is_none() && find(kind, 0xF_FFFC).is_none());
        }
        assert_eq!(offset(TileKind::Shim, B::Queue(Mm2s), 1), Some(0x1D21C));
        assert_eq!(offset(TileKind::Core, B::Descriptor, 6), Some(0x1D0C0));
        assert_eq!(offset(TileKind::Core, B::Descriptor, 16), None);
    }
}
