//! The Chrome trace-event format (JSON object form), as documented in "Trace Event Format"
//! (Google, the catapult project), which chrome://tracing and Perfetto read.

use super::{Arg, Trace, TraceEvent};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

impl Trace {
    /// Writes the trace as Chrome JSON: groups are processes, tracks are threads, events are
    /// complete events (`X`) in microseconds. The provenance is in `otherData`.
    ///
    /// # Errors
    /// Where writing fails, or an event names a track that does not exist.
    pub fn write_chrome(&self, mut out: impl Write) -> io::Result<()> {
        let other = json!({ "name": self.name, "times": self.provenance.to_string() });
        write!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\"traceEvents\":["
        )?;
        let mut groups: HashMap<&str, u64> = HashMap::new();
        let mut first = true;
        let mut line = |out: &mut dyn Write, value: Value| {
            let separator = if std::mem::take(&mut first) {
                "\n"
            } else {
                ",\n"
            };
            write!(out, "{separator}{value}")
        };
        let mut ids = Vec::with_capacity(self.tracks.len());
        for (number, track) in self.tracks.iter().enumerate() {
            let next = groups.len() as u64 + 1;
            let pid = *groups.entry(&track.group).or_insert(next);
            let tid = number as u64 + 1;
            if pid == next {
                line(
                    &mut out,
                    metadata("process_name", pid, tid, json!({ "name": track.group })),
                )?;
            }
            line(
                &mut out,
                metadata("thread_name", pid, tid, json!({ "name": track.name })),
            )?;
            let order = json!({ "sort_index": number });
            line(&mut out, metadata("thread_sort_index", pid, tid, order))?;
            ids.push((pid, tid));
        }
        for event in &self.events {
            let Some(&(pid, tid)) = ids.get(event.track) else {
                let message = format!(
                    "event `{}` is on track {}; there are {}",
                    event.name,
                    event.track,
                    self.tracks.len()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            };
            line(&mut out, complete(event, pid, tid))?;
        }
        out.write_all(b"\n]}\n")
    }

    /// The trace as a Chrome JSON text.
    ///
    /// # Errors
    /// Where an event names a track that does not exist.
    pub fn to_chrome(&self) -> io::Result<String> {
        let mut out = Vec::new();
        self.write_chrome(&mut out)?;
        String::from_utf8(out).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

fn metadata(name: &str, pid: u64, tid: u64, args: Value) -> Value {
    json!({ "ph": "M", "name": name, "pid": pid, "tid": tid, "args": args })
}

fn complete(event: &TraceEvent, pid: u64, tid: u64) -> Value {
    let mut value = json!({
        "ph": "X",
        "name": event.name,
        "pid": pid,
        "tid": tid,
        "ts": micros(event.start_ns),
        "dur": micros(event.duration_ns),
    });
    if !event.args.is_empty() {
        let args: Map<String, Value> = event
            .args
            .iter()
            .map(|(name, arg)| (name.clone(), argument(arg)))
            .collect();
        value["args"] = Value::Object(args);
    }
    value
}

/// JSON has no infinities and no NaN; they are written as texts.
fn argument(arg: &Arg) -> Value {
    match arg {
        Arg::Int(value) => json!(value),
        Arg::Float(value) if value.is_finite() => json!(value),
        Arg::Float(value) => json!(value.to_string()),
        Arg::Text(text) => json!(text),
    }
}

fn micros(ns: u64) -> Value {
    match ns.is_multiple_of(1000) {
        true => json!(ns / 1000),
        false => json!(ns as f64 / 1000.0),
    }
}

/// Content of a Chrome trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChromeSummary {
    /// Complete events.
    pub events: usize,
    /// Tracks by (process, thread), with their names.
    pub tracks: HashMap<(u64, u64), (String, String)>,
    /// When the last event ends, in microseconds.
    pub end_us: f64,
}

/// Checks a text against the rules of the Chrome trace-event format, as far as this project uses them. Every event must
/// be on a named track and nest properly there: viewers drop events of one thread that overlap without nesting.
///
/// # Errors
/// The first rule that is broken, with the number of the event.
pub fn check_chrome(text: &str) -> Result<ChromeSummary, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let unit = value.get("displayTimeUnit").and_then(Value::as_str);
    if !matches!(unit, None | Some("ms" | "ns")) {
        return Err("`displayTimeUnit` is neither `ms` nor `ns`".to_owned());
    }
    let events = value.get("traceEvents").and_then(Value::as_array);
    let events = events.ok_or("`traceEvents` is not an array")?;
    let mut summary = ChromeSummary::default();
    let mut names = TrackNames::default();
    let mut spans: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    for (number, event) in events.iter().enumerate() {
        let at = |problem: String| format!("event {number}: {problem}");
        let ids = fields(event, &mut names).map_err(at)?;
        if let Some((start, duration)) = times(event).map_err(at)? {
            summary.events += 1;
            summary.end_us = summary.end_us.max(start + duration);
            spans.entry(ids).or_default().push((start, duration));
        }
    }
    for &(pid, tid) in spans.keys() {
        let process = names.processes.get(&pid);
        let thread = names.threads.get(&(pid, tid));
        let (Some(process), Some(thread)) = (process, thread) else {
            return Err(format!(
                "process {pid}, thread {tid} has events but no name"
            ));
        };
        let name = (process.clone(), thread.clone());
        summary.tracks.insert((pid, tid), name);
    }
    for ((pid, tid), spans) in &mut spans {
        nest(spans).map_err(|problem| format!("process {pid}, thread {tid}: {problem}"))?;
    }
    Ok(summary)
}

