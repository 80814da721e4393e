//! Buffer sets: one buffer a slot, and the transfers around a call.

use super::CacheError;
use super::shared::{SharedBuffers, SharedNames};
use crate::{
    BoundProgram, Buffer, Completion, Container, ContentHash, Device, DeviceError, Direction,
    LoadedProgram, Role, Slot, Traffic,
};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A set behind its `bo_key`; `None` until it could be allocated.
pub(super) type CacheSlot = Arc<Mutex<Option<BufferSet>>>;

/// Results and traffic of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// An entry a slot: the bytes of `output` slots, nothing for the others.
    pub outputs: Vec<Vec<u8>>,
    /// Bytes that crossed.
    pub traffic: Traffic,
    /// Time, trace and energy of the run.
    pub completion: Completion,
}

#[derive(Debug)]
pub(super) struct BufferSet {
    program: ContentHash,
    name: String,
    buffers: Vec<Arc<Buffer>>,
    /// By slot: whether it is static.
    statics: Vec<bool>,
    /// By slot: whether a static slot has its content.
    written: Vec<bool>,
    /// Bytes of the buffers that were allocated for this set.
    allocated_bytes: u64,
    /// The program on these buffers, once it has run.
    bound: Option<BoundProgram>,
}

/// Fills a static slot, by number, in place.
pub type Fill<'a, E> = dyn FnMut(usize, &mut [u8]) -> Result<(), E> + 'a;

/// The host's transfer of a slot at a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move<'a> {
    /// No transfer. Not for `input` slots.
    None,
    /// An `input` slot keeps the content that another program, or an earlier call, left in its buffer.
    Keep,
    /// Writes it before the program runs: an `input` slot; a `static` one that is still empty.
    Write(&'a [u8]),
    /// Reads these bytes of it after the program ran.
    Read(Range<u64>),
}

impl<'a> Move<'a> {
    /// Transfers by role: data is written, outputs are read.
    ///
    /// # Errors
    /// [`CacheError::Arguments`] for other than one entry a slot.
    pub(super) fn by_role(
        container: &Container,
        inputs: &[Option<&'a [u8]>],
    ) -> Result<Vec<Move<'a>>, CacheError> {
        let slots = container.slots();
        check_count(container, inputs.len())?;
        let by_role = slots.iter().zip(inputs).map(|(slot, data)| match data {
            Some(data) => Move::Write(data),
            None if slot.role == Role::Output => Move::Read(0..slot.size_bytes().unwrap_or(0)),
            None => Move::None,
        });
        Ok(by_role.collect())
    }
}

fn check_count(container: &Container, found: usize) -> Result<(), CacheError> {
    let expected = container.slots().len();
    if found == expected {
        return Ok(());
    }
    Err(CacheError::Arguments {
        program: container.name().to_owned(),
        expected,
        found,
    })
}

impl BufferSet {
    pub(super) fn alloc(
        device: &dyn Device,
        container: &Container,
        name: SharedNames<'_>,
        shared: &SharedBuffers,
    ) -> Result<BufferSet, CacheError> {
        let slots = container.slots();
        let mut set = BufferSet {
            program: container.content_hash(),
            name: container.name().to_owned(),
            buffers: Vec::with_capacity(slots.len()),
            statics: slots.iter().map(|s| s.role == Role::Static).collect(),
            written: Vec::with_capacity(slots.len()),
            allocated_bytes: 0,
            bound: None,
        };
        for (number, slot) in slots.iter().enumerate() {
            let (buffer, is_written) = match (name(number), slot.role) {
                (Some(name), Role::Static) => {
                    let found = shared.find(&name).filter(|b| set.can_bind(b, slot));
                    let is_written = found.is_some();
                    (
                        found.map_or_else(|| set.make(device, slot), Ok)?,
                        is_written,
                    )
                }
                (Some(name), _) => (set.named(device, slot, name, shared)?, false),
                (None, _) => (set.make(device, slot)?, false),
            };
            set.written.push(is_written);
            set.buffers.push(buffer);
        }
        Ok(set)
    }

