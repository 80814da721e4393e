//! `millrace run`: generates text from one prompt.

mod remote;

use crate::commands::chat;
use crate::device_stats;
use crate::draft_args::{self, DraftArgs};
use crate::engine_args::{ContextArgs, CpuArgs, SessionArgs, warn_beyond_training};
use crate::exit::{CommandFailure, CommandResult};
use crate::image_args::{ImageBar, VisionArgs, read_images};
use crate::interrupt;
use crate::lora_args::LoraArgs;
use crate::model_arg::{ModelArgs, warn};
use crate::output::{Out, Paint, Ui, printable};
use crate::progress::ProgressDisplay;
use crate::prompt::{TextArgs, check_not_empty};
use crate::ranks::{self, MpiArgs};
use crate::remote::ServerArgs;
use crate::sampling_args::{LengthArgs, SamplingArgs, generate_params};
use crate::stats;
use crate::target_args::{DeviceArgs, examples};
use millrace::engine::Engine;
use millrace::{
    Event, Finish, GenerateParams, Generation, ImageReading, Model, Prompt, PromptTokens, RgbImage,
    Session,
};
use millrace_runtime::EngineOptions;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace run demo \"Once upon a time\"                     continue a text
  millrace run demo --chat \"Who found the ball?\"           ask, through the model's chat template
  millrace run model.gguf -f notes.txt -n 200 --greedy     at most 200 tokens, always the most likely
  cat question.txt | millrace run model-folder --chat      prompt from standard input
  millrace run gemma-folder --image a.png \"What is this?\"  ask about an image; repeat --image for more
  millrace run gemma.gguf --image a.jpg --mmproj mmproj.gguf \"Who?\"
  millrace run demo \"A cat\" --seed 7 --json                text, tokens, timings and seed as JSON
  millrace run demo \"A cat\" --draft demo-draft            a small model drafts: the same text, faster
  millrace run model.gguf --lora style.gguf:0.8 \"A cat\"     with a LoRA adapter; repeat --lora for more
  millrace run demo \"A cat\" --device {npu} -n 32           on the simulated NPU, with modelled times
  millrace run demo -f book.txt --session book.kv          keeps the computed state for the next run
  millrace run demo \"A cat\" --server http://127.0.0.1:8080   answered by a running `millrace serve`
  millrace run demo                                        on a terminal: same as `millrace chat`

Only the model's text goes to standard output (and, on a terminal, the prompt before it).";

/// Generate text with a model: continue a prompt, or answer it
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES), mut_arg("text", |text| text.value_name("PROMPT")))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    /// Answer the prompt instead of continuing it: it becomes a user message in the model's chat template
    #[arg(long)]
    chat: bool,
    /// System prompt (implies --chat)
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Print the prompt before the text even when output is not a terminal
    #[arg(long, conflicts_with = "json")]
    echo: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Image (PNG, JPEG, WebP) to ask about; may be repeated. Images come before the text, unless the text
    /// has <start_of_image> where they belong (without it, implies --chat)
    #[arg(long = "image", help_heading = "Images", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    vision: VisionArgs,
    #[command(flatten)]
    length: LengthArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    lora: LoraArgs,
    #[command(flatten)]
    ranks: MpiArgs,
}

impl RunArgs {
    /// The same arguments, for a conversation.
    fn as_chat(&self) -> chat::ChatArgs {
        chat::ChatArgs {
            model: self.model.clone(),
            server: self.server.clone(),
            system: self.system.clone(),
            length: self.length.clone(),
            sampling: self.sampling.clone(),
            context: self.context.clone(),
            session: self.session.clone(),
            cpu: self.cpu.clone(),
            device: self.device.clone(),
            draft: self.draft.clone(),
            images: self.images.clone(),
            vision: self.vision.clone(),
            lora: self.lora.clone(),
        }
    }
}

