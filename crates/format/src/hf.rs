//! The JSON files beside the weights in a Hugging Face model folder.

mod python_json;
mod special_tokens;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Error, Packing, UnsupportedPacking, recognize};

/// Far more than any configuration needs.
const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// The largest published tokenizers have some 35 MB.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

/// A model folder's description of itself, exactly as in the files: the crates that know the
/// meaning of the fields interpret them. A file that is absent is `None`.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `config.json`.
    pub config: Option<Value>,
    /// `generation_config.json`.
    pub generation_config: Option<Value>,
    /// `preprocessor_config.json`, or `image_processor` in `processor_config.json`: a vision encoder's requirements on
    /// images.
    pub preprocessor_config: Option<Value>,
    /// `1_Pooling/config.json` of sentence-transformers: how rows of tokens become one.
    pub pooling: Option<Value>,
    /// `config_sentence_transformers.json`: among others the prompts in front of texts, by name.
    pub sentence_transformers: Option<Value>,
    /// The steps that `modules.json` of sentence-transformers lists, in its order. Steps whose path leads out of the
    /// folder are omitted.
    pub modules: Option<Vec<SentenceModule>>,
    /// The steps that are layers behind the pooled row.
    pub dense: Vec<DenseModule>,
    /// `tokenizer.json`, unparsed: it is large, and only the tokenizer needs it.
    pub tokenizer_json: Option<Vec<u8>>,
    /// `vocab.json` and `merges.txt`, which older folders have in place of `tokenizer.json`; `None` beside that file.
    pub vocab_and_merges: Option<[Vec<u8>; 2]>,
    /// `tokenizer.model`, a SentencePiece model or a list of another program; `None` beside `tokenizer.json`.
    pub tokenizer_model: Option<Vec<u8>>,
    /// `tokenizer_config.json`, with the entries of `special_tokens_map.json` and
    /// `added_tokens.json` merged into it as transformers does. Where `tokenizer_config.json` has
    /// `added_tokens_decoder`, the other two do not count.
    pub tokenizer_config: Option<Value>,
    /// The Jinja text of `chat_template.jinja`, else of `chat_template.json`, else of the
    /// `chat_template` field of `tokenizer_config.json` (its `default` where it lists several).
    pub chat_template: Option<String>,
}

/// A step of a sentence-transformers folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentenceModule {
    /// The class, without its path up to the last point: `Transformer`, `Pooling`, `Dense`, `Normalize`.
    pub class: String,
    /// Its folder within the model's; empty for the model's own.
    pub path: String,
}

/// A dense layer of a sentence-transformers folder.
#[derive(Clone, Debug)]
pub struct DenseModule {
    /// Its `config.json`.
    pub config: Value,
    /// Its `model.safetensors`.
    pub weights: PathBuf,
}

/// The steps that `modules.json` lists, if there is one.
fn sentence_modules(dir: &Path) -> Result<Option<Vec<SentenceModule>>, Error> {
    let modules = read_json(&dir.join("modules.json"))?;
    let Some(list) = modules.as_ref().and_then(Value::as_array) else {
        return Ok(None);
    };
    let step = |module: &Value| {
        let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
        let class = text("type").rsplit('.').next().unwrap_or_default();
        SentenceModule {
            class: class.to_owned(),
            path: text("path").to_owned(),
        }
    };
    // A path within the folder only: no file outside it is a part of the model.
    let is_plain = |path: &str| !path.contains(['/', '\\']) && !path.starts_with('.');
    let steps = list.iter().map(step);
    Ok(Some(steps.filter(|step| is_plain(&step.path)).collect()))
}

/// The dense layers among the steps.
fn dense_modules(
    dir: &Path,
    modules: Option<&[SentenceModule]>,
) -> Result<Vec<DenseModule>, Error> {
    let modules = modules.into_iter().flatten();
    let dense = modules.filter(|module| module.class == "Dense" && !module.path.is_empty());
    let read = |module: &SentenceModule| {
        let folder = dir.join(&module.path);
        Ok(DenseModule {
            config: read_json(&folder.join("config.json"))?.unwrap_or_default(),
            weights: folder.join("model.safetensors"),
        })
    };
    dense.map(read).collect()
}

impl Files {
    /// Reads the files that the folder `dir` has. Links are followed, as download caches need.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotAFile`], [`Error::Limit`] for a file of absurd size,
    /// [`Error::Json`], [`Error::NotUtf8`] for a template.
    pub fn read(dir: &Path) -> Result<Files, Error> {
        let tokenizer_config = special_tokens::merged(
            read_json(&dir.join("tokenizer_config.json"))?,
            read_json(&dir.join("special_tokens_map.json"))?,
            read_json(&dir.join("added_tokens.json"))?,
        );
        let modules = sentence_modules(dir)?;
        let tokenizer_json = read_if_present(&dir.join("tokenizer.json"), MAX_TOKENIZER_BYTES)?;
        Ok(Files {
            config: read_json(&dir.join("config.json"))?,
            generation_config: read_json(&dir.join("generation_config.json"))?,
            preprocessor_config: read_preprocessor(dir)?,
            pooling: read_json(&dir.join("1_Pooling").join("config.json"))?,
            sentence_transformers: read_json(&dir.join("config_sentence_transformers.json"))?,
            dense: dense_modules(dir, modules.as_deref())?,
            modules,
            vocab_and_merges: match tokenizer_json {
                Some(_) => None,
                None => read_vocab_and_merges(dir)?,
            },
            tokenizer_model: match tokenizer_json {
                Some(_) => None,
                None => read_if_present(&dir.join("tokenizer.model"), MAX_TOKENIZER_BYTES)?,
            },
            tokenizer_json,
            chat_template: read_chat_template(dir, tokenizer_config.as_ref())?,
            tokenizer_config,
        })
    }
}