#[derive(Default)]
struct TrackNames {
    processes: HashMap<u64, String>,
    threads: HashMap<(u64, u64), String>,
}

const METADATA: [&str; 5] = [
    "process_name",
    "process_labels",
    "process_sort_index",
    "thread_name",
    "thread_sort_index",
];

/// The fields that every event has, and metadata; gives process and thread.
fn fields(event: &Value, names: &mut TrackNames) -> Result<(u64, u64), String> {
    let event = event.as_object().ok_or("not an object")?;
    let id = |key: &str| {
        let id = event.get(key).and_then(Value::as_u64);
        id.ok_or_else(|| format!("`{key}` is not a whole number"))
    };
    let ids = (id("pid")?, id("tid")?);
    let name = event.get("name").and_then(Value::as_str);
    let name = name.ok_or("`name` is not a text")?;
    let args = event.get("args");
    if args.is_some_and(|args| !args.is_object()) {
        return Err("`args` is not an object".to_owned());
    }
    match event.get("ph").and_then(Value::as_str) {
        Some("X") => {}
        Some("M") if METADATA.contains(&name) => {
            let arg = |key: &str| args.and_then(|args| args.get(key));
            if name.ends_with("_sort_index") {
                let index = arg("sort_index").and_then(Value::as_i64);
                index.ok_or("`sort_index` is not a whole number")?;
            } else if name.ends_with("_name") {
                let text = arg("name").and_then(Value::as_str);
                let text = text.ok_or("the metadata has no `name`")?.to_owned();
                match name {
                    "process_name" => names.processes.insert(ids.0, text),
                    _ => names.threads.insert(ids, text),
                };
            }
        }
        Some("M") => return Err(format!("there is no metadata `{name}`")),
        other => return Err(format!("`ph` is {other:?}; `X` or `M` is meant")),
    }
    Ok(ids)
}

/// Start and duration of a complete event, in microseconds; `None` for metadata.
fn times(event: &Value) -> Result<Option<(f64, f64)>, String> {
    if event.get("ph").and_then(Value::as_str) != Some("X") {
        return Ok(None);
    }
    let time = |key: &str| {
        let time = event.get(key).and_then(Value::as_f64);
        let time = time.filter(|t| t.is_finite() && *t >= 0.0);
        time.ok_or_else(|| format!("`{key}` is not a time"))
    };
    Ok(Some((time("ts")?, time("dur")?)))
}

/// Whether any two spans of one thread are disjoint or nested.
fn nest(spans: &mut [(f64, f64)]) -> Result<(), String> {
    // Times have a resolution of a nanosecond; half of it is rounding.
    const HALF_NS: f64 = 0.0005;
    spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut open: Vec<f64> = Vec::new();
    for &(start, duration) in spans.iter() {
        while open.last().is_some_and(|&end| end <= start + HALF_NS) {
            open.pop();
        }
        let end = start + duration;
        if open.last().is_some_and(|&outer| end > outer + HALF_NS) {
            return Err(format!(
                "the event at {start} µs overlaps another without nesting"
            ));
        }
        open.push(end);
    }
    Ok(())
}

