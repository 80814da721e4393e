//! Weights of checkpoints as the blocks of 4 bits that slots hold ([`crate::mapping::q4nx`]).
//!
//! A group of 32 columns has a scale and an offset in bf16, `w = scale·q + offset`. Conversion of each format:
//!
//! | checkpoint | levels | scale and offset |
//! |---|---|---|
//! | Q4NX | kept | kept: exact |
//! | Q4NX, subtractive | kept | scale kept; −scale·zero rounded to bf16 |
//! | Q4_0 | kept | f16 rounded to bf16; −8·scale, exact then |
//! | Q4_1 | kept | both f16 rounded to bf16 |
//! | Q4_K | kept | d·sc and −dmin·m, each rounded to bf16 |
//! | all others | searched for, as `quantize` does | searched for |
//!
//! Rounding a scale changes a weight by 2⁻⁹ of it at most, rounding an offset by 2⁻⁹ of that. A test measures both, and
//! the error of the search, against the format's budget. Columns beyond a matrix and rows that only fill a slot are
//! zero.

use crate::mapping::q4nx::{BYTES, COLS, ROWS};
use half::{bf16, f16};
use millrace_kernels::Cpu;
use millrace_npu::Slot;
use millrace_plan::{PackedWeight, WeightArrangement, WeightLayout, WeightSource};
use millrace_quant::{DType, decode_rows, encode_matrix};
use std::sync::Mutex;

const BLOCK: usize = BYTES as usize;
const N_ROWS: usize = ROWS as usize;
const N_COLS: usize = COLS as usize;
const GROUP: usize = 32;
const OFFSETS: usize = 512;
const LEVELS: usize = 1024;

/// Description of a format's conversion.
pub(super) fn becomes(dtype: DType) -> &'static str {
    match dtype {
        DType::Q4nx => "kept in 4 bits, exactly",
        DType::Q4nxSub | DType::Q4_0 | DType::Q4_1 | DType::Q4K => {
            "kept in 4 bits, scales rounded to bf16"
        }
        _ => "quantised anew to 4 bits, which loses precision",
    }
}

/// A row's group.
struct PackedGroup {
    scale: bf16,
    offset: bf16,
    levels: [u8; GROUP],
}

/// Writes a weight into its slot, `unit` row blocks side by side.
///
/// # Errors
/// A slot of another size, bytes that are not such a matrix.
pub(super) fn fill(
    cpu: &Cpu,
    unit: u64,
    weight: &WeightSource<'_>,
    slot: &Slot,
    out: &mut [u8],
) -> Result<(), String> {
    let (across, unit) = (weight.k.div_ceil(N_COLS), unit as usize);
    let stretch = unit * across * BLOCK;
    let covered = out.len() / stretch.max(1) * unit * N_ROWS;
    let whole = stretch > 0 && out.len().is_multiple_of(stretch);
    if !whole || covered < weight.n || !weight.k.is_multiple_of(GROUP) {
        return Err(format!(
            "slot `{}` of {} bytes cannot hold {} x {} weights in blocks of 4 bits",
            slot.name,
            out.len(),
            weight.n,
            weight.k
        ));
    }
    if weight.dtype.size_bytes(weight.n, weight.k) != Some(weight.bytes.len()) {
        return Err(format!(
            "{} bytes are no {} matrix of {} x {}",
            weight.bytes.len(),
            weight.dtype,
            weight.n,
            weight.k
        ));
    }
    let failed = Mutex::new(None);
    cpu.pool().run_pieces(out, stretch, &|index, stretch| {
        stretch.fill(0);
        for side in 0..unit {
            let rows = PackedRows {
                weight,
                first: (index * unit + side) * N_ROWS,
            };
            let blocks = stretch.chunks_exact_mut(BLOCK).skip(side).step_by(unit);
            if let Err(problem) = rows.fill(blocks)
                && let Ok(mut failed) = failed.lock()
            {
                failed.get_or_insert(problem);
            }
        }
    });
    match failed.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(problem)) => Err(problem),
        Err(_) => Err("a thread that filled the slot ended early".to_owned()),
    }
}

