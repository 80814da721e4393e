//! Buffers of virtual devices, in ordinary memory.

use crate::{Buffer, BufferObject, DeviceError, Direction, Usage};
use std::any::Any;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A buffer object with two sides, the host's and the device's, which only a sync makes equal: a
/// forgotten sync gives wrong data here as it would on hardware without coherent caches.
///
/// Sides take memory only where they differ. A side that nobody touched is one byte repeated; after
/// a sync of the whole buffer both are one copy until either is written. When the device writes, the
/// host's view becomes [`UNDEFINED`] rather than what it was, since that may be right by luck.
#[derive(Debug)]
pub struct RamBuffer {
    sides: RwLock<Sides>,
    len: usize,
    size_bytes: u64,
    owner: u64,
}

/// What the host sees in a buffer that the device wrote since both sides were equal.
pub const UNDEFINED: u8 = 0xb5;

#[derive(Debug)]
struct Sides {
    /// The host's content where it has its own.
    host: Option<Vec<u8>>,
    /// What the host sees without.
    shows: Shows,
    /// `None` is zeros.
    device: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// The byte, over and over.
    Fill(u8),
    /// The device's content, which is there.
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

    /// The host's content as its own, about to be written.
    fn host(&mut self, len: usize) -> &mut Vec<u8> {
        let shown = || match (self.shows, &self.device) {
            (Shows::Fill(byte), _) => filled(len, byte),
            (Shows::Device, Some(device)) => device.clone(),
            (Shows::Device, None) => filled(len, 0),
        };
        self.host.get_or_insert_with(shown)
    }

    /// Both sides are the device's content.
    fn join(&mut self) {
        self.host = None;
        self.shows = match self.device {
            Some(_) => Shows::Device,
            None => Shows::Fill(0),
        };
    }

    fn send(&mut self, range: Range<usize>, len: usize) {
        let whole = range == (0..len);
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
        if self.host.is_none() && self.shows == Shows::Device {
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
        if size_bytes > available_bytes {
            return Err(DeviceError::OutOfMemory {
                asked_bytes: size_bytes,
                available_bytes,
            });
        }
        // Memory is taken when it is written; that it can be had at all is tried here.
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
            self.write().device(self.len);
        }
        DeviceSide(self.read())
    }

