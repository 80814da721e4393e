//! The row of FuriosaAI's TCP in the registry of targets.

mod bench;
mod blocks;
mod cluster;
mod export;
mod inputs;
mod nodes;
mod planner;
mod price;
mod probe;
mod weights;

pub use planner::{Style, Tcp};

use crate::lower::Weights;
use crate::program::TARGET as NAME;
use crate::{Machine, Profile};
use millrace_plan::predict::PredictError;
use millrace_plan::settings::machine_and_profile;
use millrace_plan::{
    BenchError, Choice, Cluster, ClusterCost, ClusterRequest, Export, Exporter, Planner, Prober,
    SettingError, Settings, SourceFile, Target, TargetOptions, Workbench,
};
use std::sync::Arc;

/// The registry's row.
pub struct TcpTarget;

impl Target for TcpTarget {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "FuriosaAI TCP (RNGD), simulated with modelled times"
    }

    fn options(&self) -> TargetOptions {
        TargetOptions {
            machines: vec![Choice::new("rngd", "a chip of the RNGD card")],
            profiles: vec![Choice::new(
                "furiosa-llm-2025",
                "the vendor's serving stack of 2025",
            )],
            modes: modes(),
            features: FEATURES
                .map(|(name, what)| Choice::new(name, what))
                .to_vec(),
            numerics: numerics(),
            ..TargetOptions::default()
        }
    }

    fn planner(&self, settings: &Settings) -> Result<Arc<dyn Planner>, SettingError> {
        Ok(Arc::new(planner(settings)?))
    }

    fn workbench(&self) -> Option<&dyn Workbench> {
        Some(&bench::TcpBench)
    }

    fn prober(&self) -> Option<&dyn Prober> {
        Some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        Some(self)
    }
}

impl Exporter for TcpTarget {
    fn form(&self) -> &'static str {
        "a Rust crate of device functions for furiosa-opt-std 0.10.0"
    }

    fn export(&self, request: &Export<'_>) -> Result<Vec<SourceFile>, BenchError> {
        export::files(request)
    }
}

impl Cluster for TcpTarget {
    fn cost(&self, request: &ClusterRequest<'_>) -> Result<ClusterCost, PredictError> {
        cluster::cost(request)
    }
}

/// Improvements of mode `best`.
const FEATURES: [(&str, &str); 2] = [
    (
        "blocks",
        "ops that follow each other are one program, their values in data memory",
    ),
    (
        "read-ahead",
        "weights are loaded into one half of their region while the other is multiplied",
    ),
];

fn modes() -> Vec<Choice> {
    vec![
        Choice::new("plain", "a program an op"),
        Choice::new("best", "a program a block of ops, weights read ahead"),
    ]
}

/// How plans are made.
fn style(settings: &Settings) -> Result<Style, SettingError> {
    let mut style = match settings.mode.as_deref() {
        None | Some("plain") => Style::PLAIN,
        Some("best") => Style::BEST,
        Some(other) => return Err(SettingError::unknown(NAME, "mode", other, &modes())),
    };
    for feature in &settings.without {
        match feature.as_str() {
            "blocks" => style.blocks = false,
            "read-ahead" => style.read_ahead = false,
            other => {
                let known = FEATURES.map(|(name, what)| Choice::new(name, what));
                return Err(SettingError::unknown(NAME, "feature", other, &known));
            }
        }
    }
    Ok(style)
}

fn numerics() -> Vec<Choice> {
    vec![
        Choice::new("bf16", "weights and activations in bf16, sums in f32"),
        Choice::new(
            "fp8",
            "weights of the layers in E4M3 with a scale a row, activations cast to E4M3",
        ),
        Choice::new(
            "int4",
            "weights of the layers in four bits with a scale a row, widened to E4M3",
        ),
        Choice::new(
            "int8",
            "weights of the layers in eight bits with a scale a row, activations with a scale a token",
        ),
    ]
}

/// A planner with those settings.
fn planner(settings: &Settings) -> Result<Tcp, SettingError> {
    let (machine, profile) = machine(settings)?;
    let style = style(settings)?;
    if let Some(host) = settings.host.as_deref().filter(|host| *host != "own") {
        let own = Choice::new("own", "");
        return Err(SettingError::unknown(NAME, "host", host, &[own]));
    }
    Ok(Tcp::new(machine, profile, weights(settings)?, style))
}

/// How layers' weights are stored and multiplied.
fn weights(settings: &Settings) -> Result<Weights, SettingError> {
    match settings.numerics.as_deref() {
        None | Some("bf16") => Ok(Weights::Bf16),
        Some("fp8") => Ok(Weights::Fp8),
        Some("int4") => Ok(Weights::Int4),
        Some("int8") => Ok(Weights::Int8),
        Some(other) => Err(SettingError::unknown(NAME, "numerics", other, &numerics())),
    }
}

/// The machine with its profile, changes applied.
fn machine(settings: &Settings) -> Result<(Machine, Profile), SettingError> {
    machine_and_profile(NAME, settings, &settings.set)
}
