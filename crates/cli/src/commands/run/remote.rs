//! `run --server`: sends the prompt to a running server.

use super::{Printer, RunArgs};
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::output::{Paint, Ui};
use crate::remote::{Server, user_message};
use serde_json::{Value, json};

pub(super) fn run(args: &RunArgs, server: &Server, text: &str, ui: Ui) -> CommandResult {
    let model = &args.model.model;
    let described = server.describe(model)?;
    let n_ctx = described["max_model_len"].as_u64();
    if let Some(device) = described["device"].as_str() {
        ui.detail(format_args!("{model} at {}, on {device}", server.base()));
    }
    let is_chat = args.chat || args.system.is_some() || !args.images.is_empty();
    let (path, mut body) = match is_chat {
        true => ("/v1/chat/completions", chat(args, text)?),
        false => ("/v1/completions", json!({"prompt": text})),
    };
    body["model"] = model.as_str().into();
    let fields = args.sampling.fields()?.into_iter();
    // A chat answer ends by itself. A text completion in this API ends after 16 tokens unless a limit is given.
    let length = args.length.fields(n_ctx.filter(|_| !is_chat))?;
    if let Some(body) = body.as_object_mut() {
        body.extend(fields.chain(length));
    }
    let mut printer = Printer::new(args, text, is_chat)?;
    let mut failure = None;
    let answer = server.stream(path, body, &mut |text| {
        if !args.json
            && let Err(error) = printer.out.stream(text)
        {
            failure = Some(error);
            // The reader has gone: stop as Ctrl-C would.
            interrupt::raise();
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let answer = answer?;
    let mut out = printer.out;
    if args.json {
        let mut report = answer.json();
        report["model"] = model.as_str().into();
        report["server"] = server.base().into();
        out.json(&report)?;
    } else if !answer.text.ends_with('\n') {
        out.line("")?;
    }
    out.flush()?;
    ui.note(Paint::Dim.stderr(&format!("[{}]", answer.line())));
    match answer.was_stopped {
        true => Err(CommandFailure::interrupted()),
        false => Ok(()),
    }
}

fn chat(args: &RunArgs, text: &str) -> CommandResult<Value> {
    let system = args.system.as_ref();
    let system = system.map(|text| json!({"role": "system", "content": text}));
    let messages = system
        .into_iter()
        .chain([user_message(text, &args.images)?]);
    Ok(json!({"messages": messages.collect::<Vec<_>>()}))
}
