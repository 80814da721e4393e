//! Which ways of writing a chat template shows.

use millrace_text::{ChatTemplate, Message, RenderOptions, Tokenizer};
use serde_json::{Value, json};

use super::calls::{CallSyntax, by_template};
use super::derive;
use super::reader::{AnswerPart, AnswerReader, Names};
use super::thoughts::thought_syntax;

/// How calls are written by a model, if its template shows functions, in a way that is known here or that it shows. `sources` are its
/// templates, `has_token` asks the vocabulary, `render` renders; what it returns for no text is an error of the caller's.
///
/// # Errors
/// A template that renders no conversation at all.
pub(crate) fn shown_calls<E>(
    sources: &str,
    has_token: impl Fn(&str) -> bool,
    render: impl Fn(&[Message], &RenderOptions) -> Result<String, E>,
) -> Result<Option<CallSyntax>, E> {
    let messages = [Message::user("?")];
    let plain = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let with_tools = RenderOptions {
        tools: Some(derive::functions()),
        ..plain.clone()
    };
    let prompt = match render(&messages, &with_tools) {
        Ok(prompt) if prompt.contains(derive::NAMES[0]) => prompt,
        Ok(_) => return Ok(None),
        // A template that cannot render them does not know them; if it renders nothing, that is told.
        Err(_) => return render(&messages, &plain).map(|_| None),
    };
    if let Some(known) = by_template(sources, has_token) {
        return Ok(Some(*known));
    }
    // By a conversation with some.
    let mut answer = Message::assistant("");
    answer
        .fields
        .insert("tool_calls".to_owned(), derive::calls());
    let options = RenderOptions {
        add_generation_prompt: false,
        ..with_tools
    };
    let with = render(&[Message::user("?"), answer], &options).ok();
    Ok(with.and_then(|with| derive::derived(&prompt, &with)))
}

/// What a template shows, for `tools/check_templates.py`: `source` is the template's, `conversations` a list of objects with `messages`, and perhaps
/// `tools` and `add_generation_prompt`. The answer has `rendered`, a text or `null` for each; `calls` and `thoughts`, the names of the ways; and
/// `read`, whether the call that the template writes is read again (`null` where it writes none).
///
/// # Errors
/// A template that does not parse.
pub fn template_ways(
    source: &str,
    (bos, eos): (&str, &str),
    conversations: &[Value],
    tokenizer: &Tokenizer,
) -> Result<Value, String> {
    let template = ChatTemplate::new("the template", source, Some(bos), Some(eos));
    let template = template.map_err(|error| error.to_string())?;
    let rendered: Vec<Option<String>> = conversations
        .iter()
        .map(|one| {
            let options = RenderOptions {
                add_generation_prompt: one["add_generation_prompt"] == true,
                tools: one.get("tools").filter(|tools| !tools.is_null()).cloned(),
                ..RenderOptions::default()
            };
            template.render_json(&one["messages"], &options).ok()
        })
        .collect();
    // The vocabulary has what the template names.
    let has_token = |text: &str| source.contains(text);
    let calls = shown_calls(source, has_token, |messages, options| {
        template.render(messages, options)
    });
    let calls = calls.ok().flatten();
    let thoughts = thought_syntax(source, tokenizer).map(|thoughts| thoughts.open);
    Ok(json!({
        "rendered": rendered, "calls": calls.map(|calls| calls.name), "thoughts": thoughts,
        "read": calls.and_then(|calls| is_read(&template, calls)),
    }))
}

/// Whether the call that a template writes is read again. `None` if it writes none.
fn is_read(template: &ChatTemplate, syntax: CallSyntax) -> Option<bool> {
    let arguments = json!({"city": "Rome", "days": 3});
    let schema = json!({"type": "object", "properties": {"city": {"type": "string", "description": "c"},
                        "days": {"type": "integer", "description": "d"}}, "required": ["city", "days"]});
    let function = json!([{"type": "function", "function": {
        "name": "weather", "description": "w", "parameters": schema}}]);
    let options = |add_generation_prompt| RenderOptions {
        add_generation_prompt,
        tools: Some(function.clone()),
        ..RenderOptions::default()
    };
    let before = template
        .render(&[Message::user("?")], &options(true))
        .ok()?;
    // Templates take them as objects, or as texts.
    let given = [arguments.clone(), arguments.to_string().into()];
    let rendered = given.into_iter().filter_map(|arguments| {
        let mut answer = Message::assistant("");
        let call = json!([{"id": "call00001", "type": "function",
                           "function": {"name": "weather", "arguments": arguments}}]);
        answer.fields.insert("tool_calls".to_owned(), call);
        template
            .render(&[Message::user("?"), answer], &options(false))
            .ok()
    });
    let is_call = |part: &AnswerPart| matches!(part, AnswerPart::Call { name, arguments: found } if name == "weather" && *found == arguments);
    let answers: Vec<String> = rendered
        .map(|with| {
            let same = before.chars().zip(with.chars()).take_while(|(a, b)| a == b);
            let n_bytes: usize = same.map(|(c, _)| c.len_utf8()).sum();
            with[n_bytes..].to_owned()
        })
        .filter(|answer| answer.contains("weather"))
        .collect();
    let read = |answer: &String| {
        let names = Names::new([("weather".to_owned(), schema.clone())]);
        let mut reader = AnswerReader::new(Some(syntax), None, names);
        let mut parts = reader.push(answer);
        parts.extend(reader.finish());
        parts.iter().any(is_call)
    };
    (!answers.is_empty()).then(|| answers.iter().any(read))
}
