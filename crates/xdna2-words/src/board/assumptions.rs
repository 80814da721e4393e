//! Facts that no source states, and how to find them out.

/// A point that the board, or the writer of streams, had to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// Its name.
    pub name: &'static str,
    /// The assumption.
    pub what: &'static str,
    /// The program that would settle it on hardware.
    pub probe: &'static str,
}

/// All assumptions. `docs/silicon.md` lists the same.
pub const ASSUMPTIONS: [Assumption; 22] = [
    Assumption {
        name: "queue-counts-running",
        what: "The task that runs counts among the four of a channel's queue.",
        probe: "Push five tasks to a shim channel that waits for words; read the status's size and overflow bits.",
    },
    Assumption {
        name: "queue-status",
        what: "The size in a channel's status counts the task that runs: a queue that takes no more says 4.",
        probe: "Push four tasks to a shim channel that waits for words; read the status.",
    },
    Assumption {
        name: "settled-start",
        what: "Cores and DMA that a configuration starts stand still, or have long been at work, before a sequence's first command. It is used where that sequence writes memories or locks of tiles.",
        probe: "A core that stores to a word after a loop of 1,000 to 1,000,000 turns, and a sequence that writes the same word first.",
    },
    Assumption {
        name: "zero-memory",
        what: "Memory of a tile that nothing has set holds anything; zeros only where `--zero-memory` says so.",
        probe: "A memory tile's channel that sends a block which nothing wrote, as the first program behind a load of its configuration.",
    },
    Assumption {
        name: "lock-at-once",
        what: "A channel with a task takes the lock that its descriptor begins with as soon as the lock allows it, however slow its words are.",
        probe: "A memory tile's lock of 4 that four channels take 1 of in turn, one of them held up by its stream: whether another ever takes 2.",
    },
    Assumption {
        name: "lost-token",
        what: "One token of a core or a memory tile that has no way stays before the tile's switch, and the channel goes on.",
        probe: "A core's channel with two tasks and no way for tokens, the first with one: whether the second runs.",
    },
    Assumption {
        name: "control-answer",
        what: "A control port takes what comes at once, and sends an answer when its whole way is free.",
        probe: "Reads of four words each by control packets to a shim channel without a task; the number after which the sender stands still.",
    },
    Assumption {
        name: "circuit-buffer",
        what: "A circuit holds 8 words between source and sink, as a packet stream was measured to.",
        probe: "Send 4 to 16 words to a channel without a task, poll the sender's status for an idle channel.",
    },
    Assumption {
        name: "packet-arbiters",
        what: "A packet takes the arbiters of its way one after the other, a switch a turn, and holds each to its last word.",
        probe: "Two packet streams that share a first and a second arbiter in opposite order; it hangs now and then, or never.",
    },
    Assumption {
        name: "packet-tail",
        what: "Of the 8 words that a packet's way buffers, 5 stand behind the arbiter at the receiver, as measured from a memory tile to a core, whatever the receiver is.",
        probe: "Two packet streams that share the arbiter at a shim or memory tile; the first has 4 to 9 words too many for its receiver.",
    },
    Assumption {
        name: "out-of-order-bits",
        what: "Bits 5 to 10 of a packet's header are the number of the descriptor that a channel out of order takes; the header is none of its words.",
        probe: "Two descriptors out of order; send to the second, then read a header that another channel keeps.",
    },
    Assumption {
        name: "release-zero",
        what: "A release value of 0 releases nothing; there is no bit that enables a release.",
        probe: "A descriptor with release value 0 on a lock of 63; read the lock and its overflow bit.",
    },
    Assumption {
        name: "repeat-whole-chain",
        what: "A task's repeat starts its chain again from the first descriptor.",
        probe: "A chain of two descriptors of different length, repeated once; compare the bytes.",
    },
    Assumption {
        name: "token-after-repeats",
        what: "A task sends its token once, after its last execution.",
        probe: "A task with repeat 3 and a token; wait for two tokens, and see the second wait hang.",
    },
    Assumption {
        name: "token-south-0",
        what: "Firmware takes tokens from South 0 of the shim that they arrive at, as mlir-aie's control overlay routes them.",
        probe: "One shim copy with its token routed to South 0, then to South 1.",
    },
    Assumption {
        name: "channel-reset",
        what: "Bit 1 of a channel's control drops its tasks on cores and memory tiles, and 0 lets it take new ones.",
        probe: "Queue a task that waits for a lock, reset, raise the lock, and see that nothing moves.",
    },
    Assumption {
        name: "shim-drained",
        what: "A shim's channels are idle when a stream begins; they have no reset.",
        probe: "Poll their status at the beginning of a stream.",
    },
    Assumption {
        name: "cascade-buffer",
        what: "A cascade link holds one value of 512 bits that the receiver has not taken.",
        probe: "A core that sends n values to one that never takes any; the largest n for which it ends.",
    },
    Assumption {
        name: "core-program",
        what: "A core started from reset runs what its program memory holds from address 0; here a tile kernel stands for it.",
        probe: "A core that only ends (`done`), started twice; poll its status.",
    },
    Assumption {
        name: "patch-sets",
        what: "A patch sets the address in the descriptor, which must have been written before: a test of mlir-aie patches one four times.",
        probe: "A shim copy with a base of 64 bytes and a patch of 64 more; compare the bytes.",
    },
    Assumption {
        name: "ddr-aperture",
        what: "A shim's DMA reaches memory of the host at its device address plus 0x80000000, as XRT's loader of ELF files writes it.",
        probe: "One shim copy with and one without the sum; the wrong one faults or hangs.",
    },
    Assumption {
        name: "firmware-opcode-22",
        what: "Firmware of protocol 6.15 and later takes a whole array's configuration as one stream of opcode 22.",
        probe: "Any DMA-only stream.",
    },
];
