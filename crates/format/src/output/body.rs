//! The tensor bytes of an output file. Every tensor's place is fixed before the first byte; the
//! bytes then come in any order of tensors.

use std::collections::HashMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use crate::Error;

/// The place of a tensor in the file.
#[derive(Debug)]
pub(crate) struct TensorExtent {
    pub(crate) name: String,
    /// From the start of the sink.
    pub(crate) offset: u64,
    pub(crate) size_bytes: u64,
    /// Zeros that follow the tensor.
    pub(crate) pad_bytes: u64,
}

/// A sink with slots to fill.
#[derive(Debug)]
pub(crate) struct Body<W> {
    sink: W,
    file: PathBuf,
    position: u64,
    slots: Vec<TensorExtent>,
    /// Bytes that each slot has.
    filled_bytes: Vec<u64>,
    index: HashMap<String, usize>,
}

impl<W: Write + Seek> Body<W> {
    /// Writes `head` at the start of the sink and opens the slots behind it.
    pub(crate) fn new(
        mut sink: W,
        file: PathBuf,
        head: &[u8],
        slots: Vec<TensorExtent>,
    ) -> Result<Body<W>, Error> {
        sink.write_all(head).map_err(Error::io(&file, "write"))?;
        let names = slots.iter().enumerate();
        Ok(Body {
            index: names.map(|(i, slot)| (slot.name.clone(), i)).collect(),
            filled_bytes: vec![0; slots.len()],
            position: head.len() as u64,
            slots,
            file,
            sink,
        })
    }

    /// The next bytes of a tensor.
    pub(crate) fn write(&mut self, tensor: &str, bytes: &[u8]) -> Result<(), Error> {
        let Some(&i) = self.index.get(tensor) else {
            return Err(Error::CannotStore {
                file: self.file.clone(),
                tensor: tensor.to_owned(),
                reason: "it was not announced when the file was begun".to_owned(),
            });
        };
        let (slot, len) = (&self.slots[i], bytes.len() as u64);
        let filled = self.filled_bytes[i] + len;
        if filled > slot.size_bytes {
            return Err(self.wrong_length(i, filled));
        }
        let at = slot.offset + self.filled_bytes[i];
        if at != self.position {
            self.sink
                .seek(SeekFrom::Start(at))
                .map_err(Error::io(&self.file, "write"))?;
        }
        self.sink
            .write_all(bytes)
            .map_err(Error::io(&self.file, "write"))?;
        self.position = at + len;
        self.filled_bytes[i] = filled;
        if filled == slot.size_bytes && len > 0 {
            self.pad(slot.pad_bytes)?;
        }
        Ok(())
    }

    fn pad(&mut self, pad_bytes: u64) -> Result<(), Error> {
        let zeros = vec![0; pad_bytes as usize];
        self.sink
            .write_all(&zeros)
            .map_err(Error::io(&self.file, "write"))?;
        self.position += pad_bytes;
        Ok(())
    }

    fn wrong_length(&self, i: usize, found_bytes: u64) -> Error {
        Error::WrongLength {
            file: self.file.clone(),
            tensor: self.slots[i].name.clone(),
            expected_bytes: self.slots[i].size_bytes,
            found_bytes,
        }
    }

    /// Checks that every tensor is complete and gives the sink back.
    pub(crate) fn finish(mut self) -> Result<W, Error> {
        for (i, slot) in self.slots.iter().enumerate() {
            if self.filled_bytes[i] != slot.size_bytes {
                return Err(self.wrong_length(i, self.filled_bytes[i]));
            }
        }
        self.sink.flush().map_err(Error::io(&self.file, "write"))?;
        Ok(self.sink)
    }
}
