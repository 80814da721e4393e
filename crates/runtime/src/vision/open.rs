//! Finding a tower and reading what is small of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_format::{Checkpoint, Source};
use millrace_graph::Weight;
use millrace_model::vision::{LayerNorm, VisionLayer};
use millrace_model::{Error as ModelError, VisionModel};
use millrace_picture::{Filter, Preprocess};
use millrace_quant as quant;
use serde_json::Value;

use super::{LayerVectors, TowerFile, Vectors, VisionTower};
use crate::{Error, LoadedModel};

/// The text of the token that stands for a row of a picture, and its id in the published models.
const PLACEHOLDER: (&str, u32) = ("<image_soft_token>", 262_144);

impl VisionTower {
    /// The tower of a model: in the file `mmproj` if one is named, else in the model's own files, else
    /// in the one file called `mmproj….gguf` that lies beside a GGUF model.
    ///
    /// # Errors
    /// [`Error::NoVision`]; a tower that is not supported, not whole, or another model's; several
    /// `mmproj` files.
    pub fn open(model: &Arc<LoadedModel>, mmproj: Option<&Path>) -> Result<VisionTower, Error> {
        let (file, tower) = match mmproj {
            Some(path) => own(model, path)?,
            None => match VisionModel::of(model.checkpoint())? {
                Some(tower) => (TowerFile::Model(Arc::clone(model)), tower),
                None => own(model, &beside(model)?)?,
            },
        };
        let d_model = model.model().config.d_model;
        if tower.config.d_text != d_model {
            return Err(Error::OtherTower {
                tower: file.checkpoint().name().to_owned(),
                model: model.name().to_owned(),
                found: tower.config.d_text,
                expected: d_model,
            });
        }
        let checkpoint = file.checkpoint();
        Ok(VisionTower {
            vectors: vectors(checkpoint, &tower)?,
            projection: transposed(checkpoint, &tower.projection),
            preprocess: preprocess(checkpoint, tower.config.image_size)?,
            placeholder: placeholder(model),
            model: tower,
            file,
        })
    }
}

fn no_vision(model: &LoadedModel) -> Error {
    Error::NoVision {
        model: model.name().to_owned(),
    }
}

fn own(model: &LoadedModel, path: &Path) -> Result<(TowerFile, VisionModel), Error> {
    let checkpoint = Checkpoint::open(path)?;
    let tower = VisionModel::of(&checkpoint)?.ok_or_else(|| no_vision(model))?;
    Ok((TowerFile::Own(Box::new(checkpoint)), tower))
}

