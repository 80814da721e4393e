//! The weights of a vision encoder in its checkpoint, found by their names and checked.

use millrace_format::Source;
use millrace_graph::{Weight, WeightSource};

use super::family::{HfSpelling, VisionFamily, by_name};
use super::names::{VisionName, VisionRole};
use super::{BiasedLinear, InnerNorms, LayerNorm, VisionConfig, VisionLayer};
use crate::Error;
use crate::catalog::Catalog;

/// Names of a matrix's bounds behind its module: minimum and maximum of its input, then of its output.
const BOUNDS: [&str; 4] = ["input_min", "input_max", "output_min", "output_max"];

/// The parts of a family's blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockForm {
    /// Layer norms; else RMS norms.
    pub(super) layer_norms: bool,
    /// Whether matrices have biases.
    pub(super) biases: bool,
    /// Whether the feed-forward has gates.
    pub(super) gated: bool,
    /// Norms of heads, and of the outputs of both halves.
    pub(super) inner_norms: bool,
}

impl BlockForm {
    /// Layer norms, and biases everywhere.
    pub(super) const LAYER_NORMS: BlockForm = BlockForm {
        layer_norms: true,
        biases: true,
        gated: false,
        inner_norms: false,
    };

    /// The same with RMS norms.
    pub(super) const RMS_NORMS: BlockForm = BlockForm {
        layer_norms: false,
        ..BlockForm::LAYER_NORMS
    };
}

/// Finds and checks weights.
pub(crate) struct Finder<'a> {
    pub(super) config: &'a VisionConfig,
    catalog: &'a Catalog<'a>,
    source: Source,
    family: &'static VisionFamily,
    spelling: HfSpelling,
    /// Whether the names of up and down projection are exchanged, as in old files of llama.cpp.
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

    /// The kind of file.
    pub(super) fn source(&self) -> Source {
        self.source
    }

    pub(super) fn is_gguf(&self) -> bool {
        self.source == Source::Gguf
    }

    /// Whether the file has a weight.
    pub(super) fn has(&self, role: VisionRole) -> bool {
        let name = VisionName::weight(None, role);
        self.catalog.has(&self.spelled(name))
    }

    /// All blocks.
    pub(super) fn layers(&self, form: BlockForm) -> Result<Vec<VisionLayer>, Error> {
        let layers = (0..self.config.n_layers).map(|index| self.layer(form, index));
        layers.collect()
    }

    fn layer(&self, form: BlockForm, layer: usize) -> Result<VisionLayer, Error> {
        let layer = Some(layer);
        let norm = |role| match form.layer_norms {
            true => self.norm(layer, role),
            false => self.rms_norm(layer, role),
        };
        let linear = |role| match form.biases {
            true => self.linear(layer, role),
            false => self.without_bias(layer, role),
        };
        Ok(VisionLayer {
            norm1: norm(VisionRole::Norm1)?,
            qkv: self.attention_inputs(layer, &linear)?,
            out: linear(VisionRole::AttnOutput)?,
            norm2: norm(VisionRole::Norm2)?,
            gate: match form.gated {
                true => Some(linear(VisionRole::FfnGate)?),
                false => None,
            },
            up: linear(VisionRole::FfnUp)?,
            down: linear(VisionRole::FfnDown)?,
            inner_norms: match form.inner_norms {
                true => Some(self.inner_norms(layer)?),
                false => None,
            },
        })
    }

    fn inner_norms(&self, layer: Option<usize>) -> Result<InnerNorms, Error> {
        Ok(InnerNorms {
            q: self.weight(VisionName::weight(layer, VisionRole::QNorm))?,
            k: self.weight(VisionName::weight(layer, VisionRole::KNorm))?,
            attention: self.rms_norm(layer, VisionRole::PostAttentionNorm)?,
            feed_forward: self.rms_norm(layer, VisionRole::PostFfnNorm)?,
        })
    }

    /// Queries, keys and values, which are one tensor or three.
    fn attention_inputs(
        &self,
        layer: Option<usize>,
        linear: &dyn Fn(VisionRole) -> Result<BiasedLinear, Error>,
    ) -> Result<[BiasedLinear; 3], Error> {
        let fused = VisionName::weight(layer, VisionRole::AttnQkv);
        let is_named = self.family.hf_name(fused.role).is_some();
        let is_fused = is_named && (!self.is_gguf() || self.catalog.has(&self.spelled(fused)));
        if !is_fused {
            return Ok([
                linear(VisionRole::AttnQ)?,
                linear(VisionRole::AttnK)?,
                linear(VisionRole::AttnV)?,
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
            bounds: None,
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
            bias: Some(self.weight(name.bias())?),
            ..self.without_bias(layer, role)?
        })
    }

    /// A matrix without a bias.
    pub(super) fn without_bias(
        &self,
        layer: Option<usize>,
        role: VisionRole,
    ) -> Result<BiasedLinear, Error> {
        let name = VisionName::weight(layer, role);
        Ok(BiasedLinear {
            weight: self.weight(name)?,
            bias: None,
            bounds: match layer {
                Some(_) if self.config.bounded => self.bounds(name)?,
                _ => None,
            },
        })
    }

    /// A matrix with its bias, if the file has one.
    pub(super) fn with_any_bias(&self, role: VisionRole) -> Result<BiasedLinear, Error> {
        let bias = VisionName::weight(None, role).bias();
        match self.catalog.has(&self.spelled(bias)) {
            true => self.linear(None, role),
            false => self.without_bias(None, role),
        }
    }

    /// Bounds of a matrix, each a number beside it.
    fn bounds(&self, name: VisionName) -> Result<Option<[Weight; 4]>, Error> {
        let spelled = self.spelled(name);
        let stem = spelled.strip_suffix(".weight").unwrap_or(&spelled);
        let stem = stem.strip_suffix(".linear").unwrap_or(stem);
        let names = BOUNDS.map(|bound| format!("{stem}.{bound}"));
        if self.is_gguf() && !names.iter().any(|name| self.catalog.has(name)) {
            return Ok(None);
        }
        let number = |name: String| {
            // A folder has them without any dimension.
            let shape = self.catalog.shape(&name).filter(|shape| shape.is_empty());
            let dtype = self.catalog.check(&name, shape.unwrap_or(&[1]))?;
            Ok::<_, Error>(Weight {
                n_experts: 1,
                source: WeightSource::Whole,
                name,
                n: 1,
                k: 1,
                dtype,
            })
        };
        let [input_min, input_max, output_min, output_max] = names;
        Ok(Some([
            number(input_min)?,
            number(input_max)?,
            number(output_min)?,
            number(output_max)?,
        ]))
    }

    /// The patch convolution of the second of two frames, which GGUF files have as a separate tensor.
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
            Source::Gguf if self.swapped => name.swapped().gguf(),
            Source::Gguf => name.gguf(),
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
