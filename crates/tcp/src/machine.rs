//! Facts of the hardware, each with its source; limits and rates come from here and nowhere else.

use crate::element::Element;
use crate::facts::{self, Key};

pub use crate::facts::{Fact, FactsError};

/// A chip.
#[derive(Clone, Debug, PartialEq)]
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
    /// What starts of tensors in data memory are multiples of.
    pub dm_align_bytes: u64,
    /// Tensor register file of a lane.
    pub trf_lane_bytes: u64,
    /// Vector register file of a slice.
    pub vrf_bytes: u64,
    /// Of the vector register file, taken by a kernel that stashes.
    pub vrf_stash_bytes: u64,
    /// A flit.
    pub flit_bytes: u64,
    /// A contraction's packet at most.
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
    /// What a loop of a sequencer counts to.
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
    /// Bytes a cycle of one engine at most.
    pub dma_engine_bytes: u64,
    /// Unit in which DMA writes data memory.
    pub dma_element_bytes: u64,
    /// Bytes a cycle between chips and to the host.
    pub host_link_bytes: u64,
    /// Chips of a device at most.
    pub chips: u64,
    /// Board power.
    pub tdp_watts: f64,
    /// All of it with sources.
    pub facts: Vec<Fact>,
}

const fn whole(name: &'static str, min: f64, max: f64) -> Key {
    Key {
        name,
        min,
        max,
        is_whole: true,
    }
}

const KEYS: [Key; 32] = [
    whole("clusters", 1.0, 64.0),
    whole("slices", 1.0, 4096.0),
    whole("lanes", 1.0, 64.0),
    whole("dm_bytes", 1024.0, 1e9),
    whole("dm_align_bytes", 1.0, 4096.0),
    whole("trf_lane_bytes", 64.0, 1e8),
    whole("vrf_bytes", 64.0, 1e8),
    whole("vrf_stash_bytes", 0.0, 1e8),
    whole("flit_bytes", 1.0, 1024.0),
    whole("packet_bytes", 1.0, 1024.0),
    whole("accumulator_cells", 1.0, 1e6),
    whole("sequential_slots", 1.0, 1e6),
    whole("interleaved_slots", 1.0, 1e6),
    whole("reduce_slots", 1.0, 1e6),
    whole("sequencer_entries", 1.0, 64.0),
    whole("sequencer_size", 1.0, 1e9),
    whole("main_fetch_bytes", 1.0, 1024.0),
    whole("sub_fetch_bytes", 1.0, 1024.0),
    whole("commit_bytes", 1.0, 1024.0),
    whole("float_ways", 1.0, 64.0),
    whole("fixed_ways", 1.0, 64.0),
    whole("ring_slices", 1.0, 4096.0),
    whole("clock_hz", 1e6, 1e11),
    whole("hbm_bytes", 1.0, 1e15),
    Key {
        name: "hbm_gb_per_s",
        min: 0.001,
        max: 1e6,
        is_whole: false,
    },
    whole("hbm_align_bytes", 1.0, 1e6),
    whole("dma_engines", 1.0, 256.0),
    whole("dma_engine_bytes", 1.0, 1e6),
    whole("dma_element_bytes", 1.0, 4096.0),
    whole("host_link_bytes", 1.0, 1e6),
    whole("chips", 1.0, 1024.0),
    Key {
        name: "tdp_watts",
        min: 1.0,
        max: 1e5,
        is_whole: false,
    },
];

impl Machine {
    /// RNGD.
    pub fn rngd() -> Machine {
        let text = include_str!("../data/machines/rngd.toml");
        Machine::parse(text, "rngd.toml").expect("the built-in machine is tested")
    }

    /// The machine in a file of facts.
    ///
    /// # Errors
    /// [`FactsError`] naming the key.
    pub fn parse(text: &str, path: &str) -> Result<Machine, FactsError> {
        let facts = facts::parse(text, path, &KEYS)?;
        let whole = |key: &str| facts.get(key) as u64;
        Ok(Machine {
            name: facts.name.clone(),
            clusters: whole("clusters"),
            slices: whole("slices"),
            lanes: whole("lanes"),
            dm_bytes: whole("dm_bytes"),
            dm_align_bytes: whole("dm_align_bytes"),
            trf_lane_bytes: whole("trf_lane_bytes"),
            vrf_bytes: whole("vrf_bytes"),
            vrf_stash_bytes: whole("vrf_stash_bytes"),
            flit_bytes: whole("flit_bytes"),
            packet_bytes: whole("packet_bytes"),
            accumulator_cells: whole("accumulator_cells"),
            sequential_slots: whole("sequential_slots"),
            interleaved_slots: whole("interleaved_slots"),
            reduce_slots: whole("reduce_slots"),
            sequencer_entries: whole("sequencer_entries"),
            sequencer_size: whole("sequencer_size"),
            main_fetch_bytes: whole("main_fetch_bytes"),
            sub_fetch_bytes: whole("sub_fetch_bytes"),
            commit_bytes: whole("commit_bytes"),
            float_ways: whole("float_ways"),
            fixed_ways: whole("fixed_ways"),
            ring_slices: whole("ring_slices"),
            clock_hz: facts.get("clock_hz"),
            hbm_bytes: whole("hbm_bytes"),
            hbm_gb_per_s: facts.get("hbm_gb_per_s"),
            hbm_align_bytes: whole("hbm_align_bytes"),
            dma_engines: whole("dma_engines"),
            dma_engine_bytes: whole("dma_engine_bytes"),
            dma_element_bytes: whole("dma_element_bytes"),
            host_link_bytes: whole("host_link_bytes"),
            chips: whole("chips"),
            tdp_watts: facts.get("tdp_watts"),
            facts: facts.facts,
        })
    }

    /// Slices of a chip.
    pub fn chip_slices(&self) -> u64 {
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
        let error = |text: &str| Machine::parse(text, "m.toml").unwrap_err().to_string();
        let zero = text.replace("value = 524288", "value = 0");
        assert!(error(&zero).contains("`dm_bytes` is 0; expected"));
        let half = text.replace("value = 524288", "value = 5242.5");
        assert!(error(&half).contains("a whole number from 1024"));
        assert!(error("name = \"x\"").contains("`clusters` is missing"));
        let typo = format!("{text}\n[lines]\nvalue = 1\nsource = \"x\"\n");
        assert!(error(&typo).contains("`lines` is not a key"));
        let unsourced = text.replace("source = \"vendor: 1.0 GHz\"", "");
        assert!(error(&unsourced).contains("clock_hz.source"));
        assert!(error("= 1").starts_with("m.toml: "));
    }
}
