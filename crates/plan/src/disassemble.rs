//! Words that a device reads, as text: what the command `npu words` asks a target.

use serde::Serialize;

/// Tells what words mean that devices of a target read.
pub trait Disassembler: Sync {
    /// What it reads, in words.
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
    /// What they are.
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
    /// What it is.
    pub operation: &'static str,
    /// What it does to what.
    pub text: String,
    /// What it writes.
    pub details: Vec<String>,
    /// Values of the fields that it writes, by record.
    pub fields: Vec<Vec<FieldValue>>,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldValue {
    /// The field.
    pub name: &'static str,
    /// Its value as it stands in the words.
    pub value: u64,
}
