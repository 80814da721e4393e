//! The parts of sentence-transformers behind a model: pooling, dense layers, prompts; in folders and in GGUF files.
//!
//! llama.cpp has a key for pooling and tensors for the dense layers of EmbeddingGemma. The other parts have keys here
//! that it does not read: [`ACTIVATIONS`], [`NORMALIZE`], [`CONFIG`].

use millrace_format::{Checkpoint, Tensor, TensorType};
use millrace_quant::{DType, decode_blocks};
use serde_json::Value;

use crate::Error;

/// Key of the activations behind the dense layers, in their order: `identity` or `tanh`. Without it all are the identity.
pub const ACTIVATIONS: &str = "sentence_transformers.dense.activations";
/// Key of whether a folder normalises vectors to length 1 at the end.
pub const NORMALIZE: &str = "sentence_transformers.normalize";
/// Key of the text of `config_sentence_transformers.json`.
pub const CONFIG: &str = "sentence_transformers.config";

/// Upper bound of the dense layers that are looked for in a GGUF file.
const MAX_DENSE_LAYERS: usize = 16;

/// The name of a dense layer in GGUF files, without `.weight` or `.bias`: llama.cpp's, which counts as folders do, where the
/// model is step 0 and pooling step 1.
pub fn dense_name(index: usize) -> String {
    format!("dense_{}", index + 2)
}

/// A dense layer behind the pooled row: `act(weight · x + bias)`.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseLayer {
    /// `[n, k]`.
    pub weight: Vec<f32>,
    /// `[n]`.
    pub bias: Option<Vec<f32>>,
    /// Elements of its result.
    pub n: usize,
    /// Elements that it takes.
    pub k: usize,
    /// Whether tanh follows; nothing does otherwise.
    pub is_tanh: bool,
    /// Format of the matrix in the file.
    pub dtype: DType,
}

impl DenseLayer {
    /// The layers of a model's files, in their order. `d_model` is the width of the pooled row.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a layer whose width does not fit its input, or whose activation is neither the
    /// identity nor tanh; the errors of opening a folder's files.
    pub fn all_of(checkpoint: &Checkpoint, d_model: usize) -> Result<Vec<DenseLayer>, Error> {
        let layers = match checkpoint.gguf() {
            Some(_) => DenseLayer::all_of_gguf(checkpoint)?,
            None => DenseLayer::all_of_folder(checkpoint)?,
        };
        let mut width = d_model;
        for layer in &layers {
            if layer.k != width {
                let found = format!("{} inputs where {width} come", layer.k);
                return Err(bad(checkpoint.name(), found));
            }
            width = layer.n;
        }
        Ok(layers)
    }

    fn all_of_gguf(checkpoint: &Checkpoint) -> Result<Vec<DenseLayer>, Error> {
        let activations = match checkpoint.gguf() {
            Some(metadata) => metadata.get_str_array(ACTIVATIONS)?.unwrap_or_default(),
            None => &[],
        };
        let mut layers = Vec::new();
        for index in 0..MAX_DENSE_LAYERS {
            let name = dense_name(index);
            // llama.cpp's converter uses this name for the second layer in any case.
            let Some(weight) = checkpoint.tensor(&format!("{name}.weight")) else {
                continue;
            };
            let bias = checkpoint.tensor(&format!("{name}.bias"));
            let is_tanh = match activations.get(layers.len()).map(String::as_str) {
                None | Some("identity") => false,
                Some("tanh") => true,
                Some(other) => {
                    let found = format!("activation {other} (`{ACTIVATIONS}`)");
                    return Err(bad(checkpoint.name(), found));
                }
            };
            let file = checkpoint.name();
            layers.push(DenseLayer::read(file, &weight, bias.as_ref(), is_tanh)?);
        }
        Ok(layers)
    }

    fn all_of_folder(checkpoint: &Checkpoint) -> Result<Vec<DenseLayer>, Error> {
        let modules = checkpoint.hf().into_iter().flat_map(|files| &files.dense);
        let read = |module: &millrace_format::hf::DenseModule| {
            let file = Checkpoint::open(&module.weights)?;
            let missing = || bad(file.name(), "no linear.weight".to_owned());
            let weight = file.tensor("linear.weight").ok_or_else(missing)?;
            let bias = file.tensor("linear.bias");
            let is_tanh = is_tanh(&module.config)
                .map_err(|found| bad(checkpoint.name(), format!("activation {found}")))?;
            DenseLayer::read(file.name(), &weight, bias.as_ref(), is_tanh)
        };
        modules.map(read).collect()
    }

