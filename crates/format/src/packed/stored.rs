//! Parts of packed matrices as their files hold them.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use millrace_quant::{DType, decode_blocks};

use crate::checkpoint::FileBytes;
use crate::{Error, PlainType, TensorInfo, TensorType};

/// The name of FP8 in safetensors' headers.
const FLOAT8: &str = "F8_E4M3";
/// The name in them of powers of two.
const EXPONENTS: &str = "F8_E8M0";

/// All tensors of a folder's files.
pub(crate) struct StoredTensors<'a> {
    tensors: &'a [TensorInfo],
    by_name: HashMap<&'a str, &'a TensorInfo>,
    paths: &'a [PathBuf],
    files: &'a [FileBytes],
}

impl<'a> StoredTensors<'a> {
    pub(crate) fn new(
        tensors: &'a [TensorInfo],
        paths: &'a [PathBuf],
        files: &'a [FileBytes],
    ) -> StoredTensors<'a> {
        let by_name = tensors.iter().map(|info| (info.name.as_str(), info));
        StoredTensors {
            tensors,
            by_name: by_name.collect(),
            paths,
            files,
        }
    }

    pub(super) fn all(&self) -> &'a [TensorInfo] {
        self.tensors
    }

    pub(super) fn files(&self) -> &'a [FileBytes] {
        self.files
    }

    pub(super) fn path(&self, info: &TensorInfo) -> &'a Path {
        &self.paths[info.file]
    }

    pub(super) fn part(&self, info: &'a TensorInfo) -> CodePart<'a> {
        CodePart {
            info,
            path: self.path(info),
            files: self.files,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<CodePart<'a>> {
        self.by_name.get(name).map(|info| self.part(info))
    }

    /// A part without which the codes `of` are useless. `expected` describes it.
    pub(super) fn require(
        &self,
        name: &str,
        of: &TensorInfo,
        expected: String,
    ) -> Result<CodePart<'a>, Error> {
        self.get(name).ok_or_else(|| Error::PackedPart {
            file: self.path(of).to_owned(),
            tensor: name.to_owned(),
            expected: format!("{expected}, beside `{}`", of.name),
            found: "no such tensor".to_owned(),
        })
    }
}

/// Place of bytes in a file.
#[derive(Clone, Debug)]
pub(super) struct CodePlace {
    file: usize,
    range: Range<usize>,
}

impl CodePlace {
    pub(super) fn bytes<'a>(&self, files: &'a [FileBytes]) -> &'a [u8] {
        // The reader of the header has checked that they are inside the file.
        &files[self.file].bytes()[self.range.clone()]
    }
}

/// Numbers and their place in a file.
#[derive(Clone, Debug)]
pub(super) struct StoredNumbers {
    place: CodePlace,
    /// `None`: powers of two, a byte of exponent each.
    dtype: Option<DType>,
    len: usize,
}

impl StoredNumbers {
    /// All of them.
    pub(super) fn read(&self, files: &[FileBytes]) -> Vec<f32> {
        let bytes = self.place.bytes(files);
        let Some(dtype) = self.dtype else {
            return bytes.iter().map(|byte| power_of_two(*byte)).collect();
        };
        let mut out = vec![0.0; self.len];
        // The header's check: as many bytes as these elements take.
        let _ = decode_blocks(dtype, bytes, &mut out);
        out
    }

    /// Whether the numbers have no more digits than F16.
    pub(super) fn is_f16(&self) -> bool {
        self.dtype == Some(DType::F16)
    }
}

/// A number of E8M0.
pub(super) fn power_of_two(exponent: u8) -> f32 {
    match exponent {
        255 => f32::NAN,
        _ => 2f32.powi(i32::from(exponent) - 127),
    }
}

/// A tensor of a file.
#[derive(Clone, Copy)]
pub(super) struct CodePart<'a> {
    pub(super) info: &'a TensorInfo,
    path: &'a Path,
    files: &'a [FileBytes],
}

