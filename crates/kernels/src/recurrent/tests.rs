//! Recurrent ops against their oracles at every level, and the same bits however a sequence is cut.

use super::*;
use crate::cpu::{Cpu, CpuOptions};
use crate::level::Level;
use crate::oracle::recurrent as oracle;

const PAGE: usize = 4;

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(next).collect()
}

fn for_each_cpu(f: impl Fn(&Cpu)) {
    let mut levels = Level::supported();
    levels.dedup_by_key(|level| std::ptr::from_ref(leaves::RecurrentKernels::for_level(*level)));
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

fn assert_close(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error < 4e-6, "{what} [{i}]: {found} for {expected}");
    }
}

/// Computes these tokens of a sequence.
type RunPart<'a> = &'a dyn Fn(StateSlots<'_>, &[StateRun<'_>], Range<usize>, &mut [f32]);

/// Runs a sequence cut at these tokens. Its slots are out of order, between slots of other sequences that must stay unchanged.
fn in_parts(
    n_tokens: usize,
    cuts: &[usize],
    (n_state, width_out): (usize, usize),
    run: RunPart<'_>,
) -> Vec<f32> {
    const OFFSET: usize = 5;
    let n_pages = n_tokens.div_ceil(PAGE);
    let slot_elems = n_state + 2 * OFFSET;
    // Previous contents must not matter.
    let mut data = vec![f32::NAN; 2 * n_pages * slot_elems];
    let slots: Vec<u32> = (0..n_pages as u32).rev().map(|page| 2 * page).collect();
    let mut out = vec![0.0; n_tokens * width_out];
    let mut first = 0;
    for end in cuts.iter().copied().chain([n_tokens]) {
        // One page after them is enough to begin from.
        let first_page = (first / PAGE).saturating_sub(1);
        let state_run = StateRun {
            rows: 0..end - first,
            first_pos: first,
            slots: &slots[first_page..],
            first_page,
        };
        let states = StateSlots {
            data: &mut data,
            slot_elems,
            range: OFFSET..OFFSET + n_state,
            page_tokens: PAGE,
        };
        let part = &mut out[first * width_out..end * width_out];
        run(states, &[state_run], first..end, part);
        first = end;
    }
    for (slot, data) in data.chunks(slot_elems).enumerate() {
        let around = [&data[..OFFSET], &data[OFFSET + n_state..]];
        assert!(around.iter().all(|x| x.iter().all(|x| x.is_nan())));
        assert!(
            slot % 2 == 0 || data.iter().all(|x| x.is_nan()),
            "slot {slot}"
        );
    }
    out
}

const CUTS: [&[usize]; 5] = [
    &[],
    &[1],
    &[4, 8],
    &[3, 5, 6, 13],
    &[
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
    ],
];

#[test]
fn convolutions_are_their_sums_however_a_sequence_is_cut() {
    const N_TOKENS: usize = 19;
    for (n_channels, n_taps, biased, silu) in [
        (1, 2, false, false),
        (40, 3, true, false),
        (16, 4, false, true),
        (100, 4, true, true),
        (7, MAX_TAPS, false, false),
    ] {
        let x = numbers(N_TOKENS * n_channels, 1);
        let weight = numbers(n_channels * n_taps, 2);
        let bias = numbers(n_channels, 3);
        let input = |rows: Range<usize>| ConvInput {
            x: &x[rows.start * n_channels..rows.end * n_channels],
            weight: &weight,
            bias: biased.then_some(&bias[..]),
            n_channels,
            silu,
        };
        let expected = oracle::causal_conv(&input(0..N_TOKENS));
        for_each_cpu(|cpu| {
            let run = |cuts: &[usize]| {
                let sizes = ((n_taps - 1) * n_channels, n_channels);
                in_parts(N_TOKENS, cuts, sizes, &|states, runs, rows, out| {
                    causal_conv(cpu, input(rows), states, runs, out);
                })
            };
            let what = format!("{n_channels} channels, {n_taps} taps, {}", cpu.level());
            let whole = run(&[]);
            assert_close(&whole, &expected, &what);
            for cuts in CUTS {
                assert!(run(cuts) == whole, "{what}, cut at {cuts:?}");
            }
        });
    }
}

