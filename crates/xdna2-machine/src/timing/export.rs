//! A prediction's spans as a trace that viewers open.

use super::{Timing, Track};
use millrace_npu::trace::Trace;
use std::collections::BTreeMap;

impl Timing {
    /// The recorded spans, launches one after the other, on a track for every core and channel.
    /// Empty unless the prediction was made with [`trace_spans`](super::TimingOptions::trace_spans).
    pub fn to_trace(&self) -> Trace {
        let mut trace = Trace::new(&self.program, self.provenance.clone());
        let mut starts = vec![self.dispatch_ns];
        for launch in &self.launches {
            starts.push(starts[starts.len() - 1] + launch.ns);
        }
        let mut tracks = BTreeMap::new();
        for span in &self.trace {
            let track = *tracks.entry((span.launch, span.track)).or_insert_with(|| {
                let (kind, name) = self.track_name(span.launch, span.track);
                let launch = self.launches.get(span.launch).map_or("", |l| &l.name);
                trace.track(&format!("{launch}: {kind}"), &name)
            });
            let start = starts.get(span.launch).copied().unwrap_or_default();
            // Both ends are rounded, so that spans which touch do not overlap.
            let from = (start + span.start_ns).round() as u64;
            let to = (start + span.end_ns).round() as u64;
            trace.event(track, &span.name, from, to.saturating_sub(from));
        }
        trace
    }

    fn track_name(&self, launch: usize, track: Track) -> (&'static str, String) {
        match track {
            Track::Core(col, row) => ("cores", format!("core {col},{row}")),
            Track::Channel(id) => {
                let ports = self.launches.get(launch).map(|launch| &launch.ports);
                let port = ports.and_then(|ports| ports.get(id));
                let name = |p: &super::PortCounters| format!("{} ({})", p.channel, p.route);
                (
                    "channels",
                    port.map_or_else(|| format!("channel {id}"), name),
                )
            }
        }
    }
}
