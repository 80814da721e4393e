//! Buffers of virtual devices, in ordinary memory.

use crate::{Buffer, BufferObject, DeviceError, Direction, Usage};
use std::any::Any;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A buffer object with two sides, the host's and the device's. Only a sync makes them equal: a forgotten sync gives
/// wrong data here as it would on hardware without coherent caches.
///
/// Sides take memory only where they differ. A side that nobody touched is one byte repeated; after a sync of the whole
/// buffer both are one copy until either is written. When the device writes, the host's view becomes [`UNDEFINED`]. Its
/// old content would not do, since that may be right by luck.
#[derive(Debug)]
pub struct RamBuffer {
    sides: RwLock<Sides>,
    len: usize,
    size_bytes: u64,
    owner: u64,
}

/// Byte that the host sees in a buffer that the device wrote since both sides were equal.
pub const UNDEFINED: u8 = 0xb5;

#[derive(Debug)]
struct Sides {
    /// The host's content where it differs.
    host: Option<Vec<u8>>,
    /// The host's view where `host` is `None`.
    shows: Shows,
    /// Bytes that the host wrote, with their offset, where it otherwise sees the device's content. So a row on its
    /// way into a cache costs no copy of the cache. Only where `host` is `None`.
    patch: Option<(usize, Vec<u8>)>,
    /// `None` is zeros.
    device: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// The byte, repeated.
    Fill(u8),
    /// The device's content, which is present.
    Device,
}

fn filled(len: usize, byte: u8) -> Vec<u8> {
    // Zeros come from the operating system page by page, when they are touched.
    vec![byte; len]
}

impl Sides {
    fn device(&mut self, len: usize) -> &mut Vec<u8> {
        self.device.get_or_insert_with(|| filled(len, 0))
    }

    /// The host's content as a separate copy, about to be written.
    fn host(&mut self, len: usize) -> &mut Vec<u8> {
        if self.host.is_none() {
            self.host = Some(self.seen(len));
            self.patch = None;
        }
        self.host.get_or_insert_default()
    }

