//! Addresses in L1 and L2.

/// Hands out a memory from the bottom.
#[derive(Clone, Debug)]
pub(super) struct Bottom {
    next: u64,
    limit: u64,
}

/// Alignment that vector loads need of a buffer's address (Peano aligns so).
const ALIGN: u64 = 64;

impl Bottom {
    /// A memory of `limit` bytes, of which the first `taken` are in use.
    pub(super) fn new(taken: u64, limit: u64) -> Bottom {
        Bottom { next: taken, limit }
    }

    /// Bytes up to the end of the last buffer.
    pub(super) fn used(&self) -> u64 {
        self.next
    }

    /// The address of a buffer of so many bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Result<u64, String> {
        let at = self.next.next_multiple_of(ALIGN);
        let end = at + bytes;
        if end > self.limit {
            let limit = self.limit;
            return Err(format!(
                "buffers aligned to {ALIGN} bytes end at {end} of {limit}"
            ));
        }
        self.next = end;
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.
    use super::*;

    #[test]
    fn buffers_are_aligned_and_within() {
        let mut memory = Bottom::new(100, 400);
        assert_eq!(memory.take(4).unwrap(), 128);
        assert_eq!(memory.take(200).unwrap(), 192);
        assert!(memory.take(4).is_err());
    }
}
