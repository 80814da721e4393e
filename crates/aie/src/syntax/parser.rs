//! Ops, blocks, regions and attributes.

mod literal;

use super::form::FormPart;
use super::lexer::{MlirToken, TokenKind, tokens};
use super::op::{Op, OpBlock, Region, Successor};
use super::types::Type;
use super::{Location, SyntaxError, table};
use std::collections::BTreeMap;

/// Bytes of a text, at most.
const MOST_BYTES: usize = 32 << 20;
/// Deepest nesting of regions and lists.
const MOST_DEPTH: u32 = 100;

/// The ops at the top of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Op>, SyntaxError> {
    if text.len() > MOST_BYTES {
        let problem = format!("the text has {} bytes, more than 32 MiB", text.len());
        return Err(SyntaxError::new(Location { line: 1, column: 1 }, problem));
    }
    let mut parser = MlirParser {
        text,
        tokens: tokens(text)?,
        next: 0,
        depth: 0,
        aliases: BTreeMap::new(),
    };
    let mut ops = Vec::new();
    while parser.peek().kind != TokenKind::End {
        if let Some(op) = parser.op()? {
            ops.push(op);
        }
    }
    Ok(ops)
}

/// Reads words one after the other.
pub(super) struct MlirParser<'t> {
    text: &'t str,
    tokens: Vec<MlirToken<'t>>,
    next: usize,
    depth: u32,
    /// Position of the value of a name such as `#map`.
    aliases: BTreeMap<&'t str, usize>,
}

