//! Format of a file of cached keys and values.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | `MILLRKV` and a zero |
//! | 4 | version, little-endian like all numbers |
//! | 4 | length of the header |
//! | its length | the header: JSON of [`FileHeader`] |
//! | 4 | CRC-32 of all bytes before |
//! | in the header | contents |
//! | 4 | CRC-32 of the contents |
//!
//! Nothing follows. A CRC-32 finds every change within 32 bits, and all but one in 2³² of the others. It guards against accidents
//! and not against forgers, who may write any numbers. Lengths are compared with the file's before anything is allocated.

use super::{CacheIdentity, DiskError};
use millrace_format::output::AtomicFile;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"MILLRKV\0";

/// Changes with the form.
const VERSION: u32 = 1;

/// Bytes before the header.
const START_BYTES: usize = 16;

/// Bytes of a checksum.
const SUM_BYTES: u64 = 4;

/// The longest header: one of a few hundred bytes and some for each group of layers.
const MAX_HEADER_BYTES: u32 = 1 << 16;

/// Header of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileHeader {
    /// Identity of the writer.
    pub(crate) identity: CacheIdentity,
    /// Description of its contents.
    pub(crate) contents: FileContents,
    /// Bytes of its contents.
    pub(crate) contents_bytes: u64,
}

/// Contents of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum FileContents {
    /// A sequence: its tokens (4 bytes each), a note, and its pages group by group.
    Sequence {
        n_tokens: u64,
        note_bytes: u64,
        tables: Vec<TableSpan>,
    },
    /// A page of one group, and the tokens it is of.
    Page {
        scope: u64,
        /// The page before it, by the name of its tokens; empty for the first.
        parent: String,
        group: usize,
    },
}

/// The pages of a sequence that a group has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableSpan {
    /// Number of the first in the sequence.
    pub(crate) first: u64,
    pub(crate) n_pages: u64,
}

/// Writes a file, which has its name only when all is written.
pub(crate) struct FileWriter {
    file: AtomicFile,
    sum: crc32fast::Hasher,
    n_bytes: u64,
    path: PathBuf,
}

impl FileWriter {
    /// Writes the header.
    pub(crate) fn create(path: &Path, header: &FileHeader) -> Result<FileWriter, DiskError> {
        let file = AtomicFile::create(path).map_err(|error| of_format(path, error))?;
        let mut writer = FileWriter {
            file,
            sum: crc32fast::Hasher::new(),
            n_bytes: 0,
            path: path.to_owned(),
        };
        let json = serde_json::to_vec(header).expect("a header is plain data");
        writer.write(&MAGIC)?;
        writer.write(&VERSION.to_le_bytes())?;
        writer.write(&(json.len() as u32).to_le_bytes())?;
        writer.write(&json)?;
        writer.write_sum()?;
        Ok(writer)
    }

    /// Writes more of the contents.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.sum.update(bytes);
        self.n_bytes += bytes.len() as u64;
        let written = self.file.write_all(bytes);
        written.map_err(DiskError::io("write", &self.path))
    }

    fn write_sum(&mut self) -> Result<(), DiskError> {
        let sum = std::mem::take(&mut self.sum).finalize();
        self.write(&sum.to_le_bytes())?;
        self.sum = crc32fast::Hasher::new();
        Ok(())
    }

    /// Flushes everything to disk, and gives the file its name. Returns its size in bytes.
    pub(crate) fn commit(mut self) -> Result<u64, DiskError> {
        self.write_sum()?;
        let FileWriter {
            file,
            path,
            n_bytes,
            ..
        } = self;
        let committed = file.commit().map_err(|error| of_format(&path, error));
        committed.map(|()| n_bytes)
    }
}

/// An error of the writer, in this module's words.
fn of_format(path: &Path, error: millrace_format::Error) -> DiskError {
    let source = match error {
        millrace_format::Error::Io { source, .. } => source,
        other => std::io::Error::other(other.to_string()),
    };
    DiskError::io("write", path)(source)
}

/// Reads a file. The data is valid only once [`FileReader::finish`] has succeeded.
pub(crate) struct FileReader {
    file: BufReader<File>,
    sum: crc32fast::Hasher,
    /// Bytes of contents that are yet to be read.
    left: u64,
    path: PathBuf,
}

