//! The KV cache as seed 000 A4 lays it out, and attention over it on the host.

use half::bf16;
use millrace_kernels::Cpu;
use millrace_model::graph::{Attention, Graph, Op};
use millrace_xdna2::lower::CachePart;
use std::ops::Range;

/// Keys and values of all layers: bf16 `[n_kv_heads, n_rows, head_dim]` each.
pub(super) struct HeadMajorCache {
    layers: Vec<Layer>,
    max_tokens: usize,
    n_rows: usize,
}

/// Bits of bf16 numbers; zeroed pages cost no memory until they are written.
#[derive(Clone, Default)]
struct Layer {
    n_kv_heads: usize,
    head_dim: usize,
    k: Vec<u16>,
    v: Vec<u16>,
    /// Rows that the device has too.
    on_device: usize,
}

impl HeadMajorCache {
    /// A cache of `max_tokens` tokens for a graph's attention layers, in arrays of `n_rows` rows, no
    /// fewer.
    pub(super) fn new(graph: &Graph, max_tokens: usize, n_rows: usize) -> HeadMajorCache {
        let n_rows = n_rows.max(max_tokens);
        let mut layers = Vec::new();
        for node in &graph.nodes {
            let Op::Attention(a) = &node.op else { continue };
            let n_elems = a.n_kv_heads * n_rows * a.head_dim;
            if layers.len() <= a.layer {
                layers.resize(a.layer + 1, Layer::default());
            }
            layers[a.layer] = Layer {
                n_kv_heads: a.n_kv_heads,
                head_dim: a.head_dim,
                k: vec![0; n_elems],
                v: vec![0; n_elems],
                on_device: 0,
            };
        }
        HeadMajorCache {
            layers,
            max_tokens,
            n_rows,
        }
    }

    /// Tokens it holds at most.
    pub(super) fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Bytes of keys and values.
    pub(super) fn size_bytes(&self) -> u64 {
        let of = |layer: &Layer| size_of_val(&layer.k[..]) + size_of_val(&layer.v[..]);
        self.layers.iter().map(of).sum::<usize>() as u64
    }

    /// Elements a token has in a layer's keys; `None` for a layer without attention.
    pub(super) fn width(&self, layer: usize) -> Option<usize> {
        let layer = self.layers.get(layer)?;
        Some(layer.n_kv_heads * layer.head_dim).filter(|width| *width > 0)
    }

    /// Writes keys and values `[n_tokens, n_kv_heads, head_dim]` at positions `first ..`, which must
    /// lie within the cache.
    pub(super) fn append(&mut self, layer: usize, first: usize, k: &[bf16], v: &[bf16]) {
        let n_rows = self.n_rows;
        let layer = &mut self.layers[layer];
        layer.on_device = layer.on_device.min(first);
        let (n_heads, head_dim) = (layer.n_kv_heads, layer.head_dim);
        for (cache, rows) in [(&mut layer.k, k), (&mut layer.v, v)] {
            for (i, head) in rows.chunks_exact(head_dim).enumerate() {
                let (token, kv_head) = (i / n_heads, i % n_heads);
                let at = (kv_head * n_rows + first + token) * head_dim;
                let to = cache[at..at + head_dim].iter_mut();
                to.zip(head).for_each(|(to, x)| *to = x.to_bits());
            }
        }
    }

    /// Rows of a layer that the device has too.
    pub(super) fn rows_on_device(&self, layer: usize) -> usize {
        self.layers.get(layer).map_or(0, |layer| layer.on_device)
    }

    /// The device has a layer's rows up to `n_rows`.
    pub(super) fn set_on_device(&mut self, layer: usize, n_rows: usize) {
        if let Some(layer) = self.layers.get_mut(layer) {
            layer.on_device = n_rows;
        }
    }

    /// The device has nothing of this cache.
    pub(super) fn forget_device(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.on_device = 0);
    }

    /// Those rows of one of a layer's arrays: a piece a head, with its offset in bytes.
    pub(super) fn parts(
        &self,
        layer: usize,
        of: CachePart,
        rows: Range<usize>,
    ) -> Vec<(u64, &[u8])> {
        let Some(layer) = self.layers.get(layer) else {
            return Vec::new();
        };
        let array = match of {
            CachePart::Keys => &layer.k,
            CachePart::Values => &layer.v,
        };
        let heads = (0..layer.n_kv_heads).filter_map(|head| {
            let at = |row: usize| (head * self.n_rows + row) * layer.head_dim;
            let piece = array.get(at(rows.start)..at(rows.end))?;
            Some((2 * at(rows.start) as u64, bytemuck::cast_slice(piece)))
        });
        heads.collect()
    }

    /// Causal grouped-query attention of `q: [n_tokens, n_heads, head_dim]`, whose first token is at
    /// position `first`, over what the cache holds, its own keys included. f32 within; `out` has the
    /// shape of `q`.
    pub(super) fn attend(
        &self,
        cpu: &Cpu,
        attention: &Attention,
        first: usize,
        q: &[bf16],
        out: &mut [bf16],
    ) {
        let layer = &self.layers[attention.layer];
        let (n_heads, head_dim) = (attention.n_heads, attention.head_dim);
        let group = n_heads / attention.n_kv_heads;
        cpu.pool().run_pieces(out, head_dim, &|index, out| {
            let position = first + index / n_heads;
            let kv_head = index % n_heads / group;
            let oldest = attention
                .window
                .map_or(0, |w| (position + 1).saturating_sub(w));
            let at = kv_head * self.n_rows * head_dim;
            let keys = at + oldest * head_dim..at + (position + 1) * head_dim;
            let q = &q[index * head_dim..][..head_dim];
            head(
                q,
                attention.scale,
                &layer.k[keys.clone()],
                &layer.v[keys],
                out,
            );
        });
    }
}

