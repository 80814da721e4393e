//! `millrace chat`: a conversation at the terminal.

mod conversation;
mod input;
mod remote;
mod saved;

use crate::device_stats;
use crate::draft_args::{self, DraftArgs};
use crate::engine_args::{ContextArgs, CpuArgs, SessionArgs, warn_beyond_training};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::image_args::VisionArgs;
use crate::interrupt;
use crate::lora_args::LoraArgs;
use crate::model_arg::{ModelArgs, warn};
use crate::output::{Out, Paint, Ui};
use crate::remote::ServerArgs;
use crate::sampling_args::{LengthArgs, SamplingArgs, generate_params};
use crate::stats;
use crate::target_args::{DeviceArgs, examples};
use conversation::Conversation;
use input::{ChatInput, Input};
use millrace::{Chat, Event, Finish, Session};
use millrace_runtime::EngineOptions;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace chat demo
  millrace chat demo --device {npu}                answers of a simulated NPU
  millrace chat demo --draft demo-draft           a small model drafts: the same answers, faster
  millrace chat hf:OWNER/REPO:Q4_K_M --system \"Answer in one sentence.\"
  millrace chat demo --session talk.kv            continues where the last run with this file ended
  millrace chat demo --server http://127.0.0.1:8080    answered by a running `millrace serve`
  printf 'Hello!\\nAnd now?\\n' | millrace chat demo --greedy    each line is a message

In the conversation:
  /system TEXT    set the system prompt (starts over; without TEXT: none)
  /image FILE     show an image with the next message (PNG, JPEG, WebP; models with vision)
  /clear          start over, keeping the system prompt
  /save FILE      write the conversation as JSON; /load FILE restores it
  /stats          tokens and times of the last answer
  /help, /exit    Ctrl-C stops an answer, Ctrl-D ends the conversation
  A line ending in \\ continues on the next; \"\"\" on its own line begins and ends several lines.";

/// Chat with a model
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// System prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Image to show with the first message, as /image does; may be repeated
    #[arg(long = "image", help_heading = "Images", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) vision: VisionArgs,
    #[command(flatten)]
    pub(crate) length: LengthArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) cpu: CpuArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) lora: LoraArgs,
}

pub(crate) fn run(args: &ChatArgs, ui: Ui) -> CommandResult {
    if let Some(server) = args.server.open()? {
        return remote::run(args, server, ui);
    }
    let model = args.model.model(&args.vision, ui)?;
    let (how, _) = generate_params(&model, &args.sampling, &args.length)?;
    let loaded = model.loaded();
    warn(&loaded.tokenizer()?.warnings(), ui);
    let options = args.cpu.with_context(&args.context);
    let draft = args
        .draft
        .open(loaded, &args.model, &args.device, &options, ui)?;
    // The conversation stays cached after it is cleared or changed.
    let own = EngineOptions {
        keep_prefixes: true,
        adapters: args.lora.open(loaded, ui)?,
        ..options.clone()
    };
    let engine = args.device.make(loaded, own, ui)?;
    let speculator = match &draft {
        Some(draft) => {
            draft.refuse_images(args.images.len())?;
            Some(draft.speculator(&*engine, &args.device, &options, ui)?)
        }
        None => None,
    };
    let session = Session::over(&model, engine, speculator);
    warn_beyond_training(ui, loaded, session.n_ctx(), 0, None);
    let mut chat = session.chat()?.options(&how);
    if let Some(system) = &args.system {
        chat = chat.system(system);
    }
    if let Some(path) = &args.session.session {
        keep(&mut chat, path, args.system.as_deref(), ui)?;
    }
    let mut conversation = Conversation::new(chat);
    for path in &args.images {
        conversation.show(path)?;
    }
    let mut input = Input::new(ui)?;
    if input.is_terminal() {
        ui.note(Paint::Dim.stderr(&format!(
            "{}: /help for help, Ctrl-D to leave",
            model.name()
        )));
    }
    let ended = converse(&mut conversation, &mut input, ui);
    // The conversation is worth keeping, however it ended.
    let kept = conversation.keep();
    ended.and(kept)
}

