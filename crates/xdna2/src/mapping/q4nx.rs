//! Weights as Q4NX blocks: their layout in slots, and the mappings that read them.
//!
//! A block is 32 rows by 256 columns in 5,120 bytes (Gemma paper §3.1.1; `millrace_quant`'s `q4nx`). A matrix `[n, k]`
//! is stored as `[n / 32·u][⌈k / 256⌉][u][5120]`, so that a column of the array with u cores reads one stretch of
//! memory. Here u is 2, or 1 where an odd number of row blocks comes to the matrix or to one that shares its launch.
//! Columns beyond k are zeros of the blocks.

pub(crate) mod dqp;
mod expand;
pub(crate) mod expanded;
pub(crate) mod gemm;
pub(crate) mod token;

use super::data::{Random, floats, in_parallel, round};
use super::parts::slot;
use millrace_npu::{Element, Role, Slot};

/// Bytes of a block.
pub(crate) const BYTES: u64 = 5120;
/// Rows of a block.
pub(crate) const ROWS: u64 = 32;
/// Columns of a block.
pub(crate) const COLS: u64 = 256;
/// Columns with one scale.
pub(crate) const GROUP: u64 = 32;

/// Row blocks that are side by side in matrices of so many rows.
pub(crate) fn unit(rows: &[u64]) -> u64 {
    let pairs = rows.iter().all(|n| n.is_multiple_of(2 * ROWS));
    if pairs { 2 } else { 1 }
}

/// Blocks across a matrix of so many columns.
pub(crate) fn across(k: u64) -> u64 {
    k.div_ceil(COLS)
}

/// Groups of row blocks of a product that neighbouring columns take, each its own in one stretch.
struct Share {
    /// The product.
    part: usize,
    /// Its first group here.
    first: u64,
    /// The first column, and how many.
    cols: (u64, u64),
    /// Groups of each.
    each: u64,
}

/// Shares of columns in products with so many groups. Every column gets the same number of groups of each product; the
/// remaining groups are dealt on from column to column.
fn shares(groups: &[u64], n_cols: u64) -> Vec<Share> {
    let mut shares = Vec::new();
    for (part, &n) in groups.iter().enumerate() {
        shares.push(Share {
            part,
            first: 0,
            cols: (0, n_cols),
            each: n / n_cols,
        });
    }
    let mut next = 0;
    for (part, &n) in groups.iter().enumerate() {
        let (mut first, mut left) = (n / n_cols * n_cols, n % n_cols);
        while left > 0 {
            let taken = left.min(n_cols - next);
            shares.push(Share {
                part,
                first,
                cols: (next, taken),
                each: 1,
            });
            next = (next + taken) % n_cols;
            first += taken;
            left -= taken;
        }
    }
    shares.retain(|share| share.each > 0);
    shares
}

/// The same number of groups for each column. Remaining groups are in one stretch with the column's others of the
/// product: fewer tasks to write.
fn stretches(groups: &[u64], n_cols: u64) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    // The column of the next remaining group.
    let mut next = 0;
    for (part, &n) in groups.iter().enumerate() {
        let (left, mut first) = (n % n_cols, 0);
        for col in 0..n_cols {
            let has_more = (col + n_cols - next) % n_cols < left;
            let each = n / n_cols + u64::from(has_more);
            match shares.last_mut() {
                _ if each == 0 => {}
                Some(last) if last.part == part && last.goes_on(col, each) => last.cols.1 += 1,
                _ => shares.push(Share {
                    part,
                    first,
                    cols: (col, 1),
                    each,
                }),
            }
            first += each;
        }
        next = (next + left) % n_cols;
    }
    shares
}

impl Share {
    /// Whether a column with so many groups continues this share.
    fn goes_on(&self, col: u64, each: u64) -> bool {
        self.cols.0 + self.cols.1 == col && self.each == each
    }
}

/// The slot of a matrix `[n, k]`.
fn weight_slot(name: &str, [n, k]: [u64; 2], unit: u64) -> Slot {
    let shape = [n / (unit * ROWS), across(k), unit, BYTES];
    slot(name, Element::U8, &shape, Role::Static)
}

/// Random blocks of a matrix `[n, k]`, those beyond k zero.
fn random_blocks(random: &mut Random, [n, k]: [u64; 2]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((n / ROWS * across(k) * BYTES) as usize);
    let n_blocks = n / ROWS * across(k);
    for _ in 0..n_blocks {
        let scales = random.bf16_bytes(COLS, 0.1);
        let offsets = random.bf16_bytes(COLS, 1.0);
        bytes.extend(scales);
        bytes.extend(offsets);
        bytes.extend((0..BYTES - 4 * COLS).map(|_| (random.uniform() * 128.0 + 128.0) as u8));
    }
    bytes
}

