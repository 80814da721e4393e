//! Profiles: the few calibrated constants of a software stack on a board, apart from the facts of the
//! [`machine`](crate::machine).
//!
//! Each states its origin: *published* by a source, *derived* from published figures by arithmetic, *fitted* on rows of
//! `crates/evidence/data/rk3588/measured.csv` that it names, or *assumed*.

pub use millrace_facts::{Fact, FactsError, Origin};

use millrace_facts::{Builtin, Key, Kind, Record};

/// The constants of one software stack. The default is all zeros, which reading a file replaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Name (`rocket-600`).
    pub name: String,
    /// Description, in one line.
    pub summary: String,
    /// Error of its times against measurements that nothing was fitted on, as a fraction: the largest median of a group
    /// of the fidelity report.
    pub error: Option<f64>,
    /// Clock of all cores, in Hz.
    pub clock_hz: f64,
    /// Host time of one SUBMIT, in nanoseconds.
    pub submit_ns: f64,
    /// Time of a task on its core beside its work: kick, fetch, interrupt.
    pub task_ns: f64,
    /// Bytes that one core moves in a cycle.
    pub core_bytes_per_cycle: f64,
    /// Bytes that all cores together move in a second.
    pub ddr_bytes_per_s: f64,
    /// Bytes of A that one host thread packs in a second.
    pub host_pack_bytes_per_s: f64,
    /// Elements of C that one host thread reads back, adds and converts in a second.
    pub host_unpack_elements_per_s: f64,
    /// Weights that one host thread unpacks from a file's 4-bit blocks in a second, where weights are unpacked before every product.
    /// Packing them comes on top.
    pub host_fill_elements_per_s: f64,
    /// Host threads that pack and read back.
    pub host_threads: f64,
    /// Bytes that one host thread reads in a second.
    pub host_read_bytes_per_s: f64,
    /// Operations (two a multiply-add) of attention's products that one host thread does in a second.
    pub host_ops_per_s: f64,
    /// Scores that one host thread turns into probabilities in a second.
    pub host_softmax_elements_per_s: f64,
    /// Time of a layer of a model beside its products, in nanoseconds a pass.
    pub layer_ns: f64,
    /// Further time of a layer for each token of the pass.
    pub layer_token_ns: f64,
    /// Share of its peak that the array attains.
    pub mac_efficiency: f64,
    /// Every constant with its origin.
    pub constants: Vec<Fact>,
}

/// Every constant: its name, its least and greatest value, and its field.
#[rustfmt::skip]
const KEYS: &[Key<Profile>] = &[
    Key::f64("clock_hz", 1e6, 1e10, |p| &mut p.clock_hz),
    Key::f64("submit_ns", 0.0, 1e9, |p| &mut p.submit_ns),
    Key::f64("task_ns", 0.0, 1e9, |p| &mut p.task_ns),
    Key::f64("core_bytes_per_cycle", 0.1, 1e4, |p| &mut p.core_bytes_per_cycle),
    Key::f64("ddr_bytes_per_s", 1e6, 1e13, |p| &mut p.ddr_bytes_per_s),
    Key::f64("host_pack_bytes_per_s", 1e6, 1e13, |p| &mut p.host_pack_bytes_per_s),
    Key::f64("host_unpack_elements_per_s", 1e6, 1e13, |p| &mut p.host_unpack_elements_per_s),
    Key::f64("host_fill_elements_per_s", 1e6, 1e13, |p| &mut p.host_fill_elements_per_s),
    Key::f64("host_threads", 1.0, 256.0, |p| &mut p.host_threads),
    Key::f64("host_read_bytes_per_s", 1e6, 1e13, |p| &mut p.host_read_bytes_per_s),
    Key::f64("host_ops_per_s", 1e6, 1e15, |p| &mut p.host_ops_per_s),
    Key::f64("host_softmax_elements_per_s", 1e6, 1e13, |p| &mut p.host_softmax_elements_per_s),
    Key::f64("layer_ns", 0.0, 1e12, |p| &mut p.layer_ns),
    Key::f64("layer_token_ns", 0.0, 1e12, |p| &mut p.layer_token_ns),
    Key::f64("mac_efficiency", 1e-3, 1.0, |p| &mut p.mac_efficiency),
];

/// Remarks of a file about itself.
const REMARKS: &[Key<Profile>] = &[Key::maybe("error", 0.0, 1e3, |p| &mut p.error)];

/// Profiles that come with the crate, the default first.
static BUILTIN: [Builtin<Profile>; 4] = [
    Builtin::new(
        "rocket-200",
        include_str!("../data/profiles/rocket-200.toml"),
    ),
    Builtin::new(
        "rocket-600",
        include_str!("../data/profiles/rocket-600.toml"),
    ),
    Builtin::new(
        "vendor-1000",
        include_str!("../data/profiles/vendor-1000.toml"),
    ),
    Builtin::new(
        "rk-llama-1000",
        include_str!("../data/profiles/rk-llama-1000.toml"),
    ),
];

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
        &self.constants
    }

    fn facts_mut(&mut self) -> &mut Vec<Fact> {
        &mut self.constants
    }

    fn remarks() -> &'static [Key<Profile>] {
        REMARKS
    }

    /// An error belongs to a file's own constants.
    fn begin_file(&mut self) {
        self.error = None;
    }
}

impl Profile {
    /// The profile of a stock kernel.
    pub const DEFAULT: &'static str = "rocket-200";

    /// Names of the built-in profiles, the default first.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        millrace_facts::names::<Profile>()
    }

    /// The built-in profile of that name.
    pub fn builtin(name: &str) -> Option<Profile> {
        millrace_facts::builtin(name).cloned()
    }

    /// The default profile.
    ///
    /// # Panics
    /// Never: the profile is built in.
    pub fn rocket_200() -> Profile {
        Profile::builtin(Profile::DEFAULT).expect("the default is built in")
    }

    /// A profile from a file such as those of `data/profiles`; `path` is for messages. [`millrace_facts`] says how files are
    /// written.
    ///
    /// # Errors
    /// As [`millrace_facts::from_toml`].
    pub fn from_toml(text: &str, path: &str) -> Result<Profile, FactsError> {
        millrace_facts::from_toml(text, path)
    }

    /// Ids of the measured rows that constants were fitted on.
    pub fn calibration_rows(&self) -> Vec<&str> {
        millrace_facts::calibration_rows(&self.constants)
    }

    /// Bytes that one core moves in a nanosecond.
    pub(crate) fn core_bytes_per_ns(&self) -> f64 {
        self.core_bytes_per_cycle * self.clock_hz / 1e9
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
            (
                format!("{head}base = 'nothing'\n"),
                "`base` = \"nothing\": expected one of rocket-200, ",
            ),
            (
                constant("clock", "1e9", "origin = 'derived'"),
                "no constant `clock`; did you mean `clock_hz`?",
            ),
            (
                constant("clock_hz", "1", "origin = 'derived'"),
                "expected a number from 1000000 to 10000000000 Hz",
            ),
            (
                constant("clock_hz", "nan", "origin = 'derived'"),
                "expected a number from 1000000 to 10000000000 Hz",
            ),
            (constant("clock_hz", "1e9", "origin = 'guessed'"), "guessed"),
            (
                constant("clock_hz", "1e9", "origin = 'fitted'"),
                "`clock_hz.rows` is missing",
            ),
        ];
        for (text, words) in wrong {
            let error = Profile::from_toml(&text, "p.toml").unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
