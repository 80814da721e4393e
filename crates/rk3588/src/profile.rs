//! Profiles: the few calibrated constants of a software stack on a board, apart from the facts of the
//! [`machine`](crate::machine).
//!
//! Each says where it comes from: *published* by a source, *derived* from published figures by
//! arithmetic, *fitted* on rows of `data/measured.csv` that it names, or *assumed*.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The constants of one software stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name (`rocket-600`).
    pub name: String,
    /// What it describes, in one line.
    pub summary: String,
    /// How far its times lie from measurements that nothing was fitted on, as a fraction: the largest
    /// median of a group of the fidelity report.
    pub error: Option<f64>,
    /// Clock of all cores, in Hz.
    pub clock_hz: f64,
    /// Host time of one SUBMIT, in nanoseconds.
    pub submit_ns: f64,
    /// What a task costs on its core beside its work: kick, fetch, interrupt.
    pub task_ns: f64,
    /// Bytes that one core moves in a cycle.
    pub core_bytes_per_cycle: f64,
    /// Bytes that all cores together move in a second.
    pub ddr_bytes_per_s: f64,
    /// Bytes of A that one host thread packs in a second.
    pub host_pack_bytes_per_s: f64,
    /// Elements of C that one host thread reads back, adds and converts in a second.
    pub host_unpack_elements_per_s: f64,
    /// Weights that one host thread unpacks from a file's 4-bit blocks in a second, where that is done before every product. Packing
    /// them comes on top.
    pub host_fill_elements_per_s: f64,
    /// Host threads that pack and read back.
    pub host_threads: f64,
    /// Bytes that one host thread reads in a second.
    pub host_read_bytes_per_s: f64,
    /// Operations (two a multiply-add) of attention's products that one host thread does in a second.
    pub host_ops_per_s: f64,
    /// Scores of which one host thread makes probabilities in a second.
    pub host_softmax_elements_per_s: f64,
    /// What a layer of a model costs beside its products, in nanoseconds a pass.
    pub layer_ns: f64,
    /// And for each token of the pass.
    pub layer_token_ns: f64,
    /// Share of its peak that the array attains.
    pub mac_efficiency: f64,
    /// Every constant with its origin.
    pub constants: Vec<Constant>,
}

/// How a constant was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A source states it.
    Published,
    /// Arithmetic on what sources state.
    Derived,
    /// Fitted on the rows named.
    Fitted,
    /// Nobody states it.
    Assumed,
}

/// A constant's origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// How it was come by.
    pub origin: Origin,
    /// The source.
    pub source: String,
    /// Rows it was fitted on.
    pub rows: Vec<String>,
    /// Remarks.
    pub note: Option<String>,
}

/// Why a text is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile: {0}")]
pub struct ProfileError(String);

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Value {
    value: f64,
    origin: Origin,
    source: String,
    #[serde(default)]
    rows: Vec<String>,
    note: Option<String>,
}

#[derive(Deserialize)]
struct File {
    name: String,
    base: Option<String>,
    summary: String,
    error: Option<f64>,
    #[serde(flatten)]
    constants: BTreeMap<String, Value>,
}

type Set = fn(&mut Profile) -> &mut f64;

/// Every constant: its name, its least and greatest value, and its field.
const KEYS: &[(&str, f64, f64, Set)] = &[
    ("clock_hz", 1e6, 1e10, |p| &mut p.clock_hz),
    ("submit_ns", 0.0, 1e9, |p| &mut p.submit_ns),
    ("task_ns", 0.0, 1e9, |p| &mut p.task_ns),
    ("core_bytes_per_cycle", 0.1, 1e4, |p| {
        &mut p.core_bytes_per_cycle
    }),
    ("ddr_bytes_per_s", 1e6, 1e13, |p| &mut p.ddr_bytes_per_s),
    ("host_pack_bytes_per_s", 1e6, 1e13, |p| {
        &mut p.host_pack_bytes_per_s
    }),
    ("host_unpack_elements_per_s", 1e6, 1e13, |p| {
        &mut p.host_unpack_elements_per_s
    }),
    ("host_fill_elements_per_s", 1e6, 1e13, |p| {
        &mut p.host_fill_elements_per_s
    }),
    ("host_threads", 1.0, 256.0, |p| &mut p.host_threads),
    ("host_read_bytes_per_s", 1e6, 1e13, |p| {
        &mut p.host_read_bytes_per_s
    }),
    ("host_ops_per_s", 1e6, 1e15, |p| &mut p.host_ops_per_s),
    ("host_softmax_elements_per_s", 1e6, 1e13, |p| {
        &mut p.host_softmax_elements_per_s
    }),
    ("layer_ns", 0.0, 1e12, |p| &mut p.layer_ns),
    ("layer_token_ns", 0.0, 1e12, |p| &mut p.layer_token_ns),
    ("mac_efficiency", 1e-3, 1.0, |p| &mut p.mac_efficiency),
];

const BUILTIN: &[(&str, &str)] = &[
    (
        "rocket-200",
        include_str!("../data/profiles/rocket-200.toml"),
    ),
    (
        "rocket-600",
        include_str!("../data/profiles/rocket-600.toml"),
    ),
    (
        "vendor-1000",
        include_str!("../data/profiles/vendor-1000.toml"),
    ),
    (
        "rk-llama-1000",
        include_str!("../data/profiles/rk-llama-1000.toml"),
    ),
];

impl Profile {
    /// The profile of what a stock kernel does.
    pub const DEFAULT: &'static str = "rocket-200";

