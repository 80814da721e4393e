//! `millrace logits`: writes a model's raw logits to a safetensors file.

use crate::engine_args::{ContextArgs, CpuArgs, warn_beyond_training};
use crate::exit::{CommandFailure, CommandResult};
use crate::image_args::{ImageBar, VisionArgs, read_images};
use crate::interrupt;
use crate::model_arg::{ModelArgs, refuse_input};
use crate::output::{Out, Ui, bytes};
use crate::progress::ProgressDisplay;
use crate::target_args::DeviceArgs;
use crate::tokens::TokenList;
use millrace::{Model, Options, Prompt, PromptTokens, RgbImage, Session};
use millrace_format::{TensorSpec, safetensors};
use millrace_model::{ModelConfig, VisionConfig};
use millrace_quant::DType;
use millrace_runtime::{BatchItem, Engine, EngineOptions, LogitsFor, StepOutput};
use millrace_text::EncodeOptions;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace logits demo --tokens 1,15,8 --out last.safetensors
  millrace logits model-folder --tokens 1,2,3 --out all.safetensors --all --hidden-states
  millrace logits gemma-folder --tokens 2,255999,262144,256000,108 --image a.png --out a.safetensors
  millrace logits model.gguf --text \"Hello\" --out hello.safetensors

The file holds `logits` [n, vocabulary] f32 (n is 1, or every token with --all) and, with
--hidden-states, `hidden.0` (the embeddings as they enter the first block) to `hidden.LAYERS` (the
output of the last), each [tokens, width] f32. With --image the tokens have one placeholder for each
image (Gemma 3: 262144), which becomes as many tokens as an image has; and the file holds of image i
`image.<i>.pixel_values` [3, side, side], `image.<i>.encoder` [patches, width of the encoder] and
`image.<i>.projected` [tokens of the image, width], f32 too.";

/// Write a model's logits and hidden states to a file
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids to feed, as 1,2,3; no tokens are added to them
    #[arg(
        long,
        value_name = "IDS",
        required_unless_present = "text",
        conflicts_with = "text"
    )]
    tokens: Option<TokenList>,
    /// Text to feed instead, with the tokens that the model adds around every text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// File to write
    #[arg(short, long, value_name = "FILE.safetensors", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
    /// Write the logits of every token, not only of the last
    #[arg(long)]
    all: bool,
    /// Write the hidden states between the blocks too
    #[arg(long)]
    hidden_states: bool,
    /// Print a summary of the file as JSON
    #[arg(long)]
    json: bool,
    /// Image (PNG, JPEG, WebP) for a placeholder among the tokens, in order; may be repeated
    #[arg(long = "image", help_heading = "Images", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    vision: VisionArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &LogitsArgs, ui: Ui) -> CommandResult {
    let images = read_images(&args.images)?;
    let model = args.model.model(&args.vision, ui)?;
    let loaded = model.loaded();
    let images_read: Vec<&Path> = args.images.iter().map(PathBuf::as_path).collect();
    refuse_input(&args.out, loaded.checkpoint(), &images_read)?;
    let config = &loaded.model().config;
    let mut prompt = prompt(args, &model, images)?;
    let n_tokens = prompt.tokens().len();
    // Without --ctx the context is as long as the input, if the model was trained for it.
    let n_ctx = args
        .context
        .ctx
        .unwrap_or(n_tokens.clamp(1, config.context_length));
    let kv_type = args.context.kv_type;
    let options = EngineOptions {
        n_ctx: Some(n_ctx),
        kv_type,
        ..args.cpu.options()
    };
    let engine = args.device.make(loaded, options, ui)?;
    engine.check_context(n_tokens, 0)?;
    warn_beyond_training(ui, loaded, n_ctx, n_tokens, Some(0));
    let session = Session::over(&model, engine, None);

    let mut specs = specs(args, config, n_tokens);
    specs.extend(image_specs(&model, &prompt)?);
    // Created before the work: an unwritable path should not cost minutes.
    let writer = safetensors::Writer::create(&args.out, &BTreeMap::new(), &specs)
        .map_err(|error| CommandFailure::writing(&error))?;
    let mut images = ImageBar::new(ui);
    let how = Options::new().cancel(interrupt::cancel());
    session.read_images(&mut prompt, &how, &mut |event| images.tell(&event))?;
    drop(images);
    let progress = ProgressDisplay::spinner(ui, "computing");
    let output = session.with_engine(|engine| compute(args, engine, &prompt))?;
    drop(progress);
    write(writer, &output, &prompt).map_err(|error| CommandFailure::writing(&error))?;
    report(args, &specs, ui)
}

/// Outputs of the engine for the prompt.
fn compute(
    args: &LogitsArgs,
    engine: &mut dyn Engine,
    prompt: &PromptTokens,
) -> Result<StepOutput, millrace_runtime::Error> {
    let seq = engine.create()?;
    let images = prompt.images_read().map_or(&[][..], |read| &read.images);
    let logits = if args.all {
        LogitsFor::All
    } else {
        LogitsFor::Last
    };
    let item = BatchItem {
        hidden: args.hidden_states,
        images,
        ..BatchItem::new(seq, prompt.tokens(), logits)
    };
    engine.compute(&[item])
}

