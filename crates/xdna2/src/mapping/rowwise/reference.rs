//! Norms and rotation by their formulas. Sums are f32 in 16 lanes (column mod 16), added in halves;
//! the result is rounded to bf16 once.

use super::{EPSILON, Function};
use crate::mapping::data::{bf16_bytes, floats};

/// The output for the contents of the input slots.
pub(super) fn run(function: Function, width: usize, inputs: &[Vec<u8>]) -> Vec<u8> {
    let x = floats(&inputs[0]);
    let others: Vec<Vec<f32>> = inputs[1..].iter().map(|bytes| floats(bytes)).collect();
    let mut y = Vec::with_capacity(x.len());
    for (i, row) in x.chunks_exact(width).enumerate() {
        match function {
            Function::RmsNorm => rms(row, &others[0], &mut y),
            Function::LayerNorm => layer(row, &others[0], &others[1], &mut y),
            Function::Rope => rotate(row, &others[0][i * width..][..width], &mut y),
        }
    }
    bf16_bytes(&y)
}

fn lanes_sum(values: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0.0_f32; 16];
    for (i, value) in values.enumerate() {
        lanes[i % 16] += value;
    }
    let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

fn rms(row: &[f32], gamma: &[f32], y: &mut Vec<f32>) {
    let mean = lanes_sum(row.iter().map(|x| x * x)) / row.len() as f32;
    let inverse = 1.0 / (mean + EPSILON).sqrt();
    y.extend(row.iter().zip(gamma).map(|(x, gamma)| x * inverse * gamma));
}

fn layer(row: &[f32], gamma: &[f32], beta: &[f32], y: &mut Vec<f32>) {
    let n = row.len() as f32;
    let mean = lanes_sum(row.iter().copied()) / n;
    let variance = lanes_sum(row.iter().map(|x| (x - mean) * (x - mean))) / n;
    let inverse = 1.0 / (variance + EPSILON).sqrt();
    let columns = row.iter().zip(gamma).zip(beta);
    y.extend(columns.map(|((x, gamma), beta)| (x - mean) * inverse * gamma + beta));
}

fn rotate(row: &[f32], table: &[f32], y: &mut Vec<f32>) {
    let half = row.len() / 2;
    let (low, high) = row.split_at(half);
    let (cos, sin) = table.split_at(half);
    y.extend((0..half).map(|i| low[i] * cos[i] - high[i] * sin[i]));
    y.extend((0..half).map(|i| low[i] * sin[i] + high[i] * cos[i]));
}

/// A table of positions 0, 1, … with Llama 3's base: `[cos …, sin …]` a row.
pub(super) fn table(rows: u64, width: u64) -> Vec<u8> {
    let half = width / 2;
    let mut values = Vec::with_capacity((rows * width) as usize);
    for position in 0..rows {
        let angle = |i: u64| {
            let inverse_frequency = 500_000_f64.powf(-(2.0 * i as f64) / width as f64);
            (position as f64 * inverse_frequency) as f32
        };
        values.extend((0..half).map(|i| angle(i).cos()));
        values.extend((0..half).map(|i| angle(i).sin()));
    }
    bf16_bytes(&values)
}
