//! Products in eight bits, against integers with scales in f64.

use crate::host::store_weight;
use crate::lower::ops::{Op, OpKind, Role};
use crate::lower::{TcpLowerOptions, Weights};
use crate::program::{Command, Stage, VectorOp};
use crate::{Machine, Program, simulate, verify};
use half::bf16;

const K: usize = 256;
const N: usize = 128;

struct Int8Case {
    program: Program,
    slots: Vec<Vec<u8>>,
    expected: Vec<f64>,
}

/// Numbers of bf16 in rows of different magnitudes, one of them zeros.
fn numbers(n_rows: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut values = Vec::new();
    for row in 0..n_rows {
        for _ in 0..K {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = (state >> 16) as f32 / 32_768.0 - 1.0;
            values.push(bf16::from_f32(x * (row % 5) as f32 * 0.75).to_f32());
        }
    }
    values
}

fn integers(row: &[f32]) -> (Vec<f64>, f64) {
    let size = row.iter().fold(0f32, |size, x| size.max(x.abs()));
    let lift = if size == 0.0 { 0.0 } else { 127.0 / size };
    let rounded = row.iter().map(|x| f64::from((x * lift).round_ties_even()));
    (rounded.collect(), f64::from(size) / 127.0)
}

fn case(n_tokens: usize) -> Int8Case {
    let (x, w) = (numbers(n_tokens, 7), numbers(N, 11));
    let mut expected = Vec::new();
    for x in x.chunks(K) {
        let (x, x_scale) = integers(x);
        for w in w.chunks(K) {
            let size = w.iter().fold(0f32, |size, x| size.max(x.abs()));
            let scale = if size == 0.0 { 1.0 } else { size / 127.0 };
            let w = w.iter().map(|w| f64::from((w / scale).round_ties_even()));
            let sum: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            expected.push(sum * x_scale * f64::from(scale));
        }
    }
    let op = Op {
        kind: OpKind::Product(Role::Other),
        sizes: vec![n_tokens as u64, K as u64, N as u64],
        norm_eps: 1e-5,
        attention_scale: 1.0,
        weights: Weights::Int8,
    };
    let options = TcpLowerOptions::plain(Weights::Int8).of_model(Weights::Int8);
    let lowered = op.lower("product", &Machine::rngd(), options).unwrap();
    let stored = store_weight(&w, K, Weights::Int8);
    let x = x.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes());
    Int8Case {
        program: lowered.lowered.program,
        slots: vec![
            x.collect(),
            stored.bytes,
            stored.scales.unwrap(),
            vec![0; 2 * expected.len()],
        ],
        expected,
    }
}

/// The largest error as a share of one rounding to bf16, with the error of f32.
fn worst(case: &Int8Case, program: &Program) -> f64 {
    let refusals = verify(program, &Machine::rngd()).err();
    assert!(refusals.is_none(), "{refusals:?}");
    let mut slots = case.slots.clone();
    simulate::run(program, &mut slots, &simulate::SimulationOptions::default()).unwrap();
    let found = slots[3].chunks_exact(2);
    let found = found.map(|y| f64::from(bf16::from_le_bytes([y[0], y[1]]).to_f32()));
    let shares = found.zip(&case.expected).map(|(y, exact)| {
        let share = (y - exact).abs() / (exact.abs() / 256.0 * 1.01 + 1e-30);
        if share.is_nan() { f64::INFINITY } else { share }
    });
    shares.fold(0.0, f64::max)
}

/// A held token and streamed ones, with both scales in effect.
#[test]
fn sums_are_integers_with_two_scales() {
    for n_tokens in [1, 6, 40, 300] {
        // Rows of zeros come with more than one token.
        let case = case(n_tokens);
        let share = worst(&case, &case.program);
        assert!(share <= 1.0, "{n_tokens} tokens: {share}");
        if n_tokens == 1 {
            continue;
        }
        for left_out in [VectorOp::Mul0, VectorOp::Mul1] {
            let mut program = case.program.clone();
            for command in &mut program.commands {
                if let Command::Kernel(kernel) = command
                    && kernel.name.starts_with("product")
                {
                    let is = |stage: &Stage| matches!(stage, Stage::Vector { op, .. } if *op == left_out);
                    kernel.stages.retain(|stage| !is(stage));
                }
            }
            assert!(program != case.program);
            let share = worst(&case, &program);
            assert!(
                share > 1.0,
                "{n_tokens} tokens without {left_out:?}: {share}"
            );
        }
    }
}
