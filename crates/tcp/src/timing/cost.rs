//! Cost of one command.

use crate::axes::DigitLayout;
use crate::flow::{Flow, FlowViolation, walk};
use crate::program::{Command, Context, Dma, Engine, Place, Program, SliceKernel, Stage, Topology};
use crate::verify::dma_region;
use crate::{Machine, Profile};
use std::fmt;

/// Queue in which a command waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// The main context.
    Main,
    /// The sub context.
    Sub,
    /// Tensor DMA, by the first engine of a group.
    Tdma(u64),
    /// The link to chips and host.
    Pdma,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Queue::Main => write!(f, "main"),
            Queue::Sub => write!(f, "sub"),
            Queue::Tdma(first) => write!(f, "tdma {first}"),
            Queue::Pdma => write!(f, "pdma"),
        }
    }
}

/// Work of a command after its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CommandWork {
    /// A fixed time.
    Fixed {
        /// Nanoseconds.
        ns: f64,
    },
    /// Bytes at a rate that HBM shares out.
    Flow {
        /// Bytes.
        bytes: f64,
        /// Bytes a nanosecond that its engines carry.
        limit: f64,
        /// Whether HBM is one of the ends.
        hbm: bool,
    },
}

/// Cost of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The queue in which it waits.
    pub queue: Queue,
    /// Engines of tensor DMA that it holds, as bits.
    pub engines: u64,
    /// Time before the first result.
    pub start_ns: f64,
    /// Work after that.
    pub work: CommandWork,
    /// Multiply-accumulates, those on padding included.
    pub n_macs: f64,
    /// The limiting resource.
    pub bound: &'static str,
}

impl Cost {
    /// The cost of a command.
    ///
    /// # Errors
    /// Where it makes no sense.
    pub fn of(
        program: &Program,
        command: &Command,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<Cost, FlowViolation> {
        match command {
            Command::Dma(dma) => move_cost(program, dma, machine, profile),
            Command::Kernel(kernel) => {
                let flow = walk(program, kernel)?;
                Ok(kernel_cost(program, kernel, &flow, machine, profile))
            }
        }
    }

    /// Nanoseconds where nothing else runs.
    pub fn alone_ns(&self, machine: &Machine, profile: &Profile) -> f64 {
        let rest = match self.work {
            CommandWork::Fixed { ns } => ns,
            CommandWork::Flow { bytes, limit, hbm } => {
                let hbm_rate = machine.hbm_gb_per_s * profile.hbm_efficiency;
                bytes / if hbm { limit.min(hbm_rate) } else { limit }
            }
        };
        self.start_ns + rest
    }
}

fn kernel_cost(
    program: &Program,
    kernel: &SliceKernel,
    flow: &Flow,
    machine: &Machine,
    profile: &Profile,
) -> Cost {
    let pipeline = KernelPipeline {
        program,
        kernel,
        flow,
        machine,
        profile,
    };
    let mut cycles = PipelineCycles {
        start: 0.0,
        ring: 0.0,
        fetch: 0.0,
        outer: 0.0,
        slowest: (0.0, "commit"),
        n_macs: 0.0,
    };
    for at in 0..kernel.stages.len().min(flow.streams.len()) {
        cycles.add_stage(&pipeline, at);
    }
    let efficiency = if cycles.outer > 0.0 {
        profile.contraction_efficiency
    } else {
        1.0
    };
    cycles.at_least(cycles.outer / efficiency, "contraction");
    cycles.at_least(cycles.fetch / efficiency, "fetch");
    let cycle = machine.cycle_ns();
    Cost {
        queue: match kernel.context {
            Context::Main => Queue::Main,
            Context::Sub => Queue::Sub,
        },
        engines: 0,
        start_ns: (cycles.start + cycles.ring) * cycle,
        work: CommandWork::Fixed {
            ns: cycles.slowest.0 * cycle,
        },
        n_macs: cycles.n_macs,
        bound: cycles.slowest.1,
    }
}

/// A kernel as its stages are priced.
struct KernelPipeline<'p> {
    program: &'p Program,
    kernel: &'p SliceKernel,
    flow: &'p Flow,
    machine: &'p Machine,
    profile: &'p Profile,
}

impl KernelPipeline<'_> {
    /// Bytes that the kernel's context fetches a cycle.
    fn fetch_bytes(&self) -> u64 {
        match self.kernel.context {
            Context::Main => self.machine.main_fetch_bytes,
            Context::Sub => self.machine.sub_fetch_bytes,
        }
    }
}

/// Cycles of each part of a kernel's pipeline; the slowest decides.
struct PipelineCycles {
    /// Cycles before the first result.
    start: f64,
    /// Cycles around a ring of slices.
    ring: f64,
    fetch: f64,
    /// Cycles of products.
    outer: f64,
    /// The slowest of the other parts, and its name.
    slowest: (f64, &'static str),
    n_macs: f64,
}

impl PipelineCycles {
    fn at_least(&mut self, cycles: f64, what: &'static str) {
        if cycles > self.slowest.0 {
            self.slowest = (cycles, what);
        }
    }

