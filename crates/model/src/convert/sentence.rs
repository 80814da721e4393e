//! Parts behind an encoder in a conversion: pooling, dense layers, prompts, heads that rank.

use std::io::Cursor;
use std::path::Path;

use millrace_format::gguf::{GgufValue, Metadata};
use millrace_format::{Checkpoint, TensorSpec, TensorType, safetensors};
use millrace_quant::{DType, decode_rows};
use serde_json::{Value, json};

use super::mapper::planned;
use super::plan::{PlannedTensor, TensorOrigin};
use super::side::{Contents, SideOutput};
use super::{Error, Transform};
use crate::ModelConfig;
use crate::config::EncoderPooling;
use crate::names::{TensorName, WeightRole};
use crate::ranking::{self, ClassifierNames, GGUF_DENSE, GGUF_NORM, GGUF_OUT, OUTPUT_LABELS};
use crate::sentence::{self, DenseLayer};

/// Files beside the weights that only sentence-transformers reads.
pub(super) const FILES: [&str; 3] = [
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
];

/// The pooling step's folder.
const POOLING_FOLDER: &str = "1_Pooling";

/// Least cosine at which two rows count as rows of one matrix, however coarsely each is stored.
const MIN_COSINE: f64 = 0.9;

/// Puts the parts behind a folder's model into a GGUF file.
pub(super) fn put_into_gguf(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    tensors: &mut Vec<PlannedTensor>,
    side: &mut SideOutput,
) -> Result<(), Error> {
    let Some(metadata) = side.metadata.as_mut() else {
        return Ok(());
    };
    let architecture = metadata.get_str("general.architecture")?;
    let architecture = architecture.unwrap_or_default().to_owned();
    let mut put = GgufExtras {
        checkpoint,
        config,
        architecture,
        metadata,
        tensors,
        notes: &mut side.notes,
    };
    put.pooling();
    put.dense_layers()?;
    put.texts()?;
    match config.encoder {
        Some(_) => put.classifier(),
        None => put.judge(),
    }
}

/// Entries of a GGUF file beside the model.
struct GgufExtras<'a> {
    checkpoint: &'a Checkpoint,
    config: &'a ModelConfig,
    architecture: String,
    metadata: &'a mut Metadata,
    tensors: &'a mut Vec<PlannedTensor>,
    notes: &'a mut Vec<String>,
}

