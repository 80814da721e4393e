//! Finds the parts of each packed matrix, and checks that they fit each other.

use super::codes::{CodeLayout, Codes};
use super::float4::{self, WholeScale};
use super::float8;
use super::integers::{Groups, IntegerParts, PackedIntegers, Zeros};
use super::packing::DEFAULT_BLOCK;
use super::stored::{CodePart, StoredTensors};
use super::ternary;
use super::{FoundMatrix, PackedSource, PackedTensor, Packing};
use crate::{Error, PlainType, TensorInfo, TensorType};

/// The number for a whole NVFP4 matrix as compressed-tensors stores it (`dequantize` in its lifecycle/forward.py).
const COMPRESSED_WHOLE: WholeScale = WholeScale {
    suffix: "global_scale",
    divides: true,
};

/// The same as ModelOpt stores it.
const MODEL_OPT_WHOLE: WholeScale = WholeScale {
    suffix: "scale_2",
    divides: false,
};

/// The matrix whose codes this tensor holds; `None` if it holds none.
///
/// # Errors
/// [`Error::PackedPart`].
pub(super) fn find(
    stored: &StoredTensors<'_>,
    packing: &Packing,
    info: &TensorInfo,
) -> Result<Option<FoundMatrix>, Error> {
    let Some(codes) = stored.get(&info.name) else {
        return Ok(None);
    };
    match *packing {
        Packing::Float8 { block } if codes.is_float8() => {
            float8::find(stored, codes, block).map(Some)
        }
        Packing::Float8 { .. } => Ok(None),
        Packing::CompressedTensors { block } => {
            // NVFP4 has scales of FP8.
            if codes.is_float8() && !info.name.ends_with("_scale") {
                return float8::find(stored, codes, block).map(Some);
            }
            match (info.name.strip_suffix("_packed"), codes.is_int8()) {
                (Some(name), _) if codes.is_bytes() => {
                    float4::find(stored, codes, name, COMPRESSED_WHOLE).map(Some)
                }
                (Some(name), _) => compressed_words(stored, codes, name).map(Some),
                (None, true) => compressed_bytes(stored, codes).map(Some),
                (None, false) => Ok(None),
            }
        }
        Packing::ModelOpt if codes.is_float8() && info.name.ends_with(".weight") => {
            float8::find(stored, codes, DEFAULT_BLOCK).map(Some)
        }
        Packing::ModelOpt if codes.is_bytes() && info.name.ends_with(".weight") => {
            float4::find(stored, codes, &info.name, MODEL_OPT_WHOLE).map(Some)
        }
        Packing::ModelOpt => Ok(None),
        Packing::BitNet { divides } if codes.is_bytes() && info.name.ends_with(".weight") => {
            ternary::find(stored, codes, divides).map(Some)
        }
        Packing::BitNet { .. } => Ok(None),
        Packing::Gptq { .. } | Packing::Awq => match info.name.strip_suffix(".qweight") {
            Some(module) => by_columns(stored, codes, module, packing).map(Some),
            None => Ok(None),
        },
    }
}

/// Zero points that compressed-tensors keeps beside `name`, if there are any.
fn compressed_zeros(
    stored: &StoredTensors<'_>,
    name: &str,
    [n, n_groups, bits]: [usize; 3],
) -> Result<(Zeros, Option<String>), Error> {
    let Some(part) = stored.get(&format!("{name}_zero_point")) else {
        return Ok((Zeros::Middle, None));
    };
    let codes = if part.is_int8() && bits == 8 {
        // A zero point of the whole matrix, or of rows, may have fewer dimensions.
        if ![1, n * n_groups].contains(&part.info.n_elems()) {
            part.check_shape(&[n, n_groups])?;
        }
        Codes {
            place: part.place(),
            layout: CodeLayout::Bytes,
            bits: 8,
        }
    } else {
        part.check_shape(&[(n * bits).div_ceil(32), n_groups])?;
        Codes {
            place: part.words()?,
            layout: CodeLayout::AlongColumns,
            bits,
        }
    };
    let zeros = Zeros::Stored {
        codes,
        minus_one: false,
    };
    Ok((zeros, Some(part.info.name.clone())))
}

/// The number of columns that share a scale, from the number of scales of a row.
fn even_groups(scales: &CodePart<'_>, k: usize, n_groups: usize) -> Result<usize, Error> {
    match n_groups > 0 && k.is_multiple_of(n_groups) {
        true => Ok(k / n_groups),
        false => Err(scales.wrong(
            format!("a divisor of the {k} columns for their number of groups"),
            n_groups.to_string(),
        )),
    }
}

