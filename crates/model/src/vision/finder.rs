//! The weights of a tower in its checkpoint, found by their names and checked.

use millrace_format::Source;
use millrace_graph::{Weight, WeightSource};

use super::family::{HfSpelling, VisionFamily, by_name};
use super::names::{VisionName, VisionRole};
use super::{BiasedLinear, LayerNorm, VisionConfig, VisionLayer};
use crate::Error;
use crate::catalog::Catalog;

/// Finds and checks weights.
pub(crate) struct Finder<'a> {
    pub(super) config: &'a VisionConfig,
    catalog: &'a Catalog<'a>,
    source: Source,
    family: &'static VisionFamily,
    spelling: HfSpelling,
    /// Old files of llama.cpp call the up projection down and the other way round.
    swapped: bool,
}

impl<'a> Finder<'a> {
    pub(super) fn new(
        config: &'a VisionConfig,
        source: Source,
        catalog: &'a Catalog<'a>,
    ) -> Finder<'a> {
        let family = by_name(config.family);
        let down = catalog.shape("v.blk.0.ffn_down.weight");
        Finder {
            swapped: source == Source::Gguf
                && config.d_ff != config.d_model
                && down == Some(&[config.d_ff, config.d_model]),
            spelling: HfSpelling::of(family, catalog),
            config,
            catalog,
            source,
            family,
        }
    }

    /// What kind of file it is.
    pub(super) fn source(&self) -> Source {
        self.source
    }

    pub(super) fn is_gguf(&self) -> bool {
        self.source == Source::Gguf
    }

    /// All blocks.
    pub(super) fn layers(
        &self,
        layer: &dyn Fn(&Finder<'a>, usize) -> Result<VisionLayer, Error>,
    ) -> Result<Vec<VisionLayer>, Error> {
        let layers = (0..self.config.n_layers).map(|index| layer(self, index));
        layers.collect()
    }

    /// A block of layer norms and a feed-forward network of two matrices.
    pub(super) fn layer(&self, layer: usize) -> Result<VisionLayer, Error> {
        let layer = Some(layer);
        Ok(VisionLayer {
            norm1: self.norm(layer, VisionRole::Norm1)?,
            qkv: self.attention_inputs(layer)?,
            out: self.linear(layer, VisionRole::AttnOutput)?,
            norm2: self.norm(layer, VisionRole::Norm2)?,
            gate: None,
            up: self.linear(layer, VisionRole::FfnUp)?,
            down: self.linear(layer, VisionRole::FfnDown)?,
        })
    }

    /// A block of RMS norms and a gated feed-forward network.
    pub(super) fn gated_layer(&self, layer: usize) -> Result<VisionLayer, Error> {
        let layer = Some(layer);
        Ok(VisionLayer {
            norm1: self.rms_norm(layer, VisionRole::Norm1)?,
            qkv: self.attention_inputs(layer)?,
            out: self.linear(layer, VisionRole::AttnOutput)?,
            norm2: self.rms_norm(layer, VisionRole::Norm2)?,
            gate: Some(self.linear(layer, VisionRole::FfnGate)?),
            up: self.linear(layer, VisionRole::FfnUp)?,
            down: self.linear(layer, VisionRole::FfnDown)?,
        })
    }

    /// Queries, keys and values, which are one tensor or three.
    fn attention_inputs(&self, layer: Option<usize>) -> Result<[BiasedLinear; 3], Error> {
        let fused = VisionName::weight(layer, VisionRole::AttnQkv);
        let is_named = self.family.names.iter().any(|names| names.0 == fused.role);
        let is_fused = is_named && (!self.is_gguf() || self.catalog.has(&self.spelled(fused)));
        if !is_fused {
            return Ok([
                self.linear(layer, VisionRole::AttnQ)?,
                self.linear(layer, VisionRole::AttnK)?,
                self.linear(layer, VisionRole::AttnV)?,
            ]);
        }
        let (weight, bias) = (self.weight(fused)?, self.weight(fused.bias())?);
        let d_model = self.config.d_model;
        let rows = |of: &Weight, i: usize, (n, k): (usize, usize)| Weight {
            source: WeightSource::Rows {
                first: i * d_model,
                n_rows: 3 * d_model,
            },
            n,
            k,
            ..of.clone()
        };
        Ok([0, 1, 2].map(|i| BiasedLinear {
            weight: rows(&weight, i, (d_model, d_model)),
            bias: Some(rows(&bias, i, (1, d_model))),
        }))
    }

    /// A layer norm.
    pub(super) fn norm(&self, layer: Option<usize>, role: VisionRole) -> Result<LayerNorm, Error> {
        let name = VisionName::weight(layer, role);
        Ok(LayerNorm {
            weight: self.weight(name)?,
            bias: Some(self.weight(name.bias())?),
        })
    }

    /// An RMS norm, which has no bias.
    pub(super) fn rms_norm(
        &self,
        layer: Option<usize>,
        role: VisionRole,
    ) -> Result<LayerNorm, Error> {
        Ok(LayerNorm {
            weight: self.weight(VisionName::weight(layer, role))?,
            bias: None,
        })
    }

    pub(super) fn linear(
        &self,
        layer: Option<usize>,
        role: VisionRole,
    ) -> Result<BiasedLinear, Error> {
        let name = VisionName::weight(layer, role);
        Ok(BiasedLinear {
            weight: self.weight(name)?,
            bias: Some(self.weight(name.bias())?),
        })
    }

    /// A matrix without a bias.
    pub(super) fn without_bias(
        &self,
        layer: Option<usize>,
        role: VisionRole,
    ) -> Result<BiasedLinear, Error> {
        Ok(BiasedLinear {
            weight: self.weight(VisionName::weight(layer, role))?,
            bias: None,
        })
    }

    /// The patch convolution of the second of two frames, which GGUF files have as a tensor of its own.
    pub(super) fn second_frame(&self) -> Result<Option<Weight>, Error> {
        let name = VisionName::weight(None, VisionRole::SecondFrame);
        self.is_gguf().then(|| self.weight(name)).transpose()
    }

    /// A matrix that is read by column, which only plain numbers allow.
    pub(super) fn by_column(&self, name: VisionName) -> Result<Weight, Error> {
        let weight = self.weight(name)?;
        if !weight.dtype.is_float() {
            return Err(Error::TensorType {
                file: self.catalog.file().into(),
                tensor: weight.name,
                found: weight.dtype.name().into(),
                expected: "f32, f16 or bf16".into(),
            });
        }
        Ok(weight)
    }

    fn spelled(&self, name: VisionName) -> String {
        match self.source {
            Source::Gguf if self.swapped => name.swapped().gguf(self.family),
            Source::Gguf => name.gguf(self.family),
            Source::HuggingFace => name.hf(self.family, self.spelling),
        }
    }

    pub(super) fn weight(&self, name: VisionName) -> Result<Weight, Error> {
        let spelled = self.spelled(name);
        let shape = self.config.shape_of(name, self.source);
        let dtype = self.catalog.check(&spelled, &shape)?;
        let (n, k) = match shape.split_first() {
            Some((n, rest)) if !rest.is_empty() => (*n, rest.iter().product()),
            _ => (1, shape[0]),
        };
        Ok(Weight {
            n_experts: 1,
            source: WeightSource::Whole,
            name: spelled,
            n,
            k,
            dtype,
        })
    }
}
