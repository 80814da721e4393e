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
}

impl BufferSet {
    pub(super) fn alloc(
        device: &dyn Device,
        container: &Container,
    ) -> Result<BufferSet, DeviceError> {
        let slots = container.slots();
        let size = |slot: &Slot| slot.size_bytes().unwrap_or(u64::MAX);
        let buffers = slots
            .iter()
            .map(|slot| device.alloc(size(slot), slot.role.into()))
            .collect::<Result<_, _>>()?;
        Ok(BufferSet {
            program: container.content_hash(),
            name: container.name().to_owned(),
            buffers,
            written: vec![false; slots.len()],
        })
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

    pub(super) fn size_bytes(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.size_bytes()).sum()
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
