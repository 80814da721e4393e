//! Bits of a lossless stream, the least significant of each byte first.

use super::super::{ImageFault, broken};

/// Where a stream is read.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at_bit: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits { bytes, at_bit: 0 }
    }

    /// The next `n` bits, at most 32, without advancing; zeros behind the end.
    pub(super) fn peek(&self, n: u32) -> u32 {
        debug_assert!(n <= 32, "{n} bits at a time");
        let rest = self.bytes.get(self.at_bit / 8..).unwrap_or_default();
        let mut eight = [0; 8];
        let n_bytes = rest.len().min(8);
        eight[..n_bytes].copy_from_slice(&rest[..n_bytes]);
        let bits = u64::from_le_bytes(eight) >> (self.at_bit % 8);
        (bits & ((1 << n) - 1)) as u32
    }

    /// Advances by `n` bits.
    ///
    /// # Errors
    /// If the stream is shorter.
    pub(super) fn skip(&mut self, n: u32) -> Result<(), ImageFault> {
        let end_bit = self.at_bit + n as usize;
        if end_bit > 8 * self.bytes.len() {
            return Err(broken(format!(
                "its lossless data of {} bytes end within their codes",
                self.bytes.len()
            )));
        }
        self.at_bit = end_bit;
        Ok(())
    }

    /// The next `n` bits, at most 32.
    ///
    /// # Errors
    /// If the stream is shorter.
    pub(super) fn read(&mut self, n: u32) -> Result<u32, ImageFault> {
        let value = self.peek(n);
        self.skip(n)?;
        Ok(value)
    }

    pub(super) fn flag(&mut self) -> Result<bool, ImageFault> {
        Ok(self.read(1)? == 1)
    }

    /// The error for a fault in the stream.
    pub(super) fn fault(&self, what: &str) -> ImageFault {
        broken(format!(
            "{what} at bit {} of its lossless data",
            self.at_bit
        ))
    }
}
