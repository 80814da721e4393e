//! The device `Millrace`: the CPU's kernels on the host's own memory.
//!
//! Kernels read blocks as files have them, so weights stay where the host put them. Nothing is prepared or remembered
//! between calls, and nothing goes stale when the host reuses an address for other weights. The host is asked to put
//! them into memory of huge pages, in place of the mapped file: single tokens are read faster from there.

use crate::device::{DeviceStream, OpError, OpRefusal, PluginDevice, WeightsIn};
use crate::gate::Gate;
use crate::product::{Experts, HostProduct, Plain};
use crate::rows::{least_rows, takes_gates};
use crate::settings::PluginSettings;
use crate::sys::graph::HostNode;
use crate::sys::tensor::HostTensor;
use millrace_kernels::matmul::{self, Activations};
use millrace_kernels::pool::{Pool, Team};
use millrace_kernels::{Cpu, CpuOptions, Level};
use std::sync::{Arc, Mutex, PoisonError};

/// Its name.
pub(crate) const NAME: &str = "Millrace";

/// The CPU as a device.
pub(crate) struct CpuDevice {
    level: Level,
    settings: PluginSettings,
    threads: Threads,
}

/// The threads that products are computed on.
#[derive(Clone)]
struct Threads {
    level: Level,
    /// The host's threads, if it has some that others can compute on.
    team: Option<Arc<dyn Team>>,
    /// Those in use, by their number: the host alternates between two.
    cpus: Arc<Mutex<Vec<Arc<Cpu>>>>,
}

impl Threads {
    /// A CPU with as many threads as the host wants.
    fn get(&self, n_threads: usize) -> Result<Arc<Cpu>, OpError> {
        let mut cpus = self.cpus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cpu) = cpus.iter().find(|cpu| cpu.pool().n_threads() == n_threads) {
            return Ok(Arc::clone(cpu));
        }
        let cpu = Arc::new(match &self.team {
            Some(team) => Cpu::with_pool(Pool::of_team(Arc::clone(team), n_threads)?, self.level)?,
            None => Cpu::new(CpuOptions {
                n_threads: Some(n_threads),
                level: Some(self.level),
            })?,
        });
        cpus.push(Arc::clone(&cpu));
        Ok(cpu)
    }
}

impl CpuDevice {
    /// The device, on the host's threads if there is a `team` of them.
    pub(crate) fn new(settings: PluginSettings, team: Option<Arc<dyn Team>>) -> CpuDevice {
        let level = settings.level.unwrap_or_else(Level::preferred);
        let cpus = Arc::default();
        CpuDevice {
            level,
            settings,
            threads: Threads { level, team, cpus },
        }
    }
}

impl PluginDevice for CpuDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> String {
        let threads = match self.threads.team {
            Some(_) => "OpenMP's threads",
            None => "threads of its own",
        };
        format!(
            "Millrace's kernels for this CPU ({}), on {threads}",
            self.level
        )
    }

    fn memory(&self) -> (usize, usize) {
        (0, 0)
    }

    fn maps_files(&self) -> bool {
        self.settings.map
    }

    fn supports(&self, op: &HostTensor<'_>, _: WeightsIn) -> Result<(), OpRefusal> {
        if let Some(gate) = Gate::of(op) {
            let takes = match self.settings.least_rows {
                Some(rows) => rows <= 1,
                None => takes_gates(self.level),
            };
            return match takes {
                true => gate.map(|_| ()),
                false => Err(OpRefusal("between products that are not all taken")),
            };
        }
        let product = HostProduct::of(op)?;
        let least = match self.settings.least_rows {
            Some(rows) => rows,
            None => least_rows(product.weight().dtype, self.level)
                .ok_or(OpRefusal("a format that llama.cpp multiplies as fast"))?,
        };
        if product.rows() < least {
            return Err(OpRefusal("too few tokens to be faster than llama.cpp"));
        }
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn DeviceStream>, String> {
        Ok(Box::new(CpuStream {
            threads: self.threads.clone(),
            n_threads: millrace_kernels::pool::default_threads(),
            activations: Activations::default(),
            gathered: Vec::new(),
            scattered: Vec::new(),
        }))
    }
}

struct CpuStream {
    threads: Threads,
    n_threads: usize,
    activations: Activations,
    /// Rows of one expert, and their results.
    gathered: Vec<f32>,
    scattered: Vec<f32>,
}

/// Products that share their input and are computed at once.
const MOST_TOGETHER: usize = 8;

