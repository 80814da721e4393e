//! Tokens to trees: expressions. One function a level of precedence, the weakest first.

use super::ast::{BinaryOp, CompareOp, Expr, ExprKind};
use super::lexer::Token;
use super::parser::{ParseResult, TemplateParser};
use super::value::Value;

/// Names that end a tuple where a value might follow.
fn ends_tuple(token: &Token, words: &[&str]) -> bool {
    match token {
        Token::VariableEnd | Token::BlockEnd | Token::Op(")") | Token::End => true,
        Token::Name(name) => words.contains(&&**name),
        _ => false,
    }
}

impl TemplateParser {
    pub(super) fn expr(&self, kind: ExprKind, line: u32) -> Expr {
        Expr { kind, line }
    }

    /// An expression, or several with commas between, which are a tuple.
    pub(super) fn tuple(&mut self, with_condition: bool) -> ParseResult<Expr> {
        self.tuple_before(with_condition, &[])
    }

    /// The same, up to one of some words.
    pub(super) fn tuple_before(
        &mut self,
        with_condition: bool,
        words: &[&str],
    ) -> ParseResult<Expr> {
        let line = self.line();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            if !items.is_empty() || is_tuple {
                self.expect_op(",")?;
            }
            if ends_tuple(self.peek(), words) {
                break;
            }
            items.push(match with_condition {
                true => self.expression()?,
                false => self.deeper(TemplateParser::or)?,
            });
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
        }
        match (is_tuple, items.pop()) {
            (false, Some(only)) => Ok(only),
            (_, Some(last)) => {
                items.push(last);
                Ok(self.expr(ExprKind::Tuple(items), line))
            }
            (_, None) => self.unexpected("an expression"),
        }
    }

    /// One expression.
    pub(super) fn expression(&mut self) -> ParseResult<Expr> {
        self.deeper(TemplateParser::condition)
    }

    fn condition(&mut self) -> ParseResult<Expr> {
        let mut value = self.or()?;
        while self.is_name("if") {
            let line = self.line();
            self.next();
            let test = self.or()?;
            let otherwise = match self.skip_name("else") {
                true => Some(Box::new(self.deeper(TemplateParser::condition)?)),
                false => None,
            };
            value = self.expr(ExprKind::Cond(Box::new([test, value]), otherwise), line);
        }
        Ok(value)
    }

    fn or(&mut self) -> ParseResult<Expr> {
        let mut left = self.and()?;
        while self.is_name("or") {
            let line = self.line();
            self.next();
            let right = self.and()?;
            left = self.expr(ExprKind::Or(Box::new([left, right])), line);
        }
        Ok(left)
    }

    fn and(&mut self) -> ParseResult<Expr> {
        let mut left = self.not()?;
        while self.is_name("and") {
            let line = self.line();
            self.next();
            let right = self.not()?;
            left = self.expr(ExprKind::And(Box::new([left, right])), line);
        }
        Ok(left)
    }

    fn not(&mut self) -> ParseResult<Expr> {
        if !self.is_name("not") {
            return self.compare();
        }
        let line = self.line();
        self.next();
        let value = self.deeper(TemplateParser::not)?;
        Ok(self.expr(ExprKind::Not(Box::new(value)), line))
    }

    fn compare_op(&mut self) -> Option<CompareOp> {
        let op = match self.peek() {
            Token::Op("==") => CompareOp::Eq,
            Token::Op("!=") => CompareOp::Ne,
            Token::Op("<") => CompareOp::Lt,
            Token::Op("<=") => CompareOp::Le,
            Token::Op(">") => CompareOp::Gt,
            Token::Op(">=") => CompareOp::Ge,
            Token::Name(name) if &**name == "in" => CompareOp::In,
            Token::Name(name) if &**name == "not" => match self.peek_second() {
                Token::Name(second) if &**second == "in" => {
                    self.next();
                    CompareOp::NotIn
                }
                _ => return None,
            },
            _ => return None,
        };
        self.next();
        Some(op)
    }

    fn compare(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(op) = self.compare_op() {
            rest.push((op, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(self.expr(ExprKind::Compare(Box::new(first), rest), line))
    }

    fn binary(
        &mut self,
        ops: &[(&str, BinaryOp)],
        operand: fn(&mut TemplateParser) -> ParseResult<Expr>,
    ) -> ParseResult<Expr> {
        let mut left = operand(self)?;
        while let Some((_, op)) = ops.iter().find(|(text, _)| self.is_op(text)) {
            let line = self.line();
            self.next();
            let right = operand(self)?;
            left = self.expr(ExprKind::Binary(*op, Box::new([left, right])), line);
        }
        Ok(left)
    }

    fn sum(&mut self) -> ParseResult<Expr> {
        let ops = [("+", BinaryOp::Add), ("-", BinaryOp::Sub)];
        self.binary(&ops, TemplateParser::concat)
    }

    fn concat(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_op("~") {
            all.push(self.product()?);
        }
        Ok(self.expr(ExprKind::Concat(all), line))
    }

    fn product(&mut self) -> ParseResult<Expr> {
        let ops = [
            ("*", BinaryOp::Mul),
            ("/", BinaryOp::Div),
            ("//", BinaryOp::FloorDiv),
            ("%", BinaryOp::Mod),
        ];
        self.binary(&ops, TemplateParser::power)
    }

    fn power(&mut self) -> ParseResult<Expr> {
        self.binary(&[("**", BinaryOp::Pow)], |parser| parser.unary(true))
    }

    fn unary(&mut self, with_filter: bool) -> ParseResult<Expr> {
        let line = self.line();
        let is_neg = self.is_op("-");
        let value = if is_neg || self.is_op("+") {
            self.next();
            let value = Box::new(self.deeper(|parser| parser.unary(false))?);
            let kind = if is_neg {
                ExprKind::Neg(value)
            } else {
                ExprKind::Pos(value)
            };
            self.expr(kind, line)
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        match with_filter {
            true => self.filter_expr(value),
            false => Ok(value),
        }
    }

    pub(super) fn primary(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        let token = self.peek().clone();
        let kind = match token {
            Token::Name(name) => match &*name {
                "true" | "True" => ExprKind::Const(Value::Bool(true)),
                "false" | "False" => ExprKind::Const(Value::Bool(false)),
                "none" | "None" => ExprKind::Const(Value::None),
                _ => ExprKind::Name(self.name().map(|_| name)?),
            },
            Token::Str(text) => {
                let mut all = text.to_string();
                while let (Token::Str(_), Token::Str(more)) = (self.peek(), self.peek_second()) {
                    all.push_str(more);
                    self.next();
                }
                ExprKind::Const(Value::from(all))
            }
            Token::Int(n) => ExprKind::Const(Value::Int(n)),
            Token::Float(n) => ExprKind::Const(Value::Float(n)),
            Token::Op("(") => return self.parenthesized(),
            Token::Op("[") => return self.list(),
            Token::Op("{") => return self.dict(),
            _ => return self.unexpected("an expression"),
        };
        if !matches!(kind, ExprKind::Name(_)) {
            self.next();
        }
        Ok(self.expr(kind, line))
    }

    fn parenthesized(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        self.next();
        if self.skip_op(")") {
            return Ok(self.expr(ExprKind::Tuple(Vec::new()), line));
        }
        let inside = self.tuple(true)?;
        self.expect_op(")")?;
        Ok(inside)
    }

    fn list(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        self.next();
        let mut items = Vec::new();
        while !self.is_op("]") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("]") {
                break;
            }
            items.push(self.expression()?);
        }
        self.expect_op("]")?;
        Ok(self.expr(ExprKind::List(items), line))
    }

    fn dict(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        self.next();
        let mut items = Vec::new();
        while !self.is_op("}") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("}") {
                break;
            }
            let key = self.expression()?;
            self.expect_op(":")?;
            items.push((key, self.expression()?));
        }
        self.expect_op("}")?;
        Ok(self.expr(ExprKind::Dict(items), line))
    }

    pub(super) fn postfix(&mut self, mut value: Expr) -> ParseResult<Expr> {
        loop {
            value = match self.peek() {
                Token::Op(".") => self.field(value)?,
                Token::Op("[") => self.item(value)?,
                Token::Op("(") => self.call(value)?,
                _ => return Ok(value),
            };
        }
    }

    fn filter_expr(&mut self, mut value: Expr) -> ParseResult<Expr> {
        loop {
            value = match self.peek() {
                Token::Op("|") => {
                    self.next();
                    self.one_filter(Some(value))?
                }
                Token::Name(name) if &**name == "is" => self.test(value)?,
                Token::Op("(") => self.call(value)?,
                _ => return Ok(value),
            };
        }
    }

    fn call(&mut self, callee: Expr) -> ParseResult<Expr> {
        let line = self.line();
        let args = self.call_args()?;
        Ok(self.expr(ExprKind::Call(Box::new(callee), Box::new(args)), line))
    }

    fn field(&mut self, object: Expr) -> ParseResult<Expr> {
        let line = self.line();
        self.next();
        match self.peek().clone() {
            Token::Name(name) => {
                self.next();
                Ok(self.expr(ExprKind::Attr(Box::new(object), name), line))
            }
            Token::Int(n) => {
                self.next();
                let key = self.expr(ExprKind::Const(Value::Int(n)), line);
                Ok(self.expr(ExprKind::Item(Box::new([object, key])), line))
            }
            _ => self.unexpected("a name or a number"),
        }
    }

    fn item(&mut self, object: Expr) -> ParseResult<Expr> {
        let line = self.line();
        self.next();
        let mut keys = Vec::new();
        while !self.is_op("]") {
            if !keys.is_empty() {
                self.expect_op(",")?;
            }
            keys.push(self.subscript()?);
        }
        self.expect_op("]")?;
        let key = match keys.len() {
            1 => keys.remove(0),
            _ => self.expr(ExprKind::Tuple(keys), line),
        };
        Ok(self.expr(ExprKind::Item(Box::new([object, key])), line))
    }

    fn subscript(&mut self) -> ParseResult<Expr> {
        let line = self.line();
        let mut parts: [Option<Expr>; 3] = [None, None, None];
        if !self.is_op(":") {
            let first = self.expression()?;
            if !self.is_op(":") {
                return Ok(first);
            }
            parts[0] = Some(first);
        }
        for part in &mut parts[1..] {
            if !self.skip_op(":") {
                break;
            }
            if !matches!(self.peek(), Token::Op(":" | "]" | ",")) {
                *part = Some(self.expression()?);
            }
        }
        Ok(self.expr(ExprKind::Slice(Box::new(parts)), line))
    }
}
