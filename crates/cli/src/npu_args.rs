//! Which NPU, and which of its constants: the arguments that all commands about NPUs share.

use crate::engine_args::CpuArgs;
use crate::exit::{Failure, Outcome};
use crate::npu_cache;
use crate::output::Ui;
use crate::plan_args;
use crate::progress::Progress;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{Feature, Features, Mode, NpuModel, NpuOptions};
use millrace_xdna2::compile::CompileError;
use millrace_xdna2::device::{Corruption, Injection, VirtualDevice};
use millrace_xdna2::lower::{self, Phase};
use millrace_xdna2::{Machine, Numerics, Profile};
use std::path::Path;
use std::sync::Arc;

/// The NPU's facts and the software's constants
#[derive(clap::Args, Debug)]
pub(crate) struct NpuArgs {
    /// The kind of NPU
    #[arg(long, value_name = "NAME", default_value = "xdna2", value_parser = ["xdna2"])]
    device: String,
    #[command(flatten)]
    machine: MachineArgs,
}

impl NpuArgs {
    /// The machine with its profile, changes applied.
    pub(crate) fn read(&self) -> Outcome<(Machine, Profile)> {
        self.machine.read()
    }
}

/// Where a model runs, for commands that can choose
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Where to run: this computer's CPU, or an AMD XDNA2 NPU, simulated with modelled times
    #[arg(long, value_enum, value_name = "NAME", default_value_t = DeviceKind::Cpu)]
    pub(crate) device: DeviceKind,
    #[command(flatten)]
    pub(crate) npu: NpuModelArgs,
}

/// The devices that run models.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// This computer's CPU
    Cpu,
    /// The virtual AMD XDNA2
    Xdna2,
}

/// How a model is put on an NPU
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct NpuModelArgs {
    /// On an NPU: our best, or the published stack's behaviour (every prompt padded to 2,048 tokens)
    #[arg(long, value_enum, value_name = "MODE", default_value_t = ModeName::Best)]
    mode: ModeName,
    /// Leave out an improvement: float-sums, fast-tilings, buckets, merged-blocks, one-copy, alias,
    /// all-cores, balanced-attention, cached-attention, single-row-head. Mode reference has only the
    /// last
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    without: Vec<Feature>,
    /// How the array multiplies matrices: bf16 as it is, or through block floating point (bfp16), as
    /// published kernels are compiled; times are those of bfp16 either way
    #[arg(long, value_name = "NAME", default_value = "bf16")]
    numerics: Numerics,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum ModeName {
    /// Prompt lengths in buckets, the widest herds, f32 sums
    Best,
    /// As the published stack does it
    Reference,
}

impl NpuModelArgs {
    /// What is better than the published stack's behaviour.
    pub(crate) fn features(&self) -> Features {
        let mode = match self.mode {
            ModeName::Best => Mode::Best,
            ModeName::Reference => Mode::Reference,
        };
        let left_out = self.without.iter();
        left_out
            .fold(Features::of(mode), |all, one| all.without(*one))
            .with_numerics(self.numerics)
    }

    /// The machine with its profile, changes applied.
    pub(crate) fn machine(&self) -> Outcome<(Machine, Profile)> {
        self.machine.read()
    }

    /// The machine with its profile as they are without `--set` and a machine of one's own; `None`
    /// where nothing is changed.
    pub(crate) fn unchanged(&self) -> Outcome<Option<(Machine, Profile)>> {
        if self.machine.set.is_empty() && self.machine.machine == DEFAULT_MACHINE {
            return Ok(None);
        }
        let plain = MachineArgs {
            machine: DEFAULT_MACHINE.to_owned(),
            set: Vec::new(),
            ..self.machine.clone()
        };
        plain.read().map(Some)
    }

    /// Puts a model on the virtual NPU.
    pub(crate) fn load(
        &self,
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        n_ctx: Option<usize>,
        ui: Ui,
    ) -> Outcome<Arc<NpuModel>> {
        self.load_with(model, cpu, n_ctx, None, ui)
    }

    /// The same with a slot that the device gets wrong.
    pub(crate) fn load_with(
        &self,
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        n_ctx: Option<usize>,
        corrupt: Option<&CorruptSlot>,
        ui: Ui,
    ) -> Outcome<Arc<NpuModel>> {
        let (device, npu) = self.load_device(model, cpu, (n_ctx, None), ui)?;
        if let Some(CorruptSlot { program, slot, how }) = corrupt {
            self.check_corrupt(program, slot, model, npu.machine())?;
            device.inject(Injection::Corrupt {
                program: program.clone(),
                slot: slot.clone(),
                how: *how,
            });
        }
        Ok(npu)
    }

    /// The same with the device itself; a context, and a length that every prompt is padded to.
    pub(crate) fn load_device(
        &self,
        model: &Arc<LoadedModel>,
        cpu: &CpuArgs,
        (n_ctx, prefill_tokens): (impl Into<Option<usize>>, Option<u64>),
        ui: Ui,
    ) -> Outcome<(Arc<VirtualDevice>, Arc<NpuModel>)> {
        let (machine, profile) = self.machine.read()?;
        let options = NpuOptions {
            features: self.features(),
            programs: npu_cache::default_dir(),
            n_ctx: n_ctx.into(),
            n_threads: cpu.threads,
            level: cpu.cpu_level,
            prefill_tokens,
            ..NpuOptions::default()
        };
        let _progress = Progress::spinner(ui, "preparing programs and weights");
        let host = CpuOptions {
            n_threads: cpu.threads,
            level: cpu.cpu_level,
        };
        let host = Cpu::new(host).map_err(millrace_runtime::Error::from)?;
        let device = Arc::new(VirtualDevice::new(machine.clone(), profile, host));
        let npu = NpuModel::on(model.clone(), machine, device.clone(), options)?;
        Ok((device, Arc::new(npu)))
    }
}

impl NpuModelArgs {
    /// Whether a short prompt or a token runs that program: a slot that is nobody's would let a check
    /// pass.
    fn check_corrupt(
        &self,
        program: &str,
        slot: &str,
        model: &LoadedModel,
        machine: &Machine,
    ) -> Outcome {
        let graph = &model.model().graph;
        let mut known = Vec::new();
        let config = &model.model().config;
        let sequences = lower::Sequences {
            graph,
            machine,
            features: self.features(),
            n_ctx: config.context_length.max(1) as u64,
        };
        let mut requests = plan_args::of_prompts(&sequences, &[1]);
        requests.extend(plan_args::of_tokens(&sequences));
        for request in requests {
            let lower = match request.phase {
                Phase::Prefill => lower::prefill,
                Phase::Decode => lower::decode,
            };
            let plan = lower(graph, machine, &request.options).map_err(CompileError::from)?;
            for planned in plan.programs {
                let slots = planned.program.slots.iter();
                if planned.program.name == program {
                    if slots.clone().any(|s| s.name == slot) {
                        return Ok(());
                    }
                    let slots: Vec<&str> = slots.map(|s| s.name.as_str()).collect();
                    let message = format!("program `{program}` has no slot `{slot}`");
                    return Err(Failure::not_found(message)
                        .hint(format!("its slots are {}", slots.join(", "))));
                }
                if !known.contains(&planned.program.name) {
                    known.push(planned.program.name);
                }
            }
        }
        Err(Failure::not_found(format!("no program `{program}`"))
            .hint(format!("there are {}", known.join(", "))))
    }
}

/// A slot to be made wrong, as `PROGRAM:SLOT` or `PROGRAM:SLOT:HOW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CorruptSlot {
    /// The program's name.
    pub(crate) program: String,
    /// The slot's name.
    pub(crate) slot: String,
    /// How it is wrong.
    pub(crate) how: Corruption,
}

