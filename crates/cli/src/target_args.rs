//! Arguments that commands share to choose a device and set up a model on it. The possible values
//! come from the registry of targets.

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Ui, bytes};
use crate::progress::ProgressDisplay;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use millrace::{CPU, Device, TargetSettings};
use millrace_graph::Graph;
use millrace_npu::Injection;
use millrace_plan::{Evidence, Planner, SettingError, Settings, Target};
use millrace_runtime::npu::NpuModel;
use millrace_runtime::{Engine, EngineOptions, LoadedModel};
use std::sync::{Arc, OnceLock};

mod corrupt;
mod evidence;
mod machine;

pub(crate) use corrupt::CorruptSlot;
pub(crate) use evidence::EvidenceTargetArgs;
pub(crate) use machine::{KernelTargetArgs, MachineArgs, ProbeTargetArgs};

static TARGETS: OnceLock<&'static [&'static dyn Target]> = OnceLock::new();

static EVIDENCE: OnceLock<&'static [&'static dyn Evidence]> = OnceLock::new();

/// Sets the registries, once, before anything is parsed.
pub(crate) fn register(
    targets: &'static [&'static dyn Target],
    evidence: &'static [&'static dyn Evidence],
) {
    // An earlier call has set the same value.
    let _ = TARGETS.set(targets);
    let _ = EVIDENCE.set(evidence);
}

/// Published evidence about a target, if this command line has any.
pub(crate) fn evidence(target: &dyn Target) -> Option<&'static dyn Evidence> {
    let all = EVIDENCE.get().copied().unwrap_or_default();
    all.iter().copied().find(|e| e.target() == target.name())
}

/// The registry.
pub(crate) fn targets() -> &'static [&'static dyn Target] {
    let set = TARGETS.get().copied();
    // Tests of this crate parse without a `main`.
    #[cfg(test)]
    let set = set.or(Some(millrace_targets::ALL));
    set.unwrap_or_default()
}

/// Fills in the examples of a help text: `{npu}` becomes the first target's name, and `{exporter}` that of
/// the first target whose programs can be exported.
pub(crate) fn examples(text: &str) -> String {
    let exporter = targets().iter().find(|target| target.exporter().is_some());
    text.replace("{npu}", default_target()).replace(
        "{exporter}",
        exporter.map_or("NAME", |target| target.name()),
    )
}

/// Device that a model runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ModelPlacement {
    /// This computer's CPU.
    Cpu,
    /// A target of the registry.
    Target(&'static dyn Target),
}

impl ModelPlacement {
    /// Name of the device for `--device`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ModelPlacement::Cpu => CPU,
            ModelPlacement::Target(target) => target.name(),
        }
    }
}

fn find(name: &str) -> Option<&'static dyn Target> {
    targets().iter().copied().find(|t| t.name() == name)
}

fn values() -> impl Iterator<Item = PossibleValue> {
    let row = |t: &&'static dyn Target| PossibleValue::new(t.name()).help(t.title());
    targets().iter().map(row)
}

/// Accepts the name of a target.
fn target_parser() -> impl TypedValueParser<Value = &'static dyn Target> {
    PossibleValuesParser::new(values()).map(|name| find(&name).expect("one of the possible values"))
}

/// Accepts `cpu` or the name of a target.
pub(crate) fn place_parser() -> impl TypedValueParser<Value = ModelPlacement> {
    let cpu = PossibleValue::new(CPU).help("This computer's CPU");
    let all: Vec<PossibleValue> = std::iter::once(cpu).chain(values()).collect();
    PossibleValuesParser::new(all).map(|name| match find(&name) {
        Some(target) => ModelPlacement::Target(target),
        None => ModelPlacement::Cpu,
    })
}

/// Default target of NPU commands.
fn default_target() -> &'static str {
    targets().first().map_or("", |target| target.name())
}

/// A kind of NPU, for commands about NPUs
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct TargetArgs {
    /// Kind of NPU; `millrace devices` lists them, with their machines, profiles and modes
    #[arg(long, value_name = "NAME", default_value = default_target(), value_parser = target_parser())]
    pub(crate) device: &'static dyn Target,
    #[command(flatten)]
    pub(crate) plans: ModeArgs,
}

