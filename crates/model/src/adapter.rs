//! LoRA adapters: small matrices beside a model's own, `y = W · x + scale · B · (A · x)`.
//!
//! Two kinds of files are read. A GGUF file of llama.cpp has `general.type` `adapter`, `adapter.type` `lora`, and beside the name of
//! each weight the tensors `.lora_a` `[rank, k]` and `.lora_b` `[n, rank]`; its factor is `adapter.lora.alpha / rank`. A folder of
//! PEFT has `adapter_config.json` and `adapter_model.safetensors`, with `lora_A` and `lora_B` beside the name of each module;
//! its factor is `lora_alpha / rank`, or `lora_alpha / sqrt(rank)` where `use_rslora` says so.
//!
//! Either goes with a model of either layout. The family's layout says which weights a tensor's rows are of, and rows of queries
//! and keys are put where the model has them.

mod gguf;
mod peft;

use std::collections::BTreeMap;
use std::path::Path;

use millrace_format::{Checkpoint, Source, Tensor, TensorType};
use millrace_graph::{Graph, Op, RopeStyle, WeightId, WeightSource};

use crate::ModelConfig;
use crate::arch::{self, Family, WeightConvention};
use crate::builder::{TensorLayout, TensorUse, layout, weights_of};
use crate::catalog::Catalog;
use crate::convert::{Permutation, RowOrder};
use crate::names::{HF_PREFIXES, ParameterKind, TensorName, WeightRole};
use crate::{Error, Model};

/// The file of a PEFT folder that describes its weights.
pub const PEFT_CONFIG: &str = "adapter_config.json";

/// The terms that an adapter adds to products with one weight.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRank {
    /// The weight `[n, k]`, of the model's graph.
    pub weight: WeightId,
    /// Rows of `a`, columns of `b`.
    pub rank: usize,
    /// `[rank, k]`, row-major.
    pub a: Vec<f32>,
    /// `[n, rank]`, row-major, rows in the order of the weight's.
    pub b: Vec<f32>,
    /// The factor that the adapter's file asks for, divided by that on products with the weight.
    pub scale: f32,
}

/// An adapter, fitted to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// The path it was opened by.
    pub file: String,
    /// By weight, each once.
    pub products: Vec<LowRank>,
}

/// The two halves of a product as a file has them, and their factor.
struct Halves<'a> {
    a: Tensor<'a>,
    b: Tensor<'a>,
    scale: f32,
}

/// An adapter's file, before it is fitted: its halves by the name of the tensor that they change.
struct AdapterFile<'f> {
    name: &'f str,
    convention: WeightConvention,
    halves: BTreeMap<String, Halves<'f>>,
}

impl Adapter {
    /// Reads an adapter and fits it to a model, whose weights are those of a checkpoint.
    ///
    /// # Errors
    /// A file that is not a LoRA adapter; an unsupported feature, by name; an adapter of another architecture; tensors that the model
    /// has no place for; shapes that do not fit.
    pub fn open(path: &Path, model: &Model, base: &Checkpoint) -> Result<Adapter, Error> {
        let is_folder = path.join(PEFT_CONFIG).exists();
        let checkpoint = match is_folder {
            true => Checkpoint::open(&path.join(peft::WEIGHTS))?,
            false => Checkpoint::open(path)?,
        };
        let file = match checkpoint.source() {
            Source::Gguf => gguf::read(&checkpoint, arch::by_name(model.config.family))?,
            Source::HuggingFace => {
                let dir = if is_folder { Some(path) } else { path.parent() };
                peft::read(&checkpoint, dir.unwrap_or(path))?
            }
        };
        file.fit(model, base)
    }

    /// Bytes of its matrices in memory.
    pub fn size_bytes(&self) -> usize {
        let n_elems = |product: &LowRank| product.a.len() + product.b.len();
        self.products.iter().map(n_elems).sum::<usize>() * size_of::<f32>()
    }
}

impl<'f> AdapterFile<'f> {
    fn error(&self, problem: String) -> Error {
        Error::Adapter {
            file: self.name.to_owned(),
            problem,
        }
    }

