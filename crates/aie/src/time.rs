//! Modelled time of a design: the board's events with a clock for each actor.
//!
//! The board reports events, in an order that their causes allow. Here every actor has a clock. An event begins when
//! its actor is free and its causes are over, and takes the time of the profile's constants:
//!
//! | event | takes |
//! |---|---|
//! | a task of a shim in the sequence | `dispatch.issue_ns`, by the bytes of its operations |
//! | first descriptor of a task on a shim | `shim.task_ns` |
//! | words through a shim | 4 bytes at `shim.port_gb_per_s` |
//! | words elsewhere | 4 bytes at the stream's width times the clock |
//! | a switch | two cycles of latency |
//! | a lock of a core | half of `core.block_cycles` |
//! | an instruction of a core's program | one cycle, for any computation |
//! | a tile kernel of Millrace | the cycles of its object code in the profile |
//! | any other kernel | one cycle for each 64 bytes of its operands, products at the profile's GEMM rate |
//!
//! DDR is not an actor: the whole cannot be faster than all bytes at `ddr.total_gb_per_s`, those read at
//! `ddr.read_gb_per_s`. The configuration before the sequence is not in the time, nor is the call by the
//! host. All of it is modelled, and was never measured on hardware.

mod trace;

use crate::design::Design;
use crate::lower::lower;
use crate::run::{RunOptions, RunReport, recorded};
use crate::syntax::SyntaxError;
use millrace_npu::Trace;
use millrace_xdna2_machine::{Machine, Profile};
use millrace_xdna2_words::board::{BoardActor, BoardClock, ClockRates, ClockReading, ClockSpan};
use std::rc::Rc;
use trace::Spans;

/// How much of the time an actor worked.
#[derive(Clone, Debug, PartialEq)]
pub struct ActorTime {
    /// Who: a channel, a core, firmware, DDR.
    pub name: String,
    /// Time at work, waits apart.
    pub busy_ns: f64,
}

/// Modelled time of a design.
#[derive(Clone, Debug, PartialEq)]
pub struct DesignTime {
    /// From the sequence's first operation to its last.
    pub total_ns: f64,
    /// Host, driver and firmware around it.
    pub call_ns: f64,
    /// All that worked, the busiest first.
    pub actors: Vec<ActorTime>,
    /// Bytes that shims read and wrote.
    pub ddr_bytes: [u64; 2],
    /// The profile's name.
    pub profile: String,
    /// Spans of every actor's work.
    pub trace: Trace,
}

/// A machine, and the constants of a software stack on it.
pub struct TimeModel {
    machine: Machine,
    profile: Rc<Profile>,
}

impl TimeModel {
    /// An NPU2 with the profile of that name, or the one that is taken if none is named.
    ///
    /// # Errors
    /// No such profile, and the names of the known ones.
    pub fn named(name: Option<&str>) -> Result<TimeModel, String> {
        let name = name.unwrap_or(Profile::DEFAULT);
        let profile = Profile::builtin(name).ok_or_else(|| {
            let names: Vec<&str> = Profile::builtin_names().collect();
            format!("no profile `{name}`; there are {}", names.join(", "))
        })?;
        Ok(TimeModel::new(profile))
    }

    /// An NPU2 with a profile in a file's text; `path` is for messages.
    ///
    /// # Errors
    /// The fault of the file.
    pub fn from_toml(text: &str, path: &str) -> Result<TimeModel, String> {
        let profile = Profile::from_toml(text, path).map_err(|error| error.to_string())?;
        Ok(TimeModel::new(profile))
    }

    fn new(profile: Profile) -> TimeModel {
        TimeModel {
            machine: Machine::npu2(),
            profile: Rc::new(profile),
        }
    }

    fn rates(&self) -> ClockRates {
        self.profile.clock_rates(&self.machine)
    }
}

/// Runs a design once and returns its modelled time. A run that does not pass has none.
///
/// # Errors
/// As [`run`](crate::run()); more events than are kept.
pub fn time(
    design: &Design,
    arguments: &[Vec<u8>],
    options: RunOptions,
    model: &TimeModel,
) -> Result<(RunReport, Option<DesignTime>), SyntaxError> {
    design.is_one("a time")?;
    if let Some(flow) = design.flows.iter().find(|flow| flow.has_control()) {
        let problem = "control packets have no modelled time";
        return Err(SyntaxError::new(flow.at, problem).in_op("aie.packet_flow"));
    }
    let (report, events) = recorded(design, arguments, options, &model.profile)?;
    let Some(events) = events else {
        return Ok((report, None));
    };
    let lowered = lower(design)?;
    // The configuration comes before the sequence's first operation.
    let first = lowered.operations.keys().next().copied();
    let mut spans = Spans::new(&model.profile.name);
    let mut observer = |span: ClockSpan| spans.add(&span);
    let mut clock = BoardClock::new(&lowered.stream, first.unwrap_or(usize::MAX), model.rates())
        .observed(&mut observer);
    for event in &events {
        clock.event(event);
    }
    let reading = clock.reading();
    let trace = spans.trace(&design.name);
    Ok((report, Some(design_time(reading, &model.profile, trace))))
}

fn design_time(reading: ClockReading, profile: &Profile, trace: Trace) -> DesignTime {
    let name = |actor| match actor {
        BoardActor::Firmware => "the sequence".to_owned(),
        BoardActor::Channel(at) => format!("{} {} {}", at.tile, at.direction.name(), at.number),
        BoardActor::Core(tile) => format!("the program of {tile}"),
    };
    let of = |(actor, busy_ns)| ActorTime {
        name: name(actor),
        busy_ns,
    };
    let mut actors: Vec<ActorTime> = reading.busy_ns.into_iter().map(of).collect();
    actors.push(ActorTime {
        name: "DDR".to_owned(),
        busy_ns: reading.ddr_ns,
    });
    actors.sort_by(|a, b| b.busy_ns.total_cmp(&a.busy_ns));
    DesignTime {
        total_ns: reading.total_ns,
        call_ns: profile.dispatch.call_ns,
        actors,
        ddr_bytes: reading.ddr_bytes,
        profile: profile.name.clone(),
        trace,
    }
}
