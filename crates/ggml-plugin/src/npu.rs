//! NPUs as devices: products of quantised numbers, on any target of the registry that plans them.
//!
//! A weight is written into a buffer object of the NPU when the host loads it, in the target's own arrangement (8-bit with a
//! scale a row). A product is the plan of a graph of one linear layer; its rows go in pieces of the lengths that the target plans for.

mod plan;
mod weights;

use crate::device::{DeviceMemory, DeviceStream, OpError, OpRefusal, PluginDevice, WeightsIn};
use crate::product::{Experts, HostProduct, Plain};
use crate::report::DeviceReport;
use crate::settings::PluginSettings;
use crate::sys::graph::HostNode;
use crate::sys::tensor::HostTensor;
use millrace_kernels::matmul::WeightMatrix;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::{self as npu, DeviceInfo};
use millrace_plan::{Planner, Target};
use plan::{PlannedProduct, ProductProgram, ProductShape};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weights::WeightStore;

/// An NPU, found or virtual.
pub(crate) struct NpuDevice {
    unit: Arc<NpuUnit>,
}

/// A device, its planner, its programs and its weights.
struct NpuUnit {
    name: &'static str,
    title: &'static str,
    planner: Arc<dyn Planner>,
    device: Arc<dyn npu::Device>,
    /// Packs and unpacks rows. A virtual device computes on it too.
    cpu: Cpu,
    /// Programs by shape; `None` where the planner refuses it.
    programs: Mutex<HashMap<ProductShape, Option<Arc<PlannedProduct>>>>,
    least_rows: Mutex<HashMap<ProductShape, usize>>,
    weights: WeightStore,
    settings: PluginSettings,
    report: Option<Arc<DeviceReport>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NpuDevice {
    /// Opens a device of a target.
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub(crate) fn open(
        target: &'static dyn Target,
        settings: &PluginSettings,
        report: Option<&Arc<DeviceReport>>,
    ) -> Result<NpuDevice, String> {
        let planner = planner(target)?;
        let cpu = || Cpu::new(CpuOptions::default()).map_err(|error| error.to_string());
        let device = planner.open(cpu()?).map_err(|error| error.to_string())?;
        let unit = NpuUnit {
            name: name(target).leak(),
            title: target.title(),
            planner,
            device,
            cpu: cpu()?,
            programs: Mutex::default(),
            least_rows: Mutex::default(),
            weights: WeightStore::default(),
            settings: settings.clone(),
            report: report.cloned(),
        };
        if unit.planned(ProductShape::TRIED).is_none() {
            return Err("it does not load a program of a product".to_owned());
        }
        Ok(NpuDevice {
            unit: Arc::new(unit),
        })
    }
}

#[cfg(test)]
impl NpuDevice {
    /// The device of this unit.
    pub(crate) fn device(&self) -> Arc<dyn npu::Device> {
        Arc::clone(&self.unit.device)
    }
}

/// The target's planner in the first of its modes, its default before all, that has plans for products by themselves.
fn planner(target: &dyn Target) -> Result<Arc<dyn Planner>, String> {
    let modes = target.options().modes.into_iter().map(|mode| mode.name);
    for mode in std::iter::once(None).chain(modes.map(Some)) {
        let settings = millrace_plan::Settings {
            mode,
            ..millrace_plan::Settings::default()
        };
        let planner = target.planner(&settings);
        let planner = planner.map_err(|error| error.to_string())?;
        if ProductProgram::new(&*planner, ProductShape::TRIED).is_some() {
            return Ok(planner);
        }
    }
    Err("it has no plans for products by themselves".to_owned())
}

/// A target's name as ggml's devices are named.
pub(crate) fn name(target: &dyn Target) -> String {
    target.name().to_uppercase()
}

impl NpuUnit {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// The program of a shape, lowered and loaded once.
    fn planned(&self, shape: ProductShape) -> Option<Arc<PlannedProduct>> {
        if let Some(known) = lock(&self.programs).get(&shape) {
            return known.clone();
        }
        let made = PlannedProduct::new(&*self.planner, &*self.device, shape).map(Arc::new);
        lock(&self.programs).insert(shape, made.clone());
        made
    }

    /// The smallest number of rows for which the device is predicted to be faster than the host.
    fn least_rows(&self, shape: ProductShape) -> Result<usize, OpRefusal> {
        if let Some(rows) = self.settings.least_rows {
            return Ok(rows);
        }
        if let Some(rows) = lock(&self.least_rows).get(&shape) {
            return Ok(*rows);
        }
        let lengths = self.planner.lengths();
        let all = std::iter::once(&1).chain(lengths.all());
        let faster = all.into_iter().find_map(|&m| {
            let planned = self.planned(ProductShape { m, ..shape })?;
            planned.least_rows(&*self.planner)
        });
        let rows = faster.ok_or(OpRefusal(
            "the device is predicted to be slower, or has no plan for the shape",
        ))?;
        lock(&self.least_rows).insert(shape, rows);
        Ok(rows)
    }

