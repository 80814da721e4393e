//! Errors of tokenizers and chat templates.

/// Why a tokenizer or a chat template was refused, or a chat could not be rendered.
///
/// Encoding and decoding never fail: once a [`crate::Tokenizer`] exists, every text has token ids
/// and every id has bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The vocabulary is of a kind this crate does not implement.
    #[error("tokenizer model \"{found}\" is not supported (supported: {known})")]
    UnsupportedModel {
        /// Name in the file.
        found: String,
        /// Names that are supported.
        known: &'static str,
    },

    /// `tokenizer.ggml.pre` names rules that are not in the table.
    #[error(
        "pre-tokenizer \"{found}\" is not known, and guessing it would split text wrongly (known: {known})"
    )]
    UnknownPreTokenizer {
        /// Name in the file.
        found: String,
        /// Every name in the table, separated by commas.
        known: String,
    },

    /// A part of `tokenizer.json` is of a kind this crate does not implement.
    #[error("tokenizer.json: {part} \"{found}\" is not supported (supported: {known})")]
    UnsupportedPart {
        /// `normalizer`, `pre_tokenizer`, `post_processor` or `decoder`.
        part: &'static str,
        /// Name in the file.
        found: String,
        /// Names that are supported.
        known: &'static str,
    },

    /// A setting of a supported part that this crate does not implement.
    #[error("tokenizer.json: {part}: {found} is not supported; {hint}")]
    UnsupportedSetting {
        /// Part with the setting.
        part: &'static str,
        /// The setting with its value.
        found: String,
        /// The supported values.
        hint: &'static str,
    },

    /// JSON that cannot be parsed, or does not have the expected shape.
    #[error("{file}: {source}")]
    Json {
        /// Which file.
        file: &'static str,
        /// Line, column and reason.
        source: serde_json::Error,
    },

    /// A list is shorter than the list of tokens it belongs to.
    #[error("{list} has {found} entries, expected {expected} (one a token)")]
    ListLength {
        /// Which list.
        list: &'static str,
        /// Number of tokens.
        expected: usize,
        /// Entries in the list.
        found: usize,
    },

    /// Something the vocabulary needs is absent.
    #[error("{0} is missing")]
    Missing(&'static str),

    /// A token id that is outside the vocabulary, or is claimed twice.
    #[error("token id {id} of \"{text}\": {reason}")]
    TokenId {
        /// The id.
        id: u64,
        /// Text of the token.
        text: String,
        /// Description of the fault.
        reason: String,
    },

    /// A token that another part refers to is not in the vocabulary.
    #[error("{by} refers to the token \"{text}\", which the vocabulary does not hold")]
    UnknownToken {
        /// The part that refers to it.
        by: &'static str,
        /// Text of the token.
        text: String,
    },

    /// A map of characters (`precompiled_charsmap`) of another shape.
    #[error("precompiled_charsmap: {reason}")]
    Charsmap {
        /// Description of the fault.
        reason: String,
    },

    /// A `tokenizer.model` that is no SentencePiece model.
    #[error("tokenizer.model: {reason}; expected a SentencePiece model")]
    Pieces {
        /// Description of the fault.
        reason: String,
    },

    /// A merge that does not make a token of the vocabulary from two others.
    #[error("merge {index} (\"{text}\"): {reason}")]
    Merge {
        /// Position in the list of merges.
        index: usize,
        /// The merge as written.
        text: String,
        /// Description of the fault.
        reason: &'static str,
    },

    /// A regular expression that does not compile.
    #[error("regular expression \"{pattern}\": {source}")]
    Regex {
        /// The expression.
        pattern: String,
        /// Why.
        source: Box<fancy_regex::Error>,
    },

    /// The vocabulary is too large for 32-bit offsets or ids.
    #[error("the vocabulary is too large: {what} exceeds {limit}")]
    TooLarge {
        /// The counted thing.
        what: &'static str,
        /// The largest value.
        limit: u64,
    },

    /// The special tokens could not be compiled into one matcher.
    #[error("special tokens: {0}")]
    SpecialTokens(#[from] Box<aho_corasick::BuildError>),

    /// A chat template that does not parse.
    #[error("chat template {name}, line {line}: {reason}")]
    Template {
        /// Where the template comes from: a file and the place in it, as far as known.
        name: String,
        /// Line of the error, from 1; 0 where the parser gives none.
        line: usize,
        /// Why.
        reason: String,
    },

    /// The file that should hold a chat template holds something else.
    #[error("chat_template: expected {expected}, found {found}")]
    TemplateShape {
        /// The expected form.
        expected: &'static str,
        /// The form that was found.
        found: String,
    },

    /// The template itself refused the conversation by calling `raise_exception`.
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),

    /// A chat template that met a bound: length, steps, output, time or memory.
    #[error("chat template {name}: {reason}")]
    TemplateLimit {
        /// Where the template comes from.
        name: String,
        /// The bound it met.
        reason: String,
    },

    /// A chat template that failed while rendering.
    #[error("chat template {name}, line {line}: {reason}")]
    Render {
        /// Where the template comes from.
        name: String,
        /// Line of the error, from 1; 0 where the engine gives none.
        line: usize,
        /// Why.
        reason: String,
    },
}
