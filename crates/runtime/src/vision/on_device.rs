//! A vision encoder on a device, with the division of work from [`millrace_plan::vision`].

use std::ops::ControlFlow;
use std::sync::Arc;

use bytemuck::cast_slice;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::Weight;
use millrace_image::PixelValues;
use millrace_kernels::{Cpu, layer_norm};
use millrace_model::vision::{BiasedLinear, Projector, VisionLayer};
use millrace_npu::cache::Move;
use millrace_npu::{Provenance, Traffic};
use millrace_plan::{
    Reason, VisionMatrix, VisionPlan, VisionProgram, VisionShape, VisionSlot, position_slot,
};
use millrace_quant::decode_blocks;

use super::encode::{EncodePass, Stages};
use super::{EncodedImage, LayerVectors, VisionEncoder};
use crate::Error;
use crate::npu::{NpuError, NpuModel};

/// A vision encoder's blocks on the device of a text model, which has its weights there from the first image on.
pub struct VisionBlocks {
    npu: Arc<NpuModel>,
    plan: VisionPlan,
    /// The vision encoder's projection.
    projection: Weight,
}

/// Where a vision encoder's blocks run.
pub enum VisionDevice {
    /// On the CPU; with the device's reason, if the text model is on one.
    Cpu(Option<Reason>),
    /// On the text model's device.
    Device(Box<VisionBlocks>),
}

impl VisionDevice {
    /// The text model's device, if it supports blocks of these sizes; otherwise the CPU.
    pub fn of(encoder: &VisionEncoder, npu: Option<&Arc<NpuModel>>) -> VisionDevice {
        match npu.map(|npu| VisionBlocks::new(encoder, npu)) {
            Some(Ok(blocks)) => VisionDevice::Device(Box::new(blocks)),
            Some(Err(reason)) => VisionDevice::Cpu(Some(reason)),
            None => VisionDevice::Cpu(None),
        }
    }
}

/// Use of the device for an image.
#[derive(Clone, Debug)]
pub struct VisionRun {
    /// Time of the dispatches.
    pub device_ns: u64,
    /// How many.
    pub n_dispatches: u64,
    /// Bytes that crossed.
    pub traffic: Traffic,
    /// Where the time comes from.
    pub provenance: Provenance,
}

/// An image on its way through the device.
struct OnDevice<'b> {
    blocks: &'b VisionBlocks,
    run: VisionRun,
}

/// A matrix of the vision encoder and its bias, which a slot may hold too.
struct VisionProduct<'a> {
    weight: &'a Weight,
    bytes: &'a [u8],
    bias: &'a [f32],
}

/// The vision encoder's matrix of that kind; of block `index`, if blocks have it.
fn stored<'t>(
    encoder: &'t VisionEncoder,
    projection: &'t Weight,
    matrix: VisionMatrix,
    index: usize,
) -> VisionProduct<'t> {
    let (model, all) = (&encoder.model, &encoder.vectors);
    let of = |linear: fn(&VisionLayer) -> &BiasedLinear, bias: fn(&LayerVectors) -> &Vec<f32>| {
        (
            &linear(&model.layers[index]).weight,
            bias(&all.layers[index]),
        )
    };
    let (weight, bias) = match matrix {
        VisionMatrix::Q => of(|l| &l.qkv[0], |v| &v.qkv[0].bias),
        VisionMatrix::K => of(|l| &l.qkv[1], |v| &v.qkv[1].bias),
        VisionMatrix::V => of(|l| &l.qkv[2], |v| &v.qkv[2].bias),
        VisionMatrix::Out => of(|l| &l.out, |v| &v.out.bias),
        VisionMatrix::Up => of(|l| &l.up, |v| &v.up.bias),
        VisionMatrix::Down => of(|l| &l.down, |v| &v.down.bias),
        VisionMatrix::Patches => (&model.patches.weight, &all.patches_bias),
        // Rows are its inputs in the file; it was transposed when the vision encoder was opened.
        VisionMatrix::Projection => {
            return VisionProduct {
                weight: projection,
                bytes: &encoder.own.projection,
                bias: &[],
            };
        }
    };
    VisionProduct {
        bytes: encoder.bytes(weight),
        weight,
        bias,
    }
}

impl VisionBlocks {
    /// Plans the vision encoder for the device that the text model is on.
    ///
    /// # Errors
    /// Why it is the host's.
    pub fn new(encoder: &VisionEncoder, npu: &Arc<NpuModel>) -> Result<VisionBlocks, Reason> {
        let (model, config) = (encoder.model(), encoder.config());
        let (None, Projector::Pooled(projector)) = (&config.grid, &model.projector) else {
            let family = config.family;
            return Err(Reason(format!(
                "no device has programs for the blocks of a {family} vision encoder"
            )));
        };
        Ok(VisionBlocks {
            npu: Arc::clone(npu),
            plan: npu.planner().vision_encoder(&VisionShape::of(config))?,
            projection: projector.projection.clone(),
        })
    }

