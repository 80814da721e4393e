//! Finding a vision encoder and reading its small data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_format::{Checkpoint, Source};
use millrace_graph::{Op, Weight};
use millrace_model::vision::{
    BiasedLinear, ImageMarks, InnerNorms, LayerNorm, LineBreak, Merger, PatchColumns, Projector,
    VisionLayer, reads_for,
};
use millrace_model::{VisionConfig, VisionModel};
use millrace_quant as quant;

use super::linear::{Bounds, LinearVectors};
use super::prepare::preprocess;
use super::turn::turns;
use super::{
    InnerVectors, LayerVectors, MergerVectors, OwnMatrices, ProjectorVectors, Vectors,
    VisionEncoder, VisionFile, bytes,
};
use crate::{Error, LoadedModel};

impl VisionEncoder {
    /// The vision encoder of a model: in the file `mmproj` if one is named, otherwise in the model's own files.
    /// If these have none, it is in the one file called `mmproj….gguf` beside a GGUF model.
    ///
    /// # Errors
    /// [`Error::NoVision`]; a vision encoder that is not supported, not complete, or another model's;
    /// several `mmproj` files.
    pub fn open(model: &Arc<LoadedModel>, mmproj: Option<&Path>) -> Result<VisionEncoder, Error> {
        let (file, mut encoder) = match mmproj {
            Some(path) => own(model, path)?,
            None => match VisionModel::of(model.checkpoint())? {
                Some(encoder) => (VisionFile::Model(Arc::clone(model)), encoder),
                None => own(model, &beside(model)?)?,
            },
        };
        let text = &model.model().config;
        let families = encoder.config.text_families();
        if !families.contains(&text.family) {
            return Err(Error::ForeignVisionEncoder {
                encoder: file.checkpoint().name().to_owned(),
                model: model.name().to_owned(),
                found: text.family.to_owned(),
                expected: families.join(", "),
            });
        }
        let d_model = text.d_model;
        if encoder.config.d_text != d_model {
            return Err(Error::OtherVisionEncoder {
                encoder: file.checkpoint().name().to_owned(),
                model: model.name().to_owned(),
                found: encoder.config.d_text,
                expected: d_model,
            });
        }
        let checkpoint = file.checkpoint();
        let preprocess = preprocess(checkpoint, &mut encoder.config)?;
        let line_break = encoder.config.grid.and_then(|grid| grid.line_break);
        Ok(VisionEncoder {
            vectors: vectors(checkpoint, &encoder)?,
            own: OwnMatrices {
                projection: match &encoder.projector {
                    Projector::Pooled(of) => transposed(checkpoint, &of.projection),
                    _ => Vec::new(),
                },
                patches: patch_matrix(checkpoint, &encoder)?,
            },
            turns: turns(&encoder.config),
            sight: text.image_sight(),
            line_break: match line_break {
                Some(token) => embedding(model, token)?,
                None => Vec::new(),
            },
            preprocess,
            placeholder: placeholder(model, encoder.config.marks()),
            model: encoder,
            file,
        })
    }
}

/// The text model's embedding of the token between lines, `[d_text]`.
fn embedding(model: &LoadedModel, line_break: LineBreak) -> Result<Vec<f32>, Error> {
    let graph = &model.model().graph;
    let tokenizer = model.tokenizer().ok();
    let id = tokenizer.map_or(Some(line_break.id), |known| known.id_of(line_break.token));
    let embed = graph.nodes.iter().find_map(|node| match &node.op {
        Op::Embed(embed) => Some(embed),
        _ => None,
    });
    let found = id.zip(embed).filter(|(id, embed)| {
        let n_tokens = graph.weights[embed.table.0].n;
        (*id as usize) < n_tokens
    });
    let (id, embed) = found.ok_or_else(|| Error::BadImage {
        reason: format!("the vocabulary has no {}", line_break.token),
    })?;
    let table = &graph.weights[embed.table.0];
    let (bytes, row) = (model.matrix_bytes(embed.table, 0), id as usize);
    let mut out = vec![0.0; table.k];
    quant::decode_rows(table.dtype, bytes, table.n, table.k, row..row + 1, &mut out)?;
    out.iter_mut().for_each(|x| *x *= embed.scale);
    Ok(out)
}

fn no_vision(model: &LoadedModel) -> Error {
    Error::NoVision {
        model: model.name().to_owned(),
    }
}

fn own(model: &LoadedModel, path: &Path) -> Result<(VisionFile, VisionModel), Error> {
    let checkpoint = Checkpoint::open(path)?;
    let encoder = VisionModel::of(&checkpoint)?.ok_or_else(|| no_vision(model))?;
    Ok((VisionFile::Own(Box::new(checkpoint)), encoder))
}

