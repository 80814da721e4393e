//! Words that a device reads, as text. The command `npu words` asks a target for them.

use serde::Serialize;

/// Explains the words that devices of a target read.
pub trait Disassembler: Sync {
    /// The form of words that it reads, for people.
    fn form(&self) -> &'static str;

    /// The words of a file, operation by operation.
    ///
    /// # Errors
    /// Which word is wrong, and what was expected.
    fn disassemble(&self, file: &[u8]) -> Result<Disassembly, String>;
}

/// Words as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disassembly {
    /// Title: the kind of words.
    pub title: String,
    /// An operation a line.
    pub operations: Vec<DisassemblyLine>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DisassemblyLine {
    /// Position of its first word.
    pub word: usize,
    /// Its words in hexadecimal.
    pub words: Vec<String>,
    /// Kind of the operation.
    pub operation: &'static str,
    /// Its action and the place that it acts on.
    pub text: String,
    /// The values that it writes.
    pub details: Vec<String>,
    /// Values of the fields that it writes, by record.
    pub fields: Vec<Vec<FieldValue>>,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldValue {
    /// The field.
    pub name: &'static str,
    /// Its value as encoded in the words.
    pub value: u64,
}
