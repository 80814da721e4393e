//! One view of a model's files, in any format.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::mmap::{Advice, FileMapping};
use crate::packed::{PackedTensor, Packing, StoredTensors, factor_name, unpack};
use crate::{Error, Tensor, TensorInfo, gguf, hf};

/// Layout of a checkpoint's tensor names and configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// GGUF names (`blk.0.attn_q.weight`) and metadata keys.
    Gguf,
    /// Hugging Face names (`model.layers.0.self_attn.q_proj.weight`) and `config.json`; Q4NX
    /// bundles and bare safetensors files too.
    HuggingFace,
}

/// The bytes of one file.
pub(crate) enum FileBytes {
    Mapped(FileMapping),
    Static(&'static [u8]),
}

impl FileBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(mapping) => mapping,
            FileBytes::Static(bytes) => bytes,
        }
    }
}

/// An open model: tensors and their bytes, metadata, and where they came from.
///
/// Weights are mapped into memory, not copied. Weights that a quantiser packed in its own layout ([`Packing`]) are decoded
/// when they are first asked for, and kept. While the checkpoint lives its files must not be truncated or rewritten in place
/// (replacing them by renaming is fine). A page that the file lost cannot be read, and the operating system ends the process
/// that tries.
pub struct Checkpoint {
    name: String,
    source: Source,
    paths: Vec<PathBuf>,
    buffers: Vec<FileBytes>,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    /// The tensors that are made of several tensors of the files, by number.
    packed: HashMap<usize, PackedTensor>,
    gguf: Option<gguf::Metadata>,
    hf: Option<hf::Files>,
}

/// The files and tensors of a checkpoint while its readers collect them.
#[derive(Default)]
pub(crate) struct CheckpointParts {
    paths: Vec<PathBuf>,
    buffers: Vec<FileBytes>,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    packed: HashMap<usize, PackedTensor>,
}

impl CheckpointParts {
    /// Adds a file and its tensors, whose places were checked against its bytes.
    ///
    /// # Errors
    /// [`Error::DuplicateTensor`] if an earlier file has a tensor of the same name.
    pub(crate) fn push(
        &mut self,
        path: PathBuf,
        buffer: FileBytes,
        tensors: Vec<TensorInfo>,
    ) -> Result<(), Error> {
        let file = self.paths.len();
        for mut tensor in tensors {
            if let Some(&first) = self.index.get(&tensor.name) {
                return Err(Error::DuplicateTensor {
                    file: path,
                    tensor: tensor.name,
                    first: Some(self.paths[self.tensors[first].file].clone()),
                });
            }
            tensor.file = file;
            self.index.insert(tensor.name.clone(), self.tensors.len());
            self.tensors.push(tensor);
        }
        self.paths.push(path);
        self.buffers.push(buffer);
        Ok(())
    }

    pub(crate) fn into_gguf(self, name: String, metadata: gguf::Metadata) -> Checkpoint {
        self.finish(name, Source::Gguf, Some(metadata), None)
    }

    /// # Errors
    /// [`Error::PackedPart`] and [`Error::DuplicateTensor`], where matrices are packed.
    pub(crate) fn into_hugging_face(
        mut self,
        name: String,
        files: hf::Files,
    ) -> Result<Checkpoint, Error> {
        // The code that needs the model refuses other packings.
        if let Some(Ok(packing)) = files.packing() {
            self.unpack(&packing)?;
        }
        Ok(self.finish(name, Source::HuggingFace, None, Some(files)))
    }

    fn unpack(&mut self, packing: &Packing) -> Result<(), Error> {
        let stored = StoredTensors::new(&self.tensors, &self.paths, &self.buffers);
        let unpacked = unpack(&stored, packing)?;
        let names = unpacked.tensors.iter().map(|info| info.name.clone());
        self.index = names.zip(0..).collect();
        self.tensors = unpacked.tensors;
        self.packed = unpacked.packed;
        Ok(())
    }

    fn finish(
        self,
        name: String,
        source: Source,
        gguf: Option<gguf::Metadata>,
        hf: Option<hf::Files>,
    ) -> Checkpoint {
        Checkpoint {
            name,
            source,
            paths: self.paths,
            buffers: self.buffers,
            tensors: self.tensors,
            index: self.index,
            packed: self.packed,
            gguf,
            hf,
        }
    }
}

impl Checkpoint {
    /// Opens a model: a `.gguf` file (any shard of a split opens all), a `.safetensors` or `.q4nx`
    /// file, a `model.safetensors.index.json`, or a folder with any of them.
    ///
    /// # Errors
    /// A named error for everything that can be wrong with the files; see [`Error`].
    pub fn open(path: &Path) -> Result<Checkpoint, Error> {
        crate::open::open(path)
    }

