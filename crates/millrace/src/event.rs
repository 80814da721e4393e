//! Events of work under way.

/// Events that a generation reports to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A detail for verbose output, as a phrase without a full stop.
    Detail(&'a str),
    /// Blocks of the vision encoder computed for the prompt's images.
    Images {
        /// Blocks computed.
        done: usize,
        /// Blocks to compute.
        total: usize,
    },
    /// Prompt tokens computed so far, without those from the cache.
    Prompt {
        /// Tokens computed.
        done: usize,
        /// Tokens to compute.
        total: usize,
    },
    /// More text: whole characters, none of which can be the start of a stop text.
    Text(&'a str),
}