impl<'t> MlirParser<'t> {
    pub(super) fn peek(&self) -> MlirToken<'t> {
        self.ahead(0)
    }

    pub(super) fn ahead(&self, n: usize) -> MlirToken<'t> {
        let last = self.tokens.len() - 1;
        self.tokens[(self.next + n).min(last)]
    }

    pub(super) fn take(&mut self) -> MlirToken<'t> {
        let token = self.peek();
        self.next += 1;
        token
    }

    pub(super) fn is(&self, sign: &str) -> bool {
        let token = self.peek();
        token.text == sign && matches!(token.kind, TokenKind::Sign | TokenKind::Word)
    }

    /// Takes a sign or word if it is next.
    pub(super) fn eat(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.next += usize::from(found);
        found
    }

    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(self.peek().at, problem))
    }

    pub(super) fn expect(&mut self, sign: &str) -> Result<(), SyntaxError> {
        match self.eat(sign) {
            true => Ok(()),
            false => self.fail(format!("expected `{sign}`, found {}", self.peek().name())),
        }
    }

    /// The name after a sigil.
    pub(super) fn name(&mut self, kind: TokenKind, what: &str) -> Result<String, SyntaxError> {
        let token = self.peek();
        if token.kind != kind || token.text.len() < 2 {
            return self.fail(format!("expected {what}, found {}", token.name()));
        }
        self.next += 1;
        Ok(unquoted(&token.text[1..]))
    }

    pub(super) fn value(&mut self) -> Result<String, SyntaxError> {
        self.name(TokenKind::Value, "a value such as `%0`")
    }

    pub(super) fn symbol(&mut self) -> Result<String, SyntaxError> {
        let name = self.name(TokenKind::Symbol, "a symbol such as `@name`")?;
        // `@device::@name` has the meaning of `@name` within its device.
        if self.is(":") && self.ahead(1).text == ":" && self.ahead(2).kind == TokenKind::Symbol {
            self.next += 2;
            return self.symbol();
        }
        Ok(name)
    }

    pub(super) fn integer(&mut self) -> Result<i64, SyntaxError> {
        let negative = self.eat("-");
        let token = self.peek();
        if token.kind != TokenKind::Integer {
            return self.fail(format!("expected a whole number, found {}", token.name()));
        }
        let digits = token.text.strip_prefix("0x");
        let value = match digits {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|v| v as i64),
            // Constants of unsigned types may use all 64 bits.
            None => token
                .text
                .parse::<i64>()
                .or_else(|_| token.text.parse::<u64>().map(|v| v as i64))
                .ok(),
        };
        let Some(value) = value else {
            return self.fail(format!("{} is too large", token.name()));
        };
        self.next += 1;
        Ok(if negative {
            value.wrapping_neg()
        } else {
            value
        })
    }

    /// Position of a name's value.
    pub(super) fn alias(&self, name: &str) -> Option<usize> {
        self.aliases.get(name).copied()
    }

    /// Reads at another position, and returns here.
    pub(super) fn at_place<T>(
        &mut self,
        place: usize,
        read: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        let here = std::mem::replace(&mut self.next, place);
        let read = self.deeper(read);
        self.next = here;
        read
    }

    pub(super) fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= MOST_DEPTH {
            return self.fail(format!("more than {MOST_DEPTH} levels within one another"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Elements between two signs, with commas.
    pub(super) fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut read: impl FnMut(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        self.expect(open)?;
        self.deeper(|parser| {
            let mut all = Vec::new();
            while !parser.is(close) {
                all.push(read(parser)?);
                if !parser.eat(",") {
                    break;
                }
            }
            parser.expect(close)?;
            Ok(all)
        })
    }

    /// Skips everything between two signs.
    pub(super) fn skip_between(&mut self) -> Result<(), SyntaxError> {
        let mut open = 0u32;
        loop {
            let token = self.take();
            match token.text {
                "(" | "[" | "{" | "<" if token.kind == TokenKind::Sign => open += 1,
                ")" | "]" | "}" | ">" if token.kind == TokenKind::Sign => {
                    open = open.saturating_sub(1)
                }
                _ if token.kind == TokenKind::End => {
                    return self.fail("the text ends within brackets");
                }
                _ => {}
            }
            if open == 0 {
                return Ok(());
            }
        }
    }

    /// A type, by its text up to where its brackets close.
    pub(super) fn type_(&mut self) -> Result<Type, SyntaxError> {
        let first = self.peek();
        if !matches!(first.kind, TokenKind::Word | TokenKind::Bang) {
            return self.fail(format!("expected a type, found {}", first.name()));
        }
        self.next += 1;
        if self.is("<") {
            self.skip_between()?;
        }
        let last = self.tokens[self.next - 1];
        let end = last.start + last.text.len();
        let text = self.text.get(first.start..end).unwrap_or_default();
        Type::read(text).map_err(|problem| SyntaxError::new(first.at, problem))
    }

    /// Types of a function: those of operands, then those of results.
    pub(super) fn function_type(&mut self) -> Result<(Vec<Type>, Vec<Type>), SyntaxError> {
        let from = self.list("(", ")", Self::type_)?;
        self.expect("->")?;
        let to = match self.is("(") {
            true => self.list("(", ")", Self::type_)?,
            false => vec![self.type_()?],
        };
        Ok((from, to))
    }

    /// Attributes in braces, if there are any.
    pub(super) fn dictionary(&mut self, op: &mut Op) -> Result<(), SyntaxError> {
        if self.is("{") {
            op.attributes.extend(self.list("{", "}", Self::field)?);
        }
        Ok(())
    }

    /// `^label(%a, %b : i32, i32)`.
    pub(super) fn successor(&mut self) -> Result<Successor, SyntaxError> {
        let label = self.name(TokenKind::Label, "a block such as `^bb1`")?;
        let mut operands = Vec::new();
        if self.eat("(") {
            while self.peek().kind == TokenKind::Value {
                operands.push(self.value()?);
                self.eat(",");
            }
            if self.eat(":") {
                while !self.is(")") {
                    self.type_()?;
                    self.eat(",");
                }
            }
            self.expect(")")?;
        }
        Ok(Successor { label, operands })
    }

    pub(super) fn block_argument(&mut self) -> Result<(String, Type), SyntaxError> {
        let name = self.value()?;
        self.expect(":")?;
        let of = self.type_()?;
        if self.is("{") {
            self.skip_between()?;
        }
        self.location()?;
        Ok((name, of))
    }

    /// `loc(…)`, if present.
    fn location(&mut self) -> Result<(), SyntaxError> {
        if self.is("loc") && self.ahead(1).text == "(" {
            self.next += 1;
            self.skip_between()?;
        }
        Ok(())
    }

    /// Blocks in braces.
    pub(super) fn region(&mut self, arguments: Vec<(String, Type)>) -> Result<Region, SyntaxError> {
        self.expect("{")?;
        self.deeper(|parser| {
            let mut region = Region::default();
            let mut block = OpBlock {
                arguments,
                ..OpBlock::default()
            };
            loop {
                if parser.eat("}") {
                    break;
                }
                if parser.peek().kind == TokenKind::Label {
                    let label = parser.name(TokenKind::Label, "a block")?;
                    let arguments = match parser.is("(") {
                        true => parser.list("(", ")", Self::block_argument)?,
                        false => Vec::new(),
                    };
                    parser.expect(":")?;
                    let is_first =
                        region.blocks.is_empty() && block.ops.is_empty() && block.label.is_empty();
                    if is_first && block.arguments.is_empty() {
                        block.label = label;
                        block.arguments = arguments;
                        continue;
                    }
                    let new = OpBlock {
                        label,
                        arguments,
                        ops: Vec::new(),
                    };
                    region.blocks.push(std::mem::replace(&mut block, new));
                    continue;
                }
                if parser.peek().kind == TokenKind::End {
                    return parser.fail("the text ends within a body");
                }
                if let Some(op) = parser.op()? {
                    block.ops.push(op);
                }
            }
            region.blocks.push(block);
            Ok(region)
        })
    }

    /// An op; none for an alias such as `#map = …`.
    fn op(&mut self) -> Result<Option<Op>, SyntaxError> {
        let first = self.peek();
        if matches!(first.kind, TokenKind::Hash | TokenKind::Bang) && self.ahead(1).text == "=" {
            self.next += 2;
            self.aliases.insert(first.text, self.next);
            self.attribute()?;
            return Ok(None);
        }
        let results = self.results()?;
        let name = self.take();
        let mut op = match name.kind {
            TokenKind::Word => Op::new(name.text, name.at),
            TokenKind::Text => Op::new(&unquoted(name.text), name.at),
            _ => {
                let problem = format!("expected an op, found {}", name.name());
                return Err(SyntaxError::new(name.at, problem));
            }
        };
        op.results = results;
        let read = match name.kind {
            TokenKind::Text => self.generic(&mut op),
            _ => match table::form(&op.name) {
                Some(form) => self.parts(form, &mut op),
                None => Err(SyntaxError::new(op.at, table::unknown(&op.name))),
            },
        };
        read.map_err(|error| error.in_op(&op.name))?;
        self.location()?;
        Ok(Some(op))
    }

    /// `%a, %b:2 =`, if present.
    fn results(&mut self) -> Result<Vec<String>, SyntaxError> {
        const MOST_RESULTS: i64 = 64;
        let mut results = Vec::new();
        if self.peek().kind != TokenKind::Value {
            return Ok(results);
        }
        loop {
            let name = self.value()?;
            match self.eat(":") {
                true => {
                    let count = self.integer()?;
                    if !(1..=MOST_RESULTS).contains(&count) {
                        return self.fail(format!("{count} results"));
                    }
                    results.extend((0..count).map(|i| format!("{name}#{i}")));
                }
                false => results.push(name),
            }
            if !self.eat(",") {
                break;
            }
        }
        self.expect("=")?;
        Ok(results)
    }

    /// `"name"(operands)[successors]<{properties}>({regions}) {attributes} : type`.
    fn generic(&mut self, op: &mut Op) -> Result<(), SyntaxError> {
        op.operands = self.list("(", ")", Self::value)?;
        if self.is("[") {
            op.successors = self.list("[", "]", Self::successor)?;
        }
        if self.eat("<") {
            self.dictionary(op)?;
            self.expect(">")?;
        }
        if self.is("(") {
            op.regions = self.list("(", ")", |parser| parser.region(Vec::new()))?;
        }
        self.dictionary(op)?;
        self.expect(":")?;
        let (from, to) = self.function_type()?;
        op.types.extend(from);
        op.types.extend(to);
        match table::form(&op.name) {
            Some(_) => {
                super::dialect::normalise(op);
                Ok(())
            }
            None => Err(SyntaxError::new(op.at, table::unknown(&op.name))),
        }
    }

    pub(super) fn parts(&mut self, parts: &[FormPart], op: &mut Op) -> Result<(), SyntaxError> {
        parts.iter().try_for_each(|part| part.read(self, op))
    }
}

/// A string without its quotes; other text as it is.
fn unquoted(text: &str) -> String {
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(text).replace("\\\"", "\"")
}
