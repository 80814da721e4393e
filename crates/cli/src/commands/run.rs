//! `millrace run`: one prompt in, text out.

mod remote;

use crate::commands::chat;
use crate::device_stats;
use crate::draft_args::{self, DraftArgs};
use crate::engine_args::{ContextArgs, CpuArgs, warn_beyond_training};
use crate::exit::{Failure, Outcome};
use crate::image_args::{Prepared, Seen, VisionArgs, read_picture};
use crate::interrupt;
use crate::model_arg::{ModelArgs, warn};
use crate::output::{Out, Paint, Ui, printable};
use crate::progress::Progress;
use crate::prompt::{TextArgs, check_not_empty};
use crate::remote::ServerArgs;
use crate::sampling_args::{LengthArgs, SamplingArgs, generate_params};
use crate::stats;
use crate::target_args::{DeviceArgs, examples};
use millrace_runtime::vision::{IMAGE_TOKEN, ImageText};
use millrace_runtime::{
    Event, Finish, GenerateParams, Generation, LoadedModel, Turn, speculate_turn,
};
use millrace_text::{Message, RenderOptions};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

const EXAMPLES: &str = "\
Examples:
  millrace run demo \"Once upon a time\"                     continue a text
  millrace run demo --chat \"Who found the ball?\"           ask, through the model's chat template
  millrace run model.gguf -f notes.txt -n 200 --greedy     at most 200 tokens, always the likeliest
  cat question.txt | millrace run model-folder --chat      prompt from standard input
  millrace run gemma-folder --image a.png \"What is this?\"  ask about an image; repeat --image for more
  millrace run gemma.gguf --image a.jpg --mmproj mmproj.gguf \"Who?\"
  millrace run demo \"A cat\" --seed 7 --json                text, tokens, timings and seed as JSON
  millrace run demo \"A cat\" --draft demo-draft            a small model guesses ahead: the same text, sooner
  millrace run demo \"A cat\" --device {npu} -n 32           on the simulated NPU, with modelled times
  millrace run demo \"A cat\" --server http://127.0.0.1:8080   by a running `millrace serve`
  millrace run demo                                        on a terminal: as `millrace chat`

Only what the model writes goes to standard output (and, on a terminal, the prompt before it).";

/// Write text with a model: continue a prompt, or answer it
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES), mut_arg("text", |text| text.value_name("PROMPT")))]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    text: TextArgs,
    /// Ask instead of continue: the prompt becomes a user's message in the model's chat template
    #[arg(long)]
    chat: bool,
    /// Instructions for the model to keep to (implies --chat)
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Image (PNG, JPEG, WebP) to ask about; may be repeated. Images come before the text, unless the text
    /// has <start_of_image> where they belong (implies --chat if it has not)
    #[arg(long = "image", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    vision: VisionArgs,
    /// Print the prompt before the text even when output is not a terminal
    #[arg(long, conflicts_with = "json")]
    echo: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    length: LengthArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    draft: DraftArgs,
}

