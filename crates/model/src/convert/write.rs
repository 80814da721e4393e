//! Writes a planned conversion, tensor by tensor.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use millrace_format::gguf::{self, Metadata};
use millrace_format::output::AtomicFile;
use millrace_format::safetensors::{self, Q4NX_FILE, ShardedWriter};
use millrace_format::{Advice, TensorSpec, TensorType};
use millrace_quant::DType;

use super::encode::{EncodeJob, Out};
use super::folder::Folder;
use super::plan::{Conversion, PlannedTensor, TensorOrigin};
use super::side::Contents;
use super::{Error, OutputContainer};

/// Weights of a folder are split into files of up to this size, as the Hugging Face hub advises.
const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// Progress of a conversion.
#[derive(Clone, Copy, Debug)]
pub struct ConversionProgress<'a> {
    /// The tensor being written, by its name in the result.
    pub tensor: &'a str,
    /// Tensors written completely.
    pub tensors_done: usize,
    /// Elements written.
    pub elems_done: u64,
    /// Elements of all tensors.
    pub elems_total: u64,
}

/// Receives the progress and decides whether to continue.
type ConversionObserver<'a> = dyn FnMut(ConversionProgress<'_>) -> ControlFlow<()> + 'a;

/// Result of a written conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionSummary {
    /// The files, weights first.
    pub files: Vec<PathBuf>,
    /// Tensors written.
    pub n_tensors: usize,
    /// Bytes of the source's tensors.
    pub source_bytes: u64,
    /// Bytes of the result's tensors.
    pub written_bytes: u64,
    /// Bytes of the result by type, the largest share first.
    pub by_type: Vec<(TensorType, u64)>,
}

