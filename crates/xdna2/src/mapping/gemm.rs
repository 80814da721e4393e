//! bf16 GEMM on up to 8 × 4 cores, the prefill kernel of MLIR-AIR's Llama-3.2-1B example.
//!
//! A launch iteration computes `cols · tile_m` rows and `rows · tile_n` columns of C. Column `x` of
//! the herd owns `tile_m` of the rows: its memory tile holds A `[tile_m, tile_k_l2]`, broadcast to
//! the column's cores in chunks of `tile_k_l1`. Row `y` owns `tile_n` of the columns: one memory
//! tile holds B `[tile_k_l2, tile_n]`, broadcast along the row. C is gathered per column as
//! `[rows, tile_m, tile_n]`. That takes one shim stream a column for A, one a row for B; on a
//! memory tile at most 6 S2MM (A, B, 4 of C) and 3 MM2S channels.
//!
//! Cores see A as `[k/8][m/8][8][8]`, B as `[k-chunk][n/8][k/8][8][8]`, C as `[n/8][m/8][8][8]`;
//! the memory tiles' access patterns make and undo these layouts.
//!
//! The mappings named `-bt` take B as checkpoints store it, `[n, k]`, so that prefill and decode
//! read one copy of a weight. Memory tiles then hold `[tile_n, tile_k_l2]` and hand it on as A's, in
//! `[k/8][n/8][8 n][8 k]`; cores transpose the blocks in registers (mlir-aie's `mm.cc` with
//! `b_col_maj`). Sums are the same bits.

mod launch;
mod reference;
mod tiling;

pub(super) use reference::{accumulate, transposed};

use super::data::Random;
use super::parts::{Checks, slot};
use super::{BuildError, LeastWork, Mapping, Shape, ShapeError, Tiling, Tolerance, parse_dims};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::{Machine, Numerics, Program};

/// How C leaves the cores (`GEMM_bf16_in_bf16_out.md` of MLIR-AIR's kernel registry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// f32 to DDR.
    F32,
    /// f32 to a scratch slot, then a launch that casts it.
    FusedCast,
    /// One cast in the core, f32 sums until then.
    Drain,
    /// Sums truncated to bf16 after every L2 tile of k.
    Direct,
    /// f32 to DDR, compiler-generated inner loops.
    DirectF32,
}

/// A GEMM with one of the output paths.
pub(super) struct Gemm {
    name: &'static str,
    summary: &'static str,
    path: Path,
    /// B is `[n, k]` in DDR.
    bt: bool,
}

/// `C` in f32.
pub(super) const F32: Gemm = Gemm {
    name: "gemm-f32",
    summary: "C[M,N] = A[M,K] B[K,N], bf16 in, f32 out; MxKxN",
    path: Path::F32,
    bt: false,
};

/// `C` in bf16, cast by a second launch.
pub(super) const FUSED_CAST: Gemm = Gemm {
    name: "gemm-fused-cast",
    summary: "C = A B, bf16 in and out, f32 scratch in DDR and a cast launch; MxKxN",
    path: Path::FusedCast,
    bt: false,
};

/// `C` in bf16, cast in the cores.
pub(super) const DRAIN: Gemm = Gemm {
    name: "gemm-drain",
    summary: "C = A B, bf16 in and out, cast once in the cores; MxKxN",
    path: Path::Drain,
    bt: false,
};

/// `C` in bf16, truncated after every L2 tile of k.
pub(super) const DIRECT: Gemm = Gemm {
    name: "gemm-direct",
    summary: "C = A B, bf16 in and out, sums truncated to bf16 once an L2 tile; MxKxN",
    path: Path::Direct,
    bt: false,
};

/// `C` in f32, compiler-generated inner loops.
pub(super) const DIRECT_F32: Gemm = Gemm {
    name: "gemm-direct-f32",
    summary: "C = A B, bf16 in, f32 out, compiler-generated inner loops; MxKxN",
    path: Path::DirectF32,
    bt: false,
};

/// [`DRAIN`] with B as `[n, k]`.
pub(super) const DRAIN_BT: Gemm = Gemm {
    name: "gemm-drain-bt",
    summary: "C = A Bt, Bt[N,K] as checkpoints store it, cast once in the cores; MxKxN",
    path: Path::Drain,
    bt: true,
};