#[test]
fn delta_nets_are_their_recurrence_however_a_sequence_is_cut() {
    const N_TOKENS: usize = 19;
    for (n_k_heads, n_v_heads, k_dim, v_dim, tiled) in [
        (1, 1, 1, 1, false),
        (2, 6, 16, 16, true),
        (2, 4, 24, 40, false),
        (3, 3, 17, 9, true),
        (1, 2, 128, 128, false),
        (1, 1, MAX_KEY_DIM, 33, false),
    ] {
        let shape = DeltaShape {
            n_k_heads,
            n_v_heads,
            k_dim,
            v_dim,
            tiled,
        };
        let width = shape.qkv_width();
        let qkv = numbers(N_TOKENS * width, 1);
        let gates = [2, 3].map(|seed| numbers(N_TOKENS * n_v_heads, seed));
        let rates: Vec<f32> = numbers(n_v_heads, 4).iter().map(|x| x - 1.2).collect();
        let dt = numbers(n_v_heads, 5);
        for rate_is_log in [false, true] {
            let input = |rows: Range<usize>| DeltaInput {
                qkv: &qkv[rows.start * width..rows.end * width],
                alpha: &gates[0][rows.start * n_v_heads..rows.end * n_v_heads],
                beta: &gates[1][rows.start * n_v_heads..rows.end * n_v_heads],
                rate: &rates,
                rate_is_log,
                dt: &dt,
                max_strength: if rate_is_log { 2.0 } else { 1.0 },
            };
            let expected = oracle::delta_net(&shape, &input(0..N_TOKENS));
            for_each_cpu(|cpu| {
                let run = |cuts: &[usize]| {
                    let sizes = (n_v_heads * shape.head_elems(), n_v_heads * v_dim);
                    in_parts(N_TOKENS, cuts, sizes, &|states, runs, rows, out| {
                        delta_net(cpu, &shape, input(rows), states, runs, out);
                    })
                };
                let what = format!("{shape:?}, {}", cpu.level());
                let whole = run(&[]);
                assert_close(&whole, &expected, &what);
                for cuts in CUTS {
                    assert!(run(cuts) == whole, "{what}, cut at {cuts:?}");
                }
            });
        }
    }
}

#[test]
fn kimi_delta_attention_is_its_recurrence_however_a_sequence_is_cut() {
    const N_TOKENS: usize = 19;
    for (n_heads, head_dim) in [(1, 1), (2, 16), (3, 24), (2, 128), (1, MAX_KEY_DIM)] {
        let shape = RuleShape { n_heads, head_dim };
        let width = shape.width();
        let [q, k, v, alpha] = [1, 2, 3, 4].map(|seed| numbers(N_TOKENS * width, seed));
        let beta = numbers(N_TOKENS * n_heads, 5);
        let rate: Vec<f32> = numbers(n_heads, 6).iter().map(|x| x - 1.2).collect();
        let dt = numbers(width, 7);
        for rate_is_log in [false, true] {
            let input = |rows: Range<usize>| {
                let of = rows.start * width..rows.end * width;
                KimiDeltaInput {
                    q: &q[of.clone()],
                    k: &k[of.clone()],
                    v: &v[of.clone()],
                    alpha: &alpha[of],
                    beta: &beta[rows.start * n_heads..rows.end * n_heads],
                    rate: &rate,
                    rate_is_log,
                    dt: &dt,
                }
            };
            let expected = oracle::kimi_delta(&shape, &input(0..N_TOKENS));
            for_each_cpu(|cpu| {
                let run = |cuts: &[usize]| {
                    let sizes = (n_heads * shape.head_elems(), width);
                    in_parts(N_TOKENS, cuts, sizes, &|states, runs, rows, out| {
                        kimi_delta(cpu, &shape, input(rows), states, runs, out);
                    })
                };
                let what = format!("{shape:?}, {}", cpu.level());
                let whole = run(&[]);
                assert_close(&whole, &expected, &what);
                for cuts in CUTS {
                    assert!(run(cuts) == whole, "{what}, cut at {cuts:?}");
                }
            });
        }
    }
}

