//! The forward pass of a tower on the CPU's kernels.
//!
//! All but attention is by row and goes over [`CHUNK_ROWS`] rows at a time, so the widest values of a
//! picture never exist at once. Attention is the kernel of text models: all rows are one block of
//! one sequence that see each other, in a cache of f32. Its kernels take heads of a multiple of 8 elements: others stand in rows with zeros behind
//! each head, which add nothing to any score or sum.

use std::ops::ControlFlow;

use millrace_graph::Weight;
use millrace_kernels::matmul::{Activations, Multiplication, WeightMatrix, matmul};
use millrace_kernels::{
    Activation, AttentionInput, AttentionScratch, AttentionShape, Cpu, KvBuffer, KvLayout, KvRun,
    KvType, activate, add, attention, kv_append, layer_norm, rms_norm,
};
use millrace_model::VisionConfig;
use millrace_model::vision::VisionLayer;
use millrace_picture::PixelValues;

use super::heads::{copy_heads, padded};
use super::{LayerVectors, PictureRows, VisionTower};
use crate::kv::PAGE_TOKENS;
use crate::{Error, Image};

/// Rows that go through matrices at a time.
pub(super) const CHUNK_ROWS: usize = 512;

/// Who computes what of a picture is products of matrices and attention.
pub(super) trait Stages<E> {
    /// Whether attention reads the keys and values in a pass's pages.
    fn attends_on_pages(&self) -> bool;

