//! The attention functions that a level must provide, and the table of the levels.

use super::scalar;
use crate::kv::{KvLayout, KvSide, KvType, TILE_TOKENS};
use crate::level::Level;
use std::ops::Range;

/// Sizes of a tile, in the form kernels need them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileShape {
    pub(crate) head_dim: usize,
    /// Row length of V tiles, queries and outputs: `head_dim` padded to 16.
    pub(crate) padded_dim: usize,
    /// Scales of a position ([`KvType::Q8_0`]).
    pub(crate) scale_blocks: usize,
    /// Bytes of scales before the elements.
    pub(crate) scale_bytes: usize,
    pub(crate) tile_bytes: usize,
}

impl TileShape {
    pub(crate) fn new(layout: &KvLayout) -> TileShape {
        TileShape {
            head_dim: layout.head_dim,
            padded_dim: layout.padded_dim(),
            scale_blocks: layout.scale_blocks(),
            scale_bytes: layout.scale_bytes(),
            tile_bytes: layout.tile_bytes(),
        }
    }

    /// Elements of a tile, padding included.
    pub(crate) fn tile_elems(&self) -> usize {
        TILE_TOKENS * self.padded_dim
    }
}

/// One to four neighbouring tiles of K or of V, of `tile_bytes` each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TileStrip<'a> {
    /// The first `n_tiles` are used.
    pub(crate) tiles: [&'a [u8]; 4],
    pub(crate) n_tiles: usize,
}

impl<'a> TileStrip<'a> {
    /// The first `n_tiles` of neighbouring tiles.
    pub(crate) fn new(tiles: &'a [u8], tile_bytes: usize, n_tiles: usize) -> TileStrip<'a> {
        let mut strip = TileStrip {
            n_tiles,
            ..TileStrip::default()
        };
        let tiles = tiles.chunks_exact(tile_bytes).take(n_tiles);
        for (slot, tile) in strip.tiles.iter_mut().zip(tiles) {
            *slot = tile;
        }
        strip
    }

    pub(crate) fn tiles(&self) -> &[&'a [u8]] {
        &self.tiles[..self.n_tiles]
    }
}

/// Scores of `n_rows` queries against the positions of a strip.
pub(crate) struct QkTask<'a> {
    pub(crate) shape: &'a TileShape,
    /// `[n_rows, padded_dim]`.
    pub(crate) q: &'a [f32],
    pub(crate) n_rows: usize,
    pub(crate) strip: TileStrip<'a>,
    /// Tiles that are read next, prefetched meanwhile; may be empty.
    pub(crate) ahead: TileStrip<'a>,
    /// Rows are [`super::SPAN_TOKENS`] apart; element 0 is the first row's score of the strip's
    /// first position.
    pub(crate) scores: &'a mut [f32],
}

/// Adds the values of a strip, weighted, to the sums of `n_rows` queries.
pub(crate) struct PvTask<'a> {
    pub(crate) shape: &'a TileShape,
    /// Rows are [`super::SPAN_TOKENS`] apart; element 0 is the first row's weight of the strip's
    /// first position.
    pub(crate) weights: &'a [f32],
    pub(crate) n_rows: usize,
    pub(crate) strip: TileStrip<'a>,
    /// Positions to add, counted from the strip's first. Slots outside may hold anything.
    pub(crate) keys: Range<usize>,
    /// Tiles that are read next; may be empty.
    pub(crate) ahead: TileStrip<'a>,
    /// `[n_rows, padded_dim]`.
    pub(crate) sums: &'a mut [f32],
}

impl QkTask<'_> {
    /// Panics unless every access of a kernel stays inside the slices.
    pub(crate) fn assert_sizes(&self) {
        let rows = self.n_rows;
        let scores = rows.saturating_sub(1) * super::SPAN_TOKENS + self.strip.n_tiles * TILE_TOKENS;
        assert!(self.q.len() >= rows * self.shape.padded_dim && self.scores.len() >= scores);
        assert!(
            self.strip
                .tiles()
                .iter()
                .all(|tile| tile.len() >= self.shape.tile_bytes)
        );
    }
}

impl PvTask<'_> {
    /// Panics unless every access of a kernel stays inside the slices.
    pub(crate) fn assert_sizes(&self) {
        let rows = self.n_rows;
        let weights = rows.saturating_sub(1) * super::SPAN_TOKENS + self.keys.end;
        assert!(self.weights.len() >= weights && self.sums.len() >= rows * self.shape.padded_dim);
        assert!(self.keys.end <= self.strip.n_tiles * TILE_TOKENS);
        assert!(
            self.strip
                .tiles()
                .iter()
                .all(|tile| tile.len() >= self.shape.tile_bytes)
        );
    }
}

