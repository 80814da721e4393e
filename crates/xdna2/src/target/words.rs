//! Transaction streams as text.

use millrace_plan::{Disassembler, Disassembly, DisassemblyLine, FieldValue};
use millrace_xdna2_words::listing::{ListingLine, listing};
use millrace_xdna2_words::txn::{decode, words_of_file};

/// Disassembler of firmware's streams.
pub(super) struct Xdna2Words;

impl Disassembler for Xdna2Words {
    fn form(&self) -> &'static str {
        "transaction streams (TXN 0.1), binary or as hexadecimal text"
    }

    fn disassemble(&self, file: &[u8]) -> Result<Disassembly, String> {
        let words = words_of_file(file)?;
        let listing = listing(&decode(&words).map_err(|error| error.to_string())?);
        Ok(Disassembly {
            title: listing.title,
            operations: listing.lines.into_iter().map(line).collect(),
        })
    }
}

fn line(line: ListingLine) -> DisassemblyLine {
    let values = |record: Vec<(&'static str, u64)>| {
        let values = record.into_iter();
        values
            .map(|(name, value)| FieldValue { name, value })
            .collect()
    };
    DisassemblyLine {
        word: line.word,
        words: line
            .words
            .iter()
            .map(|word| format!("{word:08X}"))
            .collect(),
        operation: line.operation,
        text: line.text,
        details: line.details,
        fields: line.fields.into_iter().map(values).collect(),
    }
}
