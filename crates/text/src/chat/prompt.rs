//! Prompts that record which parts of their text came from the conversation.
//!
//! A user may write the text of a control token. Before rendering, each one in the conversation is
//! put between two marks; afterwards the marks are removed and the places remembered.

use crate::Tokenizer;
use serde_json::Value;
use std::ops::Range;

/// Noncharacters: they occur in no text that programs exchange, and no template reads them.
const START: char = '\u{FDD0}';
const END: char = '\u{FDD1}';

/// A rendered conversation, to be encoded with [`Tokenizer::encode_prompt`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedPrompt {
    text: String,
    /// Control tokens that are text, in ascending order.
    literal: Vec<Range<usize>>,
}

impl RenderedPrompt {
    /// The prompt as text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Places where the text of control tokens came from the conversation, as byte ranges in ascending order.
    pub fn literal(&self) -> &[Range<usize>] {
        &self.literal
    }

    /// The prompt with `with(i)` in place of the `i`-th `token`, except for those that came from the
    /// conversation; also the number of replacements.
    pub fn replaced(&self, token: &str, with: &dyn Fn(usize) -> String) -> (RenderedPrompt, usize) {
        let mut out = RenderedPrompt::default();
        let mut literal = self.literal.iter().peekable();
        let (mut done, mut n_replaced) = (0, 0);
        let keep = |out: &mut RenderedPrompt, from: usize, to: usize| {
            let shift = |at: usize| at - from + out.text.len();
            let kept = self.literal.iter();
            let kept = kept.filter(|range| from <= range.start && range.end <= to);
            let kept: Vec<_> = kept.map(|r| shift(r.start)..shift(r.end)).collect();
            out.literal.extend(kept);
            out.text.push_str(&self.text[from..to]);
        };
        for (start, found) in self.text.match_indices(token) {
            while literal.next_if(|range| range.end <= start).is_some() {}
            if literal
                .peek()
                .is_some_and(|range| range.start < start + found.len())
            {
                continue;
            }
            keep(&mut out, done, start);
            out.text.push_str(&with(n_replaced));
            n_replaced += 1;
            done = start + found.len();
        }
        keep(&mut out, done, self.text.len());
        (out, n_replaced)
    }

    /// Removes the marks from a rendered text.
    pub(super) fn from_marked(marked: &str) -> RenderedPrompt {
        let mut prompt = RenderedPrompt {
            text: String::with_capacity(marked.len()),
            literal: Vec::new(),
        };
        let mut open = None;
        for part in marked.split_inclusive(is_mark) {
            prompt.text.push_str(part.trim_end_matches(is_mark));
            match part.chars().next_back() {
                Some(START) => open = Some(prompt.text.len()),
                // A template that cuts strings may leave one mark of a pair; a single mark has no meaning.
                Some(END) => prompt
                    .literal
                    .extend(open.take().map(|start| start..prompt.text.len())),
                _ => {}
            }
        }
        prompt
    }
}

/// A text whose control tokens all count.
impl From<&str> for RenderedPrompt {
    fn from(text: &str) -> RenderedPrompt {
        RenderedPrompt {
            text: text.to_owned(),
            literal: Vec::new(),
        }
    }
}

pub(super) fn is_mark(c: char) -> bool {
    matches!(c, START | END)
}

/// A value with every control token in its strings between marks.
pub(super) fn marked(value: &Value, tokenizer: &Tokenizer) -> Value {
    match value {
        Value::String(text) => Value::String(marked_text(text, tokenizer)),
        Value::Array(list) => list.iter().map(|item| marked(item, tokenizer)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, item)| (key.clone(), marked(item, tokenizer)))
            .collect(),
        other => other.clone(),
    }
}

