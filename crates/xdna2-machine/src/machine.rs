//! The machine as data: geometry, clocks, memories, DMA channels, buffer descriptors and their
//! field widths, locks, streams.
//!
//! The facts are in `data/machines/*.toml`, each with its source. A user's own machine is such a file
//! ([`Machine::from_toml`]), or a known one with values overridden ([`Machine::set`]). Calibrated constants (attained
//! rates, overheads) are not facts of the machine: see profiles.

mod keys;

pub use millrace_facts::{Fact, FactsError};

use millrace_facts::{Builtin, Key, Kind, Record};

/// Facts about one NPU. The default is all zeros: files are read into it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Name (`npu2`).
    pub name: String,
    /// Columns of the array.
    pub cols: u32,
    /// Rows of compute tiles. Below them are a row of memory tiles and a row of shim tiles.
    pub rows: u32,
    /// Clock levels, lowest first.
    pub dpm: Vec<DpmLevel>,
    /// The level in force, an index into `dpm`.
    pub dpm_level: usize,
    /// Clock of the array in force, in Hz: the level's, unless set on its own.
    pub clock_hz: f64,
    /// Compute tiles.
    pub core: TileLimits,
    /// Memory tiles.
    pub memory: TileLimits,
    /// Shim tiles; they hold no data.
    pub shim: TileLimits,
    /// Program memory of a compute tile.
    pub program_bytes: u64,
    /// Bytes that the compiler sets aside in each core's L1 for its stack.
    pub stack_bytes: u64,
    /// Multiply-accumulates of one core and cycle.
    pub macs: MacRates,
    /// Bytes a stream (a DMA port, a switch port) moves in a cycle.
    pub stream_bytes_per_cycle: u32,
    /// Bytes a cascade moves in a cycle.
    pub cascade_bytes_per_cycle: u32,
    /// Tasks a DMA channel's queue holds.
    pub queue_depth: u32,
    /// Largest buffer object a shim addresses, in bytes.
    pub buffer_bytes_max: u64,
    /// Largest repeat count of a task.
    pub repeat_max: u32,
    /// Bytes of one address unit: sizes, strides and offsets of descriptors are whole multiples.
    pub granularity_bytes: u32,
    /// Largest value of a lock.
    pub lock_value_max: u32,
    /// Peak of the host's DDR, in bytes per second. The NPU's share of it is in a profile.
    pub ddr_bytes_per_s: f64,
    /// Hardware contexts (loaded programs).
    pub hw_contexts: u32,
    /// Origin of each value, in the file's order.
    pub facts: Vec<Fact>,
}

/// One clock level of dynamic power management.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DpmLevel {
    /// Clock of the controller, in Hz.
    pub npu_hz: f64,
    /// Clock of the array, in Hz.
    pub array_hz: f64,
}

/// Limits of one kind of tile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TileLimits {
    /// Data memory; 0 for a shim.
    pub data_bytes: u64,
    /// Banks of the data memory; 0 for a shim.
    pub data_banks: u32,
    /// DMA channels from memory to a stream.
    pub mm2s: u32,
    /// DMA channels from a stream to memory.
    pub s2mm: u32,
    /// Buffer descriptors.
    pub bds: u32,
    /// Buffer descriptors that one channel reaches.
    pub bds_per_channel: u32,
    /// Dimensions of a descriptor, without the iteration.
    pub bd_dims: u32,
    /// Width of a dimension's size. The outermost has no such field: the length bounds it.
    pub wrap_bits: u32,
    /// Width of a dimension's stride, counted in address units; a stride of 2^bits is the largest.
    pub step_bits: u32,
    /// Width of a descriptor's length, counted in address units.
    pub length_bits: u32,
    /// Width of the iteration's size; 2^bits iterations are the most.
    pub iteration_bits: u32,
    /// Locks.
    pub locks: u32,
    /// Outgoing ports of the stream switch.
    pub ports: Ports,
}