    /// A copy of the host's view.
    fn seen(&self, len: usize) -> Vec<u8> {
        let mut seen = match (&self.host, self.shows, &self.device) {
            (Some(own), ..) => own.clone(),
            (None, Shows::Device, Some(device)) => device.clone(),
            (None, Shows::Device, None) => filled(len, 0),
            (None, Shows::Fill(byte), _) => filled(len, byte),
        };
        if let Some((offset, bytes)) = &self.patch {
            seen[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        seen
    }

    /// Writes bytes of the host, which are within the buffer.
    fn write(&mut self, offset: usize, bytes: &[u8], len: usize) {
        match &mut self.host {
            Some(own) => own[offset..offset + bytes.len()].copy_from_slice(bytes),
            None if bytes.len() == len => {
                self.patch = None;
                self.host = Some(bytes.to_vec());
            }
            None if self.shows == Shows::Device && self.patch.is_none() => {
                self.patch = Some((offset, bytes.to_vec()));
            }
            None => self.host(len)[offset..offset + bytes.len()].copy_from_slice(bytes),
        }
    }

    /// Makes the device's content the content of both sides.
    fn join(&mut self) {
        self.host = None;
        self.patch = None;
        self.shows = match self.device {
            Some(_) => Shows::Device,
            None => Shows::Fill(0),
        };
    }

    /// The patch, where it is within the range.
    fn take_patch(&mut self, range: &Range<usize>) -> Option<(usize, Vec<u8>)> {
        let within = |(offset, bytes): &mut (usize, Vec<u8>)| {
            range.start <= *offset && *offset + bytes.len() <= range.end
        };
        self.patch.take_if(within)
    }

    fn send(&mut self, range: Range<usize>, len: usize) {
        let whole = range == (0..len);
        if let Some((offset, bytes)) = self.take_patch(&range) {
            self.device(len)[offset..offset + bytes.len()].copy_from_slice(&bytes);
        } else if self.patch.is_some() {
            self.host(len);
        }
        match (self.host.take(), self.shows) {
            (Some(own), _) if whole => {
                self.device = Some(own);
                self.join();
            }
            (Some(own), _) => {
                self.device(len)[range.clone()].copy_from_slice(&own[range]);
                self.host = Some(own);
            }
            (None, Shows::Device) => {}
            (None, Shows::Fill(byte)) => {
                self.device(len)[range].fill(byte);
                if whole {
                    self.join();
                }
            }
        }
    }

    fn fetch(&mut self, range: Range<usize>, len: usize) {
        if range == (0..len) {
            return self.join();
        }
        let _overwritten = self.take_patch(&range);
        if self.host.is_none() && self.patch.is_none() && self.shows == Shows::Device {
            return;
        }
        let mut own = std::mem::take(self.host(len));
        match &self.device {
            Some(device) => own[range.clone()].copy_from_slice(&device[range]),
            None => own[range].fill(0),
        }
        self.host = Some(own);
    }
}

impl RamBuffer {
    /// A buffer of zeros for the device whose number is `owner`, within `available_bytes`.
    ///
    /// # Errors
    /// Where the size is zero or exceeds the available bytes.
    pub fn alloc(
        owner: u64,
        size_bytes: u64,
        usage: Usage,
        available_bytes: u64,
    ) -> Result<Buffer, DeviceError> {
        if size_bytes == 0 {
            return Err(DeviceError::EmptyBuffer);
        }
        if size_bytes > available_bytes {
            return Err(DeviceError::OutOfMemory {
                asked_bytes: size_bytes,
                available_bytes,
            });
        }
        // Memory is taken when it is written; here the allocation is only tried.
        let len = usize::try_from(size_bytes).ok();
        let len = len.filter(|&len| Vec::<u8>::new().try_reserve_exact(len).is_ok());
        let len = len.ok_or(DeviceError::OutOfMemory {
            asked_bytes: size_bytes,
            available_bytes: 0,
        })?;
        let object = RamBuffer {
            sides: RwLock::new(Sides {
                host: None,
                shows: Shows::Fill(0),
                patch: None,
                device: None,
            }),
            len,
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

    /// The device's side, for reading.
    pub fn device(&self) -> DeviceSide<'_> {
        if self.read().device.is_none() {
            self.lock().device(self.len);
        }
        DeviceSide(self.read())
    }

    /// The device's side, for writing. Its length must not change.
    pub fn device_mut(&self) -> DeviceSideMut<'_> {
        let mut side = self.device_lent();
        if side.0.shows == Shows::Device {
            side.0.shows = Shows::Fill(UNDEFINED);
            if side.0.patch.is_some() {
                side.0.host(self.len);
            }
        }
        side
    }

    /// The device's side, for a program that takes the bytes and gives them back unchanged: the host's view stays.
    pub fn device_lent(&self) -> DeviceSideMut<'_> {
        let mut sides = self.lock();
        sides.device(self.len);
        DeviceSideMut(sides)
    }

    /// Bytes of memory that both sides take together.
    pub fn resident_bytes(&self) -> u64 {
        let sides = self.read();
        let n_copies = u64::from(sides.host.is_some()) + u64::from(sides.device.is_some());
        let patch = sides.patch.as_ref().map_or(0, |(_, bytes)| bytes.len());
        n_copies * self.size_bytes + patch as u64
    }

    fn read(&self) -> RwLockReadGuard<'_, Sides> {
        self.sides.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> RwLockWriteGuard<'_, Sides> {
        self.sides.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device's side of a buffer.
pub struct DeviceSide<'a>(RwLockReadGuard<'a, Sides>);

impl Deref for DeviceSide<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        self.0.device.as_ref().unwrap_or(const { &Vec::new() })
    }
}

/// The device's side of a buffer, to be changed.
pub struct DeviceSideMut<'a>(RwLockWriteGuard<'a, Sides>);

impl Deref for DeviceSideMut<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        self.0.device.as_ref().unwrap_or(const { &Vec::new() })
    }
}

impl DerefMut for DeviceSideMut<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        self.0.device.get_or_insert_default()
    }
}

impl BufferObject for RamBuffer {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn map(&self, access: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        let sides = self.read();
        match (&sides.host, sides.shows, &sides.device) {
            (Some(own), ..) => access(own),
            (None, Shows::Device, Some(device)) if sides.patch.is_none() => access(device),
            _ => access(&sides.seen(self.len)),
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.lock().write(offset as usize, bytes, self.len);
        Ok(())
    }

    fn map_mut(&self, access: &mut dyn FnMut(&mut [u8])) -> Result<(), DeviceError> {
        access(self.lock().host(self.len));
        Ok(())
    }

    fn sync(&self, direction: Direction, range: Range<u64>) -> Result<(), DeviceError> {
        let range = range.start as usize..range.end as usize;
        match direction {
            Direction::ToDevice => self.lock().send(range, self.len),
            Direction::FromDevice => self.lock().fetch(range, self.len),
        }
        Ok(())
    }

    fn peek(&self, look: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        look(&self.device());
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