    /// The program bound to these buffers.
    fn bound(
        &mut self,
        device: &dyn Device,
        program: &Arc<dyn LoadedProgram>,
    ) -> Result<&BoundProgram, DeviceError> {
        let bound = match self.bound.take() {
            Some(bound) if Arc::ptr_eq(&bound.program, program) => bound,
            _ => device.bind(program, &self.buffers)?,
        };
        Ok(self.bound.insert(bound))
    }

    fn make(&mut self, device: &dyn Device, slot: &Slot) -> Result<Arc<Buffer>, CacheError> {
        let size_bytes = slot.size_bytes().unwrap_or(u64::MAX);
        let buffer = device.alloc(size_bytes, slot.role.into());
        let buffer = buffer.map_err(|error| CacheError::Alloc {
            program: self.name.clone(),
            slot: slot.name.clone(),
            error: Box::new(error),
        })?;
        self.allocated_bytes += size_bytes;
        Ok(buffer)
    }

    /// The buffer of a name for a slot that is not static.
    fn named(
        &mut self,
        device: &dyn Device,
        slot: &Slot,
        name: String,
        shared: &SharedBuffers,
    ) -> Result<Arc<Buffer>, CacheError> {
        let buffer = shared.find_or_make(&name, || self.make(device, slot))?;
        if self.can_bind(&buffer, slot) {
            return Ok(buffer);
        }
        Err(CacheError::Shared {
            name,
            slot: slot.name.clone(),
            expected_bytes: slot.size_bytes().unwrap_or(u64::MAX),
            found_bytes: buffer.size_bytes(),
        })
    }

    /// Two slots of a program are two buffers, even where their content is the same.
    fn can_bind(&self, buffer: &Arc<Buffer>, slot: &Slot) -> bool {
        slot.size_bytes() == Some(buffer.size_bytes())
            && !self.buffers.iter().any(|other| Arc::ptr_eq(other, buffer))
    }

    pub(super) fn belongs_to(&self, container: &Container, bo_key: &str) -> Result<(), CacheError> {
        if self.program == container.content_hash() {
            return Ok(());
        }
        Err(CacheError::BoKey {
            bo_key: bo_key.to_owned(),
            holder: self.name.clone(),
            program: container.name().to_owned(),
        })
    }

    pub(super) fn buffers(&self) -> &[Arc<Buffer>] {
        &self.buffers
    }

    /// Writes pieces of a slot, each at its offset, and syncs them alone.
    pub(super) fn write_parts(
        &self,
        bo_key: &str,
        slot: usize,
        parts: &[(u64, &[u8])],
    ) -> Result<(), CacheError> {
        let buffer = self.buffers.get(slot).ok_or_else(|| CacheError::NoSlot {
            bo_key: bo_key.to_owned(),
            slot,
            n_slots: self.buffers.len(),
        })?;
        for &(offset, bytes) in parts {
            buffer.write(offset, bytes)?;
            let range = offset..offset.saturating_add(bytes.len() as u64);
            buffer.sync_range(Direction::ToDevice, range)?;
        }
        Ok(())
    }

