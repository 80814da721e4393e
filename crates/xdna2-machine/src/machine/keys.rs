//! The keys of a machine file: which exist, their ranges, and the fields they set.

use super::{Machine, TileLimits};

/// One settable value.
#[derive(Clone, Copy, Debug)]
pub struct MachineKey {
    /// Dotted path (`core.data_bytes`).
    pub path: &'static str,
    /// Smallest legal value.
    pub min: f64,
    /// Largest legal value.
    pub max: f64,
    pub(super) field: KeyField,
}

/// The field that a key sets.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyField {
    U32(fn(&mut Machine) -> &mut u32),
    U64(fn(&mut Machine) -> &mut u64),
    F64(fn(&mut Machine) -> &mut f64),
}

const fn u32_key(
    path: &'static str,
    min: u32,
    max: u32,
    get: fn(&mut Machine) -> &mut u32,
) -> MachineKey {
    MachineKey {
        path,
        min: min as f64,
        max: max as f64,
        field: KeyField::U32(get),
    }
}

const fn u64_key(
    path: &'static str,
    min: u64,
    max: u64,
    get: fn(&mut Machine) -> &mut u64,
) -> MachineKey {
    MachineKey {
        path,
        min: min as f64,
        max: max as f64,
        field: KeyField::U64(get),
    }
}

const GIB: u64 = 1 << 30;

