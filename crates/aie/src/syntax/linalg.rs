//! Forms of `linalg` on memrefs and tensors.

use super::op::Op;
use super::parser::MlirParser;
use super::{Attribute, SyntaxError};

/// The name of a loop of an op, by its number.
pub(crate) fn loop_name(number: usize) -> String {
    format!("loop {number} of linalg")
}

/// `{…} ins(%a, %b : types) outs(%c : types) {…} -> types`.
pub(super) fn named(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    parser.dictionary(op)?;
    sides(parser, op)?;
    parser.dictionary(op)?;
    results(parser)
}

/// The types of results on tensors are those of the outputs.
fn results(parser: &mut MlirParser<'_>) -> Result<(), SyntaxError> {
    if !parser.eat("->") {
        return Ok(());
    }
    if parser.is("(") {
        parser.list("(", ")", MlirParser::type_)?;
        return Ok(());
    }
    parser.type_().map(|_| ())
}

/// `{indexing_maps = […], iterator_types = […]} ins(…) outs(…) attrs = {…} {^bb0(…): …} -> types`.
pub(super) fn generic(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    parser.expect("{")?;
    while !parser.is("}") {
        if parser.is("indexing_maps") {
            parser.take();
            parser.expect("=")?;
            let maps = parser.list("[", "]", MlirParser::map_of_loops)?;
            op.set("indexing_maps", Attribute::Array(maps));
        } else {
            let (name, value) = parser.field()?;
            op.attributes.push((name, value));
        }
        if !parser.eat(",") {
            break;
        }
    }
    parser.expect("}")?;
    sides(parser, op)?;
    if parser.eat("attrs") {
        parser.expect("=")?;
        parser.dictionary(op)?;
    }
    op.regions.push(parser.region(Vec::new())?);
    results(parser)
}

/// Operands of both sides, each with its type; `n_inputs` is the number of those that are only read.
fn sides(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    for side in ["ins", "outs"] {
        if side == "ins" && !parser.is("ins") {
            op.set("n_inputs", Attribute::Integer(0));
            continue;
        }
        parser.expect(side)?;
        parser.expect("(")?;
        let before = op.operands.len();
        loop {
            op.operands.push(parser.value()?);
            if !parser.eat(",") {
                break;
            }
        }
        parser.expect(":")?;
        loop {
            op.types.push(parser.type_()?);
            if !parser.eat(",") {
                break;
            }
        }
        parser.expect(")")?;
        if op.operands.len() != op.types.len() {
            return parser.fail(format!("`{side}` has not a type for each value"));
        }
        if side == "ins" {
            let n = op.operands.len() - before;
            op.set("n_inputs", Attribute::Integer(n as i64));
        }
    }
    Ok(())
}
