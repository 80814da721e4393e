//! Model files as one memory-mapped [`Checkpoint`].
