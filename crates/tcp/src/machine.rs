//! Facts of the hardware, each with its source; limits and rates come from here and nowhere else.

use crate::element::Element;

pub use millrace_facts::{Fact, FactsError};

use millrace_facts::{Builtin, Key, Kind, Record};

/// A chip. The default is all zeros, which reading a file replaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Its name (`rngd`).
    pub name: String,
    /// Clusters of a chip.
    pub clusters: u64,
    /// Slices of a cluster.
    pub slices: u64,
    /// Lanes of a slice.
    pub lanes: u64,
    /// Data memory of a slice.
    pub dm_bytes: u64,
    /// Alignment of tensors in data memory.
    pub dm_align_bytes: u64,
    /// Tensor register file of a lane.
    pub trf_lane_bytes: u64,
    /// Vector register file of a slice.
    pub vrf_bytes: u64,
    /// Part of the vector register file that a kernel takes if it stashes.
    pub vrf_stash_bytes: u64,
    /// Bytes of a flit.
    pub flit_bytes: u64,
    /// Largest packet of a contraction.
    pub packet_bytes: u64,
    /// Cells of the time reducer.
    pub accumulator_cells: u64,
    /// Slots of the time reducer for one lane in sequential mode.
    pub sequential_slots: u64,
    /// Slots of the time reducer for packets of one in interleaved mode.
    pub interleaved_slots: u64,
    /// Slots of the vector engine's reduction within a slice.
    pub reduce_slots: u64,
    /// Loops of a sequencer.
    pub sequencer_entries: u64,
    /// Largest count of a sequencer's loop.
    pub sequencer_size: u64,
    /// Bytes a cycle and slice that the main context fetches.
    pub main_fetch_bytes: u64,
    /// Bytes a cycle and slice that the sub context fetches.
    pub sub_fetch_bytes: u64,
    /// Bytes a cycle and slice that are committed.
    pub commit_bytes: u64,
    /// Elements a cycle and slice of the vector engine's float part.
    pub float_ways: u64,
    /// Elements a cycle and slice of its fixed-point, logic and clip parts.
    pub fixed_ways: u64,
    /// Slices of the largest ring.
    pub ring_slices: u64,
    /// Compute clock.
    pub clock_hz: f64,
    /// Memory of a chip that programs can have.
    pub hbm_bytes: u64,
    /// Peak rate of that memory.
    pub hbm_gb_per_s: f64,
    /// Unit of access to that memory.
    pub hbm_align_bytes: u64,
    /// Engines of tensor DMA.
    pub dma_engines: u64,
    /// Most bytes a cycle of one engine.
    pub dma_engine_bytes: u64,
    /// Unit in which DMA writes data memory.
    pub dma_element_bytes: u64,
    /// Bytes a cycle between chips and to the host.
    pub host_link_bytes: u64,
    /// Most chips of a device.
    pub chips: u64,
    /// Board power.
    pub tdp_watts: f64,
    /// All facts with their sources.
    pub facts: Vec<Fact>,
}

/// Every key.
#[rustfmt::skip]
const KEYS: &[Key<Machine>] = &[
    Key::u64("clusters", 1, 64, |m| &mut m.clusters),
    Key::u64("slices", 1, 4096, |m| &mut m.slices),
    Key::u64("lanes", 1, 64, |m| &mut m.lanes),
    Key::u64("dm_bytes", 1024, 1_000_000_000, |m| &mut m.dm_bytes),
    Key::u64("dm_align_bytes", 1, 4096, |m| &mut m.dm_align_bytes),
    Key::u64("trf_lane_bytes", 64, 100_000_000, |m| &mut m.trf_lane_bytes),
    Key::u64("vrf_bytes", 64, 100_000_000, |m| &mut m.vrf_bytes),
    Key::u64("vrf_stash_bytes", 0, 100_000_000, |m| &mut m.vrf_stash_bytes),
    Key::u64("flit_bytes", 1, 1024, |m| &mut m.flit_bytes),
    Key::u64("packet_bytes", 1, 1024, |m| &mut m.packet_bytes),
    Key::u64("accumulator_cells", 1, 1_000_000, |m| &mut m.accumulator_cells),
    Key::u64("sequential_slots", 1, 1_000_000, |m| &mut m.sequential_slots),
    Key::u64("interleaved_slots", 1, 1_000_000, |m| &mut m.interleaved_slots),
    Key::u64("reduce_slots", 1, 1_000_000, |m| &mut m.reduce_slots),
    Key::u64("sequencer_entries", 1, 64, |m| &mut m.sequencer_entries),
    Key::u64("sequencer_size", 1, 1_000_000_000, |m| &mut m.sequencer_size),
    Key::u64("main_fetch_bytes", 1, 1024, |m| &mut m.main_fetch_bytes),
    Key::u64("sub_fetch_bytes", 1, 1024, |m| &mut m.sub_fetch_bytes),
    Key::u64("commit_bytes", 1, 1024, |m| &mut m.commit_bytes),
    Key::u64("float_ways", 1, 64, |m| &mut m.float_ways),
    Key::u64("fixed_ways", 1, 64, |m| &mut m.fixed_ways),
    Key::u64("ring_slices", 1, 4096, |m| &mut m.ring_slices),
    Key::f64("clock_hz", 1e6, 1e11, |m| &mut m.clock_hz),
    Key::u64("hbm_bytes", 1, 1_000_000_000_000_000, |m| &mut m.hbm_bytes),
    Key::f64("hbm_gb_per_s", 0.001, 1e6, |m| &mut m.hbm_gb_per_s),
    Key::u64("hbm_align_bytes", 1, 1_000_000, |m| &mut m.hbm_align_bytes),
    Key::u64("dma_engines", 1, 256, |m| &mut m.dma_engines),
    Key::u64("dma_engine_bytes", 1, 1_000_000, |m| &mut m.dma_engine_bytes),
    Key::u64("dma_element_bytes", 1, 4096, |m| &mut m.dma_element_bytes),
    Key::u64("host_link_bytes", 1, 1_000_000, |m| &mut m.host_link_bytes),
    Key::u64("chips", 1, 1024, |m| &mut m.chips),
    Key::f64("tdp_watts", 1.0, 1e5, |m| &mut m.tdp_watts),
];

