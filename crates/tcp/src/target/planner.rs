//! Plans: the kernel of each op, and the content of its slots.

use super::blocks;
use super::inputs::SlotInput;
use super::nodes::{NodeLowering, launch, line, no};
use super::price::TcpPrices;
use super::weights;
use crate::device::{Chip, VirtualDevice};
use crate::lower::ops::{LoweredOp, Op, OpKernel, OpKind, Role};
use crate::lower::{TcpLowerOptions, Weights, key_bucket};
use crate::program::{Place, TARGET};
use crate::{Element, Machine, Profile, Program};
use millrace_graph::{Graph, Op as GraphOp};
use millrace_kernels::Cpu;
use millrace_npu::{Container, Device, DeviceError};
use millrace_plan::experts;
use millrace_plan::offload::{self, OffloadedOp, OpOf};
use millrace_plan::units::bytes;
use millrace_plan::{
    Annex, Arithmetic, Arrangement, AttentionOn, AttentionSteps, Binding, Chunk, Explain, HeadRows,
    InputId, KernelFacts, Lengths, LowerError, Lowering, MachineFacts, Numerics,
    OperandArrangement, OwnSlot, PassKind, PassPosition, Phase, Plan, PlannedLaunch,
    PlannedProgram, Planner, Pricer, Reason, Scales, WeightArrangement, WeightSource,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Identity of this compiler: the crate's version and a hash of its sources.
const COMPILER: &str = env!("MILLRACE_TCP_COMPILER");

/// Lengths that prompts are padded to.
const LENGTHS: [u64; 10] = [16, 32, 64, 128, 192, 256, 384, 512, 768, 1024];

/// Tokens whose scales fit in half of the vector registers, 8 bytes each.
const MAX_INT8: u64 = 512;

/// Makes plans for a chip.
pub struct Tcp {
    pub(super) machine: Machine,
    pub(super) profile: Profile,
    pub(super) weights: Weights,
    pub(super) style: Style,
    /// Ops that were lowered, by their description.
    known: Mutex<HashMap<String, Result<OpProgram, Reason>>>,
    /// Blocks likewise.
    pub(super) blocks: Mutex<HashMap<String, blocks::Lowering>>,
}

/// How plans are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether consecutive ops are one program, with their values in data memory.
    pub blocks: bool,
    /// Whether weights are loaded into one half of their region while the other is multiplied.
    pub read_ahead: bool,
    /// Whether blocks give out the result of every op, for checks of each.
    pub shows: bool,
}

impl Style {
    /// One program an op; weights are loaded and then multiplied.
    pub const PLAIN: Style = Style {
        blocks: false,
        read_ahead: false,
        shows: false,
    };
    /// Blocks, with weights read ahead.
    pub const BEST: Style = Style {
        blocks: true,
        read_ahead: true,
        shows: false,
    };
}

/// A lowered op, ready for any number of calls.
#[derive(Clone)]
struct OpProgram {
    program: PlannedProgram,
    /// One line of an explanation.
    line: String,
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tcp({}, {:?})", self.machine.name, self.weights)
    }
}

impl Tcp {
    /// A planner for that machine. The profile gives times; no plan depends on it.
    pub fn new(machine: Machine, profile: Profile, weights: Weights, style: Style) -> Tcp {
        Tcp {
            machine,
            profile,
            weights,
            style,
            known: Mutex::default(),
            blocks: Mutex::default(),
        }
    }

    /// How an op of such weights is lowered.
    pub(super) fn options(&self, weights: Weights) -> TcpLowerOptions {
        let options = TcpLowerOptions::plain(weights).of_model(self.weights);
        match self.style.read_ahead {
            true => options.read_ahead(),
            false => options,
        }
    }

    /// A virtual device of the machine.
    pub fn device(&self, cpu: &Cpu) -> VirtualDevice {
        let n_threads = cpu.pool().n_threads();
        let chip = Chip::new(self.machine.clone(), self.profile.clone(), n_threads);
        VirtualDevice::new(chip)
    }

    /// An op as a separate program.
    pub(super) fn take(
        &self,
        graph: &Graph,
        kind: &PassKind,
        of: &OpOf<'_>,
    ) -> Result<OffloadedOp, Reason> {
        if let GraphOp::ExpertLinear(linear) = &of.node.op {
            return experts::product(graph, kind, of.number, &mut |n_rows| {
                let wanted = self.lower_expert(graph, of, linear, n_rows);
                self.offloaded(of, n_rows, wanted)
            });
        }
        let wanted = self.lower_node(graph, kind, of)?;
        self.offloaded(of, of.n_rows, wanted)
    }