/// The `mmproj` file in the folder of a GGUF model.
fn beside(model: &LoadedModel) -> Result<PathBuf, Error> {
    let checkpoint = model.checkpoint();
    // A built-in model has no folder, and a vision encoder in some folder must belong to the same family.
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
    // The file named after the model comes first.
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

/// The same for an optional weight: empty if there is none.
fn decode_some(checkpoint: &Checkpoint, weight: Option<&Weight>) -> Result<Vec<f32>, Error> {
    weight.map_or(Ok(Vec::new()), |weight| decode(checkpoint, weight))
}

fn norm(checkpoint: &Checkpoint, norm: &LayerNorm) -> Result<[Vec<f32>; 2], Error> {
    let bias = decode_some(checkpoint, norm.bias.as_ref())?;
    Ok([decode(checkpoint, &norm.weight)?, bias])
}

/// The same for an optional norm: empty if there is none.
fn norm_if(checkpoint: &Checkpoint, found: Option<&LayerNorm>) -> Result<[Vec<f32>; 2], Error> {
    match found {
        Some(found) => norm(checkpoint, found),
        None => Ok([const { Vec::new() }; 2]),
    }
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

/// The patch matrix with columns in the order channel, y, x, in f32; for two equal frames the sum of theirs. Empty if the file's matrix has
/// this form already.
fn patch_matrix(checkpoint: &Checkpoint, encoder: &VisionModel) -> Result<Vec<u8>, Error> {
    let (config, weight) = (&encoder.config, &encoder.patches.weight);
    let is_gguf = checkpoint.source() == Source::Gguf;
    let is_plain = is_gguf || config.patches == PatchColumns::Plain;
    let numbers: Vec<f32> = match &encoder.second_frame {
        Some(second) => {
            let mut sums = decode(checkpoint, weight)?;
            let second = decode(checkpoint, second)?;
            sums.iter_mut().zip(second).for_each(|(sum, x)| *sum += x);
            sums
        }
        None if is_plain => return Ok(Vec::new()),
        None if config.patches == PatchColumns::ChannelsLast => {
            let pixels = decode(checkpoint, weight)?;
            let patches = pixels.chunks_exact(config.patch_elems());
            let by_channel = |patch: &[f32]| -> Vec<f32> {
                let channels = 0..VisionConfig::CHANNELS;
                let of = |c| patch.iter().skip(c).step_by(VisionConfig::CHANNELS);
                channels.flat_map(of).copied().collect()
            };
            patches.flat_map(by_channel).collect()
        }
        None => {
            // The two frames of a channel follow each other.
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

fn linear(checkpoint: &Checkpoint, linear: &BiasedLinear) -> Result<LinearVectors, Error> {
    let number = |weight: &Weight| Ok::<_, Error>(decode(checkpoint, weight)?[0]);
    let bounds = match &linear.bounds {
        Some([a, b, c, d]) => Some(Bounds::new([
            number(a)?,
            number(b)?,
            number(c)?,
            number(d)?,
        ])),
        None => None,
    };
    Ok(LinearVectors {
        bias: bias(checkpoint, linear)?,
        bounds,
    })
}

fn layer_vectors(checkpoint: &Checkpoint, layer: &VisionLayer) -> Result<LayerVectors, Error> {
    let [q, k, v] = &layer.qkv;
    let inner = |norms: &InnerNorms| {
        let q = decode(checkpoint, &norms.q)?;
        Ok::<_, Error>(InnerVectors {
            heads: [q.clone(), decode(checkpoint, &norms.k)?, vec![1.0; q.len()]],
            attention: norm(checkpoint, &norms.attention)?,
            feed_forward: norm(checkpoint, &norms.feed_forward)?,
        })
    };
    Ok(LayerVectors {
        norm1: norm(checkpoint, &layer.norm1)?,
        qkv: [
            linear(checkpoint, q)?,
            linear(checkpoint, k)?,
            linear(checkpoint, v)?,
        ],
        out: linear(checkpoint, &layer.out)?,
        norm2: norm(checkpoint, &layer.norm2)?,
        gate: match &layer.gate {
            Some(gate) => linear(checkpoint, gate)?,
            None => LinearVectors::default(),
        },
        up: linear(checkpoint, &layer.up)?,
        down: linear(checkpoint, &layer.down)?,
        inner: layer.inner_norms.as_ref().map(inner).transpose()?,
    })
}

fn projector_vectors(
    checkpoint: &Checkpoint,
    projector: &Projector,
) -> Result<ProjectorVectors, Error> {
    Ok(match projector {
        Projector::Pooled(of) => ProjectorVectors::Pooled(decode(checkpoint, &of.norm)?),
        Projector::Averaged(of) => ProjectorVectors::Averaged(match &of.standard {
            Some([bias, scale]) => Some([decode(checkpoint, bias)?, decode(checkpoint, scale)?]),
            None => None,
        }),
        Projector::Merged(of) => ProjectorVectors::Merged(merger(checkpoint, of)?),
        Projector::Adapted(of) => ProjectorVectors::Adapted {
            norm: norm_if(checkpoint, of.merger.as_ref().map(|(norm, _)| norm))?,
            up_bias: bias(checkpoint, &of.up)?,
            down_bias: bias(checkpoint, &of.down)?,
        },
    })
}

/// The positions that an image may have: of two tables by axis the first ones of each, all of another.
fn positions(checkpoint: &Checkpoint, encoder: &VisionModel) -> Result<Vec<f32>, Error> {
    let config = &encoder.config;
    let all = decode_some(checkpoint, encoder.positions.as_ref())?;
    let Some(grid) = config.grid.filter(|_| config.axis_positions > 0) else {
        return Ok(all);
    };
    let n_side = config.n_tokens.saturating_mul(grid.merge);
    let n = n_side.min(config.axis_positions) * config.d_model;
    let tables = all.chunks_exact(config.axis_positions * config.d_model);
    Ok(tables.flat_map(|table| &table[..n]).copied().collect())
}

fn vectors(checkpoint: &Checkpoint, encoder: &VisionModel) -> Result<Vectors, Error> {
    let layers = encoder.layers.iter();
    let deepstack = encoder.deepstack.iter();
    Ok(Vectors {
        patches_bias: bias(checkpoint, &encoder.patches)?,
        positions: positions(checkpoint, encoder)?,
        pre_norm: norm_if(checkpoint, encoder.pre_norm.as_ref())?,
        layers: layers
            .map(|layer| layer_vectors(checkpoint, layer))
            .collect::<Result<_, Error>>()?,
        norm: norm_if(checkpoint, encoder.norm.as_ref())?,
        projector: projector_vectors(checkpoint, &encoder.projector)?,
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
