//! Attributes' values.

use super::{MlirParser, unquoted};
use crate::syntax::SyntaxError;
use crate::syntax::attribute::{Attribute, Dense};
use crate::syntax::lexer::TokenKind;
use crate::syntax::types::Type;
use std::collections::BTreeMap;

impl MlirParser<'_> {
    /// An attribute's value.
    pub(in crate::syntax) fn attribute(&mut self) -> Result<Attribute, SyntaxError> {
        self.deeper(Self::attribute_here)
    }

    fn attribute_here(&mut self) -> Result<Attribute, SyntaxError> {
        let token = self.peek();
        match (token.kind, token.text) {
            (TokenKind::Text, _) => {
                self.next += 1;
                Ok(Attribute::Text(unquoted(token.text)))
            }
            (TokenKind::Symbol, _) => self.symbol().map(Attribute::Symbol),
            (TokenKind::Value, _) => self.value().map(Attribute::Value),
            (TokenKind::Integer | TokenKind::Float, _) | (_, "-") => self.numeral(),
            (_, "[") => self.list("[", "]", Self::attribute).map(Attribute::Array),
            (_, "{") => self.fields("{", "}"),
            (_, "<") => self.fields("<", ">"),
            (TokenKind::Hash, _) => {
                self.next += 1;
                // A packet's or iteration's fields are of use; an alias or map is not looked at.
                match (self.is("<"), self.ahead(2).text) {
                    (true, "=") => self.fields("<", ">"),
                    // `#aie<bd_pad_layout_array[…]>` is a list.
                    (true, "[") => {
                        self.next += 2;
                        let all = self.list("[", "]", Self::attribute)?;
                        self.expect(">").map(|()| Attribute::Array(all))
                    }
                    (true, _) => self.skip_between().map(|()| Attribute::Other),
                    (false, _) => Ok(Attribute::Other),
                }
            }
            (TokenKind::Word, "dense") => self.dense(),
            (TokenKind::Word, "array") => self.array(),
            (TokenKind::Word, "true" | "false") => {
                self.next += 1;
                Ok(Attribute::Bool(token.text == "true"))
            }
            (TokenKind::Word, "unit") => {
                self.next += 1;
                Ok(Attribute::Unit)
            }
            (TokenKind::Word, "affine_map" | "affine_set" | "loc" | "strided") => {
                self.next += 1;
                self.skip_between().map(|()| Attribute::Other)
            }
            (TokenKind::Word | TokenKind::Bang, _) => self.word_or_type(),
            (TokenKind::Sign, "(") => {
                let (from, to) = self.function_type()?;
                let types =
                    |of: Vec<Type>| Attribute::Array(of.into_iter().map(Attribute::Type).collect());
                Ok(Attribute::Array(vec![types(from), types(to)]))
            }
            _ => self.fail(format!("expected a value, found {}", token.name())),
        }
    }

    /// A bare word, or a type.
    fn word_or_type(&mut self) -> Result<Attribute, SyntaxError> {
        let (word, is_plain) = (self.peek(), self.ahead(1).text != "<");
        let of = self.type_()?;
        Ok(match of {
            Type::Other(_) if is_plain => Attribute::Word(word.text.to_owned()),
            of => Attribute::Type(of),
        })
    }

    /// A number, its type passed over.
    pub(in crate::syntax) fn numeral(&mut self) -> Result<Attribute, SyntaxError> {
        self.typed_numeral().map(|(value, _)| value)
    }

    /// A number, and its type if present.
    pub(in crate::syntax) fn typed_numeral(
        &mut self,
    ) -> Result<(Attribute, Option<Type>), SyntaxError> {
        let sign = if self.is("-") { 1 } else { 0 };
        let token = self.ahead(sign);
        let value = match token.kind {
            TokenKind::Float => {
                self.next += sign + 1;
                let value: f64 = token.text.parse().unwrap_or(f64::NAN);
                Attribute::Float(if sign == 1 { -value } else { value })
            }
            _ => Attribute::Integer(self.integer()?),
        };
        if self.is(":") && matches!(self.ahead(1).kind, TokenKind::Word | TokenKind::Bang) {
            self.next += 1;
            let of = self.type_()?;
            // A whole number of a float's type is its value, or its bits in hexadecimal.
            let value = match value {
                Attribute::Integer(whole) if of.is_float() && token.text.starts_with("0x") => {
                    Attribute::Float(float_of_bits(&of, whole))
                }
                Attribute::Integer(whole) if of.is_float() => Attribute::Float(whole as f64),
                value => value,
            };
            return Ok((value, Some(of)));
        }
        Ok((value, None))
    }

    /// `dense<…> : type`. If the type is absent, the user of the attribute knows it.
    fn dense(&mut self) -> Result<Attribute, SyntaxError> {
        let at = self.take().at;
        self.expect("<")?;
        let mut numbers = Vec::new();
        if !self.is(">") {
            let first = self.attribute()?;
            flatten(first, &mut numbers);
        }
        self.expect(">")?;
        let of = match self.eat(":") {
            true => self.type_()?,
            false => Type::Other(String::new()),
        };
        let is_number = |a: &Attribute| {
            matches!(
                a,
                Attribute::Integer(_) | Attribute::Float(_) | Attribute::Bool(_)
            )
        };
        match numbers.iter().all(is_number) {
            true => Ok(Attribute::Dense(Box::new(Dense { numbers, of }))),
            false => Err(SyntaxError::new(at, "`dense` of what is no number")),
        }
    }

    /// `array<i64: 1, 2>`.
    fn array(&mut self) -> Result<Attribute, SyntaxError> {
        self.next += 1;
        self.expect("<")?;
        self.type_()?;
        let mut all = Vec::new();
        if self.eat(":") {
            loop {
                all.push(self.attribute()?);
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.expect(">")?;
        Ok(Attribute::Array(all))
    }

    /// `name = value, …` between two signs.
    fn fields(&mut self, open: &str, close: &str) -> Result<Attribute, SyntaxError> {
        let fields = self.list(open, close, Self::field)?;
        Ok(Attribute::Fields(
            fields.into_iter().collect::<BTreeMap<_, _>>(),
        ))
    }

    pub(in crate::syntax) fn field(&mut self) -> Result<(String, Attribute), SyntaxError> {
        let name = self.take();
        if !matches!(name.kind, TokenKind::Word | TokenKind::Text) {
            let problem = format!("expected an attribute's name, found {}", name.name());
            return Err(SyntaxError::new(name.at, problem));
        }
        let value = match self.eat("=") || self.eat(":") {
            true => self.attribute()?,
            false => Attribute::Unit,
        };
        Ok((unquoted(name.text), value))
    }
}

fn flatten(value: Attribute, to: &mut Vec<Attribute>) {
    match value {
        Attribute::Array(all) => all.into_iter().for_each(|value| flatten(value, to)),
        other => to.push(other),
    }
}

fn float_of_bits(of: &Type, bits: i64) -> f64 {
    match of {
        Type::F32 => f32::from_bits(bits as u32).into(),
        Type::Bf16 => half::bf16::from_bits(bits as u16).into(),
        Type::F16 => half::f16::from_bits(bits as u16).into(),
        _ => f64::from_bits(bits as u64),
    }
}
