//! Plans and their prices: every product on the toy, everything else on the host.

use crate::NAME;
use crate::device::{Toy, ToyDevice, provenance};
use crate::program::{MAX_ROWS, Program};
use millrace_graph::Graph;
use millrace_kernels::Cpu;
use millrace_npu::{Device, DeviceError, Provenance};
use millrace_plan::offload::{self, OffloadedOp, Product};
use millrace_plan::predict::{
    CallNs, Crossing, HostWork, LaunchCost, ModelPart, PriceError, ProgramCost, Rate, SlotBytes,
};
use millrace_plan::{
    Annex, Arrangement, Binding, Call, Explain, HostStep, Lengths, LowerError, Lowering,
    MachineFacts, NamedNumbers, Numerics, PassKind, Plan, PlannedLaunch, PlannedProgram, Planner,
    Pricer, Reason, WeightLayout,
};
use std::sync::Arc;

/// Makes plans for the toy.
#[derive(Default)]
pub struct Products {
    /// Whether the device is the narrow one.
    pub is_narrow: bool,
}

/// Operations a second.
const FLOPS_PER_S: f64 = 2e9;

/// Fixed time of a dispatch, beside its operations.
const DISPATCH_NS: f64 = 1_000.0;

/// Bytes a second that the host copies.
const HOST_BYTES_PER_S: f64 = 1e10;

/// Time of a program.
pub fn run_ns(program: Program) -> f64 {
    DISPATCH_NS + flops(program) as f64 / FLOPS_PER_S * 1e9
}

fn flops(program: Program) -> u64 {
    2 * program.m * program.k * program.n
}

fn take(product: &Product) -> Result<OffloadedOp, Reason> {
    let &Product { m, k, n, .. } = product;
    if product.bias.is_some() {
        return Err(Reason("the toy adds no bias to a product".to_owned()));
    }
    let program = Program { m, k, n };
    program.check().map_err(Reason)?;
    let container = program.to_container();
    let container = container.map_err(|error| Reason(error.to_string()))?;
    let layout = WeightLayout::AsStored {
        half_split: product.half_split,
    };
    Ok(OffloadedOp {
        program: PlannedProgram {
            container: Arc::new(container),
            launches: vec![PlannedLaunch {
                name: product.label.to_owned(),
                kernel: "matmul".to_owned(),
                shape: NamedNumbers::new(&[("m", m), ("k", k), ("n", n)]),
                tiling: NamedNumbers::new(&[]),
                slots: vec![0, 1, 2],
                n_results: 1,
                physical: 0..1,
            }],
            annex: Annex::default(),
        },
        bindings: vec![
            Binding::Value(product.x),
            Binding::Weight {
                weight: product.weight,
                layout,
            },
            Binding::Value(product.y),
        ],
        reason: "a product of matrices, which is all that the toy can do".to_owned(),
        experts: None,
    })
}

impl Lowering for Products {
    fn target(&self) -> &'static str {
        NAME
    }

    fn identity(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn machine(&self) -> MachineFacts {
        MachineFacts {
            name: "toy1".to_owned(),
            cols: 1,
            rows: 1,
            clock_hz: 1e9,
            ddr_bytes_per_s: HOST_BYTES_PER_S,
            attained_bytes_per_s: HOST_BYTES_PER_S,
            peak_flops_per_s: FLOPS_PER_S,
        }
    }

    fn mode(&self) -> String {
        "plain".to_owned()
    }

    fn lengths(&self) -> Lengths {
        Lengths::new(&[16, MAX_ROWS])
    }

    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        offload::products(graph, kind, &mut take)
    }
}

impl Arrangement for Products {}

impl Numerics for Products {}

impl Explain for Products {}

impl Planner for Products {
    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        let toy = Toy {
            cpu,
            is_narrow: self.is_narrow,
        };
        Ok(Arc::new(ToyDevice::new(toy)))
    }

    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        Some(Box::new(ToyPrices(self.machine())))
    }
}

/// Prices of the toy, all of them imagined.
struct ToyPrices(MachineFacts);

impl Pricer for ToyPrices {
    fn machine(&self) -> &MachineFacts {
        &self.0
    }

    fn program(&mut self, planned: &PlannedProgram) -> Result<ProgramCost, PriceError> {
        let program = Program::from_container(&planned.container).map_err(PriceError)?;
        let (run_ns, flops) = (run_ns(program), flops(program));
        let bytes = SlotBytes::of(planned.slots());
        let launch = |launch: &PlannedLaunch| LaunchCost {
            name: launch.name.clone(),
            kernel: launch.kernel.clone(),
            part: ModelPart::of_product(&launch.name),
            shape: launch.shape.to_string(),
            tiling: String::new(),
            physical: 1,
            ns: run_ns - DISPATCH_NS,
            load_ns: 0.0,
            flops,
            bottleneck: Default::default(),
            ddr_read_bytes: (bytes.r#static + bytes.input) as f64,
            ddr_write_bytes: bytes.output as f64,
            cores: Vec::new(),
            utilization: 1.0,
        };
        Ok(ProgramCost {
            name: planned.name().to_owned(),
            calls: 0,
            run_ns,
            dispatch_ns: DISPATCH_NS,
            load_ns: 0.0,
            switch_ns: 0.0,
            rate: Rate::new(flops, run_ns, FLOPS_PER_S),
            launches: planned.launches.iter().map(launch).collect(),
            slots: bytes,
        })
    }

    fn step_ns(&self, work: &HostWork<'_>, step: HostStep) -> f64 {
        work.bytes(step) as f64 / HOST_BYTES_PER_S * 1e9
    }

    fn call(&self, _work: &HostWork<'_>, _call: &Call, crossing: Crossing) -> CallNs {
        CallNs {
            call_ns: 0.0,
            write_ns: crossing.written_bytes as f64 / HOST_BYTES_PER_S * 1e9,
            read_ns: crossing.read_bytes as f64 / HOST_BYTES_PER_S * 1e9,
        }
    }

    fn host(&self) -> &'static str {
        "own"
    }

    fn provenance(&self) -> Provenance {
        provenance()
    }
}
