//! A mapping expression as digits: the part of an axis behind each position.

use super::{Axes, AxesError, MAX_SIZE, Mapping};

/// Source that a digit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Positions along the axis of that number.
    Axis(usize),
    /// Nothing: every position has the same content.
    Copies,
}

/// A factor of a layout. Position `p` of it stands for index `p · stride` of its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digit {
    /// Source that it counts.
    pub source: Source,
    /// Step along the axis.
    pub stride: u64,
    /// Positions.
    pub size: u64,
    /// Positions that hold values; those behind are padding.
    pub valid: u64,
    /// End of the axis: its size, or the size that it was resized to. Sums of digits beyond it are padding.
    pub limit: u64,
}

impl Digit {
    fn new(source: Source, size: u64) -> Digit {
        Digit {
            source,
            stride: 1,
            size,
            valid: size,
            limit: size,
        }
    }

    /// The axis, if it counts one.
    pub fn axis(&self) -> Option<usize> {
        match self.source {
            Source::Axis(axis) => Some(axis),
            Source::Copies => None,
        }
    }
}

/// A mapping over given axes: its digits, the outermost first, none of size 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigitLayout {
    /// The digits.
    pub digits: Vec<Digit>,
}

/// Axes and how far each is covered, by number of the axis; those of extent 1 are left out.
pub type Shape = Vec<(usize, u64)>;

impl DigitLayout {
    /// The layout of an expression.
    ///
    /// # Errors
    /// Where it makes no sense over these axes.
    pub fn of(mapping: &Mapping, axes: &Axes) -> Result<DigitLayout, AxesError> {
        let mut digits = digits(mapping, axes)?;
        digits.retain(|digit| digit.size > 1);
        let layout = DigitLayout { digits };
        let size = layout
            .digits
            .iter()
            .try_fold(1u64, |n, d| n.checked_mul(d.size));
        match size {
            Some(n) if n <= MAX_SIZE => Ok(layout),
            _ => Err(AxesError::Size(u64::MAX)),
        }
    }

    /// Number of positions.
    pub fn size(&self) -> u64 {
        size_of(&self.digits)
    }

    /// The index at a position, by axis; `None` for padding and beyond the end.
    pub fn at(&self, position: u64, axes: &Axes) -> Option<Vec<(usize, u64)>> {
        let mut index: Vec<(usize, u64)> = Vec::new();
        let mut limits: Vec<(usize, u64)> = Vec::new();
        let mut rest = position;
        for digit in self.digits.iter().rev() {
            limits.extend(digit.axis().map(|axis| (axis, digit.limit)));
            let at = rest % digit.size;
            rest /= digit.size;
            if at >= digit.valid {
                return None;
            }
            let Some(axis) = digit.axis() else { continue };
            match index.iter_mut().find(|(a, _)| *a == axis) {
                Some((_, i)) => *i += at * digit.stride,
                None => index.push((axis, at * digit.stride)),
            }
        }
        let below = |&(axis, i): &(usize, u64)| {
            i < axes.get(axis).1 && limits.iter().all(|&(a, limit)| a != axis || i < limit)
        };
        let within = index.iter().all(below);
        index.retain(|&(_, i)| i > 0);
        index.sort_unstable();
        (rest == 0 && within).then_some(index)
    }

    /// Positions that the digit at `i` steps over: the product of the sizes behind it.
    pub fn step(&self, i: usize) -> u64 {
        size_of(&self.digits[i + 1..])
    }

    /// Whether some digit counts that axis.
    pub fn has(&self, axis: usize) -> bool {
        self.digits.iter().any(|digit| digit.axis() == Some(axis))
    }
}

fn digits(mapping: &Mapping, axes: &Axes) -> Result<Vec<Digit>, AxesError> {
    let expression = || mapping.to_string();
    match mapping {
        Mapping::Copies(0) => Err(AxesError::Size(0)),
        Mapping::Copies(1) => Ok(Vec::new()),
        Mapping::Copies(n) => Ok(vec![Digit::new(Source::Copies, *n)]),
        Mapping::Symbol(name) => {
            let (id, size) = (axes.id(name)?, axes.size(name)?);
            Ok(vec![Digit::new(Source::Axis(id), size)])
        }
        Mapping::Pair(outer, inner) => {
            let mut all = digits(outer, axes)?;
            all.extend(digits(inner, axes)?);
            Ok(all)
        }
        Mapping::Stride(inner, n) => cut(digits(inner, axes)?, *n, expression).map(|c| c.0),
        Mapping::Modulo(inner, n) => cut(digits(inner, axes)?, *n, expression).map(|c| c.1),
        Mapping::Resize(inner, n) => {
            let is_symbol = matches!(**inner, Mapping::Symbol(_));
            resize(digits(inner, axes)?, *n, is_symbol, expression)
        }
        Mapping::Padding(inner, n) => pad(digits(inner, axes)?, *n, expression),
    }
}

