//! The transaction stream, format 0.1, which firmware executes operation by operation.
//!
//! A stream is a header of four words (rows, generation and version; memory-tile rows and columns;
//! operations; bytes) and its operations. Sources: mlir-aie `include/aie/Runtime/TxnEncoding.h`, aie-rt
//! `xaie_txn.h`. Two writers are known: mlir-aie leaves the columns and rows in an operation's first
//! word empty, aie-rt fills them in and pads mask writes to eight words. Both are read, and written again unchanged.

mod read;

pub use read::{decode, words_of_file};

/// Words of a stream's header.
const HEADER_WORDS: usize = 4;

/// The generation in a header: NPU2.
pub const NPU2: u8 = 4;
/// The generation in a header: NPU1, whose words have the same layout.
pub const NPU1: u8 = 3;

/// The array that a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// Rows, shim and memory tiles among them.
    pub rows: u8,
    /// Generation: [`NPU1`] or [`NPU2`].
    pub generation: u8,
    /// Rows of memory tiles.
    pub memory_rows: u8,
    /// Columns.
    pub columns: u8,
}

impl StreamHeader {
    /// An NPU2 of that many columns.
    pub fn npu2(columns: u8) -> StreamHeader {
        StreamHeader {
            rows: 6,
            generation: NPU2,
            memory_rows: 1,
            columns,
        }
    }
}

/// Parts of an operation beyond its meaning, which firmware does not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Column and row in the first word, as aie-rt writes them (bits 31:8 of the word).
    pub first: u32,
    /// Column and row in the second word, as mlir-aie writes them.
    pub second: u32,
    /// Whether a word of padding follows, as in aie-rt after mask writes.
    pub padded: bool,
}

/// An operation with its hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOperation {
    /// The operation.
    pub operation: TxnOperation,
    /// The other parts of its words.
    pub hints: Hints,
}

/// A request to firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOperation {
    /// Writes a word.
    Write {
        /// The address.
        address: u64,
        /// The value.
        value: u32,
    },
    /// Writes words to consecutive addresses.
    BlockWrite {
        /// Address of the first word.
        address: u32,
        /// The words.
        data: Vec<u32>,
    },
    /// Writes the bits of a mask.
    MaskWrite {
        /// The address.
        address: u64,
        /// The value.
        value: u32,
        /// The bits that are written.
        mask: u32,
    },
    /// Waits until the bits of a mask have a value.
    MaskPoll {
        /// The address.
        address: u64,
        /// The value that is waited for.
        value: u32,
        /// The bits that are compared.
        mask: u32,
        /// Whether the wait has no pauses.
        busy: bool,
    },
    /// Does nothing.
    Noop,
    /// A point where the firmware may switch to another context.
    Preempt {
        /// How much is saved.
        level: u32,
    },
    /// Loads a configuration.
    LoadPdi {
        /// Its number.
        id: u32,
        /// Its bytes.
        size_bytes: u32,
        /// Its address.
        address: u64,
    },
    /// Waits for completion tokens, one of each tile of a rectangle.
    Sync {
        /// 0 S2MM, 1 MM2S.
        direction: u8,
        /// The first column.
        col: u8,
        /// The first row.
        row: u8,
        /// The channel.
        channel: u8,
        /// Columns.
        n_cols: u8,
        /// Rows.
        n_rows: u8,
    },
    /// Adds an argument's address, and a distance, to the address in a shim's descriptor.
    Patch {
        /// The descriptor's second word.
        register: u64,
        /// The argument's number.
        argument: u32,
        /// The distance in bytes.
        plus_bytes: u64,
    },
    /// Copies the host's scratchpad to memory of the firmware.
    CreateScratchpad {
        /// Its layout; 0 is a table of words.
        usage: u8,
        /// Its bytes.
        size_bytes: u32,
        /// Address of the host's scratchpad; the loader sets it.
        address: u64,
    },
    /// Adds a value derived from a word of the scratchpad to an address of 48 bits in two registers.
    UpdateAddress {
        /// The word of the scratchpad.
        entry: u8,
        /// How it is combined with the number.
        function: ScratchpadFunction,
        /// The number.
        number: u32,
        /// The first register.
        register: u32,
    },
    /// An operation of which only the length is known: 0x82 reads registers, 0x83 records a timer,
    /// 0x84 merges waits.
    Raw {
        /// Its number.
        code: u8,
        /// The words after the second.
        data: Vec<u32>,
    },
}

/// The value to add, from a scratchpad's word and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScratchpadFunction {
    /// Their product.
    Multiply,
    /// Their sum.
    Add,
    /// The word less the number.
    Subtract,
}

impl ScratchpadFunction {
    /// All of them, by the numbers that they have in words.
    pub const ALL: [ScratchpadFunction; 3] = [
        ScratchpadFunction::Multiply,
        ScratchpadFunction::Add,
        ScratchpadFunction::Subtract,
    ];

