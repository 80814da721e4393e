//! Buffer objects: memory that both host and device reach, with explicit synchronisation and every
//! byte counted.

use crate::held::Lease;
use crate::{DeviceError, Role};
use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The side that a sync brings up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The host's writes become visible to the device.
    ToDevice,
    /// The device's writes become visible to the host.
    FromDevice,
}

/// Intended use of a buffer. A hint for placement; it forbids nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// The host writes, the device reads.
    HostToDevice,
    /// The device writes, the host reads.
    DeviceToHost,
    /// Only the device touches it.
    DeviceOnly,
}

impl From<Role> for Usage {
    fn from(role: Role) -> Usage {
        match role {
            Role::Static | Role::Input => Usage::HostToDevice,
            Role::Intermediate => Usage::DeviceOnly,
            Role::Output => Usage::DeviceToHost,
        }
    }
}

/// Memory that a device implements: pinned, and mapped into the host.
pub trait BufferObject: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Calls `access` with the host's view for reading.
    ///
    /// # Errors
    /// Where the object cannot be mapped.
    fn map(&self, access: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError>;

    /// Calls `access` with the host's view for writing.
    ///
    /// # Errors
    /// Where the object cannot be mapped.
    fn map_mut(&self, access: &mut dyn FnMut(&mut [u8])) -> Result<(), DeviceError>;

    /// Copies bytes into the host's view. They must be within the object.
    ///
    /// # Errors
    /// Where the object cannot be mapped.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let start = offset as usize;
        self.map_mut(&mut |view| view[start..start + bytes.len()].copy_from_slice(bytes))
    }

    /// Makes one side's bytes in the range visible to the other. The range is within the object.
    ///
    /// # Errors
    /// Where the driver fails.
    fn sync(&self, direction: Direction, range: Range<u64>) -> Result<(), DeviceError>;

    /// Calls `look` with the device's bytes. An object that cannot be read without a sync makes one, and the host's
    /// view changes.
    ///
    /// # Errors
    /// Where the driver fails.
    fn peek(&self, look: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        self.sync(Direction::FromDevice, 0..self.size_bytes())?;
        self.map(look)
    }

    /// The object itself, for its device to recognise.
    fn as_any(&self) -> &dyn Any;
}

/// Bytes that crossed a buffer, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that the host wrote into its mapping.
    pub written_bytes: u64,
    /// Bytes synchronised to the device.
    pub to_device_bytes: u64,
    /// Bytes synchronised from the device.
    pub from_device_bytes: u64,
    /// Bytes that the host read from its mapping.
    pub read_bytes: u64,
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.written_bytes += other.written_bytes;
        self.to_device_bytes += other.to_device_bytes;
        self.from_device_bytes += other.from_device_bytes;
        self.read_bytes += other.read_bytes;
    }
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;

    /// Difference to an earlier reading.
    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            written_bytes: self.written_bytes - earlier.written_bytes,
            to_device_bytes: self.to_device_bytes - earlier.to_device_bytes,
            from_device_bytes: self.from_device_bytes - earlier.from_device_bytes,
            read_bytes: self.read_bytes - earlier.read_bytes,
        }
    }
}

/// A buffer object with its byte counts. Every access of the host to a buffer goes through here, so that every byte is
/// counted on every device alike.
pub struct Buffer {
    object: Box<dyn BufferObject>,
    usage: Usage,
    /// The device's account of it, closed when the buffer is dropped.
    _lease: Option<Lease>,
    written: AtomicU64,
    to_device: AtomicU64,
    from_device: AtomicU64,
    read: AtomicU64,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("size_bytes", &self.size_bytes())
            .field("usage", &self.usage)
            .field("traffic", &self.traffic())
            .finish_non_exhaustive()
    }
}