pub(crate) fn run(args: &Args, ui: Ui) -> Outcome {
    if args.text.is_interactive() && !args.json {
        let chat = chat::Args {
            model: args.model.clone(),
            server: args.server.clone(),
            system: args.system.clone(),
            length: args.length.clone(),
            sampling: args.sampling.clone(),
            context: args.context.clone(),
            cpu: args.cpu.clone(),
            device: args.device.clone(),
            draft: args.draft.clone(),
            images: args.images.clone(),
            vision: args.vision.clone(),
        };
        return chat::run(&chat, ui);
    }
    let text = args.text.read()?;
    check_not_empty(&text)?;
    if let Some(server) = args.server.open()? {
        return remote::run(args, &server, &text, ui);
    }
    let pictures = args.images.iter().map(|path| read_picture(path));
    let pictures = pictures.collect::<Outcome<Vec<_>>>()?;
    let model = args.model.load(ui)?;
    let params = generate_params(&model, &args.sampling, &args.length)?;
    let images = Prepared::new(&model, &args.vision, &pictures)?;
    let mut prompt = prompt_tokens(args, &model, &text, images.as_ref(), ui)?;
    let options = args.cpu.with_context(&args.context);
    let draft = args
        .draft
        .open(&model, &args.model, &args.device, &options, ui)?;
    let mut engine = args.device.engine(&model, &args.context, &args.cpu, ui)?;
    let mut speculator = match &draft {
        Some(draft) => {
            draft.refuse_images(args.images.len())?;
            Some(draft.speculator(&*engine, &args.device, &options, &args.cpu, ui)?)
        }
        None => None,
    };
    ui.detail(format_args!("seed {}", params.sampling.seed));
    engine.check_context(prompt.len(), params.least_tokens())?;
    warn_beyond_training(
        ui,
        &model,
        engine.limits().n_ctx,
        prompt.len(),
        params.max_tokens,
    );
    let seen = match &images {
        Some(images) => Some(images.see(&*engine, &mut prompt, ui)?),
        None => None,
    };
    let mut printer = Printer::new(args, &text)?;
    let seq = engine.create()?;
    let generation = printer.stream(ui, &mut |flag, on_event| {
        let turn = Turn::new(&model, &prompt, &params, engine.limits().n_ctx)?;
        let images = seen.iter().flat_map(|seen| seen.images.iter().cloned());
        let turn = turn.with_images(images.collect());
        let speculator = speculator.as_mut();
        Ok(speculate_turn(
            &mut *engine,
            seq,
            turn,
            speculator,
            flag,
            on_event,
        )?)
    })?;
    let mut details = json!({
        "n_ctx": engine.limits().n_ctx,
        "threads": engine.cpu().pool().n_threads(),
        "cpu_level": engine.cpu().level().name(),
    });
    let mut lines = device_stats::lines(&*engine, stats::line(&generation));
    if let Some(npu) = device_stats::json(&*engine) {
        details["npu"] = npu;
    }
    if let Some(speculator) = &speculator {
        details["speculation"] = draft_args::json(&speculator.stats());
        lines.push(draft_args::line(&speculator.stats()));
    }
    if let Some(seen) = &seen {
        details["images"] = json!(args.images);
        details["image_ms"] = json!(seen.time.as_secs_f64() * 1e3);
        details["tower"] = seen.on_device.as_ref().map(device_stats::tower_json).into();
        lines.insert(0, image_line(args, seen));
    }
    let report = to_json(&model, &params, &generation, details);
    finish(args, &generation, report, &lines, printer.out, ui)
}

impl Args {
    /// Whether images are to be put before the text, which has no places for them.
    fn shows_images(&self, text: &str) -> bool {
        !self.images.is_empty() && !text.contains(IMAGE_TOKEN)
    }

    fn is_chat(&self, text: &str) -> bool {
        self.chat || self.system.is_some() || self.shows_images(text)
    }
}

/// What reading the images took.
fn image_line(args: &Args, seen: &Seen) -> String {
    let (n, n_rows) = (args.images.len(), seen.images[0].n_rows());
    let images = if n == 1 { "image" } else { "images" };
    let seconds = seen.time.as_secs_f64();
    let n_rows = n_rows * seen.images.len();
    let line = format!("{n} {images} in {seconds:.1} s, {n_rows} tokens");
    match &seen.on_device {
        Some(run) => format!("{line}; {}", device_stats::tower(run)),
        None => line,
    }
}

