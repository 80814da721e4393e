//! How models write thoughts.

use millrace_runtime::{Phase, Thinking};
use millrace_text::{EncodeOptions, Tokenizer};

/// A way of writing thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThoughtSyntax {
    /// What begins and ends a thought.
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    /// What is written to end a thought for the model and to have it answer.
    closing: &'static str,
    /// Thoughts may begin amid the answer: the marks are of a channel.
    is_anywhere: bool,
    /// What stands around the answer, if anything does.
    pub(crate) answer: Option<(&'static str, &'static str)>,
    /// What a template has that is of this row, beside `close`.
    sign: &'static str,
    /// What it has instead of both, where it puts its marks together.
    parts: &'static [&'static str],
}

const fn tags(open: &'static str, close: &'static str, closing: &'static str) -> ThoughtSyntax {
    ThoughtSyntax {
        open,
        close,
        closing,
        is_anywhere: false,
        answer: None,
        sign: "",
        parts: &[],
    }
}

/// Rows: the first whose marks a template has counts, those with more to look for before the plain ones.
const ROWS: [ThoughtSyntax; 18] = [
    // gpt-oss: what follows a thought is a message of its own.
    ThoughtSyntax {
        is_anywhere: true,
        sign: "<|channel|>",
        ..tags(
            "<|channel|>analysis<|message|>",
            "<|end|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        )
    },
    // Gemma 4.
    ThoughtSyntax {
        is_anywhere: true,
        sign: "<|channel>",
        ..tags("<|channel>thought", "<channel|>", "\n<channel|>")
    },
    // Command A and R7B.
    tags("<|START_THINKING|>", "<|END_THINKING|>", "<|END_THINKING|>"),
    // Magistral and Ministral.
    tags("[THINK]", "[/THINK]", "[/THINK]"),
    // Seed-OSS.
    tags("<seed:think>", "</seed:think>", "\n</seed:think>"),
    // MiniMax M3.
    tags("<mm:think>", "</mm:think>", "</mm:think>"),
    // Hunyuan 3.
    ThoughtSyntax {
        parts: &["<think{}>", "</think{}>", ":opensource"],
        ..tags(
            "<think:opensource>",
            "</think:opensource>",
            "</think:opensource>",
        )
    },
    // Apertus.
    tags("<|inner_prefix|>", "<|inner_suffix|>", "<|inner_suffix|>"),
    // Kimi K1.5 and VL.
    tags("◁think▷", "◁/think▷", "◁/think▷"),
    // Kimi K3.
    ThoughtSyntax {
        answer: Some(("<|open|>response<|sep|>", "<|close|>response<|sep|>")),
        parts: &["<|open|>", "<|sep|>", "<|close|>", "think"],
        ..tags(
            "<|open|>think<|sep|>",
            "<|close|>think<|sep|>",
            "<|close|>think<|sep|><|open|>response<|sep|>",
        )
    },
    // Solar.
    ThoughtSyntax {
        answer: Some(("<|begin|>assistant", "<|end|>")),
        sign: "<|think|>",
        ..tags(
            "<|think|>",
            "<|end|>",
            "<|end|><|begin|>assistant<|content|>",
        )
    },
    // EXAONE.
    tags("<thought>", "</thought>", "\n</thought>"),
    // Apriel.
    tags("<thinking>", "</thinking>", "\n</thinking>"),
    // Apriel 1.6.
    tags(
        "Here are my reasoning steps:",
        "[BEGIN FINAL RESPONSE]",
        "\n[BEGIN FINAL RESPONSE]",
    ),
    // Granite 3.3.
    ThoughtSyntax {
        answer: Some(("<response>", "</response>")),
        sign: "<response></response>",
        ..tags("<think>", "</think>", "</think>")
    },
    // Hunyuan A13B.
    ThoughtSyntax {
        answer: Some(("<answer>", "</answer>")),
        sign: "</answer>",
        ..tags("<think>", "</think>", "\n</think>")
    },
    // Reka.
    tags("<reasoning>", "</reasoning>", "</reasoning>"),
    // Qwen, DeepSeek, GLM, MiniMax, Kimi K2, Nemotron, SmolLM3, LFM2.5, MiniCPM, Ling, Step, Spark and many more.
    tags("<think>", "</think>", "\n</think>"),
];

/// The way of a model, by the sources of its templates and by its vocabulary.
pub(crate) fn thought_syntax(templates: &str, tokenizer: &Tokenizer) -> Option<ThoughtSyntax> {
    let by_template = |row: &&ThoughtSyntax| match row.parts.is_empty() {
        true => templates.contains(row.close) && templates.contains(row.sign),
        false => row.parts.iter().all(|part| templates.contains(part)),
    };
    let is_token = |text: &str| tokenizer.id_of(text).is_some();
    let by_vocabulary =
        |row: &&ThoughtSyntax| row.sign.is_empty() && is_token(row.open) && is_token(row.close);
    let found = ROWS.iter().find(by_template);
    found.or_else(|| ROWS.iter().find(by_vocabulary)).copied()
}

impl ThoughtSyntax {
    /// Where a prompt leaves the model.
    pub(crate) fn phase_after(&self, prompt: &str) -> Phase {
        let end = prompt.trim_end();
        if end.ends_with(self.open) {
            Phase::Thought
        } else if !self.is_anywhere && end.ends_with(self.close) {
            Phase::Answer
        } else {
            Phase::Begin
        }
    }

    /// For a model that a prompt leaves so, and that may think for so many tokens. `is_followed` says that what comes behind a
    /// thought is held by a grammar.
    pub(crate) fn thinking(
        &self,
        tokenizer: &Tokenizer,
        start: Phase,
        budget: Option<usize>,
        is_followed: bool,
    ) -> Thinking {
        let closing = match is_followed {
            true => self.close,
            false => self.closing,
        };
        let options = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        Thinking {
            open: self.open.to_owned(),
            close: self.close.to_owned(),
            start,
            is_anywhere: self.is_anywhere,
            budget,
            closing: tokenizer.encode(closing, options),
        }
    }

    /// All that its readers must see.
    pub(crate) fn marks(&self) -> impl Iterator<Item = &'static str> {
        let (before, after) = self.answer.unwrap_or_default();
        let channels = super::harmony::MARKS.into_iter();
        let channels = channels.filter(|_| self.is_harmony());
        [self.open, self.close, before, after]
            .into_iter()
            .chain(channels)
    }

    /// Whether the answer comes in channels, whose reader must see all of it.
    pub(crate) fn is_harmony(&self) -> bool {
        self.open == ROWS[0].open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_marks_without_white_space_around_them() {
        for row in &ROWS {
            for mark in [row.open, row.close] {
                assert!(!mark.is_empty() && mark.trim() == mark, "{row:?}");
            }
            assert!(row.closing.trim_start().starts_with(row.close), "{row:?}");
        }
    }

    #[test]
    fn templates_and_vocabularies_show_the_way() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
        let model = millrace_runtime::LoadedModel::open(&path).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        for (template, open) in [
            ("{{ x.split('</think>')[0] }}", Some("<think>")),
            ("<think></think> and <response></response>", Some("<think>")),
            (
                "'<|channel|>analysis<|message|>' ~ t ~ '<|end|>'",
                Some("<|channel|>analysis<|message|>"),
            ),
            (
                "'<|channel>thought\n' ~ t ~ '<channel|>'",
                Some("<|channel>thought"),
            ),
            ("'[THINK]' ~ t ~ '[/THINK]'", Some("[THINK]")),
            (
                "{% set a = '<think{}>'.format(':opensource') %}</think{}>",
                Some("<think:opensource>"),
            ),
            ("<|im_start|>{{ m.content }}<|end|>", None),
        ] {
            let found = thought_syntax(template, &tokenizer);
            assert_eq!(found.map(|row| row.open), open, "{template}");
        }
        let granite = thought_syntax("<think></think> and <response></response>", &tokenizer);
        assert_eq!(granite.unwrap().answer, Some(("<response>", "</response>")));
    }

    #[test]
    fn prompts_leave_models_in_a_thought_or_not() {
        let row = ROWS.last().unwrap();
        for (prompt, phase) in [
            ("<|im_start|>assistant\n<think>\n", Phase::Thought),
            (
                "<|im_start|>assistant\n<think>\n\n</think>\n\n",
                Phase::Answer,
            ),
            ("<|im_start|>assistant\n", Phase::Begin),
            (
                "What is <think>?<|im_end|>\n<|im_start|>assistant\n",
                Phase::Begin,
            ),
        ] {
            assert_eq!(row.phase_after(prompt), phase, "{prompt:?}");
        }
    }
}