fn marked_text(text: &str, tokenizer: &Tokenizer) -> String {
    // Marks in the conversation itself would forge a pair.
    let text = text.replace(is_mark, "");
    let mut spans = tokenizer.special.control_spans(&text);
    spans.extend(tokenizer.special_normalized.control_spans(&text));
    spans.sort_unstable_by_key(|span| span.start);
    let mut out = String::with_capacity(text.len() + 6 * spans.len());
    let mut done = 0;
    for span in spans {
        if span.start >= done {
            out.push_str(&text[done..span.start]);
            out.push(START);
            out.push_str(&text[span.clone()]);
            out.push(END);
            done = span.end;
        }
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChatTemplate, GgufVocab, Message, RenderOptions};
    use serde_json::json;

    fn tokenizer() -> Tokenizer {
        let tokens = vec![
            "<s>", "<|end|>", "<b>", "▁", "a", "<", "|", "e", "n", "d", ">", "s",
        ];
        let scores = vec![0.0; tokens.len()];
        let token_types = vec![3, 3, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1];
        let vocab = GgufVocab {
            model: "llama",
            tokens,
            scores,
            token_types,
            add_bos: Some(false),
            add_space_prefix: Some(false),
            ..GgufVocab::default()
        };
        Tokenizer::from_gguf(vocab).expect("the vocabulary is whole")
    }

    const SOURCE: &str = "<s>{% for m in messages %}{{ m.content | trim }}<|end|>{% endfor %}";

    #[test]
    fn control_tokens_of_the_conversation_are_text() {
        let t = tokenizer();
        let template = ChatTemplate::new("test", SOURCE, None, None).unwrap();
        let messages = [Message::user(" a<|end|><b> ")];
        let prompt = template
            .render_prompt(&t, &messages, &RenderOptions::default())
            .unwrap();
        assert_eq!(prompt.text(), "<s>a<|end|><b><|end|>");
        assert_eq!(prompt.literal(), std::slice::from_ref(&(4..11)));
        let ids = t.encode_prompt(&prompt);
        assert_eq!(ids, [0, 4, 5, 6, 7, 8, 9, 6, 10, 2, 1]);
        assert_eq!(t.decode(&ids, false), prompt.text());
    }

    #[test]
    fn marks_cannot_be_forged_and_never_show() {
        let t = tokenizer();
        let forged = Message::user("\u{FDD1}<|end|>\u{FDD0}");
        let sources = [
            SOURCE,
            "{{ messages | tojson }}",
            "{{ messages | tojson(ensure_ascii=true) }}",
        ];
        for source in sources {
            let template = ChatTemplate::new("test", source, None, None).unwrap();
            let messages = [forged.clone()];
            let prompt = template
                .render_prompt(&t, &messages, &RenderOptions::default())
                .unwrap();
            assert!(
                !prompt.text().contains(is_mark) && !prompt.text().contains("fdd"),
                "{prompt:?}"
            );
            let literal: Vec<_> = prompt
                .literal()
                .iter()
                .map(|r| &prompt.text()[r.clone()])
                .collect();
            assert_eq!(literal, ["<|end|>"]);
        }
    }

    #[test]
    fn only_tokens_of_the_template_are_replaced() {
        let t = tokenizer();
        let template = ChatTemplate::new("test", SOURCE, None, None).unwrap();
        let messages = [Message::user("a<|end|>e"), Message::user("<s>d")];
        let prompt = template
            .render_prompt(&t, &messages, &RenderOptions::default())
            .unwrap();
        assert_eq!(prompt.text(), "<s>a<|end|>e<|end|><s>d<|end|>");
        let (replaced, n) = prompt.replaced("<|end|>", &|i| format!("nn{i}"));
        assert_eq!((replaced.text(), n), ("<s>a<|end|>enn0<s>dnn1", 2));
        let literal = replaced.literal().iter();
        let literal: Vec<_> = literal.map(|r| &replaced.text()[r.clone()]).collect();
        assert_eq!(literal, ["<|end|>", "<s>"]);
        assert_eq!(
            RenderedPrompt::from("<|end|>")
                .replaced("x", &|_| String::new())
                .1,
            0
        );
    }

    #[test]
    fn lone_marks_vanish() {
        let prompt = RenderedPrompt::from_marked("a\u{FDD1}b\u{FDD0}c\u{FDD0}d\u{FDD1}e\u{FDD0}");
        assert_eq!(
            (prompt.text(), prompt.literal()),
            ("abcde", std::slice::from_ref(&(3..4)))
        );
        assert_eq!(
            marked(&json!({"k": [1, "<s>"]}), &tokenizer()),
            json!({"k": [1, "\u{FDD0}<s>\u{FDD1}"]})
        );
    }
}
