//! A profile's constants from the times of the probe's programs.
//!
//! Each is a difference of two programs, so that their common time does not count.

use millrace_xdna2_machine::Profile;
use millrace_xdna2_words::board::TASK_BYTES;
use std::fmt::Write;

/// Time of a program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProbeTime {
    /// Its name.
    pub(super) name: &'static str,
    /// Bytes of its stream.
    pub(super) n_stream_bytes: usize,
    /// Bytes that shims read of DDR.
    pub(super) read_bytes: usize,
    /// Bytes that they write.
    pub(super) written_bytes: usize,
    /// Time from the command to its end.
    pub(super) ns: f64,
}

/// Programs that constants are taken from. Others tell how well they predict.
const FITTED: [&str; 7] = [
    "copy",
    "stream",
    "columns",
    "more-columns",
    "reads",
    "more-reads",
    "queue",
];

/// Constants from the programs' times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProbeConstants {
    /// An empty command.
    call_ns: f64,
    /// A task of a shim in the stream.
    issue_ns: f64,
    /// A channel of a shim.
    port_gb_per_s: f64,
    /// Eight columns that read.
    read_gb_per_s: f64,
    /// Eight columns that read and write.
    total_gb_per_s: f64,
}

impl ProbeConstants {
    /// Those of all programs; `None` where one did not run, or a longer one took no longer.
    pub(super) fn new(taken: &[ProbeTime]) -> Option<ProbeConstants> {
        let of = |name: &str| taken.iter().find(|time| time.name == name);
        let longer = |long: &str, short: &str| {
            let ns = of(long)?.ns - of(short)?.ns;
            (ns > 0.0).then_some(ns)
        };
        let more = |long: &str, short: &str, bytes: fn(&ProbeTime) -> usize| {
            Some(bytes(of(long)?) as f64 - bytes(of(short)?) as f64)
        };
        let n_stream_bytes = more("queue", "copy", |time| time.n_stream_bytes)?;
        let ns_per_byte = longer("queue", "copy")? / n_stream_bytes;
        let both = |time: &ProbeTime| time.read_bytes + time.written_bytes;
        let read = |time: &ProbeTime| time.read_bytes;
        let copy = of("copy")?;
        Some(ProbeConstants {
            call_ns: (copy.ns - copy.n_stream_bytes as f64 * ns_per_byte).max(0.0),
            issue_ns: TASK_BYTES * ns_per_byte,
            port_gb_per_s: more("stream", "copy", read)? / longer("stream", "copy")?,
            read_gb_per_s: more("more-reads", "reads", read)? / longer("more-reads", "reads")?,
            total_gb_per_s: more("more-columns", "columns", both)?
                / longer("more-columns", "columns")?,
        })
    }

    /// Names and values, for scripts.
    pub(super) fn figures(&self) -> [(&'static str, f64); 5] {
        [
            ("call_ns", self.call_ns),
            ("issue_ns", self.issue_ns),
            ("port_bytes_per_s", self.port_gb_per_s * 1e9),
            ("array_read_bytes_per_s", self.read_gb_per_s * 1e9),
            ("array_bytes_per_s", self.total_gb_per_s * 1e9),
        ]
    }

    /// Keys of a profile, values, and the origin of each.
    fn constants(&self) -> [(&'static str, f64, &'static str); 5] {
        [
            (
                "dispatch.call_ns",
                self.call_ns,
                "the program `copy`, less the bytes of its stream",
            ),
            (
                "dispatch.issue_ns",
                self.issue_ns,
                "`queue` less `copy`, by the bytes of their streams: 136 of a task",
            ),
            (
                "shim.port_gb_per_s",
                self.port_gb_per_s,
                "`stream` less `copy`: 63 blocks more through a channel",
            ),
            (
                "ddr.read_gb_per_s",
                self.read_gb_per_s,
                "`more-reads` less `reads`: eight columns read",
            ),
            (
                "ddr.total_gb_per_s",
                self.total_gb_per_s,
                "`more-columns` less `columns`: eight columns read and write",
            ),
        ]
    }

    /// A profile with these constants.
    pub(super) fn applied(&self, base: &Profile) -> Profile {
        let mut profile = base.clone();
        for (key, value, _) in self.constants() {
            // Keys of the profile; a value out of range leaves the old one.
            let _ = profile.set(&format!("{key}={value}"));
        }
        profile
    }

    /// The file of that profile. `error_percent` is the median error on programs that no constant is taken from.
    pub(super) fn toml(&self, base: &str, place: &str, error_percent: f64) -> String {
        let mut text = format!(
            "# Constants that `millrace probe --device xdna2` took; all others are those of the base.\n\n\
             name = \"probed\"\nsummary = \"Probed: {place}\"\nbase = \"{base}\"\n\
             # The median error on the probe's programs that no constant is taken from.\n\
             kernel_error_percent = {error_percent:.1}\nprompt_error_percent = 0\ntoken_error_percent = 0\n"
        );
        for (key, value, source) in self.constants() {
            let _ = write!(
                text,
                "\n[{key}]\nvalue = {value:.3}\norigin = \"derived\"\nsource = \"millrace probe: {source}\"\n"
            );
        }
        text
    }
}

/// The median of |predicted / taken - 1| over programs that no constant is taken from, in percent.
pub(super) fn error_percent(taken: &[ProbeTime], predicted: &[ProbeTime]) -> f64 {
    let held_out = taken.iter().filter(|time| !FITTED.contains(&time.name));
    let error = |time: &ProbeTime| {
        let of = predicted.iter().find(|other| other.name == time.name)?;
        Some((of.ns / time.ns - 1.0).abs() * 100.0)
    };
    let mut errors: Vec<f64> = held_out.filter_map(error).collect();
    errors.sort_by(f64::total_cmp);
    // None at all is written as an error that is not known.
    errors
        .get(errors.len() / 2)
        .map_or(0.0, |error| error.max(0.1))
}
