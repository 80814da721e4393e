//! Buffers of the device contract over buffer objects of several workers.
//!
//! An address space belongs to one worker. So a buffer is cut into *parts*, each an object of the worker that uses
//! those bytes; inputs that all workers read exist once for each. The cut is known when a program is first bound, so
//! until then the content is in ordinary memory. The host's view is kept separate until a sync, as the contract asks.

use crate::driver::{Bo, Driver, DriverError};
use millrace_npu::ram::UNDEFINED;
use millrace_npu::{BufferObject, DeviceError, Direction};
use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a buffer that a worker uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartRange {
    pub(super) worker: usize,
    pub(super) range: Range<u64>,
}

/// A part in an object.
pub(super) struct ObjectPart {
    pub(super) at: PartRange,
    pub(super) bo: Bo,
}

/// Place of the device's content.
enum ContentPlace {
    Zeros,
    /// No program was bound yet.
    Memory(Vec<u8>),
    /// Objects, whose ranges cover the buffer.
    Parts(Arc<Vec<ObjectPart>>),
}

/// The host's view.
enum View {
    /// The device's content.
    Same,
    /// The device's content, fetched.
    Copy(Vec<u8>),
    /// One byte, repeated: the device wrote since the last sync.
    Fill(u8),
    /// Content that the host wrote.
    Own(Vec<u8>),
}

struct Sides {
    view: View,
    place: ContentPlace,
    /// Objects of other cuts, whose content is old. Programs that share a buffer and cut it differently find theirs
    /// again, at the addresses that their commands hold.
    spare: Vec<Arc<Vec<ObjectPart>>>,
}

/// Cuts of a buffer that are kept beside the one in use.
const MAX_SPARE: usize = 8;

