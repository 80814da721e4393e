//! How a product is cut into tasks: k into parts whose sums are added on the host, n over workers and columns, m into
//! rows.
//!
//! A *worker* is an open descriptor of the device; the kernel keeps each on one core. The weights' place in memory
//! depends only on `n`, `k`, the depth of parts and the workers, so one packed copy serves every m.

mod choose;
mod grid;

pub use choose::{Candidate, Price, TilingChoice, WeightSplit, choose, choose_weights, price};
pub use grid::{Grid, TaskTile, TileSpan};

use crate::machine::Machine;
use crate::matmul::{MatmulKind, rows_max};

/// A product: C[m, n] = A[m, k] · B[n, k]ᵀ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// Types.
    pub kind: MatmulKind,
    /// Rows of A and C.
    pub m: u32,
    /// Rows of B.
    pub n: u32,
    /// Columns of A and B.
    pub k: u32,
}

impl std::fmt::Display for Matmul {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {}x{}x{} (m, n, k)",
            self.kind, self.m, self.n, self.k
        )
    }
}

/// The inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Columns: a tile of rows stays in the CBUF while kernels stream past.
    Columns,
    /// Rows: a tile of columns fits the CBUF whole and stays while rows change.
    Rows,
}

impl Order {
    /// Name (`columns`).
    pub const fn name(self) -> &'static str {
        match self {
            Order::Columns => "columns",
            Order::Rows => "rows",
        }
    }

    /// The order of that [`name`](Order::name).
    pub fn from_name(name: &str) -> Option<Order> {
        [Order::Columns, Order::Rows]
            .into_iter()
            .find(|order| order.name() == name)
    }
}

/// The sizes that a product is cut by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Rows of a task.
    pub rows: u32,
    /// Columns of a task.
    pub cols: u32,
    /// k of a task.
    pub depth: u32,
    /// Workers that n is divided over.
    pub workers: u32,
    /// The inner loop.
    pub order: Order,
    /// Most tasks of a job; the kernel resets a job that takes longer than 500 ms.
    pub job_tasks: u32,
}

impl std::fmt::Display for Tiling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "rows {} cols {} depth {} workers {} inner {}",
            self.rows,
            self.cols,
            self.depth,
            self.workers,
            self.order.name()
        )
    }
}

/// Why a product cannot be cut in that way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TilingError {
    /// A dimension of zero or beyond the limit of offsets.
    #[error("m, n and k are 1 to {max}, found {shape}")]
    Shape {
        /// The product.
        shape: Matmul,
        /// The largest dimension.
        max: u32,
    },
    /// A size of the tiling that is out of range.
    #[error("`{name}` is {found}; expected {expected}")]
    Size {
        /// Name of the size.
        name: &'static str,
        /// Its value.
        found: u32,
        /// The valid values.
        expected: String,
    },
    /// Features and a kernel group do not fit the CBUF together.
    #[error(
        "{rows} rows of {depth} do not fit the CBUF beside a kernel group; at most {most} rows do, or \
         take a smaller depth"
    )]
    Cbuf {
        /// Rows asked for.
        rows: u32,
        /// Depth asked for.
        depth: u32,
        /// Rows that fit.
        most: u32,
    },
    /// Parts of k whose sums cannot be added exactly.
    #[error(
        "k {k} in parts of {depth}: parts of `{kind}` lose bits before they are added; take results of \
         32 bits, or for 4-bit operands parts of at most 512"
    )]
    Parts {
        /// The product's k.
        k: u32,
        /// The depth asked for.
        depth: u32,
        /// The kind.
        kind: MatmulKind,
    },
    /// A buffer that 32-bit offsets do not reach.
    #[error("buffer `{slot}` would take {bytes} bytes; addresses reach {max}")]
    Buffer {
        /// Its name.
        slot: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}

/// The largest m, n or k that is accepted: far above any model's.
pub const DIM_MAX: u32 = 1 << 20;

/// Rows padded to a number that the array takes: one, or a multiple of four (other numbers of rows are not known to
/// work).
pub(crate) fn padded_rows(m: u32) -> u32 {
    match m {
        1 => 1,
        _ => m.next_multiple_of(4),
    }
}

impl Tiling {
    /// Checks the sizes against the machine's limits and the CBUF.
    ///
    /// # Errors
    /// [`TilingError`]: the part that does not fit, and one that would.
    pub fn check(&self, shape: &Matmul, machine: &Machine) -> Result<(), TilingError> {
        let dims = [shape.m, shape.n, shape.k];
        if dims.iter().any(|d| !(1..=DIM_MAX).contains(d)) {
            let (shape, max) = (*shape, DIM_MAX);
            return Err(TilingError::Shape { shape, max });
        }
        let size = |name, found, ok: bool, expected: String| match ok {
            true => Ok(()),
            false => Err(TilingError::Size {
                name,
                found,
                expected,
            }),
        };
        let (group, k_group) = (shape.kind.n_group(), machine.k_group);
        let rows_most = machine.m_max.min(machine.grains_max - 1);
        size(
            "rows",
            self.rows,
            (1..=rows_most).contains(&self.rows) && padded_rows(self.rows) == self.rows,
            format!("1 or a multiple of 4 up to {rows_most}"),
        )?;
        size(
            "cols",
            self.cols,
            (1..=machine.n_max).contains(&self.cols) && self.cols.is_multiple_of(group),
            format!("a multiple of {group} up to {}", machine.n_max),
        )?;
        size(
            "depth",
            self.depth,
            (1..=machine.k_max).contains(&self.depth) && self.depth.is_multiple_of(k_group),
            format!("a multiple of {k_group} up to {}", machine.k_max),
        )?;
        size(
            "workers",
            self.workers,
            (1..=64).contains(&self.workers),
            "1 to 64".into(),
        )?;
        size(
            "job_tasks",
            self.job_tasks,
            self.job_tasks > 0,
            "at least 1".into(),
        )?;
        let most = rows_max(self.depth, shape.kind, machine);
        if self.rows > most {
            let (rows, depth) = (self.rows, self.depth);
            return Err(TilingError::Cbuf { rows, depth, most });
        }
        if shape.k > self.depth && !shape.kind.adds_parts(self.depth) {
            return Err(TilingError::Parts {
                k: shape.k,
                depth: self.depth,
                kind: shape.kind,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