    /// The programs.
    pub fn plan(&self) -> &VisionPlan {
        &self.plan
    }
}

impl OnDevice<'_> {
    /// The program's output for `rows`, which have `width` elements; `index` is the block's.
    fn run(
        &mut self,
        encoder: &VisionEncoder,
        program: &VisionProgram,
        index: usize,
        (rows, width): (&[f32], usize),
    ) -> Result<Vec<bf16>, NpuError> {
        let blocks = self.blocks;
        let done = self.dispatch(encoder, program, index, &with_ones(program, rows, width));
        blocks.npu.settle(done)
    }

    fn dispatch(
        &mut self,
        encoder: &VisionEncoder,
        program: &VisionProgram,
        index: usize,
        rows: &[bf16],
    ) -> Result<Vec<bf16>, NpuError> {
        let npu = &self.blocks.npu;
        let _turn = npu.turn();
        let container = &*program.program.container;
        let key = format!("{}_L{index}", container.name());
        let slots = container.slots();
        // The blocks run one after the other and share everything but matrices.
        let name = |slot: usize| match program.slots.get(slot)? {
            VisionSlot::Matrix { .. } => None,
            _ => Some(format!("{}:{}", container.name(), slots[slot].name)),
        };
        let n_patches = self.blocks.plan.shape.n_patches as u32;
        let mut fill = |slot: usize, bytes: &mut [u8]| -> Result<(), NpuError> {
            if let VisionSlot::Matrix { of, n, k, bias } = program.slots[slot] {
                let stored = stored(encoder, &self.blocks.projection, of, index);
                return stored.write((n as usize, k as usize, bias), bytes);
            }
            let position = position_slot(n_patches, bytes.len() / size_of::<bf16>());
            bytes.copy_from_slice(cast_slice(&position));
            Ok(())
        };
        let programs = npu.programs();
        self.run.traffic += programs.preload_with(container, &key, &name, &mut fill)?;
        let moves: Vec<Move<'_>> = (program.slots.iter().zip(slots))
            .map(|(of, slot)| match of {
                VisionSlot::Rows { .. } => Move::Write(cast_slice(rows)),
                VisionSlot::Sum => Move::Read(0..slot.size_bytes().unwrap_or(0)),
                _ => Move::None,
            })
            .collect();
        let mut sums = Vec::new();
        let done = programs.run_moving(container, &key, &moves, |_, bytes| {
            let numbers = bytes.chunks_exact(2);
            sums.extend(numbers.map(|b| bf16::from_le_bytes([b[0], b[1]])));
        });
        let done = done.map_err(|error| NpuError::Call {
            call: self.run.n_dispatches as usize + 1,
            n_calls: 2 * encoder.config().n_layers + 2,
            set: key,
            error,
        })?;
        self.run.traffic += done.traffic;
        self.run.device_ns += done.completion.duration_ns;
        self.run.n_dispatches += 1;
        Ok(sums)
    }

    /// `x += half(norm(x)) + bias`.
    fn half(
        &mut self,
        pass: &mut EncodePass<'_>,
        program: &VisionProgram,
        index: usize,
        (norm, bias): (&[Vec<f32>; 2], &[f32]),
    ) -> Result<(), NpuError> {
        let (encoder, config) = (pass.encoder, pass.encoder.config());
        let d_model = config.d_model;
        let mut normed = vec![0.0; pass.x.len()];
        let ([weight, norm_bias], cpu) = (norm, self.blocks.npu.cpu());
        layer_norm(
            cpu,
            &pass.x,
            d_model,
            (weight, norm_bias),
            config.norm_eps,
            &mut normed,
        );
        let sums = self.run(encoder, program, index, (&normed, d_model))?;
        for (x, sums) in pass
            .x
            .chunks_exact_mut(d_model)
            .zip(sums.chunks_exact(d_model))
        {
            for ((x, sum), bias) in x.iter_mut().zip(sums).zip(bias) {
                *x += sum.to_f32() + bias;
            }
        }
        Ok(())
    }
}

