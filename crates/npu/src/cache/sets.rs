//! Buffer sets: one buffer a slot, and what moves around a call.

use super::CacheError;
use crate::{
    Buffer, Completion, Container, ContentHash, Device, DeviceError, Direction, LoadedProgram,
    Role, Slot, Traffic,
};
use std::sync::{Arc, Mutex};

/// A set behind its `bo_key`; `None` until it could be allocated.
pub(super) type Set = Arc<Mutex<Option<BufferSet>>>;

/// What a call gave and moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
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
    /// By slot: whether a static slot has its content.
    written: Vec<bool>,
    /// Bytes of the buffers that were allocated for this set.
    allocated_bytes: u64,
}

/// Fills a static slot, by number, in place.
pub type Fill<'a, E> = dyn FnMut(usize, &mut [u8]) -> Result<(), E> + 'a;

/// A buffer with content that a static slot, by number, can take instead of one of its own.
pub(super) type Share<'a> = &'a dyn Fn(usize) -> Option<Arc<Buffer>>;

impl BufferSet {
    pub(super) fn alloc(
        device: &dyn Device,
        container: &Container,
        share: Share<'_>,
    ) -> Result<BufferSet, DeviceError> {
        let slots = container.slots();
        let size = |slot: &Slot| slot.size_bytes().unwrap_or(u64::MAX);
        let mut set = BufferSet {
            program: container.content_hash(),
            name: container.name().to_owned(),
            buffers: Vec::with_capacity(slots.len()),
            written: Vec::with_capacity(slots.len()),
            allocated_bytes: 0,
        };
        for (number, slot) in slots.iter().enumerate() {
            // Two slots of a program are two buffers, even where their content is the same.
            let fits = |buffer: &Arc<Buffer>| {
                buffer.size_bytes() == size(slot)
                    && !set.buffers.iter().any(|other| Arc::ptr_eq(other, buffer))
            };
            let is_static = slot.role == Role::Static;
            let shared = is_static.then(|| share(number)).flatten().filter(fits);
            set.written.push(shared.is_some());
            set.buffers.push(match shared {
                Some(buffer) => buffer,
                None => {
                    set.allocated_bytes += size(slot);
                    device.alloc(size(slot), slot.role.into())?
                }
            });
        }
        Ok(set)
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

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    pub(super) fn traffic(&self) -> Traffic {
        let mut total = Traffic::default();
        self.buffers.iter().for_each(|b| total += b.traffic());
        total
    }

    /// Checks the data before any of it is written; input slots need some only `for_run`.
    pub(super) fn check(
        &self,
        container: &Container,
        inputs: &[Option<&[u8]>],
        for_run: bool,
    ) -> Result<(), CacheError> {
        let program = || container.name().to_owned();
        let slots = container.slots();
        if inputs.len() != slots.len() {
            return Err(CacheError::Arguments {
                program: program(),
                expected: slots.len(),
                found: inputs.len(),
            });
        }
        for (number, (slot, data)) in slots.iter().zip(inputs).enumerate() {
            let needed = match slot.role {
                Role::Static => !self.written[number],
                Role::Input => for_run,
                Role::Intermediate | Role::Output => false,
            };
            let wanted = matches!(slot.role, Role::Static | Role::Input);
            let (slot_name, role) = (slot.name.clone(), slot.role);
            match data {
                None if needed => {
                    return Err(CacheError::Missing {
                        program: program(),
                        slot: slot_name,
                        role,
                    });
                }
                Some(_) if !wanted => {
                    return Err(CacheError::Unwanted {
                        program: program(),
                        slot: slot_name,
                        role,
                    });
                }
                Some(data) if data.len() as u64 != self.buffers[number].size_bytes() => {
                    return Err(CacheError::Size {
                        program: program(),
                        slot: slot_name,
                        expected_bytes: self.buffers[number].size_bytes(),
                        found_bytes: data.len() as u64,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn write_static(
        &mut self,
        container: &Container,
        inputs: &[Option<&[u8]>],
    ) -> Result<(), DeviceError> {
        for (number, (slot, data)) in container.slots().iter().zip(inputs).enumerate() {
            if let Some(data) = data
                && slot.role == Role::Static
                && !self.written[number]
            {
                self.write(number, data)?;
                self.written[number] = true;
            }
        }
        Ok(())
    }

    /// Has every static slot without content filled in place; tells of each buffer filled.
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

    /// The five steps of one call, after the data was checked.
    pub(super) fn run(
        &mut self,
        device: &dyn Device,
        program: &Arc<dyn LoadedProgram>,
        container: &Container,
        inputs: &[Option<&[u8]>],
        mut output: impl FnMut(usize, &[u8]),
    ) -> Result<Call, CacheError> {
        let before = self.traffic();
        self.write_static(container, inputs)?;
        let slots = || container.slots().iter().enumerate();
        for ((number, slot), data) in slots().zip(inputs) {
            if let Some(data) = data
                && slot.role == Role::Input
            {
                self.write(number, data)?;
            }
        }
        let fence = device.submit(program, &self.buffers)?;
        let completion = device.wait(fence)?;
        for (number, _) in slots().filter(|(_, slot)| slot.role == Role::Output) {
            let buffer = &self.buffers[number];
            buffer.sync(Direction::FromDevice)?;
            buffer.read_with(|bytes| output(number, bytes))?;
        }
        Ok(Call {
            outputs: Vec::new(),
            traffic: self.traffic() - before,
            completion,
        })
    }
}
