//! Tokens to trees: the parts that may follow an expression: arguments, filters, tests.

use super::ast::{CallArgs, Expr, ExprKind};
use super::lexer::Token;
use super::parser::{ParseResult, TemplateParser};
use std::rc::Rc;

impl TemplateParser {
    pub(super) fn call_args(&mut self) -> ParseResult<CallArgs> {
        self.expect_op("(")?;
        let mut args = CallArgs::default();
        let mut is_first = true;
        while !self.is_op(")") {
            if !is_first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            is_first = false;
            self.argument(&mut args)?;
        }
        self.expect_op(")")?;
        Ok(args)
    }

    fn argument(&mut self, args: &mut CallArgs) -> ParseResult<()> {
        let in_order = |is_in_order: bool, parser: &TemplateParser| match is_in_order {
            true => Ok(()),
            false => parser.fault("arguments in a wrong order"),
        };
        if self.skip_op("*") {
            in_order(args.more.is_none() && args.more_named.is_none(), self)?;
            args.more = Some(self.expression()?);
        } else if self.skip_op("**") {
            in_order(args.more_named.is_none(), self)?;
            args.more_named = Some(self.expression()?);
        } else if let (Token::Name(name), Token::Op("=")) =
            (self.peek().clone(), self.peek_second())
        {
            in_order(args.more_named.is_none(), self)?;
            if args.named.iter().any(|(known, _)| *known == name) {
                return self.fault(format!("two arguments are called \"{name}\""));
            }
            self.next();
            self.next();
            let value = self.expression()?;
            args.named.push((name, value));
        } else {
            let is_first = args.more.is_none() && args.more_named.is_none();
            in_order(is_first && args.named.is_empty(), self)?;
            args.positional.push(self.expression()?);
        }
        Ok(())
    }

    /// A name with dots.
    fn dotted(&mut self) -> ParseResult<Rc<str>> {
        let mut name = self.name()?.to_string();
        while self.skip_op(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name.into())
    }

    pub(super) fn one_filter(&mut self, value: Option<Expr>) -> ParseResult<Expr> {
        let line = self.line();
        let name = self.dotted()?;
        let args = match self.is_op("(") {
            true => self.call_args()?,
            false => CallArgs::default(),
        };
        let kind = ExprKind::Filter(value.map(Box::new), name, Box::new(args));
        Ok(self.expr(kind, line))
    }

    /// Filters one after another, without a value before the first.
    pub(super) fn filters(&mut self, value: Option<Expr>) -> ParseResult<Option<Expr>> {
        let mut filter = self.one_filter(value)?;
        while self.skip_op("|") {
            filter = self.one_filter(Some(filter))?;
        }
        Ok(Some(filter))
    }

    pub(super) fn test(&mut self, value: Expr) -> ParseResult<Expr> {
        let line = self.line();
        self.next();
        let is_negated = self.skip_name("not");
        let name = self.dotted()?;
        let args = match self.peek() {
            Token::Op("(") => self.call_args()?,
            Token::Name(word) if matches!(&**word, "else" | "or" | "and") => CallArgs::default(),
            Token::Name(word) if &**word == "is" => {
                return self.fault("tests cannot follow one another");
            }
            Token::Name(_)
            | Token::Str(_)
            | Token::Int(_)
            | Token::Float(_)
            | Token::Op("[" | "{") => {
                let argument = self.primary()?;
                CallArgs {
                    positional: vec![self.postfix(argument)?],
                    ..CallArgs::default()
                }
            }
            _ => CallArgs::default(),
        };
        let test = self.expr(ExprKind::Test(Box::new(value), name, Box::new(args)), line);
        match is_negated {
            true => Ok(self.expr(ExprKind::Not(Box::new(test)), line)),
            false => Ok(test),
        }
    }
}