impl GgufExtras<'_> {
    fn set(&mut self, key: &str, value: impl Into<GgufValue>) {
        let key = format!("{}.{key}", self.architecture);
        self.metadata.insert(key, value);
    }

    /// A decoder may be pooled as well: Qwen3-Embedding takes the last token's row.
    fn pooling(&mut self) {
        let files = self.checkpoint.hf();
        let Some(config) = files.and_then(|files| files.pooling.as_ref()) else {
            return;
        };
        match EncoderPooling::of_folder(config) {
            Ok(pooling) => self.set("pooling_type", pooling_number(pooling)),
            Err(found) => self.notes.push(format!(
                "the folder pools by {found}, for which GGUF has no word: the result says nothing of pooling"
            )),
        }
    }

    fn dense_layers(&mut self) -> Result<(), Error> {
        let layers = DenseLayer::all_of(self.checkpoint, self.config.d_model)?;
        let is_plain = |layer: &DenseLayer| layer.bias.is_none() && !layer.is_tanh;
        let is_known = matches!(&*self.architecture, "gemma-embedding" | "gemma3");
        let are_plain = is_known && layers.len() <= 2 && layers.iter().all(is_plain);
        let is_read_there = layers.is_empty() || are_plain;
        if !is_read_there {
            self.notes.push(format!(
                "llama.cpp does not open the result: it knows no dense layers like these behind {}",
                self.architecture
            ));
        }
        if layers.iter().any(|layer| layer.is_tanh) {
            let names = layers.iter().map(|layer| match layer.is_tanh {
                true => "tanh".to_owned(),
                false => "identity".to_owned(),
            });
            let names: Vec<String> = names.collect();
            self.metadata.insert(sentence::ACTIVATIONS, names);
        }
        for (index, layer) in layers.into_iter().enumerate() {
            let name = sentence::dense_name(index);
            let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            self.set(&format!("{name}_feat_in"), size(layer.k));
            self.set(&format!("{name}_feat_out"), size(layer.n));
            let dtype = match layer.dtype.is_float() {
                true => layer.dtype,
                false => DType::F32,
            };
            self.values(
                format!("{name}.weight"),
                vec![layer.n, layer.k],
                (layer.weight, dtype),
            )?;
            if let Some(bias) = layer.bias {
                self.values(format!("{name}.bias"), vec![layer.n], (bias, DType::F32))?;
            }
        }
        Ok(())
    }

    fn values(
        &mut self,
        name: String,
        shape: Vec<usize>,
        (values, dtype): (Vec<f32>, DType),
    ) -> Result<(), Error> {
        let origin = TensorOrigin::Values(values);
        let tensor_type = TensorType::Weights(dtype);
        let tensor = planned(origin, name, shape, tensor_type, Transform::NONE)?;
        self.tensors.push(tensor);
        Ok(())
    }

    /// Prompts by name, and whether vectors are brought to length 1.
    fn texts(&mut self) -> Result<(), Error> {
        if let Some(config) = sentence::config_of(self.checkpoint)? {
            self.metadata
                .insert(sentence::CONFIG, config.to_string().as_str());
        }
        let modules = self
            .checkpoint
            .hf()
            .and_then(|files| files.modules.as_ref());
        if let Some(modules) = modules {
            let normalizes = modules.iter().any(|module| module.class == "Normalize");
            self.metadata.insert(sentence::NORMALIZE, normalizes);
        }
        Ok(())
    }

    /// The classifier of one label behind an encoder, under llama.cpp's names.
    fn classifier(&mut self) -> Result<(), Error> {
        let Some(names) = ClassifierNames::find(self.checkpoint) else {
            return Ok(());
        };
        let out = self.checkpoint.info(&format!("{}.weight", names.out));
        if out.is_none_or(|out| out.shape[..] != [1, self.config.d_model]) {
            return Ok(());
        }
        let parts = [
            (names.dense.as_deref(), GGUF_DENSE),
            (names.norm.as_deref(), GGUF_NORM),
            (Some(&*names.out), GGUF_OUT),
        ];
        for (source, name) in parts {
            let Some(source) = source else { continue };
            for part in ["weight", "bias"] {
                let source = format!("{source}.{part}");
                let Some(info) = self.checkpoint.info(&source) else {
                    continue;
                };
                let (shape, name) = (info.shape.clone(), format!("{name}.{part}"));
                let (origin, f32) = (
                    TensorOrigin::Tensor(source),
                    TensorType::Weights(DType::F32),
                );
                self.tensors
                    .push(planned(origin, name, shape, f32, Transform::NONE)?);
            }
        }
        let key = format!("{}.pooling_type", self.architecture);
        if self.metadata.get(&key).is_none() {
            self.set("pooling_type", ranking::POOLING_RANK);
        }
        Ok(())
    }

    /// The rows of "yes" and "no" of a judge, as llama.cpp's converter has them.
    fn judge(&mut self) -> Result<(), Error> {
        if self.config.family != "qwen3" || !ranking::is_judge(self.checkpoint)? {
            return Ok(());
        }
        let tokens = self.metadata.get_str_array("tokenizer.ggml.tokens")?;
        let find = |text| tokens?.iter().position(|token| token == text);
        let (Some(yes), Some(no)) = (find("yes"), find("no")) else {
            return Ok(());
        };
        let rows = head_rows(self.checkpoint, [yes, no])?;
        let shape = vec![2, self.config.d_model];
        self.values(format!("{GGUF_OUT}.weight"), shape, (rows, DType::F32))?;
        self.set("pooling_type", ranking::POOLING_RANK);
        self.set(OUTPUT_LABELS, vec!["yes".to_owned(), "no".to_owned()]);
        let named = self.metadata.get_str_array("tokenizer.chat_templates")?;
        let mut named = named.unwrap_or_default().to_vec();
        named.push("rerank".to_owned());
        self.metadata.insert("tokenizer.chat_templates", named);
        let template = ranking::judge_text(ranking::INSTRUCTION, "{query}", "{document}");
        let template = template.concat();
        self.metadata
            .insert("tokenizer.chat_template.rerank", template.as_str());
        Ok(())
    }
}

