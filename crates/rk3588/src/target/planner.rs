//! Plans: products on the NPU, everything else on the host.

mod weight_mode;
pub use weight_mode::WeightMode;

use super::attention::AttentionBy;
use super::own::id;
use super::price::Rk3588Prices;
use crate::device::RkDevice;
use crate::kv;
use crate::linear::LayerLinear;
use crate::machine::Machine;
use crate::matmul::{MatmulKind, rows_max};
use crate::profile::Profile;
use crate::program::{Program, TARGET};
use crate::quantise::MAX;
use crate::tiling::{Grid, Matmul, Tiling};
use millrace_graph::Graph;
use millrace_kernels::Cpu;
use millrace_npu::{Container, Device, DeviceError};
use millrace_plan::offload::{self, OffloadedOp, Product};
use millrace_plan::{
    Annex, Arithmetic, Arrangement, Binding, Chunk, CoreOccupancy, Explain, HeadRows, KernelFacts,
    Lengths, LowerError, Lowering, MachineFacts, NamedNumbers, Numerics, OperandArrangement,
    OwnSlot, PassKind, Phase, Plan, PlannedLaunch, PlannedProgram, Planner, Pricer, QuantisedRows,
    Reason, Scales, ValueArrangement, WeightArrangement, WeightLayout, WeightSource,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Identity of this compiler: the crate's version and a hash of its sources.
const COMPILER: &str = env!("MILLRACE_RK3588_COMPILER");

/// Tokens that prompts are padded to: whole groups of the array's rows.
const LENGTHS: [u64; 5] = [16, 32, 64, 128, 256];

/// Rows that weights are cut for. Their layout serves every other number too.
pub(super) const LENGTHS_FOR_WEIGHTS: u32 = 128;

/// Makes plans for an RK3588.
pub struct Rk3588 {
    pub(super) machine: Machine,
    /// Profile that times come from. Nothing is chosen by it.
    pub(super) profile: Profile,
    /// Profile that decides how products are cut, whatever profile times come from.
    pub(super) choices: Profile,
    mode: WeightMode,
    kind: MatmulKind,
    /// Nodes that are multiplied in fp16: labels, or `label@layer`.
    fp16: Vec<String>,
    pub(super) has_rotation: bool,
    pub(super) attention: AttentionBy,
    /// Cost of attention of a size with its products on the NPU, or why they do not fit.
    pub(super) prices: Mutex<HashMap<kv::LayerAttention, Result<f64, String>>>,
    made: Mutex<HashMap<Matmul, ProductChoice>>,
}

/// A product's program, and why it is cut so.
#[derive(Clone)]
struct ProductChoice {
    container: Arc<Container>,
    annex: Annex,
    tiling: Tiling,
    reason: String,
}

/// The feature that can be left out.
pub(super) const ROTATION: &str = "rotation";

impl Rk3588 {
    /// A planner of those settings.
    pub(super) fn new(
        machine: Machine,
        profile: Profile,
        mode: WeightMode,
        kind: MatmulKind,
    ) -> Rk3588 {
        Rk3588 {
            machine,
            profile,
            choices: Profile::rocket_200(),
            mode,
            kind,
            fp16: Vec::new(),
            has_rotation: true,
            attention: AttentionBy::default(),
            prices: Mutex::default(),
            made: Mutex::default(),
        }
    }

    /// The same planner with or without a rotation of k.
    #[must_use]
    pub(super) fn with_rotation(mut self, has_rotation: bool) -> Rk3588 {
        self.has_rotation = has_rotation;
        self
    }

    /// The same planner with nodes in fp16.
    #[must_use]
    pub(super) fn with_fp16(mut self, nodes: Vec<String>) -> Rk3588 {
        self.fp16 = nodes;
        self
    }

    /// The same planner with that choice for attention.
    #[must_use]
    pub(super) fn with_attention(mut self, attention: AttentionBy) -> Rk3588 {
        self.attention = attention;
        self
    }

    fn workers(&self) -> u32 {
        self.machine.n_cores
    }

    /// Types that a node is multiplied in.
    fn kind_of(&self, label: &str, layer: Option<usize>) -> MatmulKind {
        let asks = |name: &String| match (name.split_once('@'), layer) {
            (Some((of, at)), Some(layer)) => of == label && at == layer.to_string(),
            (Some(_), None) => false,
            (None, _) => name == label,
        };
        match self.fp16.iter().any(asks) {
            true => MatmulKind::Fp16F32,
            false => self.kind,
        }
    }

    fn made(&self, shape: Matmul) -> Result<ProductChoice, Reason> {
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = lock().get(&shape) {
            return Ok(made.clone());
        }
        let made = self.make(shape).map_err(Reason)?;
        lock().insert(shape, made.clone());
        Ok(made)
    }

    fn make(&self, shape: Matmul) -> Result<ProductChoice, String> {
        let Matmul { kind, m, n, k } = shape;
        let (machine, choices) = (&self.machine, &self.choices);
        let rotation = self.rotation(kind, k);
        let linear = LayerLinear::new(
            kind,
            [LENGTHS_FOR_WEIGHTS, n, k],
            self.workers(),
            rotation,
            machine,
            choices,
        );
        let linear = linear.map_err(|error| error.to_string())?;
        let chosen = linear.choose(m, machine, choices);
        let chosen = chosen.map_err(|error| error.to_string())?;
        let name = format!("matmul_{}_{m}x{n}x{k}", kind.name().replace('-', "_"));
        let program = Program::build(&name, shape, chosen.tiling, machine);
        let program = program.map_err(|error| error.to_string())?;
        let container = match self.mode {
            WeightMode::AtLoad => program.to_container(machine),
            WeightMode::PerCall => program.to_container_for_each_call(machine),
        };
        let grid = program.grid(machine).map_err(|error| error.to_string())?;
        Ok(ProductChoice {
            container: Arc::new(container.map_err(|error| error.to_string())?),
            annex: Annex::new(grid),
            tiling: chosen.tiling,
            reason: format!(
                "a product of matrices, {}: {} (by {})",
                self.words(kind),
                chosen.reason(),
                choices.name
            ),
        })
    }

    /// How operands are encoded, in words.
    fn words(&self, kind: MatmulKind) -> &'static str {
        match (kind.is_integer(), self.has_rotation) {
            (true, true) => "8-bit with a scale a row, k rotated",
            (true, false) => "8-bit with a scale a row",
            (false, _) => "in fp16",
        }
    }

    fn take(&self, graph: &Graph, product: &Product) -> Result<OffloadedOp, Reason> {
        let node = graph.nodes.get(product.node);
        let kind = self.kind_of(product.label, node.and_then(|node| node.layer));
        let dim = |name, x: u64| {
            u32::try_from(x).map_err(|_| Reason(format!("{name} = {x} is beyond 2^32")))
        };
        let shape = Matmul {
            kind,
            m: dim("m", product.m)?,
            n: dim("n", product.n)?,
            k: dim("k", product.k)?,
        };
        let made = self.made(shape)?;
        let (tiling, rotates) = (made.tiling, self.rotates(kind));
        let packed = |value, id, bias| Binding::Packed {
            value,
            id: ValueArrangement(id),
            bias,
        };
        Ok(OffloadedOp {
            program: PlannedProgram {
                container: made.container,
                launches: vec![launch(product.label, shape, tiling)],
                annex: made.annex,
            },
            bindings: vec![
                packed(product.x, id::rows(kind, rotates, tiling), None),
                Binding::Weight {
                    weight: product.weight,
                    layout: WeightLayout::Own {
                        id: WeightArrangement(id::weights(kind, rotates, tiling)),
                        half_split: product.half_split,
                    },
                },
                packed(product.y, id::result(kind), product.bias),
            ],
            reason: match product.bias {
                Some(_) => format!("{}; the host adds the bias as it rescales", made.reason),
                None => made.reason,
            },
            experts: None,
        })
    }
}

