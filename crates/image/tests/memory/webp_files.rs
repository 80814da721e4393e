//! WebP files that no encoder writes.

/// Bits of a lossless stream, the lowest first.
#[derive(Default)]
pub(super) struct Bits {
    pub(super) bytes: Vec<u8>,
    n_bits: usize,
}

impl Bits {
    pub(super) fn put(&mut self, value: u32, n: usize) {
        for i in 0..n {
            if self.n_bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> i & 1) as u8) << (self.n_bits % 8);
            self.n_bits += 1;
        }
    }

    /// Signature, size and version.
    pub(super) fn head(&mut self, width: u32, height: u32) {
        self.put(0x2f, 8);
        self.put(width - 1, 14);
        self.put(height - 1, 14);
        self.put(0, 4);
    }

    /// A code of one symbol.
    pub(super) fn one(&mut self, symbol: u32) {
        self.put(0b101, 3);
        self.put(symbol, 8);
    }

    /// A code by the lengths of its first symbols; each length is written in four bits.
    pub(super) fn lengths(&mut self, lengths: &[u32]) {
        self.put(0, 1);
        self.put(15, 4);
        for symbol in [
            17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        ] {
            self.put(if symbol < 16 { 4 } else { 0 }, 3);
        }
        self.put(1, 1);
        self.put(5, 3);
        self.put(lengths.len() as u32 - 2, 12);
        for length in lengths {
            self.put(length.reverse_bits() >> 28, 4);
        }
    }

    /// An image of `n` pixels with a colour cache of two places: green and red of the first make up `value`. Indices of the cache and a copy follow, and
    /// zeros.
    pub(super) fn image(&mut self, n: u32, value: u32) {
        self.put(1 | 1 << 1, 5);
        // Green: a value, a copy of 4 pixels, both indices of the cache, and 0.
        let mut lengths = vec![0; 282];
        let green = (value & 255) as usize;
        for (symbol, length) in [(green, 2), (280, 2), (281, 2), (0, 3), (259, 3)] {
            lengths[symbol] = length;
        }
        let canonical = |symbol: usize| {
            let at = |s: usize| (lengths[s], s);
            let before = (0..282).filter(|s| lengths[*s] > 0 && at(*s) < at(symbol));
            let sum: u32 = before.map(|s| 1 << (3 - lengths[s])).sum();
            (sum >> (3 - lengths[symbol]), lengths[symbol])
        };
        self.lengths(&lengths);
        self.one(value >> 8);
        self.one(0);
        self.one(0);
        // Distance 2 is the pixel before.
        self.one(1);
        let copies = (n - 1) / 8;
        let mut symbols = vec![green];
        for _ in 0..copies {
            symbols.extend([259, 280, 281, 280, 281]);
        }
        symbols.resize(symbols.len() + (n - 1 - 8 * copies) as usize, 0);
        for symbol in symbols {
            let (code, length) = canonical(symbol);
            self.put(code.reverse_bits() >> (32 - length), length as usize);
        }
    }

    /// The part in front of the groups: no transform, no cache, and an entropy image of one pixel that names the last of `n`.
    pub(super) fn many(&mut self, n: u32) {
        self.put(0, 2);
        self.put(1, 1);
        self.put(0, 3);
        self.put(0, 1);
        self.one((n - 1) & 255);
        self.one((n - 1) >> 8);
        (0..3).for_each(|_| self.one(0));
    }

    /// A group whose codes take much memory: two of a table and 252 longer symbols, and three of a table.
    pub(super) fn group(&mut self) {
        let ten: Vec<u32> = (1..=10).chain([10]).collect();
        let long: Vec<u32> = [1, 2, 3, 4]
            .into_iter()
            .chain([11; 4])
            .chain([12; 248])
            .collect();
        for lengths in [&long, &long, &ten, &ten, &ten] {
            self.lengths(lengths);
        }
    }
}

/// Bytes of the tables of such a group.
pub(super) const GROUP_BYTES: u64 = 5 * 4096 + 2 * 252 * 2 * 16;

/// A stream of 4 × 4 pixels and `n` groups, with a head or without.
pub(super) fn many_groups(n: u32, has_head: bool) -> Vec<u8> {
    let mut bits = Bits::default();
    if has_head {
        bits.head(4, 4);
    }
    bits.many(n);
    let head_bits = bits.n_bits;
    (0..16).for_each(|_| bits.group());
    let group_bits = (bits.n_bits - head_bits) / 16;
    let all_bits = head_bits + n as usize * group_bits;
    // Eight groups are whole bytes, which repeat.
    let mut bytes = bits.bytes;
    bytes.pop();
    while bytes.len() < all_bits.div_ceil(8) {
        bytes.push(bytes[bytes.len() - group_bits]);
    }
    // Any bits are valid pixels.
    bytes.truncate(all_bits.div_ceil(8));
    bytes.extend([0; 64]);
    bytes
}

pub(super) fn riff(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    for (kind, data) in chunks {
        file.extend(*kind);
        file.extend((data.len() as u32).to_le_bytes());
        file.extend(*data);
        file.resize(file.len().next_multiple_of(2), 0);
    }
    let riff_bytes = file.len() as u32 - 8;
    file[4..8].copy_from_slice(&riff_bytes.to_le_bytes());
    file
}

/// The head of an extended file; `flags` are 0x10 for transparency, 8 for EXIF.
pub(super) fn extended(width: u32, height: u32, flags: u8) -> Vec<u8> {
    let side = |n: u32| (n - 1).to_le_bytes();
    let [w, h] = [side(width), side(height)];
    [&[flags, 0, 0, 0][..], &w[..3], &h[..3]].concat()
}

/// A lossy frame of zeros: predictions and no differences.
pub(super) fn frame(width: u32, height: u32) -> Vec<u8> {
    let modes_bytes = 2000 + (width.div_ceil(16) * height.div_ceil(16) * 8) as usize;
    // A key frame that is shown; 19 bits of the first partition's length.
    let tag = 1 << 4 | (modes_bytes as u32) << 5;
    let mut frame = tag.to_le_bytes()[..3].to_vec();
    frame.extend([0x9d, 0x01, 0x2a]);
    frame.extend((width as u16).to_le_bytes());
    frame.extend((height as u16).to_le_bytes());
    frame.resize(frame.len() + 2 * modes_bytes, 0);
    frame
}
