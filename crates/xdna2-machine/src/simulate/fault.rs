//! Why a program did not run to its end.

use crate::program::FlatError;
use std::fmt;

/// The core or the slot that something is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Column and row on the array; of a transfer, the first core that it serves.
    pub core: Option<(u32, u32)>,
    /// Index among the program's slots.
    pub slot: Option<u32>,
}

/// Why a program did not run to its end. Slots that the program writes are then undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimulationFault {
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
        /// That place, if it is a core or moves a slot.
        site: Box<Site>,
        /// The grid point, where one was running.
        point: Option<Vec<u32>>,
        /// Description of the fault, with limits and found values.
        problem: String,
    },
    /// Nothing can move and not all is done.
    Deadlock {
        /// The launch's name.
        launch: String,
        /// All parties that wait.
        waiting: Vec<Waiting>,
    },
    /// Everything has ended, and blocks are left that no actor took.
    Leftover {
        /// The launch's name.
        launch: String,
        /// Where, and how many.
        left: Vec<Waiting>,
    },
    /// The program did more than [`SimulateOptions::max_units`](super::SimulateOptions) allow.
    Budget {
        /// The launch's name.
        launch: String,
        /// The limit.
        max_units: u64,
        /// All parties that had not ended.
        running: Vec<Waiting>,
    },
}

/// A party of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The core, stage end or transfer.
    pub who: String,
    /// That party, if it is a core or moves a slot.
    pub site: Site,
    /// Cause of the wait: channel with index, and how many blocks have passed.
    pub what: String,
}

/// Parties named in a message; a launch may have hundreds.
const MAX_NAMED: usize = 32;

impl SimulationFault {
    /// The launch's name; `None` where none had begun.
    pub fn launch(&self) -> Option<&str> {
        match self {
            SimulationFault::Flat(error) => Some(&error.launch),
            SimulationFault::Buffers(_) => None,
            SimulationFault::Cannot { launch, .. }
            | SimulationFault::Deadlock { launch, .. }
            | SimulationFault::Leftover { launch, .. }
            | SimulationFault::Budget { launch, .. } => Some(launch),
        }
    }

    /// The first core and the first slot of the fault.
    pub fn site(&self) -> Site {
        let parties = match self {
            SimulationFault::Flat(_) | SimulationFault::Buffers(_) => &[][..],
            SimulationFault::Cannot { site, .. } => return **site,
            SimulationFault::Deadlock { waiting, .. } => waiting,
            SimulationFault::Leftover { left, .. } => left,
            SimulationFault::Budget { running, .. } => running,
        };
        Site {
            core: parties.iter().find_map(|party| party.site.core),
            slot: parties.iter().find_map(|party| party.site.slot),
        }
    }

    /// Description of the fault, without the launch's name.
    pub fn reason(&self) -> String {
        let text = self.to_string();
        let launch = self.launch().map(|launch| format!("launch `{launch}`"));
        match launch.and_then(|launch| text.strip_prefix(&launch)) {
            None => text,
            Some(rest) => match rest.strip_prefix(", ") {
                Some(rest) => rest.to_owned(),
                None => format!("it{rest}"),
            },
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.who, self.what)
    }
}

impl fmt::Display for SimulationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulationFault::Flat(error) => error.fmt(f),
            SimulationFault::Buffers(problem) => f.write_str(problem),
            SimulationFault::Cannot {
                launch,
                place,
                point,
                problem,
                ..
            } => {
                write!(f, "launch `{launch}`, {place}")?;
                if let Some(point) = point
                    && !point.is_empty()
                {
                    write!(f, ", grid point {point:?}")?;
                }
                write!(f, ": {problem}")
            }
            SimulationFault::Deadlock { launch, waiting } => {
                write!(f, "launch `{launch}` is deadlocked")?;
                list(f, waiting)
            }
            SimulationFault::Leftover { launch, left } => {
                write!(f, "launch `{launch}` ended with blocks left over")?;
                list(f, left)
            }
            SimulationFault::Budget {
                launch,
                max_units,
                running,
            } => {
                write!(
                    f,
                    "launch `{launch}` did not end within {max_units} units of work; raise the limit if it is a long program"
                )?;
                list(f, running)
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, parties: &[Waiting]) -> fmt::Result {
    for (i, party) in parties.iter().take(MAX_NAMED).enumerate() {
        write!(f, "{} {party}", if i == 0 { ":" } else { ";" })?;
    }
    match parties.len().saturating_sub(MAX_NAMED) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

impl std::error::Error for SimulationFault {}

impl From<FlatError> for SimulationFault {
    fn from(error: FlatError) -> SimulationFault {
        SimulationFault::Flat(error)
    }
}