/// Tokens to feed, and the images among them.
fn prompt(args: &LogitsArgs, model: &Model, images: Vec<RgbImage>) -> CommandResult<PromptTokens> {
    let text = args.text.as_deref().unwrap_or_default();
    let prompt = match &args.tokens {
        Some(tokens) => {
            let placeholder = match images.is_empty() {
                true => None,
                false => Some(model.image_reader()?.encoder().placeholder()),
            };
            tokens.check(model.vocab_size(), placeholder)?;
            Prompt::tokens(tokens.0.clone())
        }
        None if !images.is_empty() => Prompt::text(text),
        None => {
            let options = EncodeOptions {
                add_special: true,
                parse_special: true,
            };
            let tokens = model.loaded().tokenizer()?.encode(text, options);
            if tokens.is_empty() {
                return Err(CommandFailure::usage(
                    "--text is empty: give at least one token",
                ));
            }
            Prompt::tokens(tokens)
        }
    };
    Ok(model.prepare(images.into_iter().fold(prompt, Prompt::image))?)
}

/// Name of a tensor of image `i`.
fn image_name(i: usize, part: usize) -> String {
    let part = ["pixel_values", "encoder", "projected"][part];
    format!("image.{i}.{part}")
}

/// Specifications of the image tensors in the file: pixel values, encoder output and projected rows of each.
fn image_specs(model: &Model, prompt: &PromptTokens) -> CommandResult<Vec<TensorSpec>> {
    if prompt.pixels().is_empty() {
        return Ok(Vec::new());
    }
    let reader = model.image_reader()?;
    let encoder = reader.encoder();
    let config = encoder.config();
    let all = prompt.pixels().iter().flat_map(|pixels| pixels.all());
    let specs = all.enumerate().flat_map(|(i, pixels)| {
        let (width, height) = (pixels.width, pixels.height);
        let n_patches = width / config.patch_size * (height / config.patch_size);
        let shapes = [
            vec![VisionConfig::CHANNELS, height, width],
            vec![n_patches, config.d_model],
            vec![encoder.n_rows(width, height), config.d_text],
        ];
        let shapes = shapes.into_iter().enumerate();
        shapes.map(move |(part, shape)| TensorSpec::new(image_name(i, part), DType::F32, &shape))
    });
    Ok(specs.collect())
}

/// The image tensors, with their names.
fn image_tensors(prompt: &PromptTokens) -> Vec<(String, &[f32])> {
    let Some(read) = prompt.images_read() else {
        return Vec::new();
    };
    let pixels = prompt.pixels().iter().flat_map(|pixels| pixels.all());
    let all = pixels.zip(&read.encoder).zip(&read.images).enumerate();
    all.flat_map(|(i, ((pixels, encoder), image))| {
        let parts = [&pixels.data[..], encoder, image.rows()];
        let named = parts.into_iter().enumerate();
        named.map(move |(part, data)| (image_name(i, part), data))
    })
    .collect()
}

/// Specifications of the tensors in the file.
fn specs(args: &LogitsArgs, config: &ModelConfig, n_tokens: usize) -> Vec<TensorSpec> {
    let n_rows = if args.all { n_tokens } else { 1 };
    let mut specs = vec![TensorSpec::new(
        "logits",
        DType::F32,
        &[n_rows, config.vocab_size],
    )];
    let n_states = if args.hidden_states {
        config.n_layers + 1
    } else {
        0
    };
    let shape = [n_tokens, config.d_model];
    specs.extend((0..n_states).map(|i| TensorSpec::new(hidden_name(i), DType::F32, &shape)));
    specs
}

fn hidden_name(layer: usize) -> String {
    format!("hidden.{layer}")
}

fn write(
    mut writer: safetensors::Writer<millrace_format::output::AtomicFile>,
    output: &StepOutput,
    prompt: &PromptTokens,
) -> Result<(), millrace_format::Error> {
    writer.write("logits", &le_bytes(output.logits(0)))?;
    for (layer, state) in output.hidden(0).iter().enumerate() {
        writer.write(&hidden_name(layer), &le_bytes(state))?;
    }
    for (name, data) in image_tensors(prompt) {
        writer.write(&name, &le_bytes(data))?;
    }
    writer.commit()
}

fn le_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn report(args: &LogitsArgs, specs: &[TensorSpec], ui: Ui) -> CommandResult {
    let size_bytes: u64 = specs
        .iter()
        .filter_map(TensorSpec::size_bytes)
        .map(|n| n as u64)
        .sum();
    ui.note(format_args!(
        "{}: {} tensors, {}",
        args.out.display(),
        specs.len(),
        bytes(size_bytes)
    ));
    if !args.json {
        return Ok(());
    }
    let tensor =
        |spec: &TensorSpec| json!({ "name": spec.name, "shape": spec.shape, "type": "f32" });
    let tensors: Vec<_> = specs.iter().map(tensor).collect();
    let mut out = Out::new();
    out.json(&json!({ "file": args.out, "tensors": tensors }))
}
