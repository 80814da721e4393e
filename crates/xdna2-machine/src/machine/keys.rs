//! The keys of a machine file: which exist, their ranges, and the fields they set.

use super::{DpmLevel, Machine};
use millrace_facts::Value;

type Key = millrace_facts::Key<Machine>;

/// Most clock levels a file may list.
const MAX_LEVELS: usize = 64;

/// Clocks of the controller and the array, in MHz.
const MHZ: std::ops::RangeInclusive<f64> = 1.0..=100_000.0;

const GIB: u64 = 1 << 30;

/// Every key of a machine file. A level of `dpm` takes effect before an explicit clock.
///
/// The upper ends keep a hostile file from asking for absurd work; they are far beyond any NPU.
#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    Key::u32("cols", 1, 64, |m| &mut m.cols),
    Key::u32("rows", 1, 16, |m| &mut m.rows),
    Key::u32("stream_bytes_per_cycle", 1, 1024, |m| &mut m.stream_bytes_per_cycle),
    Key::u32("cascade_bytes_per_cycle", 1, 4096, |m| &mut m.cascade_bytes_per_cycle),
    Key::u32("queue_depth", 1, 1024, |m| &mut m.queue_depth),
    Key::u64("buffer_bytes_max", 4096, 1024 * GIB, |m| &mut m.buffer_bytes_max),
    Key::u32("repeat_max", 1, 1 << 20, |m| &mut m.repeat_max),
    Key::u32("granularity_bytes", 1, 64, |m| &mut m.granularity_bytes),
    Key::u32("lock_value_max", 1, 1 << 20, |m| &mut m.lock_value_max),
    Key::f64("ddr_bytes_per_s", 1e6, 1e14, |m| &mut m.ddr_bytes_per_s),
    Key::u32("hw_contexts", 1, 4096, |m| &mut m.hw_contexts),
    Key::u32("macs.int8", 1, 1 << 20, |m| &mut m.macs.int8),
    Key::u32("macs.bf16", 1, 1 << 20, |m| &mut m.macs.bf16),
    Key::u32("macs.bfp16", 1, 1 << 20, |m| &mut m.macs.bfp16),
    Key::u64("core.data_bytes", 1024, GIB, |m| &mut m.core.data_bytes),
    Key::u32("core.data_banks", 1, 1024, |m| &mut m.core.data_banks),
    Key::u64("core.program_bytes", 256, GIB, |m| &mut m.program_bytes),
    Key::u64("core.stack_bytes", 0, GIB, |m| &mut m.stack_bytes),
    Key::u32("core.mm2s", 0, 64, |m| &mut m.core.mm2s),
    Key::u32("core.s2mm", 0, 64, |m| &mut m.core.s2mm),
    Key::u32("core.bds", 0, 4096, |m| &mut m.core.bds),
    Key::u32("core.bds_per_channel", 0, 4096, |m| &mut m.core.bds_per_channel),
    Key::u32("core.bd_dims", 1, 8, |m| &mut m.core.bd_dims),
    Key::u32("core.wrap_bits", 1, 32, |m| &mut m.core.wrap_bits),
    Key::u32("core.step_bits", 1, 32, |m| &mut m.core.step_bits),
    Key::u32("core.length_bits", 1, 40, |m| &mut m.core.length_bits),
    Key::u32("core.iteration_bits", 0, 32, |m| &mut m.core.iteration_bits),
    Key::u32("core.locks", 0, 4096, |m| &mut m.core.locks),
    Key::u32("core.ports.north", 0, 64, |m| &mut m.core.ports.north),
    Key::u32("core.ports.south", 0, 64, |m| &mut m.core.ports.south),
    Key::u32("core.ports.east", 0, 64, |m| &mut m.core.ports.east),
    Key::u32("core.ports.west", 0, 64, |m| &mut m.core.ports.west),
    Key::u64("memory.data_bytes", 1024, 16 * GIB, |m| &mut m.memory.data_bytes),
    Key::u32("memory.data_banks", 1, 1024, |m| &mut m.memory.data_banks),
    Key::u32("memory.mm2s", 0, 64, |m| &mut m.memory.mm2s),
    Key::u32("memory.s2mm", 0, 64, |m| &mut m.memory.s2mm),
    Key::u32("memory.bds", 0, 4096, |m| &mut m.memory.bds),
    Key::u32("memory.bds_per_channel", 0, 4096, |m| &mut m.memory.bds_per_channel),
    Key::u32("memory.bd_dims", 1, 8, |m| &mut m.memory.bd_dims),
    Key::u32("memory.wrap_bits", 1, 32, |m| &mut m.memory.wrap_bits),
    Key::u32("memory.step_bits", 1, 32, |m| &mut m.memory.step_bits),
    Key::u32("memory.length_bits", 1, 40, |m| &mut m.memory.length_bits),
    Key::u32("memory.iteration_bits", 0, 32, |m| &mut m.memory.iteration_bits),
    Key::u32("memory.locks", 0, 4096, |m| &mut m.memory.locks),
    Key::u32("memory.ports.north", 0, 64, |m| &mut m.memory.ports.north),
    Key::u32("memory.ports.south", 0, 64, |m| &mut m.memory.ports.south),
    Key::u32("memory.ports.east", 0, 64, |m| &mut m.memory.ports.east),
    Key::u32("memory.ports.west", 0, 64, |m| &mut m.memory.ports.west),
    Key::u32("shim.mm2s", 0, 64, |m| &mut m.shim.mm2s),
    Key::u32("shim.s2mm", 0, 64, |m| &mut m.shim.s2mm),
    Key::u32("shim.bds", 0, 4096, |m| &mut m.shim.bds),
    Key::u32("shim.bds_per_channel", 0, 4096, |m| &mut m.shim.bds_per_channel),
    Key::u32("shim.bd_dims", 1, 8, |m| &mut m.shim.bd_dims),
    Key::u32("shim.wrap_bits", 1, 32, |m| &mut m.shim.wrap_bits),
    Key::u32("shim.step_bits", 1, 32, |m| &mut m.shim.step_bits),
    Key::u32("shim.length_bits", 1, 40, |m| &mut m.shim.length_bits),
    Key::u32("shim.iteration_bits", 0, 32, |m| &mut m.shim.iteration_bits),
    Key::u32("shim.locks", 0, 4096, |m| &mut m.shim.locks),
    Key::u32("shim.ports.north", 0, 64, |m| &mut m.shim.ports.north),
    Key::u32("shim.ports.south", 0, 64, |m| &mut m.shim.ports.south),
    Key::u32("shim.ports.east", 0, 64, |m| &mut m.shim.ports.east),
    Key::u32("shim.ports.west", 0, 64, |m| &mut m.shim.ports.west),
    Key::own("dpm", levels),
    Key::own("dpm_level", level).optional(),
    Key::f64("clock_hz", 1e6, 1e11, |m| &mut m.clock_hz).optional(),
];

