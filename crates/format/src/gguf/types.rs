//! ggml's numbers for tensor types: those this program reads, and the names of the others.

use millrace_quant::DType;

use crate::{PlainType, TensorType};

/// Number, ggml's name, and what it is here (`None`: known, but not read).
type Row = (u32, &'static str, Option<TensorType>);

const fn weights(id: u32, name: &'static str, dtype: DType) -> Row {
    (id, name, Some(TensorType::Weights(dtype)))
}

const fn plain(id: u32, name: &'static str, plain: PlainType) -> Row {
    (id, name, Some(TensorType::Plain(plain)))
}

const fn unread(id: u32, name: &'static str) -> Row {
    (id, name, None)
}

/// ggml's `enum ggml_type`. Numbers 4, 5, 31–33 and 36–38 were withdrawn by ggml itself.
const TABLE: &[Row] = &[
    weights(0, "F32", DType::F32),
    weights(1, "F16", DType::F16),
    weights(2, "Q4_0", DType::Q4_0),
    weights(3, "Q4_1", DType::Q4_1),
    unread(4, "Q4_2"),
    unread(5, "Q4_3"),
    weights(6, "Q5_0", DType::Q5_0),
    weights(7, "Q5_1", DType::Q5_1),
    weights(8, "Q8_0", DType::Q8_0),
    weights(9, "Q8_1", DType::Q8_1),
    weights(10, "Q2_K", DType::Q2K),
    weights(11, "Q3_K", DType::Q3K),
    weights(12, "Q4_K", DType::Q4K),
    weights(13, "Q5_K", DType::Q5K),
    weights(14, "Q6_K", DType::Q6K),
    weights(15, "Q8_K", DType::Q8K),
    unread(16, "IQ2_XXS"),
    unread(17, "IQ2_XS"),
    unread(18, "IQ3_XXS"),
    unread(19, "IQ1_S"),
    weights(20, "IQ4_NL", DType::Iq4Nl),
    unread(21, "IQ3_S"),
    unread(22, "IQ2_S"),
    unread(23, "IQ4_XS"),
    plain(24, "I8", PlainType::I8),
    plain(25, "I16", PlainType::I16),
    plain(26, "I32", PlainType::I32),
    plain(27, "I64", PlainType::I64),
    plain(28, "F64", PlainType::F64),
    unread(29, "IQ1_M"),
    weights(30, "BF16", DType::BF16),
    unread(31, "Q4_0_4_4"),
    unread(32, "Q4_0_4_8"),
    unread(33, "Q4_0_8_8"),
    unread(34, "TQ1_0"),
    unread(35, "TQ2_0"),
    unread(36, "IQ4_NL_4_4"),
    unread(37, "IQ4_NL_4_8"),
    unread(38, "IQ4_NL_8_8"),
    weights(39, "MXFP4", DType::Mxfp4),
    unread(40, "NVFP4"),
    unread(41, "Q1_0"),
];

/// The type with a number, or its description for an error message.
pub(crate) fn from_id(id: u32) -> Result<TensorType, String> {
    match TABLE.iter().find(|row| row.0 == id) {
        Some((_, _, Some(tensor_type))) => Ok(*tensor_type),
        Some((_, name, None)) => Err(format!("{name} (ggml type {id})")),
        None => Err(format!("number {id}, unknown to this program")),
    }
}

/// The number of a type; `None` if GGUF has none for it.
pub(crate) fn to_id(tensor_type: TensorType) -> Option<u32> {
    let row = TABLE.iter().find(|row| row.2 == Some(tensor_type))?;
    Some(row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_go_both_ways() {
        for (i, &(id, name, tensor_type)) in TABLE.iter().enumerate() {
            assert_eq!(id as usize, i);
            match tensor_type {
                Some(t) => {
                    assert_eq!(from_id(id), Ok(t));
                    assert_eq!(to_id(t), Some(id));
                    assert!(t.name().eq_ignore_ascii_case(name));
                }
                None => assert!(from_id(id).unwrap_err().starts_with(name)),
            }
        }
        assert!(from_id(9999).unwrap_err().contains("9999"));
        assert_eq!(to_id(TensorType::Weights(DType::Q4nx)), None);
    }
}