/// Every number of a machine file. Beside these there are `name`, `base`, `dpm` (a list of pairs
/// of MHz), `dpm_level`, and, optional, `clock_hz`.
///
/// The upper ends keep a hostile file from asking for absurd work; they are far beyond any NPU.
#[rustfmt::skip]
pub const KEYS: &[MachineKey] = &[
    u32_key("cols", 1, 64, |m| &mut m.cols),
    u32_key("rows", 1, 16, |m| &mut m.rows),
    u32_key("stream_bytes_per_cycle", 1, 1024, |m| &mut m.stream_bytes_per_cycle),
    u32_key("cascade_bytes_per_cycle", 1, 4096, |m| &mut m.cascade_bytes_per_cycle),
    u32_key("queue_depth", 1, 1024, |m| &mut m.queue_depth),
    u64_key("buffer_bytes_max", 4096, 1024 * GIB, |m| &mut m.buffer_bytes_max),
    u32_key("repeat_max", 1, 1 << 20, |m| &mut m.repeat_max),
    u32_key("granularity_bytes", 1, 64, |m| &mut m.granularity_bytes),
    u32_key("lock_value_max", 1, 1 << 20, |m| &mut m.lock_value_max),
    MachineKey { path: "ddr_bytes_per_s", min: 1e6, max: 1e14, field: KeyField::F64(|m| &mut m.ddr_bytes_per_s) },
    u32_key("hw_contexts", 1, 4096, |m| &mut m.hw_contexts),
    u32_key("macs.int8", 1, 1 << 20, |m| &mut m.macs.int8),
    u32_key("macs.bf16", 1, 1 << 20, |m| &mut m.macs.bf16),
    u32_key("macs.bfp16", 1, 1 << 20, |m| &mut m.macs.bfp16),
    u64_key("core.data_bytes", 1024, GIB, |m| &mut m.core.data_bytes),
    u32_key("core.data_banks", 1, 1024, |m| &mut m.core.data_banks),
    u64_key("core.program_bytes", 256, GIB, |m| &mut m.program_bytes),
    u64_key("core.stack_bytes", 0, GIB, |m| &mut m.stack_bytes),
    u32_key("core.mm2s", 0, 64, |m| &mut m.core.mm2s),
    u32_key("core.s2mm", 0, 64, |m| &mut m.core.s2mm),
    u32_key("core.bds", 0, 4096, |m| &mut m.core.bds),
    u32_key("core.bds_per_channel", 0, 4096, |m| &mut m.core.bds_per_channel),
    u32_key("core.bd_dims", 1, 8, |m| &mut m.core.bd_dims),
    u32_key("core.wrap_bits", 1, 32, |m| &mut m.core.wrap_bits),
    u32_key("core.step_bits", 1, 32, |m| &mut m.core.step_bits),
    u32_key("core.length_bits", 1, 40, |m| &mut m.core.length_bits),
    u32_key("core.iteration_bits", 0, 32, |m| &mut m.core.iteration_bits),
    u32_key("core.locks", 0, 4096, |m| &mut m.core.locks),
    u32_key("core.ports.north", 0, 64, |m| &mut m.core.ports.north),
    u32_key("core.ports.south", 0, 64, |m| &mut m.core.ports.south),
    u32_key("core.ports.east", 0, 64, |m| &mut m.core.ports.east),
    u32_key("core.ports.west", 0, 64, |m| &mut m.core.ports.west),
    u64_key("memory.data_bytes", 1024, 16 * GIB, |m| &mut m.memory.data_bytes),
    u32_key("memory.data_banks", 1, 1024, |m| &mut m.memory.data_banks),
    u32_key("memory.mm2s", 0, 64, |m| &mut m.memory.mm2s),
    u32_key("memory.s2mm", 0, 64, |m| &mut m.memory.s2mm),
    u32_key("memory.bds", 0, 4096, |m| &mut m.memory.bds),
    u32_key("memory.bds_per_channel", 0, 4096, |m| &mut m.memory.bds_per_channel),
    u32_key("memory.bd_dims", 1, 8, |m| &mut m.memory.bd_dims),
    u32_key("memory.wrap_bits", 1, 32, |m| &mut m.memory.wrap_bits),
    u32_key("memory.step_bits", 1, 32, |m| &mut m.memory.step_bits),
    u32_key("memory.length_bits", 1, 40, |m| &mut m.memory.length_bits),
    u32_key("memory.iteration_bits", 0, 32, |m| &mut m.memory.iteration_bits),
    u32_key("memory.locks", 0, 4096, |m| &mut m.memory.locks),
    u32_key("memory.ports.north", 0, 64, |m| &mut m.memory.ports.north),
    u32_key("memory.ports.south", 0, 64, |m| &mut m.memory.ports.south),
    u32_key("memory.ports.east", 0, 64, |m| &mut m.memory.ports.east),
    u32_key("memory.ports.west", 0, 64, |m| &mut m.memory.ports.west),
    u32_key("shim.mm2s", 0, 64, |m| &mut m.shim.mm2s),
    u32_key("shim.s2mm", 0, 64, |m| &mut m.shim.s2mm),
    u32_key("shim.bds", 0, 4096, |m| &mut m.shim.bds),
    u32_key("shim.bds_per_channel", 0, 4096, |m| &mut m.shim.bds_per_channel),
    u32_key("shim.bd_dims", 1, 8, |m| &mut m.shim.bd_dims),
    u32_key("shim.wrap_bits", 1, 32, |m| &mut m.shim.wrap_bits),
    u32_key("shim.step_bits", 1, 32, |m| &mut m.shim.step_bits),
    u32_key("shim.length_bits", 1, 40, |m| &mut m.shim.length_bits),
    u32_key("shim.iteration_bits", 0, 32, |m| &mut m.shim.iteration_bits),
    u32_key("shim.locks", 0, 4096, |m| &mut m.shim.locks),
    u32_key("shim.ports.north", 0, 64, |m| &mut m.shim.ports.north),
    u32_key("shim.ports.south", 0, 64, |m| &mut m.shim.ports.south),
    u32_key("shim.ports.east", 0, 64, |m| &mut m.shim.ports.east),
    u32_key("shim.ports.west", 0, 64, |m| &mut m.shim.ports.west),
];

/// A machine of zeros, to be filled key by key.
pub(super) fn blank() -> Machine {
    Machine {
        name: String::new(),
        cols: 0,
        rows: 0,
        dpm: Vec::new(),
        dpm_level: 0,
        clock_hz: 0.0,
        core: TileLimits::default(),
        memory: TileLimits::default(),
        shim: TileLimits::default(),
        program_bytes: 0,
        stack_bytes: 0,
        macs: super::MacRates::default(),
        stream_bytes_per_cycle: 0,
        cascade_bytes_per_cycle: 0,
        queue_depth: 0,
        buffer_bytes_max: 0,
        repeat_max: 0,
        granularity_bytes: 0,
        lock_value_max: 0,
        ddr_bytes_per_s: 0.0,
        hw_contexts: 0,
        facts: Vec::new(),
    }
}