impl std::str::FromStr for CorruptSlot {
    type Err = String;

    fn from_str(text: &str) -> Result<CorruptSlot, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (program, slot, how) = match parts[..] {
            [program, slot] => (program, slot, "some"),
            [program, slot, how] => (program, slot, how),
            _ => ("", "", ""),
        };
        if program.is_empty() || slot.is_empty() {
            let problem = "write PROGRAM:SLOT or PROGRAM:SLOT:HOW; `millrace explain` lists both with their names";
            return Err(problem.to_owned());
        }
        let how = Corruption::from_name(how)
            .ok_or("HOW is some, double, zero, permute or row (each row shows the one before)")?;
        Ok(CorruptSlot {
            program: program.to_owned(),
            slot: slot.to_owned(),
            how,
        })
    }
}

/// Facts and constants that predictions are made from
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MachineArgs {
    /// Facts of the machine: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", default_value = DEFAULT_MACHINE, value_hint = clap::ValueHint::FilePath)]
    machine: String,
    /// Change a fact of the machine or a constant of the profile (`cols=4`, `profile.ddr.total_gb_per_s=120`)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Calibrated constants of the software stack: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", default_value = Profile::DEFAULT, value_hint = clap::ValueHint::FilePath)]
    profile: String,
}

/// The machine of the published measurements.
const DEFAULT_MACHINE: &str = "npu2";

/// How a profile's constant is told from a fact of the machine in `--set`.
const PROFILE_PREFIX: &str = "profile.";

impl MachineArgs {
    /// The machine with its profile, changes applied.
    pub(crate) fn read(&self) -> Outcome<(Machine, Profile)> {
        let mut machine = self.machine()?;
        let mut profile = self.profile()?;
        for change in &self.set {
            let changed = match change.strip_prefix(PROFILE_PREFIX) {
                Some(change) => profile.set(change).map_err(|error| error.to_string()),
                None => machine.set(change).map_err(|error| error.to_string()),
            };
            changed.map_err(|error| {
                let error = error.to_string();
                let reason = error.strip_prefix("--set: ").unwrap_or(&error);
                Failure::usage(format!("--set {change}: {reason}"))
            })?;
        }
        if !self.set.is_empty() {
            // The stated errors were found without a change; the label must not claim them.
            profile.name.push_str(" changed by --set");
        }
        Ok((machine, profile))
    }

    fn machine(&self) -> Outcome<Machine> {
        if let Some(machine) = Machine::builtin(&self.machine) {
            return Ok(machine);
        }
        let text = read_file(&self.machine, "machine", Machine::builtin_names())?;
        Machine::from_toml(&text, &self.machine)
            .map_err(|error| Failure::bad_input(error.to_string()))
    }

    fn profile(&self) -> Outcome<Profile> {
        if let Some(profile) = Profile::builtin(&self.profile) {
            return Ok(profile);
        }
        let text = read_file(&self.profile, "profile", Profile::builtin_names())?;
        Profile::from_toml(&text, &self.profile)
            .map_err(|error| Failure::bad_input(error.to_string()))
    }
}

/// A file that is no built-in name.
fn read_file<'a>(
    name: &str,
    what: &str,
    builtin: impl Iterator<Item = &'a str>,
) -> Outcome<String> {
    let path = Path::new(name);
    if !path.exists() {
        let known = builtin.collect::<Vec<_>>().join(", ");
        return Err(Failure::not_found(format!("no {what} `{name}`"))
            .hint(format!("built in are {known}; anything else is a file")));
    }
    std::fs::read_to_string(path)
        .map_err(|error| Failure::io(format!("cannot read {what} {name}"), &error))
}