/// One function for each [`KvType`] that kernels multiply, in the order of [`KvType::ALL`].
type ByType<F> = [F; 4];

/// Converts a tile to f32: `(shape, tile, out)`, `out` of [`TileShape::tile_elems`].
pub(crate) type Unpack = unsafe fn(&TileShape, &[u8], &mut [f32]);

/// The kernels of a level. Calling one is sound where the CPU has the level.
pub(crate) struct Leaves {
    qk: ByType<unsafe fn(QkTask<'_>)>,
    pv: ByType<unsafe fn(PvTask<'_>)>,
    unpack_k: ByType<Unpack>,
    unpack_v: ByType<Unpack>,
    /// See [`Leaves::softmax`].
    softmax: unsafe fn(&mut [f32], Range<usize>) -> (f32, f32),
    /// Maximum number of query rows for which `qk` and `pv` should convert elements as they go. For
    /// more, or if this is 0, tiles are unpacked first.
    pub(crate) direct_rows: usize,
    /// Functions for a cache of bf16, if it has its own.
    pairs: Option<PairLeaves>,
}

/// Kernels on pairs of bf16, for any number of rows: queries and weights are rounded first, tiles laid out in lines of pairs.
pub(crate) struct PairLeaves {
    /// Rounds `[n_rows, padded_dim]` in place.
    queries: unsafe fn(&TileShape, &mut [f32]),
    /// Rounds a row's weights in place, sixteen at a time.
    weights: unsafe fn(&mut [f32]),
    unpack_k: Unpack,
    unpack_v: Unpack,
    qk: unsafe fn(QkTask<'_>),
    pv: unsafe fn(PvTask<'_>),
}

impl PairLeaves {
    pub(crate) fn queries(&self, shape: &TileShape, q: &mut [f32]) {
        assert!(q.len().is_multiple_of(shape.padded_dim));
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.queries)(shape, q) }
    }

    pub(crate) fn weights(&self, weights: &mut [f32]) {
        // SAFETY: the table was chosen for a level this CPU has.
        unsafe { (self.weights)(weights) }
    }

    pub(crate) fn qk(&self, task: QkTask<'_>) {
        task.assert_sizes();
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { (self.qk)(task) }
    }

    pub(crate) fn pv(&self, task: PvTask<'_>) {
        task.assert_sizes();
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { (self.pv)(task) }
    }

    pub(crate) fn unpack(&self, side: KvSide, shape: &TileShape, tile: &[u8], out: &mut [f32]) {
        assert!(tile.len() >= shape.tile_bytes && out.len() >= shape.tile_elems());
        let unpack = match side {
            KvSide::K => self.unpack_k,
            KvSide::V => self.unpack_v,
        };
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { unpack(shape, tile, out) }
    }
}

static SCALAR: Leaves = Leaves {
    // Tiles are always unpacked first, so only the F32 kernels are ever called.
    qk: [scalar::qk; 4],
    pv: [scalar::pv; 4],
    unpack_k: [
        scalar::unpack_f32,
        scalar::unpack_f16,
        scalar::unpack_bf16,
        scalar::unpack_q8_k,
    ],
    unpack_v: [
        scalar::unpack_f32,
        scalar::unpack_f16,
        scalar::unpack_bf16,
        scalar::unpack_q8_v,
    ],
    softmax: scalar::softmax,
    direct_rows: 0,
    pairs: None,
};

#[cfg(target_arch = "x86_64")]
static AVX2: Leaves = {
    use crate::x86::avx2::attention as avx2;
    Leaves {
        qk: [avx2::qk_f32, avx2::qk_f16, avx2::qk_bf16, avx2::qk_q8_0],
        pv: [avx2::pv_f32, avx2::pv_f16, avx2::pv_bf16, avx2::pv_q8_0],
        unpack_k: [
            avx2::unpack_k_f32,
            avx2::unpack_k_f16,
            avx2::unpack_k_bf16,
            avx2::unpack_k_q8_0,
        ],
        unpack_v: [
            avx2::unpack_v_f32,
            avx2::unpack_v_f16,
            avx2::unpack_v_bf16,
            avx2::unpack_v_q8_0,
        ],
        softmax: avx2::softmax,
        direct_rows: 8,
        pairs: None,
    }
};

#[cfg(target_arch = "x86_64")]
static AVX512: Leaves = AVX512_LEAVES;

/// A cache of bf16 in tiles; every other type as without AMX.
#[cfg(target_arch = "x86_64")]
static AMX: Leaves = Leaves {
    pairs: Some(pairs::<crate::x86::amx::Amx>()),
    ..AVX512_LEAVES
};

/// [`AMX`] on the emulated unit, which any CPU with AVX-512 runs.
#[cfg(all(test, target_arch = "x86_64"))]
pub(super) static EMULATED: Leaves = Leaves {
    pairs: Some(pairs::<crate::x86::amx::EmulatedUnit>()),
    ..AVX512_LEAVES
};

#[cfg(target_arch = "x86_64")]
const fn pairs<U: crate::x86::amx::TileUnit>() -> PairLeaves {
    use crate::x86::amx::attention as amx;
    PairLeaves {
        queries: amx::queries,
        weights: amx::weights,
        unpack_k: amx::unpack_k,
        unpack_v: amx::unpack_v,
        qk: amx::qk::<U>,
        pv: amx::pv::<U>,
    }
}

#[cfg(target_arch = "x86_64")]
const AVX512_LEAVES: Leaves = {
    use crate::x86::avx512::attention as avx512;
    Leaves {
        qk: [
            avx512::qk_f32,
            avx512::qk_f16,
            avx512::qk_bf16,
            avx512::qk_q8_0,
        ],
        pv: [
            avx512::pv_f32,
            avx512::pv_f16,
            avx512::pv_bf16,
            avx512::pv_q8_0,
        ],
        unpack_k: [
            avx512::unpack_k_f32,
            avx512::unpack_k_f16,
            avx512::unpack_k_bf16,
            avx512::unpack_k_q8_0,
        ],
        unpack_v: [
            avx512::unpack_v_f32,
            avx512::unpack_v_f16,
            avx512::unpack_v_bf16,
            avx512::unpack_v_q8_0,
        ],
        softmax: avx512::softmax,
        direct_rows: 8,
        pairs: None,
    }
};

#[cfg(target_arch = "aarch64")]
static NEON: Leaves = {
    use crate::aarch64::attention as neon;
    Leaves {
        qk: [neon::qk_f32, neon::qk_f16, neon::qk_bf16, neon::qk_q8_0],
        pv: [neon::pv_f32, neon::pv_f16, neon::pv_bf16, neon::pv_q8_0],
        unpack_k: [
            neon::unpack_k_f32,
            neon::unpack_k_f16,
            neon::unpack_k_bf16,
            neon::unpack_k_q8_0,
        ],
        unpack_v: [
            neon::unpack_v_f32,
            neon::unpack_v_f16,
            neon::unpack_v_bf16,
            neon::unpack_v_q8_0,
        ],
        softmax: neon::softmax,
        direct_rows: 8,
        pairs: None,
    }
};

impl Leaves {
    /// The kernels of `level`. Only for a level this CPU has: [`crate::Cpu`] is the proof.
    pub(crate) fn for_level(level: Level) -> &'static Leaves {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => &AVX2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 => &AVX512,
            #[cfg(target_arch = "x86_64")]
            Level::Amx => &AMX,
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::DotProd | Level::I8mm => &NEON,
            _ => &SCALAR,
        }
    }