/// Cuts digits into blocks of `n` positions: the digits that number the blocks, and those within a block.
fn cut(
    mut outer: Vec<Digit>,
    n: u64,
    expression: impl Fn() -> String,
) -> Result<(Vec<Digit>, Vec<Digit>), AxesError> {
    let (mut inner, mut left) = (Vec::new(), n);
    if n == 0 {
        return Err(AxesError::Size(0));
    }
    while left > 1 {
        let Some(digit) = outer.pop() else {
            return Err(AxesError::Range {
                expression: expression(),
                n,
                size: n / left,
                problem: "is more than",
            });
        };
        let uneven = || AxesError::Uneven {
            expression: expression(),
            n,
            size: digit.size,
            hint: format!("# {}", digit.size.div_ceil(left) * left),
        };
        if left.is_multiple_of(digit.size) {
            left /= digit.size;
            inner.insert(0, digit);
            continue;
        }
        // Where padding begins within a block, only the axis' own end can mark it.
        let ends_axis =
            digit.axis().is_some() && digit.valid.saturating_mul(digit.stride) >= digit.limit;
        let is_whole = digit.valid == digit.size || digit.valid.is_multiple_of(left);
        if !digit.size.is_multiple_of(left) || !(is_whole || ends_axis || digit.valid <= left) {
            return Err(uneven());
        }
        outer.push(Digit {
            stride: digit.stride * left,
            size: digit.size / left,
            valid: digit.valid.div_ceil(left),
            ..digit
        });
        inner.insert(
            0,
            Digit {
                size: left,
                valid: digit.valid.min(left),
                ..digit
            },
        );
        left = 1;
    }
    Ok((outer, inner))
}

fn resize(
    mut digits: Vec<Digit>,
    n: u64,
    is_symbol: bool,
    expression: impl Fn() -> String,
) -> Result<Vec<Digit>, AxesError> {
    let size = size_of(&digits);
    if n == 0 || n > size {
        return Err(AxesError::Range {
            expression: expression(),
            n,
            size,
            problem: "is not within",
        });
    }
    while !digits.is_empty() {
        let inner = size_of(&digits[1..]);
        if n.is_multiple_of(inner) {
            digits[0].size = n / inner;
            digits[0].valid = digits[0].valid.min(n / inner);
            if is_symbol {
                digits[0].limit = digits[0].limit.min(n);
            }
            return Ok(digits);
        }
        if n > inner {
            return Err(AxesError::Uneven {
                expression: expression(),
                n,
                size: inner,
                hint: format!("= {}", n.div_ceil(inner) * inner),
            });
        }
        digits.remove(0);
    }
    Ok(digits)
}

fn pad(
    mut digits: Vec<Digit>,
    n: u64,
    expression: impl Fn() -> String,
) -> Result<Vec<Digit>, AxesError> {
    let size = size_of(&digits);
    if n < size || n > MAX_SIZE {
        return Err(AxesError::Range {
            expression: expression(),
            n,
            size,
            problem: "does not hold",
        });
    }
    digits.retain(|digit| digit.size > 1);
    if digits.is_empty() {
        let mut digit = Digit::new(Source::Copies, n);
        digit.valid = 1;
        return Ok(vec![digit]);
    }
    let inner = size_of(&digits[1..]);
    if !n.is_multiple_of(inner) {
        return Err(AxesError::Uneven {
            expression: expression(),
            n,
            size: inner,
            hint: format!("# {}", n.div_ceil(inner) * inner),
        });
    }
    digits[0].size = n / inner;
    Ok(digits)
}

fn size_of(digits: &[Digit]) -> u64 {
    digits.iter().map(|digit| digit.size).product()
}

/// The shape that layouts hold together: every axis they name, without overlap and without holes.
///
/// # Errors
/// [`AxesError::Overlap`] where a factor is used twice, [`AxesError::Hole`] where one is missing.
pub fn cover(layouts: &[&DigitLayout], axes: &Axes) -> Result<Shape, AxesError> {
    let mut digits: Vec<(usize, Digit)> = Vec::new();
    for digit in layouts.iter().flat_map(|layout| &layout.digits) {
        if let Some(axis) = digit.axis() {
            digits.push((axis, *digit));
        }
    }
    digits.sort_by_key(|(axis, digit)| (*axis, digit.stride));
    let mut shape: Shape = Vec::new();
    let mut covered = 1;
    for (axis, digit) in digits {
        if shape.last().is_none_or(|&(last, _)| last != axis) {
            shape.push((axis, 1));
            covered = 1;
        }
        let name = || axes.get(axis).0.to_owned();
        if digit.stride < covered {
            return Err(AxesError::Overlap(name()));
        }
        if digit.stride > covered {
            return Err(AxesError::Hole {
                axis: name(),
                step: covered,
                next: digit.stride,
            });
        }
        if let Some((_, extent)) = shape.last_mut() {
            let end = limit_of(layouts, axis).min(axes.get(axis).1);
            *extent = (digit.stride * digit.valid).min(end);
        }
        // The factors after it step over the padding too.
        covered *= digit.size;
    }
    shape.retain(|(_, extent)| *extent > 1);
    Ok(shape)
}

/// End of an axis according to the layouts.
fn limit_of(layouts: &[&DigitLayout], axis: usize) -> u64 {
    let digits = layouts.iter().flat_map(|layout| &layout.digits);
    let own = digits.filter(|digit| digit.axis() == Some(axis));
    own.map(|digit| digit.limit).min().unwrap_or(u64::MAX)
}