/// Continues the conversation of a file, if it holds one.
fn keep(chat: &mut Chat, path: &Path, system: Option<&str>, ui: Ui) -> CommandResult {
    let n = chat.keep_in(path)?;
    let kept = chat.messages();
    let instructions = kept.first().filter(|first| first.role == "system");
    let instructions = instructions.map(|first| first.content.as_str());
    if system.is_some() && system != instructions {
        let message = format!(
            "{}: its conversation has other instructions",
            path.display()
        );
        let hint = "leave --system out, or name another file";
        return Err(CommandFailure::usage(message).hint(hint));
    }
    if n > 0 {
        ui.note(format_args!("{n} messages from {}", path.display()));
    }
    Ok(())
}

/// Handles messages until there are no more.
fn converse(conversation: &mut Conversation, input: &mut Input, ui: Ui) -> CommandResult {
    let mut out = Out::new();
    loop {
        match input.next()? {
            ChatInput::End => return Ok(()),
            ChatInput::Message(text) => say(conversation, text, &mut out, ui, input.is_terminal())?,
            ChatInput::Command(name, rest) => {
                if name == "exit" {
                    return Ok(());
                }
                // A mistyped command must not end a conversation.
                if let Err(failure) = command(conversation, &name, &rest, &mut out, ui) {
                    crate::output::report(&failure);
                }
            }
        }
    }
}

/// Sends one message and prints its answer.
fn say(
    conversation: &mut Conversation,
    text: String,
    out: &mut Out,
    ui: Ui,
    is_terminal: bool,
) -> CommandResult {
    interrupt::clear();
    // On a terminal the conversation goes on after a stopped answer.
    let _patience = is_terminal.then(interrupt::patience);
    let mut failure = None;
    let answer = conversation.answer(text, ui, &mut |event| {
        if let Event::Text(text) = event
            && let Err(error) = out.stream(text)
        {
            failure = Some(error);
            interrupt::raise();
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let answer = match answer {
        // A message that is too long must not end the conversation; a script should see the error.
        Err(failure) if failure.exit == Exit::Usage && is_terminal => {
            crate::output::report(&failure);
            return Ok(());
        }
        // Interrupted while reading an image: the image goes with the next message.
        Err(failure) if failure.exit == Exit::Interrupted && is_terminal => {
            interrupt::clear();
            return Ok(());
        }
        other => other?,
    };
    out.line("")?;
    out.flush()?;
    let mut lines = Vec::new();
    conversation.session().with_engine(|engine| {
        lines = device_stats::lines(engine, stats::line(&answer));
    });
    lines.extend(conversation.speculation().map(|s| draft_args::line(&s)));
    for line in lines {
        ui.note(Paint::Dim.stderr(&format!("[{line}]")));
    }
    match answer.finish {
        Finish::Cancelled if !is_terminal => Err(CommandFailure::interrupted()),
        _ => {
            interrupt::clear();
            Ok(())
        }
    }
}

/// Runs a command, from a line that begins with a slash.
fn command(
    conversation: &mut Conversation,
    name: &str,
    rest: &str,
    out: &mut Out,
    ui: Ui,
) -> CommandResult {
    let path = || match rest {
        "" => Err(CommandFailure::usage(format!("/{name} needs a file name"))),
        path => Ok(Path::new(path)),
    };
    match name {
        "image" => {
            let size = conversation.show(path()?)?;
            ui.note(format_args!("{rest}: {size}, shown with the next message"));
        }
        "clear" => {
            conversation.clear()?;
            ui.note("starting over");
        }
        "system" => {
            conversation.set_system(
                Some(rest)
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned),
            )?;
            ui.note(if rest.is_empty() {
                "no instructions"
            } else {
                "instructions set"
            });
        }
        "save" => {
            conversation.save(path()?)?;
            ui.note(format_args!("saved to {rest}"));
        }
        "load" => {
            let n = conversation.load(path()?)?;
            ui.note(format_args!("{n} messages loaded"));
        }
        "stats" => out.line(conversation.stats())?,
        "help" => out.line(help())?,
        other => {
            let hint =
                "/help lists the commands; to begin a message with a slash, put a space first";
            return Err(CommandFailure::usage(format!("no command /{other}")).hint(hint));
        }
    }
    out.flush()
}

/// Part of the help text about the conversation.
fn help() -> &'static str {
    EXAMPLES
        .split_once("In the conversation:\n")
        .map_or(EXAMPLES, |(_, help)| help)
}
