//! Elementwise ops against their oracles, at every level.

use super::*;
use crate::cpu::CpuOptions;
use crate::error::Error;
use crate::matmul::WeightMatrix;
use crate::oracle::elementwise as oracle;
use millrace_quant::DType;

const LENGTHS: [usize; 10] = [1, 2, 7, 8, 15, 16, 17, 64, 333, 50_000];

fn numbers(n: usize, seed: u64, range: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * range
    };
    (0..n).map(next).collect()
}

fn for_each_cpu(f: impl Fn(&Cpu)) {
    // Once for each row of the table.
    let mut levels = Level::supported();
    levels.dedup_by_key(|level| std::ptr::from_ref(ElementwiseKernels::for_level(*level)));
    for level in levels {
        for n_threads in [1, 2] {
            let options = CpuOptions {
                n_threads: Some(n_threads),
                level: Some(level),
            };
            f(&Cpu::new(options).expect("supported"));
        }
    }
}

/// Asserts that each value is within `ulps` of its oracle, or within `ulps` roundings of `floor`.
fn assert_close(found: &[f32], expected: &[f64], ulps: f64, floor: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let unit = expected.abs().max(floor).max(f64::from(f32::MIN_POSITIVE)) * 2f64.powi(-24);
        let error = (f64::from(*found) - expected).abs() / unit;
        assert!(
            error <= 2.0 * ulps,
            "{what} [{i}]: {found:e} for {expected:e}, {error} half ulps"
        );
    }
}

/// A sixteenth of a million inputs between the ends of the range, with and without fused
/// multiply-add, within two units in the last place.
#[test]
fn exp_is_accurate() {
    let mut worst = 0.0f64;
    for bits in (0..0x42b1_7218u32).step_by(9973) {
        for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
            let expected = f64::from(x).exp();
            if expected < f64::from(f32::MIN_POSITIVE) {
                continue;
            }
            for found in [body::exp::<true>(x), body::exp::<false>(x)] {
                let error = (f64::from(found) - expected).abs() / (expected * 2f64.powi(-24));
                worst = worst.max(error);
            }
        }
    }
    assert!(worst < 4.0, "{worst} half units");
    assert_eq!(body::exp::<true>(0.0), 1.0);
    assert_eq!(body::exp::<true>(f32::NEG_INFINITY), 0.0);
    assert_eq!(body::exp::<true>(f32::INFINITY), f32::INFINITY);
    assert_eq!(body::exp::<false>(100.0), f32::INFINITY);
}

/// Compares with sums of the standard library's exponentials at every level. Some numbers are far below the largest.
#[test]
fn sums_of_exponentials() {
    for_each_cpu(|cpu| {
        let rows = ElementwiseKernels::for_level(cpu.level());
        for n in LENGTHS {
            for range in [0.0, 1.0, 30.0, 3000.0] {
                let mut x = numbers(n, 7, range);
                x[n / 2] = range;
                let exact: f64 = (x.iter())
                    .map(|x| (f64::from(*x) - f64::from(range)).exp())
                    .sum();
                for found in [rows.sum_exp(&x, range), sum_exp(&x, range)] {
                    let error = (found - exact).abs() / exact;
                    assert!(error < 3e-14, "{n} up to {range}: {found} for {exact}");
                }
            }
        }
    });
}

/// A model whose weights are damaged gives such rows, and callers look for them in the sum.
#[test]
fn sums_of_exponentials_have_the_nan_of_an_element() {
    for_each_cpu(|cpu| {
        let rows = ElementwiseKernels::for_level(cpu.level());
        for n in [1, 7, 8, 32, 37, 100] {
            for at in [0, n / 2, n - 1] {
                let mut x = vec![-1.0; n];
                x[at] = f32::NAN;
                for found in [rows.sum_exp(&x, 0.0), sum_exp(&x, 0.0)] {
                    assert!(found.is_nan(), "{} of {n}: {found}", at);
                }
            }
        }
    });
}

