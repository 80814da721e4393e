//! The dialect `index`: ops of `arith` on indices by other names.

use super::op::Op;
use super::parser::MlirParser;
use super::{Attribute, SyntaxError, Type};

/// Names of ops on two indices, and those of `arith` that do the same.
const BINARY: [(&str, &str); 18] = [
    ("index.add", "arith.addi"),
    ("index.sub", "arith.subi"),
    ("index.mul", "arith.muli"),
    ("index.divs", "arith.divsi"),
    ("index.divu", "arith.divui"),
    ("index.ceildivs", "arith.ceildivsi"),
    ("index.floordivs", "arith.floordivsi"),
    ("index.rems", "arith.remsi"),
    ("index.remu", "arith.remui"),
    ("index.maxs", "arith.maxsi"),
    ("index.maxu", "arith.maxui"),
    ("index.mins", "arith.minsi"),
    ("index.minu", "arith.minui"),
    ("index.and", "arith.andi"),
    ("index.or", "arith.ori"),
    ("index.xor", "arith.xori"),
    ("index.shl", "arith.shli"),
    ("index.shrs", "arith.shrsi"),
];

/// `%a, %b`.
pub(super) fn binary(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    op.operands.push(parser.value()?);
    parser.expect(",")?;
    op.operands.push(parser.value()?);
    parser.dictionary(op)?;
    op.types.push(Type::Index);
    if let Some((_, same)) = BINARY.iter().find(|row| row.0 == op.name) {
        (*same).clone_into(&mut op.name);
    }
    Ok(())
}

/// `eq(%a, %b)`.
pub(super) fn compare(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    let predicate = parser.take().text.to_owned();
    op.set("predicate", Attribute::Word(predicate));
    parser.expect("(")?;
    op.operands.push(parser.value()?);
    parser.expect(",")?;
    op.operands.push(parser.value()?);
    parser.expect(")")?;
    parser.dictionary(op)?;
    op.types.push(Type::Index);
    "arith.cmpi".clone_into(&mut op.name);
    Ok(())
}

/// `4`.
pub(super) fn constant(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    let value = parser.integer()?;
    op.set("value", Attribute::Integer(value));
    op.types.push(Type::Index);
    "arith.constant".clone_into(&mut op.name);
    Ok(())
}

/// `%a : i32 to index`.
pub(super) fn cast(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    op.operands.push(parser.value()?);
    parser.dictionary(op)?;
    parser.expect(":")?;
    op.types.push(parser.type_()?);
    parser.expect("to")?;
    op.types.push(parser.type_()?);
    let same = match op.name.as_str() {
        "index.castu" => "arith.index_castui",
        _ => "arith.index_cast",
    };
    same.clone_into(&mut op.name);
    Ok(())
}