#[test]
fn rwkv_7_is_its_recurrence_however_a_sequence_is_cut() {
    const N_TOKENS: usize = 19;
    for (n_heads, head_dim) in [(1, 1), (2, 16), (3, 24), (2, 64), (1, MAX_KEY_DIM)] {
        let shape = RuleShape { n_heads, head_dim };
        let width = shape.width();
        // Sums over keys of long heads stay near 1, and shares between 0 and 1.
        let of = |seed: u64, scale: f32, offset: f32| -> Vec<f32> {
            let numbers = numbers(N_TOKENS * width, seed).into_iter();
            numbers.map(|x| scale * x + offset).collect()
        };
        let scale = 1.0 / (head_dim as f32).sqrt();
        let (r, k, v) = (of(1, scale, 0.0), of(2, scale, 0.0), of(3, 1.0, 0.0));
        let (fade, rate) = (of(4, 0.5, 0.5), of(5, 0.5, 0.5));
        let (removal, weakening) = (numbers(width, 6), numbers(width, 7));
        let input = |rows: Range<usize>| {
            let of = rows.start * width..rows.end * width;
            Rwkv7Input {
                r: &r[of.clone()],
                fade: &fade[of.clone()],
                k: &k[of.clone()],
                v: &v[of.clone()],
                rate: &rate[of],
                removal: &removal,
                weakening: &weakening,
            }
        };
        let expected = oracle::rwkv7(&shape, &input(0..N_TOKENS));
        for_each_cpu(|cpu| {
            let run = |cuts: &[usize]| {
                let sizes = (n_heads * shape.head_elems(), width);
                in_parts(N_TOKENS, cuts, sizes, &|states, runs, rows, out| {
                    rwkv7(cpu, &shape, input(rows), states, runs, out);
                })
            };
            let what = format!("{shape:?}, {}", cpu.level());
            let whole = run(&[]);
            assert_close(&whole, &expected, &what);
            for cuts in CUTS {
                assert!(run(cuts) == whole, "{what}, cut at {cuts:?}");
            }
        });
    }
}

#[test]
fn selective_scans_are_their_recurrence_however_a_sequence_is_cut() {
    const N_TOKENS: usize = 19;
    for (n_heads, n_groups, head_dim, d_state) in [
        (1, 1, 1, 1),
        (6, 2, 16, 16),
        (4, 1, 24, 40),
        (3, 3, 17, 9),
        (2, 1, 64, 128),
        (1, 1, 33, MAX_KEY_DIM),
    ] {
        let shape = SsmShape {
            n_heads,
            n_groups,
            head_dim,
            d_state,
        };
        let width = shape.xbc_width();
        // Keys as short as those of unit length keep the sums where the tolerance is meant for.
        let scale = 1.0 / (d_state as f32).sqrt();
        let xbc = numbers(N_TOKENS * width, 1);
        let xbc: Vec<f32> = xbc.iter().map(|x| x * scale).collect();
        let dt = numbers(N_TOKENS * n_heads, 2);
        let rates: Vec<f32> = numbers(n_heads, 4).iter().map(|x| x - 1.2).collect();
        let (dt_bias, skip) = (numbers(n_heads, 5), numbers(n_heads, 6));
        for (rate_is_log, dt_limit) in [(false, (0.0, f32::INFINITY)), (true, (0.5, 0.9))] {
            let input = |rows: Range<usize>| SsmInput {
                xbc: &xbc[rows.start * width..rows.end * width],
                dt: &dt[rows.start * n_heads..rows.end * n_heads],
                rate: &rates,
                rate_is_log,
                dt_bias: &dt_bias,
                dt_limit,
                skip: &skip,
            };
            let expected = oracle::ssm_scan(&shape, &input(0..N_TOKENS));
            for_each_cpu(|cpu| {
                let run = |cuts: &[usize]| {
                    let sizes = (n_heads * shape.head_elems(), n_heads * head_dim);
                    in_parts(N_TOKENS, cuts, sizes, &|states, runs, rows, out| {
                        ssm_scan(cpu, &shape, input(rows), states, runs, out);
                    })
                };
                let what = format!("{shape:?}, {dt_limit:?}, {}", cpu.level());
                let whole = run(&[]);
                assert_close(&whole, &expected, &what);
                for cuts in CUTS {
                    assert!(run(cuts) == whole, "{what}, cut at {cuts:?}");
                }
            });
        }
    }
}

