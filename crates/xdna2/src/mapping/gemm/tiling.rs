//! Legal tilings of a GEMM, and the choice among them.

use super::{Gemm, GemmDims, Path};
use crate::mapping::parts::{Checks, largest_divisor};
use crate::mapping::streaming;
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, Tiling};
use millrace_xdna2_machine::Machine;

/// Bytes of a core's buffers.
fn l1_bytes(gemm: &Gemm, p: &GemmDims) -> u64 {
    let inputs = p.l1_depth * 2 * p.tk * (p.tm + p.tn);
    let tile = p.tm * p.tn;
    if gemm.keeps_sums() {
        inputs + 4 * tile + 2 * tile / p.chunks
    } else {
        inputs + 4 * tile
    }
}

/// Bytes of the fullest memory tile: it holds A, B and C.
fn l2_bytes(gemm: &Gemm, p: &GemmDims, machine: &Machine) -> u64 {
    let c = gemm.c_element().size_bytes() * p.rows * p.tm * p.tn;
    let a = p.l2_copies * 2 * p.tm * p.kl2;
    let b = p.l2_copies * 2 * p.kl2 * p.tn;
    // With fewer columns than rows, some memory tiles hold B alone; column 0 always holds all.
    debug_assert!(p.b_step(machine) > 0);
    a + b + c
}

/// Refuses tilings that the builder cannot lay out or the machine cannot hold.
pub(super) fn check(gemm: &Gemm, p: &GemmDims, machine: &Machine) -> Result<(), BuildError> {
    let checks = Checks { mapping: gemm.name };
    checks.herd(p.cols, p.rows, machine)?;
    checks.ensure(p.rows <= u64::from(machine.cols), Rule::Herd, || {
        let cols = machine.cols;
        format!(
            "{} rows need as many memory tiles for B; the array has {cols}",
            p.rows
        )
    })?;
    for (name, size) in [("tile_m", p.tm), ("tile_n", p.tn), ("tile_k_l1", p.tk)] {
        checks.divides((name, size), ("the matrix unit's edge", 8))?;
    }
    checks.divides(("m", p.m), ("cols * tile_m", p.cols * p.tm))?;
    checks.divides(("n", p.n), ("rows * tile_n", p.rows * p.tn))?;
    checks.divides(("k", p.k), ("tile_k_l2", p.kl2))?;
    checks.divides(("tile_k_l2", p.kl2), ("tile_k_l1", p.tk))?;
    checks.divides(("tile_n / 8", p.tn / 8), ("drain_chunks", p.chunks))?;
    checks.ensure(gemm.keeps_sums() || p.chunks == 1, Rule::Range, || {
        format!(
            "drain_chunks = {} is for bf16 output; set it to 1",
            p.chunks
        )
    })?;
    for (name, value) in [("l1_depth", p.l1_depth), ("l2_copies", p.l2_copies)] {
        checks.ensure((1..=2).contains(&value), Rule::Range, || {
            format!("{name} = {value}; it is 1, or 2 for ping-pong")
        })?;
    }
    checks.l1(l1_bytes(gemm, p), machine)?;
    checks.l2(l2_bytes(gemm, p, machine), machine)?;
    if gemm.bt {
        checks.stride("a row of B's transpose", 2 * p.k, machine)?;
    } else if p.k > p.kl2 {
        checks.stride("tile_k_l2 * n", 2 * p.kl2 * p.n, machine)?;
    }
    checks.stride("a row of A", 2 * p.k, machine)?;
    let c_bytes = gemm.c_element().size_bytes();
    checks.stride("a row of C", c_bytes * p.n, machine)
}

/// Refuses casts that do not fit.
pub(super) fn check_cast(
    gemm: &Gemm,
    p: &GemmDims,
    tiling: &Tiling,
    machine: &Machine,
) -> Result<(), BuildError> {
    let checks = Checks { mapping: gemm.name };
    let (tile, cols) = (tiling["cast_tile"], tiling["cast_cols"]);
    checks.herd(cols, 1, machine)?;
    checks.divides(("m * n", p.m * p.n), ("cast_cols * cast_tile", cols * tile))?;
    checks.ensure(tile.is_multiple_of(2), Rule::Granularity, || {
        format!("cast_tile = {tile}: its bf16 results end within an address unit of 4 bytes")
    })?;
    checks.l1(2 * 6 * tile, machine)
}

