//! Mode int8: every product is a separate program, of 8-bit integers with sums in 32 bits. Everything else is left to
//! the host.
//!
//! Weights are quantised once, when they are loaded: 8 bits with a scale a row (output channel), k rotated. Activations are,
//! for each call, with a scale a token. The host rescales the exact sums.

mod slots;

use super::modes::INT8;
use super::planner::Xdna2;
use crate::mapping::{self, GEMM_I8, GEMV_I8, NamedNumbers, Shape, Tiling};
use millrace_graph::Graph;
use millrace_kernels::Cpu;
use millrace_npu::{Container, Device, DeviceError};
use millrace_plan::offload::{self, OffloadedOp, Product};
use millrace_plan::predict::MachineFacts;
use millrace_plan::quantise::MAX;
use millrace_plan::{
    Annex, Arithmetic, Arrangement, Binding, CoreOccupancy, Explain, KernelFacts, Lengths,
    LowerError, Lowering, Numerics, OperandArrangement, OwnSlot, PassKind, Plan, PlannedLaunch,
    PlannedProgram, Planner, Pricer, QuantisedRows, Reason, Scales, ValueArrangement,
    WeightArrangement, WeightLayout, WeightSource,
};
use millrace_xdna2_machine::program::codec::TARGET;
use millrace_xdna2_machine::{Profile, verify};
use slots::{Dims, id};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Tokens that prompts are padded to: whole blocks of the matrix unit.
const LENGTHS: [u64; 9] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// Tilings that are tried, the fastest first.
const MOST_TRIES: usize = 16;

/// Makes plans with products of 8-bit integers.
#[derive(Debug)]
pub(super) struct Int8 {
    /// Machine, profile and host.
    base: Xdna2,
    made: Mutex<HashMap<Dims, Int8Program>>,
}

/// A product's program.
#[derive(Clone, Debug)]
struct Int8Program {
    container: Arc<Container>,
    annex: Annex,
    kernel: &'static str,
    tiling: Tiling,
}

impl Int8 {
    /// The planner that has the machine, the profile and the host of another.
    pub(super) fn new(base: Xdna2) -> Int8 {
        Int8 {
            base,
            made: Mutex::default(),
        }
    }

    fn made(&self, dims: Dims) -> Result<Int8Program, Reason> {
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = lock().get(&dims) {
            return Ok(made.clone());
        }
        let made = self.make(dims).map_err(Reason)?;
        lock().insert(dims, made.clone());
        Ok(made)
    }

    /// The fastest tiling that builds and is accepted. The choice depends on the built-in profile alone, as in all
    /// modes.
    fn make(&self, dims: Dims) -> Result<Int8Program, String> {
        let machine = Xdna2::machine(&self.base);
        let (kernel, shape) = problem(dims.padded());
        let mapping = mapping::find(kernel).ok_or_else(|| format!("no kernel {kernel}"))?;
        let choices = Profile::builtin(Profile::DEFAULT);
        let choices = choices.ok_or_else(|| "the default profile is not there".to_owned())?;
        let ranked = mapping::ranked(kernel, &shape, machine, &choices).into_iter();
        let default = std::iter::once_with(|| mapping.default_tiling(&shape, machine));
        let mut refused = String::new();
        for tiling in ranked.take(MOST_TRIES).chain(default) {
            let mut program = match mapping.build(&shape, &tiling, machine) {
                Ok(program) => program,
                Err(error) => {
                    refused = error.to_string();
                    continue;
                }
            };
            let Dims { m, n, k } = dims;
            program.name = format!("{}_{m}x{n}x{k}", program.name);
            if let Err(refusals) = verify(&program, machine) {
                refused = refusals.first().map_or(String::new(), ToString::to_string);
                continue;
            }
            let container = program.to_container().map_err(|error| error.to_string())?;
            return Ok(Int8Program {
                container: Arc::new(container),
                annex: Annex::new(program),
                kernel,
                tiling,
            });
        }
        Err(refused)
    }