#[test]
fn norms_of_rows_and_heads() {
    for_each_cpu(|cpu| {
        // Group size, groups in all rows, and groups in a row that have separate weights.
        for (group, n_groups, n_own) in [
            (1, 3, 1),
            (8, 5, 1),
            (31, 2, 1),
            (64, 700, 1),
            (2048, 3, 1),
            (1000, 40, 1),
            (1, 6, 3),
            (24, 4, 4),
            (40, 1002, 3),
        ] {
            let x = numbers(group * n_groups, group as u64, 3.0);
            let weight = numbers(group * n_own, 5, 2.0);
            for (eps, offset) in [(1e-6, 0.0), (1e-5, 1.0)] {
                let mut out = vec![f32::NAN; x.len()];
                rms_norm(cpu, &x, group, &weight, eps, offset, &mut out);
                let expected = oracle::rms_norm(&x, group, &weight, eps, offset);
                // Sums of squares in f32, and weight + offset may cancel.
                assert_close(&out, &expected, 8.0, 1e-1, "rms_norm");
            }
        }
    });
}

#[test]
fn layer_norms() {
    for_each_cpu(|cpu| {
        for (width, n_rows) in [(1, 3), (8, 5), (31, 2), (72, 700), (1152, 40)] {
            // Far from zero, where the mean matters.
            let x: Vec<f32> = numbers(width * n_rows, width as u64, 3.0)
                .iter()
                .map(|x| x + 5.0)
                .collect();
            let (weight, bias) = (numbers(width, 5, 2.0), numbers(width, 6, 1.0));
            let mut out = vec![f32::NAN; x.len()];
            layer_norm(cpu, &x, width, (&weight, &bias), 1e-6, &mut out);
            let expected = oracle::layer_norm(&x, &weight, &bias, 1e-6);
            if width == 1 {
                // Nothing but the bias is left of a row of one.
                assert!(out.iter().all(|out| *out == bias[0]));
            } else {
                assert_close(&out, &expected, 16.0, 1.0, "layer_norm");
            }
        }
    });
}

#[test]
fn groups_of_a_layer_norm_take_turns_with_weights() {
    for_each_cpu(|cpu| {
        let (group, n_groups, n_rows) = (31, 3, 5);
        let width = group * n_groups;
        let x = numbers(width * n_rows, 9, 3.0);
        let weight = numbers(width, 5, 2.0);
        let mut out = vec![f32::NAN; x.len()];
        layer_norm(cpu, &x, group, (&weight, &[]), 1e-6, &mut out);
        for (i, (x, out)) in x.chunks(group).zip(out.chunks(group)).enumerate() {
            let weight = &weight[i % n_groups * group..][..group];
            let expected = oracle::layer_norm(x, weight, &[0.0; 31], 1e-6);
            assert_close(out, &expected, 16.0, 1.0, "layer_norm of groups");
        }
    });
}

#[test]
fn norm_of_zeros_is_zero() {
    for_each_cpu(|cpu| {
        let mut out = [f32::NAN; 32];
        rms_norm(cpu, &[0.0; 32], 16, &[1.0; 16], 1e-6, 0.0, &mut out);
        assert_eq!(out, [0.0; 32]);
    });
}

#[test]
fn gated_activations() {
    for_each_cpu(|cpu| {
        for n in LENGTHS {
            for activation in [
                Activation::Silu,
                Activation::GeluTanh,
                Activation::Sigmoid,
                Activation::Relu,
                Activation::ReluSquared,
            ] {
                let (mut gate, up) = (numbers(n, 1, 12.0), numbers(n, 2, 2.0));
                let expected = oracle::glu(activation, &gate, &up);
                let mut out = vec![f32::NAN; n];
                glu_to(cpu, activation, &gate, &up, &mut out);
                glu(cpu, activation, &mut gate, &up);
                assert_eq!(gate, out);
                // Far negative gates: e^x of an x that was rounded, hence an error that grows with x.
                assert_close(&gate, &expected, 40.0, 1e-3, "glu");
            }
        }
        for n in LENGTHS {
            let (mut gate, up) = (numbers(n, 1, 12.0), numbers(n, 2, 1.0));
            let expected = oracle::glu(Activation::Gelu, &gate, &up);
            glu(cpu, Activation::Gelu, &mut gate, &up);
            assert_close(&gate, &expected, 4.0, 1.0, "exact GELU");
        }
        for n in LENGTHS {
            let mut x = numbers(n, 3, 12.0);
            let mut gate = x.clone();
            glu(cpu, Activation::GeluTanh, &mut gate, &vec![1.0; n]);
            activate(cpu, Activation::GeluTanh, &mut x);
            assert_eq!(x, gate);
        }
        let mut gate = [-1e30, -200.0, -0.0, 0.0, 200.0, 1e30];
        glu(cpu, Activation::Silu, &mut gate, &[1.0; 6]);
        assert_eq!(gate, [0.0, 0.0, 0.0, 0.0, 200.0, 1e30]);
        let mut gate = [-1e30, -200.0, 0.0, 200.0, 1e30];
        glu(cpu, Activation::GeluTanh, &mut gate, &[1.0; 5]);
        assert_eq!(gate, [0.0, 0.0, 0.0, 200.0, 1e30]);
    });
}

