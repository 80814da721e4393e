//! Tokens to trees: targets of assignments, and the parameters of macros.

use super::ast::{AssignTarget, Expr};
use super::lexer::Token;
use super::parser::{ParseResult, TemplateParser};
use std::rc::Rc;

impl TemplateParser {
    pub(super) fn attr_target(&mut self) -> ParseResult<AssignTarget> {
        let name = self.name()?;
        self.expect_op(".")?;
        let attr = self.name()?;
        match self.is_op(",") {
            true => self.more_targets(AssignTarget::Attr(name, attr), &[]),
            false => Ok(AssignTarget::Attr(name, attr)),
        }
    }

    /// A name or several, up to a word.
    pub(super) fn target(&mut self, ends: &[&str]) -> ParseResult<AssignTarget> {
        let first = self.one_target()?;
        match self.is_op(",") {
            true => self.more_targets(first, ends),
            false => Ok(first),
        }
    }

    fn more_targets(&mut self, first: AssignTarget, ends: &[&str]) -> ParseResult<AssignTarget> {
        let mut all = vec![first];
        while self.skip_op(",") {
            let is_end = matches!(self.peek(), Token::Name(name) if ends.contains(&&**name));
            if is_end || self.is_op("=") || self.is_op(")") || *self.peek() == Token::BlockEnd {
                break;
            }
            all.push(self.one_target()?);
        }
        Ok(AssignTarget::Tuple(all))
    }

    pub(super) fn one_target(&mut self) -> ParseResult<AssignTarget> {
        if self.skip_op("(") {
            let inside = self.deeper(|parser| parser.target(&[]))?;
            self.expect_op(")")?;
            return Ok(inside);
        }
        let name = self.name()?;
        if matches!(
            &*name,
            "true" | "false" | "none" | "True" | "False" | "None"
        ) {
            return self.fault(format!("\"{name}\" cannot be assigned to"));
        }
        if self.is_op(".") {
            self.at += 1;
            return Ok(AssignTarget::Attr(name, self.name()?));
        }
        Ok(AssignTarget::Name(name))
    }

    /// Parameters with the defaults of the last ones.
    pub(super) fn signature(&mut self) -> ParseResult<(Vec<Rc<str>>, Vec<Expr>)> {
        let (mut params, mut defaults) = (Vec::new(), Vec::new());
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !params.is_empty() {
                self.expect_op(",")?;
            }
            let name = self.name()?;
            if params.contains(&name) {
                return self.fault(format!("two parameters are called \"{name}\""));
            }
            params.push(name);
            if self.skip_op("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.fault("a parameter without a default follows one with a default");
            }
        }
        self.expect_op(")")?;
        Ok((params, defaults))
    }
}

/// Whether a target holds a name.
pub(super) fn assigns(target: &AssignTarget, name: &str) -> bool {
    match target {
        AssignTarget::Name(found) => &**found == name,
        AssignTarget::Attr(..) => false,
        AssignTarget::Tuple(all) => all.iter().any(|target| assigns(target, name)),
    }
}
