//! Layers behind the pooled row, as sentence-transformers folders and GGUF files of EmbeddingGemma have them.

use millrace_format::{Checkpoint, Tensor, TensorType};
use serde_json::Value;

use crate::{Error, LoadedModel};

/// `act(weight · x + bias)`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DenseLayer {
    weight: Vec<f32>,
    bias: Vec<f32>,
    k: usize,
    is_tanh: bool,
}

/// Names of such layers in GGUF files, in their order.
const GGUF_NAMES: [&str; 2] = ["dense_2", "dense_3"];

/// The layers of a model's files, in their order.
pub(super) fn layers(model: &LoadedModel) -> Result<Vec<DenseLayer>, Error> {
    let checkpoint = model.checkpoint();
    let mut layers = Vec::new();
    if checkpoint.gguf().is_some() {
        for name in GGUF_NAMES {
            if let Some(weight) = checkpoint.tensor(&format!("{name}.weight")) {
                let bias = checkpoint.tensor(&format!("{name}.bias"));
                layers.push(layer(&weight, bias.as_ref(), false)?);
            }
        }
    }
    for module in checkpoint.hf().into_iter().flat_map(|files| &files.dense) {
        let file = Checkpoint::open(&module.weights)?;
        let missing = || bad(format!("{} without linear.weight", file.name()));
        let weight = file.tensor("linear.weight").ok_or_else(missing)?;
        let bias = file.tensor("linear.bias");
        layers.push(layer(&weight, bias.as_ref(), is_tanh(&module.config)?)?);
    }
    let mut width = model.model().config.d_model;
    for layer in &layers {
        if layer.k != width {
            return Err(bad(format!("{} inputs where {width} come", layer.k)));
        }
        width = layer.bias.len();
    }
    Ok(layers)
}

fn bad(found: String) -> Error {
    Error::BadOption {
        option: "a dense layer behind the model",
        found,
        expected: "a matrix that takes what comes, of activation Identity or Tanh",
    }
}

/// sentence-transformers names a class of torch.
fn is_tanh(config: &Value) -> Result<bool, Error> {
    let name = config["activation_function"].as_str();
    // Its own default.
    let name = name.unwrap_or("torch.nn.modules.activation.Tanh");
    match name.rsplit('.').next() {
        Some("Identity") => Ok(false),
        Some("Tanh") => Ok(true),
        _ => Err(bad(format!("activation {name}"))),
    }
}

fn layer(
    weight: &Tensor<'_>,
    bias: Option<&Tensor<'_>>,
    is_tanh: bool,
) -> Result<DenseLayer, Error> {
    let &[n, k] = &weight.info.shape[..] else {
        return Err(bad(format!(
            "{} of {:?}",
            weight.info.name, weight.info.shape
        )));
    };
    let bias = match bias {
        Some(bias) => numbers(bias, n)?,
        None => vec![0.0; n],
    };
    Ok(DenseLayer {
        weight: numbers(weight, n * k)?,
        bias,
        k,
        is_tanh,
    })
}

fn numbers(tensor: &Tensor<'_>, n: usize) -> Result<Vec<f32>, Error> {
    let TensorType::Weights(dtype) = tensor.info.tensor_type else {
        let found = tensor.info.tensor_type.name();
        return Err(bad(format!("{} of type {found}", tensor.info.name)));
    };
    if tensor.info.shape.iter().product::<usize>() != n {
        return Err(bad(format!(
            "{} of {:?}",
            tensor.info.name, tensor.info.shape
        )));
    }
    let mut out = vec![0.0; n];
    millrace_quant::decode_blocks(dtype, tensor.bytes, &mut out)?;
    Ok(out)
}

impl DenseLayer {
    /// Elements of its result.
    pub(super) fn n(&self) -> usize {
        self.bias.len()
    }

    pub(super) fn apply(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.weight.chunks_exact(self.k).zip(&self.bias);
        let sum = |(row, bias): (&[f32], &f32)| {
            let dot: f64 = row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
            dot + f64::from(*bias)
        };
        let sums = rows.map(sum);
        match self.is_tanh {
            true => sums.map(f64::tanh).collect(),
            false => sums.collect(),
        }
    }
}
