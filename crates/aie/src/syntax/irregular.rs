//! Forms that no list of parts describes.

use super::lexer::TokenKind;
use super::op::Op;
use super::parser::MlirParser;
use super::{Attribute, SyntaxError};

/// `(%b : memref<…>, offset, length, [sizes and strides], [paddings]) {…}`, or with
/// `offset = … len = … sizes = […] strides = […]` after the type.
pub(super) fn descriptor(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    parser.expect("(")?;
    op.operands.push(parser.value()?);
    parser.expect(":")?;
    op.types.push(parser.type_()?);
    let mut number = 0;
    while !parser.is(")") {
        if parser.eat(",") {
            let value = parser.attribute()?;
            let name = match (&value, number) {
                (Attribute::Integer(_) | Attribute::Value(_), 0) => "offset",
                (Attribute::Integer(_) | Attribute::Value(_), _) => "len",
                (Attribute::Array(_), _) if op.get("dimensions").is_none() => "dimensions",
                (Attribute::Array(_), _) => "pad_dimensions",
                _ => return parser.fail("what a descriptor holds is numbers and lists"),
            };
            op.set(name, value);
            number += 1;
            continue;
        }
        let token = parser.take();
        const KEYWORDS: [&str; 6] = ["offset", "len", "sizes", "strides", "pad_dimensions", "pad"];
        if !KEYWORDS.contains(&token.text) {
            let problem = format!(
                "{} says nothing of a descriptor that is known here",
                token.name()
            );
            return Err(SyntaxError::new(token.at, problem));
        }
        // `pad` has no sign after it in texts of 2026.
        if !parser.eat("=") && token.text != "pad" {
            return parser.fail(format!("expected `=`, found {}", parser.peek().name()));
        }
        let value = parser.attribute()?;
        let name = if token.text == "pad" {
            "pad_dimensions"
        } else {
            token.text
        };
        op.set(name, value);
    }
    parser.expect(")")?;
    if parser.eat("bd_id_val") {
        op.set("bd_id", parser.attribute()?);
        if parser.eat(":") {
            parser.type_()?;
        }
    }
    parser.dictionary(op)
}

/// `@name(%a dimensionsToStream […], {%b dimensionsFromStream […], %c}, depth) {…} : type = […]`.
pub(super) fn object_fifo(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    let name = parser.symbol()?;
    op.set("sym_name", Attribute::Symbol(name));
    parser.expect("(")?;
    op.operands.push(parser.value()?);
    if parser.eat("dimensionsToStream") {
        op.set("dimensionsToStream", parser.attribute()?);
    }
    parser.expect(",")?;
    let mut dimensions = Vec::new();
    let consumers = parser.list("{", "}", |parser| {
        let consumer = parser.value()?;
        dimensions.push(match parser.eat("dimensionsFromStream") {
            true => parser.attribute()?,
            false => Attribute::Array(Vec::new()),
        });
        Ok(consumer)
    })?;
    op.operands.extend(consumers);
    op.set("dimensionsFromStream", Attribute::Array(dimensions));
    parser.expect(",")?;
    op.set("elemNumber", parser.attribute()?);
    parser.expect(")")?;
    parser.dictionary(op)?;
    parser.expect(":")?;
    op.types.push(parser.type_()?);
    if parser.eat("=") {
        op.set("initValues", parser.attribute()?);
    }
    Ok(())
}

/// `([0, 16] [])`, or `()`.
pub(super) fn link_offsets(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    parser.expect("(")?;
    for name in ["src_offsets", "dst_offsets"] {
        if parser.is("[") {
            op.set(name, parser.attribute()?);
        }
    }
    parser.expect(")")
}

/// `(%a[offsets][sizes][strides], packet = <…>) {…} : type`; older texts have two numbers first.
pub(super) fn memcpy(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    parser.expect("(")?;
    while parser.peek().kind == TokenKind::Integer {
        parser.take();
        parser.expect(",")?;
    }
    op.operands.push(parser.value()?);
    for name in ["offsets", "sizes", "strides"] {
        op.set(name, parser.attribute()?);
    }
    while parser.eat(",") {
        let (name, value) = parser.field()?;
        op.attributes.push((name, value));
    }
    parser.expect(")")?;
    parser.dictionary(op)?;
    parser.expect(":")?;
    op.types.push(parser.type_()?);
    Ok(())
}

/// `private @name(arguments) -> results attributes {…} {…}`.
pub(super) fn function(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    for visibility in ["private", "public", "nested"] {
        parser.eat(visibility);
    }
    let name = parser.symbol()?;
    op.set("sym_name", Attribute::Symbol(name));
    let mut arguments = Vec::new();
    parser.list("(", ")", |parser| {
        if parser.peek().kind == TokenKind::Value {
            let argument = parser.block_argument()?;
            op.types.push(argument.1.clone());
            arguments.push(argument);
        } else {
            op.types.push(parser.type_()?);
            parser.dictionary(&mut Op::new("", op.at))?;
        }
        Ok(())
    })?;
    if parser.eat("->") {
        match parser.is("(") {
            true => op.types.extend(parser.list("(", ")", MlirParser::type_)?),
            false => op.types.push(parser.type_()?),
        }
    }
    if parser.eat("attributes") {
        parser.dictionary(op)?;
    }
    if parser.is("{") {
        op.regions.push(parser.region(arguments)?);
    }
    Ok(())
}

