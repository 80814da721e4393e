//! Cost of programs and of the host: events of the timing model, dispatch, and bytes over the link.

use super::Tcp;
use crate::lower::Weights;
use crate::lower::chain::link_of;
use crate::lower::ops::{Op, OpKernel, OpKind, Role};
use crate::timing::{self, Queue, TimeShare, TimedProgram, Timing};
use crate::{Element, Program};
use millrace_npu::{Provenance, Slot};
use millrace_plan::predict::{
    Bottleneck, CallNs, Crossing, HostWork, LaunchCost, ModelPart, PriceError, ProgramCost, Rate,
    SlotBytes,
};
use millrace_plan::{
    Call, HostStep, Lowering, MachineFacts, PlannedLaunch, PlannedProgram, Pricer,
};
use std::collections::HashMap;

/// Prices of a machine under a profile.
pub(super) struct TcpPrices<'a> {
    tcp: &'a Tcp,
    machine: MachineFacts,
    known: HashMap<String, (Timing, Vec<TimeShare>)>,
}

impl<'a> TcpPrices<'a> {
    /// The prices of a planner.
    pub(super) fn new(tcp: &'a Tcp) -> TcpPrices<'a> {
        TcpPrices {
            tcp,
            machine: tcp.machine(),
            known: HashMap::new(),
        }
    }

    /// A program's time, and the share of each of its ops.
    fn timing(&mut self, planned: &PlannedProgram) -> Result<(Timing, Vec<TimeShare>), PriceError> {
        let hash = planned.container.content_hash().to_string();
        if let Some(known) = self.known.get(&hash) {
            return Ok(known.clone());
        }
        let (machine, profile) = (&self.tcp.machine, &self.tcp.profile);
        let program = planned.annex.get::<Program>();
        let program =
            program.ok_or_else(|| PriceError("a program of another target".to_owned()))?;
        let timed = TimedProgram::new(program, machine, profile);
        let timed = timed.map_err(|broken| PriceError(broken.message))?;
        let parts = (planned.launches.len(), &link_of as &dyn Fn(&str) -> usize);
        let timing = timing::shares(&timed, machine, profile, parts);
        self.known.insert(hash, timing.clone());
        Ok(timing)
    }

    /// Nanoseconds of bytes over the link between host and chip.
    fn link_ns(&self, bytes: u64) -> f64 {
        bytes as f64 / self.tcp.machine.host_link_bytes as f64 * self.tcp.machine.cycle_ns()
    }
}

/// Operations of a launch.
fn flops(launch: &PlannedLaunch) -> u64 {
    let Some(kernel) = OpKernel::named(&launch.kernel) else {
        return 0;
    };
    let sizes = kernel.axes.iter().filter_map(|axis| launch.shape.get(axis));
    let op = Op {
        kind: kernel.kind,
        sizes: sizes.collect(),
        norm_eps: 0.0,
        attention_scale: 0.0,
        weights: Weights::Bf16,
    };
    op.flops()
}

fn part(launch: &PlannedLaunch) -> ModelPart {
    match OpKernel::named(&launch.kernel).map(|kernel| kernel.kind) {
        Some(OpKind::Attend) => ModelPart::Attention,
        Some(OpKind::Product(Role::Head)) => ModelPart::Head,
        Some(OpKind::Product(_)) => ModelPart::of_product(&launch.name),
        _ => ModelPart::Elementwise,
    }
}

/// The context or engines that are busy longest.
fn bottleneck(timing: &Timing) -> Bottleneck {
    let busiest = timing.busy_ns.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let name = |queue: &Queue| match queue {
        Queue::Tdma(0) => "tensor DMA of weights".to_owned(),
        Queue::Tdma(_) => "tensor DMA of activations".to_owned(),
        other => format!("the {other} context"),
    };
    busiest.map_or_else(Bottleneck::default, |(queue, busy)| Bottleneck {
        resource: name(queue),
        utilization: busy / timing.total_ns.max(f64::MIN_POSITIVE),
    })
}

impl Pricer for TcpPrices<'_> {
    fn machine(&self) -> &MachineFacts {
        &self.machine
    }

    fn program(&mut self, planned: &PlannedProgram) -> Result<ProgramCost, PriceError> {
        let (timing, shares) = self.timing(planned)?;
        let dispatch_ns = self.tcp.profile.dispatch_ns;
        let slots = SlotBytes::of(planned.slots());
        let macs = self.tcp.machine.macs_per_cycle(Element::Bf16) as f64;
        let cycle_ns = self.tcp.machine.cycle_ns();
        let launch = |(launch, share): (&PlannedLaunch, &TimeShare)| {
            let written = launch
                .results()
                .iter()
                .filter_map(|slot| planned.slots().get(*slot));
            let written: u64 = written.filter_map(Slot::size_bytes).sum();
            LaunchCost {
                name: launch.name.clone(),
                kernel: launch.kernel.clone(),
                part: part(launch),
                shape: launch.shape.to_string(),
                tiling: launch.tiling.to_string(),
                physical: 1,
                ns: share.ns,
                load_ns: 0.0,
                flops: flops(launch),
                bottleneck: bottleneck(&timing),
                ddr_read_bytes: (share.hbm_bytes - written as f64).max(0.0),
                ddr_write_bytes: written as f64,
                cores: Vec::new(),
                utilization: share.n_macs / (macs * share.ns / cycle_ns).max(1.0),
            }
        };
        let launches = planned.launches.iter().zip(&shares);
        let launches: Vec<LaunchCost> = launches.map(launch).collect();
        let flops = launches.iter().map(|launch| launch.flops).sum();
        let run_ns = timing.total_ns + dispatch_ns;
        Ok(ProgramCost {
            name: planned.name().to_owned(),
            calls: 0,
            run_ns,
            dispatch_ns,
            load_ns: 0.0,
            switch_ns: 0.0,
            rate: Rate::new(flops, run_ns, self.machine.peak_flops_per_s),
            launches,
            slots,
        })
    }

    /// Bytes that the host reads and writes, at the link's rate: nobody has published the rate of its memory.
    fn step_ns(&self, work: &HostWork<'_>, step: HostStep) -> f64 {
        self.link_ns(work.bytes(step))
    }

    fn call(&self, _work: &HostWork<'_>, _call: &Call, crossing: Crossing) -> CallNs {
        CallNs {
            call_ns: 0.0,
            write_ns: self.link_ns(crossing.written_bytes),
            read_ns: self.link_ns(crossing.read_bytes),
        }
    }

    fn host(&self) -> &'static str {
        "own"
    }

    fn provenance(&self) -> Provenance {
        self.tcp.profile.provenance()
    }
}