impl CpuStream {
    /// Computes products that share their input.
    fn together(
        &mut self,
        cpu: &Cpu,
        products: &[Plain<'_>],
        nodes: &mut [HostNode<'_>],
    ) -> Result<(), OpError> {
        let mut pairs = Vec::with_capacity(products.len());
        for product in products {
            pairs.push(product.pairs()?);
        }
        let activations = &mut self.activations;
        let m = products.first().map_or(0, |product| product.m);
        HostNode::write(nodes, |outs| {
            if products.len() == 1 {
                let n_out = m * products[0].weight.n;
                for out in outs {
                    for ((weight, x), out) in pairs[0].iter().zip(out.chunks_mut(n_out.max(1))) {
                        let bias = None;
                        let weight = *weight;
                        let product = matmul::Multiplication { weight, bias, out };
                        matmul::matmul(cpu, x, m, activations, &mut [product]);
                    }
                }
                return;
            }
            let mut all: Vec<matmul::Multiplication<'_>> = pairs
                .iter()
                .zip(outs)
                .filter_map(|(pair, out)| {
                    let (weight, _) = *pair.first()?;
                    let bias = None;
                    Some(matmul::Multiplication { weight, bias, out })
                })
                .collect();
            if let Some((_, x)) = pairs[0].first() {
                matmul::matmul(cpu, x, m, activations, &mut all);
            }
        })
        .map_err(OpError::of_result)
    }

    /// Computes a product with experts: for each expert, the rows that need it are gathered, multiplied and put back.
    fn experts(
        &mut self,
        cpu: &Cpu,
        product: &Experts<'_>,
        node: &mut HostNode<'_>,
    ) -> Result<(), OpError> {
        let n = product.weight.n;
        let x = product.x()?;
        let by_expert = product.rows_by_expert()?;
        let mut weights = Vec::with_capacity(by_expert.len());
        for expert in 0..by_expert.len() {
            weights.push(product.expert(expert)?);
        }
        let CpuStream {
            activations,
            gathered,
            scattered,
            ..
        } = self;
        HostNode::write(std::slice::from_mut(node), |outs| {
            for out in outs {
                for (rows, weight) in by_expert.iter().zip(&weights) {
                    product.gather(x, rows, gathered);
                    scattered.resize(rows.len() * n, 0.0);
                    let product = matmul::Multiplication {
                        weight: *weight,
                        bias: None,
                        out: scattered,
                    };
                    matmul::matmul(cpu, gathered, rows.len(), activations, &mut [product]);
                    for (row, result) in rows.iter().zip(scattered.chunks_exact(n.max(1))) {
                        out[row * n..(row + 1) * n].copy_from_slice(result);
                    }
                }
            }
        })
        .map_err(OpError::of_result)
    }
}

/// How many of the nodes from the first on are plain products of one input, none of whose results is another's memory.
fn n_together(first: &Plain<'_>, nodes: &[HostNode<'_>]) -> usize {
    let joins = |i: usize| {
        let tensor = nodes[i].tensor();
        let Ok(HostProduct::Plain(product)) = HostProduct::of(tensor) else {
            return false;
        };
        let is_apart = |other: &HostNode<'_>| {
            let other = other.tensor();
            let shares = [
                tensor.overlaps(other),
                tensor.has_source_in(other),
                other.has_source_in(tensor),
            ];
            shares.iter().all(|shares| *shares == Ok(false))
        };
        product.is_single() && product.has_input_of(first) && nodes[..i].iter().all(is_apart)
    };
    match first.is_single() {
        true => (1..nodes.len().min(MOST_TOGETHER))
            .find(|i| !joins(*i))
            .unwrap_or(nodes.len().min(MOST_TOGETHER)),
        false => 1,
    }
}

impl DeviceStream for CpuStream {
    fn set_threads(&mut self, n: usize) {
        self.n_threads = n.clamp(1, millrace_kernels::pool::MAX_THREADS);
    }

    fn compute(&mut self, nodes: &mut [HostNode<'_>]) -> Result<(), (usize, OpError)> {
        let mut at = 0;
        while at < nodes.len() {
            let cpu = self
                .threads
                .get(self.n_threads)
                .map_err(|error| (at, error))?;
            let _hot = cpu.pool().enter();
            let tensor = *nodes[at].tensor();
            if let Some(gate) = Gate::of(&tensor) {
                gate.map_err(|refusal| OpError::Refused(refusal.0))
                    .and_then(|gate| gate.compute(&cpu, &mut nodes[at]))
                    .map_err(|error| (at, error))?;
                at += 1;
                continue;
            }
            let product = HostProduct::of(&tensor);
            let product = product.map_err(|refusal| (at, OpError::Refused(refusal.0)))?;
            let n = match &product {
                HostProduct::Plain(first) => n_together(first, &nodes[at..]),
                HostProduct::Experts(_) => 1,
            };
            let computed = match product {
                HostProduct::Experts(product) => self.experts(&cpu, &product, &mut nodes[at]),
                HostProduct::Plain(first) => {
                    let mut products = vec![first];
                    for node in &nodes[at + 1..at + n] {
                        if let Ok(HostProduct::Plain(product)) = HostProduct::of(node.tensor()) {
                            products.push(product);
                        }
                    }
                    self.together(&cpu, &products, &mut nodes[at..at + n])
                }
            };
            computed.map_err(|error| (at, error))?;
            at += n;
        }
        Ok(())
    }
}
