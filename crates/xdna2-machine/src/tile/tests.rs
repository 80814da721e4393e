//! Kernels against plain formulas in f64, the transcendental functions for every bf16, and the
//! table against itself. (Bit for bit, every kernel is compared with its own scalar reference
//! in `tests/mappings.rs`.)

mod cached;
mod delta;
mod token;

use super::math::{Exp2, Tanh, round, truncate, widen};
use super::*;
use half::bf16;
use millrace_kernels::CpuOptions;
use millrace_npu::Element::{Bf16, F32, U8};

fn cpu() -> Cpu {
    Cpu::new(CpuOptions {
        n_threads: Some(1),
        level: None,
    })
    .expect("a level")
}

/// A call on bf16 buffers; the outputs as numbers. Outputs come in with their content.
fn call(
    name: &str,
    dims: &[u32],
    inputs: &[&[f32]],
    outputs: &[Vec<f32>],
    scalars: &[i64],
    constants: &[f32],
) -> Result<Vec<Vec<f32>>, String> {
    let kernel = find(name).expect("a kernel");
    let narrow =
        |values: &[f32]| -> Vec<bf16> { values.iter().map(|&v| bf16::from_f32(v)).collect() };
    let inputs: Vec<Vec<bf16>> = inputs.iter().map(|i| narrow(i)).collect();
    let mut outputs: Vec<Vec<bf16>> = outputs.iter().map(|o| narrow(o)).collect();
    let elements = vec![Bf16; inputs.len() + outputs.len()];
    let constants: Vec<u32> = constants.iter().map(|c| c.to_bits()).collect();
    kernel.call(
        &elements,
        &mut TileCall {
            cpu: &cpu(),
            dims,
            inputs: inputs.iter().map(|i| bytemuck::cast_slice(i)).collect(),
            outputs: outputs
                .iter_mut()
                .map(|o| bytemuck::cast_slice_mut(o))
                .collect(),
            scalars,
            constants: &constants,
        },
    )?;
    let wide = |o: Vec<bf16>| o.into_iter().map(bf16::to_f32).collect();
    Ok(outputs.into_iter().map(wide).collect())
}

/// Numbers of about −2 to 2 that bf16 holds.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bf16::from_f32((state >> 40) as f32 / (1 << 22) as f32 - 2.0).to_f32()
    };
    (0..n).map(|_| next()).collect()
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        let allowed = relative * expected.abs() + absolute;
        assert!(
            error <= allowed,
            "element {i}: {found}, expected {expected}"
        );
    }
}

#[test]
fn the_table_is_consistent() {
    for (i, kernel) in TABLE.iter().enumerate() {
        assert!(TABLE[..i].iter().all(|other| other.name != kernel.name));
        assert!(find(kernel.name).is_some_and(|found| found.summary == kernel.summary));
        assert!(kernel.outputs > 0, "{}", kernel.name);
        // Nothing is accepted with no or absurd dimensions, and work takes anything.
        for dims in [&[][..], &[0, 0, 0], &[u32::MAX; 3], &[8; 9]] {
            let shape = CallShape {
                dims,
                operands: &[],
                n_scalars: 0,
                constants: &[],
            };
            assert!((kernel.check)(&shape).is_err(), "{} {dims:?}", kernel.name);
            (kernel.work)(dims, &[]);
        }
    }
    assert!(find("no_such_kernel").is_none());
}

#[test]
fn rounding_is_that_of_the_half_crate_and_truncation_cuts() {
    for bits in (0..=u32::MAX).step_by(9973) {
        let x = f32::from_bits(bits);
        if x.is_nan() {
            assert_eq!(
                (round(x).to_bits(), truncate(x).to_bits()),
                (0x7fc0, 0x7fc0)
            );
        } else {
            assert_eq!(round(x).to_bits(), bf16::from_f32(x).to_bits(), "{x}");
            assert_eq!(truncate(x).to_bits(), (bits >> 16) as u16, "{x}");
        }
    }
}

#[test]
fn exp2_and_tanh_are_exact_for_every_bf16() {
    let (exp2, tanh) = (Exp2::new(), Tanh::new());
    for bits in 0..=u16::MAX {
        let x = bf16::from_bits(bits);
        if x.is_nan() {
            assert!(exp2.of(widen(x)).is_nan() && tanh.of(x).is_nan());
            continue;
        }
        let exact = f64::from(widen(x));
        assert_eq!(exp2.of(widen(x)), round(exact.exp2() as f32), "2^{x}");
        assert_eq!(tanh.of(x), round(exact.tanh() as f32), "tanh {x}");
    }
    // Between bf16 numbers too.
    for i in 0..100_000 {
        let x = i as f32 * 0.003 - 160.0;
        assert_eq!(exp2.of(x), round(f64::from(x).exp2() as f32), "2^{x}");
    }
}

