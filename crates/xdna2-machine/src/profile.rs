//! Profiles: the few calibrated constants of one software stack on one box, apart from the facts
//! of the [`machine`](crate::machine).
//!
//! A constant belongs to the hardware as the software drives it (DDR, shims), to the dispatch path
//! (driver, firmware), or to a kernel object (the compiled code of one tile kernel). None belongs
//! to a shape or a model. Each says where it comes from: *published* by a source, *derived* from
//! published figures by arithmetic, or *fitted* on measured rows that it names by their ids in
//! `crates/evidence/data/xdna2/measured.csv`.

mod clock;
mod errors;
mod keys;
mod models;
mod power;

pub use errors::{ErrorScope, Errors};
pub use millrace_facts::{Fact, FactsError, Origin};
pub use models::is_model_key;
pub use models::{Decode, HostProfile, Prefill, Stack};
pub use power::Power;

use crate::numerics;
use millrace_facts::{Builtin, Family, Key, Kind, Record};
use std::collections::BTreeMap;

/// The constants of one software stack on one kind of box. The default is all zeros: files are read into it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Name (`air-strix-2026`).
    pub name: String,
    /// Summary, in one line.
    pub summary: String,
    /// How far predictions are from held-out measurements. [`Profile::error_of`] says for which of them the figures
    /// hold.
    pub errors: Errors,
    /// DDR as the array sees it.
    pub ddr: DdrProfile,
    /// Shim DMA channels.
    pub shim: Shim,
    /// Costs of a dispatch beyond the launches themselves.
    pub dispatch: Dispatch,
    /// Cores.
    pub core: CoreProfile,
    /// A token of fused decode.
    pub decode: Decode,
    /// A prompt under FastFlowLM's scheme.
    pub prefill: Prefill,
    /// The host's part in a stitched stack.
    pub host: HostProfile,
    /// Time that the stack takes beyond its launches.
    pub stack: Stack,
    /// Powers while the array works.
    pub power: Power,
    /// Cycles of kernel objects by name.
    pub kernels: BTreeMap<String, Cycles>,
    /// Every constant with its origin, in the file's order.
    pub constants: Vec<Fact>,
}

/// DDR: the rates that all shims together attain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DdrProfile {
    /// Reads in long bursts, in bytes per nanosecond (GB/s).
    pub read_gb_per_s: f64,
    /// Writes in long bursts.
    pub write_gb_per_s: f64,
    /// Reads and writes together.
    pub total_gb_per_s: f64,
    /// Bytes that could have been moved in the time that one burst costs beyond its data: a stream of
    /// bursts of `s` bytes runs at `s / (s + burst_overhead_bytes)` of the full rate.
    pub burst_overhead_bytes: f64,
    /// Memory channels that addresses are interleaved over.
    pub channels: u32,
    /// Consecutive bytes on one memory channel.
    pub interleave_bytes: u32,
}

/// Shim DMA channels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shim {
    /// Rate that one channel attains, at most the stream's width times the clock.
    pub port_gb_per_s: f64,
    /// Rate that the reading channels of one column attain together.
    pub column_read_gb_per_s: f64,
    /// Start of a task on an idle channel: descriptor fetch, channel start, first data.
    pub task_ns: f64,
}

/// Costs of a dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dispatch {
    /// A call from the host to its return, with an empty program that is loaded already.
    pub call_ns: f64,
    /// A byte of the instruction stream that configures the array for a launch, in a dispatch of more than one herd.
    /// Such a dispatch is an ELF that configures the array anew for every launch. The configuration of a single herd
    /// stays loaded.
    pub configure_byte_ns: f64,
    /// Time to load each kernel object that is linked into a core's program.
    pub object_load_ns: f64,
    /// Least cost of a launch of such a dispatch, with any amount of configuration.
    pub launch_ns: f64,
    /// Awaiting the tokens of a sequential launch's grid points that were issued together.
    pub point_ns: f64,
    /// A shim task: the command processor writes its descriptor and pushes it, one after another.
    pub issue_ns: f64,
    /// A constant that a core reads at run time, written before a launch whose configuration is loaded already.
    pub parameter_ns: f64,
}

impl Dispatch {
    /// Configuring the array for a launch with so many [bytes](crate::timing::configuration_bytes) of configuration, whose
    /// cores' programs link so many kernel objects in all, in a dispatch of so many herds.
    pub fn load_ns(&self, configuration_bytes: u64, n_objects: usize, n_herds: usize) -> f64 {
        let configure_ns = configuration_bytes as f64 * self.configure_byte_ns;
        match n_herds {
            0 | 1 => 0.0,
            _ => (configure_ns + n_objects as f64 * self.object_load_ns).max(self.launch_ns),
        }
    }

