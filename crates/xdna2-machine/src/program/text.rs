//! The text form of programs: for people to read and write, and the payload of a
//! [`Container`](millrace_npu::Container). [`print`](fn@print) and [`parse`] are inverse for every
//! program.
//!
//! ```text
//! xdna2 1
//!
//! program add {
//!   slot a: bf16[4096] input
//!   slot y: bf16[4096] output
//!   launch add(a, y) {
//!     grid [4]
//!     order streamed
//!     channel A[8]: bf16[64] from shim(i0) to memory(i0) depth 2
//!     channel B[8]: bf16[64] from memory(i0) to core(i0, 0) depth 2
//!     channel Y[8]: bf16[64] from core(i0, 0) to shim(i0) depth 2
//!     stage A[8] at i0: bf16[64] copies 2 {
//!       fill A[i0] walk 0 [64:1]
//!       drain B[i0] walk 0 [64:1] repeat 2
//!     }
//!     transfer a -> A[i0] over [8] walk 1024*g0 + 128*i0 [128:1]
//!     transfer y <- Y[i0] over [8] walk 1024*g0 + 128*i0 [128:1]
//!     herd add at (0, 0) size (8, 1) {
//!       local sum: f32[64]
//!       for l0 in 2 {
//!         b0 = get B[x]
//!         b1 = new Y[x]
//!         call add_bf16[64](b0, sum, b1) scalars [l0] constants [0.5]
//!         free b0
//!         put b1
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! - A **walk** is an offset and, in brackets, `size:stride` from the outermost dimension inwards.
//! - **Expressions** are sums of `3*i0`, `g1`, `-l0`, `e`, `x`, `y` and constants.
//! - Omitted parts have their usual values: `grid []`, `order sequential`, not `resident`, `link stream`, `each 1`,
//!   `repeat 1`, `over []`, `loops []`, no `scalars`, no `constants`, no core patterns (`send`,
//!   `receive`).
//! - `->` reads DDR, `<-` writes it; which one it is must agree with the channel's ends.
//! - A **name** is letters, digits, `_` and `.`, not beginning with a digit or `.`; any other is
//!   written as a string with Rust's escapes. `#3` refers to the fourth of its kind where the name
//!   would be ambiguous. Channels and locals are declared before they are used.
//! - Constants are `f32` values, or their bits as `0x7fc00000`.
//! - `//` begins a comment.

mod lexer;
mod parse;
mod parse_core;
mod parse_launch;
mod print;

pub use parse::parse;
pub use print::print;

/// Version of the text form that [`print`](fn@print) writes and [`parse`] reads.
pub const VERSION: u32 = 1;

/// Why a text is not a program, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The expected and the found token.
    pub message: String,
}

#[cfg(test)]
mod tests;
