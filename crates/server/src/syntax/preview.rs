//! A call that is told while it is written.

use serde_json::{Map, Value};

use super::json_text::JsonText;
use super::reader::AnswerPart;

/// A call that has begun. It tells arguments early, as far as they are certain, but it decides nothing: whether there is a call
/// and which one, [`fit::call`](super::fit::call) says when all of it is there.
#[derive(Clone, Debug)]
pub(super) struct CallPreview {
    name: String,
    /// The arguments as far as they are told: a beginning of the complete text.
    told: String,
    /// Arguments that came one by one, so far as they were looked at.
    n_members: usize,
    /// Of arguments that are JSON: the reader, and how many bytes of the held text it has.
    json: Option<(JsonText, usize)>,
}

impl CallPreview {
    /// A call of a function. Arguments that are JSON begin at a byte of the held text.
    pub(super) fn begin(
        name: &str,
        json_at: Option<usize>,
        out: &mut Vec<AnswerPart>,
    ) -> CallPreview {
        out.push(AnswerPart::CallBegin {
            name: name.to_owned(),
        });
        CallPreview {
            name: name.to_owned(),
            told: String::new(),
            n_members: 0,
            json: json_at.map(|at| (JsonText::new(), at)),
        }
    }

    /// Whether its JSON has neither ended nor a fault, so that the call cannot be complete.
    pub(super) fn is_open(&self) -> bool {
        self.json.as_ref().is_some_and(|(json, _)| json.is_open())
    }

    /// Tells what the held text says beyond what is told.
    pub(super) fn follow(&mut self, held: &str, out: &mut Vec<AnswerPart>) {
        let Some((json, at)) = &mut self.json else {
            return;
        };
        let n_told = self.told.len();
        json.push(held.get(*at..).unwrap_or_default(), &mut self.told);
        *at = held.len();
        tell(&self.told[n_told..], out);
    }

    /// Tells arguments that came one by one, all that are complete: as far as none comes twice, since then the last would count.
    pub(super) fn tell_members(&mut self, members: &[(String, Value)], out: &mut Vec<AnswerPart>) {
        if members.len() == self.n_members {
            return;
        }
        self.n_members = members.len();
        let mut certain = Map::new();
        for (name, value) in members {
            if certain.contains_key(name) {
                break;
            }
            certain.insert(name.clone(), value.clone());
        }
        let mut text = Value::Object(certain).to_string();
        // The brace is the end's.
        text.pop();
        if let Some(more) = text.strip_prefix(&self.told) {
            tell(more, out);
            self.told = text;
        }
    }

    /// Tells the rest of a call that is complete. If what was told is not of this call (of a member that came twice only the
    /// last counts), that one is broken off, and the call is told anew.
    pub(super) fn complete(
        preview: Option<CallPreview>,
        name: String,
        arguments: Value,
        out: &mut Vec<AnswerPart>,
    ) {
        let text = arguments.to_string();
        let more = preview.as_ref().and_then(|preview| {
            let more = text.strip_prefix(&preview.told)?;
            (preview.name == name).then_some(more)
        });
        match more {
            Some(more) => tell(more, out),
            None => {
                if preview.is_some() {
                    out.push(AnswerPart::CallBroken);
                }
                out.push(AnswerPart::CallBegin { name: name.clone() });
                tell(&text, out);
            }
        }
        out.push(AnswerPart::Call { name, arguments });
    }
}

/// Of a message whose body is the arguments of a call, where `preview` is of the call under way, if it has begun.
impl CallPreview {
    /// Tells what is certain of the arguments.
    pub(super) fn show(
        preview: &mut Option<CallPreview>,
        name: &str,
        body: &str,
        out: &mut Vec<AnswerPart>,
    ) {
        let begun = body.trim_start();
        if preview.is_none() && begun.starts_with('{') {
            let json_at = body.len() - begun.len();
            *preview = Some(CallPreview::begin(name, Some(json_at), out));
        }
        if let Some(preview) = preview {
            preview.follow(body, out);
        }
    }

    /// Tells the rest of the call if the body, which is complete, is an object; whether it is.
    pub(super) fn end(
        preview: &mut Option<CallPreview>,
        name: &str,
        body: &str,
        out: &mut Vec<AnswerPart>,
    ) -> bool {
        let Ok(arguments @ Value::Object(_)) = serde_json::from_str(body.trim()) else {
            return false;
        };
        CallPreview::complete(preview.take(), name.to_owned(), arguments, out);
        true
    }

    /// The body is complete and no object: what was told is no call.
    pub(super) fn give_up(preview: &mut Option<CallPreview>, out: &mut Vec<AnswerPart>) {
        if preview.take().is_some() {
            out.push(AnswerPart::CallBroken);
        }
    }

    /// The answer has ended within the body. `text` is all that is not told of the message.
    pub(super) fn cut(preview: &mut Option<CallPreview>, text: String, out: &mut Vec<AnswerPart>) {
        out.push(match preview.take() {
            Some(_) => AnswerPart::CallCut(text),
            None => AnswerPart::Text(text),
        });
    }
}

fn tell(text: &str, out: &mut Vec<AnswerPart>) {
    if !text.is_empty() {
        out.push(AnswerPart::CallArguments(text.to_owned()));
    }
}
