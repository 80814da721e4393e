//! A toy NPU: an imaginary device that multiplies matrices and does nothing else.
//!
//! It is the least that a [`Target`] can be, for who writes a real one, and the proof that a kind of NPU is
//! one crate and one row: its tests run every command of the command line on it, and nothing outside this
//! crate knows of it.
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | its programs: one product each, as bytes; limits |
//! | [`device`] | the virtual device: loads, binds, runs, fails on purpose |
//! | [`planner`] | plans and prices |
#![forbid(unsafe_code)]

pub mod device;
pub mod planner;
pub mod program;

use millrace_plan::{Choice, Planner, SettingError, Settings, Target, TargetOptions};
use std::sync::Arc;

/// Its name.
pub const NAME: &str = "toy";
/// A toy that leaves wide products to another.
const NARROW: &str = "narrow";

/// The registry's row.
pub struct Toy;

impl Target for Toy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "a toy that multiplies matrices, imaginary with imagined times"
    }

    fn options(&self) -> TargetOptions {
        TargetOptions {
            machines: vec![Choice::new("toy1", "one core at 1 GHz")],
            modes: vec![Choice::new("plain", "every product on the device")],
            simulators: vec![
                Choice::new("whole", "products of any size"),
                Choice::new(
                    NARROW,
                    "products of up to 256 columns; wider ones run on the whole toy, which is told",
                ),
            ],
            ..TargetOptions::default()
        }
    }

    fn planner(&self, settings: &Settings) -> Result<Arc<dyn Planner>, SettingError> {
        let options = self.options();
        if let Some(mode) = settings.mode.as_deref().filter(|mode| *mode != "plain") {
            return Err(SettingError::unknown(NAME, "mode", mode, &options.modes));
        }
        if let Some(feature) = settings.without.first() {
            return Err(SettingError::unknown(NAME, "feature", feature, &[]));
        }
        if let Some(numerics) = &settings.numerics {
            return Err(SettingError::unknown(NAME, "numerics", numerics, &[]));
        }
        if let Some(change) = settings.set.first() {
            return Err(SettingError::Change {
                change: change.clone(),
                problem: "a toy has nothing to change".to_owned(),
            });
        }
        let is_narrow = match settings.simulator.as_deref() {
            None | Some("whole") => false,
            Some(NARROW) => true,
            Some(other) => {
                return Err(SettingError::unknown(
                    NAME,
                    "simulator",
                    other,
                    &options.simulators,
                ));
            }
        };
        Ok(Arc::new(planner::Products { is_narrow }))
    }
}
