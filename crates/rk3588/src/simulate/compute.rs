//! The computation of a core, from packed operands to a packed result.
//!
//! Integers are exact. Sums of floats are taken in binary32 in eight interleaved chains. The silicon's order is not
//! known, so only data whose sums are exact can be compared bit for bit.

use crate::matmul::{Precision, Task};
use half::{bf16, f16};
use millrace_kernels::Level;
use millrace_kernels::tile::products_i16;

const ATOM: usize = 16;

/// Kernels that are processed at once: their rows stay in a near cache while rows of A pass.
const BLOCK: usize = 16;

/// C of a task, packed, from its packed A and B.
pub(super) fn product(task: &Task, a: &[u8], b: &[u8]) -> Vec<u8> {
    match task.kind.input() {
        Precision::Int8 | Precision::Int4 => integers(task, a, b),
        _ => floats(task, a, b),
    }
}

/// A row of A, or a kernel of B, in one piece. The reader's rule (CNA): atom `s` of row `h` is at 16 · (s · (4 +
/// surface stride) + h · line stride / 4). Here 4 + surface stride is m.
fn a_row(task: &Task, a: &[u8], row: usize, mut take: impl FnMut(&[u8])) {
    let m = task.m as usize;
    let atoms = task.kind.row_bytes(task.k) as usize / ATOM;
    for s in 0..atoms {
        let at = ATOM * (s * m + row);
        take(&a[at..at + ATOM]);
    }
}

/// The blocks of 32 k of one kernel.
fn b_row(task: &Task, b: &[u8], n: usize, mut take: impl FnMut(&[u8])) {
    let group = task.kind.n_group() as usize;
    let block_bytes = task.kind.row_bytes(32) as usize;
    let blocks = task.k as usize / 32;
    let base = n / group * blocks * group * block_bytes + n % group * block_bytes;
    for block in 0..blocks {
        let at = base + block * group * block_bytes;
        take(&b[at..at + block_bytes]);
    }
}

fn push_i16(task: &Task, bytes: &[u8], out: &mut Vec<i16>) {
    match task.kind.input() {
        // The lower nibble first.
        Precision::Int4 => out.extend(bytes.iter().flat_map(|&byte| {
            let byte = byte as i8;
            [i16::from(byte << 4 >> 4), i16::from(byte >> 4)]
        })),
        _ => out.extend(bytes.iter().map(|&byte| i16::from(byte as i8))),
    }
}

fn integers(task: &Task, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (m, n, k) = (task.m as usize, task.n as usize, task.k as usize);
    let level = Level::preferred();
    let mut rows: Vec<i16> = Vec::with_capacity(m * k);
    for row in 0..m {
        a_row(task, a, row, |atom| push_i16(task, atom, &mut rows));
    }
    let mut out = Output::new(task);
    let mut kernels: Vec<i16> = Vec::with_capacity(BLOCK * k);
    let mut sums = vec![0i32; m * BLOCK];
    // n is a multiple of a kernel group, and so of a block.
    for first in (0..n).step_by(BLOCK) {
        kernels.clear();
        for n in first..first + BLOCK {
            b_row(task, b, n, |block| push_i16(task, block, &mut kernels));
        }
        products_i16(level, k, &rows, &kernels, &mut sums);
        for (row, sums) in sums.as_chunks::<BLOCK>().0.iter().enumerate() {
            out.integers(row, first, sums);
        }
    }
    out.bytes
}

fn push_f32(task: &Task, bytes: &[u8], out: &mut Vec<f32>) {
    let pairs = bytes.as_chunks::<2>().0.iter();
    match task.kind.input() {
        Precision::Bf16 => out.extend(pairs.map(|p| bf16::from_le_bytes(*p).to_f32())),
        _ => out.extend(pairs.map(|p| f16::from_le_bytes(*p).to_f32())),
    }
}

fn floats(task: &Task, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (m, n, k) = (task.m as usize, task.n as usize, task.k as usize);
    let mut rows: Vec<f32> = Vec::with_capacity(m * k);
    for row in 0..m {
        a_row(task, a, row, |atom| push_f32(task, atom, &mut rows));
    }
    let mut out = Output::new(task);
    let mut kernels: Vec<f32> = Vec::with_capacity(BLOCK * k);
    for first in (0..n).step_by(BLOCK) {
        kernels.clear();
        for n in first..first + BLOCK {
            b_row(task, b, n, |block| push_f32(task, block, &mut kernels));
        }
        for (row, x) in rows.chunks_exact(k).enumerate() {
            for (at, kernel) in kernels.chunks_exact(k).enumerate() {
                out.float(row, first + at, dot_f32(x, kernel));
            }
        }
    }
    out.bytes
}

fn dot_f32(x: &[f32], y: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    for (x, y) in x.as_chunks::<8>().0.iter().zip(y.as_chunks::<8>().0) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum()
}

/// The packed result: element (m, n) is at (n / atom) · m · atom + m · atom + n % atom.
struct Output {
    bytes: Vec<u8>,
    m: usize,
    precision: Precision,
}

impl Output {
    fn new(task: &Task) -> Output {
        let precision = task.kind.output();
        let elements = task.m as usize * task.n as usize;
        Output {
            bytes: vec![0; elements * precision.bits() as usize / 8],
            m: task.m as usize,
            precision,
        }
    }

    fn put<const WIDTH: usize>(&mut self, row: usize, col: usize, bytes: [u8; WIDTH]) {
        let atom = ATOM / WIDTH;
        let at = (col / atom * self.m + row) * ATOM + col % atom * WIDTH;
        self.bytes[at..at + WIDTH].copy_from_slice(&bytes);
    }

    /// A block of neighbouring columns, the first a multiple of a block.
    fn integers(&mut self, row: usize, first: usize, sums: &[i32; BLOCK]) {
        for (at, &sum) in sums.iter().enumerate() {
            match self.precision {
                Precision::Int32 => self.put(row, first + at, sum.to_le_bytes()),
                Precision::Int16 => {
                    let sum = sum.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
                    self.put(row, first + at, sum.to_le_bytes());
                }
                _ => self.put(row, first + at, (sum as f32).to_le_bytes()),
            }
        }
    }

    fn float(&mut self, row: usize, col: usize, sum: f32) {
        match self.precision {
            Precision::Fp16 => self.put(row, col, f16::from_f32(sum).to_le_bytes()),
            _ => self.put(row, col, sum.to_le_bytes()),
        }
    }
}
