//! `tools` and `tool_choice` of OpenAI's APIs, which Ollama's clients use too.

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::tools::{CallKind, MAX_TOOLS, Tool, ToolChoice, Tools, name_of, too_many};
use serde_json::{Value, json};

/// Reads `tools`, `tool_choice`, `parallel_tool_calls`. In responses, a function's fields are beside its type. Tools
/// that the server itself would have to run are left out: clients name them in every request, and work without.
pub(crate) fn tools(fields: &Fields<'_>) -> Result<Tools, ApiError> {
    let mut tools = Tools {
        parallel: fields.bool("parallel_tool_calls")?.unwrap_or(true),
        ..Tools::default()
    };
    let given = fields.list("tools")?.unwrap_or_default();
    if given.len() > MAX_TOOLS {
        return Err(too_many());
    }
    for (i, value) in given.iter().enumerate() {
        add(Fields::at(value, format!("tools[{i}]"))?, &mut tools)?;
    }
    choose(fields, &mut tools)?;
    Ok(tools)
}

fn add(tool: Fields<'_>, tools: &mut Tools) -> Result<(), ApiError> {
    match tool.text("type")?.unwrap_or("function") {
        "function" => {
            let function = tool.object("function")?.unwrap_or(tool);
            tools.offer(Tool::new(&function, "parameters")?, &function)?;
        }
        "custom" => {
            let custom = tool.object("custom")?.unwrap_or(tool);
            let (tool, left_out) = custom_tool(&custom)?;
            tools.offer(tool, &custom)?;
            tools.left_out.extend(left_out);
        }
        "namespace" => namespace(&tool, tools)?,
        other => tools.left_out.push(not_run(&tool, other)),
    }
    Ok(())
}

fn not_run(tool: &Fields<'_>, kind: &str) -> String {
    let kind: String = kind.chars().take(64).collect();
    format!("{}: this server runs no `{kind}`", tool.path("type"))
}

/// A tool that takes a text: a function of one string. Its grammar is described to the model and not enforced.
fn custom_tool(custom: &Fields<'_>) -> Result<(Tool, Option<String>), ApiError> {
    let mut tool = Tool::new(custom, "")?;
    tool.kind = CallKind::Custom;
    tool.path = custom.path("format");
    tool.parameters = json!({
        "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        "additionalProperties": false,
    });
    let Some(format) = custom.object("format")? else {
        return Ok((tool, None));
    };
    match format.need("type", format.text("type")?)? {
        "text" => Ok((tool, None)),
        "grammar" => {
            let grammar = format.object("grammar")?.unwrap_or(format);
            let definition = grammar.need("definition", grammar.text("definition")?)?;
            let syntax = grammar.text("syntax")?.unwrap_or("lark");
            tool.description += &format!("\n\nThe input is of this form ({syntax}):\n{definition}");
            let left_out = format!("{} ({}): the grammar", tool.path, tool.name);
            Ok((tool, Some(left_out)))
        }
        other => {
            let message = format!("expected text or grammar, found \"{other}\"");
            Err(ApiError::field(&format.path("type"), message))
        }
    }
}

/// Functions in a namespace: the model gets each under its qualified name.
fn namespace(tool: &Fields<'_>, tools: &mut Tools) -> Result<(), ApiError> {
    let namespace = name_of(tool)?;
    let inner = tool.need("tools", tool.list("tools")?)?;
    for (i, value) in inner.iter().enumerate() {
        let function = Fields::at(value, format!("{}[{i}]", tool.path("tools")))?;
        match function.text("type")?.unwrap_or("function") {
            "function" => {}
            other => {
                tools.left_out.push(not_run(&function, other));
                continue;
            }
        }
        let fields = function;
        let mut function = Tool::new(&fields, "parameters")?;
        function.kind = CallKind::InNamespace {
            namespace: namespace.to_owned(),
            name: function.name.clone(),
        };
        function.name = qualified(Some(namespace), &function.name);
        tools.offer(function, &fields)?;
    }
    Ok(())
}

/// The model's name for a function of a namespace.
pub(crate) fn qualified(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) if namespace.ends_with(['_', '.']) => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

fn choose(fields: &Fields<'_>, tools: &mut Tools) -> Result<(), ApiError> {
    let path = fields.path("tool_choice");
    let Some(value) = fields.get("tool_choice") else {
        return Ok(());
    };
    let word = match value {
        Value::String(word) => word.as_str(),
        Value::Object(_) => {
            let choice = Fields::at(value, path)?;
            match choice.text("type")?.unwrap_or("function") {
                "function" | "custom" => {
                    tools.choice = ToolChoice::Named(named(&choice, tools)?);
                    return Ok(());
                }
                "allowed_tools" => return allow(&choice, tools),
                word @ ("auto" | "none" | "required" | "any") => return by_word(word, "", tools),
                other => {
                    let message = format!("this server runs no tools itself, such as \"{other}\"");
                    return Err(ApiError::field(&choice.path("type"), message));
                }
            }
        }
        other => return Err(wrong(&path, "auto, none, required or a function", other)),
    };
    by_word(word, &path, tools)
}

fn by_word(word: &str, path: &str, tools: &mut Tools) -> Result<(), ApiError> {
    tools.choice = match word {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" | "any" => ToolChoice::Required,
        other => {
            let message = format!("expected auto, none, required or a function, found \"{other}\"");
            return Err(ApiError::field(path, message));
        }
    };
    Ok(())
}

/// The function that a choice names, by the model's name for it.
fn named(choice: &Fields<'_>, tools: &Tools) -> Result<String, ApiError> {
    let inner = match choice.object("function")? {
        Some(inner) => Some(inner),
        None => choice.object("custom")?,
    };
    let inner = inner.unwrap_or_else(|| choice.clone());
    let name = inner.need("name", inner.text("name")?)?;
    if let Some(namespace) = inner.text("namespace")? {
        return Ok(qualified(Some(namespace), name));
    }
    if tools.list.iter().any(|tool| tool.name == name) {
        return Ok(name.to_owned());
    }
    let is_it =
        |tool: &&Tool| matches!(&tool.kind, CallKind::InNamespace { name: own, .. } if own == name);
    let found = tools.list.iter().find(is_it);
    Ok(found.map_or(name, |tool| &tool.name).to_owned())
}

/// Allows only some of the tools to be called. The model is shown the others too.
fn allow(choice: &Fields<'_>, tools: &mut Tools) -> Result<(), ApiError> {
    let inner = choice.object("allowed_tools")?;
    let inner = inner.unwrap_or_else(|| choice.clone());
    by_word(
        inner.text("mode")?.unwrap_or("auto"),
        &inner.path("mode"),
        tools,
    )?;
    let list = inner.need("tools", inner.list("tools")?)?;
    let mut allowed = Vec::new();
    for (i, value) in list.iter().enumerate() {
        let one = Fields::at(value, format!("{}[{i}]", inner.path("tools")))?;
        match one.text("type")?.unwrap_or("function") {
            "function" | "custom" => {}
            other => {
                tools.left_out.push(not_run(&one, other));
                continue;
            }
        }
        let name = named(&one, tools)?;
        if !tools.list.iter().any(|tool| tool.name == name) {
            let message = format!("there is no function `{name}` in tools");
            return Err(ApiError::field(&inner.path("tools"), message));
        }
        allowed.push(name);
    }
    if allowed.is_empty() && tools.choice == ToolChoice::Auto {
        tools.choice = ToolChoice::None;
    }
    tools.allowed = Some(allowed);
    Ok(())
}
