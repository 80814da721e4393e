//! FP8 (E4M3, no infinities) with a scale of the matrix, of each row, or of each block.
//!
//! A code has 4 significant bits, so its product with a power of two is exact in BF16, which then is the format. Other
//! scales have more digits: the products become F16, rounded to 11 bits. A matrix whose products F16 cannot hold becomes
//! BF16, rounded to 8 bits.

use millrace_quant::DType;

use super::integers::encoded;
use super::stored::{CodePart, CodePlace, StoredNumbers, StoredTensors};
use super::{FoundMatrix, PackedSource, PackedTensor};
use crate::Error;
use crate::checkpoint::FileBytes;

/// The greatest code.
const MAX_CODE: f32 = 448.0;
/// The greatest finite F16.
const F16_MAX: f32 = 65_504.0;
/// The least value of the greatest product for which F16's least step is below its own rounding.
const F16_MIN: f32 = 1.0 / 2048.0;

/// Maps elements to scales: each scale covers a number of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ScaleGrid {
    rows: usize,
    columns: usize,
}

/// Matrices `[…, n, k]` of FP8.
pub(super) struct PackedFloats {
    shape: Vec<usize>,
    codes: CodePlace,
    scales: StoredNumbers,
    grid: ScaleGrid,
    dtype: DType,
}

impl PackedFloats {
    /// `shape` is that of the codes, with at least two dimensions.
    fn new(
        shape: Vec<usize>,
        codes: CodePlace,
        (scales, grid): (StoredNumbers, ScaleGrid),
        files: &[FileBytes],
    ) -> PackedFloats {
        let values = scales.read(files);
        let is_power = |scale: &f32| scale.to_bits() << 9 == 0;
        let max = values.iter().fold(0f32, |max, scale| max.max(scale.abs())) * MAX_CODE;
        let dtype = match values.iter().all(is_power) {
            true => DType::BF16,
            false => float_type(max),
        };
        PackedFloats {
            shape,
            codes,
            scales,
            grid,
            dtype,
        }
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn set_dtype(&mut self, dtype: DType) {
        self.dtype = dtype;
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Rows of all matrices.
    pub(super) fn n(&self) -> usize {
        self.shape[..self.shape.len() - 1].iter().product()
    }

    fn k(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.dtype.size_bytes(1, self.k()).unwrap_or(0)
    }

    pub(super) fn codes<'a>(&self, files: &'a [FileBytes]) -> &'a [u8] {
        self.codes.bytes(files)
    }

    pub(super) fn scales(&self, files: &[FileBytes]) -> Vec<f32> {
        self.scales.read(files)
    }

    /// Decodes rows from `first` on; `out` is whole rows.
    pub(super) fn decode(&self, codes: &[u8], scales: &[f32], first: usize, out: &mut [u8]) {
        let k = self.k();
        let n = self.shape[self.shape.len() - 2];
        let (n_rows, n_columns) = (n.div_ceil(self.grid.rows), k.div_ceil(self.grid.columns));
        let table: [f32; 256] = std::array::from_fn(|code| value(code as u8));
        let mut numbers = vec![0.0; k];
        for (row, out) in (first..).zip(out.chunks_exact_mut(self.row_bytes())) {
            let at = (row / n * n_rows + row % n / self.grid.rows) * n_columns;
            let codes = codes[row * k..][..k].chunks(self.grid.columns);
            let numbers_of = numbers.chunks_mut(self.grid.columns);
            for ((codes, numbers), scale) in codes.zip(numbers_of).zip(&scales[at..]) {
                for (code, number) in codes.iter().zip(numbers) {
                    *number = table[usize::from(*code)] * scale;
                }
            }
            out.copy_from_slice(&encoded(self.dtype, &numbers));
        }
    }
}

/// FP8 with scales of the matrix, of rows, or of blocks.
pub(super) fn find(
    stored: &StoredTensors<'_>,
    codes: CodePart<'_>,
    block: [usize; 2],
) -> Result<FoundMatrix, Error> {
    let name = codes.info.name.clone();
    let shape = codes.info.shape.clone();
    let [.., n, k] = shape[..] else {
        return Err(codes.wrong("a matrix of FP8".to_owned(), format!("the shape {shape:?}")));
    };
    let n_matrices = shape[..shape.len() - 2].iter().product();
    let inverse = format!("{name}_scale_inv");
    let expected = "its scales (or `weight_scale`)".to_owned();
    let scales = match stored.get(&format!("{name}_scale")) {
        Some(scales) => scales,
        None => stored.require(&inverse, codes.info, expected)?,
    };
    let grid = grid_of(&scales, [n_matrices, n, k], block)?;
    let numbers = match scales.is_bytes() {
        true => scales.exponent_scales()?,
        false => scales.scales()?,
    };
    let tensor = PackedFloats::new(shape, codes.place(), (numbers, grid), stored.files());
    Ok(FoundMatrix {
        codes: name.clone(),
        name,
        others: vec![scales.info.name.clone()],
        tensor: PackedTensor::new(PackedSource::Floats(tensor)),
    })
}

fn grid_of(
    scales: &CodePart<'_>,
    [n_matrices, n, k]: [usize; 3],
    [rows, columns]: [usize; 2],
) -> Result<ScaleGrid, Error> {
    let found = &scales.info.shape;
    let of = |grid: ScaleGrid| {
        [
            n.div_ceil(grid.rows.max(1)),
            k.div_ceil(grid.columns.max(1)),
        ]
    };
    let grids = [
        ScaleGrid {
            rows: n,
            columns: k,
        },
        ScaleGrid { rows, columns },
        ScaleGrid {
            rows: 1,
            columns: k,
        },
        // Groups of neighbours of a row, as in MXFP8.
        ScaleGrid {
            rows: 1,
            columns: k / found.last().copied().unwrap_or(1).clamp(1, k.max(1)),
        },
    ];
    let n_found: usize = found.iter().product();
    let is_it = |grid: &&ScaleGrid| {
        let [rows, columns] = of(**grid);
        // Scales of one dimension belong to the matrix or to rows; a scalar has none.
        let fits = match found[..] {
            [.., found_rows, found_columns] => [found_rows, found_columns] == [rows, columns],
            _ => columns == 1,
        };
        fits && n_found == n_matrices * rows * columns
    };
    grids.iter().find(is_it).copied().ok_or_else(|| {
        let [block_rows, block_columns] = of(grids[1]);
        let expected = format!(
            "a scale of the matrix, {n} of rows, [{n}, groups], or the shape {:?} of blocks of {rows} x {columns}",
            [block_rows, block_columns]
        );
        scales.wrong(expected, format!("the shape {found:?}"))
    })
}

/// The format of two bytes that keeps the most digits of numbers up to `max`.
pub(super) fn float_type(max: f32) -> DType {
    match (F16_MIN..=F16_MAX).contains(&max) {
        true => DType::F16,
        false => DType::BF16,
    }
}

/// The number of a code: a sign, 4 bits of exponent with a bias of 7, 3 of mantissa.
pub(super) fn value(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 8.0 * 2f32.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if code & 128 == 0 { size } else { -size }
}
