//! The forward pass of a vision encoder on the CPU's kernels.
//!
//! Everything except attention is by row and goes over [`CHUNK_ROWS`] rows at a time, so the widest values of an image never exist at once.
//! Attention is the kernel of text models: all rows are one block of one sequence that see each other, in a cache of f32. Its kernels
//! support heads of whole vectors of 4 elements. Heads that are not a multiple of 8 are padded with zeros, which add nothing to any score
//! or sum.

use std::ops::ControlFlow;
use std::slice;

use millrace_graph::Weight;
use millrace_image::PixelValues;
use millrace_kernels::matmul::{Multiplication, WeightMatrix, matmul};
use millrace_kernels::{AttentionScratch, Cpu, KvBuffer, KvLayout, KvType, add};
use millrace_model::VisionConfig;
use millrace_model::vision::Projector;
use millrace_quant::DType;

use super::block::{Segment, norm, segments};
use super::heads::padded;
use super::linear::LinearScratch;
use super::order::PatchOrder;
use super::{EncodedImage, ProjectorVectors, VisionEncoder};
use crate::kv::PAGE_TOKENS;
use crate::{Error, Image};

/// Rows that go through matrices at a time.
pub(super) const CHUNK_ROWS: usize = 512;

/// Computes the matrix products and the attention of an image.
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
        let encoder = pass.encoder;
        let (layer, vectors) = (&encoder.model.layers[index], &encoder.vectors.layers[index]);
        pass.attend(layer, vectors, index)?;
        pass.feed_forward(layer, vectors)
    }

    fn project(&mut self, pass: &mut EncodePass<'_>, pooled: &[f32]) -> Result<Vec<f32>, Error> {
        pass.project(pooled)
    }
}

/// The values of an image under way.
pub(super) struct EncodePass<'a> {
    pub(super) encoder: &'a VisionEncoder,
    pub(super) cpu: &'a Cpu,
    pub(super) order: PatchOrder,
    /// The residual stream, `[n_patches, d_model]`.
    pub(super) x: Vec<f32>,
    /// Queries, then the attention's output; `[n_patches, d_model]`.
    pub(super) q: Vec<f32>,
    pub(super) out: Vec<f32>,
    /// Where heads are padded: `[n_patches, n_heads, padded]` of queries and of the output, chunks of keys and of values.
    pub(super) heads: Option<[Vec<f32>; 4]>,
    /// Chunks of rows: the output of a norm, and the products of matrices with it.
    pub(super) normed: Vec<f32>,
    pub(super) wide: [Vec<f32>; 2],
    /// The gates of a gated feed-forward network; empty without one.
    pub(super) gate: Vec<f32>,
    /// For blocks in which patches see their windows, and for those in which they see all.
    pub(super) segments: [Vec<Segment>; 2],
    pub(super) layout: KvLayout,
    pub(super) k_pages: KvBuffer,
    pub(super) v_pages: KvBuffer,
    pub(super) pages: Vec<u32>,
    pub(super) scratch: PassScratch,
}

/// Further memory of kernels.
#[derive(Default)]
pub(super) struct PassScratch {
    pub(super) linear: LinearScratch,
    pub(super) attention: AttentionScratch,
}