    /// Rows of patches `[n_patches, patch_elems]` through the patch matrix, into the residual stream.
    fn embed(&mut self, pass: &mut EncodePass<'_>, patches: &[f32]) -> Result<(), E>;

    /// A block.
    fn block(&mut self, pass: &mut EncodePass<'_>, index: usize) -> Result<(), E>;

    /// Pooled rows `[n_tokens, d_model]` into the text model's width, `[n_tokens, d_text]`.
    fn project(&mut self, pass: &mut EncodePass<'_>, pooled: &[f32]) -> Result<Vec<f32>, E>;
}

/// The kernels that text has.
struct OnCpu;

impl Stages<Error> for OnCpu {
    fn attends_on_pages(&self) -> bool {
        true
    }

    fn embed(&mut self, pass: &mut EncodePass<'_>, patches: &[f32]) -> Result<(), Error> {
        pass.embed(patches)
    }

    fn block(&mut self, pass: &mut EncodePass<'_>, index: usize) -> Result<(), Error> {
        let tower = pass.tower;
        let (layer, vectors) = (&tower.model.layers[index], &tower.vectors.layers[index]);
        pass.attend(layer, vectors)?;
        pass.feed_forward(layer, vectors)
    }

    fn project(&mut self, pass: &mut EncodePass<'_>, pooled: &[f32]) -> Result<Vec<f32>, Error> {
        pass.project(pooled)
    }
}

/// The values of a picture under way.
pub(super) struct EncodePass<'a> {
    pub(super) tower: &'a VisionTower,
    cpu: &'a Cpu,
    /// The residual stream, `[n_patches, d_model]`.
    pub(super) x: Vec<f32>,
    /// Queries, then the attention's output; `[n_patches, d_model]`.
    q: Vec<f32>,
    out: Vec<f32>,
    /// Where heads are padded: `[n_patches, n_heads, padded]` of queries and of the output, chunks of keys and of values.
    heads: Option<[Vec<f32>; 4]>,
    /// Chunks of rows: what a norm gives, and what matrices make of it.
    normed: Vec<f32>,
    wide: [Vec<f32>; 2],
    layout: KvLayout,
    k_pages: KvBuffer,
    v_pages: KvBuffer,
    pages: Vec<u32>,
    activations: Activations,
    scratch: AttentionScratch,
}

impl VisionTower {
    /// Runs the tower and the projector. `watch` is told of blocks done and in all, and can stop the
    /// work: then there is no result.
    ///
    /// # Errors
    /// [`Error::BadImage`] for pixel values of another size; [`Error::Kernels`] for a weight that the
    /// kernels cannot take; [`Error::CacheTooLarge`] where memory is short.
    pub fn encode(
        &self,
        cpu: &Cpu,
        pixels: &PixelValues,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<PictureRows>, Error> {
        self.encode_by(cpu, &mut OnCpu, pixels, watch)
    }

    /// The same with the stages computed by somebody.
    pub(super) fn encode_by<E: From<Error>>(
        &self,
        cpu: &Cpu,
        stages: &mut dyn Stages<E>,
        pixels: &PixelValues,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<PictureRows>, E> {
        let config = &self.model.config;
        if pixels.size != config.image_size {
            let (found, expected) = (pixels.size, config.image_size);
            let reason = format!("it has {found} pixels a side, and the tower takes {expected}");
            return Err(Error::BadImage { reason }.into());
        }
        let _hot = cpu.pool().enter();
        let mut pass = EncodePass::new(self, cpu, stages.attends_on_pages())?;
        let patches = patch_rows(config, &pixels.data);
        stages.embed(&mut pass, &patches)?;
        add(cpu, &mut pass.x, &self.vectors.positions);
        for done in 0..config.n_layers {
            if watch(done, config.n_layers).is_break() {
                return Ok(None);
            }
            stages.block(&mut pass, done)?;
        }
        let encoder = pass.finish();
        let pooled = pass.pooled(&encoder);
        let rows = stages.project(&mut pass, &pooled)?;
        let image = Image::new(config.d_text, rows)?;
        Ok(Some(PictureRows {
            encoder,
            image,
            on_device: None,
        }))
    }

    /// `out = x · weightᵀ (+ bias)` for rows of `x`.
    fn product<'a>(
        &'a self,
        weight: &Weight,
        bias: &'a [f32],
        out: &'a mut [f32],
    ) -> Result<Multiplication<'a>, Error> {
        let weight = WeightMatrix::new(weight.dtype, weight.n, weight.k, self.bytes(weight))?;
        Ok(Multiplication {
            weight,
            bias: Some(bias),
            out,
        })
    }
}

impl<'a> EncodePass<'a> {
    fn new(tower: &'a VisionTower, cpu: &'a Cpu, attends: bool) -> Result<EncodePass<'a>, Error> {
        let config = tower.config();
        let (n, d_model) = (config.n_patches(), config.d_model);
        let head_dim = padded(config.head_dim());
        let width = config.n_heads * head_dim;
        let layout = KvLayout {
            dtype: KvType::F32,
            n_kv_heads: config.n_heads,
            head_dim,
            page_tokens: PAGE_TOKENS,
        };
        layout.check()?;
        let n_pages = if attends { n.div_ceil(PAGE_TOKENS) } else { 0 };
        let needed_bytes = n_pages.saturating_mul(layout.page_bytes());
        let buffer =
            || KvBuffer::zeroed(needed_bytes).map_err(|_| Error::CacheTooLarge { needed_bytes });
        let rows = |width: usize| vec![0.0; width * n.min(CHUNK_ROWS)];
        let widest = config.d_ff.max(d_model);
        let heads = (attends && width != d_model).then(|| {
            let all = vec![0.0; n * width];
            [all.clone(), all, rows(width), rows(width)]
        });
        Ok(EncodePass {
            tower,
            cpu,
            x: vec![0.0; n * d_model],
            q: vec![0.0; if attends { n * d_model } else { 0 }],
            out: vec![0.0; n * d_model],
            heads,
            normed: rows(d_model),
            wide: [rows(widest), rows(d_model)],
            layout,
            k_pages: buffer()?,
            v_pages: buffer()?,
            pages: (0..n_pages as u32).collect(),
            activations: Activations::default(),
            scratch: AttentionScratch::default(),
        })
    }

    fn config(&self) -> &'a VisionConfig {
        self.tower.config()
    }

    /// Ranges of elements of `[n_patches, d_model]`, a chunk of rows each.
    fn chunks(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (n, width) = (self.x.len(), CHUNK_ROWS * self.config().d_model);
        (0..n)
            .step_by(width)
            .map(move |start| start..n.min(start + width))
    }

