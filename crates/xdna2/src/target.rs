//! The row of AMD XDNA2 in the registry of targets.

mod bench;
mod export;
mod int8;
pub mod modes;
mod of_file;
mod packed;
mod planner;
mod probe;
mod simulator;
mod words;

pub use planner::Xdna2;
pub use simulator::ArraySimulator;

use crate::lower::{Feature, Features};
use crate::predict::HostKind;
use millrace_graph::Graph;
use millrace_plan::settings::machine_and_profile;
use millrace_plan::{
    Choice, Disassembler, Exporter, Hardware, ModeChoice, Planner, Prober, SettingError, Settings,
    Target, TargetOptions, Workbench,
};
use millrace_xdna2_machine::program::codec::TARGET as NAME;
use millrace_xdna2_machine::{Machine, Numerics, Profile};
use millrace_xdna2_silicon::amdxdna::open_node;
use std::sync::Arc;

/// The registry's row.
pub struct Xdna2Target;

impl Target for Xdna2Target {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "AMD XDNA2 NPU (Strix, Krackan), simulated with modelled times"
    }

    fn options(&self) -> TargetOptions {
        TargetOptions {
            machines: names(Machine::builtin_names()),
            profiles: names(Profile::builtin_names()),
            modes: modes::choices(),
            features: Feature::ALL
                .map(|feature| Choice::new(feature.name(), feature.summary()))
                .to_vec(),
            numerics: [Numerics::Bf16, Numerics::Bfp16]
                .map(|numerics| Choice::new(numerics.name(), numerics.summary()))
                .to_vec(),
            simulators: ArraySimulator::ALL
                .map(|simulator| Choice::new(simulator.name(), simulator.summary()))
                .to_vec(),
        }
    }

    fn planner(&self, settings: &Settings) -> Result<Arc<dyn Planner>, SettingError> {
        let planner = planner(settings)?;
        Ok(match is_int8(settings) {
            true => Arc::new(int8::Int8::new(planner)),
            false => Arc::new(planner),
        })
    }

    fn mode_of(&self, graph: &Graph) -> Option<ModeChoice> {
        of_file::mode(graph)
    }

    fn renamed_mode(&self, former: &str) -> Option<&'static str> {
        let row = modes::find(Some(former))?;
        (row.name != former).then_some(row.name)
    }

    fn workbench(&self) -> Option<&dyn Workbench> {
        Some(&bench::Xdna2Bench)
    }

    fn hardware(&self) -> Vec<Hardware> {
        probe::hardware(open_node())
    }

    fn prober(&self) -> Option<&dyn Prober> {
        Some(&probe::Xdna2Probe)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(&export::Xdna2Exporter)
    }

    fn disassembler(&self) -> Option<&dyn Disassembler> {
        Some(&words::Xdna2Words)
    }
}

/// Built-in names, the default first.
fn names(all: impl Iterator<Item = &'static str>) -> Vec<Choice> {
    all.map(|name| Choice::new(name, "")).collect()
}

/// Whether plans of 8-bit integers are requested.
pub fn is_int8(settings: &Settings) -> bool {
    settings.mode.as_deref() == Some(modes::INT8)
}

/// The simulator that executes programs, or the default.
fn simulator(settings: &Settings) -> Result<ArraySimulator, SettingError> {
    let Some(name) = &settings.simulator else {
        return Ok(ArraySimulator::default());
    };
    let known = ArraySimulator::ALL.into_iter().find(|s| s.name() == name);
    known.ok_or_else(|| {
        SettingError::unknown(NAME, "simulator", name, &Xdna2Target.options().simulators)
    })
}

/// A planner set up so, for all modes but that of 8-bit integers.
///
/// # Errors
/// As [`Target::planner`].
pub fn planner(settings: &Settings) -> Result<Xdna2, SettingError> {
    let (machine, profile) = machine(settings)?;
    let features = features(settings)?;
    let planner = Xdna2::new(machine, profile, features);
    let mut planner = planner.with_simulator(simulator(settings)?);
    if let Some(name) = &settings.host {
        let hosts = [HostKind::Published, HostKind::Own];
        let known = hosts.into_iter().find(|host| host.name() == name);
        let choices = hosts.map(|host| Choice::new(host.name(), ""));
        let unknown = || SettingError::unknown(NAME, "host", name, &choices);
        planner = planner.with_host(known.ok_or_else(unknown)?);
    }
    Ok(planner)
}

fn features(settings: &Settings) -> Result<Features, SettingError> {
    let mode = settings.mode.as_deref();
    let unknown =
        || SettingError::unknown(NAME, "mode", mode.unwrap_or_default(), &modes::choices());
    let mut features = (modes::find(mode).ok_or_else(unknown)?.features)();
    for name in &settings.without {
        let unknown =
            || SettingError::unknown(NAME, "feature", name, &Xdna2Target.options().features);
        let feature: Feature = name.parse().map_err(|_| unknown())?;
        features = features.without(feature);
    }
    if let Some(name) = &settings.numerics {
        let unknown =
            || SettingError::unknown(NAME, "numerics", name, &Xdna2Target.options().numerics);
        let numerics: Numerics = name.parse().map_err(|_| unknown())?;
        features = features.with_numerics(numerics);
    }
    Ok(features)
}

/// The machine with its profile, changes applied.
///
/// # Errors
/// As [`machine_and_profile`].
pub fn machine(settings: &Settings) -> Result<(Machine, Profile), SettingError> {
    machine_and_profile(NAME, settings, &settings.set)
}