    /// Multiplies rows `[m, k]` with a weight into `[m, n]`.
    fn multiply(
        &self,
        weight: &WeightMatrix<'_>,
        x: &[f32],
        out: &mut [f32],
    ) -> Result<(), OpError> {
        let placed = self.weights.of(weight);
        let (n, k) = (weight.n(), weight.k());
        let lengths = self.planner.lengths();
        let most = *lengths.all().last().unwrap_or(&1) as usize;
        let pieces = x.chunks(most * k).zip(out.chunks_mut(most * n));
        for (x, out) in pieces {
            let m = match (x.len() / k) as u64 {
                1 => 1,
                m => lengths.padded(m),
            };
            let shape = ProductShape::of(weight, m);
            let planned = self.planned(shape);
            let planned =
                planned.ok_or(OpError::Refused("the device has no plan for the shape"))?;
            let ran = placed.run(self, &planned, weight, x, out)?;
            if let Some(report) = &self.report {
                report.ran(self.name, ran.duration_ns, &ran.provenance.to_string());
            }
        }
        Ok(())
    }

    fn plain(&self, product: &Plain<'_>, node: &mut HostNode<'_>) -> Result<(), OpError> {
        let pairs = product.pairs()?;
        let n_out = (product.m * product.weight.n).max(1);
        let written = HostNode::write(std::slice::from_mut(node), |outs| {
            for out in outs {
                for ((weight, x), out) in pairs.iter().zip(out.chunks_mut(n_out)) {
                    self.multiply(weight, x, out)?;
                }
            }
            Ok(())
        });
        written.map_err(OpError::of_result)?
    }

    /// Groups the rows of each expert, and computes one product per expert.
    fn experts(&self, product: &Experts<'_>, node: &mut HostNode<'_>) -> Result<(), OpError> {
        let (n, x) = (product.weight.n, product.x()?);
        let by_expert = product.rows_by_expert()?;
        let mut weights = Vec::with_capacity(by_expert.len());
        for expert in 0..by_expert.len() {
            weights.push(product.expert(expert)?);
        }
        let mut gathered = Vec::new();
        let written = HostNode::write(std::slice::from_mut(node), |outs| {
            for out in outs {
                for (rows, weight) in by_expert.iter().zip(&weights) {
                    product.gather(x, rows, &mut gathered);
                    let mut results = vec![0.0; rows.len() * n];
                    self.multiply(weight, &gathered, &mut results)?;
                    for (row, result) in rows.iter().zip(results.chunks_exact(n.max(1))) {
                        out[row * n..(row + 1) * n].copy_from_slice(result);
                    }
                }
            }
            Ok(())
        });
        written.map_err(OpError::of_result)?
    }
}

impl PluginDevice for NpuDevice {
    fn name(&self) -> &'static str {
        self.unit.name
    }

    fn description(&self) -> String {
        let info = self.unit.info();
        format!(
            "{}; {}; times {}",
            info.name, self.unit.title, info.provenance
        )
    }

    fn memory(&self) -> (usize, usize) {
        let total = self.unit.info().memory_bytes;
        let held = self.unit.device.held().buffer_bytes;
        (total.saturating_sub(held) as usize, total as usize)
    }

    fn own_memory(&self) -> Option<&dyn DeviceMemory> {
        Some(&self.unit.weights)
    }

    fn supports(&self, op: &HostTensor<'_>, weights: WeightsIn) -> Result<(), OpRefusal> {
        let product = HostProduct::of(op)?;
        let weight = product.weight();
        if weights == WeightsIn::Others {
            return Err(OpRefusal("weights that are not in the device's memory"));
        }
        let shape = ProductShape {
            dtype: weight.dtype,
            m: self.unit.planner.lengths().padded(1),
            n: weight.n,
            k: weight.k,
        };
        if self.unit.planned(shape).is_none() {
            return Err(OpRefusal("the device has no plan for the shape"));
        }
        if product.rows() < self.unit.least_rows(shape)? {
            return Err(OpRefusal("too few tokens, as predicted"));
        }
        Ok(())
    }

    fn place(&self, weight: &HostTensor<'_>) -> Result<(), OpError> {
        for matrix in HostProduct::matrices(weight)? {
            let m = self.unit.planner.lengths().padded(1);
            let Some(planned) = self.unit.planned(ProductShape::of(&matrix, m)) else {
                continue;
            };
            self.unit.weights.place(&self.unit, &planned, &matrix)?;
        }
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn DeviceStream>, String> {
        Ok(Box::new(NpuStream(Arc::clone(&self.unit))))
    }
}

struct NpuStream(Arc<NpuUnit>);

impl DeviceStream for NpuStream {
    /// The device has its own cores. Rows are packed by as many threads as the host has cores.
    fn set_threads(&mut self, _: usize) {}

    fn compute(&mut self, nodes: &mut [HostNode<'_>]) -> Result<(), (usize, OpError)> {
        for (at, node) in nodes.iter_mut().enumerate() {
            let product = HostProduct::of(node.tensor());
            let product = product.map_err(|refusal| (at, OpError::Refused(refusal.0)))?;
            let computed = match product {
                HostProduct::Plain(product) => self.0.plain(&product, node),
                HostProduct::Experts(product) => self.0.experts(&product, node),
            };
            computed.map_err(|error| (at, error))?;
        }
        Ok(())
    }
}
