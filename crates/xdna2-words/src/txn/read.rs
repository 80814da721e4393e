//! Words to a stream.

use super::{
    Hints, NPU1, NPU2, ScratchpadFunction, StreamError, StreamHeader, StreamOperation,
    TxnOperation, TxnStream,
};

/// Operations with a known number and unknown words.
const UNKNOWN: [(u8, &str); 6] = [
    (2, "block set"),
    (9, "load program memory"),
    (11, "update state table"),
    (13, "update scratchpad"),
    (14, "configure shim descriptor"),
    (15, "configure shim descriptor"),
];

/// The words of a file: little-endian, or text of hexadecimal words of eight digits between blanks,
/// with comments from `#` to the end of a line.
///
/// # Errors
/// Neither.
pub fn words_of_file(bytes: &[u8]) -> Result<Vec<u32>, String> {
    let is_text = bytes
        .iter()
        .all(|b| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~'));
    if bytes.is_empty() {
        return Err("it is empty; a stream has a header of four words at least".to_owned());
    }
    if !is_text {
        let chunks = bytes.chunks_exact(4);
        if !chunks.remainder().is_empty() {
            let n = bytes.len();
            return Err(format!("{n} bytes are no whole number of 4-byte words"));
        }
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        return Ok(chunks.map(word).collect());
    }
    let text = String::from_utf8_lossy(bytes);
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
        {
            let digits = word.strip_prefix("0x").unwrap_or(word);
            let value = u32::from_str_radix(digits, 16).ok();
            let value = value.filter(|_| digits.len() == 8);
            let at = number + 1;
            words.push(value.ok_or_else(|| {
                format!("line {at}: `{word}` is no hexadecimal word of eight digits")
            })?);
        }
    }
    if words.is_empty() {
        return Err("no words in this text".to_owned());
    }
    Ok(words)
}

struct Reader<'a> {
    words: &'a [u32],
    at: usize,
}

fn fail<T>(word: usize, problem: impl Into<String>) -> Result<T, StreamError> {
    Err(StreamError {
        word,
        problem: problem.into(),
    })
}

/// Reads a stream of format 0.1.
///
/// # Errors
/// Says which word is wrong and why. Words that the format does not define are refused, so that every stream that is
/// read is written again as the same words.
pub fn decode(words: &[u32]) -> Result<TxnStream, StreamError> {
    if words.len() < 4 {
        let n = words.len();
        return fail(n, format!("a header has four words, this has {n}"));
    }
    let [major, minor, generation, rows] = words[0].to_le_bytes();
    let [columns, memory_rows, zero, also_zero] = words[1].to_le_bytes();
    if (major, minor) != (0, 1) {
        let problem = format!("format {major}.{minor}; this reads 0.1 (word 0 of NPU2: 06040100)");
        return fail(0, problem);
    }
    if generation != NPU1 && generation != NPU2 {
        return fail(0, format!("generation {generation}; 3 is NPU1, 4 is NPU2"));
    }
    if zero != 0 || also_zero != 0 {
        return fail(1, format!("bits 31:16 of {:08X} are undefined", words[1]));
    }
    if words[3] as usize != words.len() * 4 {
        let (said, n) = (words[3], words.len() * 4);
        let advice = match n < said as usize {
            true => "it is cut off, so write or copy it again",
            false => "something stands behind it, which is to be cut off",
        };
        let problem = format!("the header says {said} bytes, there are {n}: {advice}");
        return fail(3, problem);
    }
    let header = StreamHeader {
        rows,
        generation,
        memory_rows,
        columns,
    };
    let mut reader = Reader { words, at: 4 };
    let mut operations = Vec::new();
    while reader.at < words.len() {
        operations.push(reader.operation()?);
    }
    if operations.len() != words[2] as usize {
        let n = operations.len();
        return fail(
            2,
            format!("the header says {} operations, there are {n}", words[2]),
        );
    }
    Ok(TxnStream { header, operations })
}