/// Distinct groups of a trace, for tests of writers.
impl ChromeSummary {
    /// Names of the processes that have events.
    pub fn groups(&self) -> HashSet<&str> {
        self.tracks.values().map(|t| t.0.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Provenance;

    fn trace() -> Trace {
        let provenance = Provenance::Modelled {
            profile: "p".into(),
            error: Some(0.04),
        };
        let mut trace = Trace::new("gemm \"1\"", provenance);
        let core = trace.track("cores", "core 0,0");
        let port = trace.track("shims", "shim 0 mm2s 0");
        let other = trace.track("cores", "core 0,1");
        trace.event(core, "matmul", 1_000, 2_500).args = vec![
            ("bytes".into(), 4096u64.into()),
            ("rate".into(), f64::NAN.into()),
        ];
        trace.event(core, "inner", 1_500, 500);
        trace.event(core, "next", 3_500, 1);
        trace.event(port, "task", 0, 1_000).args = vec![("what".into(), "A\n".into())];
        trace.event(other, "matmul", 7, 11);
        trace
    }

    #[test]
    fn what_is_written_keeps_the_rules() {
        let text = trace().to_chrome().unwrap();
        let summary = check_chrome(&text).unwrap();
        assert_eq!(summary.events, 5);
        assert_eq!(summary.end_us, 3.501);
        assert_eq!(summary.tracks.len(), 3);
        assert_eq!(summary.groups(), HashSet::from(["cores", "shims"]));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["otherData"]["times"], "modelled(p, ±4 %)");
        let first = value["traceEvents"].as_array().unwrap();
        let first = first.iter().find(|e| e["ph"] == "X").unwrap();
        assert_eq!(first["ts"], 1);
        assert_eq!(first["dur"], 2.5);
        assert_eq!(first["args"], json!({ "bytes": 4096, "rate": "NaN" }));
        assert_eq!(trace().end_ns(), 3_501);
        let empty = Trace::new("e", Provenance::Measured("x".into()));
        assert_eq!(
            check_chrome(&empty.to_chrome().unwrap()),
            Ok(ChromeSummary::default())
        );
    }

    #[test]
    fn a_missing_track_is_an_error() {
        let mut trace = trace();
        trace.event(9, "lost", 0, 1);
        assert!(
            trace
                .to_chrome()
                .unwrap_err()
                .to_string()
                .contains("track 9")
        );
    }

    #[test]
    fn broken_traces_are_noticed() {
        let text = trace().to_chrome().unwrap();
        let broken = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} is not in {text}");
            check_chrome(&text.replacen(from, to, 1)).unwrap_err()
        };
        assert!(check_chrome("[").unwrap_err().starts_with("not JSON"));
        assert_eq!(
            check_chrome("{}").unwrap_err(),
            "`traceEvents` is not an array"
        );
        assert!(broken("\"displayTimeUnit\":\"ns\"", "\"displayTimeUnit\":\"s\"").contains("Unit"));
        assert_eq!(
            broken("\"ph\":\"X\"", "\"ph\":\"Q\""),
            "event 8: `ph` is Some(\"Q\"); `X` or `M` is meant"
        );
        assert_eq!(
            broken("\"dur\":2.5", "\"dur\":-1"),
            "event 8: `dur` is not a time"
        );
        assert_eq!(
            broken("\"ts\":1.5,\"dur\":0.5", "\"ts\":1.5,\"dur\":5"),
            "process 1, thread 1: the event at 1.5 µs overlaps another without nesting"
        );
        assert!(
            broken("\"name\":\"thread_name\"", "\"name\":\"thread_colour\"").contains("metadata")
        );
        assert!(
            broken("\"name\":\"thread_name\"", "\"name\":\"process_name\"").contains("no name")
        );
        assert!(broken("\"pid\":1", "\"pid\":\"1\"").contains("`pid`"));
        assert!(broken("\"args\":{\"name\":\"cores\"}", "\"args\":3").contains("`args`"));
    }
}
