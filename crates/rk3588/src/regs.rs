//! The register table: blocks, registers and fields, from which commands are built, printed, decoded
//! and checked.
//!
//! A register is reached as `cna::DATA_SIZE0::REG`, a field as `cna::DATA_SIZE0::DATAIN_HEIGHT`.
//! Offsets and fields are those of `registers.xml` of Mesa's rocket driver (MIT).

#![allow(non_snake_case)] // A register's module is spelled as the register.

pub mod cna;
pub mod core;
pub mod dpu;
pub mod dpu_rdma;
pub mod pc;
pub mod ppu;
pub mod ppu_rdma;

/// A block of one NPU core. Its number is the target of a register command, whose lowest bit says
/// "write" (registers.xml, enum `target`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    /// Program controller.
    Pc,
    /// Convolution front end.
    Cna,
    /// MAC array.
    Core,
    /// Output stages and writer.
    Dpu,
    /// Operand readers of the output stages.
    DpuRdma,
    /// Pooling.
    Ppu,
    /// Pooling's reader.
    PpuRdma,
}

impl Block {
    /// Every block.
    pub const ALL: [Block; 7] = [
        Block::Pc,
        Block::Cna,
        Block::Core,
        Block::Dpu,
        Block::DpuRdma,
        Block::Ppu,
        Block::PpuRdma,
    ];

    /// Its number among targets.
    pub const fn id(self) -> u16 {
        match self {
            Block::Pc => 0x0100,
            Block::Cna => 0x0200,
            Block::Core => 0x0800,
            Block::Dpu => 0x1000,
            Block::DpuRdma => 0x2000,
            Block::Ppu => 0x4000,
            Block::PpuRdma => 0x8000,
        }
    }

    /// Name in the text form (`cna`).
    pub const fn name(self) -> &'static str {
        match self {
            Block::Pc => "pc",
            Block::Cna => "cna",
            Block::Core => "core",
            Block::Dpu => "dpu",
            Block::DpuRdma => "dpu_rdma",
            Block::Ppu => "ppu",
            Block::PpuRdma => "ppu_rdma",
        }
    }

    /// The block of that [`name`](Block::name).
    pub fn from_name(name: &str) -> Option<Block> {
        Block::ALL.into_iter().find(|block| block.name() == name)
    }

    /// The block whose write target this is.
    pub(crate) fn from_write_target(target: u16) -> Option<Block> {
        Block::ALL.into_iter().find(|b| b.id() | 1 == target)
    }

    /// Its bit in the mask of the operation-enable command; the program controller has none
    /// (registers.xml, `GLOBAL.OPERATION_ENABLE`).
    pub(crate) const fn enable_bit(self) -> Option<u32> {
        match self {
            Block::Pc => None,
            Block::Cna => Some(1 << 0),
            Block::Core => Some(1 << 2),
            Block::Dpu => Some(1 << 3),
            Block::DpuRdma => Some(1 << 4),
            Block::Ppu => Some(1 << 5),
            Block::PpuRdma => Some(1 << 6),
        }
    }

    /// Its registers by offset.
    pub fn registers(self) -> &'static [Register] {
        match self {
            Block::Pc => pc::TABLE,
            Block::Cna => cna::TABLE,
            Block::Core => core::TABLE,
            Block::Dpu => dpu::TABLE,
            Block::DpuRdma => dpu_rdma::TABLE,
            Block::Ppu => ppu::TABLE,
            Block::PpuRdma => ppu_rdma::TABLE,
        }
    }

    /// Its register at that offset.
    pub fn register(self, offset: u16) -> Option<&'static Register> {
        let registers = self.registers();
        let at = registers.binary_search_by_key(&offset, |r| r.reg.offset);
        at.ok().map(|at| &registers[at])
    }
}

/// Place of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg {
    /// Its block.
    pub block: Block,
    /// Its offset, as a register command names it.
    pub offset: u16,
}

/// A row of the register table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its place.
    pub reg: Reg,
    /// Its name.
    pub name: &'static str,
    /// Its fields, highest bits first. Bits of no field are reserved.
    pub fields: &'static [Field],
}

impl Register {
    /// The bits that fields take.
    pub fn mask(&self) -> u32 {
        self.fields.iter().fold(0, |mask, f| mask | f.mask())
    }
}

/// Consecutive bits of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The register.
    pub reg: Reg,
    /// Its name.
    pub name: &'static str,
    /// Highest bit.
    pub high: u8,
    /// Lowest bit.
    pub low: u8,
}

impl Field {
    /// Largest value.
    pub const fn max(&self) -> u32 {
        u32::MAX >> (31 - (self.high - self.low))
    }

    /// Its bits in the register.
    pub const fn mask(&self) -> u32 {
        self.max() << self.low
    }

    /// The field's value in a register's.
    pub const fn get(&self, register: u32) -> u32 {
        (register >> self.low) & self.max()
    }

    /// The value shifted into place; bits beyond the field are dropped.
    pub const fn put(&self, value: u32) -> u32 {
        (value & self.max()) << self.low
    }
}

/// Defines a block's registers from lines `offset NAME { FIELD high low, … }`: a module for each
/// register, and the block's `TABLE`.
macro_rules! registers {
    ($block:ident $($offset:literal $name:ident { $($field:ident $high:literal $low:literal),* $(,)? })*) => {
        $(
            #[doc = concat!("Register `", stringify!($name), "` at `", stringify!($offset), "`.")]
            pub mod $name {
                use crate::regs::{Block, Field, Reg};
                /// Its place.
                pub const REG: Reg = Reg { block: Block::$block, offset: $offset };
                $(
                    #[doc = concat!("Bits ", stringify!($high), " to ", stringify!($low), ".")]
                    pub const $field: Field =
                        Field { reg: REG, name: stringify!($field), high: $high, low: $low };
                )*
                pub(super) const FIELDS: &[Field] = &[$($field),*];
            }
        )*
        pub(super) const TABLE: &[super::Register] = &[$(
            super::Register { reg: $name::REG, name: stringify!($name), fields: $name::FIELDS },
        )*];
    };
}
use registers;

#[cfg(test)]
mod tests;