#[test]
fn bounded_gates_and_soft_bounds() {
    for_each_cpu(|cpu| {
        for n in LENGTHS {
            let (mut gate, up) = (numbers(n, 1, 12.0), numbers(n, 2, 12.0));
            let expected: Vec<f64> = (gate.iter().zip(&up))
                .map(|(gate, up)| {
                    let (gate, up) = (f64::from(*gate).min(7.0), f64::from(*up).clamp(-7.0, 7.0));
                    gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0)
                })
                .collect();
            glu_clamped(cpu, (1.702, 7.0), &mut gate, &up);
            assert_close(&gate, &expected, 40.0, 1e-3, "clamped glu");
            let mut x = numbers(n, 3, 90.0);
            let expected: Vec<f64> = x
                .iter()
                .map(|x| 30.0 * (f64::from(*x) / 30.0).tanh())
                .collect();
            softcap(cpu, &mut x, 30.0);
            for (x, expected) in x.iter().zip(&expected) {
                assert!(
                    (f64::from(*x) - expected).abs() < 30.0 * 4e-7,
                    "{x} for {expected}"
                );
            }
        }
        let mut x = [-1e30, 0.0, 1e30];
        softcap(cpu, &mut x, 5.0);
        assert_eq!(x, [-5.0, 0.0, 5.0]);
    });
}

#[test]
fn learned_activations() {
    let [square, exponential, linear, bound] = [0.8, 1.3, 0.5, -1e-6];
    let exact = |x: f32| {
        let (x, bound) = (f64::from(x), f64::from(bound));
        let curve = match x > 0.0 {
            true => f64::from(square) * x * x,
            false => f64::from(exponential) * (x.min(bound).exp_m1() - x),
        };
        curve + f64::from(linear) * x
    };
    for_each_cpu(|cpu| {
        for n in LENGTHS {
            for range in [1e-3, 12.0, 200.0] {
                let mut x = numbers(n, 3, range);
                let expected: Vec<f64> = x.iter().map(|x| exact(*x)).collect();
                xielu(cpu, [square, exponential, linear, bound], &mut x);
                assert_close(&x, &expected, 4.0, 1.0, "xIELU");
            }
        }
        let mut x = [-0.0, 0.0];
        xielu(cpu, [square, exponential, linear, bound], &mut x);
        assert!(x.iter().all(|x| x.abs() < 2e-6), "{x:?}");
    });
}

#[test]
fn sums_and_factors_are_exact() {
    for_each_cpu(|cpu| {
        for n in LENGTHS {
            let (mut acc, x) = (numbers(n, 1, 4.0), numbers(n, 2, 4.0));
            let expected: Vec<f32> = acc.iter().zip(&x).map(|(acc, x)| (acc + x) * 0.3).collect();
            add(cpu, &mut acc, &x);
            scale(cpu, &mut acc, 0.3);
            assert_eq!(acc, expected);
        }
    });
}

