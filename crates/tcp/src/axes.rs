//! Named axes and mapping expressions: positions of the elements of a tensor in a dimension of a memory.
//!
//! A tensor is a function from named indices to values. A *mapping expression* gives the index at each position of one
//! dimension (cluster, slice, lane, time, packet, element of a memory). It is built from symbols, ordered products,
//! copies, padding, resizing, strides and remainders, and is written in the vendor's notation: `m![N / 8 % 256]`,
//! `m![T, K # 64]`, `m![B = 2 # 4]`. The vendor's skewed and sliding axes are left out, and padding is always behind
//! the values. An axis that is resized (`B = 300`) ends there for every factor of it in the same tensor.
//!
//! [`Mapping::at`] is the definition, position by position. [`DigitLayout`] is the same as a list of [`Digit`]s; the
//! verifier and the simulators use this form. A property test compares the two.

mod digits;
mod merge;
mod parse;

pub use digits::{Digit, DigitLayout, Shape, Source, cover};
pub(crate) use parse::parse_mapping;
pub use parse::{AxesParseError, is_name};

use std::collections::BTreeMap;
use std::fmt;

/// Axes by name with their sizes, in the order of their declaration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axes {
    list: Vec<(String, u64)>,
}

/// Why axes or a mapping over them make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AxesError {
    /// A name that is not an axis.
    #[error("`{0}` is not an axis of this program")]
    Unknown(String),
    /// An axis declared twice with different sizes.
    #[error("axis `{name}` has size {first}, and again {second}")]
    Twice {
        /// The axis.
        name: String,
        /// Its first size.
        first: u64,
        /// Its second.
        second: u64,
    },
    /// A size of zero, or one beyond 2^40.
    #[error("a size of {0}: sizes are from 1 to 2^40")]
    Size(u64),
    /// A stride or remainder that cuts a factor unevenly.
    #[error(
        "`{expression}`: {n} does not divide a factor of size {size}; pad it first, as in `{hint}`"
    )]
    Uneven {
        /// The expression.
        expression: String,
        /// The divisor.
        n: u64,
        /// The factor's size.
        size: u64,
        /// A padded expression that divides evenly.
        hint: String,
    },
    /// A resize that enlarges, or a padding that shrinks.
    #[error("`{expression}`: {n} {problem} the {size} positions it applies to")]
    Range {
        /// The expression.
        expression: String,
        /// The number asked for.
        n: u64,
        /// Positions there are.
        size: u64,
        /// Description of the problem.
        problem: &'static str,
    },
    /// Two factors that hold the same part of an axis.
    #[error("axis `{0}`: a factor is used twice")]
    Overlap(String),
    /// A part of an axis that no factor holds.
    #[error("axis `{axis}`: no factor covers positions {step} apart, where {next} comes next")]
    Hole {
        /// The axis.
        axis: String,
        /// Extent covered so far.
        step: u64,
        /// Stride of the next factor.
        next: u64,
    },
}

/// Largest size of an axis or a mapping.
pub(crate) const MAX_SIZE: u64 = 1 << 40;

impl Axes {
    /// No axes.
    pub fn new() -> Axes {
        Axes::default()
    }

    /// Adds an axis; an existing one of the same size is left alone.
    ///
    /// # Errors
    /// [`AxesError::Twice`] or [`AxesError::Size`].
    pub fn add(&mut self, name: &str, size: u64) -> Result<(), AxesError> {
        if size == 0 || size > MAX_SIZE {
            return Err(AxesError::Size(size));
        }
        match self.size(name) {
            Ok(first) if first == size => Ok(()),
            Ok(first) => Err(AxesError::Twice {
                name: name.to_owned(),
                first,
                second: size,
            }),
            Err(_) => {
                self.list.push((name.to_owned(), size));
                Ok(())
            }
        }
    }

    /// Axes from names and sizes.
    ///
    /// # Errors
    /// As [`add`](Axes::add).
    pub fn of(list: &[(&str, u64)]) -> Result<Axes, AxesError> {
        let mut axes = Axes::new();
        list.iter()
            .try_for_each(|(name, size)| axes.add(name, *size))?;
        Ok(axes)
    }