    /// Finds the weights that the halves belong to.
    fn fit(mut self, model: &Model, base: &Checkpoint) -> Result<Adapter, Error> {
        let family = arch::by_name(model.config.family);
        let catalog = Catalog::of(base);
        let weights = weights_of(&model.config, &catalog)?;
        let mut products = Vec::new();
        for tensor in layout(&model.config, self.convention, 0..model.config.n_layers) {
            let Some((name, halves)) = self.take(family, tensor.name) else {
                continue;
            };
            self.check_shape(&name, &halves, &tensor)?;
            for used in &tensor.uses {
                let weight = weights.get(&used.weight);
                let id =
                    weight.and_then(|weight| model.graph.weights.iter().position(|w| w == weight));
                let id = id
                    .map(WeightId)
                    .filter(|id| takes_adapters(&model.graph, *id));
                let Some(id) = id.filter(|_| is_plain(tensor.name, &model.config)) else {
                    return Err(self.error(format!(
                        "it changes `{name}`, and adapters are taken for matrices of attention and feed-forward only, not for \
                         embeddings, the head, experts or parts of recurrent layers; train one without it"
                    )));
                };
                let order = self.row_order(model, catalog.layout(), used.weight);
                let product = self.product(&name, &halves, (id, used, order))?;
                let factor = factor_behind(&model.graph, id, base);
                let scale = product.scale / factor;
                products.push(LowRank { scale, ..product });
            }
        }
        if let Some(name) = self.halves.keys().next() {
            return Err(self.error(format!(
                "it changes `{name}`, which a {} model has not: it was made for another architecture, or for more layers",
                family.name
            )));
        }
        if products.is_empty() {
            return Err(self.error("it has no LoRA tensors".to_owned()));
        }
        let file = self.name.to_owned();
        Ok(Adapter { file, products })
    }

    /// The halves for a tensor of the layout, under whichever name they have.
    fn take(&mut self, family: &Family, tensor: TensorName) -> Option<(String, Halves<'f>)> {
        if tensor.part != ParameterKind::Weight {
            return None;
        }
        let mut names: Vec<String> = match self.convention {
            WeightConvention::Gguf => vec![tensor.gguf()],
            WeightConvention::HuggingFace | WeightConvention::Q4nx => {
                let prefixes = HF_PREFIXES.iter();
                let spelled = prefixes.filter_map(|prefix| tensor.hf(prefix, family.hf_names()));
                spelled.collect()
            }
        };
        names.retain(|name| self.halves.contains_key(name));
        let name = names.into_iter().next()?;
        self.halves.remove_entry(&name)
    }

    fn check_shape(
        &self,
        name: &str,
        halves: &Halves<'_>,
        tensor: &TensorLayout,
    ) -> Result<(), Error> {
        let (a, b) = (&halves.a.info.shape, &halves.b.info.shape);
        let fits = match (&a[..], &b[..], &tensor.shape[..]) {
            (&[rank, k], &[n, of_b], &[rows, columns]) => {
                rank > 0 && rank == of_b && k == columns && n == rows
            }
            // A shape with other dimensions is refused, with its name.
            (_, _, shape) => shape.len() != 2,
        };
        match fits {
            true => Ok(()),
            false => Err(self.error(format!(
                "`{}` has shape {a:?} and `{}` {b:?}; for `{name}` of shape {:?} expected [rank, {}] and [{}, rank]",
                halves.a.info.name,
                halves.b.info.name,
                tensor.shape,
                tensor.shape[1],
                tensor.shape[0],
            ))),
        }
    }

    /// Source of each row of a head, if the model has the rows in another order than the adapter.
    fn row_order(
        &self,
        model: &Model,
        layout: WeightConvention,
        weight: TensorName,
    ) -> Option<Vec<usize>> {
        let family = arch::by_name(model.config.family);
        let style = |convention| family.conventions(convention).rope_style;
        let (from, to) = (style(self.convention), style(layout));
        family.permuted_heads(&model.config, weight.role)?;
        let order = match to {
            _ if from == to => return None,
            RopeStyle::Interleaved => RowOrder::Interleave,
            RopeStyle::HalfSplit => RowOrder::SplitHalves,
        };
        let permutation = Permutation {
            head_dim: model.config.head_dim,
            n_rot: model.config.n_rot,
            order,
        };
        Some(permutation.sources())
    }

