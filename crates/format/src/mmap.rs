//! Read-only memory mappings of model files: the only unsafe code of the crate.

use std::fs::{self, File};
use std::ops::{Deref, Range};
use std::path::Path;

use crate::Error;

/// How the bytes of a mapping are about to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// All of them, soon: start reading ahead now.
    WillNeed,
    /// Front to back.
    Sequential,
    /// Here and there: do not read ahead.
    Random,
}

/// A whole file, mapped read-only and shared with the page cache.
///
/// While it lives the file must not be truncated or rewritten in place. Reading a page that the
/// file lost ends the process with SIGBUS, and rewritten bytes change under the reader. Replacing
/// the file by renaming another one over it is fine; the mapping keeps the old bytes.
pub(crate) struct FileMapping {
    map: memmap2::Mmap,
}

impl FileMapping {
    /// Maps `path`. An empty file gives no bytes.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotAFile`] (checked first: opening a pipe would wait for a writer).
    pub(crate) fn open(path: &Path) -> Result<FileMapping, Error> {
        let kind = fs::metadata(path).map_err(Error::opening(path))?;
        if !kind.is_file() {
            return Err(Error::NotAFile {
                path: path.to_owned(),
            });
        }
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        // SAFETY: the mapping is read-only and never handed out as anything but `&[u8]`, for which
        // every byte value is valid. The compiler cannot check that no other process shortens or
        // rewrites the file meanwhile. That is the documented contract above; every program that
        // maps model files relies on the same one.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(Error::io(path, "map"))?;
        Ok(FileMapping { map })
    }

    /// Tells the kernel how the bytes will be read. A hint: failure changes nothing.
    pub(crate) fn advise(&self, advice: Advice) {
        #[cfg(unix)]
        {
            let advice = match advice {
                Advice::WillNeed => memmap2::Advice::WillNeed,
                Advice::Sequential => memmap2::Advice::Sequential,
                Advice::Random => memmap2::Advice::Random,
            };
            let _ = self.map.advise(advice);
        }
        #[cfg(not(unix))]
        let _ = advice;
    }
}

impl FileMapping {
    /// Starts to read `bytes`, if they belong to this mapping; returns whether they do. A hint: failure changes nothing.
    pub(crate) fn read_ahead(&self, bytes: &[u8]) -> bool {
        let (own, wanted) = (self.map.as_ptr_range(), bytes.as_ptr_range());
        if wanted.start < own.start || wanted.end > own.end {
            return false;
        }
        #[cfg(unix)]
        {
            let offset = wanted.start.addr() - own.start.addr();
            let _ = self
                .map
                .advise_range(memmap2::Advice::WillNeed, offset, bytes.len());
        }
        true
    }

    /// Gives the memory of a range's pages back; a later read gets them from the file again. A
    /// hint: failure changes nothing.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if range.start < range.end && range.end <= self.map.len() {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the range is within the mapping, which is shared, read-only and of a file:
            // the kernel forgets where its pages are and faults the same bytes in again at the next
            // read. Nothing was ever written to them that could be lost.
            let _ = unsafe {
                self.map
                    .unchecked_advise_range(advice, range.start, range.end - range.start)
            };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for FileMapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
