//! Why a program did not run to its end.

use crate::program::FlatError;
use std::fmt;

/// Why a program did not run to its end. Slots that the program writes are then undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A launch that makes no sense on any machine.
    Flat(FlatError),
    /// Buffers that do not match the program's slots.
    Buffers(String),
    /// Something in a launch that cannot be done.
    Cannot {
        /// The launch's name.
        launch: String,
        /// The core, stage, transfer or channel.
        place: String,
        /// The grid point, where one was running.
        point: Option<Vec<u32>>,
        /// What, with limits and what was found.
        problem: String,
    },
    /// Nothing can move and not all is done.
    Deadlock {
        /// The launch's name.
        launch: String,
        /// Everyone who waits.
        waiting: Vec<Waiting>,
    },
    /// Everything has ended, and blocks are left that nobody took.
    Leftover {
        /// The launch's name.
        launch: String,
        /// Where, and how many.
        left: Vec<Waiting>,
    },
    /// The program did more than [`Options::max_units`](super::Options) allow.
    Budget {
        /// The launch's name.
        launch: String,
        /// The limit.
        max_units: u64,
    },
}

/// A party of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The core, stage end or transfer.
    pub who: String,
    /// What it waits for: channel with index, and how many blocks have passed.
    pub what: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.who, self.what)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Flat(error) => error.fmt(f),
            Fault::Buffers(problem) => f.write_str(problem),
            Fault::Cannot {
                launch,
                place,
                point,
                problem,
            } => {
                write!(f, "launch `{launch}`, {place}")?;
                if let Some(point) = point
                    && !point.is_empty()
                {
                    write!(f, ", grid point {point:?}")?;
                }
                write!(f, ": {problem}")
            }
            Fault::Deadlock { launch, waiting } => {
                write!(f, "launch `{launch}` is deadlocked")?;
                list(f, waiting)
            }
            Fault::Leftover { launch, left } => {
                write!(f, "launch `{launch}` ended with blocks left over")?;
                list(f, left)
            }
            Fault::Budget { launch, max_units } => write!(
                f,
                "launch `{launch}` did not end within {max_units} units of work; raise the limit if it is a long program"
            ),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, parties: &[Waiting]) -> fmt::Result {
    for (i, party) in parties.iter().enumerate() {
        write!(f, "{} {party}", if i == 0 { ":" } else { ";" })?;
    }
    Ok(())
}

impl std::error::Error for Fault {}

impl From<FlatError> for Fault {
    fn from(error: FlatError) -> Fault {
        Fault::Flat(error)
    }
}