/// Device to run a model on
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Device to run on: this computer's CPU, or an NPU, simulated with modelled times where there is none
    #[arg(long, value_name = "NAME", default_value = CPU, value_parser = place_parser())]
    pub(crate) device: ModelPlacement,
    #[command(flatten)]
    pub(crate) plans: ModeArgs,
}

/// Setup of a model on an NPU
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Device")]
pub(crate) struct ModeArgs {
    /// On an NPU: mode of the plans [default: the mode that a file's 4-bit weights select, else the first; `millrace
    /// devices -v` lists them]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Leave out an improvement of the mode; `millrace devices -v` lists them
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    without: Vec<String>,
    /// Number format in which the NPU multiplies matrices [default: the usual one of the device and mode]
    #[arg(long, value_name = "NAME")]
    numerics: Option<String>,
    /// On a virtual NPU: simulator that executes its programs [default: the first; `millrace devices -v` lists them]
    #[arg(long, value_name = "NAME")]
    simulator: Option<String>,
    #[command(flatten)]
    machine: MachineArgs,
}

impl ModeArgs {
    /// The first option that was given, if one was.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--mode", self.mode.is_some()),
            ("--without", !self.without.is_empty()),
            ("--numerics", self.numerics.is_some()),
            ("--simulator", self.simulator.is_some()),
        ];
        let given = options.iter().find(|(_, is_given)| *is_given);
        given
            .map(|(option, _)| *option)
            .or_else(|| self.machine.given())
    }

    /// The given settings of the target, for the library.
    fn target_settings(&self) -> TargetSettings {
        TargetSettings {
            mode: self.mode.clone(),
            without: self.without.clone(),
            numerics: self.numerics.clone(),
            simulator: self.simulator.clone(),
            ..self.machine.target_settings()
        }
    }

    /// Settings of a target for a model. Without a given mode, the model's weights decide it.
    pub(crate) fn settings(&self, target: &dyn Target, graph: &Graph) -> CommandResult<Settings> {
        Ok(self.target_settings().of_model(target, graph)?)
    }

    /// Reason for the mode, where none was given and the weights decide.
    pub(crate) fn reason(&self, target: &dyn Target, graph: &Graph) -> Option<String> {
        self.target_settings().mode_reason(target, graph)
    }

    /// Planner with these settings.
    pub(crate) fn planner(
        &self,
        target: &dyn Target,
        graph: &Graph,
    ) -> CommandResult<Arc<dyn Planner>> {
        Ok(self.target_settings().planner(target, graph)?)
    }

    /// Opens a target's device with an engine's options, showing progress while weights are prepared.
    fn device(
        &self,
        target: &'static dyn Target,
        graph: &Graph,
        options: EngineOptions,
        ui: Ui,
    ) -> CommandResult<Device> {
        if let Some(reason) = self.reason(target, graph) {
            let planner = self.planner(target, graph)?;
            ui.detail(format_args!("mode {}: {reason}", planner.mode()));
        }
        let progress = ProgressDisplay::spinner(ui, "preparing programs");
        let device = Device::target(target)
            .settings(self.target_settings())
            .engine_options(options)
            .progress(move |done_bytes, total_bytes| {
                let (done, total) = (bytes(done_bytes), bytes(total_bytes));
                progress.message(format!(
                    "preparing weights: {done} of {total} on the device"
                ));
            });
        Ok(device)
    }

    /// Puts a model on a target's device.
    pub(crate) fn load(
        &self,
        target: &'static dyn Target,
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        wanted: &DevicePurpose,
        ui: Ui,
    ) -> CommandResult<Arc<NpuModel>> {
        let options = EngineOptions {
            n_ctx: wanted.n_ctx,
            max_sequences: wanted.max_sequences,
            ..cpu.options()
        };
        let device = self.device(target, &model.model().graph, options, ui)?;
        let npu = device.load(target, model, wanted.prefill_tokens)?;
        drop(device);
        if let Some(CorruptSlot { program, slot, how }) = &wanted.corrupt {
            corrupt::check(program, slot, &npu)?;
            let Some(injector) = npu.device().injector() else {
                let message = format!("{} does not fail on purpose", npu.device_name());
                return Err(CommandFailure::usage(message).hint("only virtual devices do"));
            };
            injector.inject(Injection::Corrupt {
                program: program.clone(),
                slot: slot.clone(),
                how: *how,
            });
        }
        Ok(Arc::new(npu))
    }
}

