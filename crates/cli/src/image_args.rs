//! Images beside a prompt: the options, the files, the tower that reads them.

use crate::exit::{Failure, Outcome};
use crate::interrupt;
use crate::output::Ui;
use crate::progress::Progress;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use millrace_format::TensorSpec;
use millrace_model::VisionConfig;
use millrace_quant::DType;
use millrace_runtime::vision::picture::{Fit, MAX_FILE_BYTES, PanAndScan, Picture, PixelValues};
use millrace_runtime::vision::{Encoded, ImageStyle, ImageText, TowerOn, TowerRun};
use millrace_runtime::{Engine, Image, LoadedModel, VisionTower};
use millrace_text::Tokenizer;
use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How images are read, wherever they come from.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Images")]
pub(crate) struct VisionArgs {
    /// File with the vision tower of a GGUF model [default: the mmproj file beside it]
    #[arg(long, value_name = "FILE.gguf", value_hint = clap::ValueHint::FilePath)]
    pub(crate) mmproj: Option<PathBuf>,
    /// Whose way of preparing images: transformers stretches them and puts line ends around them,
    /// llama.cpp centres them on black
    #[arg(long, value_name = "STYLE", default_value = "transformers", value_parser = style_parser())]
    pub(crate) image_style: ImageStyle,
    /// Look at long images in parts too, up to four
    #[arg(long)]
    pub(crate) pan_and_scan: bool,
}

fn style_parser() -> impl TypedValueParser<Value = ImageStyle> {
    PossibleValuesParser::new(["transformers", "llama.cpp"]).map(|name| match name.as_str() {
        "llama.cpp" => ImageStyle::LlamaCpp,
        _ => ImageStyle::Transformers,
    })
}

/// Reads and decodes an image's file.
pub(crate) fn read_picture(path: &Path) -> Outcome<Picture> {
    let reading = |error: &std::io::Error| Failure::reading_file(path, error);
    let file = File::open(path).map_err(|error| reading(&error))?;
    let mut bytes = Vec::new();
    // One byte more than is read tells a file that is too long.
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| reading(&error))?;
    let name = path.display().to_string();
    Picture::decode(&name, &bytes).map_err(|error| Failure::bad_input(error.to_string()))
}

/// A tower, and how it is to be used.
pub(crate) struct Vision {
    tower: VisionTower,
    /// Where its blocks run, once an engine has asked.
    on: OnceCell<TowerOn>,
    style: ImageStyle,
    pan_and_scan: bool,
}

/// An image's pixel values: the whole and its crops.
pub(crate) struct Pixels(Vec<PixelValues>);

impl Pixels {
    /// Crops beside the whole.
    pub(crate) fn n_crops(&self) -> usize {
        self.0.len() - 1
    }

    /// The whole, then the crops.
    pub(crate) fn all(&self) -> &[PixelValues] {
        &self.0
    }
}

impl Vision {
    /// Opens the model's tower.
    pub(crate) fn open(model: &Arc<LoadedModel>, args: &VisionArgs) -> Outcome<Vision> {
        let tower = VisionTower::open(model, args.mmproj.as_deref())?;
        Ok(Vision {
            tower,
            on: OnceCell::new(),
            style: args.image_style,
            pan_and_scan: args.pan_and_scan,
        })
    }

    /// What the tower takes of a picture.
    pub(crate) fn pixels(&self, picture: &Picture) -> Pixels {
        let mut preprocess = self.tower.preprocess().clone();
        if self.style == ImageStyle::LlamaCpp {
            preprocess.fit = Fit::Letterbox;
        }
        preprocess.pan_and_scan = self.pan_and_scan.then(PanAndScan::default);
        Pixels(preprocess.apply(picture))
    }

    /// Tokens of a prompt with images of so many crops, placeholders for their rows.
    pub(crate) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: ImageText<'_>,
        n_crops: &[usize],
    ) -> Outcome<Vec<u32>> {
        Ok(self.tower.tokens(tokenizer, text, n_crops, self.style)?)
    }

    /// Runs the tower over images, on the engine's device where that takes its blocks, with a progress bar.
    pub(crate) fn encode(
        &self,
        engine: &dyn Engine,
        pixels: &[&Pixels],
        ui: Ui,
    ) -> Outcome<Vec<Encoded>> {
        let npu = engine.device_model();
        let on = self.on.get_or_init(|| TowerOn::of(&self.tower, npu));
        if let TowerOn::Cpu(Some(reason)) = on {
            ui.detail(format_args!("the vision tower runs on the CPU: {reason}"));
        }
        let all: Vec<&PixelValues> = pixels.iter().flat_map(|pixels| pixels.all()).collect();
        let n_layers = self.tower.config().n_layers;
        let progress = Progress::steps(ui, (all.len() * n_layers) as u64);
        progress.message("reading images");
        let mut encoded = Vec::with_capacity(all.len());
        for (i, pixels) in all.iter().enumerate() {
            let done = self
                .tower
                .encode_where(on, engine.cpu(), pixels, &mut |layer, _| {
                    progress.set((i * n_layers + layer) as u64);
                    match interrupt::is_raised() {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                })?;
            encoded.push(done.ok_or_else(Failure::interrupted)?);
        }
        Ok(encoded)
    }
}

/// Images of a prompt, read and prepared.
pub(crate) struct Prepared {
    vision: Vision,
    pixels: Vec<Pixels>,
}

