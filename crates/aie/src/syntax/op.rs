//! Ops, from either form of the text.

use super::{Attribute, Location, SyntaxError, Type};

/// An op.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) name: String,
    pub(crate) at: Location,
    /// Names of its results, without `%`; those of one of several are `name#i`.
    pub(crate) results: Vec<String>,
    pub(crate) operands: Vec<String>,
    pub(crate) attributes: Vec<(String, Attribute)>,
    pub(crate) regions: Vec<Region>,
    pub(crate) successors: Vec<Successor>,
    /// Types in the order of the text: of operands first, of results last.
    pub(crate) types: Vec<Type>,
}

/// Target of a terminator.
#[derive(Clone, Debug)]
pub(crate) struct Successor {
    pub(crate) label: String,
    pub(crate) operands: Vec<String>,
}

/// Blocks; the first is entered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    pub(crate) blocks: Vec<OpBlock>,
}

/// Ops in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpBlock {
    pub(crate) label: String,
    pub(crate) arguments: Vec<(String, Type)>,
    pub(crate) ops: Vec<Op>,
}

impl Region {
    /// All ops of all blocks; those of their regions are not among them.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &Op> {
        self.blocks.iter().flat_map(|block| &block.ops)
    }
}

impl Op {
    pub(crate) fn new(name: &str, at: Location) -> Op {
        Op {
            name: name.to_owned(),
            at,
            results: Vec::new(),
            operands: Vec::new(),
            attributes: Vec::new(),
            regions: Vec::new(),
            successors: Vec::new(),
            types: Vec::new(),
        }
    }

    /// Looks at this op and at all within it.
    pub(crate) fn visit<'o>(&'o self, see: &mut dyn FnMut(&'o Op)) {
        see(self);
        let inner = self.regions.iter().flat_map(Region::ops);
        inner.for_each(|op| op.visit(see));
    }

    /// The blocks of all its regions.
    pub(crate) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut OpBlock> {
        self.regions.iter_mut().flat_map(|of| &mut of.blocks)
    }

    /// An error at this op.
    pub(crate) fn error(&self, problem: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.at, problem).in_op(&self.name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Attribute> {
        let found = self.attributes.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value)
    }

    /// An attribute that must be there.
    pub(crate) fn need(&self, name: &str) -> Result<&Attribute, SyntaxError> {
        self.get(name)
            .ok_or_else(|| self.error(format!("it has no attribute `{name}`")))
    }

    pub(crate) fn set(&mut self, name: &str, value: Attribute) {
        self.attributes.push((name.to_owned(), value));
    }

    /// A whole number that must be there.
    pub(crate) fn integer(&self, name: &str) -> Result<i64, SyntaxError> {
        self.need(name)?
            .integer()
            .ok_or_else(|| self.error(format!("`{name}` is no whole number")))
    }

    /// A whole number, or the given value if it is absent.
    pub(crate) fn integer_or(&self, name: &str, otherwise: i64) -> Result<i64, SyntaxError> {
        match self.get(name) {
            None => Ok(otherwise),
            Some(_) => self.integer(name),
        }
    }

    /// A number in a type that can hold it.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, SyntaxError> {
        let value = self.integer(name)?;
        T::try_from(value).map_err(|_| self.error(format!("`{name}` of {value} is out of range")))
    }

    /// The same, or the given value if it is absent.
    pub(crate) fn number_or<T: TryFrom<i64>>(
        &self,
        name: &str,
        otherwise: T,
    ) -> Result<T, SyntaxError> {
        match self.get(name) {
            None => Ok(otherwise),
            Some(_) => self.number(name),
        }
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(
            self.get(name),
            Some(Attribute::Bool(true) | Attribute::Unit)
        )
    }

    /// A symbol, string or word.
    pub(crate) fn text(&self, name: &str) -> Result<&str, SyntaxError> {
        match self.need(name)? {
            Attribute::Symbol(text) | Attribute::Text(text) | Attribute::Word(text) => Ok(text),
            _ => Err(self.error(format!("`{name}` is no name"))),
        }
    }

    pub(crate) fn operand(&self, number: usize) -> Result<&str, SyntaxError> {
        let operand = self.operands.get(number);
        operand
            .map(String::as_str)
            .ok_or_else(|| self.error(format!("it has no operand {number}")))
    }

    pub(crate) fn result(&self) -> Result<&str, SyntaxError> {
        let result = self.results.first();
        result
            .map(String::as_str)
            .ok_or_else(|| self.error("it gives a value, and has no name for it"))
    }

    pub(crate) fn region(&self, number: usize) -> Result<&Region, SyntaxError> {
        self.regions
            .get(number)
            .ok_or_else(|| self.error("it has no body"))
    }

    /// Refuses attributes of other names: each may change the behaviour of the design.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), SyntaxError> {
        let unknown = self
            .attributes
            .iter()
            .find(|(name, _)| !known.contains(&name.as_str()));
        match unknown {
            None => Ok(()),
            Some((name, _)) => Err(self.error(format!("the attribute `{name}` is not known here"))),
        }
    }
}