/// Purpose of a model on a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DevicePurpose {
    /// Maximum tokens of a sequence.
    pub(crate) n_ctx: Option<usize>,
    /// Maximum sequences alive at a time; 0 means one.
    pub(crate) max_sequences: usize,
    /// Length that every prompt is padded to.
    pub(crate) prefill_tokens: Option<u64>,
    /// Slot that the device corrupts.
    pub(crate) corrupt: Option<CorruptSlot>,
}

impl DevicePurpose {
    /// Purpose of one sequence in that context.
    pub(crate) fn context(n_ctx: impl Into<Option<usize>>) -> DevicePurpose {
        DevicePurpose {
            n_ctx: n_ctx.into(),
            ..DevicePurpose::default()
        }
    }
}

impl TargetArgs {
    /// Planner with these settings.
    pub(crate) fn planner(&self, graph: &Graph) -> CommandResult<Arc<dyn Planner>> {
        self.plans.planner(self.device, graph)
    }

    /// Settings for the target.
    pub(crate) fn settings(&self, graph: &Graph) -> CommandResult<Settings> {
        self.plans.settings(self.device, graph)
    }

    /// Puts a model on the device.
    pub(crate) fn load(
        &self,
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        wanted: &DevicePurpose,
        ui: Ui,
    ) -> CommandResult<Arc<NpuModel>> {
        self.plans.load(self.device, model, cpu, wanted, ui)
    }
}

impl DeviceArgs {
    /// Whether it is this computer's processor.
    pub(crate) fn is_cpu(&self) -> bool {
        matches!(self.device, ModelPlacement::Cpu)
    }

    /// Refuses settings of an NPU where the CPU computes: they would change nothing.
    pub(crate) fn refuse_settings_on_cpu(&self) -> CommandResult {
        match (self.is_cpu(), self.plans.given()) {
            (true, Some(option)) => Err(CommandFailure::usage(format!(
                "{option} is for an NPU, and the CPU computes here"
            ))
            .hint("name the NPU with --device")),
            _ => Ok(()),
        }
    }

    /// Makes an engine as the options say. The cache's format and pages apply to the CPU only.
    pub(crate) fn make(
        &self,
        model: &Arc<LoadedModel>,
        options: EngineOptions,
        ui: Ui,
    ) -> CommandResult<Box<dyn Engine>> {
        let device = match self.device {
            ModelPlacement::Cpu => {
                self.refuse_settings_on_cpu()?;
                Device::named(CPU).engine_options(options)
            }
            ModelPlacement::Target(target) => {
                let graph = &model.model().graph;
                self.plans.device(target, graph, options, ui)?
            }
        };
        let engine = device.engine(model)?;
        // This also drops the spinner.
        drop(device);
        let n_ctx = engine.limits().n_ctx;
        match engine.device_model() {
            Some(npu) => ui.detail(format_args!("{}, context {n_ctx}", npu.device_name())),
            None => ui.detail(format_args!(
                "{} threads, level {}, context {n_ctx}",
                engine.cpu().pool().n_threads(),
                engine.cpu().level(),
            )),
        }
        Ok(engine)
    }
}

impl From<SettingError> for CommandFailure {
    fn from(error: SettingError) -> CommandFailure {
        let exit = match &error {
            SettingError::Facts(_) => Exit::BadInput,
            SettingError::Unknown { .. } | SettingError::Change { .. } => Exit::Usage,
        };
        CommandFailure::new(exit, error.to_string())
    }
}

impl From<millrace_plan::BenchError> for CommandFailure {
    fn from(error: millrace_plan::BenchError) -> CommandFailure {
        use millrace_plan::BenchError;
        match error {
            BenchError::Setting(error) => error.into(),
            BenchError::NotFound { message, hint } => {
                hinted(CommandFailure::not_found(message), hint)
            }
            BenchError::Usage { message, hint } => hinted(CommandFailure::usage(message), hint),
            BenchError::Input(message) => CommandFailure::bad_input(message),
            BenchError::Failed(message) => CommandFailure::new(Exit::Failed, message),
        }
    }
}

fn hinted(failure: CommandFailure, hint: String) -> CommandFailure {
    match hint.is_empty() {
        true => failure,
        false => failure.hint(hint),
    }
}
