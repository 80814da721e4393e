//! What is asked of a target.

use crate::Choice;

/// What is asked of a target: what is not said is the first of its [options](crate::TargetOptions).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Facts of the machine.
    pub machine: Option<Facts>,
    /// Calibrated constants of the software stack.
    pub profile: Option<Facts>,
    /// Changes of both, `key=value`; those of the profile begin with `profile.`.
    pub set: Vec<String>,
    /// How plans are made.
    pub mode: Option<String>,
    /// Improvements that are left out.
    pub without: Vec<String>,
    /// How matrices are multiplied.
    pub numerics: Option<String>,
    /// In predictions, whose host works between the calls.
    pub host: Option<String>,
}

impl Settings {
    /// The same without changes of the machine and its constants; `None` where there are none.
    pub fn unchanged(&self) -> Option<Settings> {
        let own = |facts: &Option<Facts>| matches!(facts, Some(Facts::Text { .. }));
        if self.set.is_empty() && !own(&self.machine) {
            return None;
        }
        Some(Settings {
            machine: None,
            set: Vec::new(),
            ..self.clone()
        })
    }
}

/// Facts or constants: built in, or somebody's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// The built-in ones of that name.
    Named(String),
    /// The text of a TOML file, and what to call it.
    Text {
        /// Its name.
        name: String,
        /// Its content.
        text: String,
    },
}

/// A setting that a target does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A name that it does not know.
    #[error("no {what} `{found}` for {target}: there is {known}")]
    Unknown {
        /// What was named (`machine`).
        what: &'static str,
        /// The name.
        found: String,
        /// The target.
        target: &'static str,
        /// The names there are.
        known: String,
    },
    /// A `key=value` that cannot be.
    #[error("--set {change}: {problem}")]
    Change {
        /// What was asked for.
        change: String,
        /// Why not.
        problem: String,
    },
    /// A file that holds no such facts.
    #[error("{0}")]
    Facts(String),
}

impl SettingError {
    /// For a name that is none of the choices.
    pub fn unknown(
        target: &'static str,
        what: &'static str,
        found: &str,
        choices: &[Choice],
    ) -> SettingError {
        let known: Vec<&str> = choices.iter().map(|c| c.name.as_str()).collect();
        SettingError::Unknown {
            what,
            found: found.to_owned(),
            target,
            known: match known.is_empty() {
                true => "none to choose".to_owned(),
                false => known.join(", "),
            },
        }
    }
}
