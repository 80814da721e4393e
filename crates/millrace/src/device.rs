//! Devices, and how a model is set up on them.

use crate::{Error, Model, Result, programs_folder};
use millrace_graph::Graph;
use millrace_plan::{Choice, FactSource, Planner, SettingError, Settings, Target};
use millrace_runtime::npu::{LoadProgress, NpuModel, NpuOptions, PlannedEngine};
use millrace_runtime::speculate::check_draft;
use millrace_runtime::{
    AdapterSet, CpuEngine, Engine, EngineOptions, KvType, Level, LoadedModel, Speculator,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The name of this computer's CPU.
pub const CPU: &str = "cpu";

/// The NPUs in this build; none without the feature `targets`.
fn targets() -> &'static [&'static dyn Target] {
    #[cfg(feature = "targets")]
    return millrace_targets::ALL;
    #[cfg(not(feature = "targets"))]
    &[]
}

/// Settings of an NPU; unset ones keep the NPU's defaults. `millrace devices -v` lists machines, profiles, modes and
/// features of each.
#[derive(Clone, Debug, Default)]
pub struct TargetSettings {
    /// How plans are made. `None` selects the mode that the model's weights need, else the first of the target's
    /// modes.
    pub mode: Option<String>,
    /// Features that are left out.
    pub without: Vec<String>,
    /// How matrices are multiplied.
    pub numerics: Option<String>,
    /// Which simulator executes programs on a virtual device.
    pub simulator: Option<String>,
    /// Facts of the machine: a built-in name, or a TOML file.
    pub machine: Option<String>,
    /// Constants of the software stack: a built-in name, or a TOML file.
    pub profile: Option<String>,
    /// Changes of both, as `key=value`; changes of the profile begin with `profile.`.
    pub set: Vec<String>,
}

impl TargetSettings {
    /// The first setting that is set, by its name here.
    fn first_set(&self) -> Option<&'static str> {
        let settings = [
            ("mode", self.mode.is_some()),
            ("without", !self.without.is_empty()),
            ("numerics", self.numerics.is_some()),
            ("simulator", self.simulator.is_some()),
            ("machine", self.machine.is_some()),
            ("profile", self.profile.is_some()),
            ("set", !self.set.is_empty()),
        ];
        let first = settings.into_iter().find(|(_, is_set)| *is_set);
        first.map(|(name, _)| name)
    }

    /// Settings that do not depend on the model: machine, profile, changes of both, numerics, simulator.
    ///
    /// # Errors
    /// [`Error::NoFacts`], [`Error::Read`]; [`Error::Setting`] for a simulator that the target does not have.
    pub fn of_machine(&self, target: &dyn Target) -> Result<Settings> {
        let options = target.options();
        if let Some(name) = &self.simulator {
            let known = &options.simulators;
            if !known.iter().any(|choice| choice.name == *name) {
                return Err(SettingError::unknown(target.name(), "simulator", name, known).into());
            }
        }
        Ok(Settings {
            machine: facts(self.machine.as_deref(), "machine", &options.machines)?,
            profile: facts(self.profile.as_deref(), "profile", &options.profiles)?,
            set: self.set.clone(),
            numerics: self.numerics.clone(),
            simulator: self.simulator.clone(),
            ..Settings::default()
        })
    }

    /// Settings of a target for a model.
    ///
    /// # Errors
    /// As [`of_machine`](TargetSettings::of_machine).
    pub fn of_model(&self, target: &dyn Target, graph: &Graph) -> Result<Settings> {
        let decided = || target.mode_of(graph).map(|choice| choice.mode.to_owned());
        Ok(Settings {
            mode: self.mode.clone().or_else(decided),
            without: self.without.clone(),
            ..self.of_machine(target)?
        })
    }

    /// The reason for the mode, where none was set and the weights decide.
    pub fn mode_reason(&self, target: &dyn Target, graph: &Graph) -> Option<String> {
        let decided = target.mode_of(graph).filter(|_| self.mode.is_none());
        decided.map(|choice| choice.reason)
    }

    /// The planner with these settings.
    ///
    /// # Errors
    /// As [`of_machine`](TargetSettings::of_machine); [`Error::Setting`].
    pub fn planner(&self, target: &dyn Target, graph: &Graph) -> Result<Arc<dyn Planner>> {
        Ok(target.planner(&self.of_model(target, graph)?)?)
    }
}

/// Built-in facts, or those in a file.
fn facts(name: Option<&str>, what: &'static str, builtin: &[Choice]) -> Result<Option<FactSource>> {
    let Some(name) = name else { return Ok(None) };
    if builtin.iter().any(|choice| choice.name == name) {
        return Ok(Some(FactSource::Named(name.to_owned())));
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(Error::NoFacts {
            what,
            name: name.to_owned(),
            known: builtin.iter().map(|c| c.name.clone()).collect(),
        });
    }
    let text = fs::read_to_string(path).map_err(|source| Error::Facts {
        what,
        name: name.to_owned(),
        source,
    })?;
    Ok(Some(FactSource::Text {
        name: name.to_owned(),
        text,
    }))
}

