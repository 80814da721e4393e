//! An independent Llama in f64: it shares no code with the crate.

/// Sizes of a model.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub n_layers: usize,
    pub d_model: usize,
    pub d_ff: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub vocab_size: usize,
}

/// Weights of a layer, rows as Hugging Face orders them.
#[derive(Clone, Debug)]
pub struct Layer {
    pub attn_norm: Vec<f32>,
    pub w_q: Vec<f32>,
    pub w_k: Vec<f32>,
    pub w_v: Vec<f32>,
    pub w_o: Vec<f32>,
    pub ffn_norm: Vec<f32>,
    pub w_gate: Vec<f32>,
    pub w_up: Vec<f32>,
    pub w_down: Vec<f32>,
}

#[derive(Clone, Debug)]
pub struct Weights {
    pub sizes: Sizes,
    pub table: Vec<f32>,
    pub layers: Vec<Layer>,
    pub norm: Vec<f32>,
    pub head: Vec<f32>,
    pub inv_freq: Vec<f32>,
}

pub const EPS: f64 = 1e-5;

/// Numbers in `-1 .. 1`, rounded to bf16.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let x = (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        half::bf16::from_f32(x).to_f32()
    }

    fn matrix(&mut self, n: usize, k: usize) -> Vec<f32> {
        let scale = (3.0 / k as f32).sqrt();
        let round = |x: f32| half::bf16::from_f32(x).to_f32();
        (0..n * k).map(|_| round(self.next() * scale)).collect()
    }

    fn gains(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| 1.0 + 0.25 * self.next()).collect()
    }
}

impl Weights {
    pub fn random(sizes: Sizes, seed: u64) -> Weights {
        let mut random = Random(seed * 2 + 1);
        let (d, f) = (sizes.d_model, sizes.d_ff);
        let (q, kv) = (
            sizes.n_heads * sizes.head_dim,
            sizes.n_kv_heads * sizes.head_dim,
        );
        let layers = (0..sizes.n_layers).map(|_| Layer {
            attn_norm: random.gains(d),
            w_q: random.matrix(q, d),
            w_k: random.matrix(kv, d),
            w_v: random.matrix(kv, d),
            w_o: random.matrix(d, q),
            ffn_norm: random.gains(d),
            w_gate: random.matrix(f, d),
            w_up: random.matrix(f, d),
            w_down: random.matrix(d, f),
        });
        let layers = layers.collect();
        let half = sizes.head_dim / 2;
        let frequency = |i: usize| 500_000f32.powf(-(i as f32) / half as f32);
        Weights {
            sizes,
            layers,
            table: (0..sizes.vocab_size * d).map(|_| random.next()).collect(),
            norm: random.gains(d),
            head: random.matrix(sizes.vocab_size, d),
            inv_freq: (0..half).map(frequency).collect(),
        }
    }

    /// Logits of every token of a sequence.
    pub fn logits(&self, tokens: &[usize]) -> Vec<Vec<f64>> {
        let s = self.sizes;
        let row = |table: &[f32], i: usize, n: usize| -> Vec<f64> {
            table[i * n..(i + 1) * n]
                .iter()
                .map(|&x| x.into())
                .collect()
        };
        let mut xs: Vec<Vec<f64>> = tokens
            .iter()
            .map(|&t| row(&self.table, t, s.d_model))
            .collect();
        for layer in &self.layers {
            let normed: Vec<Vec<f64>> = xs.iter().map(|x| norm(x, &layer.attn_norm)).collect();
            let heads = |w: &[f32], turn: bool| -> Vec<Vec<f64>> {
                let all = normed.iter().enumerate();
                all.map(|(p, x)| {
                    let mut y = matvec(w, x);
                    if turn {
                        self.rotate(&mut y, p);
                    }
                    y
                })
                .collect()
            };
            let (q, k, v) = (
                heads(&layer.w_q, true),
                heads(&layer.w_k, true),
                heads(&layer.w_v, false),
            );
            for (p, x) in xs.iter_mut().enumerate() {
                let attended = self.attend(&q[p], &k[..=p], &v[..=p]);
                add(x, &matvec(&layer.w_o, &attended));
                let normed = norm(x, &layer.ffn_norm);
                let (gate, up) = (matvec(&layer.w_gate, &normed), matvec(&layer.w_up, &normed));
                let silu = |g: f64| g / (1.0 + (-g).exp());
                let active: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| silu(*g) * u).collect();
                add(x, &matvec(&layer.w_down, &active));
            }
        }
        let ends = xs.iter().map(|x| matvec(&self.head, &norm(x, &self.norm)));
        ends.collect()
    }

    fn rotate(&self, y: &mut [f64], position: usize) {
        let d = self.sizes.head_dim;
        for head in y.chunks_mut(d) {
            for (i, frequency) in self.inv_freq.iter().enumerate() {
                let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
                let (a, b) = (head[i], head[i + d / 2]);
                (head[i], head[i + d / 2]) = (a * cos - b * sin, a * sin + b * cos);
            }
        }
    }

    fn attend(&self, q: &[f64], k: &[Vec<f64>], v: &[Vec<f64>]) -> Vec<f64> {
        let s = self.sizes;
        let (d, group) = (s.head_dim, s.n_heads / s.n_kv_heads);
        let mut out = Vec::new();
        for head in 0..s.n_heads {
            let q = &q[head * d..(head + 1) * d];
            let at = head / group * d;
            let scores: Vec<f64> = k
                .iter()
                .map(|k| dot(q, &k[at..at + d]) / (d as f64).sqrt())
                .collect();
            let largest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            for i in 0..d {
                let sum: f64 = weights.iter().zip(v).map(|(w, v)| w * v[at + i]).sum();
                out.push(sum / total);
            }
        }
        out
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn matvec(w: &[f32], x: &[f64]) -> Vec<f64> {
    let rows = w.chunks(x.len());
    rows.map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum())
        .collect()
}

fn norm(x: &[f64], gain: &[f32]) -> Vec<f64> {
    let mean = dot(x, x) / x.len() as f64;
    let inverse = 1.0 / (mean + EPS).sqrt();
    let scaled = x.iter().zip(gain);
    scaled.map(|(x, g)| x * inverse * f64::from(*g)).collect()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