pub(crate) fn run(args: &RunArgs, ui: Ui) -> CommandResult {
    if args.ranks.mpi && args.server.server.is_some() {
        return Err(CommandFailure::usage(
            "--mpi and --server: one of them, since the model runs there or here",
        ));
    }
    // A follower reads no prompt: `mpirun` gives standard input to rank 0.
    if args.ranks.is_follower()? {
        let options = args.cpu.with_context(&args.context);
        return args.ranks.follow(&args.model.load(ui)?, options, ui);
    }
    if args.text.is_interactive() && !args.json && !args.ranks.mpi {
        return chat::run(&args.as_chat(), ui);
    }
    let text = args.text.read()?;
    check_not_empty(&text)?;
    if let Some(server) = args.server.open()? {
        return remote::run(args, &server, &text, ui);
    }
    let images = read_images(&args.images)?;
    let model = args.model.model(&args.vision, ui)?;
    let (how, params) = generate_params(&model, &args.sampling, &args.length)?;
    // A fault in a vision encoder is reported before oddities of a vocabulary.
    let is_chat = args.is_chat(&model, &text)?;
    let mut prompt = prompt(args, &model, (&text, is_chat), images, ui)?;
    let session = session(args, &model, ui)?;
    ui.detail(format_args!("seed {}", params.sampling.seed));
    check_length(&session, prompt.tokens().len(), &params, ui)?;
    let mut images = ImageBar::new(ui);
    session.read_images(&mut prompt, &how, &mut |event| images.tell(&event))?;
    drop(images);
    let seen = prompt.images_read().cloned();
    let mut printer = Printer::new(args, &text, is_chat)?;
    let generation = printer.stream(ui, |on_event| {
        let mut kept = match &args.session.session {
            Some(path) => session.kept_in(path)?,
            None => return Ok(session.generate_prepared(prompt, &how, on_event)?),
        };
        ui.detail(format_args!("{} tokens in the file", kept.n_tokens()));
        let generation = kept.generate_prepared(prompt, &how, on_event)?;
        kept.save()?;
        Ok(generation)
    })?;
    let (mut details, mut lines) = session.with_engine(|engine| about(engine, &generation));
    if let Some(stats) = session.speculation() {
        details["speculation"] = draft_args::json(&stats);
        lines.push(draft_args::line(&stats));
    }
    if let Some(seen) = &seen {
        about_images(&mut details, args, seen);
        lines.insert(0, image_line(args, seen));
    }
    let report = to_json(&model, &params, &generation, details);
    finish(args, &generation, report, &lines, printer.out, ui)
}

/// Refuses a prompt that does not fit, and warns beyond the context that the model was trained for.
fn check_length(
    session: &Session,
    n_prompt: usize,
    params: &GenerateParams,
    ui: Ui,
) -> CommandResult {
    session.with_engine(|engine| engine.check_context(n_prompt, params.least_tokens()))?;
    let loaded = session.model().loaded();
    warn_beyond_training(ui, loaded, session.n_ctx(), n_prompt, params.max_tokens);
    Ok(())
}

/// Loads the model on its device, with its drafter.
fn session(args: &RunArgs, model: &Model, ui: Ui) -> CommandResult<Session> {
    let options = args.cpu.with_context(&args.context);
    let draft = args
        .draft
        .open(model.loaded(), &args.model, &args.device, &options, ui)?;
    let own = EngineOptions {
        adapters: args.lora.open(model.loaded(), ui)?,
        ..options.clone()
    };
    let engine = args.ranks.make(&args.device, model.loaded(), own, ui)?;
    let speculator = match &draft {
        Some(draft) => {
            draft.refuse_images(args.images.len())?;
            Some(draft.speculator(&*engine, &args.device, &options, ui)?)
        }
        None => None,
    };
    Ok(Session::over(model, engine, speculator))
}

fn about_images(details: &mut Value, args: &RunArgs, seen: &ImageReading) {
    details["images"] = json!(args.images);
    details["image_ms"] = json!(seen.time.as_secs_f64() * 1e3);
    details["vision_encoder"] = seen
        .on_device
        .as_ref()
        .map(device_stats::vision_json)
        .into();
}

/// The device of a generation, and the lines about it.
fn about(engine: &dyn Engine, generation: &Generation) -> (Value, Vec<String>) {
    let mut details = json!({
        "n_ctx": engine.limits().n_ctx,
        "threads": engine.cpu().pool().n_threads(),
        "cpu_level": engine.cpu().level().name(),
    });
    let mut lines = device_stats::lines(engine, stats::line(generation));
    lines.extend(ranks::line(engine));
    if let Some(npu) = device_stats::json(engine) {
        details["npu"] = npu;
    }
    if let Some(ranks) = ranks::json(engine) {
        details["ranks"] = ranks;
    }
    (details, lines)
}

