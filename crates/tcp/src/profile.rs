//! Constants that software attains on the machine, with their origin, apart from the facts.

pub(crate) use millrace_facts::{Fact, FactsError};

use millrace_facts::{Builtin, Key, Kind, Record};
use millrace_npu::Provenance;

/// Calibrated constants. The default is all zeros, which reading a file replaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Description, in a line.
    pub summary: String,
    /// Share of the memory's peak rate that long reads attain.
    pub hbm_efficiency: f64,
    /// Share of the contraction engine's peak that long contractions attain.
    pub contraction_efficiency: f64,
    /// Cycles before a contraction's first result.
    pub contract_start_cycles: f64,
    /// Cycles before a vector pass's first result.
    pub vector_start_cycles: f64,
    /// Cycles before the switch's first flit.
    pub switch_start_cycles: f64,
    /// Cycles before a kernel of the sub context fills a register file.
    pub sub_start_cycles: f64,
    /// Cycles before a DMA command's first byte.
    pub dma_start_cycles: f64,
    /// Bytes a cycle that a DMA engine attains.
    pub dma_engine_bytes: f64,
    /// Time between two programs.
    pub dispatch_ns: f64,
    /// Time of a hop between chips, beside its bytes.
    pub hop_ns: f64,
    /// All constants with their origins.
    pub facts: Vec<Fact>,
}

/// Every constant.
#[rustfmt::skip]
const KEYS: &[Key<Profile>] = &[
    Key::f64("hbm_efficiency", 0.01, 1.0, |p| &mut p.hbm_efficiency),
    Key::f64("contraction_efficiency", 0.01, 1.0, |p| &mut p.contraction_efficiency),
    Key::f64("contract_start_cycles", 0.0, 1e6, |p| &mut p.contract_start_cycles),
    Key::f64("vector_start_cycles", 0.0, 1e6, |p| &mut p.vector_start_cycles),
    Key::f64("switch_start_cycles", 0.0, 1e6, |p| &mut p.switch_start_cycles),
    Key::f64("sub_start_cycles", 0.0, 1e6, |p| &mut p.sub_start_cycles),
    Key::f64("dma_start_cycles", 0.0, 1e6, |p| &mut p.dma_start_cycles),
    Key::f64("dma_engine_bytes", 1.0, 1e6, |p| &mut p.dma_engine_bytes),
    Key::f64("dispatch_ns", 0.0, 1e9, |p| &mut p.dispatch_ns),
    Key::f64("hop_ns", 0.0, 1e9, |p| &mut p.hop_ns),
];

/// Profiles that come with the crate.
static BUILTIN: [Builtin<Profile>; 1] = [Builtin::new(
    "furiosa-llm-2025",
    include_str!("../data/profiles/furiosa-llm-2025.toml"),
)];

impl Record for Profile {
    const KIND: Kind = Kind::Profile;

    fn builtins() -> &'static [Builtin<Profile>] {
        &BUILTIN
    }

    fn keys() -> &'static [Key<Profile>] {
        KEYS
    }

    fn name_mut(&mut self) -> &mut String {
        &mut self.name
    }

    fn summary_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.summary)
    }

    fn facts(&self) -> &[Fact] {
        &self.facts
    }

    fn facts_mut(&mut self) -> &mut Vec<Fact> {
        &mut self.facts
    }
}

impl Profile {
    /// The vendor's serving stack of 2025.
    ///
    /// # Panics
    /// Never: the profile is built in.
    pub fn furiosa_llm() -> Profile {
        let profile = millrace_facts::builtin("furiosa-llm-2025");
        profile.cloned().expect("the profile is built in")
    }

    /// The profile in a file; `path` is for messages. [`millrace_facts`] says how files are written.
    ///
    /// # Errors
    /// As [`millrace_facts::from_toml`].
    pub fn from_toml(text: &str, path: &str) -> Result<Profile, FactsError> {
        millrace_facts::from_toml(text, path)
    }

    /// Ids of the measured rows that some constant was fitted on.
    pub fn calibration_rows(&self) -> Vec<&str> {
        millrace_facts::calibration_rows(&self.facts)
    }

    /// Provenance of times made with it. No error is stated: too few rows are held out.
    pub fn provenance(&self) -> Provenance {
        Provenance::Modelled {
            profile: self.name.clone(),
            error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_say_where_they_come_from() {
        let profile = Profile::furiosa_llm();
        assert_eq!(profile.calibration_rows(), ["14", "16"]);
        let text = include_str!("../data/profiles/furiosa-llm-2025.toml");
        let error = |text: &str| Profile::from_toml(text, "p").unwrap_err().to_string();
        assert!(error(&text.replace("rows = [14]", "")).contains("hbm_efficiency.rows"));
        assert!(error(&text.replace("\"assumed\"", "\"felt\"")).contains("dispatch_ns.origin"));
    }
}
