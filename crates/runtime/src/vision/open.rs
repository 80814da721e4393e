//! Finding a tower and reading what is small of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_format::{Checkpoint, Source};
use millrace_graph::Weight;
use millrace_kernels::RopeTable;
use millrace_model::vision::{
    BiasedLinear, ImageMarks, LayerNorm, Merger, Projector, VisionLayer, reads_for,
};
use millrace_model::{VisionConfig, VisionModel};
use millrace_quant as quant;

use super::prepare::preprocess;
use super::{LayerVectors, MergerVectors, OwnMatrices, TowerFile, Vectors, VisionTower, bytes};
use crate::{Error, LoadedModel};

impl VisionTower {
    /// The tower of a model: in the file `mmproj` if one is named, else in the model's own files, else
    /// in the one file called `mmproj….gguf` that lies beside a GGUF model.
    ///
    /// # Errors
    /// [`Error::NoVision`]; a tower that is not supported, not whole, or another model's; several
    /// `mmproj` files.
    pub fn open(model: &Arc<LoadedModel>, mmproj: Option<&Path>) -> Result<VisionTower, Error> {
        let (file, mut tower) = match mmproj {
            Some(path) => own(model, path)?,
            None => match VisionModel::of(model.checkpoint())? {
                Some(tower) => (TowerFile::Model(Arc::clone(model)), tower),
                None => own(model, &beside(model)?)?,
            },
        };
        let text = &model.model().config;
        let families = tower.config.text_families();
        if !families.contains(&text.family) {
            return Err(Error::ForeignTower {
                tower: file.checkpoint().name().to_owned(),
                model: model.name().to_owned(),
                found: text.family.to_owned(),
                expected: families.join(", "),
            });
        }
        let d_model = text.d_model;
        if tower.config.d_text != d_model {
            return Err(Error::OtherTower {
                tower: file.checkpoint().name().to_owned(),
                model: model.name().to_owned(),
                found: tower.config.d_text,
                expected: d_model,
            });
        }
        let checkpoint = file.checkpoint();
        let preprocess = preprocess(checkpoint, &mut tower.config)?;
        Ok(VisionTower {
            vectors: vectors(checkpoint, &tower)?,
            own: OwnMatrices {
                projection: match &tower.projector {
                    Projector::Pooled(of) => transposed(checkpoint, &of.projection),
                    Projector::Merged(_) => Vec::new(),
                },
                patches: summed_frames(checkpoint, &tower)?,
            },
            rotary: rotary(&tower.config),
            preprocess,
            placeholder: placeholder(model, tower.config.marks()),
            model: tower,
            file,
        })
    }
}

