//! Reads the vocabulary of a GGUF file, for tests that need real ones. Trusts the file.

use millrace_text::{GgufVocab, Tokenizer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A metadata value of a GGUF file.
#[derive(Debug)]
pub(crate) enum Value {
    Number(f64),
    Text(String),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

/// The metadata of a GGUF file.
pub(crate) struct Metadata(HashMap<String, Value>);

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self.0.split_first_chunk().expect("the file is whole");
        self.0 = tail;
        *head
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> usize {
        u64::from_le_bytes(self.take()) as usize
    }

    fn text(&mut self) -> String {
        let n = self.u64();
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        String::from_utf8(head.to_vec()).expect("texts are UTF-8")
    }

    fn number(&mut self, kind: u32) -> f64 {
        match kind {
            0 => f64::from(self.take::<1>()[0]),
            1 => f64::from(self.take::<1>()[0] as i8),
            2 => f64::from(u16::from_le_bytes(self.take())),
            3 => f64::from(i16::from_le_bytes(self.take())),
            4 => f64::from(self.u32()),
            5 => f64::from(self.u32() as i32),
            6 => f64::from(f32::from_le_bytes(self.take())),
            7 => f64::from(self.take::<1>()[0]),
            10 | 11 => self.u64() as f64,
            12 => f64::from_le_bytes(self.take()),
            other => panic!("value type {other}"),
        }
    }

    fn value(&mut self, kind: u32) -> Value {
        match kind {
            8 => Value::Text(self.text()),
            9 => {
                let (kind, n) = (self.u32(), self.u64());
                match kind {
                    8 => Value::Texts((0..n).map(|_| self.text()).collect()),
                    _ => Value::Numbers((0..n).map(|_| self.number(kind)).collect()),
                }
            }
            _ => Value::Number(self.number(kind)),
        }
    }
}

impl Metadata {
    pub(crate) fn read(path: &Path) -> Metadata {
        let bytes = std::fs::read(path).expect("the file can be read");
        let mut reader = Reader(&bytes);
        assert_eq!(&reader.take::<4>(), b"GGUF");
        let (_version, _tensors, n) = (reader.u32(), reader.u64(), reader.u64());
        let pairs = (0..n).map(|_| {
            let (key, kind) = (reader.text(), reader.u32());
            (key, reader.value(kind))
        });
        Metadata(pairs.collect())
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(&format!("tokenizer.ggml.{key}"))
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            other => panic!("{key}: {other:?}"),
        }
    }

    fn texts(&self, key: &str) -> Vec<&str> {
        match self.get(key) {
            Some(Value::Texts(texts)) => texts.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    fn numbers(&self, key: &str) -> &[f64] {
        match self.get(key) {
            Some(Value::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::Number(number) => Some(*number),
            other => panic!("{key}: {other:?}"),
        }
    }

    /// The file's description of its vocabulary.
    pub(crate) fn vocab(&self) -> GgufVocab<'_> {
        let id = |key| self.number(key).map(|id| id as u32);
        let flag = |key| self.number(key).map(|flag| flag != 0.0);
        GgufVocab {
            model: self.text("model").unwrap_or_default(),
            pre: self.text("pre"),
            tokens: self.texts("tokens"),
            scores: self
                .numbers("scores")
                .iter()
                .map(|score| *score as f32)
                .collect(),
            token_types: self
                .numbers("token_type")
                .iter()
                .map(|kind| *kind as i32)
                .collect(),
            merges: self.get("merges").map(|_| self.texts("merges")),
            bos: id("bos_token_id"),
            eos: id("eos_token_id"),
            eot: id("eot_token_id"),
            eom: id("eom_token_id"),
            fill: [None; 3],
            ends: Vec::new(),
            unk: id("unknown_token_id"),
            cls: id("cls_token_id"),
            sep: id("seperator_token_id"),
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
            add_space_prefix: flag("add_space_prefix"),
            remove_extra_whitespaces: flag("remove_extra_whitespaces"),
            precompiled_charsmap: self
                .numbers("precompiled_charsmap")
                .iter()
                .map(|byte| *byte as i64 as u8)
                .collect(),
            lowercase: flag("normalizer.lowercase"),
            strip_accents: flag("normalizer.strip_accents"),
            metaspace_prepend_scheme: self.text("metaspace_prepend_scheme"),
        }
    }
}

/// The folder of real vocabularies beside the repository, if it is there.
pub(crate) fn vocab_folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vocab");
    let exists = folder.is_dir();
    if !exists {
        println!("skipped: {} is not there", folder.display());
    }
    exists.then_some(folder)
}

/// The tokenizer of a GGUF file.
pub(crate) fn tokenizer(path: &Path) -> Tokenizer {
    let metadata = Metadata::read(path);
    Tokenizer::from_gguf(metadata.vocab()).expect("the vocabulary is supported")
}