/// Where a model runs.
#[derive(Clone, Debug)]
enum DevicePlacement {
    Named(String),
    Target(&'static dyn Target),
}

/// How tokens are drafted.
#[derive(Clone, Debug)]
enum Draft {
    Ngram,
    /// The model's own MTP layer.
    Layer,
    Model(Model),
}

/// A device and how a model is placed on it: a builder. A `&str` converts to the device of that name with default
/// settings.
///
/// ```
/// use millrace::{Device, Model};
///
/// # fn main() -> Result<(), millrace::Error> {
/// let device = Device::named("cpu").threads(2).context(512).sequences(2);
/// let session = Model::open("demo")?.on(device)?;
/// assert_eq!(session.n_ctx(), 512);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    place: DevicePlacement,
    settings: TargetSettings,
    options: EngineOptions,
    draft: Option<Draft>,
    progress: Option<LoadProgress>,
}

impl From<&str> for Device {
    fn from(name: &str) -> Device {
        Device::named(name)
    }
}

impl Default for Device {
    /// This computer's CPU.
    fn default() -> Device {
        Device::named(CPU)
    }
}

impl Device {
    /// Default number of sequences of a session.
    pub const DEFAULT_SEQUENCES: usize = 4;

    /// The device of a name: `cpu`, or an NPU (`xdna2`, `rk3588`, `tcp`), which is simulated with modelled times
    /// where there is none. [`Model::on`] refuses unknown names.
    pub fn named(name: &str) -> Device {
        Device::at(DevicePlacement::Named(name.to_owned()))
    }

    /// A kind of NPU by its target, which need not be in the registry.
    pub fn target(target: &'static dyn Target) -> Device {
        Device::at(DevicePlacement::Target(target))
    }

    fn at(place: DevicePlacement) -> Device {
        Device {
            place,
            settings: TargetSettings::default(),
            options: EngineOptions {
                max_sequences: Device::DEFAULT_SEQUENCES,
                keep_prefixes: true,
                ..EngineOptions::default()
            },
            draft: None,
            progress: None,
        }
    }

    /// Every name that [`Device::named`] knows, with a description.
    pub fn names() -> Vec<(&'static str, &'static str)> {
        let row = |target: &&'static dyn Target| (target.name(), target.title());
        std::iter::once((CPU, "This computer's CPU"))
            .chain(targets().iter().map(row))
            .collect()
    }

    /// Tokens of a sequence, prompt and answer together. The default is the model's trained context, at most 8,192.
    #[must_use]
    pub fn context(mut self, n_tokens: usize) -> Device {
        self.options.n_ctx = Some(n_tokens);
        self
    }

    /// Number of sequences alive at a time: chats, streams, and prompts of a batch that are computed together. Memory
    /// for keys and values is reserved for each, and taken when it is used.
    #[must_use]
    pub fn sequences(mut self, n: usize) -> Device {
        self.options.max_sequences = n;
        self
    }

    /// Threads to compute with; by default one for each physical core.
    #[must_use]
    pub fn threads(mut self, n: usize) -> Device {
        self.options.n_threads = Some(n);
        self
    }

    /// The CPU's instruction set; by default the best available.
    #[must_use]
    pub fn level(mut self, level: Level) -> Device {
        self.options.level = Some(level);
        self
    }

    /// Format of cached keys and values on the CPU; by default f16.
    #[must_use]
    pub fn kv_type(mut self, kv_type: KvType) -> Device {
        self.options.kv_type = kv_type;
        self
    }

    /// LoRA adapters that every sequence uses, on the CPU; other devices refuse them.
    #[must_use]
    pub fn adapters(mut self, adapters: AdapterSet) -> Device {
        self.options.adapters = adapters;
        self
    }

    /// Drafts tokens from repetitions in the text. This changes the speed, not the text.
    #[must_use]
    pub fn draft_ngram(mut self) -> Device {
        self.draft = Some(Draft::Ngram);
        self
    }

    /// Drafts tokens with the model's own layer for that (MTP), on the CPU. This changes the speed, not the text.
    #[must_use]
    pub fn draft_mtp(mut self) -> Device {
        self.draft = Some(Draft::Layer);
        self
    }

    /// Drafts tokens with a smaller model of the same vocabulary, or with the model's assistant ([`Model::open_draft`]).
    /// This changes the speed, not the text.
    #[must_use]
    pub fn draft(mut self, model: &Model) -> Device {
        self.draft = Some(Draft::Model(model.clone()));
        self
    }