    /// The number of an axis.
    ///
    /// # Errors
    /// [`AxesError::Unknown`].
    pub fn id(&self, name: &str) -> Result<usize, AxesError> {
        let found = self.list.iter().position(|(n, _)| n == name);
        found.ok_or_else(|| AxesError::Unknown(name.to_owned()))
    }

    /// The size of an axis.
    ///
    /// # Errors
    /// [`AxesError::Unknown`].
    pub fn size(&self, name: &str) -> Result<u64, AxesError> {
        Ok(self.list[self.id(name)?].1)
    }

    /// Name and size of the axis of that number.
    ///
    /// # Panics
    /// Where there is none: numbers come from [`id`](Axes::id).
    pub fn get(&self, id: usize) -> (&str, u64) {
        (&self.list[id].0, self.list[id].1)
    }

    /// Names and sizes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.list.iter().map(|(name, size)| (name.as_str(), *size))
    }
}

/// As the vendor declares them: `axes![T = 64, K = 4096]`.
impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.iter().map(|(n, s)| format!("{n} = {s}")).collect();
        write!(f, "axes![{}]", list.join(", "))
    }
}

/// A mapping expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// `n` positions with the same content: the identity `1`, or copies.
    Copies(u64),
    /// An axis, from its first to its last index.
    Symbol(String),
    /// `e / n`: every `n`-th position.
    Stride(Box<Mapping>, u64),
    /// `e % n`: the first `n` positions, the rest being blocks of as many.
    Modulo(Box<Mapping>, u64),
    /// `e = n`: the first `n` positions alone.
    Resize(Box<Mapping>, u64),
    /// `e # n`: as many positions, those behind the values being padding.
    Padding(Box<Mapping>, u64),
    /// `a, b`: for each position of `a` those of `b`.
    Pair(Box<Mapping>, Box<Mapping>),
}

/// An index by axis; an axis that is not there has index 0.
pub type Index = BTreeMap<String, u64>;

impl Mapping {
    /// One position.
    pub fn one() -> Mapping {
        Mapping::Copies(1)
    }

    /// An axis.
    pub fn axis(name: &str) -> Mapping {
        Mapping::Symbol(name.to_owned())
    }

    /// `self / n`.
    #[must_use]
    pub fn over(self, n: u64) -> Mapping {
        match n {
            1 => self,
            n => Mapping::Stride(Box::new(self), n),
        }
    }

    /// `self % n`.
    #[must_use]
    pub fn modulo(self, n: u64) -> Mapping {
        match n {
            1 => Mapping::one(),
            n => Mapping::Modulo(Box::new(self), n),
        }
    }

    /// `self = n`.
    #[must_use]
    pub fn resize(self, n: u64) -> Mapping {
        Mapping::Resize(Box::new(self), n)
    }

    /// `self # n`.
    #[must_use]
    pub fn pad(self, n: u64) -> Mapping {
        Mapping::Padding(Box::new(self), n)
    }

    /// `self, next`; the identity is left out.
    #[must_use]
    pub fn then(self, next: Mapping) -> Mapping {
        match (self, next) {
            (Mapping::Copies(1), next) => next,
            (this, Mapping::Copies(1)) => this,
            (this, next) => Mapping::Pair(Box::new(this), Box::new(next)),
        }
    }

    /// The product of several, the first outermost.
    pub fn product(list: impl IntoIterator<Item = Mapping>) -> Mapping {
        let list: Vec<Mapping> = list.into_iter().collect();
        let folded = list
            .into_iter()
            .rev()
            .reduce(|inner, outer| outer.then(inner));
        folded.unwrap_or(Mapping::one())
    }

    /// Number of positions.
    ///
    /// # Errors
    /// Where the expression makes no sense over these axes.
    pub fn size(&self, axes: &Axes) -> Result<u64, AxesError> {
        Ok(DigitLayout::of(self, axes)?.size())
    }

