//! The row of AMD XDNA2 in the registry of targets.

mod bench;
mod int8;
mod of_file;
mod packed;
mod planner;

pub use planner::Xdna2;

use crate::lower::{Feature, Features, Mode};
use crate::predict::HostKind;
use millrace_model::graph::Graph;
use millrace_plan::settings::machine_and_profile;
use millrace_plan::{
    Choice, ModeChoice, Planner, SettingError, Settings, Target, TargetOptions, Workbench,
};
use millrace_xdna2_machine::program::codec::TARGET as NAME;
use millrace_xdna2_machine::{Machine, Numerics, Profile};
use std::sync::Arc;

/// The registry's row.
pub struct Row;

impl Target for Row {
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
            modes: modes(),
            features: Feature::ALL
                .map(|feature| Choice::new(feature.name(), feature.summary()))
                .to_vec(),
            numerics: [Numerics::Bf16, Numerics::Bfp16]
                .map(|numerics| Choice::new(numerics.name(), numerics.summary()))
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

    fn workbench(&self) -> Option<&dyn Workbench> {
        Some(&bench::Bench)
    }
}

fn modes() -> Vec<Choice> {
    vec![
        Choice::new(
            "best",
            "prompt lengths in buckets, the widest herds, f32 sums",
        ),
        Choice::new(
            "q4nx",
            "as best, with weights in 4-bit blocks (Q4NX) that the cores dequantise; taken for files of mostly 4-bit weights",
        ),
        Choice::new(
            "paper",
            "4-bit blocks as the Gemma 3 paper lays them out: weights expanded to bf16 in DDR first, FlowQKV, FlowKV",
        ),
        Choice::new(
            int8::MODE,
            "products of 8-bit integers, each a program of its own; the rest on the host",
        ),
        Choice::new(
            "reference",
            "as the published stack does it: every prompt padded to 2,048 tokens",
        ),
        Choice::new(
            "first",
            "as that stack did at first: all rows of a prompt go through the head",
        ),
    ]
}

/// Built-in names, the one that is taken if none is said first.
fn names(all: impl Iterator<Item = &'static str>) -> Vec<Choice> {
    all.map(|name| Choice::new(name, "")).collect()
}

/// Whether plans of 8-bit integers are asked for.
pub fn is_int8(settings: &Settings) -> bool {
    settings.mode.as_deref() == Some(int8::MODE)
}

/// A planner set up so, for all modes but that of 8-bit integers.
///
/// # Errors
/// As [`Target::planner`].
pub fn planner(settings: &Settings) -> Result<Xdna2, SettingError> {
    let (machine, profile) = machine(settings)?;
    let features = features(settings)?;
    let mut planner = Xdna2::new(machine, profile, features);
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
    let mut features = match settings.mode.as_deref() {
        // Of mode int8 the set is not asked for.
        None | Some("best" | int8::MODE) => Features::of(Mode::Best),
        Some("q4nx") => Features::of(Mode::Q4nx),
        Some("paper") => Features::of(Mode::Paper),
        Some("reference") => Features::of(Mode::Reference),
        Some("first") => Features::NONE,
        Some(other) => return Err(SettingError::unknown(NAME, "mode", other, &modes())),
    };
    for name in &settings.without {
        let unknown = || SettingError::unknown(NAME, "feature", name, &Row.options().features);
        let feature: Feature = name.parse().map_err(|_| unknown())?;
        features = features.without(feature);
    }
    if let Some(name) = &settings.numerics {
        let unknown = || SettingError::unknown(NAME, "numerics", name, &Row.options().numerics);
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
