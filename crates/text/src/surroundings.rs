//! Prompts: texts that a model is to continue, and which tokens begin them.
//!
//! Files specify the tokens around a text. A prompt gets the tokens in front, once; it gets none behind,
//! because it has not ended. A chat template may write the begin token or leave it to the file.

use crate::chat::RenderedPrompt;
use crate::special::Control;
use crate::warning::Warning;
use crate::{EncodeOptions, Tokenizer};

impl Tokenizer {
    /// The token ids of a conversation: control tokens are recognised where the template wrote them,
    /// and are ordinary text where the conversation contained them.
    ///
    /// Where a GGUF file asks for a begin-of-sequence token, the prompt has exactly one in front. It
    /// does not matter whether the template writes it, as in llama.cpp. From a Hugging Face folder the
    /// template alone decides, as in transformers.
    pub fn encode_prompt(&self, prompt: &RenderedPrompt) -> Vec<u32> {
        let prefix = &self.ids.chat_prefix;
        let mut out = Vec::with_capacity(prompt.text().len() / 3 + 4);
        out.extend_from_slice(prefix);
        let control = Control::TokenExcept(prompt.literal());
        self.encode_text(prompt.text(), control, &mut out);
        self.begin_once(prefix.len(), &mut out);
        out
    }

    /// The token ids of a plain text that is to be continued, and whether the text itself began with
    /// the begin-of-sequence token. It is then there once.
    ///
    /// Tokens that the files ask for behind a text are left out; [`Tokenizer::warnings`] says so.
    /// With `parse_special`, control tokens in the text are recognised.
    pub fn encode_continued(&self, text: &str, parse_special: bool) -> (Vec<u32>, Option<Warning>) {
        let options = EncodeOptions {
            add_special: false,
            parse_special,
        };
        let mut out = self.ids.prefix.clone();
        self.encode_into(text, options, &mut out);
        let n_dropped = self.begin_once(self.ids.prefix.len(), &mut out);
        let warning = (n_dropped > 0).then(|| Warning::BeginsTwice {
            token: self.bos_text().unwrap_or_default().to_owned(),
        });
        (out, warning)
    }

    /// Drops begin-of-sequence tokens behind a prefix of `n_prefix` tokens that ends in one. Returns
    /// their number.
    fn begin_once(&self, n_prefix: usize, tokens: &mut Vec<u32>) -> usize {
        let Some(bos) = self.ids.bos else { return 0 };
        if n_prefix == 0 || tokens[n_prefix - 1] != bos {
            return 0;
        }
        let again = tokens[n_prefix..].iter().take_while(|id| **id == bos);
        let n_dropped = again.count();
        tokens.drain(n_prefix..n_prefix + n_dropped);
        n_dropped
    }

