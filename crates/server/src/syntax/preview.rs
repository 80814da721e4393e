//! A call that is reported while it is generated.

use serde_json::{Map, Value};

use super::json_text::JsonText;
use super::reader::AnswerPart;

/// A call that has begun. It reports arguments early, as far as they are certain, but decides nothing. Once the call
/// is complete, [`fit::call`](super::fit::call) decides whether it is one, and which.
#[derive(Clone, Debug)]
pub(super) struct CallPreview {
    name: String,
    /// The arguments reported so far: a beginning of the complete text.
    told: String,
    /// Number of separately written arguments seen so far.
    n_members: usize,
    /// For arguments in JSON: the reader, and the number of bytes of the held text that it has read.
    json: Option<(JsonText, usize)>,
}

impl CallPreview {
    /// Begins a call of a function. `json_at` is the byte of the held text at which JSON arguments begin.
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

    /// Whether its JSON is neither complete nor invalid, so that the call cannot be complete.
    pub(super) fn is_open(&self) -> bool {
        self.json.as_ref().is_some_and(|(json, _)| json.is_open())
    }

    /// Reports the arguments in the held text that are not reported yet.
    pub(super) fn follow(&mut self, held: &str, out: &mut Vec<AnswerPart>) {
        let Some((json, at)) = &mut self.json else {
            return;
        };
        let n_told = self.told.len();
        json.push(held.get(*at..).unwrap_or_default(), &mut self.told);
        *at = held.len();
        tell(&self.told[n_told..], out);
    }

    /// Reports complete arguments that are written separately. Stops at the first duplicate, since then the last one
    /// would count.
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
        // The closing brace is reported at the end.
        text.pop();
        if let Some(more) = text.strip_prefix(&self.told) {
            tell(more, out);
            self.told = text;
        }
    }

    /// Reports the rest of a complete call. The reported part may not belong to it, since only the last of duplicate
    /// members counts. Then that call is broken off, and reported again in full.
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

/// For messages whose body is the arguments of a call; `preview` is the call under way, if it has begun.
impl CallPreview {
    /// Reports the certain part of the arguments.
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

    /// Reports the rest of the call if the complete body is an object; returns whether it is.
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

    /// Abandons the call: the complete body is not an object.
    pub(super) fn give_up(preview: &mut Option<CallPreview>, out: &mut Vec<AnswerPart>) {
        if preview.take().is_some() {
            out.push(AnswerPart::CallBroken);
        }
    }

    /// Ends the answer within the body. `text` is the unreported rest of the message.
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
