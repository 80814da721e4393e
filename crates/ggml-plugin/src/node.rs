//! The device `MillraceNode`: a whole node of a cluster. The CPU's kernels compute the ops that they are faster at; the
//! program's CPU backend computes the rest. So a program that wants one device for every op (`ggml-rpc-server`) has
//! one.

use crate::cpu::CpuDevice;
use crate::device::{DeviceStream, OpRefusal, PluginDevice, WeightsIn};
use crate::sys::tensor::HostTensor;

/// Its name.
pub(crate) const NAME: &str = "MillraceNode";

/// This computer as a device that takes every op.
pub(crate) struct NodeDevice {
    cpu: CpuDevice,
}

impl NodeDevice {
    /// The device over the CPU's kernels.
    ///
    /// # Errors
    /// A system that does not report its memory size: programs place layers by it.
    pub(crate) fn open(cpu: CpuDevice) -> Result<NodeDevice, String> {
        memory().ok_or("this system does not say how much memory it has (/proc/meminfo)")?;
        Ok(NodeDevice { cpu })
    }
}

/// Free and total bytes of memory; `None` if the system does not report them.
fn memory() -> Option<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some((
        meminfo_bytes(&text, "MemAvailable")?,
        meminfo_bytes(&text, "MemTotal")?,
    ))
}

/// A row of `/proc/meminfo`, which counts in units of 1,024 bytes.
fn meminfo_bytes(text: &str, row: &str) -> Option<usize> {
    let mut rows = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = rows.find(|(name, _)| *name == row)?;
    let kib: usize = value.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

impl PluginDevice for NodeDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> String {
        format!(
            "{}; other ops on the program's CPU backend",
            self.cpu.description()
        )
    }

    fn memory(&self) -> (usize, usize) {
        memory().unwrap_or((0, 0))
    }

    fn maps_files(&self) -> bool {
        self.cpu.maps_files()
    }

    fn takes_all(&self) -> bool {
        true
    }

    fn supports(&self, op: &HostTensor<'_>, weights: WeightsIn) -> Result<(), OpRefusal> {
        self.cpu.supports(op, weights)
    }

    fn open(&self) -> Result<Box<dyn DeviceStream>, String> {
        self.cpu.open()
    }
}