#[test]
fn products_and_parts_of_heads_are_exact() {
    for_each_cpu(|cpu| {
        for n in LENGTHS {
            let (mut acc, x) = (numbers(n, 1, 4.0), numbers(n, 2, 4.0));
            let expected: Vec<f32> = acc.iter().zip(&x).map(|(acc, x)| acc * x).collect();
            multiply(cpu, &mut acc, &x);
            assert_eq!(acc, expected);
        }
        for (n_heads, head_dim, range) in [(3, 8, 2..5), (1, 1, 0..1), (4000, 32, 16..32)] {
            let x = numbers(n_heads * head_dim, 3, 1.0);
            let mut out = vec![0.0; n_heads * range.len()];
            slice_heads(cpu, &x, head_dim, range.clone(), &mut out);
            let heads = x.chunks(head_dim).map(|head| &head[range.clone()]);
            assert_eq!(out, heads.collect::<Vec<_>>().concat());
        }
    });
}

#[test]
fn rotations() {
    for_each_cpu(|cpu| {
        for (head_dim, n_rot) in [(64, 64), (80, 80), (128, 64), (256, 256), (8, 2), (96, 0)] {
            for interleaved in [false, true] {
                let inv_freq: Vec<f32> = (0..n_rot / 2)
                    .map(|i| 10_000f32.powf(-2.0 * i as f32 / n_rot as f32))
                    .collect();
                let table = RopeTable::new(interleaved, inv_freq, 1.25);
                table.warm(10);
                let positions = [0, 1, 255, 256, 4095, 262_143, 262_144, 1_000_000];
                let row = 6 * head_dim;
                let mut x = numbers(positions.len() * row, 3, 2.0);
                let expected: Vec<f64> = positions
                    .iter()
                    .zip(x.chunks(row))
                    .flat_map(|(&position, x)| oracle::rope(x, head_dim, position, &table))
                    .collect();
                rope(cpu, &mut x, head_dim, &positions, &table);
                assert_close(&x, &expected, 3.0, 3.0, "rope");
            }
        }
    });
}

#[test]
fn many_rows_rotate_in_parallel_as_they_do_alone() {
    for_each_cpu(|cpu| {
        let table = RopeTable::new(false, vec![1.0, 0.1, 0.01, 0.001], 1.0);
        let positions: Vec<u32> = (0..600).map(|i| i * 7 % 1000).collect();
        let mut x = numbers(600 * 64, 3, 2.0);
        let mut alone = x.clone();
        rope(cpu, &mut x, 16, &positions, &table);
        for (x, position) in alone.chunks_mut(64).zip(&positions) {
            rope(cpu, x, 16, &[*position], &table);
        }
        assert_eq!(x, alone);
    });
}

#[test]
fn embedding_rows() {
    for_each_cpu(|cpu| {
        for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4K] {
            let (n_vocab, k) = (40, 256);
            let weights = numbers(n_vocab * k, 9, 1.0);
            let n_bytes = dtype.size_bytes(n_vocab, k).expect("whole blocks");
            let mut bytes = vec![0; n_bytes];
            millrace_quant::encode_matrix(dtype, &weights, n_vocab, k, &mut bytes)
                .expect("encoder");
            let mut decoded = vec![0.0; n_vocab * k];
            millrace_quant::decode_rows(dtype, &bytes, n_vocab, k, 0..n_vocab, &mut decoded)
                .expect("decoder");
            let table = WeightMatrix::new(dtype, n_vocab, k, &bytes).expect("sizes");
            for n_tokens in [0usize, 1, 3, 200] {
                let tokens: Vec<u32> = (0..n_tokens as u32).map(|i| i * 11 % 40).collect();
                let mut out = vec![f32::NAN; n_tokens * k];
                embed(cpu, &table, &tokens, 3.0, &mut out).expect("known tokens");
                for (out, &token) in out.chunks(k).zip(&tokens) {
                    let row = &decoded[token as usize * k..][..k];
                    assert!(
                        out.iter().zip(row).all(|(out, row)| *out == row * 3.0),
                        "{dtype:?}"
                    );
                }
            }
            let refused = embed(cpu, &table, &[39, 40], 1.0, &mut vec![0.0; 2 * k]);
            assert!(matches!(
                refused,
                Err(Error::Token {
                    token: 40,
                    n_vocab: 40
                })
            ));
        }
    });
}
