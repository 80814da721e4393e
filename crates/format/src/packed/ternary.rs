//! BitNet's ternary matrices: four numbers of two bits a byte, a quarter of the rows apart, and a number for the whole matrix.
//!
//! They become TQ2_0, which keeps the codes unchanged, with the number beside them as `<name>.scale`. Rows that are not whole
//! blocks become F16, which holds -1, 0 and 1 too.

use millrace_quant::DType;

use super::integers::encoded;
use super::stored::{CodePart, CodePlace, StoredTensors};
use super::{FoundMatrix, PackedSource, PackedTensor};
use crate::Error;
use crate::checkpoint::FileBytes;

/// Rows that share a byte.
const PER_BYTE: usize = 4;
/// Elements of a block of TQ2_0.
const BLOCK: usize = 256;

/// A matrix `[n, k]` of -1, 0 and 1.
pub(super) struct PackedTernary {
    n: usize,
    k: usize,
    /// `[n / 4, k]`: row `r` is in bits `2q` and `2q + 1`, with `q = r / (n / 4)`, of row `r % (n / 4)`.
    codes: CodePlace,
    /// Factor on the whole matrix.
    factor: f32,
    dtype: DType,
}

/// The matrix whose codes these are. Its number multiplies (`autobitlinear`) or divides (`bitlinear`).
pub(super) fn find(
    stored: &StoredTensors<'_>,
    codes: CodePart<'_>,
    divides: bool,
) -> Result<FoundMatrix, Error> {
    let name = &codes.info.name;
    let [n_bytes, k] = codes.matrix()?;
    let module = name.strip_suffix(".weight").unwrap_or(name);
    let expected = "a number of the matrix".to_owned();
    let scale = stored.require(&format!("{name}_scale"), codes.info, expected)?;
    if let Some(bias) = stored.get(&format!("{module}.bias")) {
        let expected = "no bias beside ternary codes, which would be scaled too".to_owned();
        return Err(bias.wrong(expected, format!("the shape {:?}", bias.info.shape)));
    }
    let numbers = scale.numbers()?;
    let factor = match numbers[..] {
        [number] if number.is_finite() && number > 0.0 && number.recip().is_finite() => {
            if divides {
                number.recip()
            } else {
                number
            }
        }
        _ => return Err(scale.wrong("one positive number".into(), format!("{numbers:?}"))),
    };
    let matrix = PackedTernary {
        n: n_bytes.saturating_mul(PER_BYTE),
        k,
        codes: codes.place(),
        factor,
        dtype: match k > 0 && k.is_multiple_of(BLOCK) {
            true => DType::Tq2_0,
            false => DType::F16,
        },
    };
    Ok(FoundMatrix {
        name: name.clone(),
        codes: name.clone(),
        others: vec![scale.info.name.clone()],
        tensor: PackedTensor::new(PackedSource::Ternary(matrix)),
    })
}

impl PackedTernary {
    pub(super) fn shape(&self) -> Vec<usize> {
        vec![self.n, self.k]
    }

    pub(super) fn n(&self) -> usize {
        self.n
    }

    pub(super) fn codes<'a>(&self, files: &'a [FileBytes]) -> &'a [u8] {
        self.codes.bytes(files)
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn set_dtype(&mut self, dtype: DType) {
        self.dtype = dtype;
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.dtype.size_bytes(1, self.k).unwrap_or(0)
    }

    /// The factor on the whole matrix; no format of the matrix holds it.
    pub(super) fn factor(&self) -> f32 {
        self.factor
    }

    /// Decodes rows from `first` on; `out` is whole rows. The code 3, which no quantiser writes, becomes 2 as in TQ2_0.
    pub(super) fn decode(&self, codes: &[u8], first: usize, out: &mut [u8]) {
        let quarter = self.n / PER_BYTE;
        let rows = out.chunks_exact_mut(self.row_bytes().max(1));
        for (row, out) in (first..).zip(rows) {
            let bytes = &codes[row % quarter * self.k..][..self.k];
            let shift = 2 * (row / quarter);
            let level = |byte: &u8| byte >> shift & 3;
            match self.dtype {
                DType::Tq2_0 => blocks(&bytes.iter().map(level).collect::<Vec<u8>>(), out),
                _ => {
                    let numbers = bytes.iter().map(|byte| f32::from(level(byte)) - 1.0);
                    out.copy_from_slice(&encoded(self.dtype, &numbers.collect::<Vec<f32>>()));
                }
            }
        }
    }
}

/// Blocks of TQ2_0 with a scale of 1: 64 bytes of four levels each, 32 elements apart, and an F16.
fn blocks(levels: &[u8], out: &mut [u8]) {
    let one = half_of_one();
    let (levels, _) = levels.as_chunks::<BLOCK>();
    for (levels, out) in levels
        .iter()
        .zip(out.chunks_exact_mut(BLOCK / PER_BYTE + one.len()))
    {
        let (bytes, scale) = out.split_at_mut(BLOCK / PER_BYTE);
        for (i, byte) in bytes.iter_mut().enumerate() {
            let first = i / 32 * 128 + i % 32;
            *byte = (0..PER_BYTE).fold(0, |bits, s| bits | levels[first + 32 * s] << (2 * s));
        }
        scale.copy_from_slice(&one);
    }
}

/// 1 as F16, lowest byte first.
fn half_of_one() -> [u8; 2] {
    0x3c00u16.to_le_bytes()
}
