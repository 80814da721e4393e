//! `millrace logits`: a model's raw numbers, as a safetensors file.

use crate::engine_args::{ContextArgs, CpuArgs, warn_beyond_training};
use crate::exit::{Failure, Outcome};
use crate::image_args::{Prepared, Seen, VisionArgs, read_picture};
use crate::model_arg::ModelArgs;
use crate::output::{Out, Ui, bytes};
use crate::progress::Progress;
use crate::target_args::DeviceArgs;
use crate::tokens::TokenList;
use millrace_format::{TensorSpec, safetensors};
use millrace_model::ModelConfig;
use millrace_quant::DType;
use millrace_runtime::vision::ImageText;
use millrace_runtime::{BatchItem, EngineOptions, LoadedModel, LogitsFor, StepOutput};
use millrace_text::EncodeOptions;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
`image.<i>.pixel_values` [3, side, side], `image.<i>.encoder` [patches, width of the tower] and
`image.<i>.projected` [tokens of the image, width], f32 too.";

/// Write a model's logits and hidden states to a file
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids to feed, as 1,2,3; nothing is added to them
    #[arg(
        long,
        value_name = "IDS",
        required_unless_present = "text",
        conflicts_with = "text"
    )]
    tokens: Option<TokenList>,
    /// Text to feed instead, with the tokens the model puts around every text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// File to write
    #[arg(short, long, value_name = "FILE.safetensors", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
    /// Image (PNG, JPEG, WebP) for a placeholder among the tokens, in their order; may be repeated
    #[arg(long = "image", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    vision: VisionArgs,
    /// Logits of every token, not only of the last
    #[arg(long)]
    all: bool,
    /// The hidden states between the blocks too
    #[arg(long)]
    hidden_states: bool,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, ui: Ui) -> Outcome {
    let pictures = args.images.iter().map(|path| read_picture(path));
    let pictures = pictures.collect::<Outcome<Vec<_>>>()?;
    let model = args.model.load(ui)?;
    let config = &model.model().config;
    let images = Prepared::new(&model, &args.vision, &pictures)?;
    let mut tokens = tokens(args, &model, images.as_ref())?;
    // Without --ctx the context is as long as what was given, if the model was trained for it.
    let n_ctx = args
        .context
        .ctx
        .unwrap_or(tokens.len().clamp(1, config.context_length));
    let kv_type = args.context.kv_type;
    let options = EngineOptions {
        n_ctx: Some(n_ctx),
        kv_type,
        ..args.cpu.options()
    };
    let mut engine = args.device.make(&model, options, &args.cpu, ui)?;
    engine.check_context(tokens.len(), 0)?;
    warn_beyond_training(ui, &model, n_ctx, tokens.len(), Some(0));

    let mut specs = specs(args, config, tokens.len());
    specs.extend(images.iter().flat_map(Prepared::specs));
    // Before the work: an unwritable path should not cost minutes.
    let writer = safetensors::Writer::create(&args.out, &BTreeMap::new(), &specs)
        .map_err(|error| Failure::writing(&error))?;
    let logits = if args.all {
        LogitsFor::All
    } else {
        LogitsFor::Last
    };
    let seen = match &images {
        Some(images) => images.see(&*engine, &mut tokens, ui)?,
        None => Seen::default(),
    };
    let seq = engine.create()?;
    let item = BatchItem {
        seq,
        tokens: &tokens,
        logits,
        hidden: args.hidden_states,
        images: &seen.images,
    };
    let progress = Progress::spinner(ui, "computing");
    let output = engine.compute(&[item])?;
    drop(progress);
    write(writer, &output, images.as_ref(), &seen).map_err(|error| Failure::writing(&error))?;
    report(args, &specs, ui)
}

/// The tokens to feed.
fn tokens(args: &Args, model: &LoadedModel, images: Option<&Prepared>) -> Outcome<Vec<u32>> {
    if let Some(tokens) = &args.tokens {
        let placeholder = images.map(Prepared::placeholder);
        tokens.check(model.model().config.vocab_size, placeholder)?;
        return match images {
            Some(images) => images.expand(&tokens.0),
            None => Ok(tokens.0.clone()),
        };
    }
    let text = args.text.as_deref().unwrap_or_default();
    if let Some(images) = images {
        return images.tokens(&*model.tokenizer()?, ImageText::Plain(text));
    }
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    let tokens = model.tokenizer()?.encode(text, options);
    if tokens.is_empty() {
        return Err(Failure::usage("--text is empty: give at least one token"));
    }
    Ok(tokens)
}

/// What the file will hold.
fn specs(args: &Args, config: &ModelConfig, n_tokens: usize) -> Vec<TensorSpec> {
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
    images: Option<&Prepared>,
    seen: &Seen,
) -> Result<(), millrace_format::Error> {
    writer.write("logits", &le_bytes(output.logits(0)))?;
    for (layer, state) in output.hidden(0).iter().enumerate() {
        writer.write(&hidden_name(layer), &le_bytes(state))?;
    }
    for (name, data) in images.iter().flat_map(|images| images.tensors(seen)) {
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

fn report(args: &Args, specs: &[TensorSpec], ui: Ui) -> Outcome {
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