/// `%i = %a to %b step %c iter_args(%x = %y) -> (types) : type {…}`.
pub(super) fn scf_for(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    parser.eat("unsigned");
    let variable = parser.value()?;
    parser.expect("=")?;
    op.operands.push(parser.value()?);
    parser.expect("to")?;
    op.operands.push(parser.value()?);
    parser.expect("step")?;
    op.operands.push(parser.value()?);
    let mut names = vec![variable];
    carried_values(parser, op, &mut names)?;
    if parser.eat(":") {
        parser.type_()?;
    }
    let arguments = names.into_iter().map(|name| (name, super::Type::Index));
    op.regions.push(parser.region(arguments.collect())?);
    parser.dictionary(op)
}

/// `iter_args(%x = %y) -> (types)`, if present.
pub(super) fn carried_values(
    parser: &mut MlirParser<'_>,
    op: &mut Op,
    names: &mut Vec<String>,
) -> Result<(), SyntaxError> {
    if !parser.eat("iter_args") {
        return Ok(());
    }
    carried(parser, op, names)?;
    parser.expect("->")?;
    match parser.is("(") {
        true => drop(parser.list("(", ")", MlirParser::type_)?),
        false => drop(parser.type_()?),
    }
    Ok(())
}

/// `(%x = %y, …)`: initial values become operands.
fn carried(
    parser: &mut MlirParser<'_>,
    op: &mut Op,
    names: &mut Vec<String>,
) -> Result<(), SyntaxError> {
    parser.list("(", ")", |parser| {
        names.push(parser.value()?);
        parser.expect("=")?;
        op.operands.push(parser.value()?);
        Ok(())
    })?;
    Ok(())
}

/// `(%x = %y) : (types) -> types {…} do {…}`.
pub(super) fn scf_while(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    let mut names = Vec::new();
    if parser.is("(") {
        carried(parser, op, &mut names)?;
    }
    parser.expect(":")?;
    parser.function_type()?;
    let arguments = names.into_iter().map(|name| (name, super::Type::Index));
    op.regions.push(parser.region(arguments.collect())?);
    parser.expect("do")?;
    op.regions.push(parser.region(Vec::new())?);
    parser.eat("attributes");
    parser.dictionary(op)
}

/// `%i -> types case 0 {…} … default {…}`.
pub(super) fn index_switch(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    op.operands.push(parser.value()?);
    parser.dictionary(op)?;
    if parser.eat("->") {
        match parser.is("(") {
            true => op.types.extend(parser.list("(", ")", MlirParser::type_)?),
            false => op.types.push(parser.type_()?),
        }
    }
    let mut cases = Vec::new();
    while parser.eat("case") {
        cases.push(parser.numeral()?);
        op.regions.push(parser.region(Vec::new())?);
    }
    op.set("cases", Attribute::Array(cases));
    parser.expect("default")?;
    op.regions.push(parser.region(Vec::new())?);
    Ok(())
}

/// `value : type`, `true`, `dense<…> : type`.
pub(super) fn constant(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    parser.dictionary(op)?;
    if parser.is("dense") {
        let value = parser.attribute()?;
        if let Attribute::Dense(dense) = &value {
            op.types.push(dense.of.clone());
        }
        op.set("value", value);
        return Ok(());
    }
    if parser.is("true") || parser.is("false") {
        op.types.push(super::Type::Integer {
            bits: 1,
            is_unsigned: false,
        });
        op.set("value", parser.attribute()?);
        return Ok(());
    }
    let (value, of) = parser.typed_numeral()?;
    op.set("value", value);
    op.types.push(of.unwrap_or(super::Type::Integer {
        bits: 64,
        is_unsigned: false,
    }));
    Ok(())
}

/// `"private" constant @name : type = value {…}`.
pub(super) fn global(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    if parser.peek().kind == TokenKind::Text {
        parser.take();
    }
    parser.eat("constant");
    let name = parser.symbol()?;
    op.set("sym_name", Attribute::Symbol(name));
    parser.expect(":")?;
    op.types.push(parser.type_()?);
    if parser.eat("=") && !parser.eat("uninitialized") {
        let value = parser.attribute()?;
        op.set("initial_value", value);
    }
    parser.dictionary(op)
}

/// `%m, 64 : type`; a result has the type as well.
pub(super) fn alignment(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    op.operands.push(parser.value()?);
    parser.expect(",")?;
    let alignment = parser.integer()?;
    op.set("alignment", Attribute::Integer(alignment));
    parser.dictionary(op)?;
    parser.expect(":")?;
    op.types.push(parser.type_()?);
    if parser.eat("->") {
        op.types.push(parser.type_()?);
    }
    Ok(())
}

/// `name = value name = value`, as in an op without brackets.
pub(super) fn settings(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    while parser.peek().kind == TokenKind::Word && parser.ahead(1).text == "=" {
        let (name, value) = parser.field()?;
        op.attributes.push((name, value));
    }
    parser.dictionary(op)
}

/// A body in braces that nothing here depends on.
pub(super) fn passed_over(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    if !parser.is("{") {
        return parser.fail(format!("expected a body, found {}", parser.peek().name()));
    }
    parser.skip_between()?;
    parser.dictionary(op)
}

/// `0, 2`; `?` leaves a number open.
pub(super) fn place(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    for (i, name) in ["col", "row"].into_iter().enumerate() {
        if i > 0 {
            parser.expect(",")?;
        }
        if !parser.eat("?") {
            let value = parser.integer()?;
            op.set(name, Attribute::Integer(value));
        }
    }
    Ok(())
}
