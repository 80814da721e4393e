//! Vectors of 512 bits between neighbouring cores.

use super::{CoreEvent, State};
use crate::core::value::{CoreValue, Number};
use millrace_xdna2_words::board::CoreView;

/// Bytes of a value in the cascade.
const BYTES: usize = 64;

/// State of the cascade that a core waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CascadeWait {
    /// That the next core takes the last value.
    Room,
    /// A value of the core before.
    Value,
}

impl CascadeWait {
    /// Description.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CascadeWait::Room => "waits for room in the cascade",
            CascadeWait::Value => "waits for a value of the cascade",
        }
    }
}

impl State {
    /// Sends a vector, if the last one was taken.
    pub(super) fn put_cascade(
        &self,
        (from, number): (usize, Number),
        core: &mut CoreView<'_, '_>,
    ) -> Result<CoreEvent, String> {
        let CoreValue::Vector(values) = &self.slots[from] else {
            return Err("the cascade takes a vector".to_owned());
        };
        let mut bytes = [0; BYTES];
        for (bytes, value) in bytes.chunks_mut(number.bytes()).zip(values) {
            bytes.copy_from_slice(&number.write(value)?[..number.bytes()]);
        }
        let mut words = [0; BYTES / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(match core.cascade_send(&words)? {
            true => CoreEvent::Next,
            false => CoreEvent::WaitsForCascade(CascadeWait::Room),
        })
    }

    /// Takes a vector, if there is one.
    pub(super) fn get_cascade(
        &mut self,
        (to, number): (usize, Number),
        core: &mut CoreView<'_, '_>,
    ) -> CoreEvent {
        let Some(words) = core.cascade_receive() else {
            return CoreEvent::WaitsForCascade(CascadeWait::Value);
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let values = bytes.chunks(number.bytes()).map(|bytes| number.read(bytes));
        self.slots[to] = CoreValue::Vector(values.collect());
        CoreEvent::Next
    }
}