pub(super) fn launch(label: &str, shape: Matmul, tiling: Tiling) -> PlannedLaunch {
    let Matmul { kind, m, n, k } = shape;
    PlannedLaunch {
        name: label.to_owned(),
        kernel: kind.name().to_owned(),
        shape: NamedNumbers::new(&[("m", m.into()), ("n", n.into()), ("k", k.into())]),
        tiling: named(tiling),
        slots: vec![0, 1, 2],
        n_results: 1,
        physical: 0..1,
    }
}

/// A tiling's sizes by name; the inner loop as 1 where it is the rows'.
pub(super) fn named(tiling: Tiling) -> NamedNumbers {
    NamedNumbers::new(&[
        ("rows", tiling.rows.into()),
        ("cols", tiling.cols.into()),
        ("depth", tiling.depth.into()),
        ("workers", tiling.workers.into()),
        (
            "rows_inner",
            u64::from(tiling.order == crate::tiling::Order::Rows),
        ),
        ("job_tasks", tiling.job_tasks.into()),
    ])
}

/// Facts of the machine for tables.
pub(super) fn facts(machine: &Machine, profile: &Profile) -> MachineFacts {
    let macs = f64::from(machine.macs.int8) * f64::from(machine.n_cores);
    MachineFacts {
        name: machine.name.clone(),
        cols: machine.n_cores,
        rows: 1,
        clock_hz: profile.clock_hz,
        ddr_bytes_per_s: profile.ddr_bytes_per_s,
        attained_bytes_per_s: profile.ddr_bytes_per_s,
        peak_flops_per_s: 2.0 * macs * profile.clock_hz,
    }
}

