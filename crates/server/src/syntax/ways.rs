//! Determines the syntaxes of published templates, and whether their output is read back correctly, for
//! `tools/check_templates.py`.

use millrace_runtime::{Phase, TurnPiece};
use millrace_text::{ChatTemplate, Message, RenderOptions, Tokenizer};
use serde_json::{Map, Value, json};

use super::derive::behind;
use super::reader::{AnswerPart, AnswerReader, Names};
use super::shown::{EarlierCalls, ShownCalls, shown_calls};
use super::thoughts::{ThoughtSyntax, thought_syntax};

/// The thought before the answers that are read.
const THOUGHT: &str = "Hm, <b> & \"so\".";

/// The text before calls.
const SAID: &str = "I look.";

/// Texts that end an answer in templates and do not belong to it: a model that writes one has ended.
const ENDS: [&str; 19] = [
    "<|im_end|>",
    "<|call|>",
    "<|return|>",
    "<|calls|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|tool_response>",
    "<turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<SPECIAL_12>",
    "[e~[",
    "<｜end▁of▁sentence｜>",
    "<seed:eos>",
    "<|close|>message",
    "<｜hy_eos:opensource｜>",
    "<eos>",
];

/// Control tokens that print nothing, and that no reader uses as a mark.
const UNSEEN: [&str; 1] = ["<|content|>"];

/// Examines a template, for `tools/check_templates.py`. `source` is the template. `conversations` is a list of
/// objects with `messages`, and optionally `tools`, `variables` and `add_generation_prompt`. `vocabulary` lists texts
/// of the model's tokens beside those that the template names.
///
/// The answer has `rendered`, a text or `null` for each conversation, and `calls` and `thoughts`, the names of the
/// syntaxes. `shows_functions` says whether it writes the offered functions; otherwise they are explained to the
/// model in the usual way. `earlier` says which calls of earlier answers it writes (`all`, `one` or `none`). `unread`
/// lists the template's outputs that are not read back unchanged, with the result (`null` if it writes no calls).
///
/// # Errors
/// A template that does not parse.
pub fn template_ways(
    source: &str,
    (bos, eos): (&str, &str),
    conversations: &[Value],
    vocabulary: &[&str],
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
                variables: one["variables"].as_object().cloned().unwrap_or_default(),
                ..RenderOptions::default()
            };
            template.render_json(&one["messages"], &options).ok()
        })
        .collect();
    // The texts that the template names count as vocabulary.
    let has_token = |text: &str| source.contains(text) || vocabulary.contains(&text);
    let calls = shown_calls(source, has_token, |messages, options| {
        template.render(messages, options)
    });
    let calls = calls.ok().flatten();
    let offered = RenderOptions {
        tools: Some(functions()),
        ..RenderOptions::default()
    };
    let shown = template.render(&[Message::user("?")], &offered);
    let shows_functions = shown.is_ok_and(|text| text.contains("weather"));
    let reading = TemplateReading {
        template: &template,
        tokenizer,
        calls,
        thoughts: thought_syntax(source, tokenizer),
    };
    Ok(json!({
        "rendered": rendered, "shows_functions": shows_functions, "calls": calls.map(|calls| calls.syntax.name),
        "thoughts": reading.thoughts.map(|thoughts| thoughts.open),
        "earlier": calls.map(|calls| match calls.earlier {
            EarlierCalls::All => "all",
            EarlierCalls::One => "one",
            EarlierCalls::None => "none",
        }),
        "unread": reading.unread(),
    }))
}

/// Reads answers as a template writes them.
struct TemplateReading<'t> {
    template: &'t ChatTemplate,
    tokenizer: &'t Tokenizer,
    calls: Option<ShownCalls>,
    thoughts: Option<ThoughtSyntax>,
}

/// An answer that a template writes.
#[derive(Clone, Debug)]
struct GivenAnswer {
    said: &'static str,
    thought: Option<&'static str>,
    calls: Vec<(&'static str, Value)>,
}

/// The parts read from it.
#[derive(Debug, Default, PartialEq)]
struct ReadAnswer {
    text: String,
    thought: String,
    calls: Vec<(String, Value)>,
}

/// The schema of a function with arguments of all kinds.
fn schema() -> Value {
    let one = |kind: Value| json!({"type": kind, "description": "d"});
    json!({"type": "object", "properties": {
        "city": one("string".into()), "days": one("integer".into()), "text": one("string".into()), "digits": one("string".into()),
        "empty": one("string".into()), "size": one("number".into()), "on": one("boolean".into()), "off": one("boolean".into()),
        "list": {"type": "array", "description": "d", "items": {"type": "object", "properties": {
            "id": {"type": "string", "description": "d"}, "n": {"type": "integer", "description": "d"}}}},
        "words": {"type": "array", "description": "d", "items": {"type": "string", "description": "d"}},
        "deep": {"type": "object", "description": "d", "properties": {
            "in": {"type": "object", "description": "d", "properties": {"at": {"type": "string", "description": "d"}}}}},
    }, "required": ["city"]})
}

fn functions() -> Value {
    let function = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "description": "f", "parameters": parameters}});
    let nothing = json!({"type": "object", "properties": {}});
    json!([function("weather", schema()), function("ping", nothing)])
}

