//! Prefix codes of a lossless stream (WebP lossless bitstream specification, 6.2).

use super::super::ImageFault;
use super::bits::Bits;

/// Most bits of a symbol.
const MAX_LENGTH: usize = 15;

/// Symbols that encode lengths: lengths 0 to 15, and three kinds of repeats.
const N_LENGTH_SYMBOLS: usize = 19;

/// The order in which the lengths of these symbols are written (6.2.1.2).
const LENGTH_ORDER: [usize; N_LENGTH_SYMBOLS] = [
    17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
];

/// The decoder looks up this many bits of a symbol at once (`MAX_TABLE_BITS` in `huffman.rs` of image-webp 0.2.4).
const MAX_TABLE_BITS: usize = 10;

/// An entry of the decoder's table (`u32`), and a node of its tree for longer symbols (`HuffmanTreeNode`).
const ENTRY_BYTES: u64 = 4;
const NODE_BYTES: u64 = 16;

/// The most that an allocator adds to a block: a head of 8 bytes, and rounding to 16 or up to a least block of 32.
const BLOCK_BYTES: u64 = 24;

/// A code in the form of the stream.
pub(super) enum PrefixCode {
    /// One symbol, of no bits.
    One(u16),
    /// Two symbols of one bit: that of a zero, and that of a one.
    Two([u16; 2]),
    /// Lengths of symbols, which give the bits.
    Many(Lengths),
}

/// Lengths of a complete code.
pub(super) struct Lengths {
    /// Of each symbol; 0 where it has no bits.
    of_symbols: Vec<u8>,
    /// Symbols of each length.
    counts: [u32; MAX_LENGTH + 1],
}

/// A code to look symbols up in, by as many bits as its longest symbol has.
pub(super) struct PrefixLookup {
    /// Symbol and length.
    entries: Vec<(u16, u8)>,
    max_bits: u32,
}

impl PrefixCode {
    /// Reads the next code, of an alphabet of `n_symbols`.
    ///
    /// # Errors
    /// If it is invalid: a symbol beyond the alphabet, or bits that mean no symbol or two.
    pub(super) fn read(bits: &mut Bits, n_symbols: usize) -> Result<PrefixCode, ImageFault> {
        if !bits.flag()? {
            return PrefixCode::read_lengths(bits, n_symbols);
        }
        let is_two = bits.flag()?;
        let n_bits = if bits.flag()? { 8 } else { 1 };
        let first = PrefixCode::symbol(bits, n_bits, n_symbols)?;
        match is_two {
            false => Ok(PrefixCode::One(first)),
            true => Ok(PrefixCode::Two([
                first,
                PrefixCode::symbol(bits, 8, n_symbols)?,
            ])),
        }
    }

    fn symbol(bits: &mut Bits, n_bits: u32, n_symbols: usize) -> Result<u16, ImageFault> {
        let symbol = bits.read(n_bits)?;
        match (symbol as usize) < n_symbols {
            true => Ok(symbol as u16),
            false => Err(bits.fault("a code has a symbol beyond its alphabet")),
        }
    }

    /// A code by the lengths of its symbols, which have a separate code.
    fn read_lengths(bits: &mut Bits, n_symbols: usize) -> Result<PrefixCode, ImageFault> {
        let mut of_lengths = vec![0; N_LENGTH_SYMBOLS];
        let n_given = 4 + bits.read(4)? as usize;
        for symbol in &LENGTH_ORDER[..n_given] {
            of_lengths[*symbol] = bits.read(3)? as u8;
        }
        let lookup = PrefixCode::of_lengths(of_lengths, bits)?.lookup();
        let mut n_left = n_symbols;
        if bits.flag()? {
            let n_bits = 2 + 2 * bits.read(3)?;
            n_left = 2 + bits.read(n_bits)? as usize;
            if n_left > n_symbols {
                return Err(bits.fault("a code has more lengths than its alphabet has symbols"));
            }
        }
        let mut of_symbols = vec![0; n_symbols];
        let (mut at, mut last) = (0, 8);
        while at < n_symbols && n_left > 0 {
            n_left -= 1;
            let (length, n) = match lookup.read(bits)? {
                16 => (last, 3 + bits.read(2)? as usize),
                17 => (0, 3 + bits.read(3)? as usize),
                18 => (0, 11 + bits.read(7)? as usize),
                length => (length as u8, 1),
            };
            let Some(run) = of_symbols.get_mut(at..at + n) else {
                return Err(bits.fault("a code repeats a length beyond its alphabet"));
            };
            run.fill(length);
            at += n;
            if length != 0 {
                last = length;
            }
        }
        PrefixCode::of_lengths(of_symbols, bits)
    }

