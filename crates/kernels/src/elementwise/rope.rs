//! Rotary position embedding and its table of angles.

use super::body::Rotation;
use super::{ElementwiseKernels, SERIAL_ELEMS};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use std::sync::OnceLock;

/// Positions whose angles are computed together.
const BLOCK_POSITIONS: usize = 256;

/// Positions that are kept; further ones are computed each time they are used.
const KEPT_POSITIONS: usize = 1 << 18;

/// Rotated pairs of a head, at most; beyond any model's, small enough for the stack.
const MAX_PAIRS: usize = 512;

/// Frequencies of a rotary embedding, and the cosines and sines of the positions used so far.
///
/// The angle of pair `i` at position `p` is the f32 product `p · inv_freq[i]`, as in the reference
/// implementation. Its cosine and sine are rounded from f64 and then multiplied by
/// `attention_factor`. They are computed once a position, in blocks of 256, on first use (or by
/// [`RopeTable::warm`]) and shared by all layers and heads.
pub struct RopeTable {
    interleaved: bool,
    inv_freq: Vec<f32>,
    attention_factor: f32,
    /// `[BLOCK_POSITIONS][cos of n_rot / 2, sin of n_rot / 2]` each.
    blocks: Vec<OnceLock<Box<[f32]>>>,
}

impl RopeTable {
    /// A table for heads whose first `2 * inv_freq.len()` dimensions rotate.
    ///
    /// Pairs are `(x[2 i], x[2 i + 1])` if `interleaved`, otherwise `(x[i], x[i + inv_freq.len()])`.
    /// `attention_factor` scales queries and keys (1 except in some long-context scalings).
    ///
    /// # Panics
    /// If there are more than 512 frequencies.
    #[must_use]
    pub fn new(interleaved: bool, inv_freq: Vec<f32>, attention_factor: f32) -> RopeTable {
        assert!(
            inv_freq.len() <= MAX_PAIRS,
            "{} frequencies",
            inv_freq.len()
        );
        let n_blocks = KEPT_POSITIONS / BLOCK_POSITIONS;
        let blocks = std::iter::repeat_with(OnceLock::new)
            .take(n_blocks)
            .collect();
        RopeTable {
            interleaved,
            inv_freq,
            attention_factor,
            blocks,
        }
    }

    /// Whether neighbours are pairs, rather than halves.
    #[must_use]
    pub fn interleaved(&self) -> bool {
        self.interleaved
    }

    /// Dimensions of a head that rotate, from the first on.
    #[must_use]
    pub fn n_rot(&self) -> usize {
        2 * self.inv_freq.len()
    }

    /// Angle a position, for each pair.
    #[must_use]
    pub fn inv_freq(&self) -> &[f32] {
        &self.inv_freq
    }

    /// Factor on cosines and sines.
    #[must_use]
    pub fn attention_factor(&self) -> f32 {
        self.attention_factor
    }

    /// Computes the angles of the positions before `n_positions` now, so that steps need not.
    pub fn warm(&self, n_positions: usize) {
        for block in 0..n_positions.min(KEPT_POSITIONS).div_ceil(BLOCK_POSITIONS) {
            self.block(block);
        }
    }

    fn block(&self, block: usize) -> &[f32] {
        self.blocks[block].get_or_init(|| {
            let mut rows = vec![0.0; BLOCK_POSITIONS * self.n_rot()];
            if self.n_rot() > 0 {
                let first = block * BLOCK_POSITIONS;
                for (row, pos) in rows.chunks_exact_mut(self.n_rot()).zip(first..) {
                    self.fill(pos, row);
                }
            }
            rows.into_boxed_slice()
        })
    }

    /// Writes the cosines, then the sines, of a position.
    fn fill(&self, pos: usize, row: &mut [f32]) {
        let (cos, sin) = row.split_at_mut(self.inv_freq.len());
        for ((cos, sin), inv_freq) in cos.iter_mut().zip(sin).zip(&self.inv_freq) {
            let angle = f64::from(pos as f32 * inv_freq);
            *cos = angle.cos() as f32 * self.attention_factor;
            *sin = angle.sin() as f32 * self.attention_factor;
        }
    }

    /// Cosines and sines of a position; `spare` holds them if the table does not keep them.
    fn rotation<'a>(&'a self, pos: usize, spare: &'a mut [f32; 2 * MAX_PAIRS]) -> Rotation<'a> {
        let n_rot = self.n_rot();
        let row: &[f32] = if pos < KEPT_POSITIONS {
            &self.block(pos / BLOCK_POSITIONS)[pos % BLOCK_POSITIONS * n_rot..][..n_rot]
        } else {
            self.fill(pos, &mut spare[..n_rot]);
            &spare[..n_rot]
        };
        let (cos, sin) = row.split_at(self.inv_freq.len());
        Rotation { cos, sin }
    }
}

/// Rotates the heads of each row of `x` (`[positions.len(), n_heads * head_dim]` f32, in place) by
/// the angles of the row's position.
///
/// # Panics
/// If `x` is not whole heads in every row, or the table rotates more dimensions than a head has.
pub fn rope(cpu: &Cpu, x: &mut [f32], head_dim: usize, positions: &[u32], table: &RopeTable) {
    rope_from(cpu, x, (head_dim, 0), positions, table);
}

/// As [`rope`], where the rotating dimensions begin at `first`; those before it are unchanged.
///
/// # Panics
/// As [`rope`], also if the table rotates dimensions beyond the head.
pub fn rope_from(
    cpu: &Cpu,
    x: &mut [f32],
    (head_dim, first): (usize, usize),
    positions: &[u32],
    table: &RopeTable,
) {
    let n_rot = table.n_rot();
    assert!(
        first.checked_add(n_rot).is_some_and(|end| end <= head_dim),
        "{n_rot} of {head_dim} dimensions turn, from {first} on"
    );
    if positions.is_empty() {
        assert!(x.is_empty(), "rows without positions");
        return;
    }
    let row_elems = x.len() / positions.len();
    assert!(
        row_elems * positions.len() == x.len() && row_elems.is_multiple_of(head_dim),
        "{} elements in {} rows of heads of {head_dim}",
        x.len(),
        positions.len()
    );
    let rows = ElementwiseKernels::for_level(cpu.level());
    let serial = x.len() < SERIAL_ELEMS;
    let x = DisjointMut::new(x);
    let rotate = |row: usize| {
        let mut spare = [0.0; 2 * MAX_PAIRS];
        let rotation = table.rotation(positions[row] as usize, &mut spare);
        // SAFETY: rows do not overlap, and each is visited once.
        let x = unsafe { x.slice(row * row_elems..(row + 1) * row_elems) };
        if first == 0 {
            rows.rotate(table.interleaved, x, head_dim, rotation);
            return;
        }
        for head in x.chunks_exact_mut(head_dim) {
            let part = &mut head[first..first + n_rot];
            rows.rotate(table.interleaved, part, n_rot, rotation);
        }
    };
    if serial {
        (0..positions.len()).for_each(rotate);
    } else {
        cpu.pool().run(positions.len(), &rotate);
    }
}