    /// Patches through their matrix.
    fn embed(&mut self, patches: &[f32]) -> Result<(), Error> {
        let (tower, config) = (self.tower, self.config());
        let weight = &tower.model.patches.weight;
        let d_model = config.d_model;
        for range in self.chunks() {
            let rows = range.start / d_model..range.end / d_model;
            let x = &patches[rows.start * weight.k..rows.end * weight.k];
            let out = &mut self.x[range];
            let product = tower.product(weight, &tower.vectors.patches_bias, out)?;
            matmul(
                self.cpu,
                x,
                rows.len(),
                &mut self.activations,
                &mut [product],
            );
        }
        Ok(())
    }

    /// `x += out(attention(norm1(x)))`.
    fn attend(&mut self, layer: &VisionLayer, vectors: &LayerVectors) -> Result<(), Error> {
        let (tower, cpu, config) = (self.tower, self.cpu, self.config());
        let d_model = config.d_model;
        for range in self.chunks() {
            let m = range.len() / d_model;
            let normed = &mut self.normed[..range.len()];
            let [weight, bias] = &vectors.norm1;
            layer_norm(
                cpu,
                &self.x[range.clone()],
                weight,
                bias,
                config.norm_eps,
                normed,
            );
            let [k, v] = &mut self.wide;
            let (k, v) = (&mut k[..range.len()], &mut v[..range.len()]);
            let first_pos = range.start / d_model;
            let q = &mut self.q[range.clone()];
            let [q_bias, k_bias, v_bias] = &vectors.qkv_bias;
            let [wq, wk, wv] = &layer.qkv;
            let mut products = [
                tower.product(&wq.weight, q_bias, q)?,
                tower.product(&wk.weight, k_bias, k)?,
                tower.product(&wv.weight, v_bias, v)?,
            ];
            matmul(cpu, normed, m, &mut self.activations, &mut products);
            let run = KvRun {
                rows: 0..m,
                first_pos,
                pages: &self.pages,
                pages_first_pos: 0,
            };
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
            kv_append(cpu, &self.layout, k, v, k_pages, v_pages, &[run]);
        }
        self.attention();
        for range in self.chunks() {
            let m = range.len() / d_model;
            let added = &mut self.normed[..range.len()];
            let product = tower.product(&layer.out.weight, &vectors.out_bias, added)?;
            let heads = &self.out[range.clone()];
            matmul(cpu, heads, m, &mut self.activations, &mut [product]);
            add(cpu, &mut self.x[range.clone()], &self.normed[..range.len()]);
        }
        Ok(())
    }

    /// Every row sees all.
    fn attention(&mut self) {
        let config = self.config();
        let (n, head_dim) = (config.n_patches(), config.head_dim());
        let shape = AttentionShape {
            n_heads: config.n_heads,
            n_kv_heads: config.n_heads,
            head_dim: self.layout.head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            window: None,
            softcap: None,
        };
        let run = KvRun {
            rows: 0..n,
            first_pos: 0,
            pages: &self.pages,
            pages_first_pos: 0,
        };
        let block = 0..n;
        let (q, found) = match &mut self.heads {
            None => (&self.q, &mut self.out),
            Some([q, found, ..]) => (&*q, found),
        };
        let input = AttentionInput {
            q,
            k_pages: &self.k_pages,
            v_pages: &self.v_pages,
            runs: &[run],
            blocks: &[block],
            sinks: None,
        };
        let scratch = &mut self.scratch;
        attention(self.cpu, &shape, &self.layout, &input, scratch, found);
        if let Some([_, found, ..]) = &self.heads {
            copy_heads((found, shape.head_dim), (&mut self.out, head_dim));
        }
    }

