//! Executors of programs on a virtual NPU2.

use crate::lower::program_of;
use millrace_plan::PlannedProgram;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_silicon::WordsError;
use millrace_xdna2_silicon::device::program_words;

/// Executor of programs on a virtual NPU2. Times and bytes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArraySimulator {
    /// Tile programs are executed.
    #[default]
    Tiles,
    /// They are lowered to words, which the board executes behind the driver's kernel in software.
    Words,
}

impl ArraySimulator {
    /// All of them, the default first.
    pub const ALL: [ArraySimulator; 2] = [ArraySimulator::Tiles, ArraySimulator::Words];

    /// The name by which it is chosen.
    pub fn name(self) -> &'static str {
        match self {
            ArraySimulator::Tiles => "tiles",
            ArraySimulator::Words => "words",
        }
    }

    /// Its description, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            ArraySimulator::Tiles => "tile programs as they are",
            ArraySimulator::Words => {
                "tile programs as words of registers, on the board behind the driver amdxdna; slower"
            }
        }
    }

    /// How it executes a program, in words for people; `None` for the default.
    pub(super) fn execution(self, planned: &PlannedProgram, machine: &Machine) -> Option<String> {
        if self == ArraySimulator::Tiles {
            return None;
        }
        let program = program_of(planned)?;
        Some(match program_words(program, machine) {
            Ok(launches) => {
                let n_words: usize = launches.iter().map(|launch| launch.counts.words).sum();
                format!(
                    "{n_words} words in {} streams, on the board",
                    launches.len()
                )
            }
            Err(error @ WordsError::Unsupported { .. }) => {
                format!("no words, so tiles are simulated: {error}")
            }
            Err(error @ WordsError::Refused(_)) => error.to_string(),
        })
    }
}
