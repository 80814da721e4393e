//! Names that the generic form has as numbers.

use super::{Attribute, Op};

/// Names of enumerations in the order of their numbers, as in mlir-aie's `AIEAttrs.td`.
const ENUMERATIONS: [(&[&str], &[&str]); 4] = [
    (
        &["source_bundle", "dest_bundle", "bundle"],
        &[
            "Core",
            "DMA",
            "FIFO",
            "South",
            "West",
            "North",
            "East",
            "PLIO",
            "NOC",
            "Trace",
            "TileControl",
        ],
    ),
    (&["channel_dir", "direction_name"], &["S2MM", "MM2S"]),
    (&["action"], &["Acquire", "Release", "AcquireGreaterEqual"]),
    (&["port"], &["Produce", "Consume"]),
];

/// Attributes of the generic form whose name here is another.
const NAMES: [(&str, &str); 4] = [
    ("dimensionsFromStreamPerConsumer", "dimensionsFromStream"),
    ("static_offsets", "offsets"),
    ("static_sizes", "sizes"),
    ("static_strides", "strides"),
];

/// Predicates in the order of their numbers.
const COMPARISONS: [(&str, &[&str]); 2] = [
    (
        "arith.cmpi",
        &[
            "eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge",
        ],
    ),
    (
        "arith.cmpf",
        &[
            "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult",
            "ule", "une", "uno", "true",
        ],
    ),
];

/// Converts the attributes of an op in generic form to those of its own form.
pub(super) fn normalise(op: &mut Op) {
    op.attributes
        .retain(|(name, _)| name != "operandSegmentSizes" && name != "resultSegmentSizes");
    for (name, value) in &mut op.attributes {
        if let Some((_, other)) = NAMES.iter().find(|(from, _)| from == name) {
            *name = (*other).to_owned();
        }
        let Attribute::Integer(number) = value else {
            continue;
        };
        let words = match name.as_str() {
            "predicate" => COMPARISONS
                .iter()
                .find(|row| row.0 == op.name)
                .map(|row| row.1),
            _ => ENUMERATIONS
                .iter()
                .find(|row| row.0.contains(&name.as_str()))
                .map(|row| row.1),
        };
        let word = words.and_then(|words| words.get(usize::try_from(*number).ok()?));
        if let Some(word) = word {
            *value = Attribute::Word((*word).to_owned());
        }
    }
}
