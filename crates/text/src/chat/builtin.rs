//! Prompt formats for models whose files carry no template.

use crate::Tokenizer;
use crate::vocab::TokenKind;

/// A well-known prompt format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultTemplate {
    /// `<|im_start|>role … <|im_end|>`: Qwen, SmolLM and many fine-tuned models.
    ChatMl,
    /// `<|start_header_id|>role<|end_header_id|> … <|eot_id|>`: Llama 3.
    Llama3,
    /// `<start_of_turn>role … <end_of_turn>`: Gemma.
    Gemma,
    /// `[INST] … [/INST]` as control tokens: Mistral.
    Mistral,
    /// `[INST] <<SYS>> … <</SYS>> … [/INST]` as ordinary text: Llama 2.
    Llama2,
    /// `<|user|> … <|end|>`: Phi 3 and 4 mini.
    Phi3,
    /// `<|start_of_role|>role<|end_of_role|> … <|end_of_text|>`: Granite 3 and 4.
    Granite,
    /// `<｜User｜> … <｜Assistant｜> …`: DeepSeek V3 and R1.
    DeepSeek,
    /// `<|START_OF_TURN_TOKEN|><|USER_TOKEN|> … <|END_OF_TURN_TOKEN|>`: Command R, Aya.
    CommandR,
}

/// The control tokens by which a format is recognised.
const MARKERS: [(DefaultTemplate, [&str; 2]); 8] = [
    (DefaultTemplate::ChatMl, ["<|im_start|>", "<|im_end|>"]),
    (
        DefaultTemplate::Llama3,
        ["<|start_header_id|>", "<|eot_id|>"],
    ),
    (DefaultTemplate::Gemma, ["<start_of_turn>", "<end_of_turn>"]),
    (DefaultTemplate::Mistral, ["[INST]", "[/INST]"]),
    (
        DefaultTemplate::Granite,
        ["<|start_of_role|>", "<|end_of_role|>"],
    ),
    (
        DefaultTemplate::CommandR,
        ["<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"],
    ),
    (DefaultTemplate::DeepSeek, ["<｜User｜>", "<｜Assistant｜>"]),
    (DefaultTemplate::Phi3, ["<|user|>", "<|end|>"]),
];

/// Starts of family names, as GGUF's `general.architecture` and `model_type` spell them.
const FAMILIES: [(&str, DefaultTemplate); 14] = [
    ("qwen", DefaultTemplate::ChatMl),
    ("smollm", DefaultTemplate::ChatMl),
    ("gemma", DefaultTemplate::Gemma),
    ("mistral", DefaultTemplate::Mistral),
    ("mixtral", DefaultTemplate::Mistral),
    ("llama-3", DefaultTemplate::Llama3),
    ("llama3", DefaultTemplate::Llama3),
    ("llama-2", DefaultTemplate::Llama2),
    ("llama", DefaultTemplate::Llama2),
    ("phi3", DefaultTemplate::Phi3),
    ("granite", DefaultTemplate::Granite),
    ("command-r", DefaultTemplate::CommandR),
    ("cohere", DefaultTemplate::CommandR),
    ("deepseek_v3", DefaultTemplate::DeepSeek),
];

impl DefaultTemplate {
    /// The format whose control tokens a vocabulary has.
    pub fn for_vocabulary(tokenizer: &Tokenizer) -> Option<DefaultTemplate> {
        let is_marked = |text: &&str| {
            tokenizer.id_of(text).is_some_and(|id| {
                matches!(
                    tokenizer.token_kind(id),
                    TokenKind::Control | TokenKind::UserDefined
                )
            })
        };
        MARKERS
            .iter()
            .find(|(_, texts)| texts.iter().all(is_marked))
            .map(|(kind, _)| *kind)
    }

    /// The format of a family, by the start of its name in any case.
    pub fn for_family(family: &str) -> Option<DefaultTemplate> {
        let family = family.to_ascii_lowercase();
        FAMILIES
            .iter()
            .find(|(start, _)| family.starts_with(start))
            .map(|(_, kind)| *kind)
    }

    /// The template's source.
    pub fn source(self) -> &'static str {
        match self {
            DefaultTemplate::ChatMl => CHATML,
            DefaultTemplate::Llama3 => LLAMA3,
            DefaultTemplate::Gemma => GEMMA,
            DefaultTemplate::Mistral => MISTRAL,
            DefaultTemplate::Llama2 => LLAMA2,
            DefaultTemplate::Phi3 => PHI3,
            DefaultTemplate::Granite => GRANITE,
            DefaultTemplate::DeepSeek => DEEPSEEK,
            DefaultTemplate::CommandR => COMMAND_R,
        }
    }
}

const CHATML: &str = r"
{%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
";

const LLAMA3: &str = r"
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' -}}
    {{- message.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
";

/// Gemma has no system role: the system message begins the first turn. Contents with images are lists of parts.
const GEMMA: &str = r"
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = ns.system ~ (message.content | trim) ~ '\n\n' -%}
    {%- else -%}
        {{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\n' -}}
        {{- ns.system -}}
        {%- if message.content is string -%}
            {{- message.content | trim -}}
        {%- else -%}
            {%- for part in message.content -%}
                {{- '<start_of_image>' if part.type == 'image' else (part.text | trim) -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '<end_of_turn>\n' -}}
        {%- set ns.system = '' -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\n' -}}
{%- endif -%}
";

const MISTRAL: &str = r"
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = ns.system ~ message.content ~ '\n\n' -%}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' ~ (message.content | trim) ~ eos_token -}}
    {%- else -%}
        {{- '[INST] ' ~ ns.system ~ message.content ~ '[/INST]' -}}
        {%- set ns.system = '' -%}
    {%- endif -%}
{%- endfor -%}
";

const LLAMA2: &str = r"
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' -%}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' ~ (message.content | trim) ~ ' ' ~ eos_token -}}
    {%- else -%}
        {{- bos_token -}}
        {{- '[INST] ' ~ (ns.system ~ message.content) | trim ~ ' [/INST]' -}}
        {%- set ns.system = '' -%}
    {%- endif -%}
{%- endfor -%}
";

const PHI3: &str = r"
{%- for message in messages -%}
    {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>\n' -}}
{%- endif -%}
";

const GRANITE: &str = r"
{%- for message in messages -%}
    {{- '<|start_of_role|>' ~ message.role ~ '<|end_of_role|>' ~ message.content ~ '<|end_of_text|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_of_role|>assistant<|end_of_role|>' -}}
{%- endif -%}
";

/// The system message comes before the first turn.
const DEEPSEEK: &str = r"
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = ns.system ~ ('\n\n' if ns.system else '') ~ message.content -%}
    {%- endif -%}
{%- endfor -%}
{{- ns.system -}}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {{- '<｜User｜>' ~ message.content -}}
    {%- elif message.role == 'assistant' -%}
        {{- '<｜Assistant｜>' ~ message.content ~ '<｜end▁of▁sentence｜>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<｜Assistant｜>' -}}
{%- endif -%}
";

const COMMAND_R: &str = r"
{{- bos_token -}}
{%- set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} -%}
{%- for message in messages -%}
    {{- '<|START_OF_TURN_TOKEN|><|' ~ names.get(message.role, 'USER') ~ '_TOKEN|>' -}}
    {{- message.content | trim ~ '<|END_OF_TURN_TOKEN|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' -}}
{%- endif -%}
";
