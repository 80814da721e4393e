//! Tokens to trees: statements.

use super::ast::{BlockDef, Body, Expr, ExprKind, ForLoop, MacroDef, Stmt, StmtKind};
use super::lexer::{SyntaxFault, Token, tokens};
use super::{check, targets};
use std::rc::Rc;

/// Levels of nested statements. Python, which Jinja2 compiles to, has about as many.
const MAX_BLOCKS: u32 = 100;

/// Levels of nested expressions.
const MAX_LEVELS: u32 = 200;

pub(crate) type ParseResult<T> = Result<T, SyntaxFault>;

/// Reads tokens. A statement's parts are in this file, an expression's in `expression.rs`.
pub(crate) struct TemplateParser {
    tokens: Vec<(Token, u32)>,
    pub(super) at: usize,
    blocks: u32,
    pub(super) levels: u32,
    /// Loops around the current statement, within the innermost function.
    loops: u32,
    block_names: Vec<Rc<str>>,
}

/// The statements of a source.
pub(crate) fn parse(source: &str) -> ParseResult<Body> {
    let mut parser = TemplateParser {
        tokens: tokens(source)?,
        at: 0,
        blocks: 0,
        levels: 0,
        loops: 0,
        block_names: Vec::new(),
    };
    let body = parser.body(&[])?;
    check::names_are_known(&body)?;
    Ok(body)
}