/// Arguments of `weather`, of all kinds.
fn hard_arguments() -> Value {
    json!({
        "city": "Rome", "days": -3, "text": "two lines\nwith \"quotes\", </b>, {a}, [1], 雨 and é🦙", "digits": "42", "empty": "",
        "size": 2.5, "on": true, "off": false, "list": [{"id": "7", "n": 7}, {"id": "x\"y", "n": 0}], "words": ["one", "2", "a, b"],
        "deep": {"in": {"at": "the end"}},
    })
}

/// The answers to try.
fn answers(with_calls: bool, with_thoughts: bool) -> Vec<GivenAnswer> {
    let easy = ("weather", json!({"city": "Rome", "days": 3}));
    let hard = ("weather", hard_arguments());
    let none = ("ping", json!({}));
    let lists = match with_calls {
        true => vec![
            vec![],
            vec![easy.clone()],
            vec![hard.clone()],
            vec![none.clone()],
            vec![easy, none, hard],
        ],
        false => vec![vec![]],
    };
    let mut out = Vec::new();
    for calls in lists {
        for thought in [None, Some(THOUGHT)] {
            for said in ["", SAID] {
                let is_nothing = calls.is_empty() && said.is_empty();
                if !is_nothing && (with_thoughts || thought.is_none()) {
                    let calls = calls.clone();
                    out.push(GivenAnswer {
                        said,
                        thought,
                        calls,
                    });
                }
            }
        }
    }
    out
}