    /// The sign between word and number.
    pub fn sign(self) -> &'static str {
        match self {
            ScratchpadFunction::Multiply => "x",
            ScratchpadFunction::Add => "+",
            ScratchpadFunction::Subtract => "-",
        }
    }
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnStream {
    /// The array that it is for.
    pub header: StreamHeader,
    /// Operations in order.
    pub operations: Vec<StreamOperation>,
}

/// The fault of words that should be a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {word}: {problem}")]
pub struct StreamError {
    /// Position of the word.
    pub word: usize,
    /// Description of the fault.
    pub problem: String,
}

impl From<TxnOperation> for StreamOperation {
    fn from(operation: TxnOperation) -> StreamOperation {
        StreamOperation {
            operation,
            hints: Hints::default(),
        }
    }
}

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

fn bytes(values: [u8; 4]) -> u32 {
    u32::from_le_bytes(values)
}

impl TxnStream {
    /// An empty stream.
    pub fn new(header: StreamHeader) -> TxnStream {
        TxnStream {
            header,
            operations: Vec::new(),
        }
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: TxnOperation) {
        self.operations.push(operation.into());
    }

    /// The words.
    pub fn encode(&self) -> Vec<u32> {
        let h = self.header;
        let mut words = vec![
            bytes([0, 1, h.generation, h.rows]),
            bytes([h.columns, h.memory_rows, 0, 0]),
            self.operations.len() as u32,
            0,
        ];
        for operation in &self.operations {
            operation.append(&mut words);
        }
        words[3] = (words.len() * 4) as u32;
        words
    }

    /// Words that it takes, its header with them.
    pub fn n_words(&self) -> usize {
        let operations = self.operations.iter().map(StreamOperation::n_words);
        HEADER_WORDS + operations.sum::<usize>()
    }
}

impl StreamOperation {
    /// Words that it takes of a stream.
    pub fn n_words(&self) -> usize {
        let mut words = Vec::new();
        self.append(&mut words);
        words.len()
    }

    /// Appends the operation's words.
    fn append(&self, to: &mut Vec<u32>) {
        let Hints {
            first,
            second,
            padded,
        } = self.hints;
        let start = to.len();
        let mut masked = |code: u32, address: u64, value: u32, mask: u32| {
            to.extend([code, second, low(address), high(address), value, mask]);
            to.push(if padded { 32 } else { 28 });
            if padded {
                to.push(0);
            }
        };
        match &self.operation {
            TxnOperation::Write { address, value } => {
                to.extend([0, second, low(*address), high(*address), *value, 24]);
            }
            TxnOperation::BlockWrite { address, data } => {
                to.extend([1, second, *address, (16 + 4 * data.len()) as u32]);
                to.extend(data);
            }
            &TxnOperation::MaskWrite {
                address,
                value,
                mask,
            } => masked(3, address, value, mask),
            &TxnOperation::MaskPoll {
                address,
                value,
                mask,
                busy,
            } => masked(if busy { 7 } else { 4 }, address, value, mask),
            other => other.append_custom(to),
        }
        to[start] |= first << 8;
    }
}

impl TxnOperation {
    /// Writes an operation that has neither hints nor a mask.
    fn append_custom(&self, to: &mut Vec<u32>) {
        match self {
            TxnOperation::Noop => to.push(5),
            TxnOperation::Preempt { level } => to.push(6 | level << 8),
            TxnOperation::LoadPdi {
                id,
                size_bytes,
                address,
            } => to.extend([8 | id << 16, *size_bytes, low(*address), high(*address)]),
            &TxnOperation::Sync {
                direction,
                col,
                row,
                channel,
                n_cols,
                n_rows,
            } => to.extend([
                0x80,
                16,
                bytes([direction, row, col, 0]),
                bytes([0, n_rows, n_cols, channel]),
            ]),
            TxnOperation::Patch {
                register,
                argument,
                plus_bytes,
            } => {
                to.extend([0x81, 48, 0, 0, 0, 0, low(*register), high(*register)]);
                to.extend([*argument, 0, low(*plus_bytes), high(*plus_bytes)]);
            }
            &TxnOperation::CreateScratchpad {
                usage,
                size_bytes,
                address,
            } => to.extend([
                bytes([10, usage, 0, 0]),
                size_bytes,
                low(address),
                high(address),
            ]),
            &TxnOperation::UpdateAddress {
                entry,
                function,
                number,
                register,
            } => to.extend([bytes([12, entry, function as u8, 0]), number, register]),
            TxnOperation::Raw { code, data } => {
                to.extend([u32::from(*code), (8 + 4 * data.len()) as u32]);
                to.extend(data);
            }
            // The caller has written the others.
            _ => {}
        }
    }
}