impl CodePart<'_> {
    pub(super) fn is_float8(&self) -> bool {
        self.info.tensor_type.name() == FLOAT8
    }

    pub(super) fn is_int8(&self) -> bool {
        self.info.tensor_type == TensorType::Plain(PlainType::I8)
    }

    pub(super) fn wrong(&self, expected: String, found: String) -> Error {
        Error::PackedPart {
            file: self.path.to_owned(),
            tensor: self.info.name.clone(),
            expected,
            found,
        }
    }

    pub(super) fn place(&self) -> CodePlace {
        let start = self.info.offset as usize;
        CodePlace {
            file: self.info.file,
            range: start..start + self.info.size_bytes,
        }
    }

    /// # Errors
    /// [`Error::PackedPart`] if it has other dimensions.
    pub(super) fn check_shape(&self, expected: &[usize]) -> Result<(), Error> {
        if self.info.shape == expected {
            return Ok(());
        }
        let found = format!("{:?}", self.info.shape);
        Err(self.wrong(format!("the shape {expected:?}"), found))
    }

    /// Rows and columns.
    pub(super) fn matrix(&self) -> Result<[usize; 2], Error> {
        match *self.info.shape {
            [rows, columns] => Ok([rows, columns]),
            ref other => Err(self.wrong("a matrix".to_owned(), format!("the shape {other:?}"))),
        }
    }

    /// Its place, if it holds 32-bit words.
    pub(super) fn words(&self) -> Result<CodePlace, Error> {
        match self.info.tensor_type {
            TensorType::Plain(PlainType::I32 | PlainType::U32) => Ok(self.place()),
            other => Err(self.wrong("words of type I32".to_owned(), format!("type {other}"))),
        }
    }

    /// Its numbers, all of which must be finite.
    pub(super) fn scales(&self) -> Result<StoredNumbers, Error> {
        let dtype = match self.info.tensor_type {
            TensorType::Weights(dtype @ (DType::F32 | DType::F16 | DType::BF16)) => Some(dtype),
            other if other.name() == EXPONENTS => None,
            other => {
                let expected = "scales of type F32, F16, BF16 or F8_E8M0".to_owned();
                return Err(self.wrong(expected, format!("type {other}")));
            }
        };
        let numbers = StoredNumbers {
            place: self.place(),
            dtype,
            len: self.info.n_elems(),
        };
        let values = numbers.read(self.files);
        match values.iter().position(|scale| !scale.is_finite()) {
            None => Ok(numbers),
            Some(at) => {
                let found = format!("{} at element {at}", values[at]);
                Err(self.wrong("finite scales".to_owned(), found))
            }
        }
    }

    /// Plain numbers of 16 or 32 bits.
    pub(super) fn numbers(&self) -> Result<Vec<f32>, Error> {
        Ok(self.scales()?.read(self.files))
    }

    pub(super) fn is_bytes(&self) -> bool {
        self.info.tensor_type == TensorType::Plain(PlainType::U8)
    }

    /// Powers of two, none of which is infinite.
    pub(super) fn exponents(&self) -> Result<CodePlace, Error> {
        if !self.is_bytes() && self.info.tensor_type.name() != EXPONENTS {
            let expected = "exponents of type U8 or F8_E8M0".to_owned();
            return Err(self.wrong(expected, format!("type {}", self.info.tensor_type)));
        }
        self.checked_bytes("exponents below 255", |byte| byte < 255)
    }

    /// The same as numbers.
    pub(super) fn exponent_scales(&self) -> Result<StoredNumbers, Error> {
        Ok(StoredNumbers {
            place: self.exponents()?,
            dtype: None,
            len: self.info.n_elems(),
        })
    }

    /// Its bytes, each of which must pass a check.
    pub(super) fn checked_bytes(
        &self,
        expected: &str,
        is_such: fn(u8) -> bool,
    ) -> Result<CodePlace, Error> {
        let place = self.place();
        let bytes = place.bytes(self.files);
        match bytes.iter().position(|byte| !is_such(*byte)) {
            None => Ok(place),
            Some(at) => {
                let found = format!("the byte {:#04x} at element {at}", bytes[at]);
                Err(self.wrong(expected.to_owned(), found))
            }
        }
    }

    /// 32-bit integers.
    pub(super) fn integers(&self) -> Result<Vec<i32>, Error> {
        let (words, _) = self.words()?.bytes(self.files).as_chunks::<4>();
        Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
    }
}
