//! Faults that stop the board.

use super::BoardActor;
use crate::tile::Tile;
use crate::txn::StreamError;
use std::fmt;

/// End of the text of undocumented behaviour.
const NOT_DOCUMENTED: &str = ": not documented, so not run";

/// A fault of a word, a register or a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoardProblem {
    /// No source documents its effect.
    Undefined(String),
    /// The hardware would do something unwanted.
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
    /// A word of a tile's memory.
    Tile(Tile, u32),
    /// A word of an argument.
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
    /// The words are not a stream.
    #[error("{0}")]
    Stream(#[from] StreamError),
    /// Firmware's operation cannot be done.
    #[error("operation {operation} ({what}): {problem}")]
    Operation {
        /// Its number.
        operation: usize,
        /// Its write or its wait.
        what: String,
        /// Description of the fault.
        problem: String,
    },
    /// Something went wrong at a tile.
    #[error("{place}: {problem}")]
    Fault {
        /// The place.
        place: String,
        /// Description of the fault.
        problem: String,
    },
    /// No source documents the hardware's behaviour there, or it is not modelled: the outcome is unknown.
    #[error("{place}: {problem}")]
    Undocumented {
        /// Who came to it.
        actor: BoardActor,
        /// The operation of the stream, where firmware did.
        operation: Option<usize>,
        /// The place.
        place: String,
        /// Description of the fault.
        problem: String,
    },
    /// Two parties touched a word at once, so its value depends on which was faster.
    #[error("{place}: race: {problem}")]
    Race {
        /// The place.
        place: String,
        /// Who and which word.
        problem: String,
    },
    /// Nobody can go on.
    #[error("nothing moves: {}", waiting.join("; "))]
    Standstill {
        /// Each waiting actor, with the cause of its wait.
        waiting: Vec<String>,
    },
    /// The stream ended and something was still under way.
    #[error("the stream has ended, and {}", left.join("; "))]
    Unfinished {
        /// The work that is left.
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
    /// A problem of an actor at a place.
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

    /// An error from the message of a core's program. The beginning or the end of the message gives its kind.
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