    /// The index at a position by definition; `None` for padding and beyond the end.
    ///
    /// # Errors
    /// [`AxesError::Unknown`].
    pub fn at(&self, position: u64, axes: &Axes) -> Result<Option<Index>, AxesError> {
        let mut index = Index::new();
        let is_value = self.add_at(position, axes, &mut index)?;
        for (name, &i) in &index {
            if i >= axes.size(name)?.min(self.end_of(name)) {
                return Ok(None);
            }
        }
        Ok(is_value.then_some(index))
    }

    /// End of a resized axis, wherever its parts are.
    fn end_of(&self, axis: &str) -> u64 {
        match self {
            Mapping::Copies(_) | Mapping::Symbol(_) => u64::MAX,
            Mapping::Resize(inner, n) => match &**inner {
                Mapping::Symbol(name) if name == axis => *n,
                inner => inner.end_of(axis),
            },
            Mapping::Stride(inner, _) | Mapping::Modulo(inner, _) | Mapping::Padding(inner, _) => {
                inner.end_of(axis)
            }
            Mapping::Pair(outer, inner) => outer.end_of(axis).min(inner.end_of(axis)),
        }
    }

    fn add_at(&self, at: u64, axes: &Axes, index: &mut Index) -> Result<bool, AxesError> {
        match self {
            Mapping::Copies(n) => Ok(at < *n),
            Mapping::Symbol(name) => {
                if at > 0 {
                    *index.entry(name.clone()).or_default() += at;
                }
                Ok(at < axes.size(name)?)
            }
            Mapping::Stride(inner, n) => inner.add_at(at * n, axes, index),
            Mapping::Modulo(inner, n) | Mapping::Resize(inner, n) => {
                Ok(at < *n && inner.add_at(at, axes, index)?)
            }
            Mapping::Padding(inner, _) => {
                let within = at < inner.extent(axes)?;
                Ok(within && inner.add_at(at, axes, index)?)
            }
            Mapping::Pair(outer, inner) => {
                let size = inner.extent(axes)?;
                let outer = outer.add_at(at / size, axes, index)?;
                Ok(inner.add_at(at % size, axes, index)? && outer)
            }
        }
    }

    /// Number of positions by definition, rounding up.
    fn extent(&self, axes: &Axes) -> Result<u64, AxesError> {
        Ok(match self {
            Mapping::Symbol(name) => axes.size(name)?,
            Mapping::Stride(inner, n) => inner.extent(axes)?.div_ceil(*n),
            Mapping::Copies(n)
            | Mapping::Modulo(_, n)
            | Mapping::Resize(_, n)
            | Mapping::Padding(_, n) => *n,
            Mapping::Pair(outer, inner) => outer.extent(axes)? * inner.extent(axes)?,
        })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let postfix = |f: &mut fmt::Formatter<'_>, inner: &Mapping, sign: char, n: u64| {
            match inner {
                Mapping::Pair(..) => write!(f, "[{}]", Bare(inner))?,
                inner => inner.write(f)?,
            }
            write!(f, " {sign} {n}")
        };
        match self {
            Mapping::Copies(n) => write!(f, "{n}"),
            Mapping::Symbol(name) => f.write_str(name),
            Mapping::Stride(inner, n) => postfix(f, inner, '/', *n),
            Mapping::Modulo(inner, n) => postfix(f, inner, '%', *n),
            Mapping::Resize(inner, n) => postfix(f, inner, '=', *n),
            Mapping::Padding(inner, n) => postfix(f, inner, '#', *n),
            Mapping::Pair(outer, inner) => {
                match &**outer {
                    Mapping::Pair(..) => write!(f, "[{}]", Bare(outer))?,
                    outer => outer.write(f)?,
                }
                f.write_str(", ")?;
                inner.write(f)
            }
        }
    }
}

struct Bare<'m>(&'m Mapping);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }
}

/// In the vendor's spelling: `m![N / 8 % 256]`.
impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m![{}]", Bare(self))
    }
}

#[cfg(test)]
mod tests;
