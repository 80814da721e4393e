//! Memory for the codes of a lossless stream, before the decoder takes it (WebP lossless bitstream specification).
//!
//! An image has as many groups of five codes as its entropy image names, up to 65,536, at any size. The decoder makes tables for all of
//! them: 13 bytes of a file may become 4 KiB, and 250 bytes 74 KiB. Codes come before the pixels, so they can be read without these.
//! Small images come before the codes and are read, too: they hold parameters of transforms and the group of each pixel. No pixel is
//! kept.

use super::super::{ImageFault, broken};
use super::bits::Bits;
use super::prefix::PrefixCode;

/// Symbols of green that are values, and those that are lengths of copies. Indices of the colour cache follow.
const N_VALUES: usize = 256;
const N_COPY_LENGTHS: usize = 24;

/// Symbols of distances of copies.
const N_DISTANCES: usize = 40;

/// Memory of a group in the decoder: five `HuffmanTree` of image-webp 0.2.4, each of two vectors and a mask. Their list grows to twice
/// its contents, while the old one is still there.
const GROUP_BYTES: u64 = 3 * 5 * 56;

/// Reads a stream up to its pixels.
struct LosslessReader<'a> {
    bits: Bits<'a>,
}

/// Bytes that the decoder takes for the codes of an image of `width` × `height`. `data` is a chunk `VP8L`; without its head if
/// it is that of `ALPH`.
///
/// # Errors
/// If it is not such a stream, or ends before its pixels.
pub(super) fn code_bytes(
    data: &[u8],
    width: u32,
    height: u32,
    has_head: bool,
) -> Result<u64, ImageFault> {
    let mut bits = Bits::new(data);
    if has_head {
        head(&mut bits, width, height)?;
    }
    let mut reader = LosslessReader { bits };
    let (width, height) = (width as usize, height as usize);
    let width = reader.transforms(width, height)?;
    reader.groups(width, height)
}

/// Signature, size and version.
fn head(bits: &mut Bits, width: u32, height: u32) -> Result<(), ImageFault> {
    if bits.read(8)? != 0x2f {
        return Err(broken("its lossless data do not begin with 0x2f"));
    }
    let [found_width, found_height] = [bits.read(14)? + 1, bits.read(14)? + 1];
    if (found_width, found_height) != (width, height) {
        return Err(broken(format!(
            "its lossless data have {found_width} × {found_height} pixels, and its head {width} × {height}"
        )));
    }
    let _has_alpha = bits.flag()?;
    match bits.read(3)? {
        0 => Ok(()),
        version => Err(broken(format!(
            "its lossless data are of version {version}, and 0 is read"
        ))),
    }
}

/// Number of blocks of `2^bits` pixels along a side.
fn blocks(side: usize, bits: u32) -> usize {
    side.div_ceil(1 << bits)
}

impl LosslessReader<'_> {
    /// Reads past the transforms, and returns the pixels of a row of the transformed image (3).
    fn transforms(&mut self, mut width: usize, height: usize) -> Result<usize, ImageFault> {
        let mut seen = [false; 4];
        while self.bits.flag()? {
            let kind = self.bits.read(2)?;
            if std::mem::replace(&mut seen[kind as usize], true) {
                return Err(self.bits.fault("a transform is there twice"));
            }
            match kind {
                // Predictors, or factors between colours: a pixel for each block.
                0 | 1 => {
                    let bits = self.bits.read(3)? + 2;
                    self.image(blocks(width, bits), blocks(height, bits))?;
                }
                // Green was subtracted from the other colours.
                2 => {}
                // Indices of a palette; for a small one, several in a pixel.
                _ => {
                    let n_colours = self.bits.read(8)? as usize + 1;
                    self.image(n_colours, 1)?;
                    let bits = match n_colours {
                        1..=2 => 3,
                        3..=4 => 2,
                        5..=16 => 1,
                        _ => 0,
                    };
                    width = blocks(width, bits);
                }
            }
        }
        Ok(width)
    }

    /// Bytes of all groups of the image itself.
    fn groups(&mut self, width: usize, height: usize) -> Result<u64, ImageFault> {
        let cache_bits = self.cache_bits()?;
        let mut n_groups = 1;
        if self.bits.flag()? {
            let bits = self.bits.read(3)? + 2;
            let last = self.image(blocks(width, bits), blocks(height, bits))?;
            n_groups = u64::from(last) + 1;
        }
        let mut bytes = n_groups * GROUP_BYTES;
        for _ in 0..n_groups {
            let codes = self.group(cache_bits)?;
            bytes += codes.iter().map(PrefixCode::decoder_bytes).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Bits of an index of the colour cache, 0 if there is none.
    fn cache_bits(&mut self) -> Result<u32, ImageFault> {
        if !self.bits.flag()? {
            return Ok(0);
        }
        match self.bits.read(4)? {
            bits @ 1..=11 => Ok(bits),
            _ => Err(self.bits.fault("a colour cache is not of 1 to 11 bits")),
        }
    }

    /// The codes of green, red, blue, alpha and distances.
    fn group(&mut self, cache_bits: u32) -> Result<[PrefixCode; 5], ImageFault> {
        let n_indices = if cache_bits > 0 { 1 << cache_bits } else { 0 };
        let mut read = |n_symbols| PrefixCode::read(&mut self.bits, n_symbols);
        Ok([
            read(N_VALUES + N_COPY_LENGTHS + n_indices)?,
            read(N_VALUES)?,
            read(N_VALUES)?,
            read(N_VALUES)?,
            read(N_DISTANCES)?,
        ])
    }

    /// Reads past an image of one group (5), and returns the greatest of its pixels' red and green, as a number of 16 bits. Copies and
    /// indices of the colour cache repeat pixels that were read, or are 0. So only literal pixels count, and the decoder checks where
    /// a copy begins.
    fn image(&mut self, width: usize, height: usize) -> Result<u16, ImageFault> {
        let cache_bits = self.cache_bits()?;
        let codes = self.group(cache_bits)?.map(|code| code.lookup());
        let [green, red, blue, alpha, distance] = &codes;
        let (mut n_left, mut greatest) = (width * height, 0);
        while n_left > 0 {
            let symbol = usize::from(green.read(&mut self.bits)?);
            let mut n = 1;
            if symbol < N_VALUES {
                let red = red.read(&mut self.bits)?;
                blue.read(&mut self.bits)?;
                alpha.read(&mut self.bits)?;
                greatest = greatest.max(red << 8 | symbol as u16);
            } else if symbol < N_VALUES + N_COPY_LENGTHS {
                n = self.number(symbol - N_VALUES)?;
                let symbol = distance.read(&mut self.bits)?;
                self.number(usize::from(symbol))?;
            }
            let Some(left) = n_left.checked_sub(n) else {
                return Err(self.bits.fault("a copy leads out of its image"));
            };
            n_left = left;
        }
        Ok(greatest)
    }

    /// A length or a distance, of which a symbol has the leading bits (4.2.2).
    fn number(&mut self, symbol: usize) -> Result<usize, ImageFault> {
        if symbol < 4 {
            return Ok(symbol + 1);
        }
        let n_bits = (symbol - 2) / 2;
        let rest = self.bits.read(n_bits as u32)? as usize;
        Ok(((2 + symbol % 2) << n_bits) + rest + 1)
    }
}