impl VisionEncoder {
    /// Runs the vision encoder and the projector. `watch` gets the number of blocks done and in all, and can
    /// stop the work: then there is no result.
    ///
    /// # Errors
    /// [`Error::BadImage`] for pixel values of another size; [`Error::Kernels`] for a weight that the
    /// kernels do not support; [`Error::CacheTooLarge`] if memory is short.
    pub fn encode(
        &self,
        cpu: &Cpu,
        pixels: &PixelValues,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<EncodedImage>, Error> {
        self.encode_by(cpu, &mut OnCpu, pixels, watch)
    }

    /// The same with given stages.
    pub(super) fn encode_by<E: From<Error>>(
        &self,
        cpu: &Cpu,
        stages: &mut dyn Stages<E>,
        pixels: &PixelValues,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<EncodedImage>, E> {
        let config = &self.model.config;
        check_pixels(config, pixels)?;
        let _hot = cpu.pool().enter();
        let order = PatchOrder::new(config, pixels.height, pixels.width);
        let mut pass = EncodePass::new(self, cpu, stages.attends_on_pages(), order)?;
        let patches = pass.order.patch_rows(config.patch_size, &pixels.data);
        stages.embed(&mut pass, &patches)?;
        pass.add_positions();
        pass.norm_patches();
        let mut summands = Vec::with_capacity(config.deepstack.len());
        for done in 0..config.n_layers {
            if watch(done, config.n_layers).is_break() {
                return Ok(None);
            }
            stages.block(&mut pass, done)?;
            if let Some(i) = config.deepstack.iter().position(|layer| *layer == done) {
                let (merger, vectors) = (&self.model.deepstack[i], &self.vectors.deepstack[i]);
                summands.push(pass.merged(merger, vectors)?);
            }
        }
        let encoder = pass.finish();
        let rows = match &self.model.projector {
            Projector::Pooled(projector) => {
                let pooled = pass.pooled(projector, &encoder);
                stages.project(&mut pass, &pooled)?
            }
            Projector::Averaged(projector) => pass.averaged(projector)?,
            Projector::Adapted(adapter) => pass.adapted(adapter)?,
            Projector::Merged(merger) => match &self.vectors.projector {
                ProjectorVectors::Merged(vectors) => pass.merged(merger, vectors)?,
                _ => Vec::new(),
            },
        };
        let image = match (&self.model.projector, &config.grid) {
            (Projector::Merged(_), Some(grid)) => {
                let places = (
                    pass.order.height / grid.merge,
                    pass.order.width / grid.merge,
                );
                Image::on_grid(config.d_text, rows, places, summands)?
            }
            _ => Image::with_sight(self.sight, config.d_text, rows)?,
        };
        Ok(Some(EncodedImage {
            encoder,
            image,
            on_device: None,
        }))
    }

    /// `out = x · weightᵀ (+ bias)` for rows of `x`.
    pub(super) fn product<'a>(
        &'a self,
        weight: &Weight,
        bias: &'a [f32],
        out: &'a mut [f32],
    ) -> Result<Multiplication<'a>, Error> {
        let weight = WeightMatrix::new(weight.dtype, weight.n, weight.k, self.bytes(weight))?;
        Ok(Multiplication {
            weight,
            bias: (!bias.is_empty()).then_some(bias),
            out,
        })
    }

    /// The patch matrix, over patches of one frame.
    fn patch_matrix(&self) -> Result<WeightMatrix<'_>, Error> {
        let weight = &self.model.patches.weight;
        let k = self.config().patch_elems();
        Ok(match self.own.patches.as_slice() {
            [] => WeightMatrix::new(weight.dtype, weight.n, k, self.bytes(weight))?,
            summed => WeightMatrix::new(DType::F32, weight.n, k, summed)?,
        })
    }
}

