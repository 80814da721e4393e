//! bf16 GEMMs whose weights stay Q4NX blocks until they are in the cores, the prefill projection of
//! quantised plans: the dequantisation engine of the Gemma paper (§3.1.1) and its GEMM in one, so that
//! weights never go to DDR in bf16.
//!
//! A core expands some columns of a block to bf16, multiplies them with a tile of A, and goes on. The expanded columns
//! are used for all of its rows of A, so these are many. Rows of the array share the weights of their column and have
//! separate rows of A. With `n_over_rows`, for short prompts, all cores have separate weights and the same rows of A,
//! so that no weight is expanded twice. The rest is [`gemm-stream`](super::super::gemm_stream)'s: f32 sums, one
//! rounding, C gathered in L2, several products a launch, no pause between tiles.

mod launch;
mod tiling;

use super::super::data::{Random, bf16_bytes, floats};
use super::super::fused::{self, GEMM_PARTS};
use super::super::gemm::accumulate;
use super::super::parts::{Checks, slot};
use super::super::{BuildError, LeastWork, Mapping, Rule, Shape, ShapeError, Tiling, Tolerance};
use super::{BYTES, COLS, Matrix, ROWS, across, random_blocks, unit, weight_slot};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::{Machine, Numerics, Program};

pub(crate) use tiling::ranked;

/// The mapping.
pub(crate) struct GemmQ4nx;

/// The mapping's name.
pub(crate) const NAME: &str = "gemm-q4nx";

/// The product of the Gemma paper's prompts (§3.1.2). Blocks are expanded as it takes B.
const MATMUL: &str = "matmul_bf16_f32.flm";

/// Shape and tiling as plain numbers.
#[derive(Clone, Debug)]
struct Q4nxGemmDims {
    m: u64,
    k: u64,
    /// Columns of each product, rows of its weights.
    n: Vec<u64>,
    unit: u64,
    /// Rows of A of a core.
    tm: u64,
    /// Columns of A that come to L2 at once.
    kl2: u64,
    /// Columns of A and of a block that are multiplied at once.
    tk: u64,
    cols: u64,
    rows: u64,
    n_over_rows: bool,
    hold_a: bool,
    /// Pieces in which a core sends 32 columns of its tile of C.
    chunks: u64,
}

impl Q4nxGemmDims {
    fn new(shape: &Shape, tiling: &Tiling) -> Q4nxGemmDims {
        Q4nxGemmDims {
            tm: tiling["tile_m"],
            kl2: tiling["tile_k_l2"],
            tk: tiling["tile_k_l1"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            n_over_rows: tiling["n_over_rows"] > 0,
            hold_a: tiling["hold_a"] > 0,
            chunks: tiling["drain_chunks"],
            ..Q4nxGemmDims::untiled(shape)
        }
    }

    /// A problem without a tiling yet: every size is 0.
    fn untiled(shape: &Shape) -> Q4nxGemmDims {
        let n = fused::sizes(shape, GEMM_PARTS);
        Q4nxGemmDims {
            m: shape["m"],
            k: shape["k"],
            unit: unit(&n),
            n,
            tm: 0,
            kl2: 0,
            tk: 0,
            cols: 0,
            rows: 0,
            n_over_rows: false,
            hold_a: false,
            chunks: 0,
        }
    }

    /// Row blocks that a core multiplies at once.
    fn blocks(&self) -> u64 {
        if self.n_over_rows { 1 } else { self.unit }
    }

    /// Row blocks that a column of the array takes at once.
    fn column_blocks(&self) -> u64 {
        if self.n_over_rows {
            self.rows
        } else {
            self.unit
        }
    }

    /// Streams of A.
    fn a_streams(&self) -> u64 {
        if self.n_over_rows { 1 } else { self.rows }
    }

    /// Columns of C of a core.
    fn tn(&self) -> u64 {
        self.blocks() * ROWS
    }

    /// Rows of C that the array computes at once.
    fn m_step(&self) -> u64 {
        self.a_streams() * self.tm
    }

    /// Columns of C that the array computes at once.
    fn n_step(&self) -> u64 {
        self.cols * self.column_blocks() * ROWS
    }

    /// Steps over the columns of all products.
    fn n_tiles(&self) -> u64 {
        self.n.iter().map(|n| n / self.n_step()).sum()
    }

    /// Blocks of A on a memory tile.
    fn a_copies(&self) -> u64 {
        if self.hold_a { 1 } else { 2 }
    }

    /// Distance of the memory tiles that feed rows: spread over the array, since a shim has two
    /// reading channels and the column's own stream takes one.
    fn spread(&self, machine: &Machine) -> u64 {
        (u64::from(machine.cols) / self.a_streams()).max(1)
    }
}

impl Mapping for GemmQ4nx {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "C0 = A W0', C1 = A W1', ..., bf16, W[N,K] in Q4NX blocks to the cores; MxKxN0+N1+..."
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        fused::parse_gemm(text)
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let tilings = self.tilings(shape, machine);
        let least = || tiling::least(shape);
        tilings.into_iter().next().unwrap_or_else(least)
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        tiling::all(shape, machine)
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let checks = Checks { mapping: NAME };
        checks.bounded(shape, tiling)?;
        for flag in ["n_over_rows", "hold_a"] {
            let value = tiling[flag];
            checks.ensure(value <= 1, Rule::Range, || {
                format!("{flag} = {value}; it is 0 or 1")
            })?;
        }
        let p = Q4nxGemmDims::new(shape, tiling);
        tiling::check(&p, machine)?;
        let columns = || p.n.iter().enumerate();
        let w = |(i, &n)| weight_slot(&format!("w{i}"), [n, p.k], p.unit);
        let c = |(i, &n)| slot(&format!("c{i}"), Element::Bf16, &[p.m, n], Role::Output);
        let mut slots = vec![slot("a", Element::Bf16, &[p.m, p.k], Role::Input)];
        slots.extend(columns().map(w));
        slots.extend(columns().map(c));
        Ok(Program {
            name: "gemm_q4nx".to_owned(),
            slots,
            launches: vec![p.launch(machine)],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (m, k, n) = (shape["m"], shape["k"], fused::sizes(shape, GEMM_PARTS));
        let mut random = Random::new(seed);
        let mut slots = vec![random.bf16_bytes(m * k, 1.0)];
        slots.extend(n.iter().map(|&n| random_blocks(&mut random, [n, k])));
        slots.extend(n.iter().map(|n| vec![0; 2 * (m * n) as usize]));
        slots
    }

    /// Weights rounded to bf16, sums in f32 over all of K, one rounding.
    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (m, k) = (shape["m"] as usize, shape["k"] as usize);
        let n = fused::sizes(shape, GEMM_PARTS);
        let (a, unit) = (floats(&slots[0]), unit(&n));
        let product = |part: usize| {
            let columns = n[part] as usize;
            let b = Matrix::new(&slots[1 + part], k as u64, unit).transposed(columns, k);
            let mut c = vec![0.0; m * columns];
            accumulate(numerics, &mut c, &a, &b, [k, columns], 0..k);
            (1 + n.len() + part, bf16_bytes(&c))
        };
        (0..n.len()).map(product).collect()
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let (m, k) = (shape["m"], shape["k"]);
        let n: u64 = fused::sizes(shape, GEMM_PARTS).iter().sum();
        LeastWork {
            flops: 2 * m * k * n,
            ddr_bytes: 2 * (m * k + m * n) + n / ROWS * across(k) * BYTES,
        }
    }
}