impl Stages<NpuError> for OnDevice<'_> {
    fn attends_on_pages(&self) -> bool {
        false
    }

    fn embed(&mut self, pass: &mut EncodePass<'_>, patches: &[f32]) -> Result<(), NpuError> {
        let encoder = pass.encoder;
        let width = encoder.model.patches.weight.k;
        let rows = self.run(encoder, &self.blocks.plan.patches, 0, (patches, width))?;
        rows.convert_to_f32_slice(&mut pass.x);
        Ok(())
    }

    fn block(&mut self, pass: &mut EncodePass<'_>, index: usize) -> Result<(), NpuError> {
        let (plan, vectors) = (&self.blocks.plan, &pass.encoder.vectors.layers[index]);
        let of = (&vectors.norm1, &vectors.out.bias[..]);
        self.half(pass, &plan.attention, index, of)?;
        let of = (&vectors.norm2, &vectors.down.bias[..]);
        self.half(pass, &plan.feed_forward, index, of)
    }

    fn project(&mut self, pass: &mut EncodePass<'_>, pooled: &[f32]) -> Result<Vec<f32>, NpuError> {
        let (encoder, d_model) = (pass.encoder, pass.encoder.config().d_model);
        let rows = self.run(encoder, &self.blocks.plan.projection, 0, (pooled, d_model))?;
        Ok(rows.to_f32_vec())
    }
}

/// Rows in the program's form: a one after each if its matrix has a bias there, zeros up to its width.
fn with_ones(program: &VisionProgram, rows: &[f32], width: usize) -> Vec<bf16> {
    let wanted = program.slots.iter().find_map(|slot| match slot {
        VisionSlot::Rows { width, bias } => Some((*width as usize, *bias)),
        _ => None,
    });
    let (padded, bias) = wanted.unwrap_or((width, false));
    let mut out = vec![bf16::ZERO; rows.len() / width.max(1) * padded];
    for (row, out) in rows.chunks_exact(width).zip(out.chunks_exact_mut(padded)) {
        out[..width].convert_from_f32_slice(row);
        if bias {
            out[width] = bf16::ONE;
        }
    }
    out
}

impl VisionProduct<'_> {
    /// Writes it into its slot `[n, k]`: its bias after each row if the slot has it there, zeros in the rest.
    fn write(
        &self,
        (n, k, has_bias): (usize, usize, bool),
        out: &mut [u8],
    ) -> Result<(), NpuError> {
        let VisionProduct {
            weight,
            bytes,
            bias,
        } = self;
        // The projection has rows and columns exchanged.
        let (own_n, own_k) = match bias.len() {
            0 => (weight.k, weight.n),
            _ => (weight.n, weight.k),
        };
        let fits = own_n <= n && own_k + usize::from(has_bias) <= k;
        if !fits || out.len() != n * k * size_of::<bf16>() {
            let problem = format!("`{}` in a slot of {n} by {k}", weight.name);
            return Err(NpuError::plan("a vision encoder's matrix", problem));
        }
        out.fill(0);
        let row_bytes = bytes.len() / own_n.max(1);
        let mut row = vec![0.0; own_k];
        let mut rounded = vec![bf16::ZERO; own_k + 1];
        let rows = bytes.chunks_exact(row_bytes).take(own_n);
        for (i, (stored, out)) in rows
            .zip(out.chunks_exact_mut(k * size_of::<bf16>()))
            .enumerate()
        {
            decode_blocks(weight.dtype, stored, &mut row)?;
            rounded[..own_k].convert_from_f32_slice(&row);
            rounded[own_k] = bf16::from_f32(bias.get(i).copied().unwrap_or(0.0));
            let written: &[u8] = cast_slice(&rounded[..own_k + usize::from(has_bias)]);
            out[..written.len()].copy_from_slice(written);
        }
        Ok(())
    }
}

impl VisionEncoder {
    /// [`encode`](VisionEncoder::encode) or [`encode_on`](VisionEncoder::encode_on): where the blocks are to run.
    ///
    /// # Errors
    /// As both.
    pub fn encode_where(
        &self,
        on: &VisionDevice,
        cpu: &Cpu,
        pixels: &PixelValues,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<EncodedImage>, Error> {
        match on {
            VisionDevice::Cpu(_) => self.encode(cpu, pixels, watch),
            VisionDevice::Device(blocks) => Ok(self.encode_on(blocks, pixels, watch)?),
        }
    }

    /// As [`encode`](VisionEncoder::encode), with all products and attention on a device.
    ///
    /// # Errors
    /// As [`encode`](VisionEncoder::encode), and a dispatch that fails.
    pub fn encode_on(
        &self,
        blocks: &VisionBlocks,
        pixels: &PixelValues,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<EncodedImage>, NpuError> {
        let mut stages = OnDevice {
            blocks,
            run: VisionRun {
                device_ns: 0,
                n_dispatches: 0,
                traffic: Traffic::default(),
                provenance: blocks.npu.provenance().clone(),
            },
        };
        let encoded = self.encode_by(blocks.npu.cpu(), &mut stages, pixels, watch)?;
        let run = stages.run;
        Ok(encoded.map(|encoded| EncodedImage {
            on_device: Some(run),
            ..encoded
        }))
    }
}
