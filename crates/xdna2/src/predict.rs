//! Cost of a model on the array: the prices that [`millrace_plan::predict`] adds up.
//!
//! Device times are those of [`millrace_xdna2_machine::timing`] for the plan's own stitched programs: the same as
//! [`predict`](millrace_xdna2_machine::timing::predict) gives for each, with equal launches simulated once. The host's part depends on
//! whose host it is ([`HostKind`]):
//!
//! | part | [`Published`](HostKind::Published), the Python of MLIR-AIR's example | [`Own`](HostKind::Own), this repository's |
//! |---|---|---|
//! | call | `host.call_ns` a dispatch | the same |
//! | buffer write | values that cross and attention's output, zeroed, by `host.write_gb_per_s`; nothing in a token, whose few KB are not seen | values that cross, a token's too |
//! | buffer read | `host.read_ns` a call of a prompt: cache lines are invalidated, a view is returned | the same, and values that cross are copied by `host.write_gb_per_s` |
//! | a layer of a prompt | `host.prompt_byte_ns` a byte of its widest activation, at its cache step: Python and moving K and V | bytes of K and V |
//! | a prompt | `host.prompt_ns` at the embedding: tokenising, embedding, last norm | bytes of the rows |
//! | a layer of a token | `host.token_layer_ns` at its attention: a short context, norm, Python | bytes of the cached keys and values |
//!
//! *Bytes* of a host step are those of its operands: every row reads its weights and every query its
//! cached keys and values anew, by `host.write_gb_per_s`, the rate at which one thread was seen to
//! copy. A recurrent op's state is read and written once a pass; its arithmetic is not counted. That is assumed and was
//! never measured: one thread, no reuse between rows, nothing overlapped with the array. Tokenising and sampling are
//! not in the own host's time. A call's constants are those of the published stack for both, because they are the
//! driver's for the most part.
//!
//! The peak of the array is that of its matrix units in bf16, `2 · cores · macs.bf16 · clock` of the
//! machine's facts.
//!
//! Every figure is modelled; its provenance says by which profile and how far whole prompts of models
//! that no constant was fitted on were off ([`model_error`]), which is further than single kernels.

mod device;
mod error;
mod host;

pub use device::Timer;
pub(crate) use device::peak;
pub use error::{kernel_error_percent, model_error};
pub use host::HostKind;

use crate::lower::{Call, HostStep, PlannedProgram};
use host::Host;
use millrace_npu::{Energy, Provenance};
use millrace_plan::predict::{
    CallNs, Crossing, HostWork, MachineFacts, ModelError, PriceError, ProgramCost, ProgramDetail,
    ProgramSpan,
};
use millrace_xdna2_machine::profile::ErrorScope;
use millrace_xdna2_machine::timing::{self, Track};
use millrace_xdna2_machine::{Machine, Profile};

/// Prices of a machine under a profile, with a kind of host.
pub struct Prices<'a> {
    timer: Timer<'a>,
    host: HostKind,
    facts: MachineFacts,
}

impl<'a> Prices<'a> {
    /// Prices with nothing computed yet.
    pub fn new(machine: &'a Machine, profile: &'a Profile, host: HostKind) -> Prices<'a> {
        Prices {
            timer: Timer::new(machine, profile),
            host,
            facts: facts(machine, profile),
        }
    }

    fn host(&self) -> Host<'a> {
        Host {
            kind: self.host,
            profile: self.timer.profile(),
        }
    }
}

pub(crate) fn facts(machine: &Machine, profile: &Profile) -> MachineFacts {
    MachineFacts {
        name: machine.name.clone(),
        cols: machine.cols,
        rows: machine.rows,
        clock_hz: machine.clock_hz,
        ddr_bytes_per_s: machine.ddr_bytes_per_s,
        attained_bytes_per_s: profile.ddr.read_gb_per_s * 1e9,
        peak_flops_per_s: machine.bf16_flops_per_s(),
    }
}

/// `modelled(profile, ±error)` with the error of whole prompts. Tokens have the smaller error
/// `Profile::error_of(ErrorScope::Token)`.
pub fn provenance(profile: &Profile, machine: &Machine) -> Provenance {
    profile.provenance(ErrorScope::Prompt, machine)
}

fn priced<T>(result: Result<T, timing::TimingError>) -> Result<T, PriceError> {
    result.map_err(|error| PriceError(error.to_string()))
}

impl millrace_plan::Pricer for Prices<'_> {
    fn machine(&self) -> &MachineFacts {
        &self.facts
    }

    fn prime(&mut self, programs: &[&PlannedProgram]) -> Result<(), PriceError> {
        let programs = programs.iter().filter_map(|p| crate::lower::program_of(p));
        priced(self.timer.prime(&programs.collect::<Vec<_>>()))
    }

    fn program(&mut self, planned: &PlannedProgram) -> Result<ProgramCost, PriceError> {
        priced(self.timer.program(planned))
    }

    fn step_ns(&self, work: &HostWork<'_>, step: HostStep) -> f64 {
        self.host().step_ns(work, step)
    }

    fn call(&self, work: &HostWork<'_>, call: &Call, crossing: Crossing) -> CallNs {
        self.host().call(work, call, crossing)
    }

    fn energy(&self, run_ns: u64) -> Option<Energy> {
        self.timer.profile().energy(run_ns)
    }

    fn host(&self) -> &'static str {
        self.host.name()
    }

    fn provenance(&self) -> Provenance {
        provenance(self.timer.profile(), self.timer.machine())
    }

    fn model_error(&self) -> Option<ModelError> {
        model_error(self.timer.profile(), self.timer.machine())
    }

    fn kernel_error_percent(&self) -> Option<f64> {
        kernel_error_percent(self.timer.profile(), self.timer.machine())
    }

    fn detail(
        &self,
        planned: &PlannedProgram,
        n_spans: usize,
    ) -> Result<ProgramDetail, PriceError> {
        let options = timing::TimingOptions {
            trace_spans: n_spans,
            ..timing::TimingOptions::default()
        };
        let program = crate::lower::program_of(planned);
        let program = program.ok_or_else(|| PriceError(foreign(planned)))?;
        let timing = timing::predict_with(
            program,
            self.timer.machine(),
            self.timer.profile(),
            &options,
        );
        Ok(detail(&priced(timing)?))
    }
}

fn foreign(planned: &PlannedProgram) -> String {
    timing::TimingError::Foreign(planned.name().to_owned()).to_string()
}

/// The spans of a timing, cores shared by all programs and channels each program's own.
fn detail(timing: &timing::Timing) -> ProgramDetail {
    let span = |span: &timing::TraceSpan| {
        let (group, track, lane) = match span.track {
            Track::Core(col, row) => ("cores", format!("core {col},{row}"), 0),
            Track::Channel(id) => {
                let ports = timing.launches.get(span.launch).map(|l| &l.ports);
                let port = ports.and_then(|ports| ports.get(id));
                let name = port.map_or_else(|| format!("channel {id}"), |p| p.route.clone());
                ("channels", format!("{name} ({})", span.launch), id)
            }
        };
        ProgramSpan {
            physical: span.launch,
            group,
            track,
            lane,
            shared: matches!(span.track, Track::Core(..)),
            name: span.name.clone(),
            start_ns: span.start_ns,
            end_ns: span.end_ns,
        }
    };
    ProgramDetail {
        program: timing.program.clone(),
        launches_ns: timing.launches.iter().map(|l| l.ns).collect(),
        spans: timing.trace.iter().map(span).collect(),
    }
}