#[test]
fn activations_follow_their_formulas() {
    let (gate, up) = (numbers(512, 1), numbers(512, 2));
    let wide = |i: usize| (f64::from(gate[i]), f64::from(up[i]));
    let zeros = vec![vec![0.0; 512]];
    let found = call("silu_mul_bf16", &[512], &[&gate, &up], &zeros, &[], &[]).expect("legal");
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let expected: Vec<f64> = (0..512).map(|i| silu(wide(i).0) * wide(i).1).collect();
    assert_close(&found[0], &expected, 0.02, 0.01);
    let found = call("gelu_mul_bf16", &[512], &[&gate, &up], &zeros, &[], &[]).expect("legal");
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh());
    let expected: Vec<f64> = (0..512).map(|i| gelu(wide(i).0) * wide(i).1).collect();
    assert_close(&found[0], &expected, 0.02, 0.02);
    let found = call("gelu_bf16", &[512], &[&gate], &zeros, &[], &[]).expect("legal");
    let expected: Vec<f64> = (0..512).map(|i| gelu(wide(i).0)).collect();
    assert_close(&found[0], &expected, 0.02, 0.01);
}

#[test]
fn norms_and_rotation_follow_their_formulas() {
    let (x, gamma, beta) = (numbers(3 * 40, 3), numbers(40, 4), numbers(40, 5));
    let zeros = vec![vec![0.0; 120]];
    let rows = || {
        x.chunks_exact(40)
            .map(|row| row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())
    };
    let found = call(
        "rmsnorm_bf16",
        &[3, 40],
        &[&x, &gamma],
        &zeros,
        &[],
        &[1e-5],
    )
    .expect("legal");
    let expected: Vec<f64> = rows()
        .flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / 40.0;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            row.into_iter()
                .zip(&gamma)
                .map(move |(x, &g)| x * scale * f64::from(g))
        })
        .collect();
    assert_close(&found[0], &expected, 0.005, 0.0);
    let inputs: [&[f32]; 3] = [&x, &gamma, &beta];
    let found = call("layernorm_bf16", &[3, 40], &inputs, &zeros, &[], &[1e-5]).expect("legal");
    let expected: Vec<f64> = rows()
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / 40.0;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 40.0;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            let affine = row.into_iter().zip(gamma.iter().zip(&beta));
            affine.map(move |(x, (&g, &b))| (x - mean) * scale * f64::from(g) + f64::from(b))
        })
        .collect();
    assert_close(&found[0], &expected, 0.005, 1e-4);
    let table = numbers(120, 6);
    let found = call(
        "rope_halfsplit_bf16",
        &[3, 40],
        &[&x, &table],
        &zeros,
        &[],
        &[],
    )
    .expect("legal");
    let at = |v: &[f32], i: usize| f64::from(v[i]);
    let expected: Vec<f64> = (0..120)
        .map(|i| {
            let (row, col) = (i / 40 * 40, i % 40);
            let (low, high) = (row + col % 20, row + col % 20 + 20);
            let (cos, sin) = (at(&table, low), at(&table, high));
            match col < 20 {
                true => at(&x, low) * cos - at(&x, high) * sin,
                false => at(&x, low) * sin + at(&x, high) * cos,
            }
        })
        .collect();
    assert_close(&found[0], &expected, 0.005, 1e-6);
}

/// `[rows, cols]` row-major to `[cols/8][rows/8][8 row][8 col]`.
fn blocked(x: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let at = |i: usize| {
        let (block, row, col) = (i / 64, i % 64 / 8, i % 8);
        let (row_block, col_block) = (block % (rows / 8), block / (rows / 8));
        x[(row_block * 8 + row) * cols + col_block * 8 + col]
    };
    (0..rows * cols).map(at).collect()
}

#[test]
fn attention_by_parts_is_attention() {
    const T: usize = 16;
    const D: usize = 8;
    let (q, k, v) = (
        numbers(T * D, 7),
        numbers(2 * T * D, 8),
        numbers(2 * T * D, 9),
    );
    let scale = 0.3_f32;
    let dims = [T as u32, T as u32, D as u32];
    let state_dims = [T as u32, D as u32];
    let empty = vec![vec![0.0; T * D + 2 * T]];
    // The queries come after the first tile of keys; the second is masked by the diagonal.
    let mut states = Vec::new();
    for tile in 0..2 {
        let rows = tile * T * D..(tile + 1) * T * D;
        let (k, v) = (blocked(&k[rows.clone()], T, D), blocked(&v[rows], T, D));
        let state = call("fa_init_bf16", &state_dims, &[], &empty, &[], &[]).expect("legal");
        let q = blocked(&q, T, D);
        let positions = [T as i64, (tile * T) as i64];
        let s = call(
            "fa_scores_bf16",
            &dims,
            &[&q, &k],
            &[vec![0.0; T * T]],
            &positions,
            &[],
        );
        let operands = [s.expect("legal").remove(0), state[0].clone(), vec![0.0; T]];
        let soft = call("fa_softmax_bf16", &dims, &[], &operands, &[], &[scale]).expect("legal");
        let inputs: [&[f32]; 3] = [&soft[0], &v, &soft[2]];
        let state = call("fa_values_bf16", &dims, &inputs, &soft[1..2], &[], &[]);
        states.push(state.expect("legal").remove(0));
    }
    let both = [&states[0][..], &states[1]];
    let merged = call("fa_merge_bf16", &state_dims, &both, &empty, &[], &[scale]).expect("legal");
    let y = call(
        "fa_finish_bf16",
        &state_dims,
        &[&merged[0]],
        &[vec![0.0; T * D]],
        &[],
        &[],
    );
    let y = y.expect("legal").remove(0);
    let wide = |x: &[f32], i: usize| f64::from(x[i]);
    let mut expected = Vec::new();
    for query in 0..T {
        let weight = |key: usize| {
            let dot: f64 = (0..D)
                .map(|i| wide(&q, query * D + i) * wide(&k, key * D + i))
                .sum();
            if key > T + query {
                0.0
            } else {
                (f64::from(scale) * dot).exp()
            }
        };
        let sum: f64 = (0..2 * T).map(weight).sum();
        for i in 0..D {
            let o: f64 = (0..2 * T)
                .map(|key| weight(key) * wide(&v, key * D + i))
                .sum();
            expected.push((o / sum) as f32);
        }
    }
    let expected: Vec<f64> = blocked(&expected, T, D)
        .iter()
        .map(|&y| f64::from(y))
        .collect();
    assert_close(&y, &expected, 0.02, 0.02);
}

