//! Resources that a device holds for its users: counted when given, given back when dropped.

use crate::DeviceError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Resources that a device holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Programs loaded and not yet dropped.
    pub n_programs: u64,
    /// Buffers allocated and not yet dropped.
    pub n_buffers: u64,
    /// Bytes of those buffers.
    pub buffer_bytes: u64,
}

/// The account of one device. Buffers stay within its memory, even under concurrent requests.
#[derive(Debug)]
pub struct Holdings {
    memory_bytes: u64,
    held: Mutex<DeviceUsage>,
}

/// A share of a device, given back when it is dropped.
#[derive(Debug)]
pub struct Lease {
    holdings: Arc<Holdings>,
    share: DeviceUsage,
}

impl Holdings {
    /// The account of a device whose buffers can take so many bytes together.
    pub fn new(memory_bytes: u64) -> Arc<Holdings> {
        Arc::new(Holdings {
            memory_bytes,
            held: Mutex::default(),
        })
    }

    /// Resources held now.
    pub fn held(&self) -> DeviceUsage {
        *self.lock()
    }

    /// Accounts for a buffer of that size.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where it does not fit beside the others.
    pub fn buffer(self: &Arc<Holdings>, size_bytes: u64) -> Result<Lease, DeviceError> {
        let mut held = self.lock();
        let available_bytes = self.memory_bytes - held.buffer_bytes;
        if size_bytes > available_bytes {
            return Err(DeviceError::OutOfMemory {
                asked_bytes: size_bytes,
                available_bytes,
            });
        }
        held.n_buffers += 1;
        held.buffer_bytes += size_bytes;
        Ok(self.lease(DeviceUsage {
            n_buffers: 1,
            buffer_bytes: size_bytes,
            n_programs: 0,
        }))
    }

    /// Accounts for a program.
    pub fn program(self: &Arc<Holdings>) -> Lease {
        self.lock().n_programs += 1;
        self.lease(DeviceUsage {
            n_programs: 1,
            ..DeviceUsage::default()
        })
    }

    fn lease(self: &Arc<Holdings>, share: DeviceUsage) -> Lease {
        Lease {
            holdings: self.clone(),
            share,
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeviceUsage> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.holdings.lock();
        held.n_programs -= self.share.n_programs;
        held.n_buffers -= self.share.n_buffers;
        held.buffer_bytes -= self.share.buffer_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_until_it_is_used_up_and_comes_back() {
        let holdings = Holdings::new(100);
        let program = holdings.program();
        let first = holdings.buffer(60).unwrap();
        let refused = holdings.buffer(41).unwrap_err();
        assert_eq!(
            refused,
            DeviceError::OutOfMemory {
                asked_bytes: 41,
                available_bytes: 40
            }
        );
        let second = holdings.buffer(40).unwrap();
        assert!(holdings.buffer(1).is_err());
        let expected = DeviceUsage {
            n_programs: 1,
            n_buffers: 2,
            buffer_bytes: 100,
        };
        assert_eq!(holdings.held(), expected);
        drop((program, first, second));
        assert_eq!(holdings.held(), DeviceUsage::default());
        assert!(holdings.buffer(u64::MAX).is_err());
    }
}
