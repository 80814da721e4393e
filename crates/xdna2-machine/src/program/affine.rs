//! Affine expressions and access patterns.

/// A variable of an [`Affine`] expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Var {
    /// Coordinate of the launch's grid point, by dimension. Written `g0`, `g1`, …
    Grid(u8),
    /// Index of the bundle copy at hand (channel, stage or transfer), by dimension. `i0`, `i1`, …
    Index(u8),
    /// Index of a stage end among its `each` copies. `e`
    Each,
    /// Column of the core in its herd. `x`
    X,
    /// Row of the core in its herd. `y`
    Y,
    /// Loop variable of a core program or of a transfer, by nesting depth. `l0`, `l1`, …
    Loop(u8),
}

/// `constant + Σ factor · variable`. Terms are sorted by variable, each once, no zero factor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Affine {
    /// The constant part.
    pub constant: i64,
    /// Variables with their factors.
    pub terms: Vec<(Var, i64)>,
}

impl Affine {
    /// A constant.
    pub const fn new(constant: i64) -> Affine {
        Affine {
            constant,
            terms: Vec::new(),
        }
    }

    /// A variable times a factor.
    pub fn of(var: Var, factor: i64) -> Affine {
        Affine::default().plus(var, factor)
    }

    /// This expression with `factor · var` added; factors wrap on overflow.
    #[must_use]
    pub fn plus(mut self, var: Var, factor: i64) -> Affine {
        match self.terms.binary_search_by_key(&var, |&(v, _)| v) {
            Ok(at) => {
                self.terms[at].1 = self.terms[at].1.wrapping_add(factor);
                if self.terms[at].1 == 0 {
                    self.terms.remove(at);
                }
            }
            Err(at) if factor != 0 => self.terms.insert(at, (var, factor)),
            Err(_) => {}
        }
        self
    }

    /// This expression with a constant added: `+`, without the trait in scope.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // It does the same as the trait, for constants.
    pub fn add(mut self, constant: i64) -> Affine {
        self.constant = self.constant.wrapping_add(constant);
        self
    }

    /// The value, with each variable's from `value_of`; wraps on overflow (the verifier bounds every expression before
    /// anything runs).
    pub fn eval(&self, value_of: impl Fn(Var) -> i64) -> i64 {
        self.terms
            .iter()
            .fold(self.constant, |sum, &(var, factor)| {
                sum.wrapping_add(factor.wrapping_mul(value_of(var)))
            })
    }

    /// The constant, if there is no variable.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }
}

impl From<i64> for Affine {
    fn from(constant: i64) -> Affine {
        Affine::new(constant)
    }
}

/// An n-dimensional walk over elements of a buffer: `offset`, then sizes and strides from the
/// outermost dimension to the innermost, all in elements. A buffer descriptor encodes it.
///
/// The walk visits `offset + Σ index_d · stride_d` for every index vector, the last dimension
/// fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Where the walk begins.
    pub offset: Affine,
    /// (size, stride) per dimension. A size may depend on the grid (causal skipping).
    pub dims: Vec<(Affine, i64)>,
}

impl Pattern {
    /// `n` elements in a row from `offset`.
    pub fn linear(offset: impl Into<Affine>, n: i64) -> Pattern {
        Pattern {
            offset: offset.into(),
            dims: vec![(Affine::new(n), 1)],
        }
    }

    /// Sizes and strides, outermost first.
    pub fn new(offset: impl Into<Affine>, dims: &[(i64, i64)]) -> Pattern {
        Pattern {
            offset: offset.into(),
            dims: dims
                .iter()
                .map(|&(size, stride)| (Affine::new(size), stride))
                .collect(),
        }
    }

    /// Number of elements visited, with each variable's value from `value_of`.
    pub fn n_elements(&self, value_of: impl Fn(Var) -> i64 + Copy) -> i64 {
        self.dims
            .iter()
            .map(|(size, _)| size.eval(value_of).max(0))
            .product()
    }
}
