//! Element-wise functions by their formulas. Cores compute in bf16 vectors, so every intermediate
//! named by an operator is rounded to bf16; `tanh` is the exact value rounded.

use super::Function;
use crate::mapping::data::{bf16_bytes, floats, round};

/// The output for the contents of the input slots.
pub(super) fn run(function: Function, inputs: &[Vec<u8>]) -> Vec<u8> {
    let first = floats(&inputs[0]);
    let y: Vec<f32> = match inputs.get(1) {
        None => first.iter().map(|&x| gelu(x)).collect(),
        Some(second) => {
            let second = floats(second);
            let pairs = first.iter().zip(&second);
            let of = |(&a, &b): (&f32, &f32)| match function {
                Function::Add => a + b,
                Function::SiluMul => round(a * sigmoid(a)) * b,
                Function::GeluMul | Function::Gelu => gelu(a) * b,
            };
            pairs.map(of).collect()
        }
    };
    bf16_bytes(&y)
}

fn tanh(x: f32) -> f32 {
    round(f64::from(x).tanh() as f32)
}

/// 1 / (1 + e^-x) as ½·(tanh(x/2) + 1).
fn sigmoid(x: f32) -> f32 {
    round(0.5 * round(tanh(round(0.5 * x)) + 1.0))
}

/// ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
fn gelu(x: f32) -> f32 {
    let cube = round(round(x * x) * x);
    let polynomial = round(x + round(round(0.044_715) * cube));
    let t = tanh(round(round(0.797_884_6) * polynomial));
    round(round(0.5 * x) * round(1.0 + t))
}