/// The `mmproj` file in the folder of a GGUF model.
fn beside(model: &LoadedModel) -> Result<PathBuf, Error> {
    let checkpoint = model.checkpoint();
    // A built-in model has no folder, and a tower in some folder is no other family's.
    let is_candidate = model.model().config.family == "gemma3";
    let file = checkpoint.files().first();
    let file = file.filter(|file| is_candidate && file.is_file());
    let folder = file.and_then(|file| file.parent());
    let (Some(folder), Source::Gguf) = (folder, checkpoint.source()) else {
        return Err(no_vision(model));
    };
    let folder = if folder == Path::new("") {
        Path::new(".")
    } else {
        folder
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if millrace_format::is_mmproj(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    found.sort();
    // The one that is named after the model, before any other.
    let own = file.and_then(|file| file.file_name()).map(|name| {
        let name = format!("mmproj-{}", name.to_string_lossy());
        folder.join(name)
    });
    if let Some(own) = own.filter(|own| found.contains(own)) {
        return Ok(own);
    }
    match found.as_slice() {
        [] => Err(no_vision(model)),
        [path] => Ok(path.clone()),
        many => Err(Error::BadOption {
            option: "mmproj",
            found: format!(
                "not given, and {} such files lie beside the model",
                many.len()
            ),
            expected: "the one to take",
        }),
    }
}

/// The id of the token by the model's own configuration, by its vocabulary, or as published.
fn placeholder(model: &LoadedModel) -> u32 {
    let files = model.checkpoint().hf();
    let config = files.and_then(|files| files.config.as_ref());
    let configured = config.and_then(|config| {
        let key = ["image_token_index", "image_token_id"];
        key.iter().find_map(|key| config[*key].as_u64())
    });
    let tokenizer = || model.tokenizer().ok()?.id_of(PLACEHOLDER.0);
    let configured = configured.and_then(|id| u32::try_from(id).ok());
    configured.or_else(tokenizer).unwrap_or(PLACEHOLDER.1)
}

fn decode(checkpoint: &Checkpoint, weight: &Weight) -> Result<Vec<f32>, Error> {
    let tensor = checkpoint.tensor(&weight.name);
    let bytes = tensor
        .expect("the tower was built from this checkpoint's tensors")
        .bytes;
    let mut out = vec![0.0; weight.n * weight.k];
    quant::decode_blocks(weight.dtype, bytes, &mut out)?;
    Ok(out)
}

fn vectors(checkpoint: &Checkpoint, tower: &VisionModel) -> Result<Vectors, Error> {
    let norm = |norm: &LayerNorm| {
        let [weight, bias] = [&norm.weight, &norm.bias].map(|weight| decode(checkpoint, weight));
        Ok::<_, Error>([weight?, bias?])
    };
    let layer = |layer: &VisionLayer| {
        let bias = |i: usize| decode(checkpoint, &layer.qkv[i].bias);
        Ok(LayerVectors {
            norm1: norm(&layer.norm1)?,
            qkv_bias: [bias(0)?, bias(1)?, bias(2)?],
            out_bias: decode(checkpoint, &layer.out.bias)?,
            norm2: norm(&layer.norm2)?,
            up_bias: decode(checkpoint, &layer.up.bias)?,
            down_bias: decode(checkpoint, &layer.down.bias)?,
        })
    };
    Ok(Vectors {
        patches_bias: decode(checkpoint, &tower.patches.bias)?,
        positions: decode(checkpoint, &tower.positions)?,
        layers: tower
            .layers
            .iter()
            .map(layer)
            .collect::<Result<_, Error>>()?,
        norm: norm(&tower.norm)?,
        pooled_norm: decode(checkpoint, &tower.pooled_norm)?,
    })
}

/// A matrix of plain numbers with rows and columns exchanged.
fn transposed(checkpoint: &Checkpoint, weight: &Weight) -> Vec<u8> {
    let tensor = checkpoint.tensor(&weight.name);
    let bytes = tensor
        .expect("the tower was built from this checkpoint's tensors")
        .bytes;
    let elem = bytes.len() / (weight.n * weight.k);
    let mut out = Vec::with_capacity(bytes.len());
    for column in 0..weight.k {
        for row in 0..weight.n {
            let at = (row * weight.k + column) * elem;
            out.extend_from_slice(&bytes[at..at + elem]);
        }
    }
    out
}

/// What the files say of preprocessing, on top of what SigLIP towers usually want.
fn preprocess(checkpoint: &Checkpoint, size: usize) -> Result<Preprocess, Error> {
    let mut preprocess = Preprocess::siglip(size);
    let file = checkpoint.name();
    if let Some(metadata) = checkpoint.gguf() {
        for (key, channels) in [
            ("clip.vision.image_mean", &mut preprocess.mean),
            ("clip.vision.image_std", &mut preprocess.std),
        ] {
            if let Some(values) = metadata.get_f32_array(key)? {
                *channels = three(file, key, &values)?;
            }
        }
    }
    let files = checkpoint.hf();
    if let Some(config) = files.and_then(|files| files.preprocessor_config.as_ref()) {
        read_config(file, config, &mut preprocess)?;
    }
    if preprocess.std.contains(&0.0) {
        return Err(bad(file, "image_std", "0", "another number than 0").into());
    }
    Ok(preprocess)
}

/// Reads a `preprocessor_config.json`.
fn read_config(file: &str, config: &Value, preprocess: &mut Preprocess) -> Result<(), Error> {
    let size = &config["size"];
    for side in ["height", "width"] {
        if let Some(found) = size[side].as_u64()
            && found != preprocess.size as u64
        {
            let expected = format!("the tower's {}", preprocess.size);
            return Err(bad(file, "size", &found.to_string(), &expected).into());
        }
    }
    for key in ["do_resize", "do_rescale", "do_normalize"] {
        if config[key] == Value::Bool(false) {
            return Err(bad(file, key, "false", "true").into());
        }
    }
    match config["resample"].as_u64() {
        None | Some(2) => {}
        Some(3) => preprocess.filter = Filter::Bicubic,
        Some(other) => {
            let expected = "2 (bilinear) or 3 (bicubic)";
            return Err(bad(file, "resample", &other.to_string(), expected).into());
        }
    }
    if let Some(factor) = config["rescale_factor"].as_f64() {
        preprocess.rescale = factor as f32;
    }
    for (key, channels) in [
        ("image_mean", &mut preprocess.mean),
        ("image_std", &mut preprocess.std),
    ] {
        if let Some(list) = config[key].as_array() {
            let values: Vec<f32> = list
                .iter()
                .filter_map(|value| value.as_f64().map(|value| value as f32))
                .collect();
            *channels = three(file, key, &values)?;
        }
    }
    Ok(())
}

fn three(file: &str, key: &str, values: &[f32]) -> Result<[f32; 3], Error> {
    let finite = values.iter().all(|value| value.is_finite());
    let values: Option<[f32; 3]> = values.try_into().ok().filter(|_| finite);
    values.ok_or_else(|| bad(file, key, "something else", "three numbers").into())
}

fn bad(file: &str, key: &str, found: &str, expected: &str) -> ModelError {
    ModelError::BadValue {
        file: file.into(),
        key: key.into(),
        found: found.into(),
        expected: expected.into(),
    }
}
