//! GEMMs of one A, of bf16 or of 8-bit integers, on up to 8 × 4 cores without a pause, the prefill projection of mode fast.
//!
//! It is the drained GEMM of [`gemm`](super::gemm) (f32 sums, one cast in the cores, C gathered in L2) with these
//! additions:
//!
//! - Tasks of the next tile are queued behind those of this one, so that reading and computing go on
//!   while C leaves.
//! - Several products of one A, `[m, k] · [k, n0]`, `[k, n1]`, …, are one launch: the array is
//!   configured once.
//! - Columns of the array may take N instead of M (`n_over_cols`): each column then reads separate weights, eight
//!   streams where there were four. A short prompt needs them, as it is bound by weights.
//! - A may stay in L2 for all of N (`hold_a`).
//!
//! C leaves a memory tile core by core, and the shim's tasks put the tiles in place: nothing orders one
//! block of C after another here, so a drain that alternates between cores could not wait for them.
//!
//! B is `[k, n]`, or `[n, k]` as checkpoints store it in the mapping named `-bt` and in that of integers, whose sums
//! leave the cores unchanged, in 32 bits.

mod launch;
mod tiling;

use super::data::{Random, bf16_bytes, floats};
use super::fused::{self, GEMM_PARTS};
use super::gemm::{accumulate, transposed};
use super::operands::{self, Operands, integer_product};
use super::parts::{Checks, slot};
use super::{
    BuildError, LeastWork, Mapping, NamedNumbers, Rule, Shape, ShapeError, Tiling, Tolerance,
};
use millrace_npu::Role;
use millrace_xdna2_machine::{Machine, Numerics, Program};

pub(super) use tiling::ranked;

/// The GEMM; `bt` with B as `[n, k]`.
pub(super) struct GemmStream {
    name: &'static str,
    summary: &'static str,
    bt: bool,
    of: &'static Operands,
}

/// B as `[k, n]`.
pub(super) const PLAIN: GemmStream = GemmStream {
    name: "gemm-stream",
    summary: "C0 = A B0, C1 = A B1, ..., bf16 in and out, no pause between tiles; MxKxN0+N1+...",
    bt: false,
    of: &operands::BF16,
};

/// B as `[n, k]`.
pub(super) const BT: GemmStream = GemmStream {
    name: "gemm-stream-bt",
    summary: "the same with Bt[N,K] as checkpoints store it; MxKxN0+N1+...",
    bt: true,
    of: &operands::BF16,
};

/// GEMMs of 8-bit integers, B as `[n, k]`.
pub(super) const I8: GemmStream = GemmStream {
    name: super::GEMM_I8,
    summary: "C0 = A B0, C1 = A B1, ..., int8 in, exact int32 out, Bt[N,K]; MxKxN0+N1+...",
    bt: true,
    of: &operands::I8,
};

/// Names of a tiling, in order.
pub(super) const TILING: [&str; 11] = [
    "tile_m",
    "tile_k_l2",
    "tile_k_l1",
    "tile_n",
    "cols",
    "rows",
    "n_over_cols",
    "hold_a",
    "l1_depth",
    "l2_copies",
    "drain_chunks",
];

/// Descriptors of a memory tile for sending held blocks of A. A channel reaches 24, of which others need four (half of
/// two inputs in ping-pong and of four cores' tiles).
const HELD_DESCRIPTORS: u64 = 20;

/// Shape and tiling as plain numbers.
#[derive(Clone, Debug)]
struct GemmStreamDims {
    m: u64,
    k: u64,
    /// Columns of each product.
    n: Vec<u64>,
    tm: u64,
    kl2: u64,
    tk: u64,
    tn: u64,
    cols: u64,
    rows: u64,
    n_over_cols: bool,
    hold_a: bool,
    l1_depth: u64,
    l2_copies: u64,
    /// Pieces in which a core sends its tile of C.
    chunks: u64,
    bt: bool,
    of: &'static Operands,
}