    /// Settings of an NPU; with the CPU, [`Device::engine`] refuses them.
    #[must_use]
    pub fn settings(mut self, settings: TargetSettings) -> Device {
        self.settings = settings;
        self
    }

    /// How an NPU's plans are made.
    #[must_use]
    pub fn mode(mut self, mode: &str) -> Device {
        self.settings.mode = Some(mode.to_owned());
        self
    }

    /// Changes a fact of an NPU's machine or a constant of its profile: `cols=4`, `profile.ddr.total_gb_per_s=120`.
    #[must_use]
    pub fn set(mut self, change: &str) -> Device {
        self.settings.set.push(change.to_owned());
        self
    }

    /// Callback for the progress of preparing an NPU's weights: bytes done and in total.
    #[must_use]
    pub fn progress(mut self, tell: impl Fn(u64, u64) + Send + Sync + 'static) -> Device {
        self.progress = Some(LoadProgress::new(tell));
        self
    }

    /// All options of the engine at once, for advanced use.
    #[must_use]
    pub fn engine_options(mut self, options: EngineOptions) -> Device {
        self.options = options;
        self
    }

    /// The target, or none for the CPU.
    fn find(&self) -> Result<Option<&'static dyn Target>> {
        let name = match &self.place {
            DevicePlacement::Target(target) => return Ok(Some(*target)),
            DevicePlacement::Named(name) if name == CPU => return Ok(None),
            DevicePlacement::Named(name) => name,
        };
        let found = targets().iter().copied().find(|t| t.name() == name);
        found.map(Some).ok_or_else(|| Error::NoDevice {
            name: name.clone(),
            known: Device::names().into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// The engine of a model on this device, without a session around it: for callers who drive an engine themselves.
    ///
    /// # Errors
    /// As [`Model::on`].
    pub fn engine(&self, model: &Arc<LoadedModel>) -> Result<Box<dyn Engine>> {
        let Some(target) = self.find()? else {
            if let Some(setting) = self.settings.first_set() {
                return Err(Error::NpuSetting { setting });
            }
            let engine = CpuEngine::new(Arc::clone(model), self.options.clone())?;
            return Ok(Box::new(engine));
        };
        if self.options.kv_type != KvType::F16 {
            return Err(Error::KvType {
                asked: self.options.kv_type.name(),
                device: target.name(),
            });
        }
        self.options.adapters.refuse()?;
        let npu = Arc::new(self.load(target, model, None)?);
        Ok(Box::new(PlannedEngine::new(&npu)?))
    }

    /// A model on an NPU, without an engine. Every prompt is padded to `prefill_tokens`, if given. Compiled programs
    /// are kept in [`programs_folder`].
    ///
    /// # Errors
    /// As [`Model::on`].
    pub fn load(
        &self,
        target: &dyn Target,
        model: &Arc<LoadedModel>,
        prefill_tokens: Option<u64>,
    ) -> Result<NpuModel> {
        let planner = self.settings.planner(target, &model.model().graph)?;
        let options = NpuOptions {
            progress: self.progress.clone(),
            programs: programs_folder(),
            n_ctx: self.options.n_ctx,
            max_sequences: self.options.max_sequences,
            n_threads: self.options.n_threads,
            level: self.options.level,
            prefill_tokens,
            ..NpuOptions::default()
        };
        Ok(NpuModel::load(Arc::clone(model), planner, options)?)
    }

    /// The speculator for an engine of `model`, on this device and with the same context.
    pub(crate) fn speculator(&self, engine: &dyn Engine) -> Result<Option<Speculator>> {
        let mut beside = self.clone().context(engine.limits().n_ctx);
        // Adapters are the target model's.
        beside.options.adapters = AdapterSet::default();
        let draft = match &self.draft {
            None => return Ok(None),
            Some(Draft::Ngram) => return Ok(Some(Speculator::ngram())),
            Some(Draft::Layer) => {
                let layer = Arc::new(engine.model().draft_layer()?);
                let own = CpuEngine::new(layer, beside.options)?;
                return Ok(Some(Speculator::layer(Box::new(own), engine.model())?));
            }
            Some(Draft::Model(draft)) => draft.loaded(),
        };
        if draft.is_assistant() {
            return Ok(Some(Speculator::assistant(draft, engine)?));
        }
        check_draft(engine.model(), draft)?;
        let own = beside.engine(draft)?;
        Ok(Some(Speculator::model(own, engine.model())?))
    }

    /// The draft model's name, if there is one.
    pub(crate) fn draft_name(&self) -> Option<&str> {
        match &self.draft {
            // An assistant reads the target's keys and values, those of images too.
            Some(Draft::Model(model)) if !model.loaded().is_assistant() => Some(model.name()),
            _ => None,
        }
    }
}
