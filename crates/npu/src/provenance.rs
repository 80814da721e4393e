//! Where a figure comes from.

use serde::{Deserialize, Serialize};

/// Whether a time, a power or an energy was measured or modelled. Every printed figure carries it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Read from hardware, by that instrument (`driver timestamps`, `rail sensor`).
    Measured(String),
    /// Predicted by a model.
    Modelled {
        /// The profile whose constants were used.
        profile: String,
        /// The stated error as a fraction (0.04 is ±4 %), where one is known.
        error: Option<f64>,
    },
}

impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Provenance::Measured(by) => write!(f, "measured({by})"),
            Provenance::Modelled {
                profile,
                error: Some(error),
            } => write!(
                f,
                "modelled({profile}, ±{} %)",
                (error * 1000.0).round() / 10.0
            ),
            Provenance::Modelled {
                profile,
                error: None,
            } => write!(f, "modelled({profile}, error unknown)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Provenance;

    #[test]
    fn it_reads_as_the_reports_want_it() {
        let modelled = |error| Provenance::Modelled {
            profile: "p".into(),
            error,
        };
        assert_eq!(modelled(Some(0.04)).to_string(), "modelled(p, ±4 %)");
        assert_eq!(modelled(Some(0.125)).to_string(), "modelled(p, ±12.5 %)");
        assert_eq!(modelled(None).to_string(), "modelled(p, error unknown)");
        let measured = Provenance::Measured("sensor".into());
        assert_eq!(measured.to_string(), "measured(sensor)");
    }
}