/// [`DIRECT`] with B as `[n, k]`.
pub(super) const DIRECT_BT: Gemm = Gemm {
    name: "gemm-direct-bt",
    summary: "C = A Bt, Bt[N,K], sums truncated to bf16 once an L2 tile; MxKxN",
    path: Path::Direct,
    bt: true,
};

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
struct GemmDims {
    m: u64,
    k: u64,
    n: u64,
    tm: u64,
    kl2: u64,
    tk: u64,
    tn: u64,
    cols: u64,
    rows: u64,
    l1_depth: u64,
    l2_copies: u64,
    /// Pieces in which a core sends its tile of C.
    chunks: u64,
}

impl GemmDims {
    fn new(shape: &Shape, tiling: &Tiling) -> GemmDims {
        GemmDims {
            m: shape["m"],
            k: shape["k"],
            n: shape["n"],
            tm: tiling["tile_m"],
            kl2: tiling["tile_k_l2"],
            tk: tiling["tile_k_l1"],
            tn: tiling["tile_n"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            l1_depth: tiling["l1_depth"],
            l2_copies: tiling["l2_copies"],
            chunks: tiling["drain_chunks"],
        }
    }

    /// Column of the memory tile that holds B for row `i0`: spread over the array, since a shim has
    /// two MM2S channels and A takes one.
    fn b_step(&self, machine: &Machine) -> u64 {
        (u64::from(machine.cols) / self.rows).max(1)
    }
}

impl Gemm {
    /// Type of C on its way from the cores.
    fn c_element(&self) -> Element {
        match self.path {
            Path::F32 | Path::FusedCast | Path::DirectF32 => Element::F32,
            Path::Drain | Path::Direct => Element::Bf16,
        }
    }

    /// Whether sums are kept separate from the block that is sent.
    fn keeps_sums(&self) -> bool {
        self.c_element() == Element::Bf16
    }

    fn kernel(&self) -> &'static str {
        let is_generated = matches!(self.path, Path::Direct | Path::DirectF32);
        match (self.bt, is_generated) {
            (false, false) => "matmul_bf16_f32.peano",
            (false, true) => "matmul_bf16_f32.direct",
            (true, false) => "matmul_bt_bf16_f32.peano",
            (true, true) => "matmul_bt_bf16_f32.direct",
        }
    }
}

impl Mapping for Gemm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse_dims(text, ["m", "k", "n"])
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        tiling::default(self, shape, machine)
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
        let p = GemmDims::new(shape, tiling);
        Checks { mapping: self.name }.bounded(shape, tiling)?;
        tiling::check(self, &p, machine)?;
        if self.path == Path::FusedCast {
            tiling::check_cast(self, &p, tiling, machine)?;
        }
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let c = |name, element, role| slot(name, element, &[p.m, p.n], role);
        let b = if self.bt {
            slot("b", bf16, &[p.n, p.k], Role::Static)
        } else {
            slot("b", bf16, &[p.k, p.n], Role::Static)
        };
        let mut slots = vec![slot("a", bf16, &[p.m, p.k], Role::Input), b];
        let mut launches = vec![self.gemm_launch(&p, machine)];
        if self.path == Path::FusedCast {
            slots.push(c("c_f32", f32, Role::Intermediate));
            slots.push(c("c", bf16, Role::Output));
            launches.push(super::streaming::cast_launch(
                "cast",
                [2, 3],
                p.m * p.n,
                tiling["cast_tile"],
                tiling["cast_cols"],
            ));
        } else {
            slots.push(c("c", self.c_element(), Role::Output));
        }
        Ok(Program {
            name: self.name.replace('-', "_"),
            slots,
            launches,
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (m, k, n) = (shape["m"], shape["k"], shape["n"]);
        let mut random = Random::new(seed);
        let a = random.bf16_bytes(m * k, 1.0);
        let b = random.bf16_bytes(k * n, 1.0);
        let zeros = |element: Element| vec![0; (m * n * element.size_bytes()) as usize];
        let mut slots = vec![a, b, zeros(self.c_element())];
        if self.path == Path::FusedCast {
            slots.push(zeros(Element::Bf16));
        }
        slots
    }

    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        reference::run(numerics, self, &GemmDims::new(shape, tiling), slots)
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let (m, k, n) = (shape["m"], shape["k"], shape["n"]);
        let c_bytes = match self.path {
            Path::F32 | Path::DirectF32 => 4,
            Path::FusedCast | Path::Drain | Path::Direct => 2,
        };
        LeastWork {
            flops: 2 * m * k * n,
            ddr_bytes: 2 * (m * k + k * n) + c_bytes * m * n,
        }
    }
}