impl<'a> EncodePass<'a> {
    fn new(
        encoder: &'a VisionEncoder,
        cpu: &'a Cpu,
        attends: bool,
        order: PatchOrder,
    ) -> Result<EncodePass<'a>, Error> {
        let config = encoder.config();
        let (n, d_model) = (order.len(), config.d_model);
        let head_dim = padded(config.head_dim());
        let width = config.n_heads * head_dim;
        let layout = KvLayout {
            dtype: KvType::F32,
            n_kv_heads: config.n_heads,
            head_dim,
            page_tokens: PAGE_TOKENS,
        };
        layout.check()?;
        let segments = [segments(&order.windows), segments(slice::from_ref(&(0..n)))];
        let ends = segments.iter().flatten().map(|segment| segment.pages.end);
        let n_pages = ends.max().filter(|_| attends).unwrap_or(0);
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
            encoder,
            cpu,
            x: vec![0.0; n * d_model],
            q: vec![0.0; if attends { n * d_model } else { 0 }],
            out: vec![0.0; n * d_model],
            heads,
            normed: rows(d_model),
            wide: [rows(widest), rows(d_model)],
            gate: match encoder
                .model
                .layers
                .iter()
                .any(|layer| layer.gate.is_some())
            {
                true => rows(config.d_ff),
                false => Vec::new(),
            },
            segments,
            order,
            layout,
            k_pages: buffer()?,
            v_pages: buffer()?,
            pages: (0..n_pages as u32).collect(),
            scratch: PassScratch::default(),
        })
    }

    pub(super) fn config(&self) -> &'a VisionConfig {
        self.encoder.config()
    }

    /// Ranges of elements of `[n_patches, d_model]`, a chunk of rows each.
    pub(super) fn chunks(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (n, width) = (self.x.len(), CHUNK_ROWS * self.config().d_model);
        (0..n)
            .step_by(width)
            .map(move |start| start..n.min(start + width))
    }

    /// Patches through their matrix.
    fn embed(&mut self, patches: &[f32]) -> Result<(), Error> {
        let (encoder, config) = (self.encoder, self.config());
        let (weight, k) = (encoder.patch_matrix()?, config.patch_elems());
        let bias = &encoder.vectors.patches_bias[..];
        let d_model = config.d_model;
        for range in self.chunks() {
            let rows = range.start / d_model..range.end / d_model;
            let x = &patches[rows.start * k..rows.end * k];
            let product = Multiplication {
                weight,
                bias: (!bias.is_empty()).then_some(bias),
                out: &mut self.x[range],
            };
            matmul(
                self.cpu,
                x,
                rows.len(),
                &mut self.scratch.linear.activations,
                &mut [product],
            );
        }
        Ok(())
    }

    /// Adds the row of the position table to each patch.
    fn add_positions(&mut self) {
        let (table, config) = (&self.encoder.vectors.positions, self.config());
        match &config.grid {
            _ if table.is_empty() => {}
            _ if config.axis_positions > 0 => {
                self.order.add_by_axis(&mut self.x, table, config.d_model);
            }
            None => add(self.cpu, &mut self.x, table),
            Some(_) => {
                let side = config.patches_per_side();
                let positions = self.order.stretched(table, side, config.d_model);
                add(self.cpu, &mut self.x, &positions);
            }
        }
    }

    /// The norm before the blocks, if there is one.
    fn norm_patches(&mut self) {
        if self.encoder.model.pre_norm.is_some() {
            let (vectors, eps) = (&self.encoder.vectors.pre_norm, self.config().norm_eps);
            norm(self.cpu, &self.x, vectors, eps, &mut self.out);
            std::mem::swap(&mut self.x, &mut self.out);
        }
    }

    /// The last norm, if there is one.
    fn finish(&mut self) -> Vec<f32> {
        if self.encoder.model.norm.is_none() {
            return self.x.clone();
        }
        let mut out = std::mem::take(&mut self.out);
        let (vectors, eps) = (&self.encoder.vectors.norm, self.config().norm_eps);
        norm(self.cpu, &self.x, vectors, eps, &mut out);
        out
    }
}

/// Refuses pixels of another size than the vision encoder supports.
fn check_pixels(config: &VisionConfig, pixels: &PixelValues) -> Result<(), Error> {
    let (width, height) = (pixels.width, pixels.height);
    let expected = match &config.grid {
        None if (width, height) == (config.image_size, config.image_size) => return Ok(()),
        None => format!("{0} × {0}", config.image_size),
        Some(grid) => {
            let cell = grid.merge * config.patch_size;
            let fits = |side: usize| side > 0 && side.is_multiple_of(cell);
            let n_pixels = width as u64 * height as u64;
            let n_cells = n_pixels / (cell * cell) as u64;
            if fits(width) && fits(height) && n_cells <= config.n_tokens as u64 {
                return Ok(());
            }
            let n_tokens = config.n_tokens;
            format!("sides of a multiple of {cell}, and {n_tokens} squares of it at most")
        }
    };
    let reason =
        format!("it has {width} × {height} pixels, and the vision encoder takes {expected}");
    Err(Error::BadImage { reason })
}
