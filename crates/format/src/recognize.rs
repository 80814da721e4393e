//! Kinds of files that are not models, or not yet: every reader asks here before it parses.
//!
//! Judged by first bytes where a format has them, else by name. Each kind has advice.

use std::path::Path;

use crate::Error;
use crate::gguf::MAGIC;
use crate::safetensors::MAX_HEADER_BYTES;

/// Bytes that are read of a file's beginning.
const HEAD_BYTES: usize = 1024;

const DOWNLOAD: &str = "download the file again; if it repeats, open the download in a browser";
const CONVERT: &str =
    "take the safetensors or GGUF files of the model, or convert it to safetensors";
const UNPACK: &str = "unpack it and name a file inside";
const OLD_GGML: &str =
    "take a GGUF file of the model: programs stopped reading this format in 2023";

/// Whether a file's beginning is of a kind.
enum Sign {
    /// It starts with these bytes.
    Start(&'static [u8]),
    /// It has these bytes at an offset.
    At(usize, &'static [u8]),
    /// It starts with this text, after white space and a byte order mark, in any case.
    Text(&'static str),
    /// It fulfils this rule.
    Rule(fn(&[u8]) -> bool),
}

/// A kind of file: how to recognise it, its name, advice.
struct FileKind(Sign, &'static str, &'static str);

const KINDS: &[FileKind] = &[
    FileKind(
        Sign::Text("version https://git-lfs"),
        "a Git LFS pointer, not the file itself",
        "fetch the file with `git lfs pull`, or download it by itself",
    ),
    FileKind(
        Sign::Text("version https://hawser"),
        "a Git LFS pointer, not the file itself",
        "fetch the file with `git lfs pull`, or download it by itself",
    ),
    FileKind(
        Sign::Text("# xet version"),
        "a Xet pointer, not the file itself",
        "fetch the file with `git xet` installed, or download it by itself",
    ),
    FileKind(Sign::Text("<!doctype html"), "a web page", DOWNLOAD),
    FileKind(Sign::Text("<html"), "a web page", DOWNLOAD),
    FileKind(Sign::Text("<head"), "a web page", DOWNLOAD),
    FileKind(Sign::Rule(is_web_page), "a web page", DOWNLOAD),
    FileKind(
        Sign::Text("<?xml"),
        "an XML text, such as a server's error",
        DOWNLOAD,
    ),
    FileKind(
        Sign::Text("<error"),
        "an XML text, such as a server's error",
        DOWNLOAD,
    ),
    FileKind(
        Sign::Rule(is_pytorch_zip),
        "a PyTorch checkpoint (a ZIP archive with pickles)",
        CONVERT,
    ),
    FileKind(Sign::Start(b"PK\x03\x04"), "a ZIP archive", UNPACK),
    FileKind(Sign::Start(b"PK\x05\x06"), "an empty ZIP archive", UNPACK),
    FileKind(Sign::Start(b"\x1f\x8b"), "a gzip archive", UNPACK),
    FileKind(Sign::Start(b"\xfd7zXZ\0"), "an xz archive", UNPACK),
    FileKind(
        Sign::Start(b"\x28\xb5\x2f\xfd"),
        "a Zstandard archive",
        UNPACK,
    ),
    FileKind(Sign::Rule(is_bzip2), "a bzip2 archive", UNPACK),
    FileKind(
        Sign::Start(b"7z\xbc\xaf\x27\x1c"),
        "a 7-Zip archive",
        UNPACK,
    ),
    FileKind(Sign::Start(b"Rar!\x1a\x07"), "a RAR archive", UNPACK),
    FileKind(Sign::At(257, b"ustar"), "a tar archive", UNPACK),
    FileKind(
        Sign::Rule(is_pickle),
        "a Python pickle, such as an old PyTorch checkpoint",
        CONVERT,
    ),
    FileKind(Sign::Start(b"\x93NUMPY"), "a NumPy array", CONVERT),
    FileKind(
        Sign::Start(b"\x89HDF\r\n\x1a\n"),
        "an HDF5 file (Keras)",
        CONVERT,
    ),
    // ggml wrote its magic numbers as little-endian integers.
    FileKind(Sign::Start(b"lmgg"), "an old GGML file", OLD_GGML),
    FileKind(Sign::Start(b"fmgg"), "an old GGMF file", OLD_GGML),
    FileKind(Sign::Start(b"tjgg"), "an old GGJT file", OLD_GGML),
    FileKind(
        Sign::Start(b"algg"),
        "an old GGLA file, a LoRA adapter",
        "merge it into its base model and take the result",
    ),
    FileKind(Sign::At(4, b"TFL3"), "a TensorFlow Lite model", CONVERT),
    FileKind(Sign::Start(b"LITERTLM"), "a LiteRT-LM model", CONVERT),
    FileKind(Sign::Start(b"RKNN"), "an RKNN model", CONVERT),
    FileKind(Sign::Start(b"RKLLM"), "an RKLLM model", CONVERT),
    FileKind(
        Sign::Start(b"MZqFpD"),
        "a llamafile, which is a program with a GGUF file inside",
        "unpack the GGUF file with `unzip`",
    ),
    FileKind(
        Sign::Start(b"\x7fELF"),
        "a program or library",
        "name a model file",
    ),
    FileKind(Sign::Start(b"%PDF-"), "a PDF document", "name a model file"),
    FileKind(
        Sign::Rule(is_imatrix),
        "an importance matrix (imatrix), which tools quantise with",
        "name the model itself",
    ),
    FileKind(
        Sign::Rule(is_onnx),
        "an ONNX or Core ML model (Protocol Buffers)",
        CONVERT,
    ),
    FileKind(
        Sign::Rule(is_zeros),
        "a file of zeros",
        "the download reserved the space and did not finish: fetch the file again",
    ),
    FileKind(
        Sign::Rule(is_server_error),
        "a server's error message in JSON",
        DOWNLOAD,
    ),
];

impl Sign {
    fn matches(&self, head: &[u8]) -> bool {
        match self {
            Sign::Start(bytes) => head.starts_with(bytes),
            Sign::At(offset, bytes) => head
                .get(*offset..)
                .is_some_and(|rest| rest.starts_with(bytes)),
            Sign::Text(text) => starts_with_text(head, text),
            Sign::Rule(rule) => rule(head),
        }
    }
}

fn starts_with_text(head: &[u8], text: &str) -> bool {
    let rest = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let rest = rest.trim_ascii_start();
    rest.get(..text.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes()))
}

/// A comment, and then a page.
fn is_web_page(head: &[u8]) -> bool {
    let lower = head.to_ascii_lowercase();
    starts_with_text(head, "<!--") && contains(&lower, b"<html")
}

fn is_pytorch_zip(head: &[u8]) -> bool {
    // The first member is NAME/data.pkl, or the byte order that newer versions put before it.
    head.starts_with(b"PK\x03\x04")
        && (contains(head, b"/data.pkl")
            || contains(head, b"/byteorder")
            || contains(head, b"/.format_version"))
}

fn is_bzip2(head: &[u8]) -> bool {
    // Block magic: the digits of pi.
    head.starts_with(b"BZh") && head.get(4..10) == Some(b"\x31\x41\x59\x26\x53\x59")
}

/// Protocol 2 and later begin this way; the opcode behind is a frame, a tuple, a dict, a global or an integer.
fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 2..=5, op, ..] if b"\x95(}]c\x8aX\x8c".contains(op))
}