    fn take(&self, product: &Product) -> Result<OffloadedOp, Reason> {
        let (m, n, k) = (product.m, product.n, product.k);
        let dims = Dims { m, n, k };
        if m.max(n).max(k) > slots::MOST {
            return Err(Reason(format!("{m} x {n} x {k} is too large")));
        }
        let made = self.made(dims)?;
        let words = format!("8-bit with a scale a row, k rotated: {}", made.kernel);
        let packed = |value, id, bias| Binding::Packed { value, id, bias };
        Ok(OffloadedOp {
            program: PlannedProgram {
                container: made.container,
                launches: vec![PlannedLaunch {
                    name: product.label.to_owned(),
                    kernel: made.kernel.to_owned(),
                    shape: problem(dims).1,
                    tiling: made.tiling,
                    slots: vec![0, 1, 2],
                    n_results: 1,
                    physical: 0..1,
                }],
                annex: made.annex,
            },
            bindings: vec![
                packed(product.x, id::ROWS, None),
                Binding::Weight {
                    weight: product.weight,
                    layout: WeightLayout::Own {
                        id: id::WEIGHTS,
                        half_split: product.half_split,
                    },
                },
                packed(product.y, id::RESULTS, product.bias),
            ],
            reason: match product.bias {
                Some(_) => format!("{words}; the host adds the bias as it rescales"),
                None => words,
            },
            experts: None,
        })
    }
}

/// The kernel for a product, and its shape as the kernel names it.
fn problem(dims: Dims) -> (&'static str, Shape) {
    let Dims { m, n, k } = dims;
    match m {
        1 => (GEMV_I8, NamedNumbers::new(&[("m0", n), ("k", k)])),
        _ => (GEMM_I8, NamedNumbers::new(&[("m", m), ("k", k), ("n0", n)])),
    }
}

impl Lowering for Int8 {
    fn target(&self) -> &'static str {
        TARGET
    }

    fn identity(&self) -> String {
        format!("{} {INT8}", self.base.identity())
    }

    fn machine(&self) -> MachineFacts {
        MachineFacts {
            peak_flops_per_s: Xdna2::machine(&self.base).int8_ops_per_s(),
            ..Lowering::machine(&self.base)
        }
    }

    fn mode(&self) -> String {
        INT8.to_owned()
    }

    fn lengths(&self) -> Lengths {
        Lengths::new(&LENGTHS)
    }

    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        offload::products(graph, kind, &mut |product| self.take(product))
    }

    fn annex(&self, container: &Container, launches: &[PlannedLaunch]) -> Option<Annex> {
        self.base.annex(container, launches)
    }
}

impl Arrangement for Int8 {
    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        slots::fill(cpu, Dims::of(at)?, weight, out)
    }

    fn pack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        rows: &[f32],
        _width: usize,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        slots::pack(cpu, Dims::of(at)?, rows, out)
    }

    fn unpack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        bytes: &[u8],
        scales: &[Scales],
        _width: usize,
        rows: &mut [f32],
    ) -> Result<(), String> {
        slots::unpack(cpu, Dims::of(at)?, bytes, scales, rows)
    }

    fn operand(
        &self,
        _cpu: &Cpu,
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        slots::operand(Dims::of(at)?, bytes, scales, rows)
    }
}

impl Numerics for Int8 {
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        let k = launch.shape.get("k").unwrap_or(0);
        Arithmetic {
            quantised: Some(QuantisedRows {
                levels: MAX as u32,
                block: slots::rotation(k).block() as usize,
            }),
            ..Arithmetic::default()
        }
    }
}

impl Explain for Int8 {
    fn occupied(&self, planned: &PlannedProgram, physical: Range<usize>) -> CoreOccupancy {
        self.base.occupied(planned, physical)
    }

    /// Facts of the padded problem, which was built.
    fn kernel(&self, launch: &PlannedLaunch) -> KernelFacts {
        let get = |name| launch.shape.get(name);
        let n = get("n0").or(get("m0")).unwrap_or(0);
        let (m, k) = (get("m").unwrap_or(1), get("k").unwrap_or(0));
        self.base.kernel(&PlannedLaunch {
            shape: problem(Dims { m, n, k }.padded()).1,
            ..launch.clone()
        })
    }

    fn execution(&self, planned: &PlannedProgram) -> Option<String> {
        self.base.execution(planned)
    }
}

impl Planner for Int8 {
    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        self.base.open(cpu)
    }

    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        self.base.pricer()
    }
}