impl Buffer {
    /// Wraps a device's object; called by `Device::alloc`.
    pub fn new(object: Box<dyn BufferObject>, usage: Usage) -> Buffer {
        Buffer {
            object,
            usage,
            _lease: None,
            written: AtomicU64::new(0),
            to_device: AtomicU64::new(0),
            from_device: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    /// Has the buffer counted by its device as long as it lives.
    #[must_use]
    pub fn leased(mut self, lease: Lease) -> Buffer {
        self._lease = Some(lease);
        self
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    /// Its intended use.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The device's object of type `T`; `None` where another device made it.
    pub fn object<T: 'static>(&self) -> Option<&T> {
        self.object.as_any().downcast_ref()
    }

    /// Copies bytes into the host's mapping. The device sees them after a sync.
    ///
    /// # Errors
    /// Where they do not fit, or the buffer cannot be mapped.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = self.range(offset, bytes.len() as u64)?;
        self.object.write(range.start, bytes)?;
        self.written.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// Lets the host fill its whole mapping in place, so that data need not be copied. Counts as
    /// writing all of it.
    ///
    /// # Errors
    /// Where the buffer cannot be mapped.
    pub fn write_with(&self, mut fill: impl FnMut(&mut [u8])) -> Result<(), DeviceError> {
        self.object.map_mut(&mut fill)?;
        self.written.fetch_add(self.size_bytes(), Relaxed);
        Ok(())
    }

    /// Copies bytes out of the host's mapping: those that the last sync from the device brought.
    ///
    /// # Errors
    /// Where the range is outside, or the buffer cannot be mapped.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let range = self.range(offset, bytes.len() as u64)?;
        self.object.map(&mut |view| {
            bytes.copy_from_slice(&view[range.start as usize..range.end as usize]);
        })?;
        self.read.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// Lets the host look at its whole mapping in place. Counts as reading all of it.
    ///
    /// # Errors
    /// Where the buffer cannot be mapped.
    pub fn read_with(&self, look: impl FnMut(&[u8])) -> Result<(), DeviceError> {
        self.read_range_with(0..self.size_bytes(), look)
    }

    /// Lets the host look at a range of its mapping in place. Counts as reading it.
    ///
    /// # Errors
    /// Where the range is outside, or the buffer cannot be mapped.
    pub fn read_range_with(
        &self,
        range: Range<u64>,
        mut look: impl FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        let len = range.end.saturating_sub(range.start);
        let range = self.range(range.start, len)?;
        self.object
            .map(&mut |view| look(&view[range.start as usize..range.end as usize]))?;
        self.read.fetch_add(len, Relaxed);
        Ok(())
    }

    /// Lets a debugger look at the device's bytes. It is not counted: a session never does it.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn peek(&self, mut look: impl FnMut(&[u8])) -> Result<(), DeviceError> {
        self.object.peek(&mut look)
    }

    /// Makes all of one side's bytes visible to the other.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn sync(&self, direction: Direction) -> Result<(), DeviceError> {
        self.sync_range(direction, 0..self.size_bytes())
    }

    /// Makes a range of one side's bytes visible to the other.
    ///
    /// # Errors
    /// Where the range is outside or the driver fails.
    pub fn sync_range(&self, direction: Direction, range: Range<u64>) -> Result<(), DeviceError> {
        let len = range.end.saturating_sub(range.start);
        let range = self.range(range.start, len)?;
        self.object.sync(direction, range)?;
        let counter = match direction {
            Direction::ToDevice => &self.to_device,
            Direction::FromDevice => &self.from_device,
        };
        counter.fetch_add(len, Relaxed);
        Ok(())
    }

    /// Bytes that crossed so far.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            written_bytes: self.written.load(Relaxed),
            to_device_bytes: self.to_device.load(Relaxed),
            from_device_bytes: self.from_device.load(Relaxed),
            read_bytes: self.read.load(Relaxed),
        }
    }

    fn range(&self, offset: u64, len: u64) -> Result<Range<u64>, DeviceError> {
        let size_bytes = self.size_bytes();
        match offset.checked_add(len) {
            Some(end) if end <= size_bytes => Ok(offset..end),
            _ => Err(DeviceError::Range {
                offset,
                len,
                size_bytes,
            }),
        }
    }
}
