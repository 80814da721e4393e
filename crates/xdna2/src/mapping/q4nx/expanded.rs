//! bf16 GEMMs of weights that a launch before them has expanded to DDR: a prompt's projections as in the Gemma paper
//! (§3.1.1 and §3.1.2). Its twin [`gemm-q4nx`](super::gemm) expands within the product instead, again for every step
//! over M, but no bf16 weight goes to DDR and back.
//!
//! The first launch is [`Expand`]'s, the next is [`gemm-megatile`](super::super::megatile)'s, with the expanded
//! weights in intermediate slots between them, as panels `[n / 8][k][8]`. Numbers are `gemm-q4nx`'s bit for bit.

use super::super::fused::{self, GEMM_PARTS};
use super::super::megatile::{self, Layout, TILING};
use super::super::parts::{Checks, slot};
use super::super::{
    BuildError, LeastWork, Mapping, NamedNumbers, Shape, ShapeError, Tiling, Tolerance,
};
use super::expand::Expand;
use super::gemm::GemmQ4nx;
use super::{unit, weight_slot};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::{Machine, Numerics, Profile, Program};

/// The mapping.
pub(crate) struct ExpandedGemm;

/// The mapping's name.
pub(crate) const NAME: &str = "gemm-q4nx-ddr";

/// Layout of expanded weights.
const PANELS: Layout = Layout::Panels;

/// Columns of the array that expand, in a tiling.
const EXPAND_COLS: &str = "expand_cols";

/// The product's tiling with the columns that expand.
fn with_cols(product: &Tiling, cols: u64) -> Tiling {
    let mut pairs = TILING.map(|name| (name, product[name])).to_vec();
    pairs.push((EXPAND_COLS, cols));
    NamedNumbers::new(&pairs)
}

/// The product's tiling.
fn product(tiling: &Tiling) -> Tiling {
    NamedNumbers::new(&TILING.map(|name| (name, tiling[name])))
}

fn expanded(shape: &Shape, products: Vec<Tiling>, machine: &Machine) -> Vec<Tiling> {
    let cols = Expand::most_cols(&n_of(shape), machine);
    let all = products.iter().map(|product| with_cols(product, cols));
    all.collect()
}

impl Mapping for ExpandedGemm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "C0 = A W0', ..., W[N,K] expanded from Q4NX blocks to bf16 in DDR by a launch before; MxKxN0+N1+..."
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        GemmQ4nx.parse_shape(text)
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let cols = Expand::most_cols(&n_of(shape), machine);
        with_cols(&megatile::default(PANELS, shape, machine), cols)
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        expanded(shape, megatile::all(PANELS, shape, machine), machine)
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let checks = Checks { mapping: NAME };
        checks.bounded(shape, tiling)?;
        let (m, k, n) = (shape["m"], shape["k"], n_of(shape));
        let expand = Expand::new(&n, k, tiling[EXPAND_COLS]);
        expand.check(checks, machine)?;
        let products = megatile::launches(checks, PANELS, (shape, &product(tiling)), machine)?;
        let (parts, side, bf16) = (n.len(), unit(&n), Element::Bf16);
        let columns = || n.iter().enumerate();
        let blocks = |(i, &n)| weight_slot(&format!("w{i}"), [n, k], side);
        let weights = |(i, &n)| {
            slot(
                &format!("b{i}"),
                bf16,
                &PANELS.shape(k, n),
                Role::Intermediate,
            )
        };
        let results = |(i, &n)| slot(&format!("c{i}"), bf16, &[m, n], Role::Output);
        let mut slots = vec![slot("a", bf16, &[m, k], Role::Input)];
        slots.extend(columns().map(blocks));
        slots.extend(columns().map(weights));
        slots.extend(columns().map(results));
        let mut launches = vec![expand.launch(&(1..1 + 2 * parts).collect::<Vec<_>>())];
        launches.extend(products);
        // Their weights are those that the first launch has written.
        for launch in &mut launches[1..] {
            let args = launch.args.iter_mut().filter(|arg| **arg > 0);
            args.for_each(|arg| *arg += parts);
        }
        Ok(Program {
            name: NAME.replace('-', "_"),
            slots,
            launches,
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (k, n) = (shape["k"], n_of(shape));
        let mut slots = GemmQ4nx.inputs(shape, seed);
        let weights = n.iter().map(|n| vec![0; 2 * (n * k) as usize]);
        let after = 1 + n.len();
        slots.splice(after..after, weights);
        slots
    }

    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let parts = n_of(shape).len();
        let results = GemmQ4nx.reference_in(numerics, shape, tiling, slots);
        let moved = results
            .into_iter()
            .map(|(slot, bytes)| (slot + parts, bytes));
        moved.collect()
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    /// Least work of the product, for either source of its weights.
    fn work(&self, shape: &Shape) -> LeastWork {
        GemmQ4nx.work(shape)
    }
}

/// Columns of each product.
fn n_of(shape: &Shape) -> Vec<u64> {
    fused::sizes(shape, GEMM_PARTS)
}

/// Legal tilings, those first whose product is estimated to take least: expanding takes the same time in all.
pub(crate) fn ranked(shape: &Shape, machine: &Machine, profile: &Profile) -> Vec<Tiling> {
    let products = megatile::ranked(PANELS, shape, machine, profile);
    expanded(shape, products, machine)
}
