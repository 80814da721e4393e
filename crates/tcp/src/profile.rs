//! What software attains on the machine: constants with their origin, apart from the facts.

use crate::facts::{self, Key};
use crate::machine::{Fact, FactsError};
use millrace_npu::Provenance;

/// Calibrated constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it stands for, in a line.
    pub summary: String,
    /// Share of the memory's peak rate that long reads attain.
    pub hbm_efficiency: f64,
    /// Share of the contraction engine's peak that long contractions attain.
    pub contraction_efficiency: f64,
    /// Before a contraction's first result.
    pub contract_start_cycles: f64,
    /// Before a vector pass's first result.
    pub vector_start_cycles: f64,
    /// Before the switch's first flit.
    pub switch_start_cycles: f64,
    /// Before a kernel of the sub context fills a register file.
    pub sub_start_cycles: f64,
    /// Before a DMA command's first byte.
    pub dma_start_cycles: f64,
    /// Bytes a cycle that a DMA engine attains.
    pub dma_engine_bytes: f64,
    /// Between two programs.
    pub dispatch_ns: f64,
    /// A hop between chips, beside its bytes.
    pub hop_ns: f64,
    /// All of it with origins.
    pub facts: Vec<Fact>,
}

const fn number(name: &'static str, min: f64, max: f64) -> Key {
    Key {
        name,
        min,
        max,
        is_whole: false,
    }
}

const KEYS: [Key; 10] = [
    number("hbm_efficiency", 0.01, 1.0),
    number("contraction_efficiency", 0.01, 1.0),
    number("contract_start_cycles", 0.0, 1e6),
    number("vector_start_cycles", 0.0, 1e6),
    number("switch_start_cycles", 0.0, 1e6),
    number("sub_start_cycles", 0.0, 1e6),
    number("dma_start_cycles", 0.0, 1e6),
    number("dma_engine_bytes", 1.0, 1e6),
    number("dispatch_ns", 0.0, 1e9),
    number("hop_ns", 0.0, 1e9),
];

impl Profile {
    /// The vendor's serving stack of 2025.
    pub fn furiosa_llm() -> Profile {
        let text = include_str!("../data/profiles/furiosa-llm-2025.toml");
        Profile::parse(text, "furiosa-llm-2025.toml").expect("the built-in profile is tested")
    }

    /// The profile in a file.
    ///
    /// # Errors
    /// [`FactsError`] naming the key; also where a constant has no origin, or a fitted one no rows.
    pub fn parse(text: &str, path: &str) -> Result<Profile, FactsError> {
        let facts = facts::parse(text, path, &KEYS)?;
        for fact in &facts.facts {
            let bad = |key: &str, expected: &str| FactsError::Value {
                path: path.into(),
                key: format!("{}.{key}", fact.key),
                found: format!("`{}`", fact.origin),
                expected: expected.into(),
            };
            match fact.origin.as_str() {
                "published" | "derived" | "assumed" => {}
                "fitted" if fact.rows.is_empty() => {
                    return Err(bad("rows", "the rows that a fitted constant was fitted on"));
                }
                "fitted" => {}
                _ => return Err(bad("origin", "published, derived, fitted or assumed")),
            }
        }
        Ok(Profile {
            name: facts.name.clone(),
            summary: facts.summary.clone(),
            hbm_efficiency: facts.get("hbm_efficiency"),
            contraction_efficiency: facts.get("contraction_efficiency"),
            contract_start_cycles: facts.get("contract_start_cycles"),
            vector_start_cycles: facts.get("vector_start_cycles"),
            switch_start_cycles: facts.get("switch_start_cycles"),
            sub_start_cycles: facts.get("sub_start_cycles"),
            dma_start_cycles: facts.get("dma_start_cycles"),
            dma_engine_bytes: facts.get("dma_engine_bytes"),
            dispatch_ns: facts.get("dispatch_ns"),
            hop_ns: facts.get("hop_ns"),
            facts: facts.facts,
        })
    }

    /// Rows of the measurements that some constant was fitted on.
    pub fn fitted_rows(&self) -> Vec<u32> {
        let mut rows: Vec<u32> = self.facts.iter().flat_map(|f| f.rows.clone()).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// What times made with it say of themselves. No error is stated: too few rows are held out.
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
        assert_eq!(profile.fitted_rows(), [14, 16]);
        let text = include_str!("../data/profiles/furiosa-llm-2025.toml");
        let error = |text: &str| Profile::parse(text, "p").unwrap_err().to_string();
        assert!(error(&text.replace("rows = [14]", "")).contains("hbm_efficiency.rows"));
        assert!(error(&text.replace("\"assumed\"", "\"felt\"")).contains("dispatch_ns.origin"));
    }
}
