//! Tests of the crate as its users see it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod budgets;
mod data;
mod importance;
mod known_answers;
mod lists;
mod matrices;
mod properties;