impl<'a> Reader<'a> {
    /// So many words from here on, the operation's first among them.
    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u32], StreamError> {
        let Some(words) = self.words.get(self.at..self.at + n) else {
            let left = self.words.len() - self.at;
            return fail(self.at, format!("{what} has {n} words, {left} are left"));
        };
        self.at += n;
        Ok(words)
    }

    fn operation(&mut self) -> Result<StreamOperation, StreamError> {
        let (start, first) = (self.at, self.words[self.at]);
        let code = first as u8;
        let hints = Hints {
            first: first >> 8,
            second: self.words.get(start + 1).copied().unwrap_or(0),
            padded: false,
        };
        let plain = |operation| Ok(StreamOperation::from(operation));
        match code {
            0 => self.write(hints),
            1 => self.block_write(hints),
            3 | 4 | 7 => self.masked(code, hints),
            5 if first == 5 => {
                self.take(1, "a no-op")?;
                plain(TxnOperation::Noop)
            }
            6 => {
                self.take(1, "a preemption point")?;
                plain(TxnOperation::Preempt { level: first >> 8 })
            }
            8 => {
                let words = self.take(4, "a load of a PDI")?;
                if first >> 8 & 0xFF != 0 {
                    return fail(start, format!("bits 15:8 of {first:08X} are undefined"));
                }
                plain(TxnOperation::LoadPdi {
                    id: first >> 16,
                    size_bytes: words[1],
                    address: u64::from(words[2]) | u64::from(words[3]) << 32,
                })
            }
            10 => self.scratchpad(),
            12 => self.update(),
            0x80..=0x84 if first >> 8 != 0 => {
                fail(start, format!("bits 31:8 of {first:08X} are undefined"))
            }
            0x80 => self.sync(),
            0x81 => self.patch(),
            0x82..=0x84 => self.raw(code),
            _ => match UNKNOWN.iter().find(|row| row.0 == code) {
                Some((_, name)) => fail(
                    start,
                    format!("operation {code} ({name}): its words are not documented"),
                ),
                None => fail(start, format!("{first:08X} begins no operation")),
            },
        }
    }

    fn size(&self, at: usize, found: u32, expected: u32, what: &str) -> Result<(), StreamError> {
        if found == expected {
            return Ok(());
        }
        fail(at, format!("{what} of {found} bytes; it has {expected}"))
    }

    fn write(&mut self, hints: Hints) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let words = self.take(6, "a write")?;
        self.size(start + 5, words[5], 24, "a write")?;
        let operation = TxnOperation::Write {
            address: u64::from(words[2]) | u64::from(words[3]) << 32,
            value: words[4],
        };
        Ok(StreamOperation { operation, hints })
    }

    fn block_write(&mut self, hints: Hints) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let size = self.take(4, "a block write")?[3];
        self.at = start;
        if size < 20 || size % 4 != 0 {
            let problem = format!("a block write of {size} bytes; its head alone has 16");
            return fail(start + 3, problem);
        }
        let words = self.take(size as usize / 4, "a block write")?;
        let operation = TxnOperation::BlockWrite {
            address: words[2],
            data: words[4..].to_vec(),
        };
        Ok(StreamOperation { operation, hints })
    }

    fn masked(&mut self, code: u8, mut hints: Hints) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let words = self.take(7, "a masked operation")?;
        let (value, mask) = (words[4], words[5]);
        let address = u64::from(words[2]) | u64::from(words[3]) << 32;
        match words[6] {
            28 => {}
            32 => {
                hints.padded = true;
                if self.take(1, "the padding of a masked operation")?[0] != 0 {
                    return fail(start + 7, "padding is not zero");
                }
            }
            size => {
                let problem = format!("a masked operation of {size} bytes; it has 28 or 32");
                return fail(start + 6, problem);
            }
        }
        let operation = match code {
            3 => TxnOperation::MaskWrite {
                address,
                value,
                mask,
            },
            _ => TxnOperation::MaskPoll {
                address,
                value,
                mask,
                busy: code == 7,
            },
        };
        Ok(StreamOperation { operation, hints })
    }

    fn sync(&mut self) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let words = self.take(4, "a wait")?;
        self.size(start + 1, words[1], 16, "a wait")?;
        let [direction, row, col, zero] = words[2].to_le_bytes();
        let [also_zero, n_rows, n_cols, channel] = words[3].to_le_bytes();
        if direction > 1 || zero != 0 || also_zero != 0 {
            let problem = format!("{:08X} {:08X} is no wait for tokens", words[2], words[3]);
            return fail(start + 2, problem);
        }
        Ok(StreamOperation::from(TxnOperation::Sync {
            direction,
            col,
            row,
            channel,
            n_cols,
            n_rows,
        }))
    }

    fn patch(&mut self) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let words = self.take(12, "a patch")?;
        self.size(start + 1, words[1], 48, "a patch")?;
        if let Some(at) = [2, 3, 4, 5, 9].into_iter().find(|&at| words[at] != 0) {
            let problem = format!("{:08X}; only 0 is known here", words[at]);
            return fail(start + at, problem);
        }
        Ok(StreamOperation::from(TxnOperation::Patch {
            register: u64::from(words[6]) | u64::from(words[7]) << 32,
            argument: words[8],
            plus_bytes: u64::from(words[10]) | u64::from(words[11]) << 32,
        }))
    }

    fn scratchpad(&mut self) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let words = self.take(4, "a scratchpad")?;
        let [_, usage, zero, also_zero] = words[0].to_le_bytes();
        if (zero, also_zero) != (0, 0) {
            let problem = format!("bits 31:16 of {:08X} are undefined", words[0]);
            return fail(start, problem);
        }
        Ok(StreamOperation::from(TxnOperation::CreateScratchpad {
            usage,
            size_bytes: words[1],
            address: u64::from(words[2]) | u64::from(words[3]) << 32,
        }))
    }

    fn update(&mut self) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let words = self.take(3, "an update from the scratchpad")?;
        let [_, entry, function, zero] = words[0].to_le_bytes();
        let function = ScratchpadFunction::ALL.get(usize::from(function));
        let (Some(&function), 0) = (function, zero) else {
            let problem = format!("{:08X} names no function of a scratchpad", words[0]);
            return fail(start, problem);
        };
        Ok(StreamOperation::from(TxnOperation::UpdateAddress {
            entry,
            function,
            number: words[1],
            register: words[2],
        }))
    }

    fn raw(&mut self, code: u8) -> Result<StreamOperation, StreamError> {
        let start = self.at;
        let size = self.take(2, "an operation")?[1];
        self.at = start;
        if size < 8 || size % 4 != 0 {
            return fail(start + 1, format!("an operation of {size} bytes"));
        }
        let words = self.take(size as usize / 4, "an operation")?;
        Ok(StreamOperation::from(TxnOperation::Raw {
            code,
            data: words[2..].to_vec(),
        }))
    }
}