    /// The kernels on pairs, if a cache of this type uses them.
    pub(crate) fn pairs(&self, dtype: KvType) -> Option<&PairLeaves> {
        self.pairs.as_ref().filter(|_| dtype == KvType::BF16)
    }

    pub(crate) fn qk(&self, dtype: KvType, task: QkTask<'_>) {
        task.assert_sizes();
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { self.qk[dtype as usize](task) }
    }

    pub(crate) fn pv(&self, dtype: KvType, task: PvTask<'_>) {
        task.assert_sizes();
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { self.pv[dtype as usize](task) }
    }

    pub(crate) fn unpack_k(&self, dtype: KvType, shape: &TileShape, tile: &[u8], out: &mut [f32]) {
        assert!(tile.len() >= shape.tile_bytes && out.len() >= shape.tile_elems());
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { self.unpack_k[dtype as usize](shape, tile, out) }
    }

    pub(crate) fn unpack_v(&self, dtype: KvType, shape: &TileShape, tile: &[u8], out: &mut [f32]) {
        assert!(tile.len() >= shape.tile_bytes && out.len() >= shape.tile_elems());
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { self.unpack_v[dtype as usize](shape, tile, out) }
    }

    /// Replaces the scores of the `valid` positions by `2^(score - max)` and all others by 0.
    /// Returns the maximum and the sum (`(NO_SCORE, 0)` if none is valid). Scores come in vectors
    /// of 16 that start at a multiple of 16 positions.
    pub(crate) fn softmax(&self, scores: &mut [f32], valid: Range<usize>) -> (f32, f32) {
        assert!(scores.len().is_multiple_of(TILE_TOKENS) && valid.end <= scores.len());
        // SAFETY: the table was chosen for a level this CPU has, and the sizes are checked.
        unsafe { (self.softmax)(scores, valid) }
    }
}
