//! A product on the virtual board, beside an independent reference.

use super::{BenchError, BoardCase, usage};
use crate::device::RkDevice;
use crate::matmul::{MatmulKind, Precision};
use crate::program::{A, B, C};
use crate::simulate::{Board, BoardOptions};
use crate::tiling::Grid;
use half::{bf16, f16};
use millrace_kernels::Cpu;
use millrace_npu::{Device, DeviceError, Direction, Slot};
use millrace_plan::workbench::{SlotOutput, contents, described};
use millrace_plan::{LineSpan, ReportLine, Tone};
use serde_json::{Value, json};
use std::time::Instant;

/// Most elements that are compared.
const COMPARED: usize = 1 << 14;

/// Result of the run.
pub(super) struct BoardResult {
    n_compared: usize,
    n_unequal: usize,
    host_s: f64,
    is_exact: bool,
    pub(super) wrong: Option<String>,
}

/// A program that ran on its own data.
pub(super) struct Ran {
    pub(super) slots: Vec<Slot>,
    pub(super) contents: Vec<Vec<u8>>,
    host_s: f64,
}

impl Ran {
    pub(super) fn words(&self, produced: &SlotOutput) -> String {
        format!(
            "{}: least {:.4}, greatest {:.4}, mean {:.4}; {:.2} s on this computer",
            described(&self.slots[C]),
            produced.least,
            produced.greatest,
            produced.mean,
            self.host_s
        )
    }
}

impl BoardResult {
    pub(super) fn line(&self) -> ReportLine {
        let how = match (&self.wrong, self.is_exact) {
            (Some(wrong), _) => LineSpan::new(format!("wrong: {wrong}"), Tone::Wrong),
            (None, true) => LineSpan::new("equal to the reference bit for bit", Tone::Plain),
            (None, false) => LineSpan::new("as near as sums in binary32 allow", Tone::Plain),
        };
        let rest = format!(
            ", {} results compared; {:.2} s on this computer",
            self.n_compared, self.host_s
        );
        ReportLine {
            label: "computed",
            text: vec![how, LineSpan::new(rest, Tone::Plain)],
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "n_compared": self.n_compared, "n_unequal": self.n_unequal, "host_s": self.host_s,
            "exact": self.is_exact, "wrong": self.wrong,
        })
    }
}

/// A virtual board for one program.
pub(super) struct BoardBench<'a> {
    case: &'a BoardCase,
    device: RkDevice,
}