impl FileReader {
    /// Reads the header of a file that `identity` wrote; `None` if the file does not exist.
    pub(crate) fn open(
        path: &Path,
        identity: &CacheIdentity,
    ) -> Result<Option<(FileContents, FileReader)>, DiskError> {
        let found = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(DiskError::io("read", path))?,
        };
        // Opening a pipe would wait for its writer.
        if !found.is_file() {
            return Err(DiskError::NotRegular {
                path: path.to_owned(),
            });
        }
        let file = File::open(path).map_err(DiskError::io("read", path))?;
        let mut reader = FileReader {
            file: BufReader::new(file),
            sum: crc32fast::Hasher::new(),
            left: u64::MAX,
            path: path.to_owned(),
        };
        let header = reader.header(found.len())?;
        identity.check(&header.identity, path)?;
        reader.left = header.contents_bytes;
        Ok(Some((header.contents, reader)))
    }

    fn header(&mut self, found_bytes: u64) -> Result<FileHeader, DiskError> {
        let mut start = [0; START_BYTES];
        if found_bytes < START_BYTES as u64 {
            return Err(self.length(START_BYTES as u64, found_bytes));
        }
        self.read(&mut start)?;
        if start[..8] != MAGIC {
            let path = self.path.clone();
            return Err(DiskError::OtherKind { path });
        }
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| start[at + i]));
        let (version, n_bytes) = (number(8), number(12));
        if version != VERSION {
            return Err(DiskError::Version {
                path: self.path.clone(),
                found: version,
                expected: VERSION,
            });
        }
        let before = START_BYTES as u64 + u64::from(n_bytes) + SUM_BYTES;
        if n_bytes > MAX_HEADER_BYTES || before > found_bytes {
            return Err(self.length(before, found_bytes));
        }
        let mut json = vec![0; n_bytes as usize];
        self.read(&mut json)?;
        self.check_sum("header")?;
        let header: FileHeader = serde_json::from_slice(&json)
            .map_err(|error| self.damaged("header", error.to_string()))?;
        let whole = before
            .saturating_add(header.contents_bytes)
            .saturating_add(SUM_BYTES);
        match whole == found_bytes {
            true => Ok(header),
            false => Err(self.length(whole, found_bytes)),
        }
    }

    /// Reads more of the contents.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result<(), DiskError> {
        let n_bytes = out.len() as u64;
        if n_bytes > self.left {
            let problem = format!("{n_bytes} more bytes expected, {} left", self.left);
            return Err(self.damaged("contents", problem));
        }
        let read = self.file.read_exact(out);
        read.map_err(DiskError::io("read", &self.path))?;
        self.sum.update(out);
        self.left -= n_bytes;
        Ok(())
    }

    /// Reads numbers of 32 bits.
    pub(crate) fn read_tokens(&mut self, out: &mut [u32]) -> Result<(), DiskError> {
        self.read(bytemuck::cast_slice_mut(out))?;
        out.iter_mut()
            .for_each(|token| *token = u32::from_le(*token));
        Ok(())
    }

    /// Bytes of contents that are yet to be read.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Whether all was read, and has the bits that were written.
    pub(crate) fn finish(mut self) -> Result<(), DiskError> {
        if self.left > 0 {
            let problem = format!("{} bytes too many", self.left);
            return Err(self.damaged("contents", problem));
        }
        self.check_sum("contents")
    }

    fn check_sum(&mut self, part: &'static str) -> Result<(), DiskError> {
        let computed = std::mem::take(&mut self.sum).finalize();
        let mut stored = [0; SUM_BYTES as usize];
        let read = self.file.read_exact(&mut stored);
        read.map_err(DiskError::io("read", &self.path))?;
        let stored = u32::from_le_bytes(stored);
        if computed != stored {
            let problem = format!("its checksum is {computed:08x}, and {stored:08x} is stored");
            return Err(self.damaged(part, problem));
        }
        Ok(())
    }

    fn length(&self, expected_bytes: u64, found_bytes: u64) -> DiskError {
        DiskError::Length {
            path: self.path.clone(),
            expected_bytes,
            found_bytes,
        }
    }

    pub(crate) fn damaged(&self, part: &'static str, problem: String) -> DiskError {
        DiskError::Damaged {
            path: self.path.clone(),
            part,
            problem,
        }
    }
}
