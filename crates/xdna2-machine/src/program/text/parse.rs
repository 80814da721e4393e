//! Parsing: the parser's tools and the program itself. Every loop takes at least one token, recursion is bounded by
//! [`MAX_NESTING`](crate::program::MAX_NESTING), and nothing is allocated ahead of the text.

use super::ParseError;
use super::lexer::{Lexer, Position, Token, unescape};
use crate::program::Program;
use std::collections::HashMap;

/// Reads the text form of a program.
///
/// The result has every reference resolved. [`Flat::new`](crate::program::Flat::new) and the verifier decide whether it
/// makes sense.
///
/// # Errors
/// The text is not in the grammar, a name is not declared or a number is too large: line, column, expected and found
/// token.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    let mut parser = ProgramParser::new(text)?;
    parser.word("xdna2")?;
    let at = parser.at;
    let version: u32 = parser.number("a version")?;
    if version != super::VERSION {
        let known = super::VERSION;
        return Err(at.error(format!(
            "version {version} of the text form; known is {known}"
        )));
    }
    parser.word("program")?;
    let mut program = Program {
        name: parser.name()?,
        slots: Vec::new(),
        launches: Vec::new(),
    };
    let mut slots = NameTable::new("slot");
    parser.mark("{")?;
    while !parser.take_mark("}")? {
        if parser.take_word("slot")? {
            let slot = parser.slot()?;
            slots.declare(&slot.name);
            program.slots.push(slot);
        } else {
            parser.word("launch")?;
            let launch = parser.launch(&slots)?;
            program.launches.push(launch);
        }
    }
    match parser.token {
        Token::End => Ok(program),
        _ => Err(parser.expected("the end of the text")),
    }
}

impl std::str::FromStr for Program {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Program, ParseError> {
        parse(text)
    }
}

/// Declared names of one kind.
pub(super) struct NameTable {
    kind: &'static str,
    count: usize,
    /// Position by name; `None` where two have it.
    by_name: HashMap<String, Option<usize>>,
}

impl NameTable {
    pub(super) fn new(kind: &'static str) -> NameTable {
        NameTable {
            kind,
            count: 0,
            by_name: HashMap::new(),
        }
    }

    pub(super) fn declare(&mut self, name: &str) {
        let position = self.count;
        self.by_name
            .entry(name.to_owned())
            .and_modify(|p| *p = None)
            .or_insert(Some(position));
        self.count += 1;
    }

    /// The names of a launch's arguments: those of its slots.
    pub(super) fn of_arguments(&self, args: &[usize]) -> NameTable {
        let mut names: Vec<Option<&str>> = vec![None; self.count];
        for (name, position) in &self.by_name {
            if let Some(position) = *position {
                names[position] = Some(name);
            }
        }
        let mut arguments = NameTable::new("argument");
        for &slot in args {
            match names.get(slot).copied().flatten() {
                Some(name) => arguments.declare(name),
                None => arguments.count += 1,
            }
        }
        arguments
    }

    fn find(&self, name: &str) -> Result<usize, String> {
        let kind = self.kind;
        match self.by_name.get(name) {
            Some(Some(position)) => Ok(*position),
            Some(None) => Err(format!(
                "{kind} {name:?} is declared more than once: use #number"
            )),
            None => Err(format!("there is no {kind} {name:?} above")),
        }
    }
}

pub(super) struct ProgramParser<'t> {
    lexer: Lexer<'t>,
    pub token: Token<'t>,
    pub at: Position,
}

impl<'t> ProgramParser<'t> {
    fn new(text: &'t str) -> Result<ProgramParser<'t>, ParseError> {
        let mut lexer = Lexer::new(text);
        let (token, at) = lexer.next()?;
        Ok(ProgramParser { lexer, token, at })
    }

    /// Takes the token.
    pub(super) fn bump(&mut self) -> Result<Token<'t>, ParseError> {
        let (token, at) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// The error for another token than the expected one.
    pub(super) fn expected(&self, what: &str) -> ParseError {
        let found = match self.token {
            Token::Word(text) | Token::Text(text) | Token::Number(text) | Token::Mark(text) => {
                let short: String = text.chars().take(40).collect();
                format!("`{short}`")
            }
            Token::End => "the end of the text".to_owned(),
        };
        self.at.error(format!("expected {what}, found {found}"))
    }

    pub(super) fn take_word(&mut self, word: &str) -> Result<bool, ParseError> {
        let here = self.token == Token::Word(word);
        if here {
            self.bump()?;
        }
        Ok(here)
    }

    pub(super) fn word(&mut self, word: &str) -> Result<(), ParseError> {
        match self.take_word(word)? {
            true => Ok(()),
            false => Err(self.expected(&format!("`{word}`"))),
        }
    }

    pub(super) fn take_mark(&mut self, mark: &str) -> Result<bool, ParseError> {
        let here = self.token == Token::Mark(mark);
        if here {
            self.bump()?;
        }
        Ok(here)
    }

    pub(super) fn mark(&mut self, mark: &str) -> Result<(), ParseError> {
        match self.take_mark(mark)? {
            true => Ok(()),
            false => Err(self.expected(&format!("`{mark}`"))),
        }
    }

    pub(super) fn name(&mut self) -> Result<String, ParseError> {
        let at = self.at;
        match self.token {
            Token::Word(word) => {
                self.bump()?;
                Ok(word.to_owned())
            }
            Token::Text(text) => {
                self.bump()?;
                unescape(text).map_err(|message| at.error(message))
            }
            _ => Err(self.expected("a name")),
        }
    }

    /// A decimal whole number that fits `T`.
    pub(super) fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T, ParseError> {
        let at = self.at;
        let Token::Number(text) = self.token else {
            return Err(self.expected(what));
        };
        let value = text.parse::<u64>().ok().and_then(|v| T::try_from(v).ok());
        let value = value.ok_or_else(|| {
            let short: String = text.chars().take(40).collect();
            at.error(format!("{short} is not {what}, or too large for it"))
        })?;
        self.bump()?;
        Ok(value)
    }

    /// `name` or `#number`, as a position among the names.
    pub(super) fn reference(&mut self, names: &NameTable) -> Result<usize, ParseError> {
        let at = self.at;
        if self.take_mark("#")? {
            return self.number("a number");
        }
        let name = self.name()?;
        names.find(&name).map_err(|message| at.error(message))
    }

    /// `open item, item close`.
    pub(super) fn list<T>(
        &mut self,
        (open, close): (&str, &str),
        item: impl Fn(&mut ProgramParser<'t>) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        self.mark(open)?;
        let mut items = Vec::new();
        if self.take_mark(close)? {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if !self.take_mark(",")? {
                self.mark(close)?;
                return Ok(items);
            }
        }
    }

    pub(super) fn sizes(&mut self) -> Result<Vec<u32>, ParseError> {
        self.list(("[", "]"), |p| p.number("a size"))
    }

    /// Sizes, which may be left out if there are none.
    pub(super) fn optional_sizes(&mut self) -> Result<Vec<u32>, ParseError> {
        match self.token {
            Token::Mark("[") => self.sizes(),
            _ => Ok(Vec::new()),
        }
    }
}
