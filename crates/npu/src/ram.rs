//! Buffers of virtual devices, in ordinary memory.

use crate::{Buffer, BufferObject, DeviceError, Direction, Usage};
use std::any::Any;
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A buffer object with two copies, the host's and the device's, which only a sync makes equal: a
/// forgotten sync gives wrong data here as it would on hardware without coherent caches.
#[derive(Debug)]
pub struct RamBuffer {
    host: RwLock<Vec<u8>>,
    device: RwLock<Vec<u8>>,
    size_bytes: u64,
    owner: u64,
}

impl RamBuffer {
    /// A buffer of zeros for the device whose number is `owner`, within `available_bytes`.
    ///
    /// # Errors
    /// Where the size is zero or exceeds what is available.
    pub fn alloc(
        owner: u64,
        size_bytes: u64,
        usage: Usage,
        available_bytes: u64,
    ) -> Result<Buffer, DeviceError> {
        if size_bytes == 0 {
            return Err(DeviceError::EmptyBuffer);
        }
        let refused = DeviceError::OutOfMemory {
            asked_bytes: size_bytes,
            available_bytes,
        };
        if size_bytes > available_bytes {
            return Err(refused);
        }
        let zeros = || {
            let len = usize::try_from(size_bytes).ok()?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len).ok()?;
            bytes.resize(len, 0);
            Some(RwLock::new(bytes))
        };
        let (Some(host), Some(device)) = (zeros(), zeros()) else {
            return Err(refused);
        };
        let object = RamBuffer {
            host,
            device,
            size_bytes,
            owner,
        };
        Ok(Buffer::new(Box::new(object), usage))
    }

    /// The object behind a buffer that the device numbered `owner` made.
    ///
    /// # Errors
    /// [`DeviceError::ForeignBuffer`] for any other.
    pub fn of(buffer: &Buffer, owner: u64) -> Result<&RamBuffer, DeviceError> {
        buffer
            .object::<RamBuffer>()
            .filter(|object| object.owner == owner)
            .ok_or(DeviceError::ForeignBuffer)
    }

    /// The device's copy, for reading.
    pub fn device(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.device.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device's copy, for writing. Its length must stay as it is.
    pub fn device_mut(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        self.device.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferObject for RamBuffer {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn map(&self, access: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        access(&self.host.read().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn map_mut(&self, access: &mut dyn FnMut(&mut [u8])) -> Result<(), DeviceError> {
        access(&mut self.host.write().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn sync(&self, direction: Direction, range: Range<u64>) -> Result<(), DeviceError> {
        let range = range.start as usize..range.end as usize;
        match direction {
            Direction::ToDevice => {
                let host = self.host.read().unwrap_or_else(PoisonError::into_inner);
                self.device_mut()[range.clone()].copy_from_slice(&host[range]);
            }
            Direction::FromDevice => {
                let mut host = self.host.write().unwrap_or_else(PoisonError::into_inner);
                host[range.clone()].copy_from_slice(&self.device()[range]);
            }
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
