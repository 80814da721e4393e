use super::*;
use crate::einsum::Einsum;
use crate::program::parse;
use crate::{Element, Machine};

const GEMV: &str = include_str!("../../testdata/gemv.tcp");

/// Values that look random but are always the same, in `-1 .. 1`.
pub(crate) fn data(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bytes(element: Element, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; element.bytes(values.len() as u64) as usize];
    for (at, &value) in values.iter().enumerate() {
        element.encode(value, &mut bytes, at);
    }
    bytes
}

fn values(element: Element, bytes: &[u8], n: usize) -> Vec<f32> {
    let mut out = vec![0.0; n];
    element.decode(bytes, 0, &mut out);
    out
}

#[test]
fn a_product_is_that_of_the_oracle() {
    let program = parse(GEMV).unwrap();
    crate::verify::verify(&program, &Machine::rngd()).unwrap();
    let round = |values: Vec<f32>| -> Vec<f32> {
        values.into_iter().map(|x| Element::Bf16.round(x)).collect()
    };
    let (w, x) = (round(data(512 * 256, 1)), round(data(256, 2)));
    let mut slots = vec![
        bytes(Element::Bf16, &w),
        bytes(Element::Bf16, &x),
        vec![0; 1024],
    ];
    let counters = run(&program, &mut slots, &SimulationOptions::default()).unwrap();
    assert_eq!(counters.n_macs, 512 * 256);
    assert_eq!(counters.hbm_read_bytes, 512 * 256 * 2 + 512);
    let found = values(Element::Bf16, &slots[2], 512);
    let einsum = Einsum::parse("[N, K] × [K] → [N]").unwrap();
    let expected = einsum.compute(&program.axes, &[&w, &x]).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        let bound = 0.004 * expected.abs() + 1e-4;
        assert!(
            (f64::from(*found) - expected).abs() <= bound,
            "{found} {expected}"
        );
    }
    // The stated order of additions, to the last bit: packets of 32 by a tree, then in order of time.
    let tree = |t: usize, n: usize| {
        let mut p: Vec<f32> = (0..32)
            .map(|i| w[n * 256 + t * 32 + i] * x[t * 32 + i])
            .collect();
        while p.len() > 1 {
            let high = p.split_off(p.len() / 2);
            p.iter_mut().zip(high).for_each(|(low, high)| *low += high);
        }
        p[0]
    };
    for (n, &found) in found.iter().enumerate() {
        let sum = (0..8).fold(0.0, |sum, t| sum + tree(t, n));
        assert_eq!(found, Element::Bf16.round(sum), "row {n}");
    }
}

#[test]
fn threads_change_nothing() {
    let program = parse(GEMV).unwrap();
    let inputs = [
        bytes(Element::Bf16, &data(512 * 256, 3)),
        bytes(Element::Bf16, &data(256, 4)),
    ];
    let result = |n_threads: usize| {
        let mut slots = vec![inputs[0].clone(), inputs[1].clone(), vec![0; 1024]];
        let options = SimulationOptions {
            n_threads,
            ..SimulationOptions::default()
        };
        run(&program, &mut slots, &options).unwrap();
        slots.pop()
    };
    assert_eq!(result(1), result(7));
}

#[test]
fn faults_are_named() {
    let program = parse(GEMV).unwrap();
    let mut slots = vec![vec![0; 512 * 512], vec![0; 512], vec![0; 1024]];
    let options = SimulationOptions {
        stop_after: Some(2),
        ..SimulationOptions::default()
    };
    let fault = run(&program, &mut slots, &options).unwrap_err();
    assert_eq!(fault.to_string(), "`hold_x`: stopped after 2 commands");
    slots[1].pop();
    let fault = run(&program, &mut slots, &SimulationOptions::default()).unwrap_err();
    assert_eq!(fault.slot.as_deref(), Some("x"));
    let text = "tcp 1\nprogram g {\n axis V = 4\n axis D = 64\n axis T = 64
      hbm table: bf16 static m![V, D]\n hbm token: i32 input m![T]\n hbm y: bf16 output m![T, D]
      dm row: bf16 at 0 cluster m![2] slice m![T] element m![D]
      tdma 0 8 look: table -> row gather V by token\n tdma 0 8 store: row -> y\n}";
    let program = parse(text).unwrap();
    crate::verify::verify(&program, &Machine::rngd()).unwrap();
    let table = data(256, 5);
    let tokens: Vec<f32> = (0..64).map(|i| (i % 4) as f32).collect();
    let mut slots = vec![
        bytes(Element::Bf16, &table),
        bytes(Element::I32, &tokens),
        vec![0; 8192],
    ];
    run(&program, &mut slots, &SimulationOptions::default()).unwrap();
    assert_eq!(slots[2][128..256], slots[0][128..256]);
    slots[1][4..8].copy_from_slice(&4i32.to_le_bytes());
    let fault = run(&program, &mut slots, &SimulationOptions::default()).unwrap_err();
    assert_eq!(fault.to_string(), "`look`: index 4 where `V` has 4");
    assert_eq!(fault.slot.as_deref(), Some("token"));
}

#[test]
fn integers_are_summed_without_rounding() {
    // More products of 127 × 127 than an f32 can count one by one.
    let text = GEMV
        .replace(
            "outer x_trf time m![K / 32] packet m![K % 32]",
            "outer x_trf time m![K / 64] packet m![K % 64]",
        )
        .replace(
            "time m![K / 16] packet m![K % 16]",
            "time m![K / 32] packet m![K % 32]",
        )
        .replace("axis K = 256", "axis K = 2048")
        .replace("at 512 cluster", "at 4096 cluster")
        .replace("at 1024 cluster", "at 8192 cluster")
        .replace("hbm y: bf16", "hbm y: f32")
        .replace("dm y_dm: bf16", "dm y_dm: f32")
        .replace("    cast bf16\n", "    vector fixed_to_float\n")
        .replace(": bf16", ": i8");
    let program = parse(&text).unwrap();
    crate::verify::verify(&program, &Machine::rngd()).unwrap_or_else(|r| panic!("{}", r[0]));
    let (mut w, mut x) = (vec![127.0; 512 * 2048], vec![127.0; 2048]);
    (w[0], x[1]) = (-128.0, 126.0);
    let mut slots = vec![
        bytes(Element::I8, &w),
        bytes(Element::I8, &x),
        vec![0; 2048],
    ];
    run(&program, &mut slots, &SimulationOptions::default()).unwrap();
    let found = values(Element::F32, &slots[2], 512);
    let whole = 2048 * 127 * 127 - 127;
    assert_eq!(found[0], (whole - 255 * 127) as f32);
    assert_eq!(found[1], whole as f32);
    assert!(whole > 1 << 24);
}