    /// Properties of the vocabulary that a user should know, whatever the model makes of texts.
    pub fn vocabulary_warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Properties of the vocabulary that a user should know before texts are generated.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut all = self.warnings.clone();
        if !self.ids.suffix.is_empty() {
            let text = |id: &u32| format!("`{}`", self.token_text(*id));
            all.push(Warning::SuffixLeftOut {
                tokens: self.ids.suffix.iter().map(text).collect(),
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChatTemplate, GgufVocab, Message, RenderOptions};
    use serde_json::json;

    fn bpe<'a>() -> GgufVocab<'a> {
        GgufVocab {
            model: "gpt2",
            pre: Some("gpt-2"),
            tokens: vec!["a", "b", "<|bos|>", "<|eos|>", "<|im|>"],
            token_types: vec![1, 1, 3, 3, 3],
            merges: Some(vec![]),
            bos: Some(2),
            eos: Some(3),
            ..GgufVocab::default()
        }
    }

    fn spm<'a>() -> GgufVocab<'a> {
        GgufVocab {
            model: "llama",
            tokens: vec!["a", "b", "<|bos|>", "<|eos|>", "<|im|>", "▁"],
            scores: vec![0.0; 6],
            token_types: vec![1, 1, 3, 3, 3, 1],
            bos: Some(2),
            eos: Some(3),
            // A text may not become a control token.
            unk: Some(3),
            add_space_prefix: Some(false),
            ..GgufVocab::default()
        }
    }

    const WRITTEN: &str = "{{ bos_token }}{% for m in messages %}<|im|>{{ m.content }}{% endfor %}";
    const LEFT_OUT: &str = "{% for m in messages %}<|im|>{{ m.content }}{% endfor %}";
    const TWICE: &str =
        "{{ bos_token }}<|bos|>{% for m in messages %}<|im|>{{ m.content }}{% endfor %}";
    const TURNS: &str = "{% for m in messages %}<|bos|><|im|>{{ m.content }}{% endfor %}";
    const CONTENT: &str = "{{ messages[0].content }}";

    fn chat(tokenizer: &Tokenizer, source: &str, messages: &[Message]) -> Vec<u32> {
        let (bos, eos) = (tokenizer.bos_text(), tokenizer.eos_text());
        let template = ChatTemplate::new("test", source, bos, eos).unwrap();
        let prompt = template.render_prompt(tokenizer, messages, &RenderOptions::default());
        tokenizer.encode_prompt(&prompt.unwrap())
    }

    #[test]
    fn a_chat_from_gguf_begins_once_whoever_writes_it() {
        let chats: [(&str, &[&str], &[u32]); 6] = [
            (WRITTEN, &["a"], &[2, 4, 0]),
            (LEFT_OUT, &["a"], &[2, 4, 0]),
            (TWICE, &["a"], &[2, 4, 0]),
            // The begin token of each turn stays.
            (TURNS, &["a", "b"], &[2, 4, 0, 2, 4, 1]),
            // A user's text is not a begin token; of its characters only some have tokens.
            (CONTENT, &["<|bos|>a"], &[2, 1, 0]),
            (LEFT_OUT, &[], &[2]),
        ];
        type SurroundingsEdit = fn(&mut GgufVocab<'_>);
        let files: [(GgufVocab<'_>, SurroundingsEdit); 4] = [
            (bpe(), |v| v.add_bos = Some(true)),
            // By the default of the pre-tokenizer and of the kind.
            (bpe(), |v| v.pre = Some("llama-bpe")),
            (spm(), |_| {}),
            // Tokens behind a text are not put behind a prompt.
            (bpe(), |v| (v.add_bos, v.add_eos) = (Some(true), Some(true))),
        ];
        for (mut vocab, edit) in files {
            edit(&mut vocab);
            let name = format!("{} {:?}", vocab.model, vocab.pre);
            let tokenizer = Tokenizer::from_gguf(vocab).unwrap();
            for (source, contents, want) in chats {
                let messages: Vec<_> = contents.iter().map(|text| Message::user(*text)).collect();
                assert_eq!(chat(&tokenizer, source, &messages), want, "{name} {source}");
            }
        }
    }

    #[test]
    fn a_chat_without_a_wanted_begin_token_is_the_template_s() {
        let gguf = Tokenizer::from_gguf(GgufVocab {
            add_bos: Some(false),
            ..bpe()
        });
        let added = |id: u32, text: &str| json!({"id": id, "content": text, "special": true});
        let json = json!({
            "added_tokens": [added(2, "<|bos|>"), added(3, "<|eos|>"), added(4, "<|im|>")],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
        });
        let folder = Tokenizer::from_hf(json.to_string().as_bytes(), None);
        for tokenizer in [gguf.unwrap(), folder.unwrap()] {
            let messages = [Message::user("a")];
            assert_eq!(chat(&tokenizer, LEFT_OUT, &messages), [4, 0]);
            assert_eq!(chat(&tokenizer, WRITTEN, &messages), [2, 4, 0]);
            assert_eq!(chat(&tokenizer, TWICE, &messages), [2, 2, 4, 0]);
        }
    }

    #[test]
    fn a_plain_prompt_begins_once_and_does_not_end() {
        let files = |add_bos, add_eos| GgufVocab {
            add_bos: Some(add_bos),
            add_eos: Some(add_eos),
            ..bpe()
        };
        for (text, parse, add_bos, want, warns) in [
            ("ab", true, true, &[2, 0, 1][..], false),
            ("<|bos|>ab", true, true, &[2, 0, 1], true),
            ("<|bos|><|bos|>ab", true, true, &[2, 0, 1], true),
            ("a<|bos|>b", true, true, &[2, 0, 2, 1], false),
            ("<|bos|>ab", false, true, &[2, 1, 0, 1], false),
            ("<|bos|>ab", true, false, &[2, 0, 1], false),
            ("", true, true, &[2], false),
        ] {
            for add_eos in [false, true] {
                let tokenizer = Tokenizer::from_gguf(files(add_bos, add_eos)).unwrap();
                let (tokens, warning) = tokenizer.encode_continued(text, parse);
                assert_eq!((&tokens[..], warning.is_some()), (want, warns), "{text}");
                let warned = tokenizer.warnings();
                assert_eq!(warned.len(), usize::from(add_eos), "{warned:?}");
                let whole = EncodeOptions {
                    add_special: true,
                    parse_special: parse,
                };
                // A text that ends, such as one to be embedded, keeps the tokens behind it.
                let whole = tokenizer.encode(text, whole);
                assert_eq!(whole.last() == Some(&3), add_eos, "{text}");
            }
        }
    }

    #[test]
    fn warnings_say_what_is_wrong() {
        let warned = |vocab| {
            let tokenizer: Tokenizer = Tokenizer::from_gguf(vocab).unwrap();
            let warnings = tokenizer.warnings();
            warnings.iter().map(Warning::to_string).collect::<String>()
        };
        assert_eq!(warned(bpe()), "");
        assert_eq!(warned(spm()), "", "SentencePiece has no pre-tokenizer");
        for pre in [None, Some("")] {
            let text = warned(GgufVocab { pre, ..bpe() });
            assert!(text.contains("tokenizer.ggml.pre"), "{text}");
        }
        let ends = GgufVocab {
            add_eos: Some(true),
            ..bpe()
        };
        assert!(warned(ends).contains("`<|eos|>`"));
    }
}