impl Lowering for Rk3588 {
    fn target(&self) -> &'static str {
        TARGET
    }

    fn identity(&self) -> String {
        format!(
            "{COMPILER} {:?} {} {} rotation {} fp16 {:?} attention {}",
            self.machine,
            self.mode.name(),
            self.kind,
            self.has_rotation,
            self.fp16,
            self.attention.name()
        )
    }

    fn machine(&self) -> MachineFacts {
        facts(&self.machine, &self.profile)
    }

    fn mode(&self) -> String {
        let kind = match self.kind.is_integer() {
            true => "int8",
            false => "fp16",
        };
        match self.has_rotation {
            true => format!("{} {kind}", self.mode.name()),
            false => format!("{} {kind} without {ROTATION}", self.mode.name()),
        }
    }

    fn features(&self) -> Vec<&'static str> {
        match self.has_rotation {
            true => vec![ROTATION],
            false => Vec::new(),
        }
    }

    fn lengths(&self) -> Lengths {
        Lengths::new(&LENGTHS)
    }

    /// Attention's products, where the NPU computes them, have as many keys as the bucket of the chunk's last token.
    fn kind(&self, graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        PassKind {
            phase,
            n_tokens: chunk.n_padded,
            attention: self.attention_on(graph, phase, chunk, cache_rows),
            head: HeadRows::Last,
        }
    }

    fn decode_until(&self, first: u64) -> u64 {
        self.attention_until(first)
    }

    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        offload::products_and_attention(
            graph,
            kind,
            &mut |product| self.take(graph, product),
            &mut |_, attention| self.attend(kind, attention),
        )
    }

    fn annex(&self, container: &Container, _launches: &[PlannedLaunch]) -> Option<Annex> {
        let program = Program::decode(container.name(), container.payload()).ok()?;
        Some(Annex::new(program.grid(&self.machine).ok()?))
    }
}

impl Arrangement for Rk3588 {
    fn fill(
        &self,
        _cpu: &Cpu,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        self.fill_slot(at, weight, out)
    }

    fn pack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        rows: &[f32],
        _width: usize,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        self.pack_slot(cpu, at, rows, out)
    }

    fn unpack(
        &self,
        _cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        bytes: &[u8],
        scales: &[Scales],
        _width: usize,
        rows: &mut [f32],
    ) -> Result<(), String> {
        self.unpack_slot(at, bytes, scales, rows)
    }

    fn operand(
        &self,
        _cpu: &Cpu,
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        self.operand_of(at, bytes, scales, rows)
    }
}

impl Numerics for Rk3588 {
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        let kind = MatmulKind::from_name(&launch.kernel).unwrap_or(self.kind);
        let k = launch.shape.get("k").and_then(|k| u32::try_from(k).ok());
        let quantised = k.filter(|_| kind.is_integer()).map(|k| QuantisedRows {
            levels: MAX as u32,
            block: self.rotation(kind, k).block() as usize,
        });
        Arithmetic {
            quantised,
            ..Arithmetic::default()
        }
    }
}

impl Explain for Rk3588 {
    fn occupied(&self, planned: &PlannedProgram, physical: Range<usize>) -> CoreOccupancy {
        let grid = planned.annex.get::<Grid>();
        let busy = grid.map_or(0, |grid| {
            grid.workers.iter().filter(|w| !w.is_empty()).count()
        });
        let n_cores = (busy as u32).min(self.machine.n_cores);
        CoreOccupancy {
            n_launches: physical.len(),
            herds: vec![(n_cores, 1)],
            n_cores,
        }
    }

    fn kernel(&self, launch: &PlannedLaunch) -> KernelFacts {
        let kind = MatmulKind::from_name(&launch.kernel).unwrap_or(self.kind);
        let get = |name| launch.tiling.get(name).unwrap_or(0) as u32;
        let (rows, depth) = (get("rows"), get("depth"));
        let banks = crate::matmul::data_banks(rows, depth, kind, &self.machine);
        KernelFacts {
            summary: format!("C[m, n] = A[m, k] · B[n, k]ᵀ, {kind}"),
            limits: format!(
                "rows take {banks} of {} banks of the CBUF; at most {} rows of {depth} fit",
                self.machine.cbuf_banks,
                rows_max(depth, kind, &self.machine)
            ),
        }
    }
}

impl Planner for Rk3588 {
    fn open(&self, _cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        let opened = RkDevice::open_as(&self.machine, &self.profile, self.workers() as usize);
        let device = opened.map_err(|error| DeviceError::Driver(error.to_string()))?;
        Ok(Arc::new(device))
    }

    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        Some(Box::new(Rk3588Prices::new(
            &self.machine,
            &self.profile,
            self.mode,
        )))
    }
}