    /// The product for a weight that is read from a tensor.
    fn product(
        &self,
        name: &str,
        halves: &Halves<'_>,
        (weight, used, order): (WeightId, &TensorUse, Option<Vec<usize>>),
    ) -> Result<LowRank, Error> {
        let rank = halves.a.info.shape[0];
        let (a, b) = (self.numbers(&halves.a)?, self.numbers(&halves.b)?);
        let n = used.shape[0];
        let first = match used.source {
            WeightSource::Whole => 0,
            WeightSource::Rows { first, .. } => first,
            _ => {
                let problem =
                    format!("it changes `{name}`, whose rows stand in another order in the model");
                return Err(self.error(problem));
            }
        };
        let mut b = b[first * rank..(first + n) * rank].to_vec();
        if let Some(order) = order {
            let before = b.clone();
            for (row, out) in b.chunks_exact_mut(rank).enumerate() {
                let (head, within) = (row / order.len(), row % order.len());
                let source = head * order.len() + order[within];
                out.copy_from_slice(&before[source * rank..][..rank]);
            }
        }
        Ok(LowRank {
            weight,
            rank,
            a,
            b,
            scale: halves.scale,
        })
    }

    fn numbers(&self, tensor: &Tensor<'_>) -> Result<Vec<f32>, Error> {
        let mut numbers = vec![0.0; tensor.info.shape.iter().product()];
        let is_read = match tensor.info.tensor_type {
            TensorType::Weights(dtype) => {
                millrace_quant::decode_blocks(dtype, tensor.bytes, &mut numbers).is_ok()
            }
            TensorType::Plain(_) | TensorType::Opaque(_) => false,
        };
        match is_read && numbers.iter().all(|number| number.is_finite()) {
            true => Ok(numbers),
            false => Err(self.error(format!(
                "`{}` of type {} does not hold finite numbers that are decoded",
                tensor.info.name,
                tensor.info.tensor_type.name()
            ))),
        }
    }
}

/// Whether nothing but plain products read the weight.
fn takes_adapters(graph: &Graph, id: WeightId) -> bool {
    let mut used = graph.nodes.iter().flat_map(|node| {
        let uses = node.op.weights().into_iter();
        uses.map(move |used| (&node.op, used.id))
    });
    used.all(|(op, of)| of != id || matches!(op, Op::Linear(linear) if linear.weight == id))
}

/// The factor on products with a weight, which is stored beside it in its file; 1 if there is none.
fn factor_behind(graph: &Graph, id: WeightId, base: &Checkpoint) -> f32 {
    let is_product = |op: &Op| matches!(op, Op::Linear(linear) if linear.weight == id);
    let outputs = graph.nodes.iter().filter(|node| is_product(&node.op));
    let factor = outputs.map(|node| node.output).find_map(|output| {
        let mut readers = graph
            .nodes
            .iter()
            .filter(|node| node.inputs.contains(&output));
        let weight = readers.find_map(|node| match &node.op {
            Op::ScaleByWeight(scale) => Some(&graph.weights[scale.weight.0]),
            _ => None,
        })?;
        let mut number = [1.0];
        let tensor = base.tensor(&weight.name)?;
        millrace_quant::decode_blocks(weight.dtype, tensor.bytes, &mut number).ok()?;
        Some(number[0])
    });
    factor.unwrap_or(1.0)
}

/// Whether a matrix of this role belongs to attention or to the feed-forward and has the same order of rows in all layouts.
/// (Those of queries and keys are treated separately.)
fn is_plain(name: TensorName, config: &ModelConfig) -> bool {
    use WeightRole::*;
    match name.role {
        // Value heads of gated delta nets may have two orders.
        AttnQkv | AttnGate => {
            let stored = arch::by_name(config.family).stored;
            let order = |layout| stored(config, (name, layout)).value_heads;
            order(WeightConvention::Gguf) == order(WeightConvention::HuggingFace)
        }
        AttnQ | AttnK | AttnV | AttnOutput | AttnQA | AttnQB | AttnKvA => true,
        FfnGate | FfnUp | FfnGateUp | FfnDown => true,
        SharedGate | SharedUp | SharedDown | SharedGateUp => true,
        _ => false,
    }
}
