//! The header's names for element types.

use millrace_quant::DType;

use crate::{OpaqueType, PlainType, TensorType};

/// Types that are not weights; the names of weight formats are listed with the formats, in the crate `quant`.
const TABLE: &[(&str, TensorType)] = &[
    ("I8", TensorType::Plain(PlainType::I8)),
    ("U8", TensorType::Plain(PlainType::U8)),
    ("I16", TensorType::Plain(PlainType::I16)),
    ("U16", TensorType::Plain(PlainType::U16)),
    ("I32", TensorType::Plain(PlainType::I32)),
    ("U32", TensorType::Plain(PlainType::U32)),
    ("I64", TensorType::Plain(PlainType::I64)),
    ("U64", TensorType::Plain(PlainType::U64)),
    ("F64", TensorType::Plain(PlainType::F64)),
    ("BOOL", TensorType::Plain(PlainType::Bool)),
];

/// Names that the format defines and this program does not decode, with the elements and bytes that
/// go together (`Dtype::bitsize` of the reference implementation).
const OPAQUE: &[OpaqueType] = &[
    OpaqueType::safetensors("F8_E4M3", (1, 1)),
    OpaqueType::safetensors("F8_E5M2", (1, 1)),
    OpaqueType::safetensors("F8_E8M0", (1, 1)),
    OpaqueType::safetensors("F8_E4M3FNUZ", (1, 1)),
    OpaqueType::safetensors("F8_E5M2FNUZ", (1, 1)),
    OpaqueType::safetensors("F6_E2M3", (4, 3)),
    OpaqueType::safetensors("F6_E3M2", (4, 3)),
    OpaqueType::safetensors("F4", (2, 1)),
    OpaqueType::safetensors("C64", (1, 8)),
];

/// The type with a name.
pub(crate) fn from_name(name: &str) -> TensorType {
    if let Some(dtype) = DType::from_safetensors_name(name) {
        return TensorType::Weights(dtype);
    }
    if let Some((_, tensor_type)) = TABLE.iter().find(|row| row.0 == name) {
        return *tensor_type;
    }
    let defined = OPAQUE.iter().find(|opaque| opaque.name() == name);
    TensorType::Opaque(match defined {
        Some(opaque) => *opaque,
        None => OpaqueType::unknown_safetensors(name),
    })
}

/// The name of a type; `None` if safetensors has none for it. Additive Q4NX blocks are written as
/// the bytes they are.
pub(crate) fn to_name(tensor_type: TensorType) -> Option<&'static str> {
    if tensor_type == TensorType::Weights(DType::Q4nx) {
        return Some("I8");
    }
    match tensor_type {
        TensorType::Weights(dtype) => dtype.safetensors_name(),
        TensorType::Opaque(opaque) => OPAQUE.contains(&opaque).then(|| opaque.name()),
        TensorType::Plain(_) => {
            let row = TABLE.iter().find(|row| row.1 == tensor_type)?;
            Some(row.0)
        }
    }
}
