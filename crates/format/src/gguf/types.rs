//! ggml's numbers for tensor types. Those that this program decodes are listed with their formats, in the crate `quant`; here
//! are the names of the others.

use millrace_quant::DType;

use crate::{OpaqueType, PlainType, TensorType};

/// Number, ggml's name, and the type here.
type TypeRow = (u32, &'static str, TensorType);

const fn plain(id: u32, name: &'static str, plain: PlainType) -> TypeRow {
    (id, name, TensorType::Plain(plain))
}

/// A type that ggml withdrew before it recorded its size in gguf-py.
const fn withdrawn(id: u32, name: &'static str) -> TypeRow {
    (
        id,
        name,
        TensorType::Opaque(OpaqueType::ggml(name, id, None)),
    )
}

/// The rest of ggml's `enum ggml_type`. Numbers 5, 31–33 and 36–38 were withdrawn by ggml itself, and 4, which
/// Ollama took for its own order of MXFP4. A row whose number belongs to a format of `quant` is never read.
const TABLE: &[TypeRow] = &[
    withdrawn(5, "Q4_3"),
    plain(24, "I8", PlainType::I8),
    plain(25, "I16", PlainType::I16),
    plain(26, "I32", PlainType::I32),
    plain(27, "I64", PlainType::I64),
    plain(28, "F64", PlainType::F64),
    withdrawn(31, "Q4_0_4_4"),
    withdrawn(32, "Q4_0_4_8"),
    withdrawn(33, "Q4_0_8_8"),
    withdrawn(36, "IQ4_NL_4_4"),
    withdrawn(37, "IQ4_NL_4_8"),
    withdrawn(38, "IQ4_NL_8_8"),
];

/// The type with a number.
pub(crate) fn from_id(id: u32) -> TensorType {
    if let Some(dtype) = DType::from_gguf_type(id) {
        return TensorType::Weights(dtype);
    }
    match TABLE.iter().find(|row| row.0 == id) {
        Some((_, _, tensor_type)) => *tensor_type,
        None => TensorType::Opaque(OpaqueType::unknown_ggml(id)),
    }
}

/// The number of a type; `None` if GGUF has none for it.
pub(crate) fn to_id(tensor_type: TensorType) -> Option<u32> {
    match tensor_type {
        TensorType::Opaque(opaque) => opaque.ggml_id(),
        TensorType::Weights(dtype) => dtype.gguf_type(),
        TensorType::Plain(_) => {
            let row = TABLE.iter().find(|row| row.2 == tensor_type)?;
            Some(row.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last number that ggml has assigned, of those known here.
    const LAST: u32 = 42;

    #[test]
    fn every_number_is_known_and_goes_both_ways() {
        for id in 0..=LAST {
            let known = from_id(id);
            assert_eq!(to_id(known), Some(id));
            assert_ne!(known.name(), "unknown", "{id}");
        }
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
        let unknown = from_id(9999);
        assert!(unknown.to_string().contains("9999"));
        assert_eq!(to_id(unknown), Some(9999));
        assert_eq!(unknown.size_bytes(&[4]), None);
        assert_eq!(to_id(TensorType::Weights(DType::Q4nx)), None);
    }

    /// ggml's numbers, which are in users' files.
    #[test]
    fn numbers_are_those_of_ggml() {
        let expected = [
            (0, "f32"),
            (1, "f16"),
            (2, "q4_0"),
            (8, "q8_0"),
            (12, "q4_k"),
            (14, "q6_k"),
            (20, "iq4_nl"),
            (30, "bf16"),
            (39, "mxfp4"),
            (4, "mxfp4_ollama"),
            (5, "q4_3"),
            (23, "iq4_xs"),
            (16, "iq2_xxs"),
            (17, "iq2_xs"),
            (18, "iq3_xxs"),
            (19, "iq1_s"),
            (21, "iq3_s"),
            (22, "iq2_s"),
            (29, "iq1_m"),
            (34, "tq1_0"),
            (35, "tq2_0"),
            (40, "nvfp4"),
            (41, "q1_0"),
            (42, "q2_0"),
            (26, "i32"),
        ];
        for (id, name) in expected {
            assert!(from_id(id).name().eq_ignore_ascii_case(name), "{id} {name}");
        }
    }

    /// A row whose number a format has taken over agrees with it in ggml's name and shape.
    #[test]
    fn rows_agree_with_the_formats_of_their_numbers() {
        for &(id, name, listed) in TABLE {
            let decoded = from_id(id);
            assert!(
                decoded.name().eq_ignore_ascii_case(name),
                "{id}: {decoded} is no {name}"
            );
            if let Some(size_bytes) = listed.size_bytes(&[2, 512]) {
                assert_eq!(decoded.size_bytes(&[2, 512]), Some(size_bytes), "{name}");
            }
        }
    }
}