impl GivenAnswer {
    fn message(&self, as_texts: bool) -> Message {
        let mut message = Message::assistant(self.said);
        if let Some(thought) = self.thought {
            for name in ["reasoning_content", "reasoning", "thinking"] {
                message.fields.insert(name.to_owned(), thought.into());
            }
        }
        let call = |(i, (name, arguments)): (usize, &(&str, Value))| {
            let arguments = match as_texts {
                true => arguments.to_string().into(),
                false => arguments.clone(),
            };
            json!({"id": format!("call0000{i}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        if !self.calls.is_empty() {
            let calls: Value = self.calls.iter().enumerate().map(call).collect();
            message.fields.insert("tool_calls".to_owned(), calls);
        }
        message
    }
}

impl TemplateReading<'_> {
    fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Option<String> {
        let mut variables = Map::new();
        for name in ["enable_thinking", "thinking"] {
            variables.insert(name.to_owned(), self.thoughts.is_some().into());
        }
        let options = RenderOptions {
            add_generation_prompt,
            variables,
            tools: self.calls.map(|_| functions()),
            ..RenderOptions::default()
        };
        self.template.render(messages, &options).ok()
    }

    /// The answers that are not read back as given.
    fn unread(&self) -> Option<Value> {
        let with_calls = self
            .calls
            .is_some_and(|calls| calls.earlier != EarlierCalls::None);
        let user = [Message::user("?")];
        let before = self.render(&user, false)?;
        let prompt = self.render(&user, true)?;
        let plain = self.render(&[Message::user("?"), Message::assistant(SAID)], false);
        // The text after an answer.
        let closing = plain.and_then(|text| Some(text.rsplit_once(SAID)?.1.to_owned()));
        let closing = closing.unwrap_or_default();
        let mut unread = Vec::new();
        for given in answers(with_calls, self.thoughts.is_some()) {
            let rendered = [false, true].into_iter().find_map(|as_texts| {
                let with = self.render(&[Message::user("?"), given.message(as_texts)], false)?;
                let answer = behind(&before, &with).to_owned();
                let all = given.calls.iter().all(|(name, _)| answer.contains(name));
                all.then_some(answer)
            });
            // Parts that a template leaves out are not expected.
            let Some(answer) = rendered else {
                continue;
            };
            let given = GivenAnswer {
                said: if answer.contains(SAID) {
                    given.said
                } else {
                    ""
                },
                thought: given.thought.filter(|_| answer.contains("Hm,")),
                calls: given.calls,
            };
            let answer = answer.strip_suffix(&*closing).unwrap_or(&answer);
            if let Some(found) = self.misread(&given, behind(&before, &prompt), answer) {
                unread
                    .push(json!({"given": format!("{given:?}"), "written": answer, "read": found}));
            }
        }
        Some(unread.into())
    }

    /// A description of the wrong result, if there is one. `opening` is the end of the prompt, where `answer` begins.
    fn misread(&self, given: &GivenAnswer, opening: &str, answer: &str) -> Option<String> {
        let rest = behind(opening, answer);
        let n_same = answer.len() - rest.len();
        // If the prompt begins something that the answer lacks (a thought, say), it is not that answer's prompt.
        let header = answer[..n_same].rfind(['\n', '>', ']', ':']);
        let n_header = header.map_or(0, |at| at + 1);
        let (begun, behind_header) = answer.split_at(n_header);
        let is_thinking = |thoughts: ThoughtSyntax| {
            thoughts.phase_after(opening) == Phase::Thought
                && !behind_header.contains(thoughts.open)
        };
        let is_thought = self.thoughts.is_some_and(is_thinking);
        let (prompt, written) = match n_same == opening.len() {
            // A thought that begins and does not end is not an answer.
            true if given.thought.is_none() && self.is_unclosed(opening, rest) => return None,
            true => (opening, rest),
            // The beginning of a thought, which the template leaves out of earlier answers.
            false if given.thought.is_some() && is_thought => (opening, behind_header),
            false => (begun, behind_header),
        };
        let end = ENDS.iter().filter_map(|end| written.find(end)).min();
        let written = &written[..end.unwrap_or(written.len())];
        let at_once = self.read(prompt, written, usize::MAX);
        for n_chars in [1, 3, 7] {
            let cut = self.read(prompt, written, n_chars);
            if cut != at_once {
                return Some(format!(
                    "{at_once:?} at once, {cut:?} by {n_chars} characters"
                ));
            }
        }
        let calls = at_once.calls.iter().map(|(name, value)| (&**name, value));
        let text = UNSEEN
            .iter()
            .fold(at_once.text.clone(), |text, token| text.replace(token, ""));
        let (text, thought) = (text.trim(), &*at_once.thought);
        // Some templates turn the text before a call into a thought.
        let is_said = (thought, text) == (given.thought.unwrap_or_default(), given.said)
            || (given.thought.is_none() && (thought, text) == (given.said, ""));
        let is_same = is_said && calls.eq(given.calls.iter().map(|(name, value)| (*name, value)));
        (!is_same).then(|| format!("{at_once:?}"))
    }

    fn is_unclosed(&self, opening: &str, rest: &str) -> bool {
        let is_it = |thoughts: ThoughtSyntax| {
            thoughts.phase_after(opening) == Phase::Thought && !rest.contains(thoughts.close)
        };
        self.thoughts.is_some_and(is_it)
    }

    /// Reads an answer after a prompt, `n_chars` characters at a time.
    fn read(&self, prompt: &str, answer: &str, n_chars: usize) -> ReadAnswer {
        let names = [
            ("weather", schema()),
            ("ping", json!({"type": "object", "properties": {}})),
        ];
        let names = Names::new(names.map(|(name, schema)| (name.to_owned(), schema)));
        let wrapper = self.thoughts.and_then(|thoughts| thoughts.answer);
        let syntax = self.calls.map(|calls| calls.syntax);
        let messages = self.thoughts.filter(|thoughts| thoughts.is_in_messages());
        let mut reader = match (syntax, messages) {
            (None, Some(messages)) => messages.reader_of_messages(),
            (syntax, _) => AnswerReader::new(syntax, wrapper, names),
        };
        let mut found = ReadAnswer::default();
        let pieces = match self.thoughts {
            Some(thoughts) => {
                let start = thoughts.phase_after(prompt);
                thoughts
                    .thinking(self.tokenizer, start, None, false)
                    .part(answer)
            }
            None => vec![TurnPiece::Answer(answer.to_owned())],
        };
        for piece in pieces {
            match piece {
                TurnPiece::Thought(text) => found.thought.push_str(&text),
                TurnPiece::Answer(text) => {
                    let chars: Vec<char> = text.chars().collect();
                    for cut in chars.chunks(n_chars.min(chars.len().max(1))) {
                        found.take(reader.push(&cut.iter().collect::<String>()));
                    }
                }
            }
        }
        found.take(reader.finish());
        found
    }
}

impl ReadAnswer {
    fn take(&mut self, parts: Vec<AnswerPart>) {
        for part in parts {
            match part {
                AnswerPart::Text(text) | AnswerPart::CallCut(text) => self.text.push_str(&text),
                AnswerPart::Thought(text) => self.thought.push_str(&text),
                AnswerPart::Call { name, arguments } => self.calls.push((name, arguments)),
                AnswerPart::CallBegin { .. }
                | AnswerPart::CallArguments(_)
                | AnswerPart::CallBroken => {}
            }
        }
    }
}
