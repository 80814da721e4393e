//! A whole prompt and a token as a trace.

use super::{CallCost, Prediction, ProgramCost, StepCost};
use millrace_npu::trace::Trace;
use std::collections::BTreeMap;

/// Activity of a program's cores and channels over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramDetail {
    /// The program's name.
    pub program: String,
    /// Time of each physical launch.
    pub launches_ns: Vec<f64>,
    /// Spans.
    pub spans: Vec<ProgramSpan>,
}

/// A stretch of time of a program on a core or a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpan {
    /// The launch that it belongs to: index among the program's physical launches.
    pub physical: usize,
    /// Kind of its track (`cores`).
    pub group: &'static str,
    /// Its track (`core 0,3`).
    pub track: String,
    /// Distinguishes tracks of the same name.
    pub lane: usize,
    /// Whether other programs use the same track.
    pub shared: bool,
    /// Name of the activity.
    pub name: String,
    /// Start, since the physical launch's start.
    pub start_ns: f64,
    /// End, since the physical launch's start.
    pub end_ns: f64,
}

/// The pass's tracks.
struct Tracks {
    host: usize,
    calls: usize,
    launches: usize,
}

/// The prompt's passes and the token's, one after the other: the host's steps and calls, their parts,
/// and launches. `detail` holds spans of programs by name, shown on cores and channels at each
/// program's first call.
pub fn trace(name: &str, prediction: &Prediction, detail: &[ProgramDetail]) -> Trace {
    let mut trace = Trace::new(name, prediction.provenance.clone());
    let tracks = Tracks {
        host: trace.track("host", "steps"),
        calls: trace.track("NPU", "calls"),
        launches: trace.track("NPU", "launches"),
    };
    let mut cores: BTreeMap<String, usize> = BTreeMap::new();
    let mut shown: Vec<&str> = Vec::new();
    let mut start_ns = 0.0;
    for pass in prediction.prefill.iter().chain([&prediction.token]) {
        for step in &pass.steps {
            let start_ns = start_ns + step.start_ns();
            match step {
                StepCost::Host(host) => {
                    let event = span(
                        &mut trace,
                        tracks.host,
                        &label(host.name, host.layer),
                        start_ns,
                        host.ns,
                    );
                    event.args = vec![("bytes".into(), host.bytes.into())];
                }
                StepCost::Call(call) => {
                    let Some(program) = pass.programs.get(call.program) else {
                        continue;
                    };
                    add_call(&mut trace, &tracks, call, program, start_ns);
                    let spans = detail.iter().find(|t| t.program == program.name);
                    if let Some(timing) = spans.filter(|_| !shown.contains(&program.name.as_str()))
                    {
                        shown.push(&program.name);
                        let run_ns = start_ns + call.call_ns + call.write_ns;
                        add_spans(&mut trace, &mut cores, timing, program, run_ns);
                    }
                }
            }
        }
        start_ns += pass.totals.total_ns;
    }
    trace
}

fn label(name: &str, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => format!("{name} L{layer}"),
        None => name.to_owned(),
    }
}

/// Both ends are rounded, so that spans which touch do not overlap.
fn span<'t>(
    trace: &'t mut Trace,
    track: usize,
    name: &str,
    start_ns: f64,
    ns: f64,
) -> &'t mut millrace_npu::trace::TraceEvent {
    let from = start_ns.round() as u64;
    let to = (start_ns + ns).round() as u64;
    trace.event(track, name, from, to.saturating_sub(from))
}

fn add_call(
    trace: &mut Trace,
    tracks: &Tracks,
    call: &CallCost,
    program: &ProgramCost,
    start_ns: f64,
) {
    let event = span(trace, tracks.calls, &call.set, start_ns, call.ns);
    event.args = vec![
        ("program".into(), program.name.as_str().into()),
        ("n_dispatches".into(), call.n_dispatches.into()),
        ("written_bytes".into(), call.crossing.written_bytes.into()),
        ("read_bytes".into(), call.crossing.read_bytes.into()),
    ];
    let mut now_ns = start_ns;
    for (part, ns) in [
        ("call", call.call_ns),
        ("BO write", call.write_ns),
        ("NPU run", call.run_ns),
        ("BO read", call.read_ns),
    ] {
        if ns > 0.0 {
            span(trace, tracks.calls, part, now_ns, ns);
        }
        now_ns += ns;
    }
    // For experts, all dispatches one after the other.
    let n = call.n_dispatches as f64;
    let dispatch_ns = n * program.dispatch_ns;
    let mut now_ns = start_ns + call.call_ns + call.write_ns;
    span(trace, tracks.launches, "dispatch", now_ns, dispatch_ns);
    now_ns += dispatch_ns;
    for launch in &program.launches {
        let (load_ns, launch_ns) = (n * launch.load_ns, n * launch.ns);
        if load_ns > 0.0 {
            let name = format!("load {}", launch.name);
            span(trace, tracks.launches, &name, now_ns, load_ns);
        }
        now_ns += load_ns;
        let event = span(trace, tracks.launches, &launch.name, now_ns, launch_ns);
        event.args = vec![
            ("kernel".into(), launch.kernel.as_str().into()),
            ("shape".into(), launch.shape.as_str().into()),
            (
                "bound by".into(),
                launch.bottleneck.resource.as_str().into(),
            ),
            ("ddr_read_bytes".into(), launch.ddr_read_bytes.into()),
            ("ddr_write_bytes".into(), launch.ddr_write_bytes.into()),
            ("core utilization".into(), launch.utilization.into()),
        ];
        now_ns += launch_ns;
    }
}

/// Spans of cores and channels of a program's launches, where the launches are in the pass.
fn add_spans(
    trace: &mut Trace,
    tracks: &mut BTreeMap<String, usize>,
    detail: &ProgramDetail,
    program: &ProgramCost,
    run_ns: f64,
) {
    let mut starts = Vec::new();
    let mut now_ns = run_ns + program.dispatch_ns;
    let mut physical = detail.launches_ns.iter();
    for launch in &program.launches {
        now_ns += launch.load_ns;
        for ns in physical.by_ref().take(launch.physical as usize) {
            starts.push(now_ns);
            now_ns += ns;
        }
    }
    for recorded in &detail.spans {
        let Some(start_ns) = starts.get(recorded.physical) else {
            continue;
        };
        let key = match recorded.shared {
            true => format!("{} {}", recorded.track, recorded.lane),
            false => format!("{} {} {}", detail.program, recorded.track, recorded.lane),
        };
        let track =
            *(tracks.entry(key)).or_insert_with(|| trace.track(recorded.group, &recorded.track));
        span(
            trace,
            track,
            &recorded.name,
            start_ns + recorded.start_ns,
            recorded.end_ns - recorded.start_ns,
        );
    }
}
