//! Definitions of recurrent ops, in f64, over a whole sequence.

use crate::recurrent::{
    ChannelScanInput, ChannelScanShape, ConvInput, DeltaInput, DeltaShape, KimiDeltaInput,
    RuleShape, Rwkv7Input, SsmInput, SsmShape,
};

/// See [`crate::recurrent::causal_conv`]: of all tokens of a sequence.
#[must_use]
pub fn causal_conv(input: &ConvInput<'_>) -> Vec<f64> {
    let n = input.n_channels;
    let n_taps = input.weight.len() / n;
    let mut out = Vec::with_capacity(input.x.len());
    for token in 0..input.x.len() / n {
        for channel in 0..n {
            let mut sum = input.bias.map_or(0.0, |bias| f64::from(bias[channel]));
            for tap in 0..n_taps {
                if let Some(before) = (token + tap + 1).checked_sub(n_taps) {
                    let weight = f64::from(input.weight[channel * n_taps + tap]);
                    sum += weight * f64::from(input.x[before * n + channel]);
                }
            }
            out.push(match input.silu {
                true => sum / (1.0 + (-sum).exp()),
                false => sum,
            });
        }
    }
    out
}

/// See [`crate::recurrent::delta_net`]: of all tokens of a sequence.
#[must_use]
pub fn delta_net(shape: &DeltaShape, input: &DeltaInput<'_>) -> Vec<f64> {
    let DeltaShape {
        n_k_heads,
        n_v_heads,
        k_dim,
        v_dim,
        tiled,
    } = *shape;
    let n_tokens = input.alpha.len() / n_v_heads;
    let mut out = vec![0.0; n_tokens * n_v_heads * v_dim];
    for head in 0..n_v_heads {
        let key_head = match tiled {
            true => head % n_k_heads,
            false => head / (n_v_heads / n_k_heads),
        };
        let mut state = vec![vec![0.0; v_dim]; k_dim];
        for token in 0..n_tokens {
            let row = &input.qkv[token * shape.qkv_width()..][..shape.qkv_width()];
            let unit = |first: usize| -> Vec<f64> {
                let x = row[first..][..k_dim].iter().map(|x| f64::from(*x));
                let length = (x.clone().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                x.map(|x| x / length).collect()
            };
            let q = unit(key_head * k_dim);
            let k = unit((n_k_heads + key_head) * k_dim);
            let v = &row[2 * n_k_heads * k_dim + head * v_dim..][..v_dim];
            let at = token * n_v_heads + head;
            let step = f64::from(input.alpha[at]) + f64::from(input.dt[head]);
            let rate = match input.rate_is_log {
                true => -f64::from(input.rate[head]).exp(),
                false => f64::from(input.rate[head]),
            };
            let decay = (rate * (1.0 + step.exp()).ln()).exp();
            let max_strength = f64::from(input.max_strength);
            let strength = max_strength / (1.0 + (-f64::from(input.beta[at])).exp());
            for (j, v) in v.iter().enumerate() {
                let seen: f64 = state
                    .iter()
                    .zip(&k)
                    .map(|(row, k)| decay * row[j] * k)
                    .sum();
                let correction = strength * (f64::from(*v) - seen);
                for ((row, k), q) in state.iter_mut().zip(&k).zip(&q) {
                    row[j] = decay * row[j] + k * correction;
                    out[at * v_dim + j] += row[j] * q / (k_dim as f64).sqrt();
                }
            }
        }
    }
    out
}

/// See [`crate::recurrent::kimi_delta`]: of all tokens of a sequence.
#[must_use]
pub fn kimi_delta(shape: &RuleShape, input: &KimiDeltaInput<'_>) -> Vec<f64> {
    let (n_heads, n) = (shape.n_heads, shape.head_dim);
    let mut out = vec![0.0; input.v.len()];
    for head in 0..n_heads {
        let mut state = vec![vec![0.0; n]; n];
        for token in 0..input.beta.len() / n_heads {
            let at = token * n_heads + head;
            let of = |x: &[f32], i: usize| f64::from(x[at * n + i]);
            let unit = |x: &[f32]| -> Vec<f64> {
                let squares: f64 = (0..n).map(|i| of(x, i) * of(x, i)).sum();
                (0..n).map(|i| of(x, i) / (squares + 1e-6).sqrt()).collect()
            };
            let (q, k) = (unit(input.q), unit(input.k));
            let rate = f64::from(input.rate[head]);
            let rate = if input.rate_is_log { -rate.exp() } else { rate };
            for (i, row) in state.iter_mut().enumerate() {
                let step = of(input.alpha, i) + f64::from(input.dt[head * n + i]);
                let decay = (rate * (1.0 + step.exp()).ln()).exp();
                row.iter_mut().for_each(|cell| *cell *= decay);
            }
            let strength = 1.0 / (1.0 + (-f64::from(input.beta[at])).exp());
            for j in 0..n {
                let seen: f64 = state.iter().zip(&k).map(|(row, k)| row[j] * k).sum();
                let correction = strength * (of(input.v, j) - seen);
                for ((row, k), q) in state.iter_mut().zip(&k).zip(&q) {
                    row[j] += k * correction;
                    out[at * n + j] += row[j] * q / (n as f64).sqrt();
                }
            }
        }
    }
    out
}

/// See [`crate::recurrent::rwkv7`]: of all tokens of a sequence.
#[must_use]
pub fn rwkv7(shape: &RuleShape, input: &Rwkv7Input<'_>) -> Vec<f64> {
    let (n_heads, n) = (shape.n_heads, shape.head_dim);
    let mut out = vec![0.0; input.v.len()];
    for head in 0..n_heads {
        let mut state = vec![vec![0.0; n]; n];
        for token in 0..input.v.len() / shape.width() {
            let at = (token * n_heads + head) * n;
            let of =
                |x: &[f32]| -> Vec<f64> { x[at..][..n].iter().map(|x| f64::from(*x)).collect() };
            let [r, fade, k, v, rate] = [input.r, input.fade, input.k, input.v, input.rate].map(of);
            let weight = |x: &[f32], i: usize| f64::from(x[head * n + i]);
            let lost: Vec<f64> = (0..n).map(|i| k[i] * weight(input.removal, i)).collect();
            let length = lost.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
            for (j, v) in v.iter().enumerate() {
                let read = state.iter().zip(&lost);
                let seen: f64 = read.map(|(row, x)| row[j] * x / length).sum();
                for (i, row) in state.iter_mut().enumerate() {
                    let decay = (-(-0.5_f64).exp() * fade[i]).exp();
                    let key = k[i] * (1.0 + (rate[i] - 1.0) * weight(input.weakening, i));
                    row[j] = decay * row[j] - lost[i] / length * rate[i] * seen + key * v;
                    out[at + j] += row[j] * r[i];
                }
            }
        }
    }
    out
}

/// See [`crate::recurrent::ssm_scan`]: of all tokens of a sequence.
#[must_use]
pub fn ssm_scan(shape: &SsmShape, input: &SsmInput<'_>) -> Vec<f64> {
    let SsmShape {
        n_heads,
        n_groups,
        head_dim,
        d_state,
    } = *shape;
    let n_tokens = input.dt.len() / n_heads;
    let mut out = vec![0.0; n_tokens * n_heads * head_dim];
    for head in 0..n_heads {
        let first_k = n_heads * head_dim + head / (n_heads / n_groups) * d_state;
        let mut state = vec![vec![0.0; head_dim]; d_state];
        for token in 0..n_tokens {
            let row = &input.xbc[token * shape.xbc_width()..][..shape.xbc_width()];
            let x = &row[head * head_dim..][..head_dim];
            let (k, q) = (&row[first_k..], &row[first_k + n_groups * d_state..]);
            let at = token * n_heads + head;
            let step = f64::from(input.dt[at]) + f64::from(input.dt_bias[head]);
            let (low, high) = input.dt_limit;
            let step = (1.0 + step.exp()).ln().clamp(low.into(), high.into());
            let rate = match input.rate_is_log {
                true => -f64::from(input.rate[head]).exp(),
                false => f64::from(input.rate[head]),
            };
            let decay = (rate * step).exp();
            for (j, x) in x.iter().map(|x| f64::from(*x)).enumerate() {
                let out = &mut out[at * head_dim + j];
                *out = f64::from(input.skip[head]) * x;
                for ((row, k), q) in state.iter_mut().zip(k).zip(q) {
                    row[j] = decay * row[j] + step * x * f64::from(*k);
                    *out += row[j] * f64::from(*q);
                }
            }
        }
    }
    out
}

/// See [`crate::recurrent::channel_scan`]: of all tokens of a sequence.
#[must_use]
pub fn channel_scan(shape: &ChannelScanShape, input: &ChannelScanInput<'_>) -> Vec<f64> {
    let ChannelScanShape {
        n_channels,
        d_state,
    } = *shape;
    let mut out = vec![0.0; input.x.len()];
    for channel in 0..n_channels {
        let mut state = vec![0.0; d_state];
        for token in 0..out.len() / n_channels {
            let at = token * n_channels + channel;
            let x = f64::from(input.x[at]);
            let step = (1.0 + f64::from(input.dt[at]).exp()).ln();
            out[at] = f64::from(input.skip[channel]) * x;
            for (i, cell) in state.iter_mut().enumerate() {
                let rate = f64::from(input.rate[channel * d_state + i]);
                let rate = if input.rate_is_log { -rate.exp() } else { rate };
                let [k, q] = [input.k, input.q].map(|x| f64::from(x[token * d_state + i]));
                *cell = (rate * step).exp() * *cell + step * x * k;
                out[at] += *cell * q;
            }
        }
    }
    out
}
