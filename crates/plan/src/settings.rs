//! Settings of a target.

use crate::Choice;
use millrace_facts::Record;

/// Settings of a target. An absent setting means the first of its [options](crate::TargetOptions).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Facts of the machine.
    pub machine: Option<FactSource>,
    /// Calibrated constants of the software stack.
    pub profile: Option<FactSource>,
    /// Changes of both, `key=value`; those of the profile begin with `profile.`.
    pub set: Vec<String>,
    /// How plans are made.
    pub mode: Option<String>,
    /// Improvements that are left out.
    pub without: Vec<String>,
    /// How matrices are multiplied.
    pub numerics: Option<String>,
    /// Simulator that executes programs on a virtual device.
    pub simulator: Option<String>,
    /// In predictions, the owner of the host that works between the calls.
    pub host: Option<String>,
}

impl Settings {
    /// The same without changes of the machine and its constants; `None` where there are none.
    pub fn unchanged(&self) -> Option<Settings> {
        let own = |facts: &Option<FactSource>| matches!(facts, Some(FactSource::Text { .. }));
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

/// Prefix of a change that distinguishes a profile's constant from a fact of the machine.
const PROFILE_PREFIX: &str = "profile.";

/// The machine and the profile that the settings name, with the changes in `set`; the defaults where none is named. A
/// changed profile says so in its name.
///
/// # Errors
/// A name that is not built in, a file that holds no such facts, an invalid change.
pub fn machine_and_profile<'s, M: Record, P: Record>(
    target: &'static str,
    settings: &Settings,
    set: impl IntoIterator<Item = &'s String>,
) -> Result<(M, P), SettingError> {
    let mut machine: M = record(target, "machine", settings.machine.as_ref())?;
    let mut profile: P = record(target, "profile", settings.profile.as_ref())?;
    let mut is_changed = false;
    for change in set {
        let changed = match change.strip_prefix(PROFILE_PREFIX) {
            Some(change) => millrace_facts::set(&mut profile, change),
            None => millrace_facts::set(&mut machine, change),
        };
        changed.map_err(|error| SettingError::Change {
            change: change.clone(),
            problem: error.problem.to_string(),
        })?;
        is_changed = true;
    }
    if is_changed {
        // Stated errors were found without a change; the name must not claim them.
        profile.name_mut().push_str(" changed by --set");
    }
    Ok((machine, profile))
}

/// The record that is asked for.
fn record<S: Record>(
    target: &'static str,
    what: &'static str,
    asked: Option<&FactSource>,
) -> Result<S, SettingError> {
    let name = match asked {
        Some(FactSource::Text { name, text }) => {
            let read = millrace_facts::from_toml(text, name);
            return read.map_err(|error| SettingError::Facts(error.to_string()));
        }
        Some(FactSource::Named(name)) => Some(name.as_str()),
        None => None,
    };
    let default = millrace_facts::names::<S>().next();
    let name = name.or(default).unwrap_or_default();
    let builtin = millrace_facts::builtin(name).cloned();
    builtin.ok_or_else(|| {
        let known = millrace_facts::names::<S>();
        let known: Vec<Choice> = known.map(|name| Choice::new(name, "")).collect();
        SettingError::unknown(target, what, name, &known)
    })
}

/// Facts or constants: built in, or from the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactSource {
    /// The built-in ones of that name.
    Named(String),
    /// The text of a TOML file, and a name for it.
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
        /// Kind of the setting (`machine`).
        what: &'static str,
        /// The name.
        found: String,
        /// The target.
        target: &'static str,
        /// The names that exist.
        known: String,
    },
    /// An invalid `key=value`.
    #[error("--set {change}: {problem}")]
    Change {
        /// The change that was asked for.
        change: String,
        /// Why not.
        problem: String,
    },
    /// A file that holds no such facts.
    #[error("{0}")]
    Facts(String),
}

impl SettingError {
    /// The error for a name that is none of the choices.
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
