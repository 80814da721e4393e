//! Which device, and how a model is put on it: the arguments that commands share. What can be said
//! comes from the registry of targets.

use crate::engine_args::{ContextArgs, CpuArgs};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Ui, bytes};
use crate::program_cache;
use crate::progress::Progress;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use millrace_model::graph::Graph;
use millrace_npu::Injection;
use millrace_plan::{Choice, Facts, Planner, SettingError, Settings, Target};
use millrace_runtime::npu::{LoadProgress, NpuModel, NpuOptions, PlannedEngine};
use millrace_runtime::{CpuEngine, Engine, KvType, LoadedModel};
use std::path::Path;
use std::sync::{Arc, OnceLock};

mod corrupt;

pub(crate) use corrupt::CorruptSlot;

static TARGETS: OnceLock<&'static [&'static dyn Target]> = OnceLock::new();

/// Sets the registry, once, before anything is parsed.
pub(crate) fn register(targets: &'static [&'static dyn Target]) {
    // Whoever came first has set the same.
    let _ = TARGETS.set(targets);
}

/// The registry.
pub(crate) fn targets() -> &'static [&'static dyn Target] {
    let set = TARGETS.get().copied();
    // Tests of this crate parse without a `main`.
    #[cfg(test)]
    let set = set.or(Some(millrace_targets::ALL));
    set.unwrap_or_default()
}

/// Examples of a help text, in which `{npu}` stands for the first target's name and `{exporter}` for that of
/// the first whose programs can be exported.
pub(crate) fn examples(text: &str) -> String {
    let exporter = targets().iter().find(|target| target.exporter().is_some());
    text.replace("{npu}", default_target()).replace(
        "{exporter}",
        exporter.map_or("NAME", |target| target.name()),
    )
}

/// What `--device` of commands that run models says for this computer's CPU.
const CPU: &str = "cpu";

/// Where a model runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// This computer's CPU.
    Cpu,
    /// A target of the registry.
    Target(&'static dyn Target),
}

impl Place {
    /// The name by which `--device` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Cpu => CPU,
            Place::Target(target) => target.name(),
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
pub(crate) fn place_parser() -> impl TypedValueParser<Value = Place> {
    let cpu = PossibleValue::new(CPU).help("This computer's CPU");
    let all: Vec<PossibleValue> = std::iter::once(cpu).chain(values()).collect();
    PossibleValuesParser::new(all).map(|name| match find(&name) {
        Some(target) => Place::Target(target),
        None => Place::Cpu,
    })
}

/// The target that NPU commands take if none is said.
fn default_target() -> &'static str {
    targets().first().map_or("", |target| target.name())
}

/// A kind of NPU, for commands about NPUs
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct TargetArgs {
    /// The kind of NPU; `millrace devices` lists them, with their machines, profiles and modes
    #[arg(long, value_name = "NAME", default_value = default_target(), value_parser = target_parser())]
    pub(crate) device: &'static dyn Target,
    #[command(flatten)]
    pub(crate) plans: ModeArgs,
}

/// Where a model runs, for commands that can choose
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Where to run: this computer's CPU, or an NPU, simulated with modelled times where there is none
    #[arg(long, value_name = "NAME", default_value = CPU, value_parser = place_parser())]
    pub(crate) device: Place,
    #[command(flatten)]
    pub(crate) plans: ModeArgs,
}

/// How a model is put on an NPU
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Device")]
pub(crate) struct ModeArgs {
    /// On an NPU: how plans are made [default: what a file of 4-bit weights asks for, else the first; `millrace devices -v` lists them]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Leave out an improvement of the mode; `millrace devices -v` lists them
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    without: Vec<String>,
    /// How the NPU multiplies matrices [default: as it is]
    #[arg(long, value_name = "NAME")]
    numerics: Option<String>,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Facts and constants that predictions are made from
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct MachineArgs {
    /// Facts of the machine: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", value_hint = clap::ValueHint::FilePath)]
    machine: Option<String>,
    /// Change a fact of the machine or a constant of the profile (`cols=4`, `profile.ddr.total_gb_per_s=120`)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Calibrated constants of the software stack: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", value_hint = clap::ValueHint::FilePath)]
    profile: Option<String>,
}

/// The target that is probed if none is said: the first that can be.
fn default_probed() -> &'static str {
    let probed = targets().iter().find(|target| target.prober().is_some());
    probed.map_or_else(default_target, |target| target.name())
}

/// A kind of NPU that is probed
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct ProbeTargetArgs {
    /// The kind of NPU
    #[arg(long, value_name = "NAME", default_value = default_probed(), value_parser = target_parser())]
    pub(crate) device: &'static dyn Target,
    #[command(flatten)]
    machine: MachineArgs,
}