/// Machines that come with the crate.
static BUILTIN: [Builtin<Machine>; 1] = [Builtin::new(
    "rngd",
    include_str!("../data/machines/rngd.toml"),
)];

impl Record for Machine {
    const KIND: Kind = Kind::Machine;

    fn builtins() -> &'static [Builtin<Machine>] {
        &BUILTIN
    }

    fn keys() -> &'static [Key<Machine>] {
        KEYS
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
}

impl Machine {
    /// RNGD.
    ///
    /// # Panics
    /// Never: the machine is built in.
    pub fn rngd() -> Machine {
        let machine = millrace_facts::builtin("rngd");
        machine.cloned().expect("the machine is built in")
    }

    /// The machine in a file of facts; `path` is for messages. [`millrace_facts`] says how files are written.
    ///
    /// # Errors
    /// As [`millrace_facts::from_toml`].
    pub fn from_toml(text: &str, path: &str) -> Result<Machine, FactsError> {
        millrace_facts::from_toml(text, path)
    }

    /// Slices of a chip.
    pub(crate) fn chip_slices(&self) -> u64 {
        self.clusters * self.slices
    }

    /// Multiply-accumulates a cycle and chip on operands of that type: a packet a lane.
    pub fn macs_per_cycle(&self, element: Element) -> u64 {
        self.chip_slices() * self.lanes * self.packet_bytes * 8 / element.bits()
    }

    /// Nanoseconds of a cycle.
    pub fn cycle_ns(&self) -> f64 {
        1e9 / self.clock_hz
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_book() {
        let rngd = Machine::rngd();
        let rate = |element| rngd.macs_per_cycle(element);
        assert_eq!(rate(Element::Bf16), 131_072);
        assert_eq!(rate(Element::E4m3), 262_144);
        assert_eq!(rate(Element::I8), 262_144);
        assert_eq!(rate(Element::I4), 524_288);
        assert_eq!(rngd.chip_slices() * rngd.dm_bytes, 256 << 20);
        assert!(rngd.facts.iter().all(|fact| !fact.source.is_empty()));
    }

    #[test]
    fn bad_files_are_named() {
        let text = include_str!("../data/machines/rngd.toml");
        let error = |text: &str| Machine::from_toml(text, "m.toml").unwrap_err().to_string();
        let zero = text.replace("value = 524288", "value = 0");
        assert!(error(&zero).contains("`dm_bytes` = 0: expected"));
        let half = text.replace("value = 524288", "value = 5242.5");
        assert!(error(&half).contains("a whole number from 1024"));
        assert!(error("name = \"x\"").contains("`clusters` is missing"));
        let typo = format!("{text}\n[lines]\nvalue = 1\nsource = \"x\"\n");
        assert!(error(&typo).contains("no key `lines`; did you mean `lanes`?"));
        let unsourced = text.replace("source = \"vendor: 1.0 GHz\"", "");
        assert!(error(&unsourced).contains("clock_hz.source"));
        assert!(error("= 1").starts_with("m.toml: "));
        let based = Machine::from_toml("name = \"half\"\nbase = \"rngd\"\nslices = 128", "m");
        let based = based.unwrap();
        assert_eq!((based.slices, based.lanes), (128, 8));
    }
}