/// A block's content for a row and a group: scale, offset, levels.
struct BlockGroup {
    scale: f32,
    offset: f32,
    levels: [f32; GROUP as usize],
}

/// A matrix in a slot.
struct Matrix<'a> {
    bytes: &'a [u8],
    across: usize,
    unit: usize,
}

impl<'a> Matrix<'a> {
    fn new(bytes: &'a [u8], k: u64, unit: u64) -> Matrix<'a> {
        Matrix {
            bytes,
            across: across(k) as usize,
            unit: unit as usize,
        }
    }

    fn group(&self, row: usize, group: usize) -> BlockGroup {
        let (row_block, row) = (row / ROWS as usize, row % ROWS as usize);
        let (col_block, group) = (group / 8, group % 8);
        let at =
            (row_block / self.unit * self.across + col_block) * self.unit + row_block % self.unit;
        let block = &self.bytes[at * BYTES as usize..][..BYTES as usize];
        let number = |at: usize| floats(&block[at..at + 2])[0];
        let param = 2 * (group * ROWS as usize + row);
        BlockGroup {
            scale: number(param),
            offset: number(512 + param),
            levels: std::array::from_fn(|i| {
                let byte = 1024 + row / 16 * 2048 + (group * 32 + i) * 8 + row % 16 / 2;
                f32::from(block[byte] >> (row % 2 * 4) & 15)
            }),
        }
    }

    /// `W · x` as the fused kernel computes it: levels times x in f32, rounded to bf16 for each group.
    fn product(&self, n: usize, x: &[f32]) -> Vec<f32> {
        in_parallel(n, |row| {
            let mut y = 0.0_f32;
            for (g, x) in x.chunks(GROUP as usize).enumerate() {
                let group = self.group(row, g);
                let (mut levels, mut sum) = (0.0_f32, 0.0_f32);
                for (level, x) in group.levels.iter().zip(x) {
                    levels += level * x;
                    sum += x;
                }
                y += group.scale * round(levels);
                y += group.offset * round(sum);
            }
            y
        })
    }

    /// The weights as the matrix unit takes them: rounded to bf16, `[k, n]`.
    fn transposed(&self, n: usize, k: usize) -> Vec<f32> {
        let rows = in_parallel(n, |row| {
            let groups = (0..k.div_ceil(GROUP as usize)).map(|g| self.group(row, g));
            let weights = groups.flat_map(|g| g.levels.map(|q| round(g.scale * q + g.offset)));
            weights.take(k).collect::<Vec<f32>>()
        });
        let mut w = vec![0.0; n * k];
        for (j, row) in rows.iter().enumerate() {
            for (i, value) in row.iter().enumerate() {
                w[i * n + j] = *value;
            }
        }
        w
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every group goes to one column, and a column has the number that its cores expect of all groups dealt in turn.
    #[test]
    fn columns_have_every_group_once() {
        for groups in [
            &[108, 108][..],
            &[18],
            &[16, 4, 4],
            &[3, 1, 9],
            &[4096],
            &[7],
        ] {
            for n_cols in 1..=8 {
                for deal in [shares, stretches] {
                    let mut of_cols = vec![0; n_cols as usize];
                    let mut taken: Vec<Vec<u64>> = groups.iter().map(|_| Vec::new()).collect();
                    for share in deal(groups, n_cols) {
                        for i in 0..share.cols.1 {
                            let first = share.first + i * share.each;
                            taken[share.part].extend(first..first + share.each);
                            of_cols[(share.cols.0 + i) as usize] += share.each;
                        }
                    }
                    for (taken, &n) in taken.iter_mut().zip(groups) {
                        taken.sort_unstable();
                        assert_eq!(*taken, (0..n).collect::<Vec<_>>(), "{groups:?} {n_cols}");
                    }
                    let all: u64 = groups.iter().sum();
                    let dealt = (0..n_cols).map(|col| (all + n_cols - 1 - col) / n_cols);
                    assert_eq!(of_cols, dealt.collect::<Vec<_>>(), "{groups:?} {n_cols}");
                }
                let n_tasks = |shares: Vec<Share>| shares.iter().map(|s| s.cols.1).sum::<u64>();
                let least = groups.iter().map(|&n| n.min(n_cols)).sum::<u64>();
                assert_eq!(n_tasks(stretches(groups, n_cols)), least);
                assert!(n_tasks(shares(groups, n_cols)) >= least);
            }
        }
    }
}
