//! Comparison of a device's logits with the model's.
//!
//! Device and reference follow the same [`Continuation`], the reference's own tokens, so that one different
//! token does not end the comparison ([`follow`]). At every step the device's logits are held against the model in f32
//! ([`logits`](crate::reference::logits)), and so are those of the same graph with every value rounded to bf16
//! ([`PassArithmetic::Bf16`](crate::reference::PassArithmetic::Bf16)). The latter show how much the number format explains on this very
//! model and prompt; [`judge`] states how much more a device may be off.

mod baseline;
mod continuation;
mod deviation;
mod verdict;

pub use baseline::{Baseline, Verification, follow};
pub use continuation::{Choice, Continuation, RECORDED, record};
pub use deviation::{Deviation, TOP, top};
pub use verdict::{FACTOR, PathStep, Statistic, Verdict, judge};