    /// A node in a separate program.
    fn offloaded(
        &self,
        of: &OpOf<'_>,
        n_rows: u64,
        mut wanted: NodeLowering,
    ) -> Result<OffloadedOp, Reason> {
        let label = of.node.label;
        let mut known = self.lowered(label, &wanted.op);
        if let (Err(_), OpKind::Product(role)) = (&known, wanted.op.kind) {
            // Rows in any number of pieces where whole heads do not fit.
            let (k, n) = wanted.op.sides(role);
            wanted.op.kind = OpKind::Product(Role::Other);
            wanted.op.sizes = vec![n_rows, k, n];
            let flat = self.lowered(label, &wanted.op);
            known = if flat.is_ok() { flat } else { known };
        }
        let OpProgram { program, line } = known?;
        wanted.bindings.push(Binding::Value(of.node.output));
        Ok(OffloadedOp {
            program,
            bindings: wanted.bindings,
            reason: line,
            experts: None,
        })
    }

    /// The program of an op under a node's name.
    fn lowered(&self, label: &'static str, op: &Op) -> Result<OpProgram, Reason> {
        let key = format!("{label} {op:?}");
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let known = self.lower_op(label, op);
        lock().insert(key, known.clone());
        known
    }

    fn lower_op(&self, label: &'static str, op: &Op) -> Result<OpProgram, Reason> {
        let sizes: Vec<String> = op.sizes.iter().map(u64::to_string).collect();
        let name = format!("{label}_{}", sizes.join("x"));
        let lowered = op.lower(&name, &self.machine, self.options(op.weights));
        let LoweredOp { lowered, cut } = lowered.map_err(|error| Reason(error.to_string()))?;
        let program = lowered.program;
        if let Err(refusals) = crate::verify(&program, &self.machine) {
            return no(refusals
                .first()
                .map_or_else(String::new, ToString::to_string));
        }
        let container = program.to_container();
        let container = container.map_err(|error| Reason(error.to_string()))?;
        let launch = PlannedLaunch {
            slots: (0..container.slots().len()).collect(),
            n_results: 1,
            ..launch(label, op, &cut)
        };
        Ok(OpProgram {
            line: line(&lowered.notes),
            program: PlannedProgram {
                container: Arc::new(container),
                launches: vec![launch],
                annex: Annex::new(program),
            },
        })
    }
}

impl Lowering for Tcp {
    fn target(&self) -> &'static str {
        TARGET
    }

    fn identity(&self) -> String {
        let facts = self.machine.facts.iter().map(|f| (&f.key, &f.value));
        let facts: Vec<_> = facts.collect();
        format!("{COMPILER} {facts:?} {:?} {:?}", self.weights, self.style)
    }

    fn machine(&self) -> MachineFacts {
        let machine = &self.machine;
        let peak = machine.hbm_gb_per_s * 1e9;
        let macs = machine.macs_per_cycle(Element::Bf16) as f64;
        MachineFacts {
            name: machine.name.clone(),
            cols: machine.clusters as u32,
            rows: machine.slices as u32,
            clock_hz: machine.clock_hz,
            ddr_bytes_per_s: peak,
            attained_bytes_per_s: peak * self.profile.hbm_efficiency,
            peak_flops_per_s: 2.0 * macs * machine.clock_hz,
        }
    }

    fn mode(&self) -> String {
        let numbers = match self.weights {
            Weights::Bf16 => "",
            Weights::Fp8 => ", products in fp8",
            Weights::Int4 => ", weights in int4",
            Weights::Int8 => ", products in int8",
        };
        let Style {
            blocks, read_ahead, ..
        } = self.style;
        let mode = match (blocks, read_ahead) {
            (false, false) => "plain",
            (true, true) => "best",
            (true, false) => "best without read-ahead",
            (false, true) => "best without blocks",
        };
        format!("{mode}{numbers}")
    }

    fn features(&self) -> Vec<&'static str> {
        let in_force = [self.style.blocks, self.style.read_ahead];
        let named = super::FEATURES.iter().zip(in_force);
        named
            .filter(|(_, is)| *is)
            .map(|((name, _), _)| *name)
            .collect()
    }

    fn lengths(&self) -> Lengths {
        let most = match self.weights {
            Weights::Int8 => MAX_INT8,
            _ => u64::MAX,
        };
        let lengths = LENGTHS.into_iter().filter(|n| *n <= most);
        Lengths::new(&lengths.collect::<Vec<_>>())
    }

    /// A power of two; where the chip appends, a row for padding follows it.
    fn cache_rows(&self, _graph: &Graph, n_ctx: u64) -> u64 {
        key_bucket(n_ctx) + u64::from(self.style.blocks)
    }

    /// Attention is always over the cache, with as many keys as the bucket of the last token.
    fn kind(&self, _graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        PassKind {
            phase,
            n_tokens: chunk.n_padded,
            attention: AttentionOn::Cached {
                n_keys: key_bucket(chunk.first + chunk.n_tokens).min(cache_rows),
                max_tokens: cache_rows,
            },
            head: HeadRows::Last,
        }
    }

    fn decode_until(&self, first: u64) -> u64 {
        match first < 1 << 62 {
            true => key_bucket(first + 1),
            false => u64::MAX,
        }
    }

    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        match self.style.blocks {
            true => self.lower_blocks(graph, kind),
            false => offload::ops(graph, kind, &mut |of| self.take(graph, kind, of)),
        }
    }

    fn annex(&self, container: &Container, launches: &[PlannedLaunch]) -> Option<Annex> {
        let program = Program::from_container(container).ok()?;
        let known = |launch: &PlannedLaunch| OpKernel::named(&launch.kernel).is_some();
        launches.iter().all(known).then(|| Annex::new(program))
    }
}

