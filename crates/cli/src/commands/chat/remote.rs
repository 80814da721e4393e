//! `chat --server`: a conversation kept here and answered by a running server.

use super::input::{ChatInput, Input};
use super::{ChatArgs, help, saved};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::interrupt;
use crate::output::{Out, Paint, Ui};
use crate::remote::{Server, user_message};
use millrace_text::Message;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A conversation with a model on a server. Each request sends the whole conversation; the server
/// caches the parts it knows.
struct Remote<'a> {
    args: &'a ChatArgs,
    server: Server,
    system: Option<String>,
    messages: Vec<Message>,
    /// Image files for the next message.
    shown: Vec<String>,
    last: Option<String>,
}

pub(super) fn run(args: &ChatArgs, server: Server, ui: Ui) -> CommandResult {
    let described = server.describe(&args.model.model)?;
    if let Some(device) = described["device"].as_str() {
        ui.detail(format_args!(
            "{} at {}, on {device}",
            args.model.model,
            server.base()
        ));
    }
    let mut remote = Remote {
        args,
        server,
        system: args.system.clone(),
        messages: Vec::new(),
        shown: Vec::new(),
        last: None,
    };
    for path in &args.images {
        remote.show(path)?;
    }
    let mut input = Input::new(ui)?;
    if input.is_terminal() {
        let name = &args.model.model;
        let note = format!(
            "{name} at {}: /help for help, Ctrl-D to leave",
            remote.server.base()
        );
        ui.note(Paint::Dim.stderr(&note));
    }
    let mut out = Out::new();
    loop {
        match input.next()? {
            ChatInput::End => return Ok(()),
            ChatInput::Message(text) => remote.say(text, &mut out, ui, input.is_terminal())?,
            ChatInput::Command(name, _) if name == "exit" => return Ok(()),
            ChatInput::Command(name, rest) => {
                // A mistyped command must not end a conversation.
                if let Err(failure) = remote.command(&name, &rest, &mut out, ui) {
                    crate::output::report(&failure);
                }
            }
        }
    }
}

impl Remote<'_> {
    /// Sends one message and prints its answer. If that fails, the message is dropped; a stopped answer is kept
    /// up to where it stopped.
    fn say(&mut self, text: String, out: &mut Out, ui: Ui, is_terminal: bool) -> CommandResult {
        interrupt::clear();
        // On a terminal the conversation goes on after a stopped answer.
        let _patience = is_terminal.then(interrupt::patience);
        self.messages
            .push(Message::user(text).with_images(self.shown.clone()));
        let mut failure = None;
        let body = self.body()?;
        let answer = self
            .server
            .stream("/v1/chat/completions", body, &mut |text| {
                if let Err(error) = out.stream(text) {
                    failure = Some(error);
                    interrupt::raise();
                }
            });
        if let Some(failure) = failure {
            return Err(failure);
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                self.messages.pop();
                // A request that the server refuses must not end the conversation; a script should see the error.
                if is_terminal && matches!(failure.exit, Exit::Usage | Exit::Failed) {
                    crate::output::report(&failure);
                    return Ok(());
                }
                return Err(failure);
            }
        };
        self.shown.clear();
        self.messages.push(Message::assistant(answer.text.clone()));
        out.line("")?;
        out.flush()?;
        let line = answer.line();
        ui.note(Paint::Dim.stderr(&format!("[{line}]")));
        self.last = Some(line);
        match answer.was_stopped && !is_terminal {
            true => Err(CommandFailure::interrupted()),
            false => {
                interrupt::clear();
                Ok(())
            }
        }
    }

    fn body(&self) -> CommandResult<Value> {
        let mut messages = Vec::new();
        let system = self.system.as_ref();
        messages.extend(system.map(|text| json!({"role": "system", "content": text})));
        for message in &self.messages {
            let images: Vec<PathBuf> = message.images.iter().map(PathBuf::from).collect();
            messages.push(match message.role.as_str() {
                "user" => user_message(&message.content, &images)?,
                role => json!({"role": role, "content": message.content}),
            });
        }
        let mut body = json!({"model": self.args.model.model, "messages": messages});
        let fields = self.args.sampling.fields()?.into_iter();
        if let Some(body) = body.as_object_mut() {
            body.extend(fields.chain(self.args.length.fields(None)?));
        }
        Ok(body)
    }

    fn show(&mut self, path: &Path) -> CommandResult {
        // Read now, so that a fault in the file shows before the message is sent.
        user_message("", &[path.to_owned()])?;
        self.shown.push(path.display().to_string());
        Ok(())
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.shown.clear();
        self.last = None;
    }

    fn command(&mut self, name: &str, rest: &str, out: &mut Out, ui: Ui) -> CommandResult {
        let path = || match rest {
            "" => Err(CommandFailure::usage(format!("/{name} needs a file name"))),
            path => Ok(Path::new(path)),
        };
        match name {
            "image" => {
                self.show(path()?)?;
                ui.note(format_args!("{rest}: shown with the next message"));
            }
            "clear" => {
                self.clear();
                ui.note("starting over");
            }
            "system" => {
                self.system = Some(rest.to_owned()).filter(|text| !text.is_empty());
                self.clear();
                ui.note(if rest.is_empty() {
                    "no instructions"
                } else {
                    "instructions set"
                });
            }
            "save" => {
                let system = self
                    .system
                    .iter()
                    .map(|text| Message::system(text.as_str()));
                let messages = system.chain(self.messages.iter().cloned()).collect();
                saved::write(path()?, &self.args.model.model, messages)?;
                ui.note(format_args!("saved to {rest}"));
            }
            "load" => {
                let (system, messages) = saved::read(path()?)?;
                self.clear();
                (self.system, self.messages) = (system, messages);
                ui.note(format_args!("{} messages loaded", self.messages.len()));
            }
            "stats" => {
                let last = self.last.as_deref().unwrap_or("no answer yet");
                let n = self.messages.len();
                out.line(format_args!("{last}\n{n} messages; {}", self.server.base()))?;
            }
            "help" => out.line(help())?,
            other => {
                let hint =
                    "/help lists the commands; to begin a message with a slash, put a space first";
                return Err(CommandFailure::usage(format!("no command /{other}")).hint(hint));
            }
        }
        out.flush()
    }
}
