//! ggml's numbers for tensor types: those this program decodes, and names and sizes of the others.

use millrace_quant::DType;

use crate::{OpaqueType, PlainType, TensorType};

/// Number, ggml's name, and what it is here.
type TypeRow = (u32, &'static str, TensorType);

const fn weights(id: u32, name: &'static str, dtype: DType) -> TypeRow {
    (id, name, TensorType::Weights(dtype))
}

const fn plain(id: u32, name: &'static str, plain: PlainType) -> TypeRow {
    (id, name, TensorType::Plain(plain))
}

/// Blocks of `elems` elements in `bytes` bytes, as `GGML_QUANT_SIZES` of gguf-py has them.
const fn opaque(id: u32, name: &'static str, elems: usize, bytes: usize) -> TypeRow {
    let opaque = OpaqueType::ggml(name, id, Some((elems, bytes)));
    (id, name, TensorType::Opaque(opaque))
}

/// A type that ggml withdrew before it wrote down its size in gguf-py.
const fn withdrawn(id: u32, name: &'static str) -> TypeRow {
    (
        id,
        name,
        TensorType::Opaque(OpaqueType::ggml(name, id, None)),
    )
}

/// ggml's `enum ggml_type`. Numbers 4, 5, 31–33 and 36–38 were withdrawn by ggml itself.
const TABLE: &[TypeRow] = &[
    weights(0, "F32", DType::F32),
    weights(1, "F16", DType::F16),
    weights(2, "Q4_0", DType::Q4_0),
    weights(3, "Q4_1", DType::Q4_1),
    withdrawn(4, "Q4_2"),
    withdrawn(5, "Q4_3"),
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
    opaque(16, "IQ2_XXS", 256, 66),
    opaque(17, "IQ2_XS", 256, 74),
    opaque(18, "IQ3_XXS", 256, 98),
    opaque(19, "IQ1_S", 256, 50),
    weights(20, "IQ4_NL", DType::Iq4Nl),
    opaque(21, "IQ3_S", 256, 110),
    opaque(22, "IQ2_S", 256, 82),
    opaque(23, "IQ4_XS", 256, 136),
    plain(24, "I8", PlainType::I8),
    plain(25, "I16", PlainType::I16),
    plain(26, "I32", PlainType::I32),
    plain(27, "I64", PlainType::I64),
    plain(28, "F64", PlainType::F64),
    opaque(29, "IQ1_M", 256, 56),
    weights(30, "BF16", DType::BF16),
    withdrawn(31, "Q4_0_4_4"),
    withdrawn(32, "Q4_0_4_8"),
    withdrawn(33, "Q4_0_8_8"),
    opaque(34, "TQ1_0", 256, 54),
    opaque(35, "TQ2_0", 256, 66),
    withdrawn(36, "IQ4_NL_4_4"),
    withdrawn(37, "IQ4_NL_4_8"),
    withdrawn(38, "IQ4_NL_8_8"),
    weights(39, "MXFP4", DType::Mxfp4),
    opaque(40, "NVFP4", 64, 36),
    opaque(41, "Q1_0", 128, 18),
];

/// The type with a number.
pub(crate) fn from_id(id: u32) -> TensorType {
    match TABLE.iter().find(|row| row.0 == id) {
        Some((_, _, tensor_type)) => *tensor_type,
        None => TensorType::Opaque(OpaqueType::unknown_ggml(id)),
    }
}

/// The number of a type; `None` if GGUF has none for it.
pub(crate) fn to_id(tensor_type: TensorType) -> Option<u32> {
    if let TensorType::Opaque(opaque) = tensor_type {
        return opaque.ggml_id();
    }
    let row = TABLE.iter().find(|row| row.2 == tensor_type)?;
    Some(row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_go_both_ways() {
        for (i, &(id, name, tensor_type)) in TABLE.iter().enumerate() {
            assert_eq!(id as usize, i);
            assert_eq!(from_id(id), tensor_type);
            assert_eq!(to_id(tensor_type), Some(id));
            assert!(tensor_type.name().eq_ignore_ascii_case(name));
        }
        let unknown = from_id(9999);
        assert!(unknown.to_string().contains("9999"));
        assert_eq!(to_id(unknown), Some(9999));
        assert_eq!(unknown.size_bytes(&[4]), None);
        assert_eq!(from_id(23).size_bytes(&[2, 512]), Some(4 * 136));
        assert_eq!(to_id(TensorType::Weights(DType::Q4nx)), None);
    }
}