impl TemplateParser {
    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)].0
    }

    pub(super) fn peek_second(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.at.min(self.tokens.len() - 1)].1
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    pub(super) fn fault<T>(&self, message: impl Into<String>) -> ParseResult<T> {
        Err(SyntaxFault {
            message: message.into(),
            line: self.line(),
        })
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Token::Op(found) if *found == op)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if &**found == name)
    }

    pub(super) fn skip_op(&mut self, op: &str) -> bool {
        let is = self.is_op(op);
        self.at += usize::from(is);
        is
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let is = self.is_name(name);
        self.at += usize::from(is);
        is
    }

    pub(super) fn expect_op(&mut self, op: &str) -> ParseResult<()> {
        match self.skip_op(op) {
            true => Ok(()),
            false => self.unexpected(&format!("\"{op}\"")),
        }
    }

    fn expect_name(&mut self, name: &str) -> ParseResult<()> {
        match self.skip_name(name) {
            true => Ok(()),
            false => self.unexpected(&format!("\"{name}\"")),
        }
    }

    fn expect(&mut self, token: &Token, what: &str) -> ParseResult<()> {
        if self.peek() == token {
            self.at += 1;
            return Ok(());
        }
        self.unexpected(what)
    }

    pub(super) fn unexpected<T>(&self, expected: &str) -> ParseResult<T> {
        let found = match self.peek() {
            Token::Data(_) => "text".to_owned(),
            Token::Name(name) => format!("\"{name}\""),
            Token::Op(op) => format!("\"{op}\""),
            Token::Str(text) => format!("the string {text:?}"),
            Token::Int(n) => n.to_string(),
            Token::Float(n) => n.to_string(),
            Token::VariableBegin => "{{".to_owned(),
            Token::VariableEnd => "the end of the expression".to_owned(),
            Token::BlockBegin => "{%".to_owned(),
            Token::BlockEnd => "the end of the tag".to_owned(),
            Token::End => "the end of the template".to_owned(),
        };
        self.fault(format!("expected {expected}, found {found}"))
    }

    pub(super) fn name(&mut self) -> ParseResult<Rc<str>> {
        match self.peek().clone() {
            Token::Name(name) if !name.starts_with(|c: char| c.is_numeric()) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Enters a level, up to a bound.
    pub(super) fn deeper<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        if self.levels == MAX_LEVELS {
            return self.fault(format!("more than {MAX_LEVELS} expressions in one another"));
        }
        self.levels += 1;
        let result = inside(self);
        self.levels -= 1;
        result
    }

    /// Statements up to a tag of one of some names, which is not read; to the end if there are none.
    fn body(&mut self, ends: &[&str]) -> ParseResult<Body> {
        if self.blocks == MAX_BLOCKS {
            return self.fault(format!("more than {MAX_BLOCKS} blocks in one another"));
        }
        self.blocks += 1;
        let mut body = Body::new();
        loop {
            let line = self.line();
            match self.next() {
                Token::Data(text) => body.push(Stmt {
                    kind: StmtKind::Data(text),
                    line,
                }),
                Token::VariableBegin => {
                    let expr = self.tuple(true)?;
                    self.expect(&Token::VariableEnd, "the end of the expression")?;
                    let kind = StmtKind::Print(vec![expr]);
                    body.push(Stmt { kind, line });
                }
                Token::BlockBegin => {
                    if matches!(self.peek(), Token::Name(name) if ends.contains(&&**name)) {
                        break;
                    }
                    body.push(self.statement()?);
                    self.expect(&Token::BlockEnd, "the end of the tag")?;
                }
                _ if ends.is_empty() => break,
                _ => {
                    return self.fault(format!(
                        "the template ends where {} is missing",
                        ends.join(" or ")
                    ));
                }
            }
        }
        self.blocks -= 1;
        Ok(body)
    }

    /// The rest of an opening tag, and the statements up to the closing one, which is read up to the name.
    fn block(&mut self, ends: &[&str]) -> ParseResult<Body> {
        self.skip_op(":");
        self.expect(&Token::BlockEnd, "the end of the tag")?;
        let body = self.body(ends)?;
        Ok(body)
    }

    /// A block with one closing tag.
    fn closed(&mut self, end: &str) -> ParseResult<Body> {
        let body = self.block(&[end])?;
        self.at += 1;
        Ok(body)
    }

    /// A block that is compiled to a function: loops around it do not count inside.
    fn function(&mut self, end: &str) -> ParseResult<Body> {
        let loops = std::mem::take(&mut self.loops);
        let body = self.closed(end);
        self.loops = loops;
        body
    }

    fn statement(&mut self) -> ParseResult<Stmt> {
        let line = self.line();
        let Token::Name(name) = self.peek().clone() else {
            return self.unexpected("the name of a tag");
        };
        self.at += 1;
        let kind = match &*name {
            "if" => self.if_statement()?,
            "for" => self.for_loop()?,
            "set" => self.set()?,
            "macro" => {
                let name = self.name()?;
                StmtKind::Macro(Rc::new(self.macro_def(Some(name), "endmacro")?))
            }
            "call" => self.call_block()?,
            "generation" => {
                let def = self.finish_macro(None, Vec::new(), Vec::new(), "endgeneration")?;
                StmtKind::Generation(Rc::new(def))
            }
            "filter" => {
                let filter = self.filters(None)?;
                let Some(filter) = filter else {
                    return self.unexpected("a filter");
                };
                StmtKind::FilterBlock(filter, self.closed("endfilter")?)
            }
            "print" => self.print()?,
            "with" => self.with()?,
            "autoescape" => {
                let on = self.expression()?;
                StmtKind::AutoEscape(on, self.closed("endautoescape")?)
            }
            "block" => self.named_block()?,
            "break" | "continue" if self.loops == 0 => {
                return self.fault(format!("\"{name}\" outside of a loop"));
            }
            "break" => StmtKind::Break,
            "continue" => StmtKind::Continue,
            "include" | "import" | "from" | "extends" => self.load(&name)?,
            other => return self.fault(format!("no tag is called \"{other}\" here")),
        };
        Ok(Stmt { kind, line })
    }

    fn if_statement(&mut self) -> ParseResult<StmtKind> {
        let mut branches = Vec::new();
        loop {
            let test = self.tuple(false)?;
            let body = self.block(&["elif", "else", "endif"])?;
            branches.push((test, body));
            if !self.skip_name("elif") {
                break;
            }
        }
        let otherwise = match self.skip_name("else") {
            true => self.block(&["endif"])?,
            false => Body::new(),
        };
        self.at += 1;
        Ok(StmtKind::If(branches, otherwise))
    }

    fn for_loop(&mut self) -> ParseResult<StmtKind> {
        let target = self.target(&["in"])?;
        if targets::assigns(&target, "loop") {
            return self.fault("a loop cannot assign to \"loop\"");
        }
        self.expect_name("in")?;
        let iter = self.tuple_before(false, &["recursive"])?;
        let test = match self.skip_name("if") {
            true => Some(self.expression()?),
            false => None,
        };
        let is_recursive = self.skip_name("recursive");
        self.loops += 1;
        let body = self.block(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = match self.skip_name("else") {
            true => self.block(&["endfor"])?,
            false => Body::new(),
        };
        self.at += 1;
        Ok(StmtKind::For(Rc::new(ForLoop {
            target,
            iter,
            test,
            is_recursive,
            body,
            otherwise,
        })))
    }

    fn set(&mut self) -> ParseResult<StmtKind> {
        let target = match (self.peek().clone(), self.peek_second()) {
            (Token::Name(_), Token::Op(".")) => self.attr_target()?,
            _ => self.target(&[])?,
        };
        if self.skip_op("=") {
            return Ok(StmtKind::Set(target, self.tuple(true)?));
        }
        let filter = match self.is_op("|") {
            true => {
                self.at += 1;
                self.filters(None)?
            }
            false => None,
        };
        Ok(StmtKind::SetBlock(target, filter, self.closed("endset")?))
    }

    fn macro_def(&mut self, name: Option<Rc<str>>, end: &str) -> ParseResult<MacroDef> {
        let (params, defaults) = self.signature()?;
        self.finish_macro(name, params, defaults, end)
    }

    fn finish_macro(
        &mut self,
        name: Option<Rc<str>>,
        params: Vec<Rc<str>>,
        defaults: Vec<Expr>,
        end: &str,
    ) -> ParseResult<MacroDef> {
        let body = self.function(end)?;
        check::macro_def(name, params, defaults, body).or_else(|reason| self.fault(reason))
    }

    fn call_block(&mut self) -> ParseResult<StmtKind> {
        let (params, defaults) = match self.is_op("(") {
            true => self.signature()?,
            false => Default::default(),
        };
        let call = self.expression()?;
        if !matches!(call.kind, ExprKind::Call(..)) {
            return self.fault("a call block needs a call");
        }
        let caller = self.finish_macro(None, params, defaults, "endcall")?;
        Ok(StmtKind::CallBlock(Rc::new(caller), call))
    }

    fn print(&mut self) -> ParseResult<StmtKind> {
        let mut all = Vec::new();
        while *self.peek() != Token::BlockEnd {
            if !all.is_empty() {
                self.expect_op(",")?;
            }
            all.push(self.expression()?);
        }
        Ok(StmtKind::Print(all))
    }

    fn with(&mut self) -> ParseResult<StmtKind> {
        let mut all = Vec::new();
        while *self.peek() != Token::BlockEnd {
            if !all.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.one_target()?;
            self.expect_op("=")?;
            all.push((target, self.expression()?));
        }
        Ok(StmtKind::With(all, self.closed("endwith")?))
    }

    fn named_block(&mut self) -> ParseResult<StmtKind> {
        let name = self.name()?;
        if self.block_names.contains(&name) {
            return self.fault(format!("two blocks are called \"{name}\""));
        }
        self.block_names.push(Rc::clone(&name));
        let is_scoped = self.skip_name("scoped");
        let is_required = self.skip_name("required");
        let body = self.function("endblock")?;
        self.skip_name(&name);
        Ok(StmtKind::Block(Rc::new(BlockDef {
            name,
            is_scoped,
            is_required,
            body,
        })))
    }

    /// A statement that would load another template: it parses, and fails when it is reached.
    fn load(&mut self, name: &str) -> ParseResult<StmtKind> {
        self.expression()?;
        while *self.peek() != Token::BlockEnd {
            if *self.peek() == Token::End {
                return self.unexpected("the end of the tag");
            }
            self.at += 1;
        }
        Ok(StmtKind::Load(match name {
            "include" => "include",
            "extends" => "extends",
            _ => "import",
        }))
    }
}