    /// The same for a launch that is not built yet, one of several, by the number of its cores.
    pub fn estimated_load_ns(&self, n_cores: u64, n_objects: u64) -> f64 {
        const SEVERAL: usize = 2;
        self.load_ns(n_cores * BYTES_A_CORE, n_objects as usize, SEVERAL)
    }
}

/// Bytes of configuration for each core of a launch, with its share of its column's: 46,880 for a GEMM on 32.
const BYTES_A_CORE: u64 = 1465;

/// Cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreProfile {
    /// Acquiring and releasing one block.
    pub block_cycles: f64,
}

/// Cycles of a call of a kernel object: `call_cycles + macs / macs_per_cycle + elements · cycles_per_element`. A rate
/// of 0 means that no such work is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cycles {
    /// Cycles of every call.
    pub call_cycles: f64,
    /// Multiply-accumulates in a cycle.
    pub macs_per_cycle: f64,
    /// Cycles an element.
    pub cycles_per_element: f64,
}

impl Cycles {
    /// Cycles of a call with that much work.
    pub fn of(&self, work: crate::tile::TileWork) -> f64 {
        let macs = if self.macs_per_cycle > 0.0 {
            work.macs as f64 / self.macs_per_cycle
        } else {
            0.0
        };
        self.call_cycles + macs + work.elements as f64 * self.cycles_per_element
    }
}

/// Profiles in this crate, the default first.
static BUILTIN: [Builtin<Profile>; 6] = [
    Builtin::new(
        "air-strix-2026",
        include_str!("../data/profiles/air-strix-2026.toml"),
    ),
    Builtin::new(
        "air-strix-registry-2026",
        include_str!("../data/profiles/air-strix-registry-2026.toml"),
    ),
    Builtin::new(
        "air-krackan-2026",
        include_str!("../data/profiles/air-krackan-2026.toml"),
    ),
    Builtin::new(
        "paper-kraken",
        include_str!("../data/profiles/paper-kraken.toml"),
    ),
    Builtin::new(
        "flm-v0.1.3",
        include_str!("../data/profiles/flm-v0.1.3.toml"),
    ),
    Builtin::new(
        "flm-v0.9.22",
        include_str!("../data/profiles/flm-v0.9.22.toml"),
    ),
];

impl Record for Profile {
    const KIND: Kind = Kind::Profile;

    fn builtins() -> &'static [Builtin<Profile>] {
        &BUILTIN
    }

    fn keys() -> &'static [Key<Profile>] {
        keys::KEYS
    }

    fn name_mut(&mut self) -> &mut String {
        &mut self.name
    }

    fn summary_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.summary)
    }

    fn facts(&self) -> &[Fact] {
        &self.constants
    }

    fn facts_mut(&mut self) -> &mut Vec<Fact> {
        &mut self.constants
    }

    fn remarks() -> &'static [Key<Profile>] {
        keys::ERRORS
    }

    fn family() -> Option<&'static Family<Profile>> {
        Some(&keys::KERNELS)
    }
}

impl Profile {
    /// The profile used when none is named: the one most rows were measured under.
    pub const DEFAULT: &str = "air-strix-2026";

    /// The profile of that name in this crate.
    pub fn builtin(name: &str) -> Option<Profile> {
        millrace_facts::builtin(name).cloned()
    }

    /// Names of the profiles in this crate, the default first.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        millrace_facts::names::<Profile>()
    }

    /// Reads a profile from the text of a file; `path` is for messages. [`millrace_facts`] describes the format of files.
    ///
    /// # Errors
    /// As [`millrace_facts::from_toml`].
    pub fn from_toml(text: &str, path: &str) -> Result<Profile, FactsError> {
        millrace_facts::from_toml(text, path)
    }

    /// Overrides one constant: `ddr.read_gb_per_s=60`.
    ///
    /// # Errors
    /// As [`millrace_facts::set`].
    pub fn set(&mut self, assignment: &str) -> Result<(), FactsError> {
        millrace_facts::set(self, assignment)
    }

    /// Cycles of a kernel object: of that very name, else of its stem (before the dot).
    pub fn kernel(&self, name: &str) -> Option<&Cycles> {
        let stem = name.split('.').next().unwrap_or(name);
        let found = self.kernels.get(name).or_else(|| self.kernels.get(stem));
        // Rates were measured on kernels with emulated products; both forms are charged them.
        found.or_else(|| self.kernel(&numerics::plain(name)?))
    }

    /// Ids of the rows that any constant is fitted on, sorted, each once.
    pub fn calibration_rows(&self) -> Vec<&str> {
        millrace_facts::calibration_rows(&self.constants)
    }

    /// Share of the full DDR rate that a stream of bursts of that length attains.
    pub fn burst_efficiency(&self, burst_bytes: f64) -> f64 {
        burst_bytes / (burst_bytes + self.ddr.burst_overhead_bytes)
    }
}

#[cfg(test)]
mod tests;
