//! Megatile GEMM of the Gemma 3 paper (§3.1.2), the prefill projection of its decoder.
//!
//! A core computes tiles `m × n`; the array a *supertile* of `cols·m × rows·n`. Memory tiles hold
//! blocks of A and B for a *megatile* of `cols·e_y·m × rows·e_x·n` and stream them several times:
//! A `[e_y·m, k]` of a column `e_x` times, B `[k, n]` of a row `e_y` times. DDR then moves
//! `N / (rows·e_x·n)` times A and `M / (cols·e_y·m)` times B (its equation 5). A core keeps the
//! `e_x · e_y` sums of its tiles in L1 over all of K; C is gathered in L2 and leaves core by core.
//! Tasks of the next megatile are queued behind those of this one, so nothing waits for C. Several products of one A
//! are one launch.
//!
//! M need only be a multiple of `e_y·m`. The rest after whole megatiles is computed by a second launch on the columns
//! it needs, so a short prompt is padded by less than `e_y·m` rows.
//!
//! B is `[k, n]`. If a launch before writes it for this one ([`Layout::Panels`]), it is `[n / 8][k][8]`, the order in
//! which cores take it, so that DDR is read in runs of `16 · tile_k_l2` bytes.

mod launch;
mod tiling;

use super::data::{Random, bf16_bytes, floats};
use super::fused::{self, GEMM_PARTS};
use super::gemm::accumulate;
use super::parts::{Checks, slot};
use super::{BuildError, LeastWork, Mapping, Shape, ShapeError, Tiling, Tolerance};
use launch::MegatileLaunch;
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::Launch;
use millrace_xdna2_machine::{Machine, Numerics, Program};
use tiling::MegatileDims;

pub(super) use tiling::{TILING, all, default, ranked};

/// The megatile GEMM.
pub(super) struct Megatile;

/// The product's kernel object.
const MATMUL: &str = "matmul_bf16_f32.flm";

/// Layout of B in DDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `[k, n]`.
    Rows,
    /// `[n / 8][k][8]`.
    Panels,
}

/// Columns of a panel of B: the matrix unit's edge.
pub(super) const PANEL: u64 = 8;

impl Layout {
    /// The slot's shape.
    pub(super) fn shape(self, k: u64, n: u64) -> Vec<u64> {
        match self {
            Layout::Rows => vec![k, n],
            Layout::Panels => vec![n / PANEL, k, PANEL],
        }
    }
}

/// The launches of these products, whose arguments are A, every B, every C.
pub(super) fn launches(
    checks: Checks,
    layout: Layout,
    (shape, tiling): (&Shape, &Tiling),
    machine: &Machine,
) -> Result<Vec<Launch>, BuildError> {
    let p = MegatileDims::new(layout, shape, tiling);
    checks.bounded(shape, tiling)?;
    tiling::check(&p, checks, machine)?;
    let parts = p.parts().into_iter();
    Ok(parts.map(|part| part.launch(machine)).collect())
}

impl MegatileDims {
    /// Whole megatiles, then the rows that remain.
    fn parts(&self) -> Vec<MegatileLaunch<'_>> {
        let whole = self.m / self.mega_m();
        let first_row = whole * self.mega_m();
        let rest = (self.m - first_row) / self.height();
        let parts = [
            ("megatiles", 0, whole, self.cols),
            ("rest", first_row, 1, rest),
        ];
        let parts = parts.into_iter().filter(|part| part.2 * part.3 > 0);
        let parts = parts.map(|(name, first_row, n_down, cols)| MegatileLaunch {
            tiled: self,
            name,
            first_row,
            n_down,
            cols,
        });
        parts.collect()
    }
}

impl Mapping for Megatile {
    fn name(&self) -> &'static str {
        "gemm-megatile"
    }

    fn summary(&self) -> &'static str {
        "C0 = A B0, ..., in megatiles, bf16 in and out, M in steps of e_y * tile_m; MxKxN0+N1+..."
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        fused::parse_gemm(text)
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        default(Layout::Rows, shape, machine)
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        all(Layout::Rows, shape, machine)
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let checks = Checks {
            mapping: self.name(),
        };
        let layout = Layout::Rows;
        let launches = launches(checks, layout, (shape, tiling), machine)?;
        let (m, k, n) = (shape["m"], shape["k"], fused::sizes(shape, GEMM_PARTS));
        let bf16 = Element::Bf16;
        let columns = || n.iter().enumerate();
        let b = |(i, &n)| slot(&format!("b{i}"), bf16, &layout.shape(k, n), Role::Static);
        let c = |(i, &n)| slot(&format!("c{i}"), bf16, &[m, n], Role::Output);
        let mut slots = vec![slot("a", bf16, &[m, k], Role::Input)];
        slots.extend(columns().map(b));
        slots.extend(columns().map(c));
        Ok(Program {
            name: "gemm_megatile".to_owned(),
            slots,
            launches,
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (m, k, n) = (shape["m"], shape["k"], fused::sizes(shape, GEMM_PARTS));
        let mut random = Random::new(seed);
        let mut slots = vec![random.bf16_bytes(m * k, 1.0)];
        slots.extend(n.iter().map(|n| random.bf16_bytes(k * n, 1.0)));
        slots.extend(n.iter().map(|n| vec![0; 2 * (m * n) as usize]));
        slots
    }

    /// Sums stay in f32 over all of K; one rounding.
    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (m, k) = (shape["m"] as usize, shape["k"] as usize);
        let n = fused::sizes(shape, GEMM_PARTS);
        let a = floats(&slots[0]);
        let product = |part: usize| {
            let (b, columns) = (floats(&slots[1 + part]), n[part] as usize);
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
            ddr_bytes: 2 * (m * k + k * n + m * n),
        }
    }
}

#[cfg(test)]
mod tests;
