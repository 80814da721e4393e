//! Herds: rectangles of cores that run the same program.

use super::Affine;
use millrace_npu::Element;

/// The same core program on a rectangle of compute tiles. Runs once for every grid point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Herd {
    /// Name, unique in the launch.
    pub name: String,
    /// First column.
    pub col: u32,
    /// First row (0 is next to the memory tiles).
    pub row: u32,
    /// Columns, `x` counting them from 0.
    pub cols: u32,
    /// Rows, `y` counting them from 0.
    pub rows: u32,
    /// L1 buffers of each core, in addition to those of its channel ends. They keep their content within a launch.
    pub locals: Vec<Local>,
    /// The program.
    pub body: Vec<Op>,
}

/// A buffer in L1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Name, unique in the herd.
    pub name: String,
    /// Type of one element.
    pub element: Element,
    /// Shape.
    pub shape: Vec<u32>,
}

/// One step of a core program. Blocks are named within the body by small numbers (`b0`, `b1`, …);
/// channel indices and counts are in `x`, `y`, the grid and the enclosing loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Runs the body `count` times; its variable is the one of its nesting depth.
    Loop {
        /// Number of turns.
        count: Affine,
        /// The steps.
        body: Vec<Op>,
    },
    /// Runs one of two bodies.
    If {
        /// Compared with zero.
        value: Affine,
        /// The comparison.
        condition: Condition,
        /// Steps if it holds.
        then: Vec<Op>,
        /// Steps if it does not.
        otherwise: Vec<Op>,
    },
    /// Waits for a full block of an incoming channel and borrows it (acquire to consume).
    Get {
        /// Index in the launch's channels.
        channel: usize,
        /// Index in the bundle.
        index: Vec<Affine>,
        /// The block's name from here on.
        block: u8,
    },
    /// Gives a borrowed block back (release a consumed one).
    Free {
        /// The block.
        block: u8,
    },
    /// Waits for an empty block of an outgoing channel (acquire to produce). Its content is
    /// undefined; the virtual device fills it with a poison value.
    New {
        /// Index in the launch's channels.
        channel: usize,
        /// Index in the bundle.
        index: Vec<Affine>,
        /// The block's name from here on.
        block: u8,
    },
    /// Sends a block that `New` gave (release a produced one).
    Put {
        /// The block.
        block: u8,
    },
    /// Calls a tile kernel. It is a row of the table of tile kernels, which lists its operands, dimensions and scalars.
    Call {
        /// The kernel's name, which also names its object code (`matmul_bf16_f32.peano`).
        kernel: String,
        /// Dimensions fixed at compile time (`[m, n, k]`, `[rows, cols]`, …).
        dims: Vec<u32>,
        /// Buffers, inputs first, in the order of the kernel's row.
        operands: Vec<Operand>,
        /// Scalars computed by the core (positions for masks, counts).
        scalars: Vec<Affine>,
        /// Constants compiled in (an epsilon, a scale), as bits of an `f32`.
        constants: Vec<u32>,
    },
}

/// Operand that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A local buffer by index.
    Local(usize),
    /// A block by name.
    Block(u8),
}

/// A comparison with zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Equal to zero.
    Zero,
    /// Not zero.
    NotZero,
    /// Below zero.
    Negative,
    /// Zero or above.
    NotNegative,
}

impl Condition {
    /// Whether it holds for a value.
    pub fn holds(self, value: i64) -> bool {
        match self {
            Condition::Zero => value == 0,
            Condition::NotZero => value != 0,
            Condition::Negative => value < 0,
            Condition::NotNegative => value >= 0,
        }
    }
}

impl Local {
    /// Bytes it takes.
    pub fn size_bytes(&self) -> u64 {
        self.shape.iter().map(|&d| u64::from(d)).product::<u64>() * self.element.size_bytes()
    }
}
