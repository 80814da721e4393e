//! The row of Rockchip RK3588 in the registry of targets.

mod attention;
mod bench;
mod own;
mod planner;
mod price;
mod probe;
mod settings;

pub use attention::AttentionBy;
pub use planner::{Rk3588, WeightMode};

use crate::driver::OpenError;
use crate::profile::Profile;
use crate::program::TARGET as NAME;
use crate::rocket::Host;
use crate::rocket::sys::Linux;
use millrace_plan::{
    Choice, Hardware, Planner, Prober, SettingError, Settings, Target, TargetOptions, Workbench,
};
use std::sync::Arc;

/// The registry's row.
pub struct Rk3588Target;

impl Target for Rk3588Target {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "Rockchip RK3588 NPU: a board with the mainline driver, or a virtual board with modelled times"
    }

    fn options(&self) -> TargetOptions {
        TargetOptions {
            machines: vec![Choice::new("rk3588", "three cores, 6 TOPS at 1 GHz")],
            profiles: profiles(),
            modes: WeightMode::ALL
                .map(|m| Choice::new(m.name(), m.summary()))
                .to_vec(),
            features: vec![Choice::new(
                planner::ROTATION,
                "k rotated before it is quantised, which spreads outliers of activations",
            )],
            numerics: settings::numerics(),
            ..TargetOptions::default()
        }
    }

    fn planner(&self, settings: &Settings) -> Result<Arc<dyn Planner>, SettingError> {
        Ok(Arc::new(settings::planner(settings)?))
    }

    fn workbench(&self) -> Option<&dyn Workbench> {
        Some(&bench::Rk3588Bench)
    }

    fn prober(&self) -> Option<&dyn Prober> {
        Some(self)
    }

    fn hardware(&self) -> Vec<Hardware> {
        let hardware = |place: &str, state| Hardware {
            place: place.to_owned(),
            name: "RK3588 NPU".to_owned(),
            state,
        };
        let paths = Linux.paths();
        match (crate::probe::found(&Linux), paths.first()) {
            (Ok(path), _) => vec![hardware(&path, Ok(()))],
            (Err(error), Some(path)) => vec![hardware(path, Err(error.to_string()))],
            (Err(error @ OpenError::VendorDriver), None) => {
                vec![hardware("the vendor's driver", Err(error.to_string()))]
            }
            (Err(_), None) => Vec::new(),
        }
    }
}

/// Built-in profiles, the default first.
fn profiles() -> Vec<Choice> {
    Profile::builtin_names()
        .filter_map(Profile::builtin)
        .map(|profile| Choice::new(&profile.name, &profile.summary))
        .collect()
}
