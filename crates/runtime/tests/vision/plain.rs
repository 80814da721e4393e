//! A vision encoder as its formulas say, in f64 and without kernels.

use millrace_format::Checkpoint;
use millrace_graph::Weight;
use millrace_model::vision::{BiasedLinear, LayerNorm};
use millrace_runtime::VisionEncoder;
use millrace_testkit::golden::GoldenMatrix;

type Matrix = Vec<Vec<f64>>;

/// The weights.
struct EncoderWeights<'a>(&'a Checkpoint);

impl EncoderWeights<'_> {
    fn numbers(&self, weight: &Weight) -> Vec<f64> {
        let mut out = vec![0.0; weight.n * weight.k];
        let bytes = self.0.tensor(&weight.name).unwrap().bytes;
        millrace_quant::decode_blocks(weight.dtype, bytes, &mut out).unwrap();
        out.into_iter().map(f64::from).collect()
    }

    fn linear(&self, x: &Matrix, linear: &BiasedLinear) -> Matrix {
        let (weight, bias) = (
            self.numbers(&linear.weight),
            self.numbers(linear.bias.as_ref().unwrap()),
        );
        let rows = weight.chunks_exact(linear.weight.k);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let row = |x: &Vec<f64>| {
            let sums = rows.clone().zip(&bias);
            sums.map(|(row, bias)| dot(row, x) + bias).collect()
        };
        x.iter().map(row).collect()
    }

    fn norm(&self, x: &Matrix, norm: &LayerNorm, eps: f64) -> Matrix {
        let (weight, bias) = (
            self.numbers(&norm.weight),
            self.numbers(norm.bias.as_ref().unwrap()),
        );
        let row = |x: &Vec<f64>| {
            let n = x.len() as f64;
            let mean = x.iter().sum::<f64>() / n;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let each = x.iter().zip(&weight).zip(&bias);
            each.map(|((x, w), b)| (x - mean) / (variance + eps).sqrt() * w + b)
                .collect()
        };
        x.iter().map(row).collect()
    }
}

fn attend(q: &Matrix, k: &Matrix, v: &Matrix, head_dim: usize) -> Matrix {
    let width = q[0].len();
    let mut out = vec![vec![0.0; width]; q.len()];
    for (q, out) in q.iter().zip(&mut out) {
        for start in (0..width).step_by(head_dim) {
            let head = start..start + head_dim;
            let score = |k: &Vec<f64>| {
                let pairs = q[head.clone()].iter().zip(&k[head.clone()]);
                pairs.map(|(q, k)| q * k).sum::<f64>() / (head_dim as f64).sqrt()
            };
            let shares: Vec<f64> = k.iter().map(|k| score(k).exp()).collect();
            let sum: f64 = shares.iter().sum();
            for (share, v) in shares.iter().zip(v) {
                for i in head.clone() {
                    out[i] += share / sum * v[i];
                }
            }
        }
    }
    out
}

fn add(x: &mut Matrix, y: Matrix) {
    for (x, y) in x.iter_mut().flatten().zip(y.into_iter().flatten()) {
        *x += y;
    }
}

/// Output of the last norm, for pixels `[3, size, size]`.
pub(crate) fn encoder(encoder: &VisionEncoder, file: &Checkpoint, pixels: &[f32]) -> GoldenMatrix {
    let (model, config, of) = (encoder.model(), encoder.config(), EncoderWeights(file));
    let (size, patch) = (config.image_size, config.patch_size);
    let (side, eps) = (config.patches_per_side(), f64::from(config.norm_eps));
    let at = |c: usize, y: usize, x: usize| f64::from(pixels[(c * size + y) * size + x]);
    let patches = (0..side * side).map(|i| {
        let (top, left) = (i / side * patch, i % side * patch);
        let one = |j: usize| {
            let (c, y, x) = (j / (patch * patch), j / patch % patch, j % patch);
            at(c, top + y, left + x)
        };
        (0..3 * patch * patch).map(one).collect()
    });
    let mut x = of.linear(&patches.collect(), &model.patches);
    let positions = of.numbers(model.positions.as_ref().unwrap());
    let rows = positions.chunks_exact(config.d_model).map(<[f64]>::to_vec);
    add(&mut x, rows.collect());
    for layer in &model.layers {
        let normed = of.norm(&x, &layer.norm1, eps);
        let [q, k, v] = [0, 1, 2].map(|i| of.linear(&normed, &layer.qkv[i]));
        let heads = attend(&q, &k, &v, config.head_dim());
        add(&mut x, of.linear(&heads, &layer.out));
        let mut wide = of.linear(&of.norm(&x, &layer.norm2, eps), &layer.up);
        for x in wide.iter_mut().flatten() {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (*x + 0.044_715 * x.powi(3));
            *x *= 0.5 * (1.0 + inner.tanh());
        }
        add(&mut x, of.linear(&wide, &layer.down));
    }
    let x = of.norm(&x, model.norm.as_ref().unwrap(), eps);
    let data = x.into_iter().flatten().map(|x| x as f32).collect();
    GoldenMatrix {
        width: config.d_model,
        data,
    }
}