/// Outgoing ports of a stream switch by direction. At the array's edge there are no outward ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Away from the shims.
    pub north: u32,
    /// Towards the shims.
    pub south: u32,
    /// Towards higher columns.
    pub east: u32,
    /// Towards lower columns.
    pub west: u32,
}

/// Multiply-accumulates of one core in a cycle, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacRates {
    /// 8-bit integers.
    pub int8: u32,
    /// bf16 with f32 accumulation.
    pub bf16: u32,
    /// bf16 emulated through blocks of shared exponent (bfp16).
    pub bfp16: u32,
}

/// Machines in this crate.
static BUILTIN: [Builtin<Machine>; 1] = [Builtin::new(
    "npu2",
    include_str!("../data/machines/npu2.toml"),
)];

impl Record for Machine {
    const KIND: Kind = Kind::Machine;

    fn builtins() -> &'static [Builtin<Machine>] {
        &BUILTIN
    }

    fn keys() -> &'static [Key<Machine>] {
        keys::KEYS
    }

    fn name_mut(&mut self) -> &mut String {
        &mut self.name
    }

    fn facts(&self) -> &[Fact] {
        &self.facts
    }

    fn facts_mut(&mut self) -> &mut Vec<Fact> {
        &mut self.facts
    }

    /// On a command line `dpm` is the level: no one types a list of clocks there.
    fn assigned_key(key: &str) -> &str {
        match key {
            "dpm" => "dpm_level",
            other => other,
        }
    }
}

impl Machine {
    /// Operations a second of bf16 products at most, a multiply and an add counted each: the vector
    /// units emulate them through blocks of shared exponent, at twice the rate of plain bf16. Every
    /// kernel's rate is compared with this one.
    pub fn bf16_flops_per_s(&self) -> f64 {
        2.0 * f64::from(self.n_cores() * self.macs.bfp16) * self.clock_hz
    }

    /// The same of 8-bit integers with sums in 32 bits.
    pub fn int8_ops_per_s(&self) -> f64 {
        2.0 * f64::from(self.n_cores() * self.macs.int8) * self.clock_hz
    }

    /// AMD NPU2 (XDNA2): 8 columns of 4 compute tiles.
    ///
    /// # Panics
    ///
    /// Never: the machine is built in.
    pub fn npu2() -> Machine {
        match Machine::known("npu2") {
            Some(machine) => machine.clone(),
            None => unreachable!("the machine is built in"),
        }
    }

    /// The machine of that name in this crate.
    pub fn builtin(name: &str) -> Option<Machine> {
        Machine::known(name).cloned()
    }

    /// As [`Machine::builtin`], without a copy.
    pub(crate) fn known(name: &str) -> Option<&'static Machine> {
        millrace_facts::builtin(name)
    }

    /// Names of the machines in this crate.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        millrace_facts::names::<Machine>()
    }

    /// Reads a machine from the text of a file; `path` is for messages. [`millrace_facts`] describes the format of files.
    ///
    /// # Errors
    ///
    /// As [`millrace_facts::from_toml`].
    pub fn from_toml(text: &str, path: &str) -> Result<Machine, FactsError> {
        millrace_facts::from_toml(text, path)
    }

    /// Overrides one value: `cols=4`, `core.data_bytes=32768`, `dpm=low`, `dpm=3`.
    ///
    /// # Errors
    ///
    /// As [`millrace_facts::set`].
    pub fn set(&mut self, assignment: &str) -> Result<(), FactsError> {
        millrace_facts::set(self, assignment)
    }

    /// Compute tiles in all.
    pub fn n_cores(&self) -> u32 {
        self.cols * self.rows
    }

    /// Bytes in a second that one stream carries.
    pub fn stream_bytes_per_s(&self) -> f64 {
        f64::from(self.stream_bytes_per_cycle) * self.clock_hz
    }

    /// Bytes of L1 that buffers may take on one core: data memory less the stack.
    pub fn l1_bytes(&self) -> u64 {
        self.core.data_bytes.saturating_sub(self.stack_bytes)
    }

    /// Origin of the value of a dotted key.
    pub fn fact(&self, key: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.key == key)
    }
}

#[cfg(test)]
mod tests;