impl ProbeTargetArgs {
    /// What is asked of the target.
    pub(crate) fn settings(&self) -> Outcome<Settings> {
        self.machine.settings(self.device)
    }
}

/// A kind of NPU whose kernels are looked at
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct KernelTargetArgs {
    /// The kind of NPU
    #[arg(long, value_name = "NAME", default_value = default_target(), value_parser = target_parser())]
    pub(crate) device: &'static dyn Target,
    #[command(flatten)]
    machine: MachineArgs,
}

impl KernelTargetArgs {
    /// What is asked of the target.
    pub(crate) fn settings(&self, numerics: Option<String>) -> Outcome<Settings> {
        let settings = self.machine.settings(self.device)?;
        Ok(Settings {
            numerics,
            ..settings
        })
    }
}

impl MachineArgs {
    fn settings(&self, target: &dyn Target) -> Outcome<Settings> {
        let options = target.options();
        Ok(Settings {
            machine: facts(self.machine.as_deref(), "machine", &options.machines)?,
            profile: facts(self.profile.as_deref(), "profile", &options.profiles)?,
            set: self.set.clone(),
            ..Settings::default()
        })
    }
}

/// Built-in facts, or those of a file.
fn facts(name: Option<&str>, what: &str, builtin: &[Choice]) -> Outcome<Option<Facts>> {
    let Some(name) = name else { return Ok(None) };
    if builtin.iter().any(|choice| choice.name == name) {
        return Ok(Some(Facts::Named(name.to_owned())));
    }
    let path = Path::new(name);
    if !path.exists() {
        let known: Vec<&str> = builtin.iter().map(|c| c.name.as_str()).collect();
        return Err(
            Failure::not_found(format!("no {what} `{name}`")).hint(format!(
                "built in are {}; anything else is a file",
                known.join(", ")
            )),
        );
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::io(format!("cannot read {what} {name}"), &error))?;
    Ok(Some(Facts::Text {
        name: name.to_owned(),
        text,
    }))
}

impl ModeArgs {
    /// What is asked of a target for a model: a mode that is not said is the one that the model's weights decide.
    pub(crate) fn settings(&self, target: &dyn Target, graph: &Graph) -> Outcome<Settings> {
        let decided = || target.mode_of(graph).map(|choice| choice.mode.to_owned());
        Ok(Settings {
            mode: self.mode.clone().or_else(decided),
            without: self.without.clone(),
            numerics: self.numerics.clone(),
            ..self.machine.settings(target)?
        })
    }

    /// Why that mode, where nobody said one and the weights decide.
    pub(crate) fn reason(&self, target: &dyn Target, graph: &Graph) -> Option<String> {
        let decided = target.mode_of(graph).filter(|_| self.mode.is_none());
        decided.map(|choice| choice.reason)
    }

    /// Who makes plans, set up so.
    pub(crate) fn planner(&self, target: &dyn Target, graph: &Graph) -> Outcome<Arc<dyn Planner>> {
        Ok(target.planner(&self.settings(target, graph)?)?)
    }