    fn read(
        file: &str,
        weight: &Tensor<'_>,
        bias: Option<&Tensor<'_>>,
        is_tanh: bool,
    ) -> Result<DenseLayer, Error> {
        let &[n, k] = &weight.info.shape[..] else {
            let found = format!("{} of {:?}", weight.info.name, weight.info.shape);
            return Err(bad(file, found));
        };
        let (weight, dtype) = numbers(file, weight, n * k)?;
        let bias = bias.map(|bias| numbers(file, bias, n)).transpose()?;
        Ok(DenseLayer {
            weight,
            bias: bias.map(|(bias, _)| bias),
            n,
            k,
            is_tanh,
            dtype,
        })
    }

    /// The layer's value of `x`, of `k` elements: `n` elements.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.weight.chunks_exact(self.k).enumerate();
        let sum = |(i, row): (usize, &[f32])| {
            let dot: f64 = row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
            dot + self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[i]))
        };
        let sums = rows.map(sum);
        match self.is_tanh {
            true => sums.map(f64::tanh).collect(),
            false => sums.collect(),
        }
    }
}

fn bad(file: &str, found: String) -> Error {
    Error::Unsupported {
        file: file.into(),
        feature: format!("a dense layer behind the model with {found}"),
        supported: "a matrix that takes the rows before it, of activation Identity or Tanh".into(),
    }
}

/// sentence-transformers names a class of torch. Any other name is returned as the error.
fn is_tanh(config: &Value) -> Result<bool, String> {
    let name = config["activation_function"].as_str();
    // Its own default.
    let name = name.unwrap_or("torch.nn.modules.activation.Tanh");
    match name.rsplit('.').next() {
        Some("Identity") => Ok(false),
        Some("Tanh") => Ok(true),
        _ => Err(name.to_owned()),
    }
}

fn numbers(file: &str, tensor: &Tensor<'_>, n: usize) -> Result<(Vec<f32>, DType), Error> {
    let name = &tensor.info.name;
    let TensorType::Weights(dtype) = tensor.info.tensor_type else {
        let found = tensor.info.tensor_type.name();
        return Err(bad(file, format!("{name} of type {found}")));
    };
    if tensor.info.shape.iter().product::<usize>() != n {
        return Err(bad(file, format!("{name} of {:?}", tensor.info.shape)));
    }
    let mut out = vec![0.0; n];
    decode_blocks(dtype, tensor.bytes, &mut out)
        .map_err(|error| bad(file, format!("{name}: {error}")))?;
    Ok((out, dtype))
}

/// The contents of `config_sentence_transformers.json`: a folder's, or those that a GGUF file carries.
///
/// # Errors
/// [`Error::Format`] if the key is not text; [`Error::BadValue`] if the text is not JSON.
pub fn config_of(checkpoint: &Checkpoint) -> Result<Option<Value>, Error> {
    let Some(metadata) = checkpoint.gguf() else {
        let files = checkpoint.hf();
        return Ok(files.and_then(|files| files.sentence_transformers.clone()));
    };
    let Some(text) = metadata.get_str(CONFIG)? else {
        return Ok(None);
    };
    let value = serde_json::from_str(text).map_err(|error| Error::BadValue {
        file: checkpoint.name().into(),
        key: CONFIG.into(),
        found: format!("a text that is no JSON ({error})"),
        expected: "the contents of a config_sentence_transformers.json".into(),
    })?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::{DenseLayer, is_tanh};
    use millrace_quant::DType;
    use serde_json::json;

    /// Two rows of three columns, by hand: 1·1 + 2·0.5 - 1·2 = 0 and 0·1 + 4·0.5 + 1·2 = 4.
    #[test]
    fn a_layer_is_a_product_a_bias_and_an_activation() {
        let plain = DenseLayer {
            weight: vec![1.0, 2.0, -1.0, 0.0, 4.0, 1.0],
            bias: None,
            n: 2,
            k: 3,
            is_tanh: false,
            dtype: DType::F32,
        };
        let x = [1.0, 0.5, 2.0];
        assert_eq!(plain.apply(&x), [0.0, 4.0]);
        let more = DenseLayer {
            bias: Some(vec![0.25, -3.5]),
            is_tanh: true,
            ..plain
        };
        assert_eq!(more.apply(&x), [0.25f64.tanh(), 0.5f64.tanh()]);
    }

    #[test]
    fn activations_are_classes_of_torch() {
        let named = |name: &str| is_tanh(&json!({ "activation_function": name }));
        assert_eq!(named("torch.nn.modules.linear.Identity"), Ok(false));
        assert_eq!(named("torch.nn.modules.activation.Tanh"), Ok(true));
        assert_eq!(is_tanh(&json!({})), Ok(true));
        let error = named("torch.nn.modules.activation.GELU").unwrap_err();
        assert!(error.contains("GELU"), "{error}");
    }
}