    fn add_stage(&mut self, pipeline: &KernelPipeline<'_>, at: usize) {
        let &KernelPipeline {
            program,
            kernel,
            flow,
            machine,
            profile,
        } = pipeline;
        let stream = &flow.streams[at];
        let packets = stream.time.size() as f64;
        let flits = |bytes: u64, unit: u64| bytes.div_ceil(unit) as f64;
        let per_cycle = pipeline.fetch_bytes();
        let start = match &kernel.stages[at] {
            Stage::Fetch { view, with, .. } => {
                let stored = program.tensors[view.tensor].element;
                let read = stored.bytes(stream.packet.size());
                let reads =
                    flits(read, per_cycle).max(flits(stream.packet_bytes(), machine.flit_bytes));
                self.fetch = packets * reads * if with.is_some() { 2.0 } else { 1.0 };
                0.0
            }
            Stage::Switch { topology, .. } if *topology != Topology::Forwarding => {
                let cycles = packets * flits(stream.packet_bytes(), machine.flit_bytes);
                self.at_least(cycles, "switch");
                profile.switch_start_cycles
            }
            Stage::Outer { .. } => {
                self.outer = packets;
                let slices = (stream.cluster.size() * stream.slice.size()) as f64;
                let width = stream.packet.size() * stream.lane.size();
                self.n_macs = slices * packets * width as f64;
                profile.contract_start_cycles
            }
            Stage::Vector { .. } | Stage::Reduce { .. } => {
                // The input of a reduction streams through it.
                let entering = &flow.streams[at - 1];
                let ways = flits(entering.packet.size(), machine.float_ways);
                self.at_least(entering.time.size() as f64 * ways, "vector");
                profile.vector_start_cycles
            }
            Stage::Ring { .. } => {
                self.ring = reduced(&flow.streams[at - 1].slice, &stream.slice) as f64;
                profile.vector_start_cycles
            }
            Stage::Commit { .. } => {
                let writes = flits(stream.packet_bytes(), machine.commit_bytes);
                self.at_least(packets * writes, "commit");
                0.0
            }
            Stage::ToRegisters { .. } => {
                let bytes = stream.packet_bytes() * stream.time.size();
                self.at_least(flits(bytes, per_cycle), "registers");
                profile.sub_start_cycles
            }
            _ => 0.0,
        };
        self.start = self.start.max(start);
    }
}

/// Slices of a ring: how many partial results meet in one.
fn reduced(before: &DigitLayout, after: &DigitLayout) -> u64 {
    let of_axes = |layout: &DigitLayout| -> u64 {
        let own = layout.digits.iter().filter(|digit| digit.axis().is_some());
        own.map(|digit| digit.size).product()
    };
    of_axes(before) / of_axes(after).max(1)
}

fn move_cost(
    program: &Program,
    dma: &Dma,
    machine: &Machine,
    profile: &Profile,
) -> Result<Cost, FlowViolation> {
    let region = dma_region(program, dma).map_err(|(rule, message)| FlowViolation {
        rule,
        stage: 0,
        message,
    })?;
    let n: u64 = region.shape.iter().map(|(_, extent)| extent).product();
    let tensor = |number: usize| &program.tensors[number];
    let bytes = tensor(dma.from.tensor).element.bytes(n) as f64;
    // Values copied into several slices are written as often; short runs waste the rest of a unit.
    let unit = machine.dma_element_bytes;
    let written = bytes * copies(program, dma.to.tensor) as f64;
    let written = written * waste(program, dma.to.tensor, &region.shape, unit);
    let read = bytes * waste(program, dma.from.tensor, &region.shape, unit);
    let in_hbm = |number: usize| matches!(tensor(number).place, Place::Hbm { .. });
    let (from_hbm, to_hbm) = (in_hbm(dma.from.tensor), in_hbm(dma.to.tensor));
    let mut moved = written.max(read);
    for (is_hbm, side) in [(from_hbm, dma.from.tensor), (to_hbm, dma.to.tensor)] {
        if is_hbm {
            moved = moved.max(bytes * waste(program, side, &region.shape, machine.hbm_align_bytes));
        }
    }
    let cycle = machine.cycle_ns();
    let (queue, engines, rate) = match dma.engine {
        Engine::Pdma => (Queue::Pdma, 0, machine.host_link_bytes as f64),
        Engine::Tdma { first, count } => {
            let engine = profile
                .dma_engine_bytes
                .min(machine.dma_engine_bytes as f64);
            let bits = (0..count).fold(0u64, |bits, i| bits | 1 << (first + i).min(63));
            (Queue::Tdma(first), bits, engine * count as f64)
        }
    };
    Ok(Cost {
        queue,
        engines,
        start_ns: profile.dma_start_cycles * cycle,
        work: CommandWork::Flow {
            bytes: moved,
            limit: rate / cycle,
            hbm: from_hbm || to_hbm,
        },
        n_macs: 0.0,
        bound: "bytes",
    })
}

/// Number of copies of each value in a tensor on the chip.
fn copies(program: &Program, tensor: usize) -> u64 {
    let tensor = &program.tensors[tensor];
    let Some(spread) = tensor.spread() else {
        return 1;
    };
    let of = |mapping| {
        let layout = DigitLayout::of(mapping, &program.axes).unwrap_or_default();
        let own = layout.digits.iter().filter(|digit| digit.axis().is_none());
        own.map(|digit| digit.valid).product::<u64>()
    };
    of(&spread.cluster) * of(&spread.slice)
}

/// Bytes that are accessed for each useful one: runs shorter than a unit of access waste the rest of it.
fn waste(program: &Program, tensor: usize, region: &[(usize, u64)], unit: u64) -> f64 {
    let tensor = &program.tensors[tensor];
    let layout = DigitLayout::of(tensor.layout(), &program.axes).unwrap_or_default();
    let mut run = 1;
    for digit in layout.canonical().digits.iter().rev() {
        let extent = digit
            .axis()
            .and_then(|axis| region.iter().find(|(a, _)| *a == axis));
        let moved = extent
            .map_or(1, |(_, extent)| extent.div_ceil(digit.stride))
            .min(digit.size);
        run *= moved;
        if moved < digit.valid {
            break;
        }
    }
    let bytes = tensor.element.bytes(run).max(1);
    (bytes.div_ceil(unit) * unit) as f64 / bytes as f64
}