impl Conversion<'_> {
    /// Writes the result to `out`: a GGUF file, or a folder, which is made if it is missing.
    ///
    /// `n_threads` encode. `progress` is called after every few megabytes and may stop the work.
    ///
    /// # Errors [`Error::Output`] for a path that the result cannot be written to,
    /// [`Error::NotFinite`] and [`Error::F16Range`] for numbers that the result cannot hold,
    /// [`Error::Cancelled`], [`Error::Format`] and [`Error::Io`] for refusals of the file system.
    /// Nothing new is left behind then, and files that were there are as they were. Everything is
    /// on the disk before the first file gets its name.
    pub fn write(
        &self,
        out: &Path,
        n_threads: usize,
        progress: &mut dyn FnMut(ConversionProgress<'_>) -> ControlFlow<()>,
    ) -> Result<ConversionSummary, Error> {
        self.checkpoint.advise(Advice::Sequential);
        let files = match self.target.container {
            OutputContainer::Gguf => self.write_gguf(out, n_threads, progress)?,
            OutputContainer::Safetensors | OutputContainer::Q4nx => {
                self.write_folder(out, n_threads, progress)?
            }
        };
        Ok(ConversionSummary {
            files,
            n_tensors: self.tensors.len(),
            source_bytes: self.checkpoint.size_bytes(),
            written_bytes: self.size_bytes(),
            by_type: self.by_type(),
        })
    }

    fn by_type(&self) -> Vec<(TensorType, u64)> {
        let mut sums: Vec<(TensorType, u64)> = Vec::new();
        for tensor in &self.tensors {
            match sums
                .iter_mut()
                .find(|(tensor_type, _)| *tensor_type == tensor.tensor_type)
            {
                Some((_, bytes)) => *bytes += tensor.size_bytes,
                None => sums.push((tensor.tensor_type, tensor.size_bytes)),
            }
        }
        sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        sums
    }

    fn specs(&self) -> Vec<TensorSpec> {
        self.tensors.iter().map(PlannedTensor::spec).collect()
    }

    fn write_gguf(
        &self,
        out: &Path,
        n_threads: usize,
        progress: &mut ConversionObserver<'_>,
    ) -> Result<Vec<PathBuf>, Error> {
        let empty = Metadata::new();
        let metadata = self.side.metadata.as_ref().unwrap_or(&empty);
        let mut sink = TensorSink::Gguf(gguf::Writer::create(out, metadata, &self.specs())?);
        self.stream(&mut sink, n_threads, progress)?;
        sink.commit(out)
    }

    fn write_folder(
        &self,
        out: &Path,
        n_threads: usize,
        progress: &mut ConversionObserver<'_>,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut folder = Folder::open_or_make(out, self.target.container)?;
        for (name, _) in &self.side.files {
            folder.make_within(name)?;
        }
        let dir = folder.path();
        let notes = Default::default();
        let (weights, mut sink) = match self.target.container {
            OutputContainer::Q4nx => {
                let path = dir.join(Q4NX_FILE);
                let writer = safetensors::Writer::create(&path, &notes, &self.specs())?;
                (path, TensorSink::Bundle(writer))
            }
            _ => {
                let writer = ShardedWriter::create(dir, &notes, &self.specs(), MAX_SHARD_BYTES)?;
                (dir.to_owned(), TensorSink::Shards(writer))
            }
        };
        // Side files wait on the disk under temporary names, so that their failures come before any
        // file has its final name.
        let mut side = Vec::with_capacity(self.side.files.len());
        for (name, contents) in &self.side.files {
            side.push(stage(&dir.join(name), contents)?);
        }
        self.stream(&mut sink, n_threads, progress)?;
        let mut files = sink.commit(&weights)?;
        for file in side {
            files.push(file.target().to_owned());
            file.commit()?;
        }
        folder.keep();
        Ok(files)
    }

    fn stream(
        &self,
        sink: &mut TensorSink,
        n_threads: usize,
        progress: &mut ConversionObserver<'_>,
    ) -> Result<(), Error> {
        let elems_total = self.n_elems();
        let mut elems_done = 0;
        for (tensors_done, tensor) in self.tensors.iter().enumerate() {
            let name = tensor.name.as_str();
            self.stream_tensor(tensor, n_threads, &mut |bytes, elems| {
                sink.write(name, bytes)?;
                elems_done += elems as u64;
                let at = ConversionProgress {
                    tensor: name,
                    tensors_done,
                    elems_done,
                    elems_total,
                };
                match progress(at) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => Err(Error::Cancelled),
                }
            })?;
        }
        Ok(())
    }

    fn stream_tensor(
        &self,
        planned: &PlannedTensor,
        n_threads: usize,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        match (&planned.origin, planned.tensor_type) {
            (TensorOrigin::Values(values), TensorType::Weights(to)) => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let tensor = (planned.name.as_str(), 0);
                let job = self.job(planned, tensor, &bytes, [DType::F32, to]);
                job.run(n_threads, out)
            }
            (TensorOrigin::Assembly(assembly), TensorType::Weights(to)) => {
                let importance = (&self.importance_of(planned), &self.merge);
                assembly.run(self.checkpoint, (to, n_threads), importance, out)
            }
            (
                TensorOrigin::Values(_) | TensorOrigin::Assembly(_),
                TensorType::Plain(_) | TensorType::Opaque(_),
            ) => Ok(()),
            (TensorOrigin::Tensor(source), TensorType::Weights(to)) => {
                self.stream_source(planned, (source, to), n_threads, out)
            }
            (TensorOrigin::Tensor(source), TensorType::Plain(_) | TensorType::Opaque(_)) => {
                let (n, k) = rows_and_columns(planned);
                out(&self.checkpoint.read(source)?, n * k)
            }
        }
    }

    /// Encodes a tensor of the source: all at once, or matrix by matrix where each has its own importance or factor.
    fn stream_source(
        &self,
        planned: &PlannedTensor,
        (source, to): (&str, DType),
        n_threads: usize,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let from = match self.checkpoint.info(source).map(|info| info.tensor_type) {
            Some(TensorType::Weights(from)) => from,
            // The error names the format that is there.
            _ => self.checkpoint.require(source)?.dtype()?,
        };
        let bytes = &self.checkpoint.read(source)?[..];
        let importance = self.importance_of(planned);
        let n_factors = self.merge.n_factors(self.checkpoint, source);
        let is_copied = from == to && self.merge.of(source).is_empty() && n_factors == 0;
        if is_copied || (importance.is_none() && n_factors <= 1) {
            let job = self.job(planned, (source, 0), bytes, [from, to]);
            return job.run(n_threads, out);
        }
        let n_known = importance.n_matrices();
        let n_matrices = n_known.max(n_factors);
        for matrix in 0..n_matrices {
            let job = self.job(planned, (source, matrix), bytes, [from, to]);
            let n_rows = job.n / n_matrices;
            let columns = (matrix < n_known).then(|| importance.columns(matrix));
            let job = EncodeJob {
                rows: matrix * n_rows..(matrix + 1) * n_rows,
                importance: columns.as_ref().and_then(Option::as_deref),
                ..job
            };
            job.run(n_threads, out)?;
        }
        Ok(())
    }

    /// The encoding of all rows of a tensor; `matrix` selects their factor.
    fn job<'j>(
        &'j self,
        planned: &PlannedTensor,
        (tensor, matrix): (&'j str, usize),
        bytes: &'j [u8],
        [from, to]: [DType; 2],
    ) -> EncodeJob<'j> {
        let (n, k) = rows_and_columns(planned);
        EncodeJob {
            tensor,
            bytes,
            from,
            to,
            n,
            rows: 0..n,
            k,
            factor: self.merge.factor(self.checkpoint, tensor, matrix),
            addends: self.merge.of(tensor),
            transform: planned.transform,
            importance: None,
        }
    }
}