/// A buffer of an RK3588.
pub(super) struct RkBuffer {
    pub(super) owner: u64,
    device: Arc<str>,
    size_bytes: u64,
    sides: Mutex<Sides>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

fn span(range: &Range<u64>, base: u64) -> Range<usize> {
    (range.start - base) as usize..(range.end - base) as usize
}

impl ContentPlace {
    /// Copies a range of the device's content to the front of `out`.
    fn read(&self, range: &Range<u64>, out: &mut [u8]) -> Result<(), DriverError> {
        match self {
            ContentPlace::Zeros => out.fill(0),
            ContentPlace::Memory(bytes) => out.copy_from_slice(&bytes[span(range, 0)]),
            ContentPlace::Parts(parts) => {
                for part in parts.iter() {
                    let both = overlap(&part.at.range, range);
                    if !both.is_empty() {
                        let from = span(&both, part.at.range.start);
                        let to = &mut out[span(&both, range.start)];
                        part.bo.touch(|bytes| to.copy_from_slice(&bytes[from]))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn read_all(&self, len: u64) -> Result<Vec<u8>, DriverError> {
        let mut out = vec![0; len as usize];
        self.read(&(0..len), &mut out)?;
        Ok(out)
    }

    /// Overwrites a range of the device's content.
    fn write(&mut self, range: &Range<u64>, bytes: &[u8], len: u64) -> Result<(), DriverError> {
        if let ContentPlace::Zeros = self {
            *self = ContentPlace::Memory(vec![0; len as usize]);
        }
        match self {
            ContentPlace::Zeros => {}
            ContentPlace::Memory(memory) => memory[span(range, 0)].copy_from_slice(bytes),
            ContentPlace::Parts(parts) => {
                for part in parts.iter() {
                    let both = overlap(&part.at.range, range);
                    if !both.is_empty() {
                        let to = span(&both, part.at.range.start);
                        let from = &bytes[span(&both, range.start)];
                        part.bo.touch(|bytes| bytes[to].copy_from_slice(from))?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl RkBuffer {
    pub(super) fn new(owner: u64, device: Arc<str>, size_bytes: u64) -> RkBuffer {
        let sides = Sides {
            view: View::Same,
            place: ContentPlace::Zeros,
            spare: Vec::new(),
        };
        RkBuffer {
            owner,
            device,
            size_bytes,
            sides: Mutex::new(sides),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sides> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, error: DriverError) -> DeviceError {
        error.to_device(&self.device)
    }

    /// Moves the content into objects of those workers. Nothing happens where it is there already; an error leaves the
    /// content in its old place.
    pub(super) fn place(
        &self,
        driver: &Driver,
        ranges: &[PartRange],
    ) -> Result<Arc<Vec<ObjectPart>>, DriverError> {
        let mut sides = self.lock();
        if let ContentPlace::Parts(parts) = &sides.place
            && parts.iter().map(|part| &part.at).eq(ranges)
        {
            return Ok(parts.clone());
        }
        let same = |parts: &Arc<Vec<ObjectPart>>| parts.iter().map(|part| &part.at).eq(ranges);
        let spare = sides.spare.iter().position(same);
        let parts = match spare {
            Some(at) => sides.spare[at].clone(),
            None => Arc::new(make(driver, ranges)?),
        };
        let is_new = spare.is_none();
        for part in parts.iter() {
            // New objects are zeros already.
            if is_new && matches!(sides.place, ContentPlace::Zeros) {
                continue;
            }
            let range = &part.at.range;
            let len = (range.end - range.start) as usize;
            let filled = part
                .bo
                .touch(|bytes| sides.place.read(range, &mut bytes[..len]));
            filled??;
        }
        if let Some(at) = spare {
            sides.spare.remove(at);
        }
        if let ContentPlace::Parts(old) =
            std::mem::replace(&mut sides.place, ContentPlace::Parts(parts.clone()))
        {
            if sides.spare.len() >= MAX_SPARE {
                sides.spare.remove(0);
            }
            sides.spare.push(old);
        }
        Ok(parts)
    }

    /// The device's content.
    pub(super) fn device_content(&self) -> Result<Vec<u8>, DeviceError> {
        let content = self.lock().place.read_all(self.size_bytes);
        content.map_err(|e| self.error(e))
    }

    /// Overwrites the device's content; the host's view stays.
    pub(super) fn set_device_content(&self, content: &[u8]) -> Result<(), DeviceError> {
        let (mut sides, len) = (self.lock(), self.size_bytes);
        // A view equal to the device's content must become a copy.
        if let View::Same = sides.view {
            let seen = sides.place.read_all(len).map_err(|e| self.error(e))?;
            sides.view = View::Copy(seen);
        }
        let written = sides.place.write(&(0..len), content, len);
        written.map_err(|e| self.error(e))
    }

    /// Called before the device writes: the host's view no longer equals the device's content.
    pub(super) fn device_writes(&self) {
        let mut sides = self.lock();
        if matches!(sides.view, View::Same | View::Copy(_)) {
            sides.view = View::Fill(UNDEFINED);
        }
    }
}

/// Objects for parts of a buffer.
fn make(driver: &Driver, ranges: &[PartRange]) -> Result<Vec<ObjectPart>, DriverError> {
    let make = |at: &PartRange| {
        let len = at.range.end - at.range.start;
        Ok(ObjectPart {
            bo: Bo::create(driver.node(at.worker), len)?,
            at: at.clone(),
        })
    };
    ranges.iter().map(make).collect()
}

impl Sides {
    /// A copy of the host's view.
    fn seen(&self, len: u64) -> Result<Vec<u8>, DriverError> {
        match &self.view {
            View::Same => self.place.read_all(len),
            View::Fill(byte) => Ok(vec![*byte; len as usize]),
            View::Copy(bytes) | View::Own(bytes) => Ok(bytes.clone()),
        }
    }

    /// The host's view, about to be written.
    fn own(&mut self, len: u64) -> Result<&mut Vec<u8>, DriverError> {
        let bytes = match std::mem::replace(&mut self.view, View::Same) {
            View::Copy(bytes) | View::Own(bytes) => bytes,
            View::Fill(byte) => vec![byte; len as usize],
            View::Same => self.place.read_all(len)?,
        };
        self.view = View::Own(bytes);
        match &mut self.view {
            View::Own(bytes) => Ok(bytes),
            _ => unreachable!("it was set in the line before"),
        }
    }

    fn send(&mut self, range: &Range<u64>, len: u64) -> Result<(), DriverError> {
        let whole = *range == (0..len);
        match std::mem::replace(&mut self.view, View::Same) {
            View::Own(bytes) if whole && !matches!(self.place, ContentPlace::Parts(_)) => {
                self.place = ContentPlace::Memory(bytes);
            }
            View::Own(bytes) => {
                let sent = self.place.write(range, &bytes[span(range, 0)], len);
                if !whole || sent.is_err() {
                    self.view = View::Own(bytes);
                }
                sent?;
            }
            View::Fill(byte) => {
                self.view = View::Fill(byte);
                let bytes = vec![byte; (range.end - range.start) as usize];
                self.place.write(range, &bytes, len)?;
                if whole {
                    self.view = View::Same;
                }
            }
            equal => self.view = equal,
        }
        Ok(())
    }

    fn fetch(&mut self, range: &Range<u64>, len: u64) -> Result<(), DriverError> {
        if *range == (0..len) {
            self.view = View::Same;
            return Ok(());
        }
        if matches!(self.view, View::Same | View::Copy(_)) {
            return Ok(());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.place.read(range, &mut bytes)?;
        self.own(len)?[span(range, 0)].copy_from_slice(&bytes);
        Ok(())
    }
}

impl BufferObject for RkBuffer {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn map(&self, access: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        let mut sides = self.lock();
        if let (View::Same, ContentPlace::Memory(bytes)) = (&sides.view, &sides.place) {
            access(bytes);
            return Ok(());
        }
        if let View::Same = sides.view {
            let seen = sides.seen(self.size_bytes);
            sides.view = View::Copy(seen.map_err(|e| self.error(e))?);
        }
        match &sides.view {
            View::Copy(bytes) | View::Own(bytes) => access(bytes),
            _ => access(&sides.seen(self.size_bytes).map_err(|e| self.error(e))?),
        }
        Ok(())
    }

    fn map_mut(&self, access: &mut dyn FnMut(&mut [u8])) -> Result<(), DeviceError> {
        let mut sides = self.lock();
        access(sides.own(self.size_bytes).map_err(|e| self.error(e))?);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut sides = self.lock();
        if bytes.len() as u64 == self.size_bytes {
            // The old content need not be fetched.
            sides.view = View::Own(bytes.to_vec());
            return Ok(());
        }
        let own = sides.own(self.size_bytes).map_err(|e| self.error(e))?;
        own[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, direction: Direction, range: Range<u64>) -> Result<(), DeviceError> {
        let mut sides = self.lock();
        let synced = match direction {
            Direction::ToDevice => sides.send(&range, self.size_bytes),
            Direction::FromDevice => sides.fetch(&range, self.size_bytes),
        };
        synced.map_err(|e| self.error(e))
    }

    fn peek(&self, look: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        let content = self.lock().place.read_all(self.size_bytes);
        look(&content.map_err(|e| self.error(e))?);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