/// Integers that compressed-tensors packs into words along rows.
fn compressed_words(
    stored: &StoredTensors<'_>,
    codes: CodePart<'_>,
    name: &str,
) -> Result<FoundMatrix, Error> {
    let [n, n_words] = codes.matrix()?;
    let shape_name = format!("{name}_shape");
    let shape = stored.require(&shape_name, codes.info, "rows and columns".to_owned())?;
    let k = columns_of(&shape, n, stored)?;
    let bits = [4, 8]
        .into_iter()
        .find(|bits| (k * bits).div_ceil(32) == n_words);
    let bits = bits.filter(|_| k > 0).ok_or_else(|| {
        let expected = format!("[{n}, {}] or [{n}, {}]", k.div_ceil(8), k.div_ceil(4));
        let found = format!("[{n}, {n_words}]");
        codes.wrong(
            format!("codes of 4 or 8 bits of {k} columns, {expected}"),
            found,
        )
    })?;
    let expected = format!("scales [{n}, groups]");
    let scales = stored.require(&format!("{name}_scale"), codes.info, expected)?;
    let [scale_rows, n_groups] = scales.matrix()?;
    if scale_rows != n {
        scales.check_shape(&[n, n_groups])?;
    }
    let (zeros, zeros_name) = compressed_zeros(stored, name, [n, n_groups, bits])?;
    let listed = stored.get(&format!("{name}_g_idx"));
    let groups = match &listed {
        Some(part) => listed_groups(part, k, n_groups)?,
        None => Groups::Even(even_groups(&scales, k, n_groups)?),
    };
    let parts = IntegerParts {
        n,
        k,
        codes: Codes {
            place: codes.words()?,
            layout: CodeLayout::AlongRows,
            bits,
        },
        scales: scales.scales()?,
        scales_by_group: false,
        zeros,
        n_groups,
        groups,
    };
    let listed = listed.map(|part| part.info.name.clone());
    let others = [
        Some(scales.info.name.clone()),
        zeros_name,
        listed,
        Some(shape_name),
    ];
    Ok(FoundMatrix {
        name: name.to_owned(),
        codes: codes.info.name.clone(),
        others: others.into_iter().flatten().collect(),
        tensor: packed(parts, stored),
    })
}

/// The columns given by `weight_shape`.
fn columns_of(shape: &CodePart<'_>, n: usize, stored: &StoredTensors<'_>) -> Result<usize, Error> {
    let bytes = shape.place();
    let numbers: Vec<i64> = match shape.info.tensor_type {
        TensorType::Plain(PlainType::I64) => {
            let (numbers, _) = bytes.bytes(stored.files()).as_chunks::<8>();
            numbers
                .iter()
                .map(|bytes| i64::from_le_bytes(*bytes))
                .collect()
        }
        _ => shape.integers()?.into_iter().map(i64::from).collect(),
    };
    let rows = i64::try_from(n).unwrap_or(i64::MAX);
    match numbers[..] {
        // More columns than that have no packed words on this machine.
        [found, k @ 0..0x1_0000_0000] if found == rows => Ok(k as usize),
        _ => Err(shape.wrong(
            format!("{n} rows and their columns"),
            format!("{numbers:?}"),
        )),
    }
}

/// Bytes with a scale of the matrix, of rows, or of groups of columns.
fn compressed_bytes(stored: &StoredTensors<'_>, codes: CodePart<'_>) -> Result<FoundMatrix, Error> {
    let name = codes.info.name.clone();
    let [n, k] = codes.matrix()?;
    let expected = format!("scales [{n}, groups]");
    let scales = stored.require(&format!("{name}_scale"), codes.info, expected)?;
    let n_groups = match *scales.info.shape {
        _ if scales.info.n_elems() == 1 => 1,
        [_] => {
            scales.check_shape(&[n])?;
            1
        }
        _ => {
            let [_, n_groups] = scales.matrix()?;
            scales.check_shape(&[n, n_groups])?;
            n_groups
        }
    };
    let (zeros, zeros_name) = compressed_zeros(stored, &name, [n, n_groups, 8])?;
    let parts = IntegerParts {
        n,
        k,
        codes: Codes {
            place: codes.place(),
            layout: CodeLayout::Bytes,
            bits: 8,
        },
        scales: scales.scales()?,
        scales_by_group: false,
        zeros,
        n_groups,
        groups: Groups::Even(even_groups(&scales, k, n_groups)?),
    };
    let others = [Some(scales.info.name.clone()), zeros_name];
    Ok(FoundMatrix {
        codes: name.clone(),
        name,
        others: others.into_iter().flatten().collect(),
        tensor: packed(parts, stored),
    })
}

fn packed(parts: IntegerParts, stored: &StoredTensors<'_>) -> PackedTensor {
    PackedTensor::new(PackedSource::Integers(PackedIntegers::new(
        parts,
        stored.files(),
    )))
}

