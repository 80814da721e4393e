//! What a core computes, from packed operands to a packed result.
//!
//! Integers are exact. Sums of floats are taken in binary32 in eight interleaved chains; the silicon's
//! order is not known, so only data whose sums are exact can be compared bit for bit.

use crate::matmul::{Precision, Task};
use half::{bf16, f16};

const ATOM: usize = 16;

/// C of a task, packed, from its packed A and B.
pub(super) fn product(task: &Task, a: &[u8], b: &[u8]) -> Vec<u8> {
    match task.kind.input() {
        Precision::Int8 | Precision::Int4 => integers(task, a, b),
        _ => floats(task, a, b),
    }
}

/// A row of A or a kernel of B in one piece. The reader's rule (CNA): atom `s` of row `h` is at
/// 16 · (s · (4 + surface stride) + h · line stride / 4), and 4 + surface stride is m.
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

/// Kernels that are taken at once: their rows stay in the first cache while rows of A pass.
const BLOCK: usize = 4;

fn integers(task: &Task, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (m, n, k) = (task.m as usize, task.n as usize, task.k as usize);
    let mut rows: Vec<i16> = Vec::with_capacity(m * k);
    for row in 0..m {
        a_row(task, a, row, |atom| push_i16(task, atom, &mut rows));
    }
    let mut out = Output::new(task);
    let mut kernels: Vec<i16> = Vec::with_capacity(BLOCK * k);
    // n is a multiple of a kernel group, and so of a block.
    for first in (0..n).step_by(BLOCK) {
        kernels.clear();
        for n in first..first + BLOCK {
            b_row(task, b, n, |block| push_i16(task, block, &mut kernels));
        }
        for (at, rows) in rows.chunks(2 * k).enumerate() {
            // Two rows at once, the last perhaps alone.
            let (x0, x1) = rows.split_at(k);
            let sums = match x1.is_empty() {
                true => [dot4(x0, &kernels), [0; BLOCK]],
                false => dot2x4(x0, x1, &kernels),
            };
            for (row, sums) in sums.into_iter().enumerate().take(rows.len() / k) {
                out.integers(2 * at + row, first, sums);
            }
        }
    }
    out.bytes
}

/// The k elements of each kernel of a block.
fn kernels_of<T>(block: &[T], k: usize) -> [&[T]; BLOCK] {
    let (front, back) = block.split_at(2 * k);
    let ((k0, k1), (k2, k3)) = (front.split_at(k), back.split_at(k));
    [k0, k1, k2, &k3[..k]]
}

fn multiply_add(sum: i32, x: i16, y: i16) -> i32 {
    sum.wrapping_add(i32::from(x) * i32::from(y))
}

/// Dot products of a row with the kernels of a block. Plain sums over k are what compilers turn into
/// multiplications of pairs.
fn dot4(x: &[i16], block: &[i16]) -> [i32; BLOCK] {
    let [k0, k1, k2, k3] = kernels_of(block, x.len());
    let [mut s0, mut s1, mut s2, mut s3] = [0i32; BLOCK];
    for at in 0..x.len() {
        s0 = multiply_add(s0, x[at], k0[at]);
        s1 = multiply_add(s1, x[at], k1[at]);
        s2 = multiply_add(s2, x[at], k2[at]);
        s3 = multiply_add(s3, x[at], k3[at]);
    }
    [s0, s1, s2, s3]
}

/// [`dot4`] of two rows, whose kernels are loaded once.
fn dot2x4(x: &[i16], y: &[i16], block: &[i16]) -> [[i32; BLOCK]; 2] {
    let [k0, k1, k2, k3] = kernels_of(block, x.len());
    let y = &y[..x.len()];
    let [mut s0, mut s1, mut s2, mut s3] = [0i32; BLOCK];
    let [mut t0, mut t1, mut t2, mut t3] = [0i32; BLOCK];
    for at in 0..x.len() {
        s0 = multiply_add(s0, x[at], k0[at]);
        s1 = multiply_add(s1, x[at], k1[at]);
        s2 = multiply_add(s2, x[at], k2[at]);
        s3 = multiply_add(s3, x[at], k3[at]);
        t0 = multiply_add(t0, y[at], k0[at]);
        t1 = multiply_add(t1, y[at], k1[at]);
        t2 = multiply_add(t2, y[at], k2[at]);
        t3 = multiply_add(t3, y[at], k3[at]);
    }
    [[s0, s1, s2, s3], [t0, t1, t2, t3]]
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

    /// Four neighbouring columns, the first a multiple of four.
    fn integers(&mut self, row: usize, first: usize, sums: [i32; BLOCK]) {
        if self.precision == Precision::Int16 {
            for (at, sum) in sums.into_iter().enumerate() {
                let sum = sum.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
                self.put(row, first + at, sum.to_le_bytes());
            }
            return;
        }
        let at = (first / 4 * self.m + row) * ATOM;
        let atom = self.bytes[at..at + ATOM].as_chunks_mut::<4>().0;
        for (bytes, sum) in atom.iter_mut().zip(sums) {
            *bytes = match self.precision {
                Precision::Int32 => sum.to_le_bytes(),
                _ => (sum as f32).to_le_bytes(),
            };
        }
    }

    fn float(&mut self, row: usize, col: usize, sum: f32) {
        match self.precision {
            Precision::Fp16 => self.put(row, col, f16::from_f32(sum).to_le_bytes()),
            _ => self.put(row, col, sum.to_le_bytes()),
        }
    }
}
