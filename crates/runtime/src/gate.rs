//! Whether a device computes what a model says: the gate.
//!
//! Device and reference go along the same [`Path`], the reference's own tokens, so that one different
//! token does not end the comparison ([`follow`]). At every step the device's logits are held against
//! the model in f32 ([`logits`]), and so are those of the same graph with every value rounded to bf16
//! ([`Numerics::Bf16`]). The second says what the number format explains on this very model and prompt;
//! [`judge`] states how much more a device may be off. [`every`] mutant is how the gate itself is tested:
//! devices that are wrong on purpose must fail.

pub(crate) mod blocks;
mod follow;
mod forward;
mod mutants;
pub(crate) mod narrowed;
mod path;
pub(crate) mod quantised;
mod stats;
mod verdict;

pub use follow::{Yardstick, follow};
pub use forward::{Numerics, Products, logits, visit_products};
pub use mutants::{Caught, Mutant, Mutation, every};
pub use path::{Choice, Path, RECORDED, record};
pub use stats::{Deviation, TOP, top};
pub use verdict::{FACTOR, Statistic, Step, Verdict, judge};