impl GemmStreamDims {
    fn new(gemm: &GemmStream, shape: &Shape, tiling: &Tiling) -> GemmStreamDims {
        GemmStreamDims {
            m: shape["m"],
            k: shape["k"],
            n: fused::sizes(shape, GEMM_PARTS),
            tm: tiling["tile_m"],
            kl2: tiling["tile_k_l2"],
            tk: tiling["tile_k_l1"],
            tn: tiling["tile_n"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            n_over_cols: tiling["n_over_cols"] > 0,
            hold_a: tiling["hold_a"] > 0,
            l1_depth: tiling["l1_depth"],
            l2_copies: tiling["l2_copies"],
            chunks: tiling["drain_chunks"],
            bt: gemm.bt,
            of: gemm.of,
        }
    }

    /// A problem without a tiling yet: every size is 0.
    fn untiled(gemm: &GemmStream, shape: &Shape) -> GemmStreamDims {
        let none = NamedNumbers::new(&TILING.map(|name| (name, 0)));
        GemmStreamDims::new(gemm, shape, &none)
    }

    /// Streams of A, each a tile's rows.
    fn a_streams(&self) -> u64 {
        if self.n_over_cols {
            self.rows
        } else {
            self.cols
        }
    }

    /// Streams of B, each a tile's columns.
    fn b_streams(&self) -> u64 {
        if self.n_over_cols {
            self.cols
        } else {
            self.rows
        }
    }

    /// Rows of C that the array computes at once.
    fn m_step(&self) -> u64 {
        self.a_streams() * self.tm
    }

    /// Columns of C that the array computes at once.
    fn n_step(&self) -> u64 {
        self.b_streams() * self.tn
    }

    /// Steps over the columns of all products.
    fn n_tiles(&self) -> u64 {
        self.n.iter().map(|n| n / self.n_step()).sum()
    }

    /// Blocks of A on a memory tile. Each sending of a held block takes a descriptor, unless the block is the only one.
    /// If descriptors do not suffice, the next block comes when this one is done with.
    fn a_copies(&self) -> u64 {
        let descriptors = self.l2_copies * self.n_tiles();
        if self.hold_a && (self.m == self.m_step() || descriptors > HELD_DESCRIPTORS) {
            1
        } else {
            self.l2_copies
        }
    }

    /// Distance of the memory tiles that feed rows: spread over the array, since a shim has two
    /// reading channels and the column's own stream takes one.
    fn spread(&self, machine: &Machine) -> u64 {
        (u64::from(machine.cols) / self.rows).max(1)
    }
}

impl Mapping for GemmStream {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        fused::parse_gemm(text)
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let tilings = self.tilings(shape, machine);
        let least = || tiling::least(self, shape);
        tilings.into_iter().next().unwrap_or_else(least)
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        tiling::all(self, shape, machine)
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = GemmStreamDims::new(self, shape, tiling);
        let checks = Checks { mapping: self.name };
        checks.bounded(shape, tiling)?;
        for flag in ["n_over_cols", "hold_a"] {
            let value = tiling[flag];
            checks.ensure(value <= 1, Rule::Range, || {
                format!("{flag} = {value}; it is 0 or 1")
            })?;
        }
        tiling::check(self, &p, machine)?;
        let (element, result) = (self.of.element, self.of.result);
        let columns = || p.n.iter().enumerate();
        let b = |(i, &n)| {
            let shape = if self.bt { [n, p.k] } else { [p.k, n] };
            slot(&format!("b{i}"), element, &shape, Role::Static)
        };
        let c = |(i, &n)| slot(&format!("c{i}"), result, &[p.m, n], Role::Output);
        let mut slots = vec![slot("a", element, &[p.m, p.k], Role::Input)];
        slots.extend(columns().map(b));
        slots.extend(columns().map(c));
        Ok(Program {
            name: self.name.replace('-', "_"),
            slots,
            launches: vec![p.launch(machine)],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (m, k, n) = (shape["m"], shape["k"], fused::sizes(shape, GEMM_PARTS));
        let mut random = Random::new(seed);
        let mut slots = vec![random.bytes(self.of.element, m * k)];
        slots.extend(n.iter().map(|n| random.bytes(self.of.element, k * n)));
        let result = self.of.result_size();
        slots.extend(n.iter().map(|n| vec![0; (result * m * n) as usize]));
        slots
    }

    /// Sums stay in f32 over all of K; one rounding. Those of integers are exact.
    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (m, k) = (shape["m"] as usize, shape["k"] as usize);
        let n = fused::sizes(shape, GEMM_PARTS);
        if self.of.element.precision().is_none() {
            let c = |part: usize| integer_product(&slots[0], &slots[1 + part], k);
            let parts = 0..n.len();
            return parts.map(|part| (1 + n.len() + part, c(part))).collect();
        }
        let a = floats(&slots[0]);
        let product = |part: usize| {
            let columns = n[part] as usize;
            let mut b = floats(&slots[1 + part]);
            if self.bt {
                b = transposed(&b, k);
            }
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
            ddr_bytes: self.of.size() * (m * k + k * n) + self.of.result_size() * m * n,
        }
    }
}
