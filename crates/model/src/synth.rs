//! Random-weight checkpoints at the geometries of real models.
//!
//! They load everywhere a real file does, run at the same speed and write nonsense. Benchmarks,
//! memory plans and compatibility tests need no more, and no download. The same seed, geometry and
//! recipe give the same bytes on every machine and with any number of threads.
//!
//! # How weights are drawn
//!
//! Matrices are `N(0, 1/k)` with `k` inputs, so that activations keep their size from layer to
//! layer; norms are near 1; biases are small. Drawing and quantising every weight would take minutes
//! for a large model. So a few thousand blocks are drawn for each format and size, and encoded as
//! any weights would be. A matrix is filled with blocks picked from that pool at random: real blocks
//! of every format, at the speed of a copy.

mod acceptance;
mod draft;
mod geometry;
mod plan;
mod vision;
mod vocab;
mod weights;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use millrace_format::gguf::{self, GgufValue, Metadata};
use millrace_format::safetensors::{self, Q4NX_FILE, ShardedWriter};
use millrace_format::{TensorSpec, output};
use millrace_quant::DType;

use crate::Error;
use crate::arch::WeightConvention;
use crate::config::{self, ModelConfig};
use crate::names::TensorName;
use crate::recipe::Recipe;
use crate::vision::{VisionConfig, VisionName};

pub use acceptance::MIN_ACCEPTANCE;
pub use draft::DEFAULT_ACCEPTANCE;
pub use geometry::ModelGeometry;
use plan::plan;
pub(crate) use plan::tensors;

/// Larger Hugging Face models are split at this size, as `save_pretrained` does.
const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// Options of a synthetic checkpoint.
#[derive(Clone, Debug)]
pub struct SynthOptions<'a> {
    /// Formats of the weights.
    pub recipe: Recipe,
    /// Metadata of a GGUF file whose vocabulary (`tokenizer.*`) to take; its size replaces the
    /// geometry's. Without one the file gets the 256 bytes, padded to the geometry's size. GGUF only.
    pub vocab: Option<&'a Metadata>,
    /// Number of blocks, if different from the geometry's.
    pub n_layers: Option<usize>,
    /// With the geometry's vision encoder: in a folder, or in an `mmproj` file beside a GGUF file.
    pub vision: bool,
    /// Seed of the weights.
    pub seed: u64,
    /// Threads that draw weights; by default all cores.
    pub n_threads: Option<usize>,
}

/// Summary of a written checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthSummary {
    /// The model's configuration.
    pub config: ModelConfig,
    /// Number of parameters.
    pub n_params: u64,
    /// Bytes of all tensors.
    pub size_bytes: u64,
    /// The file with the vision encoder, where that is a separate file.
    pub mmproj: Option<PathBuf>,
}

/// One tensor to fill.
struct SynthTensor {
    name: PlannedName,
    dtype: DType,
    spec: TensorSpec,
}

/// Owner of a tensor.
#[derive(Clone, Copy)]
enum PlannedName {
    Text(TensorName),
    Vision(VisionName),
}

/// Called with the number of bytes that were written; an error stops the work.
type SynthObserver<'a> = dyn FnMut(usize) -> Result<(), Error> + 'a;

/// Receives a tensor's next bytes.
type ByteSink<'a> = dyn FnMut(&str, &[u8]) -> Result<(), Error> + 'a;

/// Everything decided before the first byte is written.
struct SynthJob<'a> {
    geometry: ModelGeometry,
    out: &'a Path,
    options: &'a SynthOptions<'a>,
    config: ModelConfig,
    layout: WeightConvention,
    plan: Vec<SynthTensor>,
    vision: Option<VisionConfig>,
    /// Tensors of the `mmproj` file.
    mmproj: Vec<SynthTensor>,
    /// With a draft layer behind the blocks, which guesses the model's output: its noise.
    draft_noise: Option<f32>,
}

/// Writes a checkpoint: a GGUF file if `out` ends in `.gguf`, else a folder with `config.json`,
/// `tokenizer.json` and safetensors (or `model.q4nx`, with the Q4NX recipes). `progress` gets bytes
/// done and bytes in all, and can stop the work.
///
/// # Errors
/// [`Error::BadValue`] for zero layers or an impossible vocabulary, [`Error::Unwritable`] for a format
/// that cannot be encoded, [`Error::Format`] for a format the file cannot hold (block formats in
/// safetensors, Q4NX in GGUF) and for refusals of the operating system. Weights are then absent, not
/// half-written.
pub fn write(
    geometry: ModelGeometry,
    out: &Path,
    options: &SynthOptions<'_>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<SynthSummary, Error> {
    SynthJob::new(geometry, out, options)?.write(progress)
}