fn read_vocab_and_merges(dir: &Path) -> Result<Option<[Vec<u8>; 2]>, Error> {
    let read = |name: &str| read_if_present(&dir.join(name), MAX_TOKENIZER_BYTES);
    let vocab = read("vocab.json")?;
    let merges = match vocab {
        Some(_) => read("merges.txt")?,
        None => None,
    };
    Ok(vocab.zip(merges).map(<[Vec<u8>; 2]>::from))
}

/// A vision encoder's requirements on images: a separate file, or the image processor's part of the processor's
/// as transformers 5 writes it.
fn read_preprocessor(dir: &Path) -> Result<Option<Value>, Error> {
    let own = read_json(&dir.join("preprocessor_config.json"))?;
    if own.is_some() {
        return Ok(own);
    }
    let processor = read_json(&dir.join("processor_config.json"))?;
    Ok(processor.and_then(|processor| processor.get("image_processor").cloned()))
}

impl Files {
    /// The packing of matrices, if `config.json` has one.
    pub fn packing(&self) -> Option<Result<Packing, UnsupportedPacking>> {
        Packing::find(self.config.as_ref()?).map(Packing::read)
    }

    /// The numbers of the tokens that end a text: those of `generation_config.json`, else those of
    /// `config.json` and the configuration of its language model, as in transformers. Both write one
    /// number or a list.
    pub fn end_token_ids(&self) -> Vec<u32> {
        let generation = self.generation_config.as_ref();
        let config = self.config.as_ref();
        let text = config.and_then(|config| config.get("text_config"));
        [generation, config, text]
            .into_iter()
            .filter_map(|source| ids(source?.get("eos_token_id")?))
            .next()
            .unwrap_or_default()
    }
}

impl Files {
    /// The number of the token that `tokenizer_config.json` calls `sep_token`, from that file or from `tokenizer.json`.
    pub fn separator_id(&self) -> Option<u32> {
        let config = self.tokenizer_config.as_ref()?;
        let token = config.get("sep_token")?;
        let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
        let is_it = |token: &Value| token.get("content").and_then(Value::as_str) == Some(text);
        let decoder = config
            .get("added_tokens_decoder")
            .and_then(Value::as_object);
        let mut decoder = decoder.into_iter().flatten();
        if let Some((id, _)) = decoder.find(|(_, token)| is_it(token)) {
            return id.parse().ok();
        }
        let tokenizer: Value = serde_json::from_slice(self.tokenizer_json.as_deref()?).ok()?;
        let added = tokenizer.get("added_tokens")?.as_array()?;
        let found = added.iter().find(|token| is_it(token))?;
        u32::try_from(found.get("id")?.as_u64()?).ok()
    }
}

/// One id or a list of them; `None` for anything else.
fn ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) => Some(list.iter().filter_map(id).collect()),
        one => Some(vec![id(one)?]),
    }
}

fn read_chat_template(dir: &Path, config: Option<&Value>) -> Result<Option<String>, Error> {
    let path = dir.join("chat_template.jinja");
    if let Some(bytes) = read_if_present(&path, MAX_CONFIG_BYTES)? {
        let text = String::from_utf8(bytes).map_err(|error| Error::NotUtf8 {
            file: path,
            what: "the template".to_owned(),
            offset: error.utf8_error().valid_up_to() as u64,
        })?;
        return Ok(Some(text));
    }
    let from_file = read_json(&dir.join("chat_template.json"))?;
    let found = from_file.as_ref().and_then(template_of);
    Ok(found.or_else(|| template_of(config?)).map(str::to_owned))
}

/// The `chat_template` field: a string, or a list of `{name, template}`.
fn template_of(config: &Value) -> Option<&str> {
    match config.get("chat_template")? {
        Value::String(text) => Some(text),
        Value::Array(templates) => {
            let default = templates
                .iter()
                .find(|template| template["name"] == "default")?;
            default["template"].as_str()
        }
        _ => None,
    }
}

fn read_json(path: &Path) -> Result<Option<Value>, Error> {
    let Some(bytes) = read_if_present(path, MAX_CONFIG_BYTES)? else {
        return Ok(None);
    };
    let value = python_json::parse(&bytes).map_err(|source| Error::Json {
        file: path.to_owned(),
        what: "not valid JSON",
        source,
    })?;
    Ok(Some(value))
}

fn read_if_present(path: &Path, limit_bytes: u64) -> Result<Option<Vec<u8>>, Error> {
    match read_file(path, limit_bytes) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A whole file of at most `limit_bytes`.
pub(crate) fn read_file(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let kind = std::fs::metadata(path).map_err(Error::opening(path))?;
    if !kind.is_file() {
        return Err(Error::NotAFile {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    // One byte more than the limit distinguishes a file of exactly that size from a longer one.
    file.take(limit_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(Error::io(path, "read"))?;
    if bytes.len() as u64 > limit_bytes {
        return Err(Error::Limit {
            file: path.to_owned(),
            what: "the file's length".to_owned(),
            offset: 0,
            found: kind.len().max(bytes.len() as u64),
            limit: limit_bytes,
        });
    }
    recognize::check(&bytes, path)?;
    Ok(bytes)
}
