//! A little-endian cursor over untrusted bytes: every read is checked against the remaining length.

use std::path::Path;

use crate::Error;

/// Reads forward through `bytes`, which came from `file`.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    file: &'a Path,
}

macro_rules! number {
    ($name:ident, $type:ty) => {
        pub(crate) fn $name(&mut self, what: &str) -> Result<$type, Error> {
            let raw = self.take(size_of::<$type>() as u64, what)?;
            Ok(<$type>::from_le_bytes(
                raw.try_into().expect("take returned the size asked for"),
            ))
        }
    };
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], file: &'a Path) -> Self {
        Cursor {
            bytes,
            pos: 0,
            file,
        }
    }

    pub(crate) fn file(&self) -> &'a Path {
        self.file
    }

    /// Bytes from the start of the file to the next read.
    pub(crate) fn offset(&self) -> u64 {
        self.pos as u64
    }

    pub(crate) fn left(&self) -> u64 {
        (self.bytes.len() - self.pos) as u64
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], Error> {
        if len > self.left() {
            return Err(Error::Truncated {
                file: self.file.to_owned(),
                what: what.to_owned(),
                offset: self.offset(),
                expected_bytes: len,
                found_bytes: self.left(),
            });
        }
        let end = self.pos + len as usize;
        let taken = &self.bytes[self.pos..end];
        self.pos = end;
        Ok(taken)
    }

    /// Refuses a count of items, each at least `item_bytes` long, that the rest cannot hold.
    pub(crate) fn check_count(
        &self,
        count: u64,
        item_bytes: u64,
        what: &str,
    ) -> Result<usize, Error> {
        let needed = count.saturating_mul(item_bytes);
        if needed > self.left() {
            return Err(Error::Truncated {
                file: self.file.to_owned(),
                what: format!("{what} ({count} items)"),
                offset: self.offset(),
                expected_bytes: needed,
                found_bytes: self.left(),
            });
        }
        Ok(count as usize)
    }

    number!(u8, u8);
    number!(i8, i8);
    number!(u16, u16);
    number!(i16, i16);
    number!(u32, u32);
    number!(i32, i32);
    number!(u64, u64);
    number!(i64, i64);
    number!(f32, f32);
    number!(f64, f64);
}
