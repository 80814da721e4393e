//! Traces: spans of time on tracks, and their Chrome form, which Perfetto opens.

mod chrome;

pub use chrome::{ChromeSummary, check_chrome};

use crate::Provenance;
use serde::{Deserialize, Serialize};

/// A row of the image: a core, a DMA port, the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Track {
    /// Its group; tracks of one group are shown together (`cores`, `shims`).
    pub group: String,
    /// Its name within the group (`core 0,3`).
    pub name: String,
}

/// A stretch of time on a track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Index in [`Trace::tracks`].
    pub track: usize,
    /// Name of the activity.
    pub name: String,
    /// When it began, in nanoseconds from the trace's start.
    pub start_ns: u64,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// More about it, as name and value.
    pub args: Vec<(String, Arg)>,
}

/// A value of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Arg {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
}

impl From<i64> for Arg {
    fn from(value: i64) -> Arg {
        Arg::Int(value)
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Arg {
        i64::try_from(value).map_or(Arg::Float(value as f64), Arg::Int)
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Arg {
        Arg::Float(value)
    }
}

impl From<&str> for Arg {
    fn from(value: &str) -> Arg {
        Arg::Text(value.to_owned())
    }
}

/// A trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Subject of the trace.
    pub name: String,
    /// Where the times come from.
    pub provenance: Provenance,
    /// The tracks.
    pub tracks: Vec<Track>,
    /// The events, in any order.
    pub events: Vec<TraceEvent>,
}

impl Trace {
    /// A trace without events.
    pub fn new(name: &str, provenance: Provenance) -> Trace {
        Trace {
            name: name.to_owned(),
            provenance,
            tracks: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Adds a track and gives its index.
    pub fn track(&mut self, group: &str, name: &str) -> usize {
        self.tracks.push(Track {
            group: group.to_owned(),
            name: name.to_owned(),
        });
        self.tracks.len() - 1
    }

    /// Adds an event and gives it, so that [`args`](TraceEvent::args) can be added.
    pub fn event(
        &mut self,
        track: usize,
        name: &str,
        start_ns: u64,
        duration_ns: u64,
    ) -> &mut TraceEvent {
        let at = self.events.len();
        self.events.push(TraceEvent {
            track,
            name: name.to_owned(),
            start_ns,
            duration_ns,
            args: Vec::new(),
        });
        &mut self.events[at]
    }

    /// When the last event ends, in nanoseconds.
    pub fn end_ns(&self) -> u64 {
        let ends = self.events.iter();
        ends.map(|e| e.start_ns.saturating_add(e.duration_ns))
            .max()
            .unwrap_or(0)
    }
}
