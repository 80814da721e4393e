//! Softmax over keys in parts, against attention in f64.

use super::attention_op;
use crate::lower::{TcpLowerOptions, Weights};
use crate::program::{Command, Place, Stage, VectorOp, View};
use crate::{Machine, Program, simulate, verify};
use half::bf16;

const HEADS: [u64; 3] = [2, 2, 64];
const N_QUERIES: u64 = 2;
const N_KEYS: u64 = 8192;
/// Keys that a query sees: neither the first part's nor the last one's.
const SEEN: std::ops::Range<usize> = 2100..6000;

struct PartsCase {
    program: Program,
    slots: Vec<Vec<u8>>,
    /// Expected value of each element, with its tolerance.
    expected: Vec<(f64, f64)>,
}

fn machine() -> Machine {
    Machine {
        dm_bytes: 16 << 10,
        ..Machine::rngd()
    }
}

/// Numbers of bf16; those of later keys are larger, so that the largest score moves from part to part.
fn numbers(n: usize, seed: u32, growth: f64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 16) / 32_768.0 - 1.0
    };
    let row = (N_KEYS * HEADS[2]) as f64;
    (0..n)
        .map(|i| next() * (1.0 + growth * (i as f64 % row) / row))
        .map(|x| f64::from(bf16::from_f64(x).to_f32()))
        .collect()
}

fn bytes(values: &[f64]) -> Vec<u8> {
    let values = values.iter();
    values
        .flat_map(|x| bf16::from_f64(*x).to_le_bytes())
        .collect()
}

fn case() -> PartsCase {
    let [n_kv, groups, d] = HEADS.map(|n| n as usize);
    let (n_queries, n_keys) = (N_QUERIES as usize, N_KEYS as usize);
    let q = numbers(n_queries * n_kv * groups * d, 7, 0.0);
    let k = numbers(n_kv * n_keys * d, 11, 8.0);
    let v = numbers(n_kv * n_keys * d, 13, 0.0);
    let mut expected = Vec::new();
    for (at, q) in q.chunks(d).enumerate() {
        let head = at % (n_kv * groups) / groups;
        let row = |x: &[f64], key: usize| x[(head * n_keys + key) * d..][..d].to_vec();
        let dot = |key| row(&k, key).iter().zip(q).map(|(k, q)| k * q).sum::<f64>();
        let scores: Vec<f64> = SEEN.map(|key| 0.125 * dot(key)).collect();
        let largest = scores.iter().copied().fold(f64::MIN, f64::max);
        let p: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
        let total: f64 = p.iter().sum();
        let (mut y, mut size) = (vec![0.0; d], vec![0.0; d]);
        for (p, key) in p.iter().zip(SEEN) {
            for ((y, size), v) in y.iter_mut().zip(&mut size).zip(row(&v, key)) {
                *y += p / total * v;
                *size += p / total * v.abs();
            }
        }
        // Probabilities and results are rounded to bf16, half a unit of 2^-8 each; f32 adds little.
        let far = |size: &f64| size / 256.0 * 1.05;
        expected.extend(y.into_iter().zip(size.iter().map(far)));
    }
    let seen = |key: usize| {
        if SEEN.contains(&key) {
            0f32
        } else {
            crate::host::MASKED
        }
    };
    let mask = (0..n_queries * n_keys).flat_map(|i| seen(i % n_keys).to_le_bytes());
    let op = attention_op(N_QUERIES, HEADS, N_KEYS);
    let lowered = op.lower("attend", &machine(), TcpLowerOptions::plain(Weights::Bf16));
    let lowered = lowered.unwrap();
    assert!(lowered.cut.contains(&("parts", 4)), "{:?}", lowered.cut);
    let mask: Vec<u8> = mask.collect();
    let out = vec![0; 2 * expected.len()];
    PartsCase {
        program: lowered.lowered.program,
        slots: vec![bytes(&q), bytes(&k), bytes(&v), mask, out],
        expected,
    }
}

/// The largest error of a program as a share of its tolerance; nothing where the verifier refuses it.
fn worst(case: &PartsCase, program: &Program) -> Option<f64> {
    verify(program, &machine()).ok()?;
    let mut slots = case.slots.clone();
    simulate::run(program, &mut slots, &simulate::SimulationOptions::default()).unwrap();
    let found = slots.last().unwrap().chunks_exact(2);
    let found = found.map(|x| f64::from(bf16::from_le_bytes([x[0], x[1]]).to_f32()));
    let shares = found.zip(&case.expected).map(|(y, (exact, far))| {
        let share = (y - exact).abs() / far;
        if share.is_nan() { f64::INFINITY } else { share }
    });
    Some(shares.fold(0.0, f64::max))
}

#[test]
fn a_running_maximum_gives_what_all_keys_at_once_would() {
    let case = case();
    let share = worst(&case, &case.program).expect("the verifier takes it");
    assert!((0.05..1.0).contains(&share), "{share} of the tolerance");
    // Another number of parts rounds the same.
    let whole = attention_op(N_QUERIES, HEADS, N_KEYS);
    let whole = whole.lower(
        "attend",
        &Machine::rngd(),
        TcpLowerOptions::plain(Weights::Bf16),
    );
    let whole = whole.unwrap();
    assert!(whole.cut.contains(&("parts", 1)), "{:?}", whole.cut);
}

/// The largest error with some kernels of a program corrupted.
fn worst_spoilt(case: &PartsCase, spoil: &dyn Fn(&str, &mut Vec<Stage>) -> bool) -> Option<f64> {
    let mut program = case.program.clone();
    let mut n_spoilt = 0;
    for command in &mut program.commands {
        if let Command::Kernel(kernel) = command {
            n_spoilt += usize::from(spoil(&kernel.name, &mut kernel.stages));
        }
    }
    assert!(n_spoilt > 0, "nothing to spoil");
    worst(case, &program)
}

/// Removes an operation from a kernel. Returns whether it was there.
fn without(stages: &mut Vec<Stage>, left_out: VectorOp) -> bool {
    let before = stages.len();
    stages.retain(|stage| !matches!(stage, Stage::Vector { op, .. } if *op == left_out));
    stages.len() < before
}

/// A sum that is not rescaled, a maximum of other keys, a constant maximum: each is found.
#[test]
fn wrong_running_states_are_found() {
    let case = case();
    let spoilt = |spoil: &dyn Fn(&str, &mut Vec<Stage>) -> bool| worst_spoilt(&case, spoil);
    let named = |stem: &str| {
        let mut tensors = case.program.tensors.iter();
        let in_dm = |place: &Place| matches!(place, Place::Dm { .. });
        tensors
            .position(|t| in_dm(&t.place) && t.name.starts_with(stem))
            .unwrap()
    };
    let (first, second) = (named("reduced"), named("largest"));
    let cases: [(&str, Option<f64>); 3] = [
        (
            "sums that are not rescaled",
            spoilt(&|name, stages| name.starts_with("sums") && without(stages, VectorOp::Mul0)),
        ),
        (
            "exponentials that are not",
            spoilt(&|name, stages| name.starts_with("rescale") && without(stages, VectorOp::Exp)),
        ),
        (
            "the largest score of other keys",
            spoilt(&|name, stages| match stages.first_mut() {
                Some(Stage::Fetch { view, .. })
                    if name.starts_with("hold") && view.tensor == second =>
                {
                    *view = View::of(first);
                    true
                }
                _ => false,
            }),
        ),
    ];
    for (what, share) in cases {
        println!("{what}: {share:?}");
        assert!(share.is_some_and(|share| share > 1.0), "{what}: {share:?}");
    }
}