impl RunArgs {
    /// Whether the text is a chat message. It is one also where images come before it and it has no places for them.
    fn is_chat(&self, model: &Model, text: &str) -> CommandResult<bool> {
        let is_asked = self.chat || self.system.is_some();
        if is_asked || self.images.is_empty() {
            return Ok(is_asked);
        }
        Ok(!model.image_reader()?.encoder().has_places(text))
    }
}

/// Line about the time to read the images.
fn image_line(args: &RunArgs, seen: &ImageReading) -> String {
    let n = args.images.len();
    let n_rows: usize = seen.images.iter().map(|image| image.n_rows()).sum();
    let images = if n == 1 { "image" } else { "images" };
    let seconds = seen.time.as_secs_f64();
    let line = format!("{n} {images} in {seconds:.1} s, {n_rows} tokens");
    match &seen.on_device {
        Some(run) => format!("{line}; {}", device_stats::encoder(run)),
        None => line,
    }
}

/// Builds the prompt in the model's form, with placeholders for the rows of images.
fn prompt(
    args: &RunArgs,
    model: &Model,
    (text, is_chat): (&str, bool),
    images: Vec<RgbImage>,
    ui: Ui,
) -> CommandResult<PromptTokens> {
    if !images.is_empty() {
        model.image_reader()?;
    }
    warn(&model.loaded().tokenizer()?.warnings(), ui);
    let mut prompt = match is_chat {
        true => Prompt::user(text),
        false => Prompt::text(text),
    };
    if let Some(system) = &args.system {
        prompt = prompt.system(system);
    }
    let prepared = model.prepare(images.into_iter().fold(prompt, Prompt::image))?;
    warn(prepared.warning(), ui);
    Ok(prepared)
}

/// Streams a generation: a progress bar while the prompt is read, then the text.
struct Printer {
    out: Out,
    progress: Option<ProgressDisplay>,
    failure: Option<CommandFailure>,
    silent: bool,
}

impl Printer {
    /// Starts the output with the prompt, if it is to be shown.
    fn new(args: &RunArgs, text: &str, is_chat: bool) -> CommandResult<Printer> {
        let mut out = Out::new();
        // `mpirun` reads the output through a terminal of its own.
        let is_terminal = std::io::stdout().is_terminal() && !args.ranks.mpi;
        if !args.json && (args.echo || is_terminal) {
            out.text(Paint::Bold.stdout(&printable(text)))?;
            out.flush()?;
            if is_chat {
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

    /// Runs `work`, which generates, and prints its events.
    fn stream(
        &mut self,
        ui: Ui,
        work: impl FnOnce(&mut dyn FnMut(Event<'_>)) -> CommandResult<Generation>,
    ) -> CommandResult<Generation> {
        let mut on_event = |event: Event<'_>| match event {
            Event::Prompt { done, total } if done < total => {
                let progress = self.progress.get_or_insert_with(|| {
                    let progress = ProgressDisplay::steps(ui, total as u64);
                    progress.message("reading the prompt");
                    progress
                });
                progress.set(done as u64);
            }
            Event::Prompt { .. } => self.progress = None,
            Event::Text(text) if !self.silent => {
                if let Err(failure) = self.out.stream(text) {
                    self.failure = Some(failure);
                    // The reader has gone: stop as Ctrl-C would.
                    interrupt::raise();
                }
            }
            _ => {}
        };
        let result = work(&mut on_event);
        self.progress = None;
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => result,
        }
    }
}

/// Prints the last line, the JSON object or the statistics; returns the exit code of a stopped run.
fn finish(
    args: &RunArgs,
    generation: &Generation,
    report: Value,
    lines: &[String],
    mut out: Out,
    ui: Ui,
) -> CommandResult {
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
        Finish::Cancelled => Err(CommandFailure::interrupted()),
        _ => Ok(()),
    }
}

/// Result of a run, with `details` of its device.
fn to_json(
    model: &Model,
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