/// The prompt as the model wants it, with placeholders for the rows of images.
fn prompt_tokens(
    args: &Args,
    model: &LoadedModel,
    text: &str,
    images: Option<&Prepared>,
    ui: Ui,
) -> Outcome<Vec<u32>> {
    let tokenizer = model.tokenizer()?;
    warn(&tokenizer.warnings(), ui);
    if !args.is_chat(text) {
        let (tokens, warning) = tokenizer.encode_continued(text, true);
        warn(warning.as_slice(), ui);
        return match images {
            Some(images) => images.tokens(&tokenizer, ImageText::Plain(text)),
            None => Ok(tokens),
        };
    }
    let mut messages = Vec::new();
    messages.extend(args.system.as_deref().map(Message::system));
    let shown = args.images.iter().map(|path| path.display().to_string());
    messages.push(Message::user(text).with_images(shown));
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let prompt = model
        .chat_template()?
        .render_prompt(&tokenizer, &messages, &options)?;
    match images {
        Some(images) => images.tokens(&tokenizer, ImageText::Chat(&prompt)),
        None => Ok(tokenizer.encode_prompt(&prompt)),
    }
}

/// Streams a generation: a progress bar while the prompt is read, then the text.
struct Printer {
    out: Out,
    progress: Option<Progress>,
    failure: Option<Failure>,
    silent: bool,
}

impl Printer {
    /// Prints the prompt, if it is to be seen.
    fn new(args: &Args, text: &str) -> Outcome<Printer> {
        let mut out = Out::new();
        if !args.json && (args.echo || std::io::stdout().is_terminal()) {
            out.text(Paint::Bold.stdout(&printable(text)))?;
            out.flush()?;
            if args.is_chat(text) {
                out.line("")?;
            }
        }
        Ok(Printer {
            out,
            progress: None,
            failure: None,
            silent: args.json,
        })
    }

    /// Runs `work`, which generates until it is told to stop, and prints what it tells.
    fn stream(&mut self, ui: Ui, work: &mut Work<'_>) -> Outcome<Generation> {
        let mut on_event = |event: Event<'_>| match event {
            Event::Prefill { done, total } if done < total => {
                let progress = self.progress.get_or_insert_with(|| {
                    let progress = Progress::steps(ui, total as u64);
                    progress.message("reading the prompt");
                    progress
                });
                progress.set(done as u64);
            }
            Event::Prefill { .. } => self.progress = None,
            Event::Text(text) if !self.silent => {
                if let Err(failure) = self.out.stream(text) {
                    self.failure = Some(failure);
                    // Nobody reads on: stop as Ctrl-C would.
                    interrupt::raise();
                }
            }
            Event::Text(_) => {}
        };
        let result = work(interrupt::flag(), &mut on_event);
        self.progress = None;
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => result,
        }
    }
}

/// Generates, until the flag is raised.
type Work<'a> = dyn FnMut(&AtomicBool, &mut dyn FnMut(Event<'_>)) -> Outcome<Generation> + 'a;

/// The last line, the JSON object or the statistics, and the exit code of a stopped run.
fn finish(
    args: &Args,
    generation: &Generation,
    report: Value,
    lines: &[String],
    mut out: Out,
    ui: Ui,
) -> Outcome {
    if args.json {
        out.json(&report)?;
    } else if !generation.text.ends_with('\n') {
        out.line("")?;
    }
    out.flush()?;
    for line in lines {
        ui.note(Paint::Dim.stderr(&format!("[{line}]")));
    }
    match generation.finish {
        Finish::Cancelled => Err(Failure::interrupted()),
        _ => Ok(()),
    }
}

/// What a run gave, with `details` of where it ran.
fn to_json(
    model: &LoadedModel,
    params: &GenerateParams,
    generation: &Generation,
    details: Value,
) -> Value {
    let mut report = json!({
        "model": model.name(),
        "text": generation.text,
        "tokens": generation.tokens,
        "finish_reason": generation.finish,
        "seed": params.sampling.seed,
        "sampling": params.sampling,
        "timings": stats::json(&generation.timings),
    });
    if let (Some(report), Value::Object(details)) = (report.as_object_mut(), details) {
        report.extend(details);
    }
    report
}
