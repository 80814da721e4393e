//! Affine expressions and maps, as expressions over values of the program.

use super::lexer::TokenKind;
use super::op::Op;
use super::parser::MlirParser;
use super::{Attribute, SyntaxError, Type};

/// A whole number that follows from values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AffineExpression {
    Constant(i64),
    /// A value by its name; within a map the name of a dimension or symbol.
    Value(String),
    /// An op of `arith` on two.
    Of(&'static str, Box<[AffineExpression; 2]>),
}

impl AffineExpression {
    fn of(op: &'static str, a: AffineExpression, b: AffineExpression) -> AffineExpression {
        AffineExpression::Of(op, Box::new([a, b]))
    }

    /// This expression with a map's names replaced by the given values.
    fn with(&self, names: &[String], values: &[String]) -> AffineExpression {
        match self {
            AffineExpression::Constant(value) => AffineExpression::Constant(*value),
            AffineExpression::Value(name) => {
                let found = names.iter().zip(values).find(|row| row.0 == name);
                AffineExpression::Value(found.map_or(name, |row| row.1).clone())
            }
            AffineExpression::Of(op, both) => {
                AffineExpression::of(op, both[0].with(names, values), both[1].with(names, values))
            }
        }
    }
}

/// A map: names of its dimensions and symbols, and its results.
struct AffineMap {
    names: Vec<String>,
    results: Vec<AffineExpression>,
}

impl MlirParser<'_> {
    /// `%i * 4 + 1`: sums of products.
    fn affine(&mut self) -> Result<AffineExpression, SyntaxError> {
        let mut sum = self.affine_product()?;
        loop {
            if self.eat("+") {
                sum = AffineExpression::of("arith.addi", sum, self.affine_product()?);
            } else if self.eat("-") {
                sum = AffineExpression::of("arith.subi", sum, self.affine_product()?);
            } else {
                return Ok(sum);
            }
        }
    }

    fn affine_product(&mut self) -> Result<AffineExpression, SyntaxError> {
        const OPS: [(&str, &str); 3] = [
            ("*", "arith.muli"),
            ("floordiv", "arith.floordivsi"),
            ("ceildiv", "arith.ceildivsi"),
        ];
        let mut product = self.affine_factor()?;
        loop {
            if let Some((sign, op)) = OPS.iter().find(|row| self.is(row.0)) {
                self.expect(sign)?;
                product = AffineExpression::of(op, product, self.affine_factor()?);
            } else if self.eat("mod") {
                // Never negative: the remainder of the quotient, rounded down.
                let by = self.affine_factor()?;
                let quotient =
                    AffineExpression::of("arith.floordivsi", product.clone(), by.clone());
                let whole = AffineExpression::of("arith.muli", quotient, by);
                product = AffineExpression::of("arith.subi", product, whole);
            } else {
                return Ok(product);
            }
        }
    }

    fn affine_factor(&mut self) -> Result<AffineExpression, SyntaxError> {
        let token = self.peek();
        match (token.kind, token.text) {
            (TokenKind::Value, _) => self.value().map(AffineExpression::Value),
            (TokenKind::Integer, _) => self.integer().map(AffineExpression::Constant),
            (_, "-") => {
                self.take();
                let of = self.affine_factor()?;
                Ok(AffineExpression::of(
                    "arith.subi",
                    AffineExpression::Constant(0),
                    of,
                ))
            }
            (_, "(") => self.deeper(|parser| {
                parser.expect("(")?;
                let inner = parser.affine()?;
                parser.expect(")")?;
                Ok(inner)
            }),
            (TokenKind::Word, "symbol") => {
                self.take();
                self.expect("(")?;
                let of = self.value()?;
                self.expect(")")?;
                Ok(AffineExpression::Value(of))
            }
            (TokenKind::Word, _) => {
                self.take();
                Ok(AffineExpression::Value(token.text.to_owned()))
            }
            _ => self.fail(format!("expected a whole number, found {}", token.name())),
        }
    }

    /// `affine_map<(d0)[s0] -> (d0 + s0)>`, or the name of one.
    fn affine_map(&mut self) -> Result<AffineMap, SyntaxError> {
        let token = self.peek();
        if token.kind == TokenKind::Hash {
            let Some(place) = self.alias(token.text) else {
                return self.fail(format!("there is no map {}", token.name()));
            };
            self.take();
            return self.at_place(place, Self::affine_map);
        }
        self.expect("affine_map")?;
        self.expect("<")?;
        let word = |parser: &mut Self| Ok(parser.take().text.to_owned());
        let mut names = self.list("(", ")", word)?;
        if self.is("[") {
            names.extend(self.list("[", "]", word)?);
        }
        self.expect("->")?;
        let results = self.list("(", ")", Self::affine)?;
        self.expect(">")?;
        Ok(AffineMap { names, results })
    }

    /// A map over the loops of a `linalg` op: its results by the loops' names.
    pub(super) fn map_of_loops(&mut self) -> Result<Attribute, SyntaxError> {
        let map = self.affine_map()?;
        let loops: Vec<String> = (0..map.names.len()).map(super::linalg::loop_name).collect();
        let result = |of: &AffineExpression| Attribute::Affine(of.with(&map.names, &loops));
        Ok(Attribute::Array(map.results.iter().map(result).collect()))
    }

    /// A map applied to values: its results.
    fn affine_call(&mut self) -> Result<Vec<AffineExpression>, SyntaxError> {
        let map = self.affine_map()?;
        let mut values = self.list("(", ")", Self::value)?;
        if self.is("[") {
            values.extend(self.list("[", "]", Self::value)?);
        }
        if values.len() != map.names.len() {
            let (n, names) = (values.len(), map.names.len());
            return self.fail(format!("{n} values for a map of {names}"));
        }
        let result = |of: &AffineExpression| of.with(&map.names, &values);
        Ok(map.results.iter().map(result).collect())
    }

    /// Results of a map as one: the only one, or the largest or smallest.
    fn affine_one(&mut self, op: Option<&'static str>) -> Result<AffineExpression, SyntaxError> {
        let mut results = self.affine_call()?.into_iter();
        let Some(first) = results.next() else {
            return self.fail("a map without a result");
        };
        match op {
            Some(op) => Ok(results.fold(first, |a, b| AffineExpression::of(op, a, b))),
            None if results.len() == 0 => Ok(first),
            None => self.fail("a map of several results"),
        }
    }

    fn affine_bound(&mut self) -> Result<AffineExpression, SyntaxError> {
        if self.eat("max") {
            return self.affine_one(Some("arith.maxsi"));
        }
        if self.eat("min") {
            return self.affine_one(Some("arith.minsi"));
        }
        match self.peek().kind {
            TokenKind::Hash => self.affine_one(None),
            TokenKind::Word => self.affine_one(None),
            _ => self.affine_factor(),
        }
    }

    fn affine_indices(&mut self) -> Result<Attribute, SyntaxError> {
        let one = |parser: &mut Self| parser.affine().map(Attribute::Affine);
        self.list("[", "]", one).map(Attribute::Array)
    }
}

