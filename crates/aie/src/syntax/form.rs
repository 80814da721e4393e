//! Parts of an op's own form.

use super::lexer::TokenKind;
use super::op::Op;
use super::parser::MlirParser;
use super::{Attribute, SyntaxError};

/// A part of a form. Names are those of the attributes that it defines.
pub(super) enum FormPart {
    /// A sign or word.
    Sign(&'static str),
    /// A value.
    Operand,
    /// Values with commas, perhaps none.
    Operands,
    /// A number, word, name or value.
    Any(&'static str),
    /// A whole number.
    Integer(&'static str),
    /// A bare word or string.
    Word(&'static str),
    /// `@name`.
    Symbol(&'static str),
    /// `@name`, if present.
    MaybeSymbol(&'static str),
    /// `@name, …` in brackets.
    Symbols(&'static str),
    /// Numbers and values in brackets.
    Indices(&'static str),
    /// Numbers and values in brackets, if present.
    MaybeIndices(&'static str),
    /// Anything in round brackets, with commas, if present.
    Items(&'static str),
    /// `, name = value` again and again.
    Fields,
    /// Attributes in braces, if present.
    Dictionary,
    /// Words with `<…>` that have no effect on values.
    Flags,
    Type,
    /// Types with commas, in brackets or not.
    Types,
    /// Types of operands and results.
    FunctionType,
    Region,
    /// A region whose block has the arguments given here in round brackets.
    RegionWithArguments,
    /// Regions in square brackets.
    Regions,
    Successor,
    /// Further parts.
    Parts(&'static [FormPart]),
    /// Optional parts after a sign.
    Maybe(&'static str, &'static [FormPart]),
    /// An irregular form.
    Own(fn(&mut MlirParser<'_>, &mut Op) -> Result<(), SyntaxError>),
}

impl FormPart {
    pub(super) fn read(&self, parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
        match self {
            FormPart::Sign(sign) => parser.expect(sign)?,
            FormPart::Operand => op.operands.push(parser.value()?),
            FormPart::Operands => read_operands(parser, op)?,
            FormPart::Any(name) => op.set(name, parser.attribute()?),
            FormPart::Integer(name) => {
                let value = parser.numeral()?;
                match value.integer() {
                    Some(_) => op.set(name, value),
                    None => return parser.fail(format!("`{name}` is no whole number")),
                }
            }
            FormPart::Word(name) => {
                let token = parser.take();
                if !matches!(token.kind, TokenKind::Word | TokenKind::Text) {
                    let problem = format!("expected a word, found {}", token.name());
                    return Err(SyntaxError::new(token.at, problem));
                }
                op.set(
                    name,
                    Attribute::Word(token.text.trim_matches('"').to_owned()),
                );
            }
            // Older texts have strings for some names.
            FormPart::Symbol(name) if parser.peek().kind == TokenKind::Text => {
                let text = parser.attribute()?;
                op.set(name, text);
            }
            FormPart::Symbol(name) => op.set(name, Attribute::Symbol(parser.symbol()?)),
            FormPart::MaybeSymbol(name) if parser.peek().kind == TokenKind::Symbol => {
                op.set(name, Attribute::Symbol(parser.symbol()?));
            }
            FormPart::Symbols(name) | FormPart::Indices(name) => {
                op.set(name, list(parser, "[", "]")?);
            }
            FormPart::MaybeIndices(name) if parser.is("[") => {
                op.set(name, list(parser, "[", "]")?);
            }
            FormPart::Items(name) if parser.is("(") => {
                op.set(name, items(parser)?);
            }
            _ => self.read_structure(parser, op)?,
        }
        Ok(())
    }

    /// Types, regions, and parts of parts.
    fn read_structure(&self, parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
        match self {
            FormPart::Fields => {
                while parser.eat(",") {
                    // Tasks have their packets without a name.
                    if parser.is("<") {
                        op.set("packet", parser.attribute()?);
                        continue;
                    }
                    let (name, value) = parser.field()?;
                    op.attributes.push((name, value));
                }
            }
            FormPart::Dictionary => parser.dictionary(op)?,
            FormPart::Flags => read_flags(parser)?,
            FormPart::Type => op.types.push(parser.type_()?),
            FormPart::Types => read_types(parser, op)?,
            FormPart::FunctionType => {
                let (from, to) = parser.function_type()?;
                op.types.extend(from);
                op.types.extend(to);
            }
            FormPart::Region => op.regions.push(parser.region(Vec::new())?),
            FormPart::RegionWithArguments => {
                let arguments = parser.list("(", ")", MlirParser::block_argument)?;
                if parser.eat("attributes") {
                    parser.dictionary(op)?;
                }
                op.regions.push(parser.region(arguments)?);
            }
            FormPart::Regions => op.regions = parser.list("[", "]", |p| p.region(Vec::new()))?,
            FormPart::Successor => op.successors.push(parser.successor()?),
            FormPart::Maybe(sign, parts) if parser.eat(sign) => parser.parts(parts, op)?,
            FormPart::Parts(parts) => parser.parts(parts, op)?,
            FormPart::Own(read) => read(parser, op)?,
            // Optional parts that are absent.
            _ => {}
        }
        Ok(())
    }
}

fn list(parser: &mut MlirParser<'_>, open: &str, close: &str) -> Result<Attribute, SyntaxError> {
    Ok(Attribute::Array(parser.list(
        open,
        close,
        MlirParser::attribute,
    )?))
}

/// `(%a, 4, <…> : i32, i32)`: types are redundant.
fn items(parser: &mut MlirParser<'_>) -> Result<Attribute, SyntaxError> {
    let all = parser.list("(", ")", |parser| {
        let value = parser.attribute()?;
        if parser.eat(":") {
            parser.type_()?;
            while parser.eat(",") {
                parser.type_()?;
            }
        }
        Ok(value)
    })?;
    Ok(Attribute::Array(all))
}

fn read_operands(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    while parser.peek().kind == TokenKind::Value {
        op.operands.push(parser.value()?);
        if !parser.eat(",") {
            break;
        }
    }
    Ok(())
}

fn read_types(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    if parser.is("(") {
        op.types.extend(parser.list("(", ")", MlirParser::type_)?);
        return Ok(());
    }
    loop {
        op.types.push(parser.type_()?);
        if !parser.eat(",") {
            return Ok(());
        }
    }
}

/// `fastmath<fast>`, `overflow<nsw>`, `restrict`: they permit a compiler transformations that an interpreter does not do.
fn read_flags(parser: &mut MlirParser<'_>) -> Result<(), SyntaxError> {
    const FLAGS: [&str; 8] = [
        "fastmath",
        "overflow",
        "exact",
        "nneg",
        "to_nearest_even",
        "restrict",
        "writable",
        "read_only",
    ];
    while FLAGS.contains(&parser.peek().text) {
        parser.take();
        if parser.is("<") {
            parser.list("<", ">", MlirParser::attribute)?;
        }
    }
    Ok(())
}
