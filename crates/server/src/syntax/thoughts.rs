//! Syntaxes of thoughts in model output.

use millrace_runtime::{Phase, Thinking};
use millrace_text::{EncodeOptions, Tokenizer};

use super::grammar::channel_form;
use super::lark::Marks;
use super::reader::AnswerReader;
use super::recipients::recipient_form;

/// A syntax of thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThoughtSyntax {
    /// The texts that begin and end a thought.
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    /// The text that is inserted to end a thought and start the answer.
    closing: &'static str,
    /// Thoughts may begin within the answer: the marks are of a channel.
    is_anywhere: bool,
    /// The texts around the answer, if there are any.
    pub(crate) answer: Option<(&'static str, &'static str)>,
    /// A text that a template of this row contains, beside `close`.
    sign: &'static str,
    /// Texts that it contains instead of both, if it concatenates its marks.
    parts: &'static [&'static str],
    /// The effort that its template needs to disable thoughts, and the one to enable them, if any.
    without: Option<&'static str>,
    with: Option<&'static str>,
    /// Efforts that it calls by another word.
    efforts: &'static [(&'static str, &'static str)],
    /// Answers are messages, each with its recipient; one to the model itself is a thought.
    pub(crate) has_recipients: bool,
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
        without: None,
        with: None,
        efforts: &[],
        has_recipients: false,
    }
}

const COMMAND: ThoughtSyntax = ThoughtSyntax {
    without: Some("none"),
    ..tags("<|START_THINKING|>", "<|END_THINKING|>", "<|END_THINKING|>")
};

/// The rows. The first one whose marks a template has is used, so more specific rows come before the plain ones.
const ROWS: [ThoughtSyntax; 21] = [
    // gpt-oss: the text after a thought is a separate message. It was trained with three efforts, and always thinks.
    ThoughtSyntax {
        is_anywhere: true,
        sign: "<|channel|>",
        without: Some("low"),
        efforts: &[("minimal", "low"), ("xhigh", "high"), ("max", "high")],
        ..tags(
            "<|channel|>analysis<|message|>",
            "<|end|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        )
    },
    // Muse.
    ThoughtSyntax {
        is_anywhere: true,
        has_recipients: true,
        sign: "to=self<|message|>",
        ..tags(
            "to=self<|message|>",
            "<|eom|>",
            "<|eom|><|start|>assistant to=user<|message|>",
        )
    },
    // Gemma 4.
    ThoughtSyntax {
        is_anywhere: true,
        sign: "<|channel>",
        ..tags("<|channel>thought", "<channel|>", "\n<channel|>")
    },
    // Command A and R7B.
    ThoughtSyntax {
        answer: Some(("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
        sign: "<|START_RESPONSE|>",
        ..COMMAND
    },
    // North.
    ThoughtSyntax {
        answer: Some(("<|START_TEXT|>", "<|END_TEXT|>")),
        sign: "<|START_TEXT|>",
        ..COMMAND
    },
    COMMAND,
    // Magistral and Ministral.
    tags("[THINK]", "[/THINK]", "[/THINK]"),
    // Seed-OSS.
    tags("<seed:think>", "</seed:think>", "\n</seed:think>"),
    // MiniMax M3.
    tags("<mm:think>", "</mm:think>", "</mm:think>"),
    // Hunyuan 3.
    ThoughtSyntax {
        parts: &["<think{}>", "</think{}>", ":opensource"],
        without: Some("no_think"),
        with: Some("high"),
        efforts: &[
            ("minimal", "low"),
            ("medium", "high"),
            ("xhigh", "high"),
            ("max", "high"),
        ],
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
        without: Some("minimal"),
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

/// The syntax of a model, by the sources of its templates and by its vocabulary.
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
    /// The phase in which a prompt leaves the model.
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

    /// The thinking state for a model that starts in this phase, and may think for `budget` tokens. `is_followed`
    /// says that a grammar applies after the thought.
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

    /// The template's word for an effort, if it has one.
    pub(crate) fn effort_word<'e>(
        &self,
        effort: Option<&'e str>,
        is_wanted: Option<bool>,
    ) -> Option<&'e str> {
        let other = |effort: &'e str| {
            let found = self.efforts.iter().find(|(word, _)| *word == effort);
            found.map_or(effort, |(_, other)| *other)
        };
        match is_wanted {
            Some(false) if effort.is_none() => self.without,
            Some(true) if effort.is_none() => self.with,
            _ => effort.map(other),
        }
    }

    /// All marks that its readers need.
    pub(crate) fn marks(&self) -> impl Iterator<Item = &'static str> {
        let (before, after) = self.answer.unwrap_or_default();
        let channels = super::harmony::MARKS.into_iter();
        let channels = channels.filter(|_| self.is_harmony());
        let recipients = super::recipients::MARKS.into_iter();
        let recipients = recipients.filter(|_| self.has_recipients);
        [self.open, self.close, before, after]
            .into_iter()
            .chain(channels)
            .chain(recipients)
    }

    /// Whether thoughts, answers and calls are separate messages.
    pub(crate) fn is_in_messages(&self) -> bool {
        self.is_harmony() || self.has_recipients
    }

    /// A grammar for answers in messages with a form, which is given as a rule.
    pub(crate) fn form_in_messages(&self, form: &str, marks: &Marks) -> String {
        match self.has_recipients {
            true => recipient_form(form, marks),
            false => channel_form(form, marks),
        }
    }

    /// The reader for answers in messages without calls.
    pub(crate) fn reader_of_messages(&self) -> AnswerReader {
        match self.has_recipients {
            true => AnswerReader::of_recipients(),
            false => AnswerReader::of_channels(),
        }
    }

    /// Whether the answer comes in channels, whose reader must get all of it.
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
    fn efforts_are_told_in_the_words_of_a_family() {
        let word = |open: &str, effort, is_wanted| {
            let row = ROWS.iter().find(|row| row.open == open).unwrap();
            row.effort_word(effort, is_wanted)
        };
        for (open, effort, is_wanted, expected) in [
            ("<think>", Some("max"), Some(true), Some("max")),
            ("<think>", None, Some(false), None),
            (
                "<|channel|>analysis<|message|>",
                Some("max"),
                Some(true),
                Some("high"),
            ),
            (
                "<|channel|>analysis<|message|>",
                None,
                Some(false),
                Some("low"),
            ),
            ("<|channel|>analysis<|message|>", None, None, None),
            (
                "<think:opensource>",
                Some("medium"),
                Some(true),
                Some("high"),
            ),
            ("<think:opensource>", None, Some(true), Some("high")),
            ("<think:opensource>", None, Some(false), Some("no_think")),
            ("<|START_THINKING|>", None, Some(false), Some("none")),
            ("<|think|>", None, Some(false), Some("minimal")),
        ] {
            assert_eq!(
                word(open, effort, is_wanted),
                expected,
                "{open} {effort:?} {is_wanted:?}"
            );
        }
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