impl Arrangement for Tcp {
    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        weights::fill(cpu, at.id, self.weights, weight, out)
    }

    fn make(
        &self,
        at: &OwnSlot<'_, InputId>,
        position: &PassPosition<'_>,
        out: &mut [u8],
    ) -> Result<(), String> {
        SlotInput::of(at.id).make(position, out)
    }

    fn operand(
        &self,
        _cpu: &Cpu,
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        weights::operand(at.id, self.weights, bytes, scales, rows)
    }
}

impl Numerics for Tcp {
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        let kernel = OpKernel::named(&launch.kernel).map(|kernel| kernel.kind);
        let attention = match kernel {
            // A running state, where keys come in parts, is in f32 and rounds nothing to bf16.
            Some(OpKind::Attend) => launch.shape.get("s_max").map(|rows| AttentionSteps {
                n_steps: 0,
                n_parts: 1,
                cache_rows: Some(rows),
            }),
            _ => None,
        };
        let narrowed = match kernel {
            Some(OpKind::Product(_)) if weights::is_narrowed(launch) => {
                weights::narrowed(self.weights)
            }
            _ => None,
        };
        Arithmetic {
            attention,
            narrowed,
            ..Arithmetic::default()
        }
    }
}

impl Explain for Tcp {
    fn kernel(&self, launch: &PlannedLaunch) -> KernelFacts {
        let Some(kernel) = OpKernel::named(&launch.kernel) else {
            return KernelFacts::default();
        };
        let op = Op {
            kind: kernel.kind,
            sizes: kernel
                .axes
                .iter()
                .filter_map(|axis| launch.shape.get(axis))
                .collect(),
            norm_eps: 1e-5,
            attention_scale: 1.0,
            weights: match kernel.kind {
                OpKind::Product(_) if weights::is_narrowed(launch) => self.weights,
                _ => Weights::Bf16,
            },
        };
        let known = self.lower_op("op", &op);
        let program = known
            .as_ref()
            .ok()
            .and_then(|known| known.program.annex.get::<Program>());
        KernelFacts {
            summary: kernel.summary.to_owned(),
            limits: match program {
                None => "not examined".to_owned(),
                Some(program) if self.style.blocks => {
                    format!("by itself: {}", limits(program, &self.machine))
                }
                Some(program) => limits(program, &self.machine),
            },
        }
    }
}

impl Planner for Tcp {
    fn observed(&self) -> Option<Arc<dyn Planner>> {
        if !self.style.blocks || self.style.shows {
            return None;
        }
        let style = Style {
            shows: true,
            ..self.style
        };
        let (machine, profile) = (self.machine.clone(), self.profile.clone());
        Some(Arc::new(Tcp::new(machine, profile, self.weights, style)))
    }

    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(self.device(&cpu)))
    }

    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        Some(Box::new(TcpPrices::new(self)))
    }
}

/// Share of the machine's memories that a program takes.
pub(super) fn limits(program: &Program, machine: &Machine) -> String {
    let mut ends = [0u64; 3];
    for tensor in &program.tensors {
        let size = tensor.unit_bytes(&program.axes).unwrap_or(0);
        let (which, end) = match tensor.place {
            Place::Hbm { .. } => continue,
            Place::Dm { address, .. } => (0, address + size),
            Place::Trf { address, .. } => (1, address + size),
            Place::Vrf { address, .. } => (2, address + size),
        };
        ends[which] = ends[which].max(end);
    }
    let of = [machine.dm_bytes, machine.trf_lane_bytes, machine.vrf_bytes];
    let [dm, trf, vrf] = [0, 1, 2].map(|i| format!("{} of {}", bytes(ends[i]), bytes(of[i])));
    format!(
        "data memory {dm} a slice, tensor registers {trf} a lane, vector registers {vrf} a slice, {} commands",
        program.commands.len()
    )
}
