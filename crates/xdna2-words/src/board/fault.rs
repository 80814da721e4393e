//! What stops the board.

use crate::txn::StreamError;
use std::fmt;

/// What is wrong with a word, a register or a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoardProblem {
    /// No source says what it does.
    Undefined(String),
    /// The hardware would do something that nobody wants.
    Wrong(String),
    /// A field is set and does nothing.
    NoEffect(String),
    /// Two parties touch a word at once.
    Race(String),
}

impl fmt::Display for BoardProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoardProblem::Undefined(text) => write!(f, "{text}: not documented, so not run"),
            BoardProblem::Wrong(text) => f.write_str(text),
            BoardProblem::NoEffect(text) => write!(f, "a word without effect: {text}"),
            BoardProblem::Race(text) => write!(f, "race: {text}"),
        }
    }
}

impl From<crate::FieldError> for BoardProblem {
    fn from(error: crate::FieldError) -> BoardProblem {
        BoardProblem::Wrong(error.to_string())
    }
}

/// Why a stream did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoardError {
    /// The words are no stream.
    #[error("{0}")]
    Stream(#[from] StreamError),
    /// Firmware's operation cannot be done.
    #[error("operation {operation} ({what}): {problem}")]
    Operation {
        /// Its number.
        operation: usize,
        /// What it writes or waits for.
        what: String,
        /// What is wrong.
        problem: String,
    },
    /// Something went wrong at a tile.
    #[error("{place}: {problem}")]
    Fault {
        /// Where.
        place: String,
        /// What.
        problem: String,
    },
    /// Two parties touched a word at once, so its value depends on who was faster.
    #[error("{place}: race: {problem}")]
    Race {
        /// Where.
        place: String,
        /// Who and which word.
        problem: String,
    },
    /// Nobody can go on.
    #[error("nothing moves: {}", waiting.join("; "))]
    Standstill {
        /// Who waits for what.
        waiting: Vec<String>,
    },
    /// The stream ended and something was still under way.
    #[error("the stream has ended, and {}", left.join("; "))]
    Unfinished {
        /// What.
        left: Vec<String>,
    },
    /// More rounds than allowed.
    #[error("stopped after {rounds} rounds")]
    Budget {
        /// Rounds.
        rounds: u64,
    },
}

impl BoardError {
    /// A problem at a place.
    pub(crate) fn at(place: String, problem: BoardProblem) -> BoardError {
        match problem {
            BoardProblem::Race(problem) => BoardError::Race { place, problem },
            problem => BoardError::Fault {
                place,
                problem: problem.to_string(),
            },
        }
    }
}
