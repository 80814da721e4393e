//! Parsing: expressions, places and core programs.

use super::ParseError;
use super::lexer::Token;
use super::parse::{NameTable, ProgramParser};
use crate::program::{
    Affine, Condition, IndexRange, MAX_NESTING, Op, Operand, Pattern, Place, Var,
};
use std::collections::BTreeMap;

/// The block that a word names: `b0` to `b255`.
pub(super) fn block_name(word: &str) -> Option<u8> {
    numbered(word, 'b')
}

/// The number after a letter, written without leading zeros.
fn numbered(word: &str, letter: char) -> Option<u8> {
    let digits = word.strip_prefix(letter)?;
    let plain = digits == "0" || !digits.starts_with('0');
    (plain && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

fn variable(word: &str) -> Option<Var> {
    match word {
        "e" => Some(Var::Each),
        "x" => Some(Var::X),
        "y" => Some(Var::Y),
        _ => numbered(word, 'g')
            .map(Var::Grid)
            .or_else(|| numbered(word, 'i').map(Var::Index))
            .or_else(|| numbered(word, 'l').map(Var::Loop)),
    }
}

impl<'t> ProgramParser<'t> {
    /// A sum of terms.
    pub(super) fn affine(&mut self) -> Result<Affine, ParseError> {
        let at = self.at;
        let mut constant = 0i128;
        let mut terms: BTreeMap<Var, i128> = BTreeMap::new();
        let mut negative = self.take_mark("-")?;
        loop {
            let (var, magnitude) = self.term()?;
            let value = if negative {
                -i128::from(magnitude)
            } else {
                i128::from(magnitude)
            };
            match var {
                None => constant += value,
                Some(var) => *terms.entry(var).or_insert(0) += value,
            }
            negative = self.token == Token::Mark("-");
            if !negative && self.token != Token::Mark("+") {
                break;
            }
            self.bump()?;
        }
        let narrow = |value: i128| {
            i64::try_from(value).map_err(|_| at.error("a number of this expression is too large"))
        };
        let mut affine = Affine::new(narrow(constant)?);
        for (var, factor) in terms {
            if factor != 0 {
                affine.terms.push((var, narrow(factor)?));
            }
        }
        Ok(affine)
    }

    /// `3`, `i0` or `3*i0`.
    fn term(&mut self) -> Result<(Option<Var>, u64), ParseError> {
        let mut factor = 1;
        if let Token::Number(_) = self.token {
            factor = self.number("a whole number")?;
            if !self.take_mark("*")? {
                return Ok((None, factor));
            }
        }
        let var = match self.token {
            Token::Word(word) => variable(word),
            _ => None,
        };
        let error = || self.expected("a number or a variable (g0, i0, l0, …, e, x, y)");
        let var = var.ok_or_else(error)?;
        self.bump()?;
        Ok((Some(var), factor))
    }

    /// An index, which may be left out if it is empty.
    pub(super) fn index(&mut self) -> Result<Vec<Affine>, ParseError> {
        match self.token {
            Token::Mark("[") => self.list(("[", "]"), |p| p.affine()),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn pattern(&mut self) -> Result<Pattern, ParseError> {
        let offset = self.affine()?;
        let dims = self.list(("[", "]"), |p| {
            let size = p.affine()?;
            p.mark(":")?;
            Ok((size, p.signed("a stride")?))
        })?;
        Ok(Pattern { offset, dims })
    }

    fn signed(&mut self, what: &str) -> Result<i64, ParseError> {
        let at = self.at;
        let negative = self.take_mark("-")?;
        let magnitude: u64 = self.number(what)?;
        let value = i128::from(magnitude) * if negative { -1 } else { 1 };
        i64::try_from(value).map_err(|_| at.error(format!("{value} is too large for {what}")))
    }

    pub(super) fn place(&mut self) -> Result<Place, ParseError> {
        if self.take_word("core")? {
            self.mark("(")?;
            let col = self.span()?;
            self.mark(",")?;
            let row = self.span()?;
            self.mark(")")?;
            return Ok(Place::Core { col, row });
        }
        let shim = self.take_word("shim")?;
        if !shim && !self.take_word("memory")? {
            return Err(self.expected("`shim`, `memory` or `core`"));
        }
        self.mark("(")?;
        let col = self.affine()?;
        self.mark(")")?;
        Ok(match shim {
            true => Place::Shim(col),
            false => Place::Memory(col),
        })
    }

    fn span(&mut self) -> Result<IndexRange, ParseError> {
        let at = self.at;
        let first = self.affine()?;
        if !self.take_mark("..")? {
            return Ok(IndexRange::At(first));
        }
        let end: u64 = self.number("the end of a range")?;
        let start = first.as_constant().and_then(|s| u32::try_from(s).ok());
        let range = start.and_then(|start| {
            let len = end.checked_sub(u64::from(start))?;
            Some((start, u32::try_from(len).ok()?))
        });
        match range {
            Some((start, len)) => Ok(IndexRange::Range { start, len }),
            None => Err(at.error("a range is two numbers in order, such as 0..8")),
        }
    }

    /// The steps of a core program up to and with the closing brace.
    pub(super) fn body(
        &mut self,
        channels: &NameTable,
        locals: &NameTable,
        loops: usize,
        nesting: usize,
    ) -> Result<Vec<Op>, ParseError> {
        let mut ops = Vec::new();
        while !self.take_mark("}")? {
            ops.push(self.op(channels, locals, loops, nesting)?);
        }
        Ok(ops)
    }

    fn op(
        &mut self,
        channels: &NameTable,
        locals: &NameTable,
        loops: usize,
        nesting: usize,
    ) -> Result<Op, ParseError> {
        let at = self.at;
        let Token::Word(word) = self.token else {
            return Err(self.expected("a step of a core program or `}`"));
        };
        if matches!(word, "for" | "if") && nesting == MAX_NESTING {
            return Err(at.error(format!("more than {MAX_NESTING} steps inside each other")));
        }
        match word {
            "for" => {
                self.bump()?;
                self.word(&format!("l{loops}"))?;
                self.word("in")?;
                let count = self.affine()?;
                self.mark("{")?;
                let body = self.body(channels, locals, loops + 1, nesting + 1)?;
                Ok(Op::Loop { count, body })
            }
            "if" => {
                self.bump()?;
                let value = self.affine()?;
                let condition = self.condition()?;
                self.mark("{")?;
                let then = self.body(channels, locals, loops, nesting + 1)?;
                let mut otherwise = Vec::new();
                if self.take_word("else")? {
                    self.mark("{")?;
                    otherwise = self.body(channels, locals, loops, nesting + 1)?;
                }
                Ok(Op::If {
                    value,
                    condition,
                    then,
                    otherwise,
                })
            }
            "free" | "put" => {
                self.bump()?;
                let block = self.block()?;
                Ok(match word {
                    "free" => Op::Free { block },
                    _ => Op::Put { block },
                })
            }
            "call" => {
                self.bump()?;
                self.call(locals)
            }
            _ if block_name(word).is_some() => self.take_block(channels),
            _ => Err(self.expected("`for`, `if`, `call`, `free`, `put`, `b0 = …` or `}`")),
        }
    }

    fn block(&mut self) -> Result<u8, ParseError> {
        let block = match self.token {
            Token::Word(word) => block_name(word),
            _ => None,
        };
        let block = block.ok_or_else(|| self.expected("a block (b0 … b255)"))?;
        self.bump()?;
        Ok(block)
    }

    /// `b0 = get A[x]` or `b0 = new A[x]`.
    fn take_block(&mut self, channels: &NameTable) -> Result<Op, ParseError> {
        let block = self.block()?;
        self.mark("=")?;
        let get = self.take_word("get")?;
        if !get && !self.take_word("new")? {
            return Err(self.expected("`get` or `new`"));
        }
        let channel = self.reference(channels)?;
        let index = self.index()?;
        Ok(match get {
            true => Op::Get {
                channel,
                index,
                block,
            },
            false => Op::New {
                channel,
                index,
                block,
            },
        })
    }

    fn condition(&mut self) -> Result<Condition, ParseError> {
        let condition = match self.token {
            Token::Mark("==") => Condition::Zero,
            Token::Mark("!=") => Condition::NotZero,
            Token::Mark("<") => Condition::Negative,
            Token::Mark(">=") => Condition::NotNegative,
            _ => return Err(self.expected("`== 0`, `!= 0`, `< 0` or `>= 0`")),
        };
        self.bump()?;
        if self.token != Token::Number("0") {
            return Err(self.expected("`0`: values are compared with zero"));
        }
        self.bump()?;
        Ok(condition)
    }

    fn call(&mut self, locals: &NameTable) -> Result<Op, ParseError> {
        let kernel = self.name()?;
        let dims = self.sizes()?;
        let operands = self.list(("(", ")"), |p| {
            if let Token::Word(word) = p.token
                && let Some(block) = block_name(word)
            {
                p.bump()?;
                return Ok(Operand::Block(block));
            }
            p.reference(locals).map(Operand::Local)
        })?;
        let scalars = match self.take_word("scalars")? {
            true => self.list(("[", "]"), |p| p.affine())?,
            false => Vec::new(),
        };
        let constants = match self.take_word("constants")? {
            true => self.list(("[", "]"), |p| p.constant())?,
            false => Vec::new(),
        };
        Ok(Op::Call {
            kernel,
            dims,
            operands,
            scalars,
            constants,
        })
    }

    /// The bits of an `f32`.
    fn constant(&mut self) -> Result<u32, ParseError> {
        let at = self.at;
        let negative = self.take_mark("-")?;
        let Token::Number(text) = self.token else {
            return Err(self.expected("a number"));
        };
        self.bump()?;
        let short: String = text.chars().take(40).collect();
        if let Some(digits) = text.strip_prefix("0x") {
            let bits = u32::from_str_radix(digits, 16).ok().filter(|_| !negative);
            return bits.ok_or_else(|| at.error(format!("{short} is not the bits of an f32")));
        }
        let value: Option<f32> = text.parse().ok().filter(|v: &f32| v.is_finite());
        let value = value.ok_or_else(|| at.error(format!("{short} is not an f32")))?;
        Ok(if negative { -value } else { value }.to_bits())
    }
}
