//! Products with data and their exact results.

use half::{bf16, f16};
use millrace_npu::conformance::Sample;
use millrace_rk3588::matmul::{MatmulKind, Precision};
use millrace_rk3588::tiling::{Grid, Matmul, Order, TaskTile, Tiling};
use millrace_rk3588::{Machine, Program};

/// A product with plain operands and its plain result.
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) grid: Grid,
    pub(crate) a: Vec<u8>,
    pub(crate) b: Vec<u8>,
    /// [m, n].
    pub(crate) expected: Vec<f64>,
}

fn numbers(seed: u64, n: usize) -> impl Iterator<Item = i32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n).map(move |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 33) as i32
    })
}

/// Small integers as elements of a type, row by row; sums of their products are exact in every type.
fn matrix(input: Precision, seed: u64, rows: usize, k: usize) -> (Vec<u8>, Vec<i32>) {
    let range = match input {
        Precision::Int8 => 255,
        Precision::Int4 => 3,
        _ => 15,
    };
    let mut values: Vec<i32> = numbers(seed, rows * k)
        .map(|x| x.rem_euclid(range) - range / 2)
        .collect();
    if input == Precision::Int8 {
        values[0] = -128;
    }
    let bytes = values
        .chunks(k)
        .flat_map(|row| -> Vec<u8> {
            match input {
                Precision::Int8 => row.iter().map(|&v| v as i8 as u8).collect(),
                Precision::Int4 => row
                    .chunks(2)
                    .map(|pair| {
                        let high = pair.get(1).copied().unwrap_or(0);
                        (pair[0] & 15 | (high & 15) << 4) as u8
                    })
                    .collect(),
                Precision::Bf16 => row
                    .iter()
                    .flat_map(|&v| bf16::from_f32(v as f32).to_le_bytes())
                    .collect(),
                _ => row
                    .iter()
                    .flat_map(|&v| f16::from_f32(v as f32).to_le_bytes())
                    .collect(),
            }
        })
        .collect();
    (bytes, values)
}

pub(crate) fn case_with(shape: Matmul, tiling: Tiling, seed: u64) -> Case {
    let machine = Machine::rk3588();
    let name = format!("product {}x{}x{}", shape.m, shape.n, shape.k);
    let program = Program::build(&name, shape, tiling, &machine).unwrap();
    let (m, n, k) = (shape.m as usize, shape.n as usize, shape.k as usize);
    let (a, x) = matrix(shape.kind.input(), seed, m, k);
    let (b, w) = matrix(shape.kind.input(), seed + 1, n, k);
    let mut expected = Vec::with_capacity(m * n);
    for x in x.chunks(k) {
        expected.extend(w.chunks(k).map(|w| {
            let products = x.iter().zip(w).map(|(x, w)| i64::from(x * w));
            products.sum::<i64>() as f64
        }));
    }
    Case {
        grid: program.grid(&machine).unwrap(),
        program,
        a,
        b,
        expected,
    }
}

pub(crate) fn tiling(rows: u32, cols: u32, depth: u32, workers: u32) -> Tiling {
    Tiling {
        rows,
        cols,
        depth,
        workers,
        order: Order::Columns,
        job_tasks: 2,
    }
}

pub(crate) fn case(kind: MatmulKind, m: u32, n: u32, k: u32, tiling: Tiling) -> Case {
    case_with(Matmul { kind, m, n, k }, tiling, 7)
}

impl Case {
    pub(crate) fn packed_a(&self) -> Vec<u8> {
        let mut packed = vec![0; self.grid.a_bytes() as usize];
        self.grid.pack_a(&self.a, &mut packed).unwrap();
        packed
    }

    pub(crate) fn packed_b(&self) -> Vec<u8> {
        let mut packed = vec![0; self.grid.b_bytes() as usize];
        self.grid.pack_b(&self.b, &mut packed).unwrap();
        packed
    }

    /// Whether a packed result is the product.
    pub(crate) fn check(&self, c: &[u8]) {
        let mut found = vec![0.0; self.expected.len()];
        self.grid.sum_f32(c, &mut found).unwrap();
        let n = self.grid.shape.n as usize;
        for (at, (&found, &expected)) in found.iter().zip(&self.expected).enumerate() {
            let (row, col) = (at / n, at % n);
            assert_eq!(
                f64::from(found),
                expected,
                "{} at ({row}, {col})",
                self.grid.shape
            );
        }
    }

    /// As a sample for the conformance suite; only products with one part whose padding allows a single packed result.
    pub(crate) fn sample(&self) -> Sample {
        let shape = self.grid.shape;
        assert_eq!(shape.kind, MatmulKind::Int8Int32);
        let mut c = vec![0u8; self.grid.c_bytes() as usize];
        assert_eq!(self.grid.parts.len(), 1);
        for worker in 0..self.grid.workers.len() {
            for tile in self.grid.tiles(worker) {
                self.put(tile, &mut c);
            }
        }
        let machine = Machine::rk3588();
        Sample {
            container: self.program.to_container(&machine).unwrap(),
            inputs: vec![Some(self.packed_a()), Some(self.packed_b()), None],
            outputs: vec![None, None, Some(c)],
        }
    }

    fn put(&self, tile: TaskTile, c: &mut [u8]) {
        let n = self.grid.shape.n as usize;
        let (rows, cols) = (
            &self.grid.rows[tile.row],
            &self.grid.workers[tile.worker][tile.col],
        );
        let base = self.grid.c_range(tile).start as usize;
        for m in 0..rows.len as usize {
            for col in 0..cols.len as usize {
                let at = base + ((col / 4) * rows.padded as usize * 4 + m * 4 + col % 4) * 4;
                let plain = (rows.start as usize + m) * n + cols.start as usize + col;
                let value = self.expected[plain] as i32;
                c[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}