/// Number of entries, then a name's length and the name of a weight: the format before GGUF's.
fn is_imatrix(head: &[u8]) -> bool {
    let number = |at: usize| {
        let bytes = head.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(i32::from_le_bytes(bytes)).ok()
    };
    let (Some(count), Some(len)) = (number(0), number(4)) else {
        return false;
    };
    let name = head.get(8..8usize.saturating_add(len)).unwrap_or_default();
    (1..1 << 20).contains(&count)
        && name.ends_with(b".weight")
        && name.iter().all(u8::is_ascii_graphic)
}

/// A version number and the producer's name: the beginning of ONNX's ModelProto, and of Core ML's Model.
fn is_onnx(head: &[u8]) -> bool {
    let &[0x08, 1..=31, tag, len, ref rest @ ..] = head else {
        return false;
    };
    let is_text = |bytes: &[u8]| bytes.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
    match tag {
        0x12 if len > 0 => {
            rest.get(..usize::from(len)).is_some_and(is_text) || contains(head, b"coremltools")
        }
        _ => false,
    }
}

fn is_zeros(head: &[u8]) -> bool {
    head.len() >= 64 && head.iter().all(|b| *b == 0)
}

fn is_server_error(head: &[u8]) -> bool {
    starts_with_text(head, "{\"error\"") || starts_with_text(head, "{\"detail\"")
}

