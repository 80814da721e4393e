//! What work tells while it runs.

/// What a generation tells its caller while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Something for who looks closely, in a sentence without its end.
    Detail(&'a str),
    /// Blocks of the vision encoder that the prompt's images went through.
    Images {
        /// Computed.
        done: usize,
        /// To compute.
        total: usize,
    },
    /// Prompt tokens computed so far; those that were cached are not among them.
    Prompt {
        /// Computed.
        done: usize,
        /// To compute.
        total: usize,
    },
    /// More text: whole characters, none of which can be the start of a stop text.
    Text(&'a str),
}