    /// A GGUF model embedded in the program.
    ///
    /// # Errors
    /// [`Error::EmbeddedAlignment`] if `bytes` do not start at a multiple of the file's alignment,
    /// and the errors of [`gguf::Header::parse`], which use `name` for the file.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Checkpoint, Error> {
        let path = PathBuf::from(name);
        let header = gguf::Header::parse(bytes, &path)?;
        let found = bytes.as_ptr().addr() as u64 % header.alignment;
        if found != 0 {
            return Err(Error::EmbeddedAlignment {
                name: name.to_owned(),
                alignment: header.alignment,
                found,
            });
        }
        let mut parts = CheckpointParts::default();
        parts.push(path, FileBytes::Static(bytes), header.tensors)?;
        Ok(parts.into_gguf(name.to_owned(), header.metadata))
    }

    /// Layout of its names and configuration.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Its name in messages: the path it was opened by, or the embedded model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The files with tensors, in shard order. For an embedded model its name.
    pub fn files(&self) -> &[PathBuf] {
        &self.paths
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of a name, with its bytes.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let &i = self.index.get(name)?;
        Some(self.tensor_of(i))
    }

    /// Name, type, shape and place of the tensor of a name.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        Some(&self.tensors[*self.index.get(name)?])
    }

    /// The bytes of a tensor, for callers that read them once: this does not keep decoded bytes, while
    /// [`tensor`](Checkpoint::tensor) does.
    ///
    /// # Errors
    /// [`Error::MissingTensor`].
    pub fn read(&self, name: &str) -> Result<Cow<'_, [u8]>, Error> {
        let number = self.index.get(name);
        let packed = number.and_then(|number| self.packed.get(number));
        match packed.filter(|packed| packed.decoded().is_none()) {
            Some(packed) => Ok(Cow::Owned(packed.decode(&self.buffers).into_vec())),
            None => Ok(Cow::Borrowed(self.require(name)?.bytes)),
        }
    }

    /// Whether a tensor is decoded from several of the files, so that its bytes are in memory and in no file.
    pub fn is_packed(&self, name: &str) -> bool {
        let number = self.index.get(name);
        number.is_some_and(|number| self.packed.contains_key(number))
    }

    /// The factor on all numbers of a tensor that is decoded from several of the files, where it is a separate tensor
    /// ([`is_factor`](Checkpoint::is_factor)).
    pub fn factor_of(&self, name: &str) -> Option<f32> {
        let number = self.index.get(&factor_name(name))?;
        self.packed.get(number)?.factor()
    }

    /// Whether a tensor is the factor of another one, and is in no file.
    pub fn is_factor(&self, name: &str) -> bool {
        let number = self.index.get(name);
        let packed = number.and_then(|number| self.packed.get(number));
        packed.is_some_and(|packed| packed.factor().is_some())
    }

    /// The tensor of a name, which the model cannot do without.
    ///
    /// # Errors
    /// [`Error::MissingTensor`].
    pub fn require(&self, name: &str) -> Result<Tensor<'_>, Error> {
        self.tensor(name).ok_or_else(|| Error::MissingTensor {
            checkpoint: self.name.clone(),
            tensor: name.to_owned(),
        })
    }

    /// All tensors with their bytes, in file order.
    pub fn iter(&self) -> impl Iterator<Item = Tensor<'_>> {
        (0..self.tensors.len()).map(|i| self.tensor_of(i))
    }

    fn tensor_of(&self, i: usize) -> Tensor<'_> {
        let info = &self.tensors[i];
        let bytes = match self.packed.get(&i) {
            Some(packed) => packed.bytes(&self.buffers),
            None => {
                let start = info.offset as usize; // Readers checked that it is inside the bytes.
                &self.buffers[info.file].bytes()[start..start + info.size_bytes]
            }
        };
        Tensor {
            info,
            bytes,
            file: &self.paths[info.file],
        }
    }

    /// The metadata of a GGUF file.
    pub fn gguf(&self) -> Option<&gguf::Metadata> {
        self.gguf.as_ref()
    }

    /// The JSON files of a Hugging Face folder; empty ones for a bare file with none beside it.
    pub fn hf(&self) -> Option<&hf::Files> {
        self.hf.as_ref()
    }

    /// Bytes of all tensors together.
    pub fn size_bytes(&self) -> u64 {
        self.tensors
            .iter()
            .map(|tensor| tensor.size_bytes as u64)
            .sum()
    }

    /// Tells the operating system how the weights are about to be read. Only a hint.
    pub fn advise(&self, advice: Advice) {
        for buffer in &self.buffers {
            if let FileBytes::Mapped(mapping) = buffer {
                mapping.advise(advice);
            }
        }
    }
}

impl Checkpoint {
    /// Starts to read bytes of a tensor, as [`Checkpoint::tensor`] gave them, from the file into memory, without waiting for
    /// them. Those that are there already, or that no file holds, are left alone.
    pub fn read_ahead(&self, bytes: &[u8]) {
        for buffer in &self.buffers {
            if let FileBytes::Mapped(mapping) = buffer
                && mapping.read_ahead(bytes)
            {
                return;
            }
        }
    }

    /// Gives back memory that reading these bytes of a tensor took, for callers that copied them
    /// elsewhere. They can be read again. Only a hint.
    pub fn release(&self, tensor: &str, bytes: Range<usize>) {
        let Some(&i) = self.index.get(tensor) else {
            return;
        };
        if self.packed.contains_key(&i) {
            return;
        }
        let info = &self.tensors[i];
        if let FileBytes::Mapped(mapping) = &self.buffers[info.file] {
            let start = info.offset as usize; // Readers checked that it is inside the bytes.
            let end = start + bytes.end.min(info.size_bytes);
            mapping.release(start + bytes.start..end);
        }
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("name", &self.name)
            .field("source", &self.source)
            .field("files", &self.paths)
            .field("n_tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}
