//! The two kinds of files: GGUF with `NAME.in_sum2` and `NAME.counts` (llama.cpp), and the older `.dat`, a list of names with
//! means times the number of chunks.

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::Path;

use millrace_format::gguf::{self, Metadata};
use millrace_format::{TensorInfo, TensorSpec, TensorType, output};
use millrace_quant::DType;

use super::{ImportanceEntry, ImportanceError, ImportanceMatrix};

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
const KEY_DATASETS: &str = "imatrix.datasets";
const KEY_CHUNK_COUNT: &str = "imatrix.chunk_count";
const KEY_CHUNK_SIZE: &str = "imatrix.chunk_size";

impl ImportanceMatrix {
    /// Reads either kind of file.
    ///
    /// # Errors
    /// [`ImportanceError::File`] and [`ImportanceError::Format`] for a file that is not an importance matrix, or
    /// is damaged.
    pub fn read(path: &Path) -> Result<ImportanceMatrix, ImportanceError> {
        let bytes = std::fs::read(path).map_err(|source| millrace_format::Error::Io {
            path: path.to_owned(),
            action: "read",
            source,
        })?;
        ImportanceMatrix::parse(&bytes, path)
    }

    /// As [`read`](ImportanceMatrix::read), of a file's bytes; `path` is for messages.
    ///
    /// # Errors
    /// As there.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<ImportanceMatrix, ImportanceError> {
        let matrix = match bytes.starts_with(b"GGUF") {
            true => parse_gguf(bytes, path)?,
            false => parse_dat(bytes, path)?,
        };
        for (name, entry) in &matrix.entries {
            if entry.sums.iter().any(|x| !(x.is_finite() && *x >= 0.0)) {
                let reason = format!(
                    "tensor `{name}` has a sum of squares that is negative, infinite or no number; the file is damaged"
                );
                return Err(wrong(path, reason));
            }
        }
        Ok(matrix)
    }

    /// Writes llama.cpp's GGUF form, whole or not at all.
    ///
    /// # Errors
    /// [`ImportanceError::Format`] where the file cannot be written.
    pub fn write_gguf(&self, path: &Path) -> Result<(), ImportanceError> {
        let mut writer = gguf::Writer::create(path, &self.metadata(), &self.specs())?;
        self.put(&mut writer)?;
        Ok(writer.commit()?)
    }

    /// Writes the older form, whole or not at all: it has one count for all matrices of a tensor.
    ///
    /// # Errors
    /// As [`write_gguf`](ImportanceMatrix::write_gguf).
    pub fn write_dat(&self, path: &Path) -> Result<(), ImportanceError> {
        Ok(output::write(path, &self.dat())?)
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert("general.type", "imatrix");
        metadata.insert(KEY_DATASETS, self.datasets.clone());
        metadata.insert(KEY_CHUNK_COUNT, self.chunk_count);
        metadata.insert(KEY_CHUNK_SIZE, self.chunk_size);
        metadata
    }

    fn specs(&self) -> Vec<TensorSpec> {
        let specs = self.entries.iter().flat_map(|(name, entry)| {
            let n = entry.counts.len();
            let k = entry.sums.len() / n.max(1);
            [
                TensorSpec::new(format!("{name}{SUMS}"), DType::F32, &[n, k]),
                TensorSpec::new(format!("{name}{COUNTS}"), DType::F32, &[n, 1]),
            ]
        });
        specs.collect()
    }

    fn put<W: Write + Seek>(&self, writer: &mut gguf::Writer<W>) -> Result<(), ImportanceError> {
        for (name, entry) in &self.entries {
            let sums = entry.sums.iter().map(|x| *x as f32);
            let counts = entry.counts.iter().map(|n| *n as f32);
            writer.write(&format!("{name}{SUMS}"), &bytes_of(sums))?;
            writer.write(&format!("{name}{COUNTS}"), &bytes_of(counts))?;
        }
        Ok(())
    }

    fn dat(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX).to_le_bytes();
        out.extend(int(self.entries.len()));
        for (name, entry) in &self.entries {
            let n = entry.counts.len().max(1);
            let most = entry.counts.iter().max().copied().unwrap_or(0);
            let n_chunks = most.div_ceil(u64::from(self.chunk_size.max(1)));
            out.extend(int(name.len()));
            out.extend(name.as_bytes());
            out.extend(int(n_chunks as usize));
            out.extend(int(entry.sums.len()));
            let k = entry.sums.len() / n;
            for matrix in 0..n {
                // Columns of a matrix that no row went through count alike.
                let means = entry
                    .mean_squares(matrix, n)
                    .unwrap_or_else(|| vec![1.0; k]);
                out.extend(bytes_of(means.iter().map(|x| x * n_chunks as f32)));
            }
        }
        out.extend(int(self.chunk_count as usize));
        let dataset = self.datasets.last().map_or("", String::as_str);
        out.extend(int(dataset.len()));
        out.extend(dataset.as_bytes());
        out
    }
}