    /// The code of these lengths. One symbol alone has no bits, for any length.
    fn of_lengths(of_symbols: Vec<u8>, bits: &Bits) -> Result<PrefixCode, ImageFault> {
        let mut counts = [0; MAX_LENGTH + 1];
        for length in &of_symbols {
            counts[usize::from(*length)] += 1;
        }
        counts[0] = 0;
        if counts.iter().sum::<u32>() == 1 {
            let symbol = of_symbols.iter().position(|length| *length != 0);
            return Ok(PrefixCode::One(symbol.unwrap_or_default() as u16));
        }
        // A symbol of `length` bits takes this part of all bit patterns.
        let shares = (1..=MAX_LENGTH).map(|length| counts[length] << (MAX_LENGTH - length));
        match shares.sum::<u32>() == 1 << MAX_LENGTH {
            true => Ok(PrefixCode::Many(Lengths { of_symbols, counts })),
            false => Err(bits.fault("a code is not complete")),
        }
    }

    /// Bytes that the decoder takes for the code beside its place in the group (`HuffmanTree::build_implicit` and `build_two_node`
    /// in `huffman.rs` of image-webp 0.2.4). It has a table of all values of as many bits as the longest symbol has, 10 at most, and
    /// two nodes for each longer symbol.
    pub(super) fn decoder_bytes(&self) -> u64 {
        match self {
            PrefixCode::One(_) => 0,
            PrefixCode::Two(_) => 2 * ENTRY_BYTES + 3 * NODE_BYTES + 2 * BLOCK_BYTES,
            PrefixCode::Many(lengths) => {
                let table = ENTRY_BYTES << lengths.max_bits().min(MAX_TABLE_BITS);
                let n_longer: u32 = lengths.counts[MAX_TABLE_BITS + 1..].iter().sum();
                table + 2 * NODE_BYTES * u64::from(n_longer) + 2 * BLOCK_BYTES
            }
        }
    }

    /// The code to read symbols with.
    pub(super) fn lookup(&self) -> PrefixLookup {
        match self {
            PrefixCode::One(symbol) => PrefixLookup {
                entries: vec![(*symbol, 0)],
                max_bits: 0,
            },
            PrefixCode::Two([zero, one]) => PrefixLookup {
                entries: vec![(*zero, 1), (*one, 1)],
                max_bits: 1,
            },
            PrefixCode::Many(lengths) => lengths.lookup(),
        }
    }
}

impl Lengths {
    fn max_bits(&self) -> usize {
        self.counts.iter().rposition(|n| *n > 0).unwrap_or_default()
    }

    /// Bits of a canonical code: shorter symbols first, those of a length in their order, the most significant bit first.
    fn lookup(&self) -> PrefixLookup {
        let max_bits = self.max_bits();
        let mut next = [0u32; MAX_LENGTH + 2];
        for length in 1..=MAX_LENGTH {
            next[length + 1] = (next[length] + self.counts[length]) << 1;
        }
        let mut entries = vec![(0, 0); 1 << max_bits];
        for (symbol, length) in self.of_symbols.iter().enumerate() {
            if *length == 0 {
                continue;
            }
            let code = &mut next[usize::from(*length)];
            // In a stream the first bit is the lowest.
            let first = code.reverse_bits() >> (32 - u32::from(*length));
            *code += 1;
            for i in (first as usize..entries.len()).step_by(1 << length) {
                entries[i] = (symbol as u16, *length);
            }
        }
        PrefixLookup {
            entries,
            max_bits: max_bits as u32,
        }
    }
}

impl PrefixLookup {
    /// The next symbol.
    ///
    /// # Errors
    /// If the stream ends within it.
    pub(super) fn read(&self, bits: &mut Bits) -> Result<u16, ImageFault> {
        let (symbol, n_bits) = self.entries[bits.peek(self.max_bits) as usize];
        bits.skip(u32::from(n_bits))?;
        Ok(symbol)
    }
}