    pub(super) fn statics(&self) -> impl Iterator<Item = bool> {
        self.statics.iter().copied()
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    pub(super) fn traffic(&self) -> Traffic {
        let mut total = Traffic::default();
        self.buffers.iter().for_each(|b| total += b.traffic());
        total
    }

    /// Checks a request before anything moves; input slots need data only `for_run`.
    pub(super) fn check(
        &self,
        container: &Container,
        moves: &[Move<'_>],
        for_run: bool,
    ) -> Result<(), CacheError> {
        check_count(container, moves.len())?;
        for (number, (slot, wanted)) in container.slots().iter().zip(moves).enumerate() {
            let program = || container.name().to_owned();
            let size_bytes = self.buffers[number].size_bytes();
            let needed = match slot.role {
                Role::Static => !self.written[number],
                Role::Input => for_run && *wanted != Move::Keep,
                Role::Intermediate | Role::Output => false,
            };
            match wanted {
                Move::Write(_) if !matches!(slot.role, Role::Static | Role::Input) => {
                    return Err(CacheError::Unwanted {
                        program: program(),
                        slot: slot.name.clone(),
                        role: slot.role,
                    });
                }
                Move::Write(data) if data.len() as u64 != size_bytes => {
                    return Err(CacheError::Size {
                        program: program(),
                        slot: slot.name.clone(),
                        expected_bytes: size_bytes,
                        found_bytes: data.len() as u64,
                    });
                }
                Move::Write(_) => {}
                _ if needed => {
                    return Err(CacheError::Missing {
                        program: program(),
                        slot: slot.name.clone(),
                        role: slot.role,
                    });
                }
                Move::Read(range) if range.start > range.end || range.end > size_bytes => {
                    return Err(CacheError::Device(DeviceError::Range {
                        offset: range.start,
                        len: range.end.saturating_sub(range.start),
                        size_bytes,
                    }));
                }
                Move::None | Move::Keep | Move::Read(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn write_static(
        &mut self,
        container: &Container,
        moves: &[Move<'_>],
    ) -> Result<(), DeviceError> {
        for (number, (slot, wanted)) in container.slots().iter().zip(moves).enumerate() {
            if let Move::Write(data) = wanted
                && slot.role == Role::Static
                && !self.written[number]
            {
                self.write(number, data)?;
                self.written[number] = true;
            }
        }
        Ok(())
    }

    /// Marks static slots as without content.
    pub(super) fn empty(&mut self, slots: &[usize]) {
        for &slot in slots {
            if let Some(written) = self.written.get_mut(slot) {
                *written = false;
            }
        }
    }

    /// Fills every static slot without content in place, through the callback; reports each buffer filled.
    pub(super) fn fill_static<E: From<CacheError>>(
        &mut self,
        container: &Container,
        fill: &mut Fill<'_, E>,
        mut filled: impl FnMut(usize, &Arc<Buffer>),
    ) -> Result<(), E> {
        for (number, slot) in container.slots().iter().enumerate() {
            if slot.role != Role::Static || self.written[number] {
                continue;
            }
            let buffer = &self.buffers[number];
            let mut result = Ok(());
            let written = buffer.write_with(|bytes| result = fill(number, bytes));
            written.map_err(CacheError::from)?;
            result?;
            let synced = buffer.sync(Direction::ToDevice);
            synced.map_err(CacheError::from)?;
            self.written[number] = true;
            filled(number, buffer);
        }
        Ok(())
    }

    fn write(&self, number: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.buffers[number].write(0, data)?;
        self.buffers[number].sync(Direction::ToDevice)
    }

    /// The five steps of one call, after the request was checked.
    pub(super) fn run(
        &mut self,
        device: &dyn Device,
        program: &Arc<dyn LoadedProgram>,
        container: &Container,
        moves: &[Move<'_>],
        mut output: impl FnMut(usize, &[u8]),
    ) -> Result<CallResult, CacheError> {
        let before = self.traffic();
        self.write_static(container, moves)?;
        for (number, (slot, wanted)) in container.slots().iter().zip(moves).enumerate() {
            if let (Move::Write(data), Role::Input) = (wanted, slot.role) {
                self.write(number, data)?;
            }
        }
        let fence = device.submit(self.bound(device, program)?)?;
        let completion = device.wait(fence)?;
        for (number, wanted) in moves.iter().enumerate() {
            if let Move::Read(range) = wanted {
                let buffer = &self.buffers[number];
                buffer.sync_range(Direction::FromDevice, range.clone())?;
                buffer.read_range_with(range.clone(), |bytes| output(number, bytes))?;
            }
        }
        Ok(CallResult {
            outputs: Vec::new(),
            traffic: self.traffic() - before,
            completion,
        })
    }
}