    /// Names of the built-in profiles.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The text of the built-in profile of that name.
    pub(crate) fn builtin_text(name: &str) -> Option<&'static str> {
        let row = BUILTIN.iter().find(|(known, _)| *known == name);
        row.map(|(_, text)| *text)
    }

    /// The built-in profile of that name.
    pub fn builtin(name: &str) -> Option<Profile> {
        let text = Profile::builtin_text(name)?;
        let profile = Profile::from_toml(text);
        Some(profile.expect("the file is a part of the crate and tested"))
    }

    /// The default profile.
    pub fn rocket_200() -> Profile {
        Profile::builtin(Profile::DEFAULT).expect("the default is built in")
    }

    /// A profile from a file such as those of `data/profiles`. With `base`, what is not named is
    /// taken from that built-in profile.
    ///
    /// # Errors
    /// What is missing, unknown or out of range.
    pub fn from_toml(text: &str) -> Result<Profile, ProfileError> {
        let file: File = toml::from_str(text).map_err(|e| ProfileError(e.to_string()))?;
        let mut profile = match &file.base {
            Some(base) => Profile::builtin(base).ok_or_else(|| {
                let names: Vec<&str> = Profile::builtin_names().collect();
                ProfileError(format!(
                    "no base is named `{base}`; there are {}",
                    names.join(", ")
                ))
            })?,
            None => Profile::empty(),
        };
        profile.name = file.name;
        profile.summary = file.summary;
        profile.error = file.error;
        for (name, value) in file.constants {
            profile.set(&name, value)?;
        }
        let missing = KEYS
            .iter()
            .find(|key| !profile.constants.iter().any(|c| c.name == key.0));
        match missing {
            Some((name, ..)) => Err(ProfileError(format!("`{name}` is missing"))),
            None => Ok(profile),
        }
    }

    fn set(&mut self, name: &str, value: Value) -> Result<(), ProfileError> {
        let Some((_, min, max, field)) = KEYS.iter().find(|key| key.0 == name) else {
            let names: Vec<&str> = KEYS.iter().map(|key| key.0).collect();
            return Err(ProfileError(format!(
                "no constant is named `{name}`; there are {}",
                names.join(", ")
            )));
        };
        if !(*min..=*max).contains(&value.value) {
            return Err(ProfileError(format!(
                "`{name}` is {}; expected {min} to {max}",
                value.value
            )));
        }
        if (value.origin == Origin::Fitted) == value.rows.is_empty() {
            return Err(ProfileError(format!(
                "`{name}`: a fitted constant names its rows, and no other does"
            )));
        }
        *field(self) = value.value;
        self.constants.retain(|c| c.name != name);
        self.constants.push(Constant {
            name: name.to_owned(),
            value: value.value,
            origin: value.origin,
            source: value.source,
            rows: value.rows,
            note: value.note,
        });
        Ok(())
    }

    /// Ids of the measured rows that constants were fitted on.
    pub fn calibration_rows(&self) -> impl Iterator<Item = &str> {
        let constants = self.constants.iter();
        constants.flat_map(|c| c.rows.iter().map(String::as_str))
    }

    /// Bytes that one core moves in a nanosecond.
    pub fn core_bytes_per_ns(&self) -> f64 {
        self.core_bytes_per_cycle * self.clock_hz / 1e9
    }

    fn empty() -> Profile {
        Profile {
            name: String::new(),
            summary: String::new(),
            error: None,
            clock_hz: 0.0,
            submit_ns: 0.0,
            task_ns: 0.0,
            core_bytes_per_cycle: 0.0,
            ddr_bytes_per_s: 0.0,
            host_pack_bytes_per_s: 0.0,
            host_unpack_elements_per_s: 0.0,
            host_fill_elements_per_s: 0.0,
            host_threads: 0.0,
            host_read_bytes_per_s: 0.0,
            host_ops_per_s: 0.0,
            host_softmax_elements_per_s: 0.0,
            layer_ns: 0.0,
            layer_token_ns: 0.0,
            mac_efficiency: 0.0,
            constants: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_complete_and_sourced() {
        for name in Profile::builtin_names() {
            let profile = Profile::builtin(name).unwrap();
            assert_eq!(profile.name, name);
            assert_eq!(profile.constants.len(), KEYS.len());
            assert!(profile.constants.iter().all(|c| !c.source.is_empty()));
        }
        assert_eq!(Profile::rocket_200().clock_hz, 200e6);
    }

    #[test]
    fn wrong_files_are_refused_by_name() {
        let head = "name = 'x'\nsummary = 'x'\n";
        let constant = |name: &str, value: &str, more: &str| {
            format!("{head}base = 'rocket-200'\n[{name}]\nvalue = {value}\nsource = 's'\n{more}")
        };
        let wrong = [
            (head.to_owned(), "`clock_hz` is missing"),
            (format!("{head}base = 'nothing'\n"), "no base is named"),
            (
                constant("clock", "1e9", "origin = 'derived'"),
                "no constant",
            ),
            (
                constant("clock_hz", "1", "origin = 'derived'"),
                "expected 1",
            ),
            (
                constant("clock_hz", "nan", "origin = 'derived'"),
                "expected 1",
            ),
            (constant("clock_hz", "1e9", "origin = 'guessed'"), "guessed"),
            (
                constant("clock_hz", "1e9", "origin = 'fitted'"),
                "names its rows",
            ),
        ];
        for (text, words) in wrong {
            let error = Profile::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