fn failed(error: DeviceError) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl<'a> BoardBench<'a> {
    pub(super) fn new(case: &'a BoardCase) -> Result<BoardBench<'a>, BenchError> {
        let board = Board::new(BoardOptions {
            machine: case.machine.clone(),
            profile: case.profile.clone(),
            ..BoardOptions::default()
        });
        let workers = case.program.tiling.workers as usize;
        let device = RkDevice::with_host(&board, case.machine.clone(), workers);
        let device = device.map_err(|error| BenchError::Failed(error.to_string()))?;
        Ok(BoardBench { case, device })
    }

    /// Slots after a run on contents of `a` and `b`; host time beside.
    fn execute(&self, contents: &[Vec<u8>]) -> Result<(Vec<u8>, f64), BenchError> {
        let program = self.case.program.to_container(&self.case.machine);
        let program = program.map_err(|error| BenchError::Failed(error.to_string()))?;
        let loaded = self.device.load(&program).map_err(failed)?;
        let mut buffers = Vec::new();
        for (slot, content) in program.slots().iter().zip(contents) {
            let bytes = slot.size_bytes().unwrap_or(u64::MAX);
            let buffer = self.device.alloc(bytes, slot.role.into()).map_err(failed)?;
            buffer.write(0, content).map_err(failed)?;
            buffer.sync(Direction::ToDevice).map_err(failed)?;
            buffers.push(buffer);
        }
        let bound = self.device.bind(&loaded, &buffers).map_err(failed)?;
        let start = Instant::now();
        let fence = self.device.submit(&bound).map_err(failed)?;
        self.device.wait(fence).map_err(failed)?;
        let host_s = start.elapsed().as_secs_f64();
        buffers[C].sync(Direction::FromDevice).map_err(failed)?;
        let mut result = vec![0; contents[C].len()];
        buffers[C].read(0, &mut result).map_err(failed)?;
        Ok((result, host_s))
    }

    /// The program on given and random packed slots.
    pub(super) fn run(&self, given: &[(String, Vec<u8>)], seed: u64) -> Result<Ran, BenchError> {
        let slots = self.case.program.slots(&self.case.machine);
        let slots = slots.map_err(|error| BenchError::Failed(error.to_string()))?;
        let mut contents = contents(&slots, given, seed)?;
        let (result, host_s) = self.execute(&contents)?;
        contents[C] = result;
        Ok(Ran {
            slots,
            contents,
            host_s,
        })
    }

    /// The program on random matrices; some results are computed again.
    pub(super) fn compare(
        &self,
        grid: &Grid,
        seed: u64,
        cpu: &Cpu,
    ) -> Result<BoardResult, BenchError> {
        let shape = grid.shape;
        let (m, n, k) = (shape.m as usize, shape.n as usize, shape.k as usize);
        let a = Matrix::random(shape.kind, m, k, seed);
        let b = Matrix::random(shape.kind, n, k, seed.wrapping_add(1));
        let mut contents = vec![
            vec![0; grid.a_bytes() as usize],
            vec![0; grid.b_bytes() as usize],
            vec![0; grid.c_bytes() as usize],
        ];
        let misfit = |error: crate::layout::SizeError| usage(error.to_string(), "");
        grid.pack_a(&a.bytes, &mut contents[A]).map_err(misfit)?;
        grid.pack_b(&b.bytes, &mut contents[B]).map_err(misfit)?;
        let (result, host_s) = self.execute(&contents)?;
        // Integers beyond 2^24 are not exact in binary32.
        if shape.kind.output() == Precision::Int32 {
            let mut sums = vec![0; m * n];
            grid.sum_i32(&result, &mut sums).map_err(misfit)?;
            return Ok(compare(&a, &b, host_s, cpu, |at| f64::from(sums[at])));
        }
        let mut sums = vec![0.0; m * n];
        grid.sum_f32(&result, &mut sums).map_err(misfit)?;
        Ok(compare(&a, &b, host_s, cpu, |at| f64::from(sums[at])))
    }
}

/// Compares results, all or evenly spread ones.
fn compare(
    a: &Matrix,
    b: &Matrix,
    host_s: f64,
    cpu: &Cpu,
    found: impl Fn(usize) -> f64 + Sync,
) -> BoardResult {
    let (m, n) = (a.rows, b.rows);
    let n_compared = (m * n).min(COMPARED);
    let place = |i: usize| (i as u128 * (m * n) as u128 / n_compared as u128) as usize;
    let mut wrong = vec![f64::NAN; n_compared];
    cpu.pool().run_pieces(&mut wrong, 1, &|i, wrong| {
        let at = place(i);
        let (exact, tolerance) = a.product(at / n, b, at % n);
        let error = (found(at) - exact).abs();
        wrong[0] = match error <= tolerance {
            true => 0.0,
            false => 1.0,
        };
    });
    let n_unequal = wrong.iter().filter(|wrong| **wrong != 0.0).count();
    let first = wrong.iter().position(|wrong| *wrong != 0.0);
    let wrong = first.map(|i| {
        let at = place(i);
        let (row, col) = (at / n, at % n);
        let (exact, _) = a.product(row, b, col);
        format!(
            "{n_unequal} of {n_compared}; at ({row}, {col}) it is {}, the reference has {exact}",
            found(at)
        )
    });
    BoardResult {
        n_compared,
        n_unequal,
        host_s,
        is_exact: a.kind.is_integer() && a.kind.output() != Precision::Fp32,
        wrong,
    }
}

/// Plain rows, as bytes and as numbers.
struct Matrix {
    kind: MatmulKind,
    rows: usize,
    k: usize,
    bytes: Vec<u8>,
}

impl Matrix {
    fn random(kind: MatmulKind, rows: usize, k: usize, seed: u64) -> Matrix {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let mut bytes = Vec::new();
        for _ in 0..rows {
            match kind.input() {
                Precision::Int8 => bytes.extend((0..k).map(|_| (next() * 127.0) as i8 as u8)),
                Precision::Int4 => bytes.extend((0..k.div_ceil(2)).map(|i| {
                    let high = if 2 * i + 1 < k { next() * 7.0 } else { 0.0 };
                    ((next() * 7.0) as i8 as u8 & 15) | (high as i8 as u8) << 4
                })),
                Precision::Bf16 => {
                    let each = (0..k).flat_map(|_| bf16::from_f32(next()).to_le_bytes());
                    bytes.extend(each);
                }
                _ => bytes.extend((0..k).flat_map(|_| f16::from_f32(next()).to_le_bytes())),
            }
        }
        Matrix {
            kind,
            rows,
            k,
            bytes,
        }
    }

    fn number(&self, row: usize, i: usize) -> f64 {
        let row_bytes = self.bytes.len() / self.rows.max(1);
        let row = &self.bytes[row * row_bytes..][..row_bytes];
        match self.kind.input() {
            Precision::Int8 => f64::from(row[i] as i8),
            Precision::Int4 => {
                let byte = row[i / 2] as i8;
                f64::from(if i.is_multiple_of(2) {
                    byte << 4 >> 4
                } else {
                    byte >> 4
                })
            }
            Precision::Bf16 => bf16::from_le_bytes([row[2 * i], row[2 * i + 1]]).to_f64(),
            _ => f16::from_le_bytes([row[2 * i], row[2 * i + 1]]).to_f64(),
        }
    }

    /// The exact product of two rows, and an error bound for binary32 sums and a last rounding (Higham and Mary's
    /// probabilistic bound with λ = 8).
    fn product(&self, row: usize, b: &Matrix, col: usize) -> (f64, f64) {
        let (mut sum, mut size) = (0.0, 0.0);
        for i in 0..self.k {
            let product = self.number(row, i) * b.number(col, i);
            sum += product;
            size += f64::abs(product);
        }
        let float = 8.0 * (self.k as f64).sqrt() * 2.0_f64.powi(-24) * size;
        let tolerance = match self.kind.output() {
            Precision::Int32 | Precision::Int16 => 0.0,
            // Each part is rounded before the parts are added.
            Precision::Fp16 => float + 2.0_f64.powi(-10) * size,
            _ => float,
        };
        (sum, tolerance)
    }
}
