//! Loading: from a host's functions and the environment to a plugin, or to the reason why there is none.

use crate::cpu::{self, CpuDevice};
use crate::device::PluginDevice;
use crate::node::{self, NodeDevice};
use crate::npu::{self, NpuDevice};
use crate::report::DeviceReport;
use crate::settings::{DEVICES, PluginSettings, SettingError};
use crate::sys::host::{CpuFunctions, FunctionLookup, Functions};
use crate::sys::objects::Plugin;
use crate::sys::openmp;
use crate::sys::probe::{LoadError, probe};
use std::sync::Arc;

/// Reason why the plugin does not load.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
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
    lookup: &dyn FunctionLookup,
    settings: &PluginSettings,
    report: Option<&Arc<DeviceReport>>,
) -> Result<&'static Plugin, PluginError> {
    let host = Functions::find(lookup).map_err(LoadError::from)?;
    let found = probe(&host)?;
    let devices = devices(lookup, settings, report)?;
    let fail = settings.fail.as_deref();
    Ok(Plugin::new(host, found, devices, report, fail))
}

/// The requested devices.
fn devices(
    lookup: &dyn FunctionLookup,
    settings: &PluginSettings,
    report: Option<&Arc<DeviceReport>>,
) -> Result<Vec<Box<dyn PluginDevice>>, SettingError> {
    let plain = [cpu::NAME.to_owned()];
    let names = settings.devices.as_deref().unwrap_or(&plain);
    let mut devices: Vec<Box<dyn PluginDevice>> = Vec::new();
    for name in names {
        let mut known_names = devices.iter().map(|device| device.name());
        if known_names.any(|known| known.eq_ignore_ascii_case(name)) {
            continue;
        }
        let refused = |expected: String| SettingError {
            variable: DEVICES,
            value: name.clone(),
            expected,
        };
        let unusable = |cause: String| refused(format!("a device that can be used: {cause}"));
        let cpu = || CpuDevice::new(settings.clone(), openmp::team(lookup));
        if name.eq_ignore_ascii_case(cpu::NAME) {
            devices.push(Box::new(cpu()));
            continue;
        }
        if name.eq_ignore_ascii_case(node::NAME) {
            CpuFunctions::find(lookup).map_err(|missing| unusable(missing.to_string()))?;
            let node = NodeDevice::open(cpu()).map_err(unusable)?;
            devices.push(Box::new(node));
            continue;
        }
        let mut targets = millrace_targets::ALL.iter();
        let target = targets.find(|target| target.name().eq_ignore_ascii_case(name));
        let target = target.ok_or_else(|| refused(known()))?;
        let device = NpuDevice::open(*target, settings, report);
        devices.push(Box::new(
            device.map_err(|cause| unusable(cause.to_string()))?,
        ));
    }
    Ok(devices)
}

/// The known names, as text.
fn known() -> String {
    let targets = millrace_targets::ALL
        .iter()
        .map(|target| npu::name(*target));
    let names: Vec<String> = [cpu::NAME, node::NAME]
        .map(str::to_owned)
        .into_iter()
        .chain(targets)
        .collect();
    format!(
        "names out of {}, with commas between them",
        names.join(", ")
    )
}