/// One head of one token over `k` and `v: [n_keys, head_dim]`, at least one key.
fn head(q: &[bf16], scale: f32, k: &[u16], v: &[u16], out: &mut [bf16]) {
    let head_dim = q.len();
    let q: Vec<f32> = q.iter().map(|x| x.to_f32() * scale).collect();
    let mut weights: Vec<f32> = k.chunks_exact(head_dim).map(|k| dot(&q, k)).collect();
    let max = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for weight in &mut weights {
        *weight = (*weight - max).exp();
        sum += *weight;
    }
    let mut acc = vec![0.0_f32; head_dim];
    for (weight, v) in weights.iter().zip(v.chunks_exact(head_dim)) {
        let terms = acc.iter_mut().zip(v);
        terms.for_each(|(acc, v)| *acc += weight * from_bits(*v));
    }
    let values = acc.iter().map(|x| bf16::from_f32(x / sum));
    out.iter_mut().zip(values).for_each(|(out, x)| *out = x);
}

/// In sixteen sums, which a compiler keeps in vector registers.
fn dot(q: &[f32], k: &[u16]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for (q, k) in q.chunks(16).zip(k.chunks(16)) {
        for ((sum, q), k) in sums.iter_mut().zip(q).zip(k) {
            *sum += q * from_bits(*k);
        }
    }
    sums.iter().sum()
}

fn from_bits(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_kernels::CpuOptions;
    use millrace_model::graph::{Node, ValueId};

    fn bf(x: f32) -> bf16 {
        bf16::from_f32(x)
    }

    /// Grouped heads, a window, positions beyond the first: against the formula in f64.
    #[test]
    fn agrees_with_the_formula() {
        let (n_heads, n_kv_heads, head_dim, n_tokens) = (4, 2, 24, 7);
        for window in [None, Some(3)] {
            let attention = Attention {
                layer: 0,
                n_heads,
                n_kv_heads,
                head_dim,
                scale: 0.3,
                window,
            };
            let graph = Graph {
                nodes: vec![Node {
                    op: Op::Attention(attention.clone()),
                    inputs: vec![ValueId(0); 3],
                    output: ValueId(1),
                    layer: Some(0),
                    label: "attn",
                }],
                ..Graph::default()
            };
            let mut cache = HeadMajorCache::new(&graph, 9, 11);
            let noise = |i: usize, salt: usize| {
                bf(((i * 7919 + salt * 104_729) % 997) as f32 / 500.0 - 1.0)
            };
            let rows = |width: usize, salt| -> Vec<bf16> {
                (0..n_tokens * width).map(|i| noise(i, salt)).collect()
            };
            let kv_width = n_kv_heads * head_dim;
            let (q, k, v) = (
                rows(n_heads * head_dim, 1),
                rows(kv_width, 2),
                rows(kv_width, 3),
            );
            // In two parts, as a prompt and a token come.
            cache.append(0, 0, &k[..4 * kv_width], &v[..4 * kv_width]);
            cache.append(0, 4, &k[4 * kv_width..], &v[4 * kv_width..]);
            let first = 4;
            let q = &q[first * n_heads * head_dim..];
            let mut out = vec![bf16::ZERO; q.len()];
            let cpu = Cpu::new(CpuOptions {
                n_threads: Some(2),
                level: None,
            })
            .expect("a CPU");
            cache.attend(&cpu, &attention, first, q, &mut out);
            for (i, found) in out.iter().enumerate() {
                let (row, head, d) = (
                    i / (n_heads * head_dim),
                    i / head_dim % n_heads,
                    i % head_dim,
                );
                let position = first + row;
                let oldest = window.map_or(0, |w| position + 1 - w);
                let at = |token: usize, d: usize| (token * n_kv_heads + head / 2) * head_dim + d;
                let score = |token: usize| -> f64 {
                    let terms = (0..head_dim).map(|d| {
                        q[i / head_dim * head_dim + d].to_f64() * k[at(token, d)].to_f64()
                    });
                    (terms.sum::<f64>() * 0.3).exp()
                };
                let sum: f64 = (oldest..=position).map(score).sum();
                let expected: f64 = (oldest..=position)
                    .map(|t| score(t) / sum * v[at(t, d)].to_f64())
                    .sum();
                assert!(
                    (found.to_f64() - expected).abs() < 0.01,
                    "{i}: {found} for {expected}"
                );
            }
        }
    }
}