    /// `x += down(gelu(up(norm2(x))))`.
    fn feed_forward(&mut self, layer: &VisionLayer, vectors: &LayerVectors) -> Result<(), Error> {
        let (tower, cpu, config) = (self.tower, self.cpu, self.config());
        for range in self.chunks() {
            let m = range.len() / config.d_model;
            let normed = &mut self.normed[..range.len()];
            let [weight, bias] = &vectors.norm2;
            layer_norm(
                cpu,
                &self.x[range.clone()],
                weight,
                bias,
                config.norm_eps,
                normed,
            );
            let [up, down] = &mut self.wide;
            let (up, down) = (&mut up[..m * config.d_ff], &mut down[..range.len()]);
            let product = tower.product(&layer.up.weight, &vectors.up_bias, up)?;
            matmul(cpu, normed, m, &mut self.activations, &mut [product]);
            activate(cpu, Activation::GeluTanh, up);
            let product = tower.product(&layer.down.weight, &vectors.down_bias, down)?;
            matmul(cpu, up, m, &mut self.activations, &mut [product]);
            add(cpu, &mut self.x[range], down);
        }
        Ok(())
    }

    /// The last norm.
    fn finish(&mut self) -> Vec<f32> {
        let [weight, bias] = &self.tower.vectors.norm;
        let mut out = std::mem::take(&mut self.out);
        let eps = self.config().norm_eps;
        layer_norm(self.cpu, &self.x, weight, bias, eps, &mut out);
        out
    }

    /// Squares of patches pooled and normalised: `[n_tokens, d_model]`.
    fn pooled(&self, encoder: &[f32]) -> Vec<f32> {
        let (tower, config) = (self.tower, self.config());
        let pooled = pooled(config, encoder);
        let mut normed = vec![0.0; pooled.len()];
        let (weight, offset) = (&tower.vectors.pooled_norm, tower.model.pooled_norm_offset);
        let (d_model, eps) = (config.d_model, config.norm_eps);
        rms_norm(self.cpu, &pooled, d_model, weight, eps, offset, &mut normed);
        normed
    }

    /// Their projection, `[n_tokens, d_text]`.
    fn project(&mut self, pooled: &[f32]) -> Result<Vec<f32>, Error> {
        let (tower, config) = (self.tower, self.config());
        let mut rows = vec![0.0; config.n_tokens * config.d_text];
        let projection = &tower.model.projection;
        // Stored by input; transposed when the tower was opened.
        let (dtype, k) = (projection.dtype, config.d_model);
        let weight = WeightMatrix::new(dtype, config.d_text, k, &tower.projection)?;
        let product = Multiplication {
            weight,
            bias: None,
            out: &mut rows,
        };
        let m = config.n_tokens;
        matmul(self.cpu, pooled, m, &mut self.activations, &mut [product]);
        Ok(rows)
    }
}

/// `[3, size, size]` as patches `[n_patches, 3 · patch²]`, each in the order channel, y, x.
fn patch_rows(config: &VisionConfig, pixels: &[f32]) -> Vec<f32> {
    let (size, patch, side) = (
        config.image_size,
        config.patch_size,
        config.patches_per_side(),
    );
    let mut rows = Vec::with_capacity(pixels.len());
    for row in 0..side {
        for column in 0..side {
            for channel in 0..VisionConfig::CHANNELS {
                for y in row * patch..(row + 1) * patch {
                    let start = (channel * size + y) * size + column * patch;
                    rows.extend_from_slice(&pixels[start..start + patch]);
                }
            }
        }
    }
    rows
}

/// The mean of each square of `pool` × `pool` patches, row-major.
fn pooled(config: &VisionConfig, encoder: &[f32]) -> Vec<f32> {
    let (d_model, pool) = (config.d_model, config.pool());
    let (side, out_side) = (config.patches_per_side(), config.tokens_per_side());
    let mut out = vec![0.0f32; out_side * out_side * d_model];
    for (i, row) in encoder.chunks_exact(d_model).enumerate() {
        let token = i / side / pool * out_side + i % side / pool;
        for (sum, x) in out[token * d_model..][..d_model].iter_mut().zip(row) {
            *sum += x;
        }
    }
    let n = (pool * pool) as f32;
    out.iter_mut().for_each(|sum| *sum /= n);
    out
}