/// `%i = 0 to 16 step 2 iter_args(%x = %y) -> (types) {…}`.
pub(super) fn affine_for(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    let mut names = vec![parser.value()?];
    parser.expect("=")?;
    let first = parser.affine_bound()?;
    op.set("lower", Attribute::Affine(first));
    parser.expect("to")?;
    let end = parser.affine_bound()?;
    op.set("upper", Attribute::Affine(end));
    let step = match parser.eat("step") {
        true => parser.integer()?,
        false => 1,
    };
    if step < 1 {
        return parser.fail("a loop's step is 1 or more");
    }
    op.set("step", Attribute::Integer(step));
    super::irregular::carried_values(parser, op, &mut names)?;
    let arguments = names.into_iter().map(|name| (name, Type::Index));
    op.regions.push(parser.region(arguments.collect())?);
    parser.dictionary(op)
}

/// `affine_map<…>(%i)`.
pub(super) fn apply(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    let fold = match op.name.as_str() {
        "affine.min" => Some("arith.minsi"),
        "affine.max" => Some("arith.maxsi"),
        _ => None,
    };
    let value = parser.affine_one(fold)?;
    op.set("value", Attribute::Affine(value));
    parser.dictionary(op)
}

/// `%m[%i + 1] : type`.
pub(super) fn load(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    op.operands.push(parser.value()?);
    let indices = parser.affine_indices()?;
    op.set("indices", indices);
    parser.dictionary(op)?;
    parser.expect(":")?;
    op.types.push(parser.type_()?);
    Ok(())
}

/// `%v, %m[%i + 1] : type`.
pub(super) fn store(parser: &mut MlirParser<'_>, op: &mut Op) -> Result<(), SyntaxError> {
    op.operands.push(parser.value()?);
    parser.expect(",")?;
    load(parser, op)
}