/// A slot as launches multiply with it: the fused kernel by levels, the other with weights rounded to bf16.
pub(super) fn read(unit: u64, slot: &[u8], k: usize, by_levels: bool) -> Option<PackedWeight> {
    let (across, unit) = (k.div_ceil(N_COLS), unit as usize);
    let n = slot.len() / (across * BLOCK).max(1) * N_ROWS;
    let (mut values, mut offsets) = (Vec::with_capacity(n * k), Vec::new());
    let mut tile = vec![0.0; N_ROWS * N_COLS];
    let mut rows = vec![0.0; N_ROWS * across * N_COLS];
    for row_block in 0..n / N_ROWS {
        let block = |col: usize| {
            let at = (row_block / unit * across + col) * unit + row_block % unit;
            slot.get(at * BLOCK..(at + 1) * BLOCK)
        };
        for col in 0..across {
            decode_rows(
                DType::Q4nx,
                block(col)?,
                N_ROWS,
                N_COLS,
                0..N_ROWS,
                &mut tile,
            )
            .ok()?;
            for (row, tile) in tile.chunks_exact(N_COLS).enumerate() {
                rows[(row * across + col) * N_COLS..][..N_COLS].copy_from_slice(tile);
            }
        }
        for (row, numbers) in rows.chunks_exact(across * N_COLS).enumerate() {
            values.extend_from_slice(&numbers[..k]);
            for group in 0..k.div_ceil(GROUP) {
                let (block, group) = (block(group / 8)?, group % 8);
                let at = OFFSETS + 2 * (group * N_ROWS + row);
                offsets.push(bf16::from_le_bytes([block[at], block[at + 1]]).to_f32());
            }
        }
    }
    if !by_levels {
        values
            .iter_mut()
            .for_each(|w| *w = bf16::from_f32(*w).to_f32());
    }
    Some(PackedWeight {
        values,
        offsets: by_levels.then_some((GROUP, offsets)),
    })
}

/// The rows of a row block of the slot, from the first on.
struct PackedRows<'a> {
    weight: &'a WeightSource<'a>,
    first: usize,
}

impl PackedRows<'_> {
    /// The checkpoint's row for a row of the block; `None` beyond the matrix.
    fn source(&self, row: usize) -> Option<usize> {
        let layout = WeightLayout::Own {
            id: WeightArrangement(0),
            half_split: self.weight.half_split,
        };
        match self.first + row {
            row if row < self.weight.n => layout.source_row(row),
            _ => None,
        }
    }

    /// The blocks of these rows, from left to right.
    fn fill<'b>(&self, blocks: impl Iterator<Item = &'b mut [u8]>) -> Result<(), String> {
        let read: fn(&WeightSource<'_>, usize, usize) -> PackedGroup = match self.weight.dtype {
            DType::Q4nx | DType::Q4nxSub => q4nx,
            DType::Q4_0 => q4_0,
            DType::Q4_1 => q4_1,
            DType::Q4K => q4_k,
            _ => return self.search(blocks),
        };
        for (at, block) in blocks.enumerate() {
            let first = at * N_COLS / GROUP;
            let n_groups = (self.weight.k / GROUP - first).min(N_COLS / GROUP);
            for row in 0..N_ROWS {
                let Some(source) = self.source(row) else {
                    continue;
                };
                for group in 0..n_groups {
                    let read = read(self.weight, source, first + group);
                    write(&read, row, group, block);
                }
            }
        }
        Ok(())
    }

    /// Decodes the rows and looks for the levels of least error.
    fn search<'b>(&self, blocks: impl Iterator<Item = &'b mut [u8]>) -> Result<(), String> {
        let WeightSource {
            dtype, bytes, n, k, ..
        } = *self.weight;
        let mut values = vec![0.0; N_ROWS * k];
        for (row, values) in values.chunks_exact_mut(k).enumerate() {
            if let Some(source) = self.source(row) {
                decode_rows(dtype, bytes, n, k, source..source + 1, values)
                    .map_err(|error| error.to_string())?;
            }
        }
        let mut tile = vec![0.0; N_ROWS * N_COLS];
        for (at, block) in blocks.enumerate() {
            let first = at * N_COLS;
            let n_cols = (k - first).min(N_COLS);
            for (tile, values) in tile.chunks_exact_mut(N_COLS).zip(values.chunks_exact(k)) {
                tile[n_cols..].fill(0.0);
                tile[..n_cols].copy_from_slice(&values[first..first + n_cols]);
            }
            encode_matrix(DType::Q4nx, &tile, N_ROWS, N_COLS, block)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn write(group: &PackedGroup, row: usize, at: usize, block: &mut [u8]) {
    let param = 2 * (at * N_ROWS + row);
    block[param..param + 2].copy_from_slice(&group.scale.to_le_bytes());
    block[OFFSETS + param..OFFSETS + param + 2].copy_from_slice(&group.offset.to_le_bytes());
    for (i, level) in group.levels.iter().enumerate() {
        let byte = LEVELS + row / 16 * 2048 + (at * GROUP + i) * 8 + row % 16 / 2;
        block[byte] |= level << (row % 2 * 4);
    }
}

/// The bytes of a row's group where a block of the format is a group.
fn bytes_of<'a>(weight: &WeightSource<'a>, row: usize, group: usize) -> &'a [u8] {
    let size = weight.dtype.block_bytes();
    let at = row * (weight.k / GROUP) + group;
    &weight.bytes[at * size..][..size]
}

