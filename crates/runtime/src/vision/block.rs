//! A block of a vision encoder: attention within segments, and the feed-forward network.

use std::ops::Range;

use millrace_kernels::{
    Activation, AttentionInput, AttentionShape, Cpu, KvRun, activate, add, attention, glu,
    kv_append, layer_norm, multiply, rms_norm, scale,
};
use millrace_model::vision::{VisionActivation, VisionLayer};

use super::LayerVectors;
use super::encode::EncodePass;
use super::heads::copy_heads;
use super::linear::LinearProduct;
use crate::Error;
use crate::kv::PAGE_TOKENS;

/// A block's patches that see each other: rows of the pass, and their separate pages.
pub(super) struct Segment {
    rows: Range<usize>,
    pub(super) pages: Range<usize>,
}

/// `rows` as segments, with pages from the first on.
pub(super) fn segments(rows: &[Range<usize>]) -> Vec<Segment> {
    let mut page = 0;
    let mut segment = |rows: &Range<usize>| {
        let first = page;
        page += rows.len().div_ceil(PAGE_TOKENS);
        Segment {
            rows: rows.clone(),
            pages: first..page,
        }
    };
    rows.iter().map(&mut segment).collect()
}

impl EncodePass<'_> {
    /// `x += out(attention(norm1(x)))` of block `index`.
    pub(super) fn attend(
        &mut self,
        layer: &VisionLayer,
        vectors: &LayerVectors,
        index: usize,
    ) -> Result<(), Error> {
        let (encoder, cpu, config) = (self.encoder, self.cpu, self.config());
        let d_model = config.d_model;
        let windows = config.windows.as_ref();
        let sees_all = windows.is_none_or(|windows| windows.full_layers.contains(&index));
        let scope = usize::from(sees_all);
        for range in self.chunks() {
            self.append(layer, vectors, scope, range)?;
        }
        let scale = match &vectors.inner {
            Some(_) => 1.0,
            None => 1.0 / (config.head_dim() as f32).sqrt(),
        };
        self.attention(scope, scale);
        for range in self.chunks() {
            let m = range.len() / d_model;
            let [added, normed] = [&mut self.normed, &mut self.wide[1]];
            let (added, normed) = (&mut added[..range.len()], &mut normed[..range.len()]);
            let product = LinearProduct::new(&layer.out, &vectors.out, &mut *added);
            let heads = &self.out[range.clone()];
            encoder.linears(cpu, (heads, m), &mut self.scratch.linear, &mut [product])?;
            let added = match &vectors.inner {
                Some(inner) => {
                    norm(cpu, added, &inner.attention, config.norm_eps, normed);
                    normed
                }
                None => added,
            };
            add(cpu, &mut self.x[range], added);
        }
        Ok(())
    }

    /// Queries, keys and values of a range of the residual stream's elements, whole rows: queries into their place, the rest into pages.
    fn append(
        &mut self,
        layer: &VisionLayer,
        vectors: &LayerVectors,
        scope: usize,
        range: Range<usize>,
    ) -> Result<(), Error> {
        let (encoder, cpu, config) = (self.encoder, self.cpu, self.config());
        let d_model = config.d_model;
        let m = range.len() / d_model;
        let normed = &mut self.normed[..range.len()];
        let x = &self.x[range.clone()];
        norm(cpu, x, &vectors.norm1, config.norm_eps, normed);
        let [k, v] = &mut self.wide;
        let (k, v) = (&mut k[..range.len()], &mut v[..range.len()]);
        let first_row = range.start / d_model;
        let q = &mut self.q[range.clone()];
        let [wq, wk, wv] = layer.qkv.each_ref();
        let [for_q, for_k, for_v] = vectors.qkv.each_ref();
        let mut products = [
            LinearProduct::new(wq, for_q, &mut *q),
            LinearProduct::new(wk, for_k, &mut *k),
            LinearProduct::new(wv, for_v, &mut *v),
        ];
        encoder.linears(cpu, (normed, m), &mut self.scratch.linear, &mut products)?;
        if let Some(inner) = &vectors.inner {
            let heads = [&mut *q, &mut *k, &mut *v].into_iter().zip(&inner.heads);
            for (heads, weight) in heads {
                let (head_dim, eps) = (weight.len(), config.norm_eps);
                rms_norm(cpu, heads, head_dim, weight, eps, 0.0, normed);
                heads.copy_from_slice(normed);
            }
        }
        let head_dim = config.head_dim();
        for turn in &encoder.turns {
            for x in [&mut *q, &mut *k] {
                turn.apply(cpu, &self.order, first_row, (x, d_model, head_dim));
            }
        }
        let runs = runs_of(&self.segments[scope], &self.pages, first_row..first_row + m);
        let (k_pages, v_pages) = (&mut self.k_pages, &mut self.v_pages);
        let (k, v) = match &mut self.heads {
            None => (&*k, &*v),
            Some([wide_q, _, wide_k, wide_v]) => {
                let (own, wide) = (config.head_dim(), self.layout.head_dim);
                let start = range.start / own * wide;
                copy_heads((&self.q[range], own), (&mut wide_q[start..], wide));
                copy_heads((k, own), (wide_k, wide));
                copy_heads((v, own), (wide_v, wide));
                let n = m * config.n_heads * wide;
                (&wide_k[..n], &wide_v[..n])
            }
        };
        kv_append(cpu, &self.layout, k, v, k_pages, v_pages, &runs);
        Ok(())
    }

    /// Every row sees all of its segment.
    fn attention(&mut self, scope: usize, scale: f32) {
        let config = self.config();
        let (n, head_dim) = (self.order.len(), config.head_dim());
        let shape = AttentionShape {
            n_heads: config.n_heads,
            n_kv_heads: config.n_heads,
            head_dim: self.layout.head_dim,
            scale,
            window: None,
            chunked: false,
            softcap: None,
        };
        let segments = &self.segments[scope];
        let runs = runs_of(segments, &self.pages, 0..n);
        let blocks: Vec<Range<usize>> = segments.iter().map(|of| of.rows.clone()).collect();
        let (q, found) = match &mut self.heads {
            None => (&self.q, &mut self.out),
            Some([q, found, ..]) => (&*q, found),
        };
        let input = AttentionInput {
            q,
            k_pages: &self.k_pages,
            v_pages: &self.v_pages,
            runs: &runs,
            blocks: &blocks,
            sinks: None,
            slopes: None,
        };
        let scratch = &mut self.scratch.attention;
        attention(self.cpu, &shape, &self.layout, &input, scratch, found);
        if let Some([_, found, ..]) = &self.heads {
            copy_heads((found, shape.head_dim), (&mut self.out, head_dim));
        }
    }

    /// `x += down(activation(up(norm2(x))))`, or with a gate through the activation and `up` a factor.
    pub(super) fn feed_forward(
        &mut self,
        layer: &VisionLayer,
        vectors: &LayerVectors,
    ) -> Result<(), Error> {
        let (encoder, cpu, config) = (self.encoder, self.cpu, self.config());
        for range in self.chunks() {
            let m = range.len() / config.d_model;
            let normed = &mut self.normed[..range.len()];
            let x = &self.x[range.clone()];
            norm(cpu, x, &vectors.norm2, config.norm_eps, normed);
            let [up, down] = &mut self.wide;
            let (up, down) = (&mut up[..m * config.d_ff], &mut down[..range.len()]);
            let scratch = &mut self.scratch.linear;
            let first = LinearProduct::new(&layer.up, &vectors.up, &mut *up);
            let inner = match &layer.gate {
                None => {
                    encoder.linears(cpu, (normed, m), scratch, &mut [first])?;
                    activated(cpu, config.activation, up);
                    up
                }
                Some(linear) => {
                    let gate = &mut self.gate[..m * config.d_ff];
                    let second = LinearProduct::new(linear, &vectors.gate, &mut *gate);
                    let mut products = [first, second];
                    encoder.linears(cpu, (normed, m), scratch, &mut products)?;
                    gated(cpu, config.activation, gate, up);
                    gate
                }
            };
            let mut last = [LinearProduct::new(&layer.down, &vectors.down, &mut *down)];
            encoder.linears(cpu, (inner, m), scratch, &mut last)?;
            let added = match &vectors.inner {
                Some(inner) => {
                    norm(cpu, down, &inner.feed_forward, config.norm_eps, normed);
                    normed
                }
                None => down,
            };
            add(cpu, &mut self.x[range], added);
        }
        Ok(())
    }
}