/// Rows and columns of a tensor. In a vector whose rows are reordered, each row is an element.
fn rows_and_columns(planned: &PlannedTensor) -> (usize, usize) {
    match (planned.shape.split_last(), planned.transform.permutation) {
        (Some((&len, [])), Some(_)) => (len, 1),
        (Some((&k, rows)), _) => (rows.iter().product(), k),
        (None, _) => (1, 1),
    }
}

/// A side file, on the disk but without its name yet.
fn stage(path: &Path, contents: &Contents) -> Result<AtomicFile, Error> {
    let mut file = AtomicFile::create(path)?;
    let io = |action| {
        let path = path.to_owned();
        move |source| Error::Io {
            path,
            action,
            source,
        }
    };
    match contents {
        Contents::Bytes(bytes) => {
            std::io::Write::write_all(&mut file, bytes).map_err(io("write"))?;
        }
        Contents::Copy(from) => {
            let mut source = std::fs::File::open(from).map_err(|source| Error::Io {
                path: from.clone(),
                action: "open",
                source,
            })?;
            std::io::copy(&mut source, &mut file).map_err(io("write"))?;
        }
    }
    file.sync()?;
    Ok(file)
}

/// Destination of the tensors.
enum TensorSink {
    Gguf(gguf::Writer<AtomicFile>),
    Shards(ShardedWriter),
    Bundle(safetensors::Writer<AtomicFile>),
}

impl TensorSink {
    fn write(&mut self, tensor: &str, bytes: &[u8]) -> Result<(), Error> {
        match self {
            TensorSink::Gguf(writer) => writer.write(tensor, bytes)?,
            TensorSink::Shards(writer) => writer.write(tensor, bytes)?,
            TensorSink::Bundle(writer) => writer.write(tensor, bytes)?,
        }
        Ok(())
    }

    /// Gives the files their names; `path` is the file that a single-file writer was made for.
    fn commit(self, path: &Path) -> Result<Vec<PathBuf>, Error> {
        match self {
            TensorSink::Gguf(writer) => writer.commit()?,
            TensorSink::Bundle(writer) => writer.commit()?,
            TensorSink::Shards(writer) => return Ok(writer.commit()?),
        }
        Ok(vec![path.to_owned()])
    }
}
