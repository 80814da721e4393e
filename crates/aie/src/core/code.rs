//! A program as instructions over numbered values.

use super::kernel::Kernel;
use super::tile_kernel::TileFunction;
use super::value::{CoreValue, MemoryView, Number};
use crate::syntax::Location;
use std::rc::Rc;

/// A number or a value, as an index is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    Fixed(i64),
    Slot(usize),
}

/// One step of a program. Operands and results are slots of values.
#[derive(Clone, Debug)]
pub(crate) enum Instruction {
    Constant(usize, CoreValue),
    /// Values at once: each is read before any is written.
    Copy(Vec<(usize, usize)>),
    Compute {
        name: String,
        predicate: String,
        types: (Number, Number),
        to: usize,
        from: Vec<usize>,
    },
    Jump(usize),
    /// Jumps where a value is 0.
    Unless(usize, usize),
    /// Jumps where one is not less than another.
    UnlessLess(usize, usize, usize),
    Allocate(usize, Vec<u64>, Number, Option<Rc<Vec<u8>>>),
    Load(usize, usize, Vec<Term>),
    Store(usize, usize, Vec<Term>),
    /// So many elements in a row.
    LoadVector(usize, usize, Vec<Term>, usize),
    StoreVector(usize, usize, Vec<Term>),
    Splat(usize, usize, usize),
    Reduce(usize, usize, String, Number),
    Extract(usize, usize, Vec<Term>),
    /// A value into a vector at a place.
    Insert(usize, (usize, usize), Vec<Term>),
    /// Elements of two vectors by their numbers.
    Shuffle(usize, (usize, usize), Vec<usize>),
    /// The bits of a vector as elements of another type.
    Bitcast(usize, usize, (Number, Number)),
    /// A view of another: offsets, sizes, strides; with `true` in elements of the memory itself.
    View(usize, usize, [Vec<Term>; 3], bool),
    Reshape(usize, usize, Vec<u64>),
    Dimension(usize, usize, usize),
    CopyView(usize, usize),
    /// Memory of the program's own, which it has from the first time on.
    Scratch(usize, Vec<u64>, Number),
    /// The elements of a view as a tensor.
    TakeTensor(usize, usize),
    /// A tensor's elements into a view.
    PutTensor(usize, usize),
    /// Waits for a lock.
    Acquire(LockAt, LockAmount),
    Release(LockAt, u8),
    /// Objects of a FIFO's end.
    AcquireObjects(usize, usize, u64),
    ReleaseObjects(usize, u64),
    Object(usize, usize, usize),
    Call(&'static Kernel, Vec<usize>),
    /// A tile kernel of Millrace's own.
    CallTile(Rc<TileFunction>, Vec<usize>),
    /// Sends a vector of 512 bits down the cascade.
    PutCascade(usize, Number),
    /// Takes that many elements from the cascade.
    GetCascade(usize, Number),
    End,
}

impl Instruction {
    /// Whether it changes values of the program alone.
    pub(crate) fn is_within(&self) -> bool {
        matches!(
            self,
            Instruction::Constant(..)
                | Instruction::Copy(..)
                | Instruction::Compute { .. }
                | Instruction::Jump(..)
                | Instruction::Unless(..)
                | Instruction::UnlessLess(..)
        )
    }

    /// Whether other actors see that it happens: it touches locks or the cascade, or ends the program.
    pub(crate) fn is_seen_by_others(&self) -> bool {
        matches!(
            self,
            Instruction::Acquire(..)
                | Instruction::Release(..)
                | Instruction::AcquireObjects(..)
                | Instruction::ReleaseObjects(..)
                | Instruction::PutCascade(..)
                | Instruction::GetCascade(..)
                | Instruction::End
        )
    }
}

/// Requested amount of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAmount {
    /// So much, or more.
    AtLeast(u8),
    /// Just so much.
    Equal(u8),
}

impl std::fmt::Display for LockAmount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LockAmount::AtLeast(amount) => write!(f, "{amount}"),
            LockAmount::Equal(amount) => write!(f, "just {amount}"),
        }
    }
}

/// A lock as the core numbers it.
#[derive(Clone, Debug)]
pub(crate) struct LockAt {
    pub(crate) number: u8,
    /// Index of the lock in the design.
    pub(crate) lock: usize,
}

/// A core's end of a FIFO.
#[derive(Clone, Debug)]
pub(crate) struct EndAt {
    pub(crate) name: String,
    pub(crate) objects: Vec<MemoryView>,
    pub(crate) acquire: LockAt,
    pub(crate) release: LockAt,
    /// Units of the locks for one object.
    pub(crate) amount: u64,
}

/// A program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub(crate) instructions: Vec<Instruction>,
    /// Place of each instruction in the text.
    pub(crate) places: Vec<Location>,
    pub(crate) n_slots: usize,
    pub(crate) ends: Vec<EndAt>,
}
