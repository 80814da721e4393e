//! What stops the board.

use super::BoardActor;
use crate::tile::Tile;
use crate::txn::StreamError;
use std::fmt;

/// How the text of what no source says ends.
const NOT_DOCUMENTED: &str = ": not documented, so not run";

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
            BoardProblem::Undefined(text) => write!(f, "{text}{NOT_DOCUMENTED}"),
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

/// A word that two parties touched at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RacedWord {
    /// Of a tile's memory.
    Tile(Tile, u32),
    /// Of an argument.
    Argument(usize, u64),
}

impl fmt::Display for RacedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RacedWord::Tile(tile, word) => write!(f, "word {word:#x} of {tile}"),
            RacedWord::Argument(argument, word) => {
                write!(f, "word {word:#x} of argument {argument}")
            }
        }
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
    /// No source says what the hardware does there, or it is not modelled: what follows is unknown.
    #[error("{place}: {problem}")]
    Undocumented {
        /// Who came to it.
        actor: BoardActor,
        /// The operation of the stream, where firmware did.
        operation: Option<usize>,
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
    /// A problem that somebody comes to at a place.
    pub(crate) fn at(actor: BoardActor, place: String, problem: BoardProblem) -> BoardError {
        match problem {
            BoardProblem::Race(problem) => BoardError::Race { place, problem },
            BoardProblem::Undefined(_) => BoardError::Undocumented {
                actor,
                operation: None,
                place,
                problem: problem.to_string(),
            },
            problem => BoardError::Fault {
                place,
                problem: problem.to_string(),
            },
        }
    }

    /// A problem of firmware's operation.
    pub(crate) fn of_operation(
        operation: usize,
        what: String,
        problem: BoardProblem,
    ) -> BoardError {
        match problem {
            BoardProblem::Undefined(_) => BoardError::Undocumented {
                actor: BoardActor::Firmware,
                operation: Some(operation),
                place: format!("operation {operation} ({what})"),
                problem: problem.to_string(),
            },
            problem => BoardError::Operation {
                operation,
                what,
                problem: problem.to_string(),
            },
        }
    }

    /// What a core's program says, in words; its kind is told by how it begins or ends.
    pub(crate) fn of_core(actor: BoardActor, place: String, problem: String) -> BoardError {
        if let Some(problem) = problem.strip_prefix("race: ") {
            let problem = problem.to_owned();
            return BoardError::Race { place, problem };
        }
        match problem.ends_with(NOT_DOCUMENTED) {
            true => BoardError::Undocumented {
                actor,
                operation: None,
                place,
                problem,
            },
            false => BoardError::Fault { place, problem },
        }
    }
}