/// Layout of codes and zero points whose groups are rows of their tensors.
struct ColumnLayout {
    bits: usize,
    k: usize,
    codes: CodeLayout,
    zeros: CodeLayout,
    zero_minus_one: bool,
}

impl ColumnLayout {
    /// The layout for a matrix of `n` rows with the list of groups `listed`.
    fn of(
        packing: &Packing,
        codes: &CodePart<'_>,
        n: usize,
        listed: Option<&CodePart<'_>>,
    ) -> Result<ColumnLayout, Error> {
        let [n_stored, _] = codes.matrix()?;
        let Packing::Gptq {
            bits,
            zero_minus_one,
        } = *packing
        else {
            codes.check_shape(&[n_stored, n.div_ceil(8)])?;
            return Ok(ColumnLayout {
                bits: 4,
                k: n_stored,
                codes: CodeLayout::Awq,
                zeros: CodeLayout::Awq,
                zero_minus_one: false,
            });
        };
        let k = listed.map_or(n_stored * 32 / bits, |list| list.info.n_elems());
        // Some modules may have more bits than the others.
        let bits = [4, 8].into_iter().find(|bits| k * bits == n_stored * 32);
        let bits = bits.ok_or_else(|| {
            let expected = format!("codes of 4 or 8 bits of {k} columns");
            codes.wrong(expected, format!("{n_stored} rows of words"))
        })?;
        codes.check_shape(&[n_stored, n])?;
        Ok(ColumnLayout {
            bits,
            k,
            codes: CodeLayout::AlongRowsTurned,
            zeros: CodeLayout::AlongColumnsTurned,
            zero_minus_one,
        })
    }
}

/// GPTQ and AWQ: `qweight`, `qzeros` and `scales`, groups by rows; of GPTQ also `g_idx`.
fn by_columns(
    stored: &StoredTensors<'_>,
    codes: CodePart<'_>,
    module: &str,
    packing: &Packing,
) -> Result<FoundMatrix, Error> {
    let part = |suffix: &str, expected: &str| {
        let name = format!("{module}.{suffix}");
        stored.require(&name, codes.info, expected.to_owned())
    };
    let scales = part("scales", "scales [groups, rows]")?;
    let zeros = part("qzeros", "zero points [groups, words of rows]")?;
    let [n_groups, n] = scales.matrix()?;
    let listed = stored.get(&format!("{module}.g_idx"));
    let layout = ColumnLayout::of(packing, &codes, n, listed.as_ref())?;
    let ColumnLayout { bits, k, .. } = layout;
    if n * bits % 32 != 0 || n == 0 || k == 0 {
        let expected = format!("a multiple of {} for its rows", 32 / bits);
        return Err(scales.wrong(expected, n.to_string()));
    }
    zeros.check_shape(&[n_groups, n * bits / 32])?;
    let groups = match &listed {
        Some(part) => listed_groups(part, k, n_groups)?,
        None => Groups::Even(even_groups(&scales, k, n_groups)?),
    };
    let codes_of = |place, layout| Codes {
        place,
        layout,
        bits,
    };
    let parts = IntegerParts {
        n,
        k,
        codes: codes_of(codes.words()?, layout.codes),
        scales: scales.scales()?,
        scales_by_group: true,
        zeros: Zeros::Stored {
            codes: codes_of(zeros.words()?, layout.zeros),
            minus_one: layout.zero_minus_one,
        },
        n_groups,
        groups,
    };
    let others = [Some(scales), Some(zeros), listed].into_iter().flatten();
    Ok(FoundMatrix {
        name: format!("{module}.weight"),
        codes: codes.info.name.clone(),
        others: others.map(|part| part.info.name.clone()).collect(),
        tensor: packed(parts, stored),
    })
}

/// The groups of columns by a list of them.
fn listed_groups(part: &CodePart<'_>, k: usize, n_groups: usize) -> Result<Groups, Error> {
    part.check_shape(&[k])?;
    let list = part.integers()?;
    let group = |number: &i32| {
        u32::try_from(*number)
            .ok()
            .filter(|n| (*n as usize) < n_groups)
    };
    let groups: Option<Vec<u32>> = list.iter().map(group).collect();
    let Some(groups) = groups else {
        let is_wrong = |number: &&i32| group(number).is_none();
        let found = list.iter().find(is_wrong).copied().unwrap_or_default();
        return Err(part.wrong(format!("numbers of {n_groups} groups"), found.to_string()));
    };
    // Most lists equal the default without a list.
    let size = k.checked_div(n_groups).unwrap_or(0).max(1);
    let is_even = k.is_multiple_of(n_groups.max(1))
        && groups
            .iter()
            .enumerate()
            .all(|(i, group)| i / size == *group as usize);
    Ok(match is_even {
        true => Groups::Even(size),
        false => Groups::Listed(groups),
    })
}