/// The runs of the part of segments within `rows`, numbered from the first of these rows on.
fn runs_of<'p>(segments: &[Segment], pages: &'p [u32], rows: Range<usize>) -> Vec<KvRun<'p>> {
    let run = |segment: &Segment| {
        let start = segment.rows.start.max(rows.start);
        let end = segment.rows.end.min(rows.end);
        (start < end).then(|| KvRun {
            rows: start - rows.start..end - rows.start,
            first_pos: start - segment.rows.start,
            pages: &pages[segment.pages.clone()],
            pages_first_pos: 0,
        })
    };
    segments.iter().filter_map(run).collect()
}

/// A layer norm of rows as long as its weight; an RMS norm without a bias.
pub(super) fn norm(
    cpu: &Cpu,
    x: &[f32],
    [weight, bias]: &[Vec<f32>; 2],
    eps: f32,
    out: &mut [f32],
) {
    match bias.is_empty() {
        true => rms_norm(cpu, x, weight.len(), weight, eps, 0.0, out),
        false => layer_norm(cpu, x, weight.len(), (weight, bias), eps, out),
    }
}

/// The factor within the sigmoid of a quick GELU.
const QUICK: f32 = 1.702;

/// A feed-forward network's function in place.
fn activated(cpu: &Cpu, activation: VisionActivation, x: &mut [f32]) {
    match activation {
        VisionActivation::GeluTanh => activate(cpu, Activation::GeluTanh, x),
        VisionActivation::Silu => activate(cpu, Activation::Silu, x),
        VisionActivation::Gelu => activate(cpu, Activation::Gelu, x),
        VisionActivation::QuickGelu => {
            scale(cpu, x, QUICK);
            activate(cpu, Activation::Silu, x);
            scale(cpu, x, 1.0 / QUICK);
        }
    }
}

/// The same of gates, times `up`.
fn gated(cpu: &Cpu, activation: VisionActivation, gate: &mut [f32], up: &[f32]) {
    match activation {
        VisionActivation::GeluTanh => glu(cpu, Activation::GeluTanh, gate, up),
        VisionActivation::Silu => glu(cpu, Activation::Silu, gate, up),
        VisionActivation::Gelu => glu(cpu, Activation::Gelu, gate, up),
        VisionActivation::QuickGelu => {
            activated(cpu, activation, gate);
            multiply(cpu, gate, up);
        }
    }
}