fn contains(head: &[u8], part: &[u8]) -> bool {
    head.windows(part.len()).any(|window| window == part)
}

/// Names of files that are recognised by name alone.
const NAMES: &[(&str, &str, &str)] = &[
    (".onnx", "an ONNX model", CONVERT),
    (".onnx_data", "the weights of an ONNX model", CONVERT),
    (".mlmodel", "a Core ML model", CONVERT),
    (".mlpackage", "a Core ML model", CONVERT),
    (".mlmodelc", "a compiled Core ML model", CONVERT),
    (".tflite", "a TensorFlow Lite model", CONVERT),
    (".msgpack", "a Flax checkpoint", CONVERT),
    (".h5", "a Keras checkpoint", CONVERT),
    (".rkllm", "an RKLLM model", CONVERT),
    (".rknn", "an RKNN model", CONVERT),
    (
        ".incomplete",
        "an unfinished download",
        "let it finish, or fetch the file again",
    ),
    (
        ".crdownload",
        "an unfinished download",
        "let it finish, or fetch the file again",
    ),
    (
        ".aria2",
        "the notes of an unfinished download",
        "let it finish, or fetch the file again",
    ),
    (
        ".partial",
        "an unfinished download",
        "let it finish, or fetch the file again",
    ),
    (
        ".download",
        "an unfinished download",
        "let it finish, or fetch the file again",
    ),
    (
        ".part",
        "an unfinished download",
        "let it finish, or fetch the file again",
    ),
];

/// The kind that a path's name indicates, for files whose beginning does not.
fn by_name(path: &Path) -> Option<(&'static str, &'static str)> {
    let name = file_name(path);
    if is_part(&name) {
        return Some((
            "one part of a file that was cut",
            "join all parts in their order (`cat NAME.part1 NAME.part2 > NAME`) and name the result",
        ));
    }
    let row = NAMES.iter().find(|row| name.ends_with(row.0))?;
    Some((row.1, row.2))
}

/// `….part1`, `….part2of3`, `…-split-a`, `….001`.
fn is_part(name: &str) -> bool {
    let Some((_, tail)) = name.rsplit_once(['.', '-']) else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(number) = tail
        .strip_prefix("part")
        .map(|rest| rest.trim_start_matches(['-', '_']))
    {
        let (number, of) = number.split_once("of").unwrap_or((number, "1"));
        return digits(number) && digits(of);
    }
    let after_split = name
        .rsplit_once("-split-")
        .is_some_and(|(_, tail)| tail.len() <= 2 && tail.bytes().all(|b| b.is_ascii_lowercase()));
    after_split || (tail.len() == 3 && digits(tail) && name.contains(".gguf."))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().to_ascii_lowercase()
}

/// The kind of a file that begins so, if it is a kind that is not a model.
fn kind_of(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.is_empty() {
        return Some((
            "an empty file",
            "the download did not begin, or the disk was full: fetch the file again",
        ));
    }
    let head = &head[..head.len().min(HEAD_BYTES)];
    let kind = KINDS.iter().find(|kind| kind.0.matches(head))?;
    Some((kind.1, kind.2))
}