/// What became of them.
#[derive(Default)]
pub(crate) struct Seen {
    /// In the order of the prompt, crops behind their whole.
    pub(crate) images: Vec<Arc<Image>>,
    /// What left the tower for each of them.
    encoder: Vec<Vec<f32>>,
    /// What it took.
    pub(crate) time: Duration,
    /// What it took of a device, where the tower's blocks ran on one.
    pub(crate) on_device: Option<TowerRun>,
}

impl Prepared {
    /// Opens the tower for images that were decoded; `None` without any.
    pub(crate) fn new(
        model: &Arc<LoadedModel>,
        args: &VisionArgs,
        pictures: &[Picture],
    ) -> Outcome<Option<Prepared>> {
        if pictures.is_empty() {
            return Ok(None);
        }
        let vision = Vision::open(model, args)?;
        let pixels = pictures.iter().map(|picture| vision.pixels(picture));
        Ok(Some(Prepared {
            pixels: pixels.collect(),
            vision,
        }))
    }

    /// Tokens of a prompt, placeholders for the images' rows.
    pub(crate) fn tokens(&self, tokenizer: &Tokenizer, text: ImageText<'_>) -> Outcome<Vec<u32>> {
        let n_crops: Vec<usize> = self.pixels.iter().map(Pixels::n_crops).collect();
        self.vision.tokens(tokenizer, text, &n_crops)
    }

    /// Runs the tower, and puts the images into the prompt's places for them.
    pub(crate) fn see(&self, engine: &dyn Engine, tokens: &mut [u32], ui: Ui) -> Outcome<Seen> {
        let start = Instant::now();
        let pixels: Vec<&Pixels> = self.pixels.iter().collect();
        let mut seen = Seen::default();
        for encoded in self.vision.encode(engine, &pixels, ui)? {
            if let Some(run) = encoded.on_device {
                let all = seen.on_device.get_or_insert_with(|| TowerRun {
                    device_ns: 0,
                    n_dispatches: 0,
                    ..run.clone()
                });
                all.device_ns += run.device_ns;
                all.n_dispatches += run.n_dispatches;
            }
            seen.images.push(encoded.image);
            seen.encoder.push(encoded.encoder);
        }
        millrace_runtime::image::place(tokens, &seen.images)?;
        seen.time = start.elapsed();
        Ok(seen)
    }

    /// The token that stands for an image in lists of tokens.
    pub(crate) fn placeholder(&self) -> u32 {
        self.vision.tower.placeholder()
    }

    /// A list of tokens with a placeholder for each image in place of the model's own, one for each of
    /// its rows. One that already has as many as rows is taken as it is.
    pub(crate) fn expand(&self, tokens: &[u32]) -> Outcome<Vec<u32>> {
        let placeholder = self.placeholder();
        let n_images: usize = self.pixels.iter().map(|pixels| pixels.all().len()).sum();
        let n_rows = self.vision.tower.config().n_tokens;
        let n_found = tokens.iter().filter(|token| **token == placeholder).count();
        let n_each = match n_found {
            n if n == n_images => n_rows,
            n if n == n_images * n_rows => 1,
            n => {
                let what = format!(
                    "the tokens have {n} placeholders ({placeholder}) for {n_images} images"
                );
                let hint = format!("give one for each image, or {n_rows}");
                return Err(Failure::usage(what).hint(hint));
            }
        };
        let mut out = Vec::with_capacity(tokens.len() + n_images * n_rows);
        for token in tokens {
            match *token == placeholder {
                true => out.resize(out.len() + n_each, millrace_runtime::image::PLACEHOLDER),
                false => out.push(*token),
            }
        }
        Ok(out)
    }

    /// The tensors that [`Prepared::tensors`] gives.
    pub(crate) fn specs(&self) -> Vec<TensorSpec> {
        let config = self.vision.tower.config();
        let n_images: usize = self.pixels.iter().map(|pixels| pixels.all().len()).sum();
        let side = config.image_size;
        let shapes = [
            vec![VisionConfig::CHANNELS, side, side],
            vec![config.n_patches(), config.d_model],
            vec![config.n_tokens, config.d_text],
        ];
        let spec = |(i, part): (usize, usize)| {
            TensorSpec::new(tensor_name(i, part), DType::F32, &shapes[part])
        };
        let parts = (0..n_images).flat_map(|i| [(i, 0), (i, 1), (i, 2)]);
        parts.map(spec).collect()
    }

    /// Pixel values, encoder output and projected rows of every image, with their names.
    pub(crate) fn tensors<'a>(&'a self, seen: &'a Seen) -> Vec<(String, &'a [f32])> {
        let pixels = self.pixels.iter().flat_map(|pixels| pixels.all());
        let all = pixels.zip(&seen.encoder).zip(&seen.images).enumerate();
        all.flat_map(|(i, ((pixels, encoder), image))| {
            let parts = [&pixels.data[..], encoder, image.rows()];
            let named = parts.into_iter().enumerate();
            named.map(move |(part, data)| (tensor_name(i, part), data))
        })
        .collect()
    }
}

/// What a tensor of image `i` is called.
fn tensor_name(i: usize, part: usize) -> String {
    let part = ["pixel_values", "encoder", "projected"][part];
    format!("image.{i}.{part}")
}