/// llama.cpp's number for a kind of pooling.
fn pooling_number(pooling: EncoderPooling) -> u32 {
    match pooling {
        EncoderPooling::Mean => 1,
        EncoderPooling::First => 2,
        EncoderPooling::Last => 3,
    }
}

/// Rows of the head of a checkpoint of either layout, or of the table that serves as one.
fn head_rows(checkpoint: &Checkpoint, rows: [usize; 2]) -> Result<Vec<f32>, Error> {
    let names = [WeightRole::Output, WeightRole::TokenEmbedding];
    let gguf = names.map(|role| TensorName::global(role).gguf());
    let [head, table] = gguf;
    let names = [
        &*head,
        "lm_head.weight",
        &*table,
        "model.embed_tokens.weight",
    ];
    let info = names.iter().find_map(|name| checkpoint.info(name));
    let missing = || crate::Error::MissingTensor {
        file: checkpoint.name().into(),
        tensor: "lm_head.weight".into(),
        expected: Vec::new(),
    };
    let info = info.ok_or_else(missing)?;
    rows_of(checkpoint, &info.name, rows)
}

fn rows_of(checkpoint: &Checkpoint, name: &str, rows: [usize; 2]) -> Result<Vec<f32>, Error> {
    let info = checkpoint.require(name)?.info;
    let (TensorType::Weights(dtype), &[n, k]) = (info.tensor_type, &info.shape[..]) else {
        return Err(crate::Error::MissingTensor {
            file: checkpoint.name().into(),
            tensor: name.to_owned(),
            expected: Vec::new(),
        }
        .into());
    };
    let quant = |source| Error::Quant {
        tensor: name.to_owned(),
        source,
    };
    let bytes = checkpoint.read(name)?;
    let mut out = vec![0.0; 2 * k];
    for (row, out) in rows.into_iter().zip(out.chunks_exact_mut(k)) {
        decode_rows(dtype, &bytes, n, k, row..row + 1, out).map_err(quant)?;
    }
    Ok(out)
}

/// Copies a folder's files of sentence-transformers for another one.
pub(super) fn copy(checkpoint: &Checkpoint, folder: &Path, side: &mut SideOutput) {
    let modules = checkpoint.hf().and_then(|files| files.modules.as_deref());
    let paths = modules.unwrap_or_default().iter();
    let mut paths: Vec<&str> = paths.map(|module| &*module.path).collect();
    // Pooling counts without a list too.
    paths.push(POOLING_FOLDER);
    paths.sort_unstable();
    paths.dedup();
    for path in paths.into_iter().filter(|path| !path.is_empty()) {
        for file in ["config.json", "model.safetensors"] {
            let source = folder.join(path).join(file);
            if source.is_file() {
                let name = format!("{path}/{file}");
                side.files.push((name, Contents::Copy(source)));
            }
        }
    }
}

