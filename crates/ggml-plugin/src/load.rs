//! Loading: from a host's functions and the environment to a plugin, or to words that say why there is none.

use crate::cpu::{self, CpuDevice};
use crate::device::Device;
use crate::report::Report;
use crate::settings::{DEVICES, SettingError, Settings};
use crate::sys::host::{Functions, Lookup};
use crate::sys::objects::Plugin;
use crate::sys::probe::{LoadError, probe};
use std::sync::Arc;

/// Why there is no plugin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Host(#[from] LoadError),
    #[error(transparent)]
    Setting(#[from] SettingError),
}

/// Makes the plugin for a host.
///
/// # Errors
/// A host or a setting that does not go with it. Nothing of it exists then.
pub(crate) fn load(
    lookup: &dyn Lookup,
    settings: &Settings,
    report: Option<&Arc<Report>>,
) -> Result<&'static Plugin, Refused> {
    let host = Functions::find(lookup).map_err(LoadError::from)?;
    let found = probe(&host)?;
    let devices = devices(settings)?;
    let fail = settings.fail.as_deref();
    Ok(Plugin::new(host, found, devices, report, fail))
}

/// The devices that are asked for.
fn devices(settings: &Settings) -> Result<Vec<Box<dyn Device>>, SettingError> {
    let plain = [cpu::NAME.to_owned()];
    let names = settings.devices.as_deref().unwrap_or(&plain);
    let mut devices: Vec<Box<dyn Device>> = Vec::new();
    for name in names {
        let is_known = name.eq_ignore_ascii_case(cpu::NAME);
        if !is_known {
            return Err(SettingError {
                variable: DEVICES,
                value: name.clone(),
                expected: format!("names out of {}, with commas between them", cpu::NAME),
            });
        }
        if devices
            .iter()
            .all(|device| !device.name().eq_ignore_ascii_case(name))
        {
            devices.push(Box::new(CpuDevice::new(settings.clone())));
        }
    }
    Ok(devices)
}
