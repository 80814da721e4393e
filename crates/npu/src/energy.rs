//! Energy: power times time, by named rail.

use crate::Provenance;
use serde::{Deserialize, Serialize};

/// Power of one rail over a stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rail {
    /// The part that it supplies: `npu`, `soc`, `dram`, `package`. Rails may contain each other.
    pub name: String,
    /// Mean power in watts.
    pub power_w: f64,
    /// How long, in nanoseconds.
    pub duration_ns: u64,
    /// Where the power comes from.
    pub provenance: Provenance,
}

impl Rail {
    /// Energy in joules.
    pub fn joules(&self) -> f64 {
        self.power_w * self.duration_ns as f64 * 1e-9
    }
}

/// Energy of a piece of work.
///
/// Figures of different rails are never added: a package contains its NPU, and published figures
/// of the two differ by a factor of ten to twenty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Entries in the order in which they were added.
    pub rails: Vec<Rail>,
}

/// A power that is negative or not finite.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rail `{rail}`: {power_w} W is not a power")]
pub struct NotAPower {
    /// The rail.
    pub rail: String,
    /// The value.
    pub power_w: f64,
}

impl Energy {
    /// Adds an entry.
    ///
    /// # Errors
    /// [`NotAPower`] where the power is negative or not finite.
    pub fn add(
        &mut self,
        name: &str,
        power_w: f64,
        duration_ns: u64,
        provenance: Provenance,
    ) -> Result<(), NotAPower> {
        if !power_w.is_finite() || power_w < 0.0 {
            return Err(NotAPower {
                rail: name.to_owned(),
                power_w,
            });
        }
        self.rails.push(Rail {
            name: name.to_owned(),
            power_w,
            duration_ns,
            provenance,
        });
        Ok(())
    }

    /// Joules of one rail, over all its entries; `None` where it has none.
    pub fn joules(&self, rail: &str) -> Option<f64> {
        let mut entries = self.rails.iter().filter(|r| r.name == rail).peekable();
        entries.peek()?;
        Some(entries.map(Rail::joules).sum())
    }

    /// Names of the rails, each once, in the order in which they were added.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for rail in &self.rails {
            if !names.contains(&rail.name.as_str()) {
                names.push(&rail.name);
            }
        }
        names
    }

    /// Whether every entry of the rail was measured; `false` where one was modelled or none exists.
    pub fn is_measured(&self, rail: &str) -> bool {
        let mut entries = self.rails.iter().filter(|r| r.name == rail).peekable();
        entries.peek().is_some() && entries.all(|r| matches!(r.provenance, Provenance::Measured(_)))
    }

    /// Appends the entries of a later piece of work.
    pub fn extend(&mut self, later: Energy) {
        self.rails.extend(later.rails);
    }
}

impl std::fmt::Display for Energy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, name) in self.names().into_iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            let joules = self.joules(name).unwrap_or(0.0);
            let label = match self.is_measured(name) {
                true => "measured",
                false => "modelled",
            };
            write!(f, "{separator}{name} {joules:.3} J ({label})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_add_up_by_name_and_keep_their_label() {
        let measured = Provenance::Measured("sensor".into());
        let modelled = Provenance::Modelled {
            profile: "p".into(),
            error: None,
        };
        let mut energy = Energy::default();
        energy
            .add("npu", 1.5, 2_000_000_000, measured.clone())
            .unwrap();
        energy
            .add("package", 30.0, 1_000_000_000, measured)
            .unwrap();
        let mut later = Energy::default();
        later.add("npu", 1.0, 500_000_000, modelled).unwrap();
        energy.extend(later);
        assert_eq!(energy.joules("npu"), Some(3.5));
        assert_eq!(energy.joules("dram"), None);
        assert_eq!(energy.names(), ["npu", "package"]);
        assert!(energy.is_measured("package"));
        assert!(!energy.is_measured("npu") && !energy.is_measured("dram"));
        assert_eq!(
            energy.to_string(),
            "npu 3.500 J (modelled), package 30.000 J (measured)"
        );
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            let source = Provenance::Measured("x".into());
            assert!(energy.add("npu", bad, 1, source).is_err());
        }
    }
}
