//! A stream as text: the action of each operation, with the fields of the words that it writes.

use crate::field::Record;
use crate::port;
use crate::register::{self, BlockKind, RegisterAt};
use crate::tile::{Direction, Tile, TileKind};
use crate::txn::{NPU2, TxnOperation, TxnStream};

/// A stream, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Heading: the array that the stream is for.
    pub title: String,
    /// A line an operation.
    pub lines: Vec<ListingLine>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingLine {
    /// Its first word's position in the stream.
    pub word: usize,
    /// Its words.
    pub words: Vec<u32>,
    /// Its name (`write`, `block-write`, `sync`, …).
    pub operation: &'static str,
    /// Its action and its target.
    pub text: String,
    /// Its writes, record by record.
    pub details: Vec<String>,
    /// The values of the fields that it writes, by record: name and value, zeros too.
    pub fields: Vec<Vec<(&'static str, u64)>>,
}

/// Words of data that are shown one by one; of more only the number.
const SHOWN: usize = 16;

/// The listing of a stream.
pub fn listing(stream: &TxnStream) -> Listing {
    let h = stream.header;
    let device = if h.generation == NPU2 { "NPU2" } else { "NPU1" };
    let mut at = 4;
    let lines = stream.operations.iter().map(|operation| {
        let alone = TxnStream {
            header: h,
            operations: vec![operation.clone()],
        };
        let words = alone.encode().split_off(4);
        let mut line = describe(&operation.operation);
        line.word = at;
        at += words.len();
        line.words = words;
        line
    });
    let lines: Vec<ListingLine> = lines.collect();
    Listing {
        title: format!(
            "TXN 0.1 for {device}, {} columns, {} rows, {} of them of memory tiles: {} operations, {} bytes",
            h.columns,
            h.rows,
            h.memory_rows,
            lines.len(),
            at * 4
        ),
        lines,
    }
}

fn line(operation: &'static str, text: String) -> ListingLine {
    ListingLine {
        word: 0,
        words: Vec::new(),
        operation,
        text,
        details: Vec::new(),
        fields: Vec::new(),
    }
}

/// Tile and register of an address, as far as they are known.
fn place(address: u64) -> (String, Option<(Tile, RegisterAt)>) {
    let Some((tile, offset)) = u32::try_from(address).ok().and_then(Tile::of_address) else {
        return (format!("{address:#010x}"), None);
    };
    match register::find(tile.kind(), offset) {
        Some(found) => {
            let name = found.block.kind.name(found.number);
            let word = match found.block.n_words {
                1 => String::new(),
                _ => format!(" word {}", found.word),
            };
            (format!("{tile} {name}{word}"), Some((tile, found)))
        }
        None => (format!("{tile} {offset:#07x}"), None),
    }
}

pub(crate) fn describe(operation: &TxnOperation) -> ListingLine {
    match operation {
        TxnOperation::Write { address, value } => {
            let (name, found) = place(*address);
            let mut line = line("write", format!("{name} = {value:#010x}"));
            line.record(found, &[*value]);
            line
        }
        TxnOperation::BlockWrite { address, data } => block_write(*address, data),
        TxnOperation::MaskWrite { .. } | TxnOperation::MaskPoll { .. } => {
            describe_masked(operation)
        }
        TxnOperation::Noop => line("no-op", String::new()),
        TxnOperation::Preempt { level } => line("preempt", format!("level {level}")),
        TxnOperation::LoadPdi {
            id,
            size_bytes,
            address,
        } => line(
            "load-pdi",
            format!("{id}: {size_bytes} bytes at {address:#x}"),
        ),
        &TxnOperation::Sync {
            direction,
            col,
            row,
            channel,
            n_cols,
            n_rows,
        } => {
            let way = [Direction::S2mm, Direction::Mm2s][usize::from(direction & 1)].name();
            let text = format!(
                "a token of {way} {channel} of columns {col} to {}, rows {row} to {}",
                u16::from(col) + u16::from(n_cols.max(1)) - 1,
                u16::from(row) + u16::from(n_rows.max(1)) - 1
            );
            line("sync", text)
        }
        TxnOperation::Patch {
            register,
            argument,
            plus_bytes,
        } => {
            let name = place(*register).0;
            let text = format!("{name} += address of argument {argument} + {plus_bytes}");
            line("patch", text)
        }
        TxnOperation::CreateScratchpad { .. } | TxnOperation::UpdateAddress { .. } => {
            describe_scratchpad(operation)
        }
        TxnOperation::Raw { code, data } => {
            let name = ["read-registers", "record-timer", "merge-sync"];
            let name = name.get(usize::from(*code).wrapping_sub(0x82)).copied();
            line(name.unwrap_or("raw"), hexadecimal(data))
        }
    }
}

fn describe_masked(operation: &TxnOperation) -> ListingLine {
    match operation {
        TxnOperation::MaskWrite {
            address,
            value,
            mask,
        } => {
            let name = place(*address).0;
            line(
                "mask-write",
                format!("{name} = {value:#010x} where {mask:#010x}"),
            )
        }
        TxnOperation::MaskPoll {
            address,
            value,
            mask,
            busy,
        } => {
            let name = place(*address).0;
            let how = if *busy { "busy-poll" } else { "mask-poll" };
            line(
                how,
                format!("until {name} is {value:#010x} where {mask:#010x}"),
            )
        }
        _ => line("no-op", String::new()),
    }
}

fn describe_scratchpad(operation: &TxnOperation) -> ListingLine {
    match operation {
        TxnOperation::CreateScratchpad {
            usage,
            size_bytes,
            address,
        } => {
            let text = format!("{size_bytes} bytes of usage {usage} at {address:#x} of the host");
            line("scratchpad", text)
        }
        TxnOperation::UpdateAddress {
            entry,
            function,
            number,
            register,
        } => {
            let (name, sign) = (place((*register).into()).0, function.sign());
            let text = format!("{name} += word {entry} of the scratchpad {sign} {number}");
            line("update", text)
        }
        _ => line("no-op", String::new()),
    }
}

fn hexadecimal(words: &[u32]) -> String {
    if words.len() > SHOWN {
        return format!("{} words", words.len());
    }
    let words = words.iter().map(|word| format!("{word:08X}"));
    words.collect::<Vec<_>>().join(" ")
}

fn block_write(address: u32, data: &[u32]) -> ListingLine {
    let (name, found) = place(address.into());
    let mut line = line("block-write", format!("{name}, {} words", data.len()));
    let Some((tile, first)) = found else {
        line.details.push(hexadecimal(data));
        return line;
    };
    let is_memory = matches!(
        first.block.kind,
        BlockKind::DataMemory | BlockKind::ProgramMemory
    );
    let (pitch, n_words) = (first.block.pitch as usize / 4, first.block.n_words as usize);
    // Whole registers one after the other, with the gaps between them.
    if is_memory || first.word > 0 || pitch != n_words && data.len() > n_words {
        line.details.push(hexadecimal(data));
        return line;
    }
    for (i, words) in data.chunks(n_words).enumerate() {
        let number = first.number + i as u32;
        match number < first.block.count {
            true => line.record(Some((tile, RegisterAt { number, ..first })), words),
            false => line.details.push(hexadecimal(words)),
        }
    }
    line
}

impl ListingLine {
    /// Adds the meaning of a register's words; nothing where they are data or part of a register.
    fn record(&mut self, found: Option<(Tile, RegisterAt)>, words: &[u32]) {
        let Some((tile, register)) = found else {
            return;
        };
        let Some(layout) = register.block.layout else {
            return;
        };
        if register.word > 0 || words.len() != layout.n_words || layout == &register::WORD {
            return;
        }
        match Record::read(layout, words) {
            Ok(record) => {
                let port = port_name(tile.kind(), register);
                let numbered = match register.block.kind {
                    BlockKind::Descriptor | BlockKind::Lock => format!(" {}", register.number),
                    _ => port,
                };
                let text = record.to_string();
                let (name, rest) = text.split_at(layout.name.len());
                self.details.push(format!("{name}{numbered}:{rest}"));
                let fields = layout.fields.iter();
                self.fields.push(
                    fields
                        .map(|row| (row.0.name(), record.get(row.0)))
                        .collect(),
                );
            }
            Err(error) => self.details.push(error.to_string()),
        }
    }
}

/// ` North 2` of a switch's port; empty for other registers.
fn port_name(kind: TileKind, register: RegisterAt) -> String {
    let (order, number) = match register.block.kind {
        BlockKind::Master => (port::masters(kind), register.number),
        BlockKind::Slave => (port::slaves(kind), register.number),
        BlockKind::Slot => (port::slaves(kind), register.number / 4),
        _ => return String::new(),
    };
    let port = u8::try_from(number).ok().and_then(|n| port::at(order, n));
    port.map_or_else(String::new, |port| format!(" {port}"))
}