fn number(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Levels that ggml stores in 16 bytes: first halves in the low nibbles, then second ones.
fn ggml_levels(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15)
}

fn q4_0(weight: &WeightSource<'_>, row: usize, group: usize) -> PackedGroup {
    let bytes = bytes_of(weight, row, group);
    let scale = bf16::from_f32(number(bytes, 0));
    PackedGroup {
        scale,
        offset: bf16::from_f32(-8.0 * scale.to_f32()),
        levels: ggml_levels(&bytes[2..]),
    }
}

fn q4_1(weight: &WeightSource<'_>, row: usize, group: usize) -> PackedGroup {
    let bytes = bytes_of(weight, row, group);
    PackedGroup {
        scale: bf16::from_f32(number(bytes, 0)),
        offset: bf16::from_f32(number(bytes, 2)),
        levels: ggml_levels(&bytes[4..]),
    }
}

/// Eight groups a block: d, dmin, eight scales and eight minima of 6 bits in twelve bytes, levels of two groups
/// in the halves of 32 bytes.
fn q4_k(weight: &WeightSource<'_>, row: usize, group: usize) -> PackedGroup {
    const GROUPS: usize = 8;
    let size = weight.dtype.block_bytes();
    let at = row * (weight.k / (GROUPS * GROUP)) + group / GROUPS;
    let (bytes, group) = (&weight.bytes[at * size..][..size], group % GROUPS);
    let packed = &bytes[4..16];
    let (scale, min) = match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => (
            packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
            packed[group + 4] >> 4 | packed[group] >> 6 << 4,
        ),
    };
    let levels = &bytes[16 + group / 2 * GROUP..][..GROUP];
    PackedGroup {
        scale: bf16::from_f32(number(bytes, 0) * f32::from(scale)),
        offset: bf16::from_f32(-number(bytes, 2) * f32::from(min)),
        levels: std::array::from_fn(|i| levels[i] >> (group % 2 * 4) & 15),
    }
}

fn q4nx(weight: &WeightSource<'_>, row: usize, group: usize) -> PackedGroup {
    let across = weight.k.div_ceil(N_COLS);
    let at = row / N_ROWS * across + group / 8;
    let (block, row, group) = (
        &weight.bytes[at * BLOCK..][..BLOCK],
        row % N_ROWS,
        group % 8,
    );
    let param = 2 * (group * N_ROWS + row);
    let number = |at: usize| bf16::from_le_bytes([block[at], block[at + 1]]);
    let (scale, offset) = (number(param), number(OFFSETS + param));
    PackedGroup {
        scale,
        offset: match weight.dtype {
            DType::Q4nxSub => bf16::from_f32(-scale.to_f32() * offset.to_f32()),
            _ => offset,
        },
        levels: std::array::from_fn(|i| {
            let byte = LEVELS + row / 16 * 2048 + (group * GROUP + i) * 8 + row % 16 / 2;
            block[byte] >> (row % 2 * 4) & 15
        }),
    }
}

#[cfg(test)]
mod tests;