    /// Puts a model on a target's device.
    pub(crate) fn load(
        &self,
        target: &dyn Target,
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        wanted: &Wanted,
        ui: Ui,
    ) -> Outcome<Arc<NpuModel>> {
        let graph = &model.model().graph;
        let planner = self.planner(target, graph)?;
        if let Some(reason) = self.reason(target, graph) {
            ui.detail(format_args!("mode {}: {reason}", planner.mode()));
        }
        let progress = Arc::new(Progress::spinner(ui, "preparing programs"));
        let shown = Arc::clone(&progress);
        let options = NpuOptions {
            progress: Some(LoadProgress::new(move |done_bytes, total_bytes| {
                let (done, total) = (bytes(done_bytes), bytes(total_bytes));
                shown.message(format!(
                    "preparing weights: {done} of {total} on the device"
                ));
            })),
            programs: program_cache::default_dir(),
            n_ctx: wanted.n_ctx,
            max_sequences: wanted.max_sequences,
            n_threads: cpu.threads,
            level: cpu.cpu_level,
            prefill_tokens: wanted.prefill_tokens,
            ..NpuOptions::default()
        };
        let npu = NpuModel::load(model.clone(), planner, options)?;
        drop(progress);
        if let Some(CorruptSlot { program, slot, how }) = &wanted.corrupt {
            corrupt::check(program, slot, &npu)?;
            let Some(injector) = npu.device().injector() else {
                let message = format!("{} does not fail on purpose", npu.device_name());
                return Err(Failure::usage(message).hint("only virtual devices do"));
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

/// What a model on a device is wanted for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Tokens a sequence may hold.
    pub(crate) n_ctx: Option<usize>,
    /// Sequences alive at a time; 0 takes one.
    pub(crate) max_sequences: usize,
    /// A length that every prompt is padded to.
    pub(crate) prefill_tokens: Option<u64>,
    /// A slot that the device gets wrong.
    pub(crate) corrupt: Option<CorruptSlot>,
}

impl Wanted {
    /// One sequence in that context.
    pub(crate) fn context(n_ctx: impl Into<Option<usize>>) -> Wanted {
        Wanted {
            n_ctx: n_ctx.into(),
            ..Wanted::default()
        }
    }
}

impl TargetArgs {
    /// Who makes plans, set up so.
    pub(crate) fn planner(&self, graph: &Graph) -> Outcome<Arc<dyn Planner>> {
        self.plans.planner(self.device, graph)
    }

    /// What is asked of the target.
    pub(crate) fn settings(&self, graph: &Graph) -> Outcome<Settings> {
        self.plans.settings(self.device, graph)
    }

    /// Puts a model on the device.
    pub(crate) fn load(
        &self,
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        wanted: &Wanted,
        ui: Ui,
    ) -> Outcome<Arc<NpuModel>> {
        self.plans.load(self.device, model, cpu, wanted, ui)
    }
}

impl DeviceArgs {
    /// An engine for one sequence.
    pub(crate) fn engine(
        &self,
        model: &Arc<LoadedModel>,
        context: &ContextArgs,
        cpu: &CpuArgs,
        ui: Ui,
    ) -> Outcome<Box<dyn Engine>> {
        self.make(model, cpu.with_context(context), cpu, ui)
    }

    /// An engine for one conversation: what was said stays cached after it is cleared or changed.
    pub(crate) fn chat_engine(
        &self,
        model: &Arc<LoadedModel>,
        context: &ContextArgs,
        cpu: &CpuArgs,
        ui: Ui,
    ) -> Outcome<Box<dyn Engine>> {
        let options = millrace_runtime::EngineOptions {
            keep_prefixes: true,
            ..cpu.with_context(context)
        };
        self.make(model, options, cpu, ui)
    }

    /// An engine as the options say; those of the cache's format and its pages are the CPU's.
    pub(crate) fn make(
        &self,
        model: &Arc<LoadedModel>,
        options: millrace_runtime::EngineOptions,
        cpu: &CpuArgs,
        ui: Ui,
    ) -> Outcome<Box<dyn Engine>> {
        let engine: Box<dyn Engine> = match self.device {
            Place::Cpu => {
                let engine = CpuEngine::new(Arc::clone(model), options)?;
                ui.detail(format_args!(
                    "{} threads, level {}, context {}",
                    engine.cpu().pool().n_threads(),
                    engine.cpu().level(),
                    engine.limits().n_ctx,
                ));
                Box::new(engine)
            }
            Place::Target(target) => {
                if options.kv_type != KvType::F16 {
                    let (asked, name) = (options.kv_type.name(), target.name());
                    return Err(Failure::usage(format!(
                        "--kv-type {asked} is the CPU's: {name} keeps keys and values in bf16"
                    ))
                    .hint("leave --kv-type out, or take --device cpu"));
                }
                let wanted = Wanted {
                    n_ctx: options.n_ctx,
                    max_sequences: options.max_sequences,
                    ..Wanted::default()
                };
                let npu = self.plans.load(target, model, cpu, &wanted, ui)?;
                ui.detail(format_args!(
                    "{}, context {}",
                    npu.device_name(),
                    npu.n_ctx()
                ));
                Box::new(PlannedEngine::new(&npu)?)
            }
        };
        Ok(engine)
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Failure {
        let exit = match &error {
            SettingError::Facts(_) => Exit::BadInput,
            SettingError::Unknown { .. } | SettingError::Change { .. } => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<millrace_plan::BenchError> for Failure {
    fn from(error: millrace_plan::BenchError) -> Failure {
        use millrace_plan::BenchError;
        match error {
            BenchError::Setting(error) => error.into(),
            BenchError::NotFound { message, hint } => hinted(Failure::not_found(message), hint),
            BenchError::Usage { message, hint } => hinted(Failure::usage(message), hint),
            BenchError::Input(message) => Failure::bad_input(message),
            BenchError::Failed(message) => Failure::new(Exit::Failed, message),
        }
    }
}

fn hinted(failure: Failure, hint: String) -> Failure {
    match hint.is_empty() {
        true => failure,
        false => failure.hint(hint),
    }
}
