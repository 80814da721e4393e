//! Determines the call syntax that a chat template shows, and how the template treats earlier calls.

use millrace_text::{Message, RenderOptions};
use serde_json::{Value, json};

use super::calls::{CallSyntax, by_template};
use super::derive::{self, NAMES};

/// The call syntax of a model, and its template's treatment of calls in earlier answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ShownCalls {
    pub(crate) syntax: CallSyntax,
    pub(crate) earlier: EarlierCalls,
}

/// Which calls of an earlier answer a template writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierCalls {
    All,
    /// One for each answer: with several it fails, or drops the rest.
    One,
    /// None: it expects them as part of the text.
    None,
}

/// The call syntax of a model, if its template shows functions in a known syntax, or in one that can be derived.
/// `sources` are its templates, `has_token` looks up the vocabulary, `render` renders. An error of `render` is passed
/// on only if nothing renders.
///
/// # Errors
/// A template that renders no conversation at all.
pub(crate) fn shown_calls<E>(
    sources: &str,
    has_token: impl Fn(&str) -> bool,
    render: impl Fn(&[Message], &RenderOptions) -> Result<String, E>,
) -> Result<Option<ShownCalls>, E> {
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
        Ok(prompt) if prompt.contains(NAMES[0]) => prompt,
        Ok(_) => return Ok(None),
        // A template that fails with functions does not know them; if it renders nothing at all, that is the error.
        Err(_) => return render(&messages, &plain).map(|_| None),
    };
    let options = RenderOptions {
        add_generation_prompt: false,
        ..with_tools
    };
    let before = render(&messages, &options).ok();
    // Renderings of conversations whose answer has calls.
    let rendered =
        |n_calls| conversations(n_calls).find_map(|messages| render(&messages, &options).ok());
    let (one, both) = (rendered(1), rendered(2));
    let known = by_template(sources, has_token).copied();
    let derived = || derive::derived(before.as_deref()?, both.as_deref()?);
    let syntax = known.or_else(derived);
    // If the prompt contains the beginning of a call, an answer has it only before the second call.
    let is_begun = |syntax: &CallSyntax| {
        let trigger = syntax.trigger();
        !trigger.is_empty() && prompt.trim_end().ends_with(trigger)
    };
    let syntax = syntax.filter(|syntax| !is_begun(syntax));
    let of = |before: &String| earlier(before, one.as_deref(), both.as_deref());
    let earlier = before.as_ref().map_or(EarlierCalls::All, of);
    Ok(syntax.map(|syntax| ShownCalls { syntax, earlier }))
}

/// Conversations with an answer of `n_calls` calls. Some templates require arguments as text, some require results
/// after calls.
fn conversations(n_calls: usize) -> impl Iterator<Item = Vec<Message>> {
    let conversation = move |as_texts: bool, has_results: bool| {
        let mut calls = derive::calls();
        let list = calls.as_array_mut().into_iter().flatten();
        for (call, id) in list.zip(["call00001", "call00002"]) {
            call["id"] = id.into();
            let arguments = &mut call["function"]["arguments"];
            if as_texts {
                *arguments = arguments.to_string().into();
            }
        }
        let calls: Vec<Value> = calls
            .as_array()
            .into_iter()
            .flatten()
            .take(n_calls)
            .cloned()
            .collect();
        let results = calls.iter().filter(|_| has_results).map(|call| {
            let mut result = Message::new("tool", "fine");
            let fields = json!({"tool_call_id": call["id"], "name": call["function"]["name"]});
            result
                .fields
                .extend(fields.as_object().cloned().unwrap_or_default());
            result
        });
        let results: Vec<Message> = results.collect();
        let mut answer = Message::assistant("");
        answer.fields.insert("tool_calls".to_owned(), calls.into());
        [vec![Message::user("?"), answer], results].concat()
    };
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    ways.into_iter()
        .map(move |(as_texts, has_results)| conversation(as_texts, has_results))
}

/// Which calls a template writes: compares renderings of an answer with one call and with two to the rendering
/// `before`.
fn earlier(before: &str, one: Option<&str>, both: Option<&str>) -> EarlierCalls {
    let count = |text: &str, name: &str| text.matches(name).count();
    let has = |text: Option<&str>, name: &str| {
        text.is_some_and(|text| count(text, name) > count(before, name))
    };
    match (has(one, NAMES[0]), NAMES.iter().all(|name| has(both, name))) {
        (_, true) => EarlierCalls::All,
        (true, false) => EarlierCalls::One,
        (false, false) => EarlierCalls::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_text::ChatTemplate;

    /// The calls shown by a template that lists functions and writes answers as in `answer`.
    fn shown(answer: &str) -> Option<ShownCalls> {
        let source = format!(
            "{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content }}}}\
             {answer}{{% endfor %}}"
        );
        let template = ChatTemplate::new("t", &source, None, None).unwrap();
        let render =
            |messages: &[Message], options: &RenderOptions| template.render(messages, options);
        shown_calls(&source, |token| token == "<tool_call>", render).unwrap()
    }

    #[test]
    fn templates_write_all_earlier_calls_or_fewer() {
        let write = "<tool_call>{{ c.function | tojson }}</tool_call>";
        let each = format!("{{% for c in m.tool_calls or [] %}}{write}{{% endfor %}}");
        let first =
            format!("{{% if m.tool_calls %}}{{% set c = m.tool_calls[0] %}}{write}{{% endif %}}");
        let single = format!(
            "{{% if m.tool_calls and m.tool_calls | length > 1 %}}{{{{ raise_exception('one') }}}}{{% endif %}}{first}"
        );
        let never = "";
        let fails = "{% if m.tool_calls %}{{ raise_exception('none') }}{% endif %}";
        let late = format!(
            "{{% if m.tool_calls and loop.last %}}{{{{ raise_exception('late') }}}}{{% endif %}}{each}"
        );
        let begun =
            format!("{each}{{% if add_generation_prompt and loop.last %}}<tool_call>{{% endif %}}");
        assert_eq!(shown(&begun), None);
        for (answer, earlier) in [
            (&*each, EarlierCalls::All),
            (&*late, EarlierCalls::All),
            (&*first, EarlierCalls::One),
            (&*single, EarlierCalls::One),
            (never, EarlierCalls::None),
            (fails, EarlierCalls::None),
        ] {
            let shown = shown(answer).unwrap();
            assert_eq!(
                (shown.syntax.name, shown.earlier),
                ("hermes", earlier),
                "{answer}"
            );
        }
    }
}
