//! Reads and writes of elements.

use super::value::{Base, CoreValue, MemoryView};
use millrace_xdna2_words::board::CoreView;

/// Bytes that a program may allocate for itself.
const MOST_OWN_BYTES: usize = 1 << 20;

/// A core's memories as its program uses them.
pub(crate) struct Memories<'a, 'b, 'p> {
    pub(crate) core: &'a mut CoreView<'b, 'p>,
    pub(crate) own: &'a mut Vec<Vec<u8>>,
}

/// Allocates bytes of the program's own; returns the block's number.
pub(crate) fn allocate(own: &mut Vec<Vec<u8>>, bytes: usize) -> Result<usize, String> {
    let held: usize = own.iter().map(Vec::len).sum();
    if held.saturating_add(bytes) > MOST_OWN_BYTES || own.len() > 4096 {
        return Err(format!("it allocates more than {MOST_OWN_BYTES} bytes"));
    }
    own.push(vec![0; bytes]);
    Ok(own.len() - 1)
}

impl Memories<'_, '_, '_> {
    /// Bytes from a position of a view on.
    fn bytes(&mut self, base: Base, start: i64, to: &mut [u8]) -> Result<(), String> {
        let start =
            usize::try_from(start).map_err(|_| "an element before its memory".to_owned())?;
        match base {
            Base::Own(block) => {
                let from = self
                    .own
                    .get(block)
                    .and_then(|b| b.get(start..start + to.len()));
                to.copy_from_slice(from.ok_or("an element behind its memory")?);
            }
            Base::Core(address) => {
                let (first, skip, n_words) = words(address, start, to.len())?;
                let mut found = [0u32; 64];
                let found = &mut found[..n_words];
                self.core.read(first, found).map_err(String::from)?;
                let all = found.iter().flat_map(|word| word.to_le_bytes()).skip(skip);
                to.iter_mut().zip(all).for_each(|(to, byte)| *to = byte);
            }
        }
        Ok(())
    }

    fn put(&mut self, base: Base, start: i64, from: &[u8]) -> Result<(), String> {
        let at = usize::try_from(start).map_err(|_| "an element before its memory".to_owned())?;
        match base {
            Base::Own(block) => {
                let to = self
                    .own
                    .get_mut(block)
                    .and_then(|b| b.get_mut(at..at + from.len()));
                to.ok_or("an element behind its memory")?
                    .copy_from_slice(from);
            }
            Base::Core(address) => {
                let (first, skip, n_words) = words(address, at, from.len())?;
                let mut content = [0u32; 64];
                let content = &mut content[..n_words];
                // Other bytes of the same words stay as they are.
                if skip != 0 || !from.len().is_multiple_of(4) {
                    self.core.read(first, content).map_err(String::from)?;
                }
                for (i, &byte) in from.iter().enumerate() {
                    let (word, shift) = ((skip + i) / 4, (skip + i) % 4 * 8);
                    content[word] = content[word] & !(0xFF << shift) | u32::from(byte) << shift;
                }
                self.core.write(first, content).map_err(String::from)?;
            }
        }
        Ok(())
    }

    /// The element at a position.
    pub(crate) fn load(&mut self, view: &MemoryView, position: i64) -> Result<CoreValue, String> {
        let n = view.number.bytes();
        let mut bytes = [0; 8];
        self.bytes(
            view.base,
            position.saturating_mul(n as i64),
            &mut bytes[..n],
        )?;
        Ok(view.number.read(&bytes[..n]))
    }

    pub(crate) fn store(
        &mut self,
        view: &MemoryView,
        position: i64,
        value: &CoreValue,
    ) -> Result<(), String> {
        let n = view.number.bytes();
        let bytes = view.number.write(value)?;
        self.put(view.base, position.saturating_mul(n as i64), &bytes[..n])
    }

    /// All bytes of a view that begins and ends with a word.
    pub(crate) fn words(&mut self, view: &MemoryView) -> Result<Vec<u32>, String> {
        let (start, n_words) = word_range(view)?;
        let mut words = vec![0; n_words];
        match view.base {
            Base::Own(block) => {
                let from = self.own.get(block).and_then(|b| b.get(start..));
                let from = from.filter(|bytes| bytes.len() >= n_words * 4);
                let chunks = from.ok_or("an element behind its memory")?.chunks_exact(4);
                for (word, bytes) in words.iter_mut().zip(chunks) {
                    *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
            Base::Core(address) => {
                self.core.read(address + start as u32, &mut words)?;
            }
        }
        Ok(words)
    }

    /// Writes all bytes of such a view.
    pub(crate) fn put_words(&mut self, view: &MemoryView, words: &[u32]) -> Result<(), String> {
        let (start, _) = word_range(view)?;
        match view.base {
            Base::Own(block) => {
                let to = self.own.get_mut(block);
                let to = to.and_then(|b| b.get_mut(start..start + words.len() * 4));
                let to = to.ok_or("an element behind its memory")?;
                to.iter_mut()
                    .zip(words.iter().flat_map(|word| word.to_le_bytes()))
                    .for_each(|(to, byte)| *to = byte);
            }
            Base::Core(address) => self.core.write(address + start as u32, words)?,
        }
        Ok(())
    }

    /// All elements in row order.
    pub(crate) fn load_all(&mut self, view: &MemoryView) -> Result<Vec<CoreValue>, String> {
        let (n, n_elements) = (view.number.bytes(), view.n_elements());
        if !view.is_dense() {
            return (0..n_elements)
                .map(|i| self.load(view, view.nth(i)))
                .collect();
        }
        let mut values = Vec::with_capacity(n_elements.clamp(0, 1 << 16) as usize);
        let mut block = [0u8; 128];
        let a_block = (block.len() / n) as i64;
        let mut done = 0;
        while done < n_elements {
            let now = a_block.min(n_elements - done);
            let bytes = &mut block[..now as usize * n];
            self.bytes(
                view.base,
                view.offset.saturating_add(done).saturating_mul(n as i64),
                bytes,
            )?;
            values.extend(bytes.chunks(n).map(|bytes| view.number.read(bytes)));
            done += now;
        }
        Ok(values)
    }

    pub(crate) fn store_all(
        &mut self,
        view: &MemoryView,
        values: &[CoreValue],
    ) -> Result<(), String> {
        let n = view.number.bytes();
        if !view.is_dense() {
            let mut all = values.iter().enumerate();
            return all.try_for_each(|(i, value)| self.store(view, view.nth(i as i64), value));
        }
        let mut done = 0;
        for values in values.chunks(128 / n) {
            let mut block = [0u8; 128];
            for (bytes, value) in block.chunks_mut(n).zip(values) {
                bytes.copy_from_slice(&view.number.write(value)?[..n]);
            }
            self.put(
                view.base,
                view.offset.saturating_add(done).saturating_mul(n as i64),
                &block[..values.len() * n],
            )?;
            done += values.len() as i64;
        }
        Ok(())
    }
}

/// First byte and number of words of a view in a row.
fn word_range(view: &MemoryView) -> Result<(usize, usize), String> {
    let n = view.number.bytes() as i64;
    let (start, bytes) = (
        view.offset.saturating_mul(n),
        view.n_elements().saturating_mul(n),
    );
    let is_whole = view.is_dense() && start % 4 == 0 && bytes % 4 == 0;
    let start = usize::try_from(start)
        .ok()
        .filter(|&at| is_whole && at < MOST_OWN_BYTES);
    let n_words = usize::try_from(bytes / 4)
        .ok()
        .filter(|&n| n <= MOST_OWN_BYTES);
    start
        .zip(n_words)
        .ok_or_else(|| "a buffer that is no row of whole words".to_owned())
}

/// The first word's address, bytes of it before, and words.
fn words(address: u32, start: usize, n_bytes: usize) -> Result<(u32, usize, usize), String> {
    let first = u32::try_from(start)
        .ok()
        .and_then(|start| address.checked_add(start));
    let first = first.ok_or("an element behind its memory")?;
    let skip = (first % 4) as usize;
    Ok((first - first % 4, skip, (skip + n_bytes).div_ceil(4)))
}
