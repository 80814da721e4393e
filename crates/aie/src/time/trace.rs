//! Work of every actor, as spans that Perfetto shows.

use millrace_npu::{Provenance, Trace};
use millrace_xdna2_words::board::{BoardActor, ClockSpan};
use millrace_xdna2_words::tile::TileKind;
use std::collections::BTreeMap;

/// Spans that are kept: more only slow the viewer down.
const MOST_SPANS: usize = 200_000;

/// A trace while it grows.
pub(super) struct Spans {
    trace: Trace,
    tracks: BTreeMap<BoardActor, usize>,
}

impl Spans {
    pub(super) fn new(profile: &str) -> Spans {
        let provenance = Provenance::Modelled {
            profile: profile.to_owned(),
            error: None,
        };
        Spans {
            trace: Trace::new("", provenance),
            tracks: BTreeMap::new(),
        }
    }

    fn track(&mut self, actor: BoardActor) -> usize {
        let trace = &mut self.trace;
        *self.tracks.entry(actor).or_insert_with(|| match actor {
            BoardActor::Firmware => trace.track("sequence", "firmware"),
            BoardActor::Core(tile) => trace.track("cores", &tile.to_string()),
            BoardActor::Channel(at) => {
                let group = match at.tile.kind() {
                    TileKind::Shim => "shims",
                    TileKind::Memory => "memory tiles",
                    TileKind::Core => "DMA of cores",
                };
                let name = format!("{} {} {}", at.tile, at.direction.name(), at.number);
                trace.track(group, &name)
            }
        })
    }

    /// Adds a span of an actor's work or wait.
    pub(super) fn add(&mut self, span: &ClockSpan) {
        match span.is_wait {
            true => self.wait(span.actor, &span.what, span.start_ns, span.end_ns),
            false => self.work(span.actor, &span.what, span.start_ns, span.end_ns),
        }
    }

    /// Adds a stretch of work. Contiguous work of one name is one span.
    fn work(&mut self, actor: BoardActor, name: &str, start: f64, end: f64) {
        let track = self.track(actor);
        let (start, end) = (start.round() as u64, end.round() as u64);
        let last = self.trace.events.last_mut();
        if let Some(last) = last.filter(|last| last.track == track && last.name == name)
            && last.start_ns + last.duration_ns == start
        {
            last.duration_ns = end.saturating_sub(last.start_ns);
            return;
        }
        if self.trace.events.len() < MOST_SPANS {
            let duration = end.saturating_sub(start);
            self.trace.event(track, name, start, duration);
        }
    }

    /// A wait, where there was one.
    fn wait(&mut self, actor: BoardActor, what: &str, start: f64, end: f64) {
        if end.round() > start.round() {
            self.work(actor, &format!("waits for {what}"), start, end);
        }
    }

    pub(super) fn trace(self, name: &str) -> Trace {
        let mut trace = self.trace;
        let name = if name.is_empty() { "design" } else { name };
        name.clone_into(&mut trace.name);
        trace
    }
}