fn bytes_of(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

fn wrong(path: &Path, reason: impl Into<String>) -> ImportanceError {
    ImportanceError::File {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

fn parse_gguf(bytes: &[u8], path: &Path) -> Result<ImportanceMatrix, ImportanceError> {
    let header = gguf::Header::parse(bytes, path)?;
    let kind = header.metadata.get_str("general.type")?;
    if kind != Some("imatrix") {
        let found = kind.unwrap_or("a file without a type");
        let reason = format!("`general.type` is {found}; an importance matrix has `imatrix`");
        return Err(wrong(path, reason));
    }
    let tensors: BTreeMap<&str, &TensorInfo> = header
        .tensors
        .iter()
        .map(|info| (info.name.as_str(), info))
        .collect();
    let mut entries = BTreeMap::new();
    for (name, info) in &tensors {
        let Some(stem) = name.strip_suffix(SUMS) else {
            continue;
        };
        let counts = tensors.get(&format!("{stem}{COUNTS}")[..]);
        let counts = counts.ok_or_else(|| {
            wrong(
                path,
                format!("tensor `{stem}{COUNTS}` is missing beside `{name}`"),
            )
        })?;
        let sums: Vec<f64> = numbers(bytes, info, path)?
            .iter()
            .map(|x| f64::from(*x))
            .collect();
        let counts: Vec<u64> = numbers(bytes, counts, path)?
            .iter()
            .map(|x| x.round() as u64)
            .collect();
        if counts.is_empty() || sums.is_empty() || !sums.len().is_multiple_of(counts.len()) {
            let (n, k) = (counts.len(), sums.len());
            let reason = format!("`{name}` has {k} numbers, which {n} counts do not divide");
            return Err(wrong(path, reason));
        }
        entries.insert(stem.to_owned(), ImportanceEntry { sums, counts });
    }
    let metadata = &header.metadata;
    let datasets = metadata.get_str_array(KEY_DATASETS)?.unwrap_or_default();
    Ok(ImportanceMatrix {
        datasets: datasets.to_vec(),
        chunk_count: metadata.get_u32(KEY_CHUNK_COUNT)?.unwrap_or(0),
        chunk_size: metadata.get_u32(KEY_CHUNK_SIZE)?.unwrap_or(1).max(1),
        entries,
    })
}

fn numbers(bytes: &[u8], info: &TensorInfo, path: &Path) -> Result<Vec<f32>, ImportanceError> {
    let TensorType::Weights(DType::F32) = info.tensor_type else {
        let (name, found) = (&info.name, info.tensor_type.name());
        let reason = format!("tensor `{name}` is {found}; importance matrices hold F32");
        return Err(wrong(path, reason));
    };
    let start = usize::try_from(info.offset).unwrap_or(usize::MAX);
    let values = bytes.get(start..).unwrap_or_default();
    let Some(values) = values.get(..info.size_bytes) else {
        let (name, n) = (&info.name, info.size_bytes);
        let reason =
            format!("tensor `{name}` at offset {start} takes {n} bytes; the file is cut off");
        return Err(wrong(path, reason));
    };
    let (values, _) = values.as_chunks::<4>();
    Ok(values.iter().map(|x| f32::from_le_bytes(*x)).collect())
}

/// A reader of little-endian numbers that tracks its position.
struct DatReader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

impl<'a> DatReader<'a> {
    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8], ImportanceError> {
        let end = self.at.checked_add(n);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let Some(found) = found else {
            let reason = format!(
                "not an importance matrix, or cut off: {what} at offset {} takes {n} bytes of {}",
                self.at,
                self.bytes.len()
            );
            return Err(wrong(self.path, reason));
        };
        self.at += n;
        Ok(found)
    }

    fn count(&mut self, what: &str) -> Result<usize, ImportanceError> {
        let at = self.at;
        let bytes = self.take(4, what)?;
        let number = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        usize::try_from(number).map_err(|_| {
            let reason = format!("not an importance matrix: {what} at offset {at} is {number}");
            wrong(self.path, reason)
        })
    }

    fn text(&mut self, what: &str) -> Result<String, ImportanceError> {
        let n = self.count(what)?;
        let bytes = self.take(n, what)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

fn parse_dat(bytes: &[u8], path: &Path) -> Result<ImportanceMatrix, ImportanceError> {
    let mut reader = DatReader { bytes, at: 0, path };
    let n_entries = reader.count("the number of entries")?;
    if n_entries == 0 {
        return Err(wrong(path, "not an importance matrix: it has no entries"));
    }
    let mut matrix = ImportanceMatrix::default();
    for _ in 0..n_entries {
        let name = reader.text("a tensor's name")?;
        let n_chunks = reader.count("a number of chunks")?;
        let n = reader.count("a number of columns")?;
        let values = reader.take(n.saturating_mul(4), "the numbers of a tensor")?;
        let (values, _) = values.as_chunks::<4>();
        let sums = values.iter().map(|x| f64::from(f32::from_le_bytes(*x)));
        let entry = ImportanceEntry {
            sums: sums.collect(),
            counts: vec![n_chunks as u64],
        };
        matrix.entries.insert(name, entry);
    }
    // The oldest files end here.
    if reader.at < bytes.len() {
        matrix.chunk_count = u32::try_from(reader.count("the number of chunks")?).unwrap_or(0);
        matrix.datasets = vec![reader.text("the name of the text")?];
    }
    Ok(matrix)
}