/// Writes the files of sentence-transformers that correspond to a GGUF file's keys and tensors.
pub(super) fn put_into_folder(
    checkpoint: &Checkpoint,
    source: &Metadata,
    d_model: usize,
    side: &mut SideOutput,
) -> Result<(), Error> {
    let architecture = source.get_str("general.architecture")?.unwrap_or_default();
    let pooling = match source.get_u32(&format!("{architecture}.pooling_type"))? {
        Some(1) => Some("pooling_mode_mean_tokens"),
        Some(2) => Some("pooling_mode_cls_token"),
        Some(3) => Some("pooling_mode_lasttoken"),
        _ => None,
    };
    let layers = DenseLayer::all_of(checkpoint, d_model)?;
    let config = sentence::config_of(checkpoint)?;
    if let Some(config) = &config {
        side.put_json("config_sentence_transformers.json", config);
    }
    if pooling.is_none() && layers.is_empty() && config.is_none() {
        return Ok(());
    }
    let mut modules = vec![("Transformer", String::new())];
    if let Some(pooling) = pooling {
        modules.push(("Pooling", POOLING_FOLDER.to_owned()));
        let name = format!("{POOLING_FOLDER}/config.json");
        side.put_json(&name, &pooling_config(pooling, d_model));
    }
    for layer in &layers {
        let folder = format!("{}_Dense", modules.len());
        put_dense(&folder, layer, side)?;
        modules.push(("Dense", folder));
    }
    for index in 0..layers.len() {
        let name = sentence::dense_name(index);
        side.taken
            .extend(["weight", "bias"].map(|part| format!("{name}.{part}")));
    }
    // llama.cpp's files do not record it; llama.cpp itself normalises.
    if source.get_bool(sentence::NORMALIZE)?.unwrap_or(true) {
        modules.push(("Normalize", format!("{}_Normalize", modules.len())));
    }
    let step = |(index, (class, path)): (usize, &(&str, String))| {
        json!({ "idx": index, "name": index.to_string(), "path": path,
            "type": format!("sentence_transformers.models.{class}") })
    };
    let modules: Vec<Value> = modules.iter().enumerate().map(step).collect();
    side.put_json("modules.json", &Value::Array(modules));
    Ok(())
}

fn pooling_config(on: &str, d_model: usize) -> Value {
    let modes = [
        "cls_token",
        "mean_tokens",
        "max_tokens",
        "mean_sqrt_len_tokens",
        "weightedmean_tokens",
        "lasttoken",
    ];
    let mut config = json!({ "word_embedding_dimension": d_model, "include_prompt": true });
    for mode in modes {
        let key = format!("pooling_mode_{mode}");
        config[&key] = json!(key == on);
    }
    config
}

fn put_dense(folder: &str, layer: &DenseLayer, side: &mut SideOutput) -> Result<(), Error> {
    let activation = match layer.is_tanh {
        true => "torch.nn.modules.activation.Tanh",
        false => "torch.nn.modules.linear.Identity",
    };
    let config = json!({ "in_features": layer.k, "out_features": layer.n, "bias": layer.bias.is_some(),
        "activation_function": activation });
    side.put_json(&format!("{folder}/config.json"), &config);
    let mut specs = vec![TensorSpec::new(
        "linear.weight",
        DType::F32,
        &[layer.n, layer.k],
    )];
    if layer.bias.is_some() {
        specs.push(TensorSpec::new("linear.bias", DType::F32, &[layer.n]));
    }
    let name = format!("{folder}/model.safetensors");
    let sink = Cursor::new(Vec::new());
    let mut writer = safetensors::Writer::new(sink, Path::new(&name), &Default::default(), &specs)?;
    let bytes =
        |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_le_bytes()).collect() };
    writer.write("linear.weight", &bytes(&layer.weight))?;
    if let Some(bias) = &layer.bias {
        writer.write("linear.bias", &bytes(bias))?;
    }
    let contents = Contents::Bytes(writer.finish()?.into_inner());
    side.files.push((name, contents));
    Ok(())
}

/// Marks the folder of a judge. A file that has rows of a head in place of the head gives a folder that ranks only where
/// the table of tokens is that head.
pub(super) fn mark_judge(
    checkpoint: &Checkpoint,
    source: &Metadata,
    config: &mut Value,
    side: &mut SideOutput,
) -> Result<(), Error> {
    if config["model_type"] != "qwen3" || !ranking::is_judge(checkpoint)? {
        return Ok(());
    }
    let own = format!("{GGUF_OUT}.weight");
    let tokens = source.get_str_array("tokenizer.ggml.tokens")?;
    let find = |text| tokens?.iter().position(|token| token == text);
    if let (Some(_), Some(yes), Some(no)) = (checkpoint.info(&own), find("yes"), find("no")) {
        let (found, expected) = (
            head_rows(checkpoint, [yes, no])?,
            rows_of(checkpoint, &own, [0, 1])?,
        );
        if cosine(&found, &expected) < MIN_COSINE {
            side.notes.push(
                "the result does not rank: the file has the rows of yes and no in place of a whole head".to_owned(),
            );
            return Ok(());
        }
        side.taken.push(own);
    }
    config[ranking::JUDGE_MARK] = json!(true);
    Ok(())
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
