//! Requests of Anthropic's messages.

use millrace_runtime::GenerateParams;
use millrace_text::Message;

use super::content::{message, system};
use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::openai::messages::MAX_MESSAGES;
use crate::api::params::{default_sampling, response_format, seed, set, stop_texts, top_k};
use crate::api::prompt::Conversation;
use crate::api::thinking::ThinkingRequest;
use crate::api::tools::{MAX_TOOLS, Tool, ToolChoice, Tools, too_many};
use crate::scheduler::ModelInfo;

pub(super) fn params(fields: &Fields<'_>, loaded: &ModelInfo) -> Result<GenerateParams, ApiError> {
    let mut sampling = default_sampling(loaded);
    set(
        &mut sampling.temperature,
        fields.f32_in("temperature", 0.0, 1.0)?,
    );
    set(&mut sampling.top_p, fields.f32_in("top_p", 0.0, 1.0)?);
    sampling.top_p = sampling.top_p.max(f32::MIN_POSITIVE);
    set(&mut sampling.top_k, top_k(fields)?);
    sampling.seed = seed(fields)?;
    fields.need("max_tokens", fields.get("max_tokens"))?;
    Ok(GenerateParams {
        sampling,
        max_tokens: fields.limit("max_tokens")?,
        stop: stop_texts(fields, "stop_sequences")?,
        stop_tokens: Vec::new(),
        ignore_end: false,
        show_special: false,
    })
}

pub(super) fn conversation(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    let mut messages = Vec::new();
    if let Some(given) = fields.get("system") {
        let text = system(given, &fields.path("system"))?;
        if !text.is_empty() {
            messages.push(Message::system(text));
        }
    }
    let list = fields.need("messages", fields.list("messages")?)?;
    if list.len() > MAX_MESSAGES {
        let message = format!("at most {MAX_MESSAGES} messages are accepted");
        return Err(ApiError::field("messages", message));
    }
    for (i, value) in list.iter().enumerate() {
        message(value, &format!("messages[{i}]"), &mut messages)?;
    }
    let form = match fields.object("output_config")? {
        Some(config) => response_format(config.object("format")?)?,
        None => None,
    };
    Ok(Conversation {
        messages,
        tools: tools(fields)?,
        form,
        thinking: ThinkingRequest::of_anthropic(fields)?,
        ..Conversation::default()
    })
}

/// Reads the tools. Tools that the server itself would have to run are left out, if there are others: clients that
/// offer them work without.
fn tools(fields: &Fields<'_>) -> Result<Tools, ApiError> {
    let given = fields.list("tools")?.unwrap_or_default();
    if given.len() > MAX_TOOLS {
        return Err(too_many());
    }
    let mut tools = Tools {
        parallel: true,
        ..Tools::default()
    };
    let mut not_run: Vec<(String, ApiError)> = Vec::new();
    for (i, value) in given.iter().enumerate() {
        let tool = Fields::at(value, format!("tools[{i}]"))?;
        match tool.text("type")?.filter(|kind| *kind != "custom") {
            None => {
                tool.need("input_schema", tool.get("input_schema"))?;
                tools.offer(Tool::new(&tool, "input_schema")?, &tool)?;
            }
            Some(kind) => {
                let message = format!("this server runs no tools itself, such as \"{kind}\"");
                let name = tool.text("name")?.unwrap_or_default().to_owned();
                not_run.push((name, ApiError::field(&tool.path("type"), message)));
            }
        }
    }
    if let Some(choice) = fields.object("tool_choice")? {
        choose(&choice, &mut tools)?;
    }
    let is_chosen = |name: &String| tools.choice == ToolChoice::Named(name.clone());
    let at_fault = not_run
        .iter()
        .find(|(name, _)| tools.list.is_empty() || is_chosen(name));
    if let Some((_, error)) = at_fault {
        return Err(error.clone());
    }
    tools
        .left_out
        .extend(not_run.into_iter().map(|(_, error)| error.message));
    Ok(tools)
}

fn choose(choice: &Fields<'_>, tools: &mut Tools) -> Result<(), ApiError> {
    tools.parallel = !choice.bool("disable_parallel_tool_use")?.unwrap_or(false);
    tools.choice = match choice.need("type", choice.text("type")?)? {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(choice.need("name", choice.text("name")?)?.to_owned()),
        other => {
            let message = format!("expected auto, any, tool or none, found \"{other}\"");
            return Err(ApiError::field(&choice.path("type"), message));
        }
    };
    Ok(())
}
