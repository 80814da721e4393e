//! The row of AMD XDNA2 in the registry of targets.

mod bench;
mod int8;
mod modes;
mod of_file;
mod packed;
mod page;
mod paper;
mod planner;

pub use planner::Xdna2;

use crate::lower::{Feature, Features};
use crate::predict::HostKind;
use millrace_model::graph::Graph;
use millrace_plan::predict::{PredictError, Work};
use millrace_plan::{
    Choice, Evidence, Facts, ModeChoice, Planner, SettingError, Settings, Target, TargetOptions,
    Workbench,
};
use millrace_xdna2_machine::program::codec::TARGET as NAME;
use millrace_xdna2_machine::{Machine, Numerics, Profile};
use std::sync::Arc;

/// The registry's row.
pub struct Row;

/// How a profile's constant is told from a fact of the machine in changes.
const PROFILE_PREFIX: &str = "profile.";

/// The machine of the published measurements.
const DEFAULT_MACHINE: &str = "npu2";

impl Target for Row {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "AMD XDNA2 NPU (Strix, Krackan), simulated with modelled times"
    }

    fn options(&self) -> TargetOptions {
        TargetOptions {
            machines: names(DEFAULT_MACHINE, Machine::builtin_names()),
            profiles: names(Profile::DEFAULT, Profile::builtin_names()),
            modes: modes::choices(),
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

    fn renamed_mode(&self, former: &str) -> Option<&'static str> {
        let row = modes::find(Some(former))?;
        (row.name != former).then_some(row.name)
    }

    fn workbench(&self) -> Option<&dyn Workbench> {
        Some(&bench::Bench)
    }

    fn evidence(&self) -> Option<&dyn Evidence> {
        Some(self)
    }
}

impl Evidence for Row {
    fn published_page(
        &self,
        model: &str,
        graph: &Graph,
        settings: &Settings,
        work: &Work,
    ) -> Option<Result<String, PredictError>> {
        // Nothing was published of a model in 8-bit integers.
        (!is_int8(settings)).then(|| page::page(model, graph, settings, work))
    }

    fn comparisons(&self) -> Vec<(&'static str, Settings)> {
        let published = |mode: &str, host: HostKind| Settings {
            mode: Some(mode.to_owned()),
            host: Some(host.name().to_owned()),
            ..Settings::default()
        };
        vec![
            (
                "published, our host",
                published(modes::MLIR_AIR, HostKind::Own),
            ),
            (
                "the published stack",
                published(modes::MLIR_AIR, HostKind::Published),
            ),
            (
                "the same, all rows through the head",
                published(modes::MLIR_AIR_FIRST, HostKind::Published),
            ),
        ]
    }
}

/// Built-in names, the one that is taken if none is said first.
fn names(default: &str, all: impl Iterator<Item = &'static str>) -> Vec<Choice> {
    let mut choices: Vec<Choice> = all.map(|name| Choice::new(name, "")).collect();
    choices.sort_by_key(|choice| choice.name != default);
    choices
}

fn is_int8(settings: &Settings) -> bool {
    settings.mode.as_deref() == Some(modes::INT8)
}

/// A planner set up so.
fn planner(settings: &Settings) -> Result<Xdna2, SettingError> {
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
    let mode = settings.mode.as_deref();
    let unknown =
        || SettingError::unknown(NAME, "mode", mode.unwrap_or_default(), &modes::choices());
    let mut features = (modes::find(mode).ok_or_else(unknown)?.features)();
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
pub(crate) fn machine(settings: &Settings) -> Result<(Machine, Profile), SettingError> {
    let mut machine = match &settings.machine {
        None => Machine::npu2(),
        Some(Facts::Named(name)) => Machine::builtin(name)
            .ok_or_else(|| SettingError::unknown(NAME, "machine", name, &Row.options().machines))?,
        Some(Facts::Text { name, text }) => Machine::from_toml(text, name)
            .map_err(|error| SettingError::Facts(error.to_string()))?,
    };
    let named = |name: &str| {
        Profile::builtin(name)
            .ok_or_else(|| SettingError::unknown(NAME, "profile", name, &Row.options().profiles))
    };
    let mut profile = match &settings.profile {
        None => named(Profile::DEFAULT)?,
        Some(Facts::Named(name)) => named(name)?,
        Some(Facts::Text { name, text }) => Profile::from_toml(text, name)
            .map_err(|error| SettingError::Facts(error.to_string()))?,
    };
    for change in &settings.set {
        let changed = match change.strip_prefix(PROFILE_PREFIX) {
            Some(change) => profile.set(change).map_err(|error| error.to_string()),
            None => machine.set(change).map_err(|error| error.to_string()),
        };
        changed.map_err(|error| SettingError::Change {
            change: change.clone(),
            problem: error.strip_prefix("--set: ").unwrap_or(&error).to_owned(),
        })?;
    }
    if !settings.set.is_empty() {
        // The stated errors were found without a change; the label must not claim them.
        profile.name.push_str(" changed by --set");
    }
    Ok((machine, profile))
}
