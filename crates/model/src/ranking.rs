//! Marks of a ranker in a model's files. They are the tensors of a classifier behind an encoder, or the marks of a
//! causal model that was trained to judge.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use millrace_format::Checkpoint;
use serde_json::Value;

use crate::Error;
use crate::names::HF_PREFIXES;

/// The layer before the scores in GGUF files, without `.weight` or `.bias`.
pub const GGUF_DENSE: &str = "cls";
/// The scores in GGUF files: one row of a classifier, or the rows of "yes" and "no" of a judge.
pub const GGUF_OUT: &str = "cls.output";
/// The norm between the two in GGUF files.
pub const GGUF_NORM: &str = "cls.norm";
/// GGUF key of the labels of [`GGUF_OUT`]'s rows, under the architecture's name.
pub const OUTPUT_LABELS: &str = "classifier.output_labels";
/// llama.cpp's number for pooling by ranking, under `<architecture>.pooling_type`.
pub const POOLING_RANK: u32 = 4;
/// The entry of `config.json` that marks a Qwen 3 reranker for vLLM.
pub const JUDGE_MARK: &str = "is_original_qwen3_reranker";

/// The marks of a judge, in words for messages.
pub const JUDGE_MARKS: &str = "`pooling_type` 4 or a tensor `cls.output.weight` in a GGUF file, \
     `is_original_qwen3_reranker` in config.json, the heading of its README.md, or \"rerank\" in the name of its file or folder";

/// Instruction of a Qwen 3 before the pair, from the page of its reranker.
pub const JUDGE: &str = "Judge whether the Document meets the requirements based on the Query and the Instruct provided. \
     Note that the answer can only be \"yes\" or \"no\".";

/// The instruction where none is given.
pub const INSTRUCTION: &str =
    "Given a web search query, retrieve relevant passages that answer the query";

/// The text that a judge reads: the part before the pair, the pair, and the part behind it.
pub fn judge_text(instruction: &str, query: &str, document: &str) -> [String; 3] {
    [
        format!("<|im_start|>system\n{JUDGE}<|im_end|>\n<|im_start|>user\n"),
        format!("<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"),
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n".to_owned(),
    ]
}

/// More than the first heading takes.
const MAX_README_BYTES: u64 = 1 << 20;

/// The tensors of a classifier behind an encoder, without `.weight` and `.bias`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifierNames {
    /// The layer before the scores.
    pub dense: Option<String>,
    /// The norm behind that layer, which has a weight and may have a bias.
    pub norm: Option<String>,
    /// The scores.
    pub out: String,
}

impl ClassifierNames {
    /// The names in a checkpoint, in the spelling of either kind of files; `None` without scores.
    pub fn find(checkpoint: &Checkpoint) -> Option<ClassifierNames> {
        let has = |name: &str| checkpoint.info(&format!("{name}.weight")).is_some();
        let first = |names: &[&str]| {
            let name = names.iter().find(|name| has(name));
            name.map(|name| (*name).to_owned())
        };
        let out = first(&["classifier", GGUF_OUT, "classifier.out_proj"])?;
        let pooler = HF_PREFIXES.map(|prefix| format!("{prefix}pooler.dense"));
        // In a classifier of two layers the pooler is not part of it.
        let own = first(&[GGUF_DENSE, "classifier.dense", "head.dense", "dense"]);
        Some(ClassifierNames {
            dense: own.or_else(|| pooler.into_iter().find(|name| has(name))),
            norm: first(&[GGUF_NORM, "head.norm"]),
            out,
        })
    }
}

/// Whether the files say that a causal model was trained to judge pairs by "yes" and "no" ([`JUDGE_MARKS`]). Its weights
/// have the same names and shapes as those of a model for chats.
///
/// # Errors
/// [`Error::Format`] for metadata of another type.
pub fn is_judge(checkpoint: &Checkpoint) -> Result<bool, Error> {
    if let Some(metadata) = checkpoint.gguf() {
        let architecture = metadata
            .get_str("general.architecture")?
            .unwrap_or_default();
        let pooling = metadata.get_u32(&format!("{architecture}.pooling_type"))?;
        let has_rows = checkpoint.info(&format!("{GGUF_OUT}.weight")).is_some();
        let name = metadata.get_str("general.name")?.unwrap_or_default();
        if pooling == Some(POOLING_RANK) || has_rows || is_named_so(name) {
            return Ok(true);
        }
    }
    let config = checkpoint.hf().and_then(|files| files.config.as_ref());
    let is_marked = config.is_some_and(|config| config[JUDGE_MARK] == Value::Bool(true));
    let file = checkpoint.files().first();
    Ok(is_marked || file.is_some_and(|file| is_placed_so(file) || says_readme(file)))
}

fn is_named_so(name: &str) -> bool {
    name.to_ascii_lowercase().contains("rerank")
}

/// Whether the file or one of its folders has such a name: a download cache keeps a model's name two folders above its
/// files.
fn is_placed_so(file: &Path) -> bool {
    // A name such as `.` is no sign.
    let whole = file.canonicalize();
    let whole = whole.as_deref().unwrap_or(file);
    // Files of a cache are links to blobs: both names count.
    let names = file.iter().rev().take(4).chain(whole.iter().rev().take(4));
    names.filter_map(|name| name.to_str()).any(is_named_so)
}

fn says_readme(file: &Path) -> bool {
    let path = file.parent().unwrap_or(Path::new(".")).join("README.md");
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let Some(readme) = is_file.then(|| File::open(&path).ok()).flatten() else {
        return false;
    };
    let mut text = Vec::new();
    // A file that cannot be read marks nothing.
    let _ = readme.take(MAX_README_BYTES).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
    text.lines()
        .any(|line| line.starts_with("# ") && is_named_so(line) && line.contains("qwen3"))
}