/// The tiled to start from: the largest tiles that the registry of MLIR-AIR recommends and the shape
/// divides into.
fn start(gemm: &Gemm, shape: &Shape, machine: &Machine) -> GemmDims {
    let (m, k, n) = (shape["m"], shape["k"], shape["n"]);
    let widest = |total: u64, limit: u32| {
        (1..=u64::from(limit))
            .rev()
            .find(|c| (total / 8).is_multiple_of(*c))
            .unwrap_or(1)
    };
    let (cols, rows) = (widest(m, machine.cols), widest(n, machine.rows));
    let tile_m = if gemm.path == Path::Drain { 32 } else { 64 };
    let tile = |total: u64, limit| largest_divisor(total, limit, 8).max(8);
    let tk = tile(k, 32);
    GemmDims {
        m,
        k,
        n,
        tm: tile(m / cols, tile_m),
        kl2: largest_divisor(k, 256, tk).max(tk),
        tk,
        tn: tile(n / rows, 128),
        cols,
        rows,
        l1_depth: 2,
        l2_copies: 2,
        chunks: 1,
    }
}

/// The default: the start, with more pieces of C, fewer copies or smaller tiles until it fits.
pub(super) fn default(gemm: &Gemm, shape: &Shape, machine: &Machine) -> Tiling {
    let mut p = start(gemm, shape, machine);
    if gemm.keeps_sums() {
        let groups = p.tn / 8;
        let limit = machine.core.data_bytes - machine.stack_bytes;
        p.chunks = (1..=groups)
            .filter(|&c| groups.is_multiple_of(c))
            .find(|&chunks| l1_bytes(gemm, &GemmDims { chunks, ..p }) <= limit)
            .unwrap_or(groups);
    }
    while check(gemm, &p, machine).is_err() {
        let smaller = largest_divisor(p.k, p.kl2 - 1, p.tk);
        if smaller == 0 {
            break;
        }
        p.kl2 = smaller;
    }
    tiling(gemm, &p, machine)
}

fn tiling(gemm: &Gemm, p: &GemmDims, machine: &Machine) -> Tiling {
    let cast = (gemm.path == Path::FusedCast).then(|| streaming::cast_default(p.m * p.n, machine));
    named(p, cast)
}

/// Legal tilings on the widest herd.
pub(super) fn all(gemm: &Gemm, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let base = start(gemm, shape, machine);
    let mut tilings = vec![default(gemm, shape, machine)];
    for tm in [8, 16, 32, 48, 64, 96, 128] {
        for tn in [16, 32, 48, 64, 80, 96, 128, 192, 256] {
            for kl2 in [32, 64, 128, 256, 512] {
                for tk in [32, 64] {
                    for chunks in [1, 2, 4] {
                        let p = GemmDims {
                            tm,
                            tn,
                            kl2,
                            tk,
                            chunks,
                            ..base
                        };
                        if check(gemm, &p, machine).is_ok() {
                            tilings.push(tiling(gemm, &p, machine));
                        }
                    }
                }
            }
        }
    }
    tilings.retain(|t| check(gemm, &GemmDims::new(shape, t), machine).is_ok());
    tilings[..].sort_by_key(|t| t.iter().map(|(_, v)| v).collect::<Vec<_>>());
    tilings.dedup();
    tilings
}

/// The names of a GEMM's tiling, in order.
fn named(p: &GemmDims, cast: Option<(u64, u64)>) -> Tiling {
    let mut pairs = vec![
        ("tile_m", p.tm),
        ("tile_k_l2", p.kl2),
        ("tile_k_l1", p.tk),
        ("tile_n", p.tn),
        ("cols", p.cols),
        ("rows", p.rows),
        ("l1_depth", p.l1_depth),
        ("l2_copies", p.l2_copies),
        ("drain_chunks", p.chunks),
    ];
    if let Some((tile, cols)) = cast {
        pairs.push(("cast_tile", tile));
        pairs.push(("cast_cols", cols));
    }
    NamedNumbers::new(&pairs)
}
