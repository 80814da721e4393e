//! Cost of plans: products by the timing model, the host's work by its rates.

use super::planner::{WeightMode, facts};
use crate::machine::Machine;
use crate::profile::Profile;
use crate::tiling::{Grid, price};
use millrace_graph::Op;
use millrace_npu::Provenance;
use millrace_plan::predict::{
    Bottleneck, CallNs, Crossing, HostWork, LaunchCost, ModelPart, PriceError, ProgramCost, Rate,
    SlotBytes,
};
use millrace_plan::{Binding, Call, HostStep, MachineFacts, PlannedLaunch, PlannedProgram, Pricer};

pub(super) struct Rk3588Prices<'a> {
    facts: MachineFacts,
    machine: &'a Machine,
    profile: &'a Profile,
    mode: WeightMode,
}

impl Rk3588Prices<'_> {
    pub(super) fn new<'a>(
        machine: &'a Machine,
        profile: &'a Profile,
        mode: WeightMode,
    ) -> Rk3588Prices<'a> {
        Rk3588Prices {
            facts: facts(machine, profile),
            machine,
            profile,
            mode,
        }
    }

    /// Unpacking a call's weights, where that happens before every call.
    fn fill_ns(&self, work: &HostWork<'_>, call: &Call) -> f64 {
        if self.mode == WeightMode::AtLoad {
            return 0.0;
        }
        let weights = call.bindings.iter().filter_map(|binding| match binding {
            Binding::Weight { weight, .. } => work.graph.weights.get(weight.0),
            _ => None,
        });
        let n_elements: f64 = weights.map(|w| w.n as f64 * w.k as f64).sum();
        n_elements / (self.profile.host_fill_elements_per_s * self.profile.host_threads) * 1e9
    }

    /// Bytes a second that all of the host's threads read.
    fn read_bytes_per_s(&self) -> f64 {
        let all = self.profile.host_read_bytes_per_s * self.profile.host_threads;
        all.min(self.profile.ddr_bytes_per_s)
    }

    /// Whether the profile states the time of a layer beside its products, in one sum.
    fn states_layers(&self) -> bool {
        self.profile.layer_ns > 0.0 || self.profile.layer_token_ns > 0.0
    }

    fn layer_ns(&self, work: &HostWork<'_>) -> f64 {
        self.profile.layer_ns + self.profile.layer_token_ns * work.chunk.n_tokens as f64
    }

    /// Scores, softmax and weighted sum: each key and value that a query sees is two multiply-adds an element
    /// of every query head that shares it.
    fn attention_ns(&self, work: &HostWork<'_>, step: HostStep, node: usize) -> f64 {
        let bytes = work.bytes(step) as f64;
        let (group, head_dim) = match work.graph.nodes.get(node).map(|node| &node.op) {
            Some(Op::Attention(a)) => (
                a.n_heads as f64 / a.n_kv_heads.max(1) as f64,
                a.head_dim as f64,
            ),
            _ => (1.0, 1.0),
        };
        // Two bytes an element, two operations each.
        let ops = bytes * group;
        let ops_per_s = self.profile.host_ops_per_s * self.profile.host_threads;
        let products_ns = (bytes / self.read_bytes_per_s()).max(ops / ops_per_s) * 1e9;
        // A score for every key and value of a head's elements.
        products_ns + self.softmax_ns(bytes * group / (4.0 * head_dim))
    }

    /// Softmax of so many scores.
    fn softmax_ns(&self, n_scores: f64) -> f64 {
        let per_s = self.profile.host_softmax_elements_per_s * self.profile.host_threads;
        n_scores / per_s * 1e9
    }
}

impl Pricer for Rk3588Prices<'_> {
    fn machine(&self) -> &MachineFacts {
        &self.facts
    }

    fn program(&mut self, planned: &PlannedProgram) -> Result<ProgramCost, PriceError> {
        let lost = || PriceError(format!("the form of `{}` is not there", planned.name()));
        let grid = planned.annex.get::<Grid>().ok_or_else(lost)?;
        let job_tasks = grid.tiling.job_tasks;
        let cost = price(grid, job_tasks, self.machine, self.profile);
        let shape = grid.shape;
        let flops = 2 * u64::from(shape.m) * u64::from(shape.n) * u64::from(shape.k);
        let n_jobs: u64 = (0..grid.workers.len())
            .map(|worker| grid.tiles(worker).len().div_ceil(job_tasks as usize) as u64)
            .sum();
        let submit_ns = self.profile.submit_ns * n_jobs as f64;
        let run_ns = submit_ns + cost.device_ns;
        let bytes = SlotBytes::of(planned.slots());
        let busy = if cost.device_ns > 0.0 {
            cost.mac_ns / cost.device_ns
        } else {
            0.0
        };
        let launch = |launch: &PlannedLaunch| LaunchCost {
            name: launch.name.clone(),
            kernel: launch.kernel.clone(),
            part: ModelPart::of_product(&launch.name),
            shape: format!("{}x{}x{}", shape.m, shape.n, shape.k),
            tiling: launch.tiling.to_string(),
            physical: 1,
            ns: cost.device_ns,
            load_ns: 0.0,
            flops,
            bottleneck: Bottleneck {
                resource: match busy > 0.5 {
                    true => "array".to_owned(),
                    false => "memory and tasks".to_owned(),
                },
                utilization: if busy > 0.5 { busy } else { 1.0 - busy },
            },
            ddr_read_bytes: cost.dma_bytes - bytes.output as f64,
            ddr_write_bytes: bytes.output as f64,
            cores: Vec::new(),
            utilization: busy,
        };
        Ok(ProgramCost {
            name: planned.name().to_owned(),
            calls: 0,
            run_ns,
            dispatch_ns: submit_ns,
            load_ns: 0.0,
            switch_ns: 0.0,
            rate: Rate::new(flops, run_ns, self.facts.peak_flops_per_s),
            launches: planned.launches.iter().map(launch).collect(),
            slots: bytes,
        })
    }

    fn step_ns(&self, work: &HostWork<'_>, step: HostStep) -> f64 {
        match step {
            HostStep::Attention { .. } if self.states_layers() => self.layer_ns(work),
            HostStep::Softmax { kv_head: 0, .. } if self.states_layers() => self.layer_ns(work),
            _ if self.states_layers() => 0.0,
            HostStep::Attention { node } => self.attention_ns(work, step, node),
            // Read and written in f32.
            HostStep::Softmax { .. } => self.softmax_ns(work.bytes(step) as f64 / 8.0),
            _ => work.bytes(step) as f64 / self.read_bytes_per_s() * 1e9,
        }
    }

    fn call(&self, work: &HostWork<'_>, call: &Call, crossing: Crossing) -> CallNs {
        let threads = self.profile.host_threads;
        let pack = self.profile.host_pack_bytes_per_s * threads;
        let unpack = self.profile.host_unpack_elements_per_s * threads;
        CallNs {
            call_ns: 0.0,
            write_ns: crossing.written_bytes as f64 / pack * 1e9 + self.fill_ns(work, call),
            // Results are of 32 bits.
            read_ns: crossing.read_bytes as f64 / 4.0 / unpack * 1e9,
        }
    }

    fn host(&self) -> &'static str {
        "the SoC's cores"
    }

    fn provenance(&self) -> Provenance {
        Provenance::Modelled {
            profile: self.profile.name.clone(),
            error: self.profile.error,
        }
    }
}
