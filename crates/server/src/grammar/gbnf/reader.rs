//! Parser for GBNF.

use std::collections::HashMap;
use std::fmt::Write;

use super::{GbnfError, Part};

/// Maximum number of rules of a grammar.
const MAX_RULES: usize = 4096;

/// Maximum nesting of brackets.
const MAX_NESTING: usize = 64;

/// Maximum number of repetitions that are written out, as in llama.cpp.
const MAX_REPEATS: u32 = 2000;

/// Whether a character is allowed in a rule's name.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// The rules, and the index of the root.
pub(super) struct GbnfRules {
    pub(super) list: Vec<Part>,
    pub(super) root: usize,
}

/// A parser over a grammar's text.
pub(super) struct GbnfReader<'a> {
    source: &'a str,
    at: usize,
    depth: usize,
    names: HashMap<&'a str, usize>,
    /// For each rule, its definition if there is one, and the line of its first mention.
    rules: Vec<(Option<Part>, usize)>,
}

impl<'a> GbnfReader<'a> {
    pub(super) fn new(source: &'a str) -> GbnfReader<'a> {
        GbnfReader {
            source,
            at: 0,
            depth: 0,
            names: HashMap::new(),
            rules: Vec::new(),
        }
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, GbnfError> {
        let line = self.source[..self.at].matches('\n').count() + 1;
        let message = message.into();
        Err(GbnfError { line, message })
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        self.at += if is_next { text.len() } else { 0 };
        is_next
    }

    /// Skips blanks and comments, and also line breaks if `lines` is set.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\n' | '\r' if lines => self.at += 1,
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<&'a str, GbnfError> {
        let rest = self.rest();
        let n = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if n == 0 {
            return self.fail("expected the name of a rule");
        }
        self.at += n;
        Ok(&rest[..n])
    }

    fn rule(&mut self, name: &'a str) -> Result<usize, GbnfError> {
        if self.rules.len() >= MAX_RULES {
            return self.fail(format!("at most {MAX_RULES} rules are accepted"));
        }
        let line = self.source[..self.at].matches('\n').count() + 1;
        let n = self.names.len();
        let index = *self.names.entry(name).or_insert(n);
        if index == n {
            self.rules.push((None, line));
        }
        Ok(index)
    }

    pub(super) fn rules(&mut self) -> Result<(), GbnfError> {
        self.space(true);
        while self.peek().is_some() {
            let name = self.name()?;
            let rule = self.rule(name)?;
            self.space(false);
            if !self.take("::=") {
                return self.fail(format!("expected ::= behind `{name}`"));
            }
            self.space(true);
            let body = self.options(false)?;
            self.rules[rule].0 = Some(body);
            match self.peek() {
                None | Some('\n' | '\r') => {}
                Some(c) => return self.fail(format!("`{c}` is not expected here")),
            }
            self.space(true);
        }
        Ok(())
    }

    fn options(&mut self, nested: bool) -> Result<Part, GbnfError> {
        let mut options = vec![self.sequence(nested)?];
        while self.take("|") {
            self.space(true);
            options.push(self.sequence(nested)?);
        }
        Ok(match options.len() {
            1 => options.remove(0),
            _ => Part::Options(options),
        })
    }

    fn sequence(&mut self, nested: bool) -> Result<Part, GbnfError> {
        let mut parts: Vec<Part> = Vec::new();
        while let Some(c) = self.peek() {
            let part = match c {
                '"' => self.text()?,
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    Part::Class("(?s:.)".to_owned())
                }
                '(' => self.group()?,
                '<' | '!' => {
                    return self.fail("tokens (`<…>`) are not supported; write their text");
                }
                c if is_name(c) => {
                    let name = self.name()?;
                    Part::Rule(self.rule(name)?)
                }
                _ => break,
            };
            let part = self.repeated(part)?;
            parts.push(part);
            self.space(nested);
        }
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => Part::Sequence(parts),
        })
    }

    fn group(&mut self) -> Result<Part, GbnfError> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return self.fail(format!("brackets nest more than {MAX_NESTING} deep"));
        }
        self.at += 1;
        self.space(true);
        let part = self.options(true)?;
        if !self.take(")") {
            return self.fail("expected )");
        }
        self.depth -= 1;
        Ok(part)
    }

    fn repeated(&mut self, mut part: Part) -> Result<Part, GbnfError> {
        loop {
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.at += 1;
                    let bounds = self.bounds()?;
                    part = Part::Repeat(Box::new(part), bounds.0, bounds.1);
                    continue;
                }
                _ => return Ok(part),
            };
            self.at += 1;
            part = Part::Repeat(Box::new(part), least, most);
        }
    }

    fn bounds(&mut self) -> Result<(u32, Option<u32>), GbnfError> {
        let Some(end) = self.rest().find('}') else {
            return self.fail("expected }");
        };
        let (first, second) = match self.rest()[..end].split_once(',') {
            None => (&self.rest()[..end], None),
            Some((first, second)) => (first, Some(second)),
        };
        let number = |text: &str| {
            text.trim()
                .parse::<u32>()
                .ok()
                .filter(|n| *n <= MAX_REPEATS)
        };
        let least = match (first.trim(), second) {
            ("", Some(_)) => Some(0),
            (first, _) => number(first),
        };
        let most = match second.map(str::trim) {
            None => least.map(Some),
            Some("") => Some(None),
            Some(second) => number(second).map(Some),
        };
        match least.zip(most) {
            Some((least, most)) if most.is_none_or(|most| most >= least) => {
                self.at += end + 1;
                Ok((least, most))
            }
            _ => self.fail(format!(
                "expected {{m}}, {{m,}} or {{m,n}} of at most {MAX_REPEATS}"
            )),
        }
    }

    fn text(&mut self) -> Result<Part, GbnfError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return self.fail("a text has no end"),
                Some('"') => break,
                Some(_) => text.push(self.character()?),
            }
        }
        self.at += 1;
        Ok(Part::Text(text))
    }

    fn class(&mut self) -> Result<Part, GbnfError> {
        self.at += 1;
        let mut class = String::from(if self.take("^") { "[^" } else { "[" });
        let n_before = class.len();
        loop {
            match self.peek() {
                None | Some('\n') => return self.fail("a class of characters has no end"),
                Some(']') => break,
                Some(_) => {}
            }
            let first = self.character()?;
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let last = match is_range {
                true => {
                    self.at += 1;
                    self.character()?
                }
                false => first,
            };
            if last < first {
                return self.fail("a range of characters ends before it begins");
            }
            let _ = write!(
                class,
                "\\x{{{:x}}}-\\x{{{:x}}}",
                u32::from(first),
                u32::from(last)
            );
        }
        self.at += 1;
        if class.len() == n_before {
            return self.fail("a class of characters is empty");
        }
        class.push(']');
        Ok(Part::Class(class))
    }

    /// Reads a character, which may be escaped.
    fn character(&mut self) -> Result<char, GbnfError> {
        let Some(c) = self.peek() else {
            return self.fail("the grammar ends here");
        };
        self.at += c.len_utf8();
        if c != '\\' {
            return Ok(c);
        }
        let Some(c) = self.peek() else {
            return self.fail("the grammar ends here");
        };
        self.at += c.len_utf8();
        let n_digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'n' => return Ok('\n'),
            '\\' | '"' | '[' | ']' => return Ok(c),
            other => return self.fail(format!("there is no escape \\{other}")),
        };
        let digits = self.rest().get(..n_digits);
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.at += n_digits;
                Ok(c)
            }
            None => self.fail(format!(
                "expected {n_digits} hexadecimal digits of a character"
            )),
        }
    }

    pub(super) fn defined(self) -> Result<GbnfRules, GbnfError> {
        let mut names: Vec<&str> = vec![""; self.rules.len()];
        for (name, index) in &self.names {
            names[*index] = name;
        }
        let Some(root) = self.names.get("root").copied() else {
            let message = "there is no rule `root`".to_owned();
            return Err(GbnfError { line: 1, message });
        };
        let mut list = Vec::new();
        for (index, (rule, line)) in self.rules.into_iter().enumerate() {
            match rule {
                Some(rule) => list.push(rule),
                None => {
                    let message = format!("there is no rule `{}`", names[index]);
                    return Err(GbnfError { line, message });
                }
            }
        }
        Ok(GbnfRules { list, root })
    }
}