pub(crate) fn error(path: &Path, (what, advice): (&str, &str)) -> Error {
    Error::NotAModel {
        file: path.to_owned(),
        what: what.to_owned(),
        advice: advice.to_owned(),
    }
}

/// Refuses a file whose beginning shows that it is of another kind than expected.
///
/// # Errors
/// [`Error::NotAModel`].
pub(crate) fn check(bytes: &[u8], path: &Path) -> Result<(), Error> {
    match kind_of(bytes) {
        Some(kind) => Err(error(path, kind)),
        None => Ok(()),
    }
}

/// The same for a file of weights, which is not text either.
///
/// # Errors
/// [`Error::NotAModel`].
pub(crate) fn check_weights(bytes: &[u8], path: &Path) -> Result<(), Error> {
    // Lengths of headers are any bytes, also those that other formats begin with.
    if is_safetensors(bytes) || bytes.starts_with(&MAGIC) {
        return Ok(());
    }
    check(bytes, path)?;
    let head = &bytes[..bytes.len().min(64)];
    let is_text = str::from_utf8(head).is_ok()
        && head
            .iter()
            .all(|b| !b.is_ascii_control() || b.is_ascii_whitespace());
    if !is_text || head.starts_with(b"FUGG") {
        return Ok(());
    }
    Err(Error::NotAModel {
        file: path.to_owned(),
        what: format!(
            "a text that begins with {:?}",
            String::from_utf8_lossy(&head[..head.len().min(40)])
        ),
        advice: "read it: servers send a text when they refuse a download".to_owned(),
    })
}

/// A header's length that is allowed, and a JSON object.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return false;
    };
    u64::from_le_bytes(*length) <= MAX_HEADER_BYTES && rest.first() == Some(&b'{')
}

/// Adds the kind of a file to a failure where the file's name explains it.
pub(crate) fn explain(failure: Error, path: &Path) -> Error {
    let unreadable = match &failure {
        Error::Truncated { .. } | Error::BeyondFile { .. } | Error::UnknownFormat { .. } => true,
        // An invalid header length: the file's first bytes are not those of a model.
        Error::Limit { offset, .. } => *offset == 0,
        _ => false,
    };
    match by_name(path).filter(|_| unreadable) {
        Some(kind) => error(path, kind),
        None => failure,
    }
}

/// The kind of a folder that holds no weights under a name that is looked for.
pub(crate) fn folder(dir: &Path, names: &[String]) -> Option<Error> {
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    let adapter = [
        "adapter_config.json",
        "adapter_model.safetensors",
        "adapter_model.bin",
        "adapters.safetensors",
    ];
    if adapter.iter().any(|name| has(name)) {
        return Some(adapter_folder(dir));
    }
    if has("model_index.json") {
        let kind = (
            "a diffusers pipeline, which makes images",
            "take a language model",
        );
        return Some(error(dir, kind));
    }
    if let Some(kind) = by_name(dir) {
        return Some(error(dir, kind));
    }
    let (name, kind) = names
        .iter()
        .find_map(|name| Some((name, by_name(Path::new(name))?)))?;
    Some(Error::NotAModel {
        file: dir.to_owned(),
        what: format!("no model that this program reads: its {name} is {}", kind.0),
        advice: kind.1.to_owned(),
    })
}

/// A folder of PEFT: the changes that fine-tuning made to another model.
fn adapter_folder(dir: &Path) -> Error {
    let config = std::fs::read(dir.join("adapter_config.json")).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap_or_default();
    let base = config["base_model_name_or_path"]
        .as_str()
        .map_or("its base model".to_owned(), |base| {
            format!("its base model {base}")
        });
    Error::NotAModel {
        file: dir.to_owned(),
        what: "a LoRA adapter (PEFT), not a model".to_owned(),
        advice: format!(
            "merge it into {base} (`merge_and_unload` of peft) and name the merged model's folder, or name {base} \
             and the adapter with --lora"
        ),
    }
}

#[cfg(test)]
mod tests;