/// Sets the clock levels from pairs of MHz, and puts the highest in force.
fn levels(machine: &mut Machine, value: &Value) -> Result<(), String> {
    let expected = || {
        "a list of 1 to 64 pairs of MHz from 1 to 100000, [controller, array], lowest first"
            .to_owned()
    };
    let hz = |value: &Value| {
        let mhz = value.as_float().or(value.as_integer().map(|i| i as f64))?;
        MHZ.contains(&mhz).then_some(mhz * 1e6)
    };
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([npu, array]) => Some(DpmLevel {
            npu_hz: hz(npu)?,
            array_hz: hz(array)?,
        }),
        _ => None,
    };
    let list = value.as_array();
    let list = list.filter(|list| (1..=MAX_LEVELS).contains(&list.len()));
    let list = list.and_then(|list| list.iter().map(pair).collect());
    machine.dpm = list.ok_or_else(expected)?;
    machine.put_level(machine.dpm.len() - 1);
    Ok(())
}

/// Puts a clock level in force, by mode or by index.
fn level(machine: &mut Machine, value: &Value) -> Result<(), String> {
    let last = machine.dpm.len().saturating_sub(1);
    let index = match value {
        Value::String(mode) => match mode.as_str() {
            "turbo" | "high" => Some(last),
            "medium" => Some(last / 2),
            "low" => Some(0),
            other => other.parse().ok(),
        },
        Value::Integer(index) => usize::try_from(*index).ok(),
        _ => None,
    };
    let expected = || format!("turbo, high, medium, low or an index from 0 to {last}");
    let index = index.filter(|index| *index < machine.dpm.len());
    machine.put_level(index.ok_or_else(expected)?);
    Ok(())
}

impl Machine {
    fn put_level(&mut self, index: usize) {
        self.dpm_level = index;
        self.clock_hz = self.dpm[index].array_hz;
    }
}