/// Tables of rows and of columns: the first half of a head's pairs turns by rows, the second by columns, with the same frequencies.
fn rotary(config: &VisionConfig) -> Option<[RopeTable; 2]> {
    let theta = config.grid.as_ref()?.rope_theta;
    let n = config.head_dim() / 4;
    let frequency = |i: usize| 1.0 / theta.powf(i as f32 / n as f32);
    let frequencies: Vec<f32> = (0..n).map(frequency).collect();
    let still = vec![0.0; n];
    let table = |parts: [&[f32]; 2]| RopeTable::new(false, parts.concat(), 1.0);
    Some([table([&frequencies, &still]), table([&still, &frequencies])])
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
    let is_candidate = reads_for(model.model().config.family);
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
fn placeholder(model: &LoadedModel, marks: &ImageMarks) -> u32 {
    let files = model.checkpoint().hf();
    let config = files.and_then(|files| files.config.as_ref());
    let configured = config.and_then(|config| {
        let key = ["image_token_index", "image_token_id"];
        key.iter().find_map(|key| config[*key].as_u64())
    });
    let tokenizer = || model.tokenizer().ok()?.id_of(marks.placeholder);
    let configured = configured.and_then(|id| u32::try_from(id).ok());
    configured
        .or_else(tokenizer)
        .unwrap_or(marks.placeholder_id)
}

fn decode(checkpoint: &Checkpoint, weight: &Weight) -> Result<Vec<f32>, Error> {
    let mut out = vec![0.0; weight.n * weight.k];
    quant::decode_blocks(weight.dtype, bytes(checkpoint, weight), &mut out)?;
    Ok(out)
}

/// The same of a weight that may be none: it is empty then.
fn decode_some(checkpoint: &Checkpoint, weight: Option<&Weight>) -> Result<Vec<f32>, Error> {
    weight.map_or(Ok(Vec::new()), |weight| decode(checkpoint, weight))
}

fn norm(checkpoint: &Checkpoint, norm: &LayerNorm) -> Result<[Vec<f32>; 2], Error> {
    let bias = decode_some(checkpoint, norm.bias.as_ref())?;
    Ok([decode(checkpoint, &norm.weight)?, bias])
}

fn bias(checkpoint: &Checkpoint, linear: &BiasedLinear) -> Result<Vec<f32>, Error> {
    decode_some(checkpoint, linear.bias.as_ref())
}

fn merger(checkpoint: &Checkpoint, merger: &Merger) -> Result<MergerVectors, Error> {
    Ok(MergerVectors {
        norm: norm(checkpoint, &merger.norm)?,
        up_bias: bias(checkpoint, &merger.up)?,
        down_bias: bias(checkpoint, &merger.down)?,
    })
}

/// The patch matrix over one of two equal frames: the sum of theirs, in f32. Empty where patches have one frame.
fn summed_frames(checkpoint: &Checkpoint, tower: &VisionModel) -> Result<Vec<u8>, Error> {
    let (config, weight) = (&tower.config, &tower.patches.weight);
    let numbers: Vec<f32> = match &tower.second_frame {
        Some(second) => {
            let mut sums = decode(checkpoint, weight)?;
            let second = decode(checkpoint, second)?;
            sums.iter_mut().zip(second).for_each(|(sum, x)| *sum += x);
            sums
        }
        None if weight.k == config.patch_elems() => return Ok(Vec::new()),
        None => {
            // Both frames of a channel lie one behind the other.
            let n = config.patch_size * config.patch_size;
            let frames = decode(checkpoint, weight)?;
            let sums = frames.chunks_exact(2 * n).flat_map(|frames| {
                let (first, second) = frames.split_at(n);
                first.iter().zip(second).map(|(a, b)| a + b)
            });
            sums.collect()
        }
    };
    Ok(numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
}

fn vectors(checkpoint: &Checkpoint, tower: &VisionModel) -> Result<Vectors, Error> {
    let layer = |layer: &VisionLayer| {
        let [q, k, v] = layer.qkv.each_ref().map(|linear| bias(checkpoint, linear));
        let gate = layer.gate.as_ref().and_then(|gate| gate.bias.as_ref());
        Ok(LayerVectors {
            norm1: norm(checkpoint, &layer.norm1)?,
            qkv_bias: [q?, k?, v?],
            out_bias: bias(checkpoint, &layer.out)?,
            norm2: norm(checkpoint, &layer.norm2)?,
            gate_bias: decode_some(checkpoint, gate)?,
            up_bias: bias(checkpoint, &layer.up)?,
            down_bias: bias(checkpoint, &layer.down)?,
        })
    };
    let deepstack = tower.deepstack.iter();
    Ok(Vectors {
        patches_bias: bias(checkpoint, &tower.patches)?,
        positions: decode_some(checkpoint, tower.positions.as_ref())?,
        layers: tower
            .layers
            .iter()
            .map(layer)
            .collect::<Result<_, Error>>()?,
        norm: match &tower.norm {
            Some(last) => norm(checkpoint, last)?,
            None => [const { Vec::new() }; 2],
        },
        pooled_norm: match &tower.projector {
            Projector::Pooled(of) => decode(checkpoint, &of.norm)?,
            Projector::Merged(_) => Vec::new(),
        },
        merger: match &tower.projector {
            Projector::Pooled(_) => MergerVectors::default(),
            Projector::Merged(of) => merger(checkpoint, of)?,
        },
        deepstack: deepstack
            .map(|of| merger(checkpoint, of))
            .collect::<Result<_, _>>()?,
    })
}

/// A matrix of plain numbers with rows and columns exchanged.
fn transposed(checkpoint: &Checkpoint, weight: &Weight) -> Vec<u8> {
    let bytes = bytes(checkpoint, weight);
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
