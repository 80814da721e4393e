//! Slice and split give the same product.

use crate::lower::reduction::{Reduction, product};
use crate::lower::{LowerError, TcpLowerOptions, Weights};
use crate::program::Command;
use crate::{Machine, Program, simulate, verify};
use half::bf16;

const K: usize = 512;
const N: usize = 96;

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bf16::from_f32((state >> 16) as f32 / 32_768.0 - 1.0).to_f32()
    };
    std::iter::repeat_with(next).take(n).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    let bytes = values.iter().map(|x| bf16::from_f32(*x).to_le_bytes());
    bytes.flatten().collect()
}

/// The largest error as a share of one rounding to bf16 of sums of that size.
fn worst(program: &Program, n_tokens: usize) -> f64 {
    let refusals = verify(program, &Machine::rngd()).err();
    assert!(refusals.is_none(), "{refusals:?}");
    let (x, w) = (numbers(n_tokens * K, 7), numbers(N * K, 11));
    let mut slots = vec![bytes(&x), bytes(&w), vec![0; 2 * n_tokens * N]];
    simulate::run(program, &mut slots, &simulate::SimulationOptions::default()).unwrap();
    let mut worst = 0f64;
    for (at, y) in slots[2].chunks_exact(2).enumerate() {
        let (x, w) = (&x[at / N * K..][..K], &w[at % N * K..][..K]);
        let exact: f64 = (x.iter().zip(w)).map(|(x, w)| f64::from(x * w)).sum();
        let found = f64::from(bf16::from_le_bytes([y[0], y[1]]).to_f32());
        worst = worst.max((found - exact).abs() / (exact.abs() / 256.0 + 1e-4));
    }
    worst
}

#[test]
fn slice_and_split_give_the_product() {
    let options = TcpLowerOptions::plain(Weights::Bf16);
    let ways = [1, 2, 4].map(Reduction::Slice);
    let ways = ways.into_iter().chain([2, 4].map(Reduction::Split));
    for by in ways {
        for n_tokens in [1, 8, 40] {
            let shape = [n_tokens as u64, K as u64, N as u64];
            let lowered = product(&Machine::rngd(), options, shape, by).unwrap();
            let share = worst(&lowered.program, n_tokens);
            assert!(share <= 1.01, "{by:?}, {n_tokens} tokens: {share}");
            let kernels = lowered.program.commands.iter();
            let adds =
                kernels.filter(|c| matches!(c, Command::Kernel(k) if k.name.starts_with("add")));
            let is_split = matches!(by, Reduction::Split(_));
            assert_eq!(adds.count() > 0, is_split, "{by:?}");
        }
    }
}

/// A missing part is noticed, and parts that do not divide a row are refused with the numbers.
#[test]
fn parts_are_all_of_a_row() {
    let (machine, options) = (Machine::rngd(), TcpLowerOptions::plain(Weights::Bf16));
    let shape = [1, K as u64, N as u64];
    let mut program = product(&machine, options, shape, Reduction::Split(2))
        .unwrap()
        .program;
    for command in &mut program.commands {
        if let Command::Dma(dma) = command {
            dma.from.offsets.retain(|(axis, _)| axis != "P");
        }
    }
    assert!(worst(&program, 1) > 8.0);
    let refused = product(&machine, options, shape, Reduction::Split(3)).unwrap_err();
    assert!(
        matches!(refused, LowerError::Size { found: 512, .. }),
        "{refused}"
    );
    let large = [1, 16384, 512];
    assert!(product(&machine, options, large, Reduction::Split(2)).is_err());
}