/// As [`write()`], with a layer that predicts the token after the next (MTP) and guesses most of the model's output.
///
/// Blocks of such a model add nothing to the stream, though all of their products are computed: its output follows from the
/// last token alone. The layer repeats that but for noise, so that a share `acceptance` of its guesses behind tokens of the
/// model is right. A share of 1 has no noise.
///
/// # Errors
/// As [`write()`]; a geometry whose family has no such layer, and Q4NX; [`Error::BadValue`] for a share below
/// [`MIN_ACCEPTANCE`] or above 1.
pub fn write_with_draft_layer(
    geometry: ModelGeometry,
    out: &Path,
    (options, acceptance): (&SynthOptions<'_>, f64),
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<SynthSummary, Error> {
    let job = SynthJob::new(geometry, out, options)?;
    job.with_draft_layer(acceptance)?.write(progress)
}

impl<'a> SynthJob<'a> {
    fn write(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<SynthSummary, Error> {
        let size = |spec: &TensorSpec| spec.tensor_type.size_bytes(&spec.shape).unwrap_or(0) as u64;
        let n_elems = |spec: &TensorSpec| spec.shape.iter().product::<usize>() as u64;
        let all = || self.plan.iter().chain(&self.mmproj);
        let written = SynthSummary {
            n_params: all().map(|tensor| n_elems(&tensor.spec)).sum(),
            size_bytes: all().map(|tensor| size(&tensor.spec)).sum(),
            mmproj: (!self.mmproj.is_empty()).then(|| vision::mmproj_path(self.out)),
            config: self.config.clone(),
        };
        let mut done = 0;
        let mut progress = |bytes: usize| {
            done += bytes as u64;
            match progress(done, written.size_bytes) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::Cancelled),
            }
        };
        match self.layout {
            WeightConvention::Gguf => {
                self.write_mmproj(&mut progress)?;
                self.write_gguf(&mut progress)?;
            }
            WeightConvention::HuggingFace => self.write_folder(&mut progress)?,
            WeightConvention::Q4nx => self.write_bundle(&mut progress)?,
        }
        Ok(written)
    }

    fn new(
        geometry: ModelGeometry,
        out: &'a Path,
        options: &'a SynthOptions<'a>,
    ) -> Result<SynthJob<'a>, Error> {
        let is_gguf = out
            .extension()
            .is_some_and(|ext| ext.eq_ignore_ascii_case("gguf"));
        let layout = match (is_gguf, options.recipe.is_q4nx()) {
            (true, _) => WeightConvention::Gguf,
            (false, true) => WeightConvention::Q4nx,
            (false, false) => WeightConvention::HuggingFace,
        };
        let mut config = geometry.config(options.n_layers);
        let file = out.display().to_string();
        if let Some(vocab) = options.vocab {
            if !is_gguf {
                return Err(Error::Unsupported {
                    file,
                    feature: "a vocabulary from a GGUF file in a Hugging Face folder".into(),
                    supported: "output to a .gguf file".into(),
                });
            }
            config.vocab_size = vocab::size(vocab)?;
        }
        config.validate(&file)?;
        let vision = match options.vision {
            true => Some(vision_of(geometry, layout, &file)?),
            false => None,
        };
        let mut plan = plan(&config, layout, options.recipe, vision.is_some());
        let mut mmproj = Vec::new();
        match (&vision, layout) {
            (Some(vision), WeightConvention::Gguf) => mmproj = vision::plan_mmproj(vision),
            (Some(vision), _) => plan.extend(vision::plan_folder(vision, options.recipe.base())),
            (None, _) => {}
        }
        Ok(SynthJob {
            vision,
            mmproj,
            geometry,
            out,
            options,
            config,
            layout,
            plan,
            draft_noise: None,
        })
    }

    fn specs(&self) -> Vec<TensorSpec> {
        specs(&self.plan)
    }

    fn fill(&self, progress: &mut SynthObserver<'_>, sink: &mut ByteSink<'_>) -> Result<(), Error> {
        self.fill_with(&self.plan, progress, sink)
    }

    fn fill_with(
        &self,
        plan: &[SynthTensor],
        progress: &mut SynthObserver<'_>,
        sink: &mut ByteSink<'_>,
    ) -> Result<(), Error> {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let fill = weights::Fill {
            config: &self.config,
            layout: self.layout,
            seed: self.options.seed,
            n_threads: self.options.n_threads.unwrap_or_else(cores).max(1),
            draft_noise: self.draft_noise,
        };
        fill.run(plan, &mut |name, bytes| {
            sink(name, bytes)?;
            progress(bytes.len())
        })
    }

    fn write_gguf(&self, progress: &mut SynthObserver<'_>) -> Result<(), Error> {
        let metadata = self.metadata()?;
        let mut writer = gguf::Writer::create(self.out, &metadata, &self.specs())?;
        self.fill(progress, &mut |name, bytes| Ok(writer.write(name, bytes)?))?;
        Ok(writer.commit()?)
    }

    fn write_mmproj(&self, progress: &mut SynthObserver<'_>) -> Result<(), Error> {
        let Some(config) = &self.vision else {
            return Ok(());
        };
        let metadata = vision::mmproj_metadata(self.geometry.name(), config);
        let path = vision::mmproj_path(self.out);
        let mut writer = gguf::Writer::create(&path, &metadata, &specs(&self.mmproj))?;
        self.fill_with(&self.mmproj, progress, &mut |name, bytes| {
            Ok(writer.write(name, bytes)?)
        })?;
        Ok(writer.commit()?)
    }

    /// Control tokens of the vocabulary besides the end.
    fn control(&self) -> &'static [&'static str] {
        match self.vision {
            Some(_) => &vision::TOKENS,
            None => &[],
        }
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        let hyperparameters = config::gguf::write(&self.config)?;
        let mut out = Metadata::new();
        for (key, value) in hyperparameters.iter() {
            out.insert(key, value.clone());
            if key == "general.architecture" {
                out.insert("general.type", GgufValue::Str("model".into()));
                let name = format!("{} with random weights", self.geometry.name());
                out.insert("general.name", GgufValue::Str(name));
                if let Some(file_type) = self.options.recipe.file_type() {
                    out.insert("general.file_type", GgufValue::U32(file_type));
                }
                // The only version of block formats in use.
                out.insert("general.quantization_version", GgufValue::U32(2));
            }
        }
        if self.draft_noise.is_some() {
            draft::write_gguf(&self.config, &mut out);
        }
        match self.options.vocab {
            Some(vocab) => vocab::copy(vocab, &mut out),
            None => vocab::bytes(self.config.vocab_size, self.control(), &mut out),
        }
        Ok(out)
    }

    fn write_folder(&self, progress: &mut SynthObserver<'_>) -> Result<(), Error> {
        self.make_folder()?;
        let notes = BTreeMap::new();
        let mut writer = ShardedWriter::create(self.out, &notes, &self.specs(), MAX_SHARD_BYTES)?;
        self.fill(progress, &mut |name, bytes| Ok(writer.write(name, bytes)?))?;
        self.write_side_files()?;
        writer.commit()?;
        Ok(())
    }

    fn write_bundle(&self, progress: &mut SynthObserver<'_>) -> Result<(), Error> {
        self.make_folder()?;
        let path = self.out.join(Q4NX_FILE);
        let mut writer = safetensors::Writer::create(&path, &BTreeMap::new(), &self.specs())?;
        self.fill(progress, &mut |name, bytes| Ok(writer.write(name, bytes)?))?;
        self.write_side_files()?;
        Ok(writer.commit()?)
    }

    fn make_folder(&self) -> Result<(), Error> {
        let (path, action) = (self.out.to_owned(), "create the folder");
        std::fs::create_dir_all(self.out).map_err(|source| {
            millrace_format::Error::Io {
                path,
                action,
                source,
            }
            .into()
        })
    }

    /// The JSON files, before the weights get their names: a folder without weights does not open as a model.
    fn write_side_files(&self) -> Result<(), Error> {
        let write = |name: &str, json: serde_json::Value| {
            output::write(&self.out.join(name), format!("{json:#}\n").as_bytes())
        };
        let tokenizer = vocab::tokenizer_json(self.config.vocab_size, self.control());
        write("tokenizer.json", tokenizer)?;
        match &self.vision {
            Some(vision) => {
                vision::write_side_files(self.out, &self.config, vision, vocab::FIRST_CONTROL)
            }
            None => {
                let mut config = config::hf::write(&self.config)?;
                if self.draft_noise.is_some() {
                    draft::write_hf(&self.config, &mut config);
                }
                Ok(write("config.json", config)?)
            }
        }
    }
}

fn specs(plan: &[SynthTensor]) -> Vec<TensorSpec> {
    plan.iter().map(|tensor| tensor.spec.clone()).collect()
}

/// The vision encoder of a geometry, for files of a layout.
fn vision_of(
    geometry: ModelGeometry,
    layout: WeightConvention,
    file: &str,
) -> Result<VisionConfig, Error> {
    let unsupported = |feature: String, supported: String| Error::Unsupported {
        file: file.to_owned(),
        feature,
        supported,
    };
    if layout == WeightConvention::Q4nx {
        let feature = "a vision encoder in a Q4NX bundle".into();
        return Err(unsupported(feature, "folders and GGUF files".into()));
    }
    let config = geometry.vision().ok_or_else(|| {
        let with = ModelGeometry::all().filter(|geometry| geometry.vision().is_some());
        let names: Vec<&str> = with.map(ModelGeometry::name).collect();
        let feature = format!("a vision encoder for {}", geometry.name());
        unsupported(feature, names.join(", "))
    })?;
    config.validate(file)?;
    Ok(config)
}

#[cfg(test)]
mod tests;