#[test]
fn a_product_truncated_and_a_call_that_does_not_fit() {
    let (a, b) = (numbers(64, 10), numbers(64, 11));
    let c = numbers(64, 12);
    let found = call(
        "matmul_bf16_bf16.direct",
        &[8, 8, 8],
        &[&a, &b],
        std::slice::from_ref(&c),
        &[],
        &[],
    );
    let expected: Vec<f64> = (0..64)
        .map(|i| {
            let products =
                (0..8).map(|k| f64::from(a[i / 8 * 8 + k]) * f64::from(b[k * 8 + i % 8]));
            f64::from(c[i]) + products.sum::<f64>()
        })
        .collect();
    let found = found.expect("legal").remove(0);
    assert_close(&found, &expected, 0.008, 1e-5);
    // Towards zero: never beyond the sum.
    let beyond = |(f, e): (&f32, &f64)| f64::from(f.abs()) > e.abs() + 1e-5;
    assert!(!found.iter().zip(&expected).any(beyond));
    let refused = call("add_bf16", &[64], &[&a, &b], &[vec![0.0; 63]], &[], &[]);
    let message = refused.expect_err("too short");
    assert!(
        message.contains("operand y must have 64 elements of bf16, it has 63"),
        "{message}"
    );
    let kernel = find("cast_f32_bf16").expect("a kernel");
    let (x, mut y) = (vec![0_u8; 68], vec![0_u8; 34]);
    let odd = usize::from((x.as_ptr() as usize).is_multiple_of(4));
    let mut call = TileCall {
        cpu: &cpu(),
        dims: &[16],
        inputs: vec![&x[odd..odd + 64]],
        outputs: vec![&mut y[..32]],
        scalars: &[],
        constants: &[],
    };
    let message = kernel
        .call(&[F32, Bf16], &mut call)
        .expect_err("misaligned");
    assert!(message.contains("aligned"), "{message}");
}

#[test]
fn products_of_integers_add_to_what_is_there() {
    let cpu = cpu();
    let kernel = find("matmul_bt_i8_i32").expect("a kernel");
    let [m, n, k] = [16_usize, 24, 40];
    let byte = |at: usize| (at * 37 % 256) as u8 as i8;
    let a: Vec<i8> = (0..m * k).map(byte).collect();
    let bt: Vec<i8> = (0..n * k).map(|at| byte(at + 5)).collect();
    let blocked = |x: &[i8], rows: usize| -> Vec<i8> {
        let at = |i: usize| {
            let (block, row, col) = (i / 64, i / 8 % 8, i % 8);
            x[(block % (rows / 8) * 8 + row) * k + block / (rows / 8) * 8 + col]
        };
        (0..x.len()).map(at).collect()
    };
    let mut c = vec![7_i32; m * n];
    let elements = [Element::I8, Element::I8, Element::I32];
    let (a_tile, b_tile) = (blocked(&a, m), blocked(&bt, n));
    let mut given = TileCall {
        cpu: &cpu,
        dims: &[m as u32, n as u32, k as u32],
        inputs: vec![bytemuck::cast_slice(&a_tile), bytemuck::cast_slice(&b_tile)],
        outputs: vec![bytemuck::cast_slice_mut(&mut c)],
        scalars: &[],
        constants: &[],
    };
    kernel.call(&elements, &mut given).expect("a product");
    let refused = kernel.call(&[Element::I8, Element::I8, Element::F32], &mut given);
    assert!(refused.is_err_and(|words| words.contains("i32")));
    for (i, c) in c.iter().enumerate() {
        let (row, col) = (i / 8 % m, i / (8 * m) * 8 + i % 8);
        let terms = (0..k).map(|p| i32::from(a[row * k + p]) * i32::from(bt[col * k + p]));
        assert_eq!(*c, 7 + terms.sum::<i32>(), "{row} {col}");
    }
}