    /// The device's side, for writing. Its length must stay as it is.
    pub fn device_mut(&self) -> DeviceSideMut<'_> {
        let mut side = self.device_lent();
        if side.0.shows == Shows::Device {
            side.0.shows = Shows::Fill(UNDEFINED);
        }
        side
    }

    /// The device's side, for a program that takes the bytes and gives them back as they were: what
    /// the host sees stays.
    pub fn device_lent(&self) -> DeviceSideMut<'_> {
        let mut sides = self.write();
        sides.device(self.len);
        DeviceSideMut(sides)
    }

    /// Bytes of memory that both sides take together.
    pub fn resident_bytes(&self) -> u64 {
        let sides = self.read();
        let n_copies = u64::from(sides.host.is_some()) + u64::from(sides.device.is_some());
        n_copies * self.size_bytes
    }

    fn read(&self) -> RwLockReadGuard<'_, Sides> {
        self.sides.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sides> {
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
            (None, Shows::Device, Some(device)) => access(device),
            (None, Shows::Device, None) => access(&filled(self.len, 0)),
            (None, Shows::Fill(byte), _) => access(&filled(self.len, byte)),
        }
        Ok(())
    }

    fn map_mut(&self, access: &mut dyn FnMut(&mut [u8])) -> Result<(), DeviceError> {
        access(self.write().host(self.len));
        Ok(())
    }

    fn sync(&self, direction: Direction, range: Range<u64>) -> Result<(), DeviceError> {
        let range = range.start as usize..range.end as usize;
        match direction {
            Direction::ToDevice => self.write().send(range, self.len),
            Direction::FromDevice => self.write().fetch(range, self.len),
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
mod tests {
    use super::*;

    const OWNER: u64 = 7;

    fn buffer(len: u64) -> Buffer {
        RamBuffer::alloc(OWNER, len, Usage::HostToDevice, len).unwrap()
    }

    fn seen(buffer: &Buffer) -> Vec<u8> {
        let mut bytes = Vec::new();
        buffer.read_with(|view| bytes = view.to_vec()).unwrap();
        bytes
    }

    fn held(buffer: &Buffer) -> Vec<u8> {
        let mut bytes = Vec::new();
        buffer.peek(|view| bytes = view.to_vec()).unwrap();
        bytes
    }

    fn ram(buffer: &Buffer) -> &RamBuffer {
        RamBuffer::of(buffer, OWNER).unwrap()
    }

    /// Two plain arrays under the same random operations: the host sees what two copies would show;
    /// only after the device wrote, and until a sync or a write of its own, it may see nothing
    /// defined.
    #[test]
    fn one_copy_behaves_as_two() {
        const LEN: usize = 9;
        let mut state = 1_u64;
        let mut random = move |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..200 {
            let buffer = buffer(LEN as u64);
            let (mut host, mut device) = ([0_u8; LEN], [0_u8; LEN]);
            let mut may_be_undefined = [false; LEN];
            for step in 0..40 {
                let byte = 1 + step as u8;
                let (a, b) = (random(LEN + 1), random(LEN + 1));
                let range = match random(2) {
                    0 => 0..LEN,
                    _ => a.min(b)..a.max(b),
                };
                let bytes = range.start as u64..range.end as u64;
                match random(4) {
                    0 => {
                        buffer.write(bytes.start, &vec![byte; range.len()]).unwrap();
                        host[range.clone()].fill(byte);
                        may_be_undefined[range].fill(false);
                    }
                    1 => {
                        buffer.sync_range(Direction::ToDevice, bytes).unwrap();
                        device[range.clone()].copy_from_slice(&host[range]);
                    }
                    2 => {
                        buffer.sync_range(Direction::FromDevice, bytes).unwrap();
                        host[range.clone()].copy_from_slice(&device[range.clone()]);
                        may_be_undefined[range].fill(false);
                    }
                    _ => {
                        ram(&buffer).device_mut()[range.clone()].fill(byte);
                        device[range].fill(byte);
                        may_be_undefined.fill(true);
                    }
                }
                assert_eq!(held(&buffer), device);
                for (at, seen) in seen(&buffer).into_iter().enumerate() {
                    let undefined = seen == UNDEFINED && may_be_undefined[at];
                    assert!(undefined || seen == host[at], "step {step}, byte {at}");
                    host[at] = seen;
                }
            }
        }
    }

    #[test]
    fn memory_is_taken_where_sides_differ() {
        let buffer = buffer(1000);
        assert_eq!((seen(&buffer), held(&buffer).len()), (vec![0; 1000], 1000));
        let fresh = super::tests::buffer(1000);
        assert_eq!(ram(&fresh).resident_bytes(), 0);
        fresh.write_with(|view| view.fill(3)).unwrap();
        assert_eq!(ram(&fresh).resident_bytes(), 1000);
        fresh.sync(Direction::ToDevice).unwrap();
        assert_eq!(ram(&fresh).resident_bytes(), 1000);
        assert_eq!(held(&fresh), seen(&fresh));
        // A program that only reads it leaves it one copy that both see.
        drop(ram(&fresh).device_lent());
        assert_eq!(
            (ram(&fresh).resident_bytes(), seen(&fresh)),
            (1000, vec![3; 1000])
        );
        fresh.write(0, &[4]).unwrap();
        assert_eq!(ram(&fresh).resident_bytes(), 2000);
        assert_eq!((seen(&fresh)[0], held(&fresh)[0]), (4, 3));
        fresh.sync(Direction::FromDevice).unwrap();
        assert_eq!((ram(&fresh).resident_bytes(), seen(&fresh)[0]), (1000, 3));
    }

    /// What a device wrote is not seen before a sync, not even where it wrote the same again.
    #[test]
    fn a_forgotten_sync_is_never_right_by_luck() {
        let buffer = buffer(4);
        for _ in 0..2 {
            ram(&buffer).device_mut().fill(9);
            assert_ne!(seen(&buffer), [9; 4]);
            buffer.sync(Direction::FromDevice).unwrap();
            assert_eq!(seen(&buffer), [9; 4]);
        }
    }
}