#[test]
fn scans_of_channels_are_their_recurrence_however_a_sequence_is_cut() {
    const N_TOKENS: usize = 19;
    for (n_channels, d_state) in [(1, 1), (16, 16), (40, 7), (64, 24), (33, MAX_KEY_DIM)] {
        let shape = ChannelScanShape {
            n_channels,
            d_state,
        };
        let scale = 1.0 / (d_state as f32).sqrt();
        let of = |n: usize, seed, scale: f32| -> Vec<f32> {
            numbers(N_TOKENS * n, seed)
                .iter()
                .map(|x| x * scale)
                .collect()
        };
        let (x, dt) = (of(n_channels, 1, 1.0), of(n_channels, 2, 4.0));
        let (k, q) = (of(d_state, 3, scale), of(d_state, 4, scale));
        let rate: Vec<f32> = numbers(n_channels * d_state, 5)
            .iter()
            .map(|x| x - 1.2)
            .collect();
        let skip = numbers(n_channels, 6);
        for rate_is_log in [false, true] {
            let input = |rows: Range<usize>| ChannelScanInput {
                x: &x[rows.start * n_channels..rows.end * n_channels],
                dt: &dt[rows.start * n_channels..rows.end * n_channels],
                k: &k[rows.start * d_state..rows.end * d_state],
                q: &q[rows.start * d_state..rows.end * d_state],
                rate: &rate,
                rate_is_log,
                skip: &skip,
            };
            let expected = oracle::channel_scan(&shape, &input(0..N_TOKENS));
            for_each_cpu(|cpu| {
                let run = |cuts: &[usize]| {
                    let sizes = (shape.state_elems(), n_channels);
                    in_parts(N_TOKENS, cuts, sizes, &|states, runs, rows, out| {
                        channel_scan(cpu, &shape, input(rows), states, runs, out);
                    })
                };
                let what = format!("{shape:?}, {}", cpu.level());
                let whole = run(&[]);
                assert_close(&whole, &expected, &what);
                for cuts in CUTS {
                    assert!(run(cuts) == whole, "{what}, cut at {cuts:?}");
                }
            });
        }
    }
}

#[test]
fn steps_are_softplus_at_every_level() {
    let cases = [
        -200.0, -88.0, -20.0, -1.0, -1e-6, 0.0, 0.5, 1.0, 17.0, 90.0, 1e30_f32,
    ];
    for_each_cpu(|cpu| {
        let mut found = cases;
        leaves::RecurrentKernels::for_level(cpu.level()).softplus(&mut found);
        for (x, found) in cases.iter().zip(found) {
            let x = f64::from(*x);
            let expected = x.max(0.0) + (-x.abs()).exp().ln_1p();
            let error = (f64::from(found) - expected).abs();
            assert!(
                error <= 4e-7 * expected + 1e-37,
                "{x}: {found} for {expected}"
            );
        }
    });
}

#[test]
fn sequences_of_a_batch_do_not_see_each_other() {
    let shape = DeltaShape {
        n_k_heads: 1,
        n_v_heads: 2,
        k_dim: 16,
        v_dim: 16,
        tiled: false,
    };
    let cpu = Cpu::new(CpuOptions::default()).expect("opens");
    let (n_rows, width) = (11, shape.qkv_width());
    let (qkv, gates) = (numbers(n_rows * width, 1), numbers(n_rows * 2, 2));
    let input = |rows: Range<usize>| DeltaInput {
        qkv: &qkv[rows.start * width..rows.end * width],
        alpha: &gates[rows.start * 2..rows.end * 2],
        beta: &gates[rows.start * 2..rows.end * 2],
        rate: &[-0.1, -0.2],
        rate_is_log: false,
        dt: &[0.0, 0.5],
        max_strength: 1.0,
    };
    let n_state = 2 * shape.head_elems();
    let mut data = vec![f32::NAN; 4 * n_state];
    let mut run = |rows: Range<usize>, runs: &[(Range<usize>, &[u32])]| {
        let mut out = vec![0.0; rows.len() * 32];
        let runs: Vec<StateRun<'_>> = runs
            .iter()
            .map(|(rows, slots)| StateRun {
                rows: rows.clone(),
                first_pos: 0,
                slots,
                first_page: 0,
            })
            .collect();
        let states = StateSlots {
            data: &mut data,
            slot_elems: n_state,
            range: 0..n_state,
            page_tokens: PAGE,
        };
        delta_net(&cpu, &shape, input(rows), states, &runs, &mut out);
        out
    };
    let together = run(0..11, &[(0..4, &[3]), (4..11, &[0, 2])]);
    let apart = [run(0..4, &[(0..4, &[1])]), run(4..11, &[(0..7, &[1, 2])])].concat();
    assert!(together == apart);
}
