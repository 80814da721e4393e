//! From a tile program to transaction streams.
//!
//! The order of a stream: cores are held, channels reset, switches set, locks and descriptors written,
//! the endless tasks of memory tiles and cores pushed, cores started; then the shims' tasks with waits
//! for their tokens; at the end cores have ended, and channels are reset again.

pub(crate) mod cores;
mod memory;
pub(crate) mod places;
mod route;
pub(crate) mod shim;
mod stage;
pub(crate) mod walk;

use crate::core::CoreImage;
use millrace_xdna2_machine::program::{Flat, Program};
use millrace_xdna2_machine::streams::StreamError;
use millrace_xdna2_machine::{Machine, verify};
use millrace_xdna2_words::TxnStream;
use millrace_xdna2_words::register::BlockKind;
use millrace_xdna2_words::writer::{StreamWriter, WriterError};
use places::Places;

/// Why a program has no words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// The verifier refuses it.
    #[error("the program is refused: {0}")]
    Refused(String),
    /// This lowering has no words for it.
    #[error("launch `{launch}`, {place}: {problem}")]
    Unsupported {
        /// The launch.
        launch: String,
        /// The place in it.
        place: String,
        /// The part that has none.
        problem: String,
    },
}

/// A problem at a place, not yet of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoWords {
    pub(crate) place: String,
    pub(crate) problem: String,
}

impl NoWords {
    pub(crate) fn new(place: impl Into<String>, problem: impl Into<String>) -> NoWords {
        NoWords {
            place: place.into(),
            problem: problem.into(),
        }
    }

    /// As an error of a program.
    pub(crate) fn of_launch(self, launch: String) -> WordsError {
        WordsError::Unsupported {
            launch,
            place: self.place,
            problem: self.problem,
        }
    }
}

impl From<StreamError> for NoWords {
    fn from(error: StreamError) -> NoWords {
        NoWords::new(error.place, error.problem)
    }
}

impl From<WriterError> for NoWords {
    fn from(error: WriterError) -> NoWords {
        NoWords::new("its words", error.to_string())
    }
}

/// Resources of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordCounts {
    /// Words of the stream.
    pub words: usize,
    /// Operations of the stream.
    pub operations: usize,
    /// Descriptors of cores and memory tiles.
    pub descriptors: usize,
    /// Locks.
    pub locks: usize,
    /// Tasks of shims.
    pub shim_tasks: usize,
    /// Bytes of the shims' tasks and of the waits for their tokens.
    pub task_bytes: usize,
}

impl WordCounts {
    /// Bytes outside the tasks: they configure the array before the tasks, and quiesce it after them.
    pub fn configuration_bytes(&self) -> usize {
        self.words * 4 - self.task_bytes
    }

    /// Sum over all launches of a program.
    pub fn of(launches: &[LaunchWords]) -> WordCounts {
        let mut all = WordCounts::default();
        for LaunchWords { counts, .. } in launches {
            all.words += counts.words;
            all.operations += counts.operations;
            all.descriptors += counts.descriptors;
            all.locks += counts.locks;
            all.shim_tasks += counts.shim_tasks;
            all.task_bytes += counts.task_bytes;
        }
        all
    }
}

/// A launch with its words.
#[derive(Debug)]
pub struct LoweredLaunch<'p> {
    /// The launch, flat.
    pub flat: Flat<'p>,
    /// Its words.
    pub words: LaunchWords,
}

/// A launch as words.
#[derive(Clone, Debug)]
pub struct LaunchWords {
    /// The stream. Its arguments are the program's slots.
    pub stream: TxnStream,
    /// Where each core of the launch finds its buffers and locks.
    pub cores: Vec<CoreImage>,
    /// Its resources.
    pub counts: WordCounts,
}

/// Lowers all launches of a program.
///
/// # Errors
/// The verifier's first refusal, or the first part without words.
pub fn lower<'p>(
    program: &'p Program,
    machine: &Machine,
) -> Result<Vec<LoweredLaunch<'p>>, WordsError> {
    let lowered = verified(program, machine)?.into_iter().map(|flat| {
        let launch = flat.launch.name.clone();
        launch_words(program, flat, machine).map_err(|error| error.of_launch(launch))
    });
    lowered.collect()
}

/// The launches of a program that the verifier accepts.
pub(crate) fn verified<'p>(
    program: &'p Program,
    machine: &Machine,
) -> Result<Vec<Flat<'p>>, WordsError> {
    if let Err(refusals) = verify(program, machine) {
        let first = refusals.first().map(ToString::to_string);
        return Err(WordsError::Refused(first.unwrap_or_default()));
    }
    let flats = program.flatten();
    flats.map_err(|error| WordsError::Refused(error.to_string()))
}

fn launch_words<'p>(
    program: &'p Program,
    flat: Flat<'p>,
    machine: &Machine,
) -> Result<LoweredLaunch<'p>, NoWords> {
    let mut places = Places::new(&flat, machine)?;
    let mut writer = StreamWriter::new(8);
    for core in &places.cores {
        writer.hold(core.tile)?;
    }
    for &channel in places.channels() {
        writer.open(channel)?;
    }
    for (tile, value) in &places.cascades {
        writer.write(*tile, BlockKind::Cascade, 0, *value)?;
    }
    route::circuits(&flat, &places, &mut writer)?;
    writer.switches()?;
    for &(tile, lock, value) in &places.locks {
        writer.lock(tile, lock, value)?;
    }
    for ring in &places.rings {
        for (number, fields) in &ring.descriptors {
            writer.descriptor(ring.channel.tile, *number, fields)?;
        }
    }
    for ring in &places.rings {
        writer.push(ring.channel, ring.task())?;
    }
    writer.start_cores()?;
    let before_bytes = writer.n_bytes();
    let commands = shim::commands(program, &flat, &places)?;
    let shim_tasks = shim::write(&commands, &mut writer)?;
    let task_bytes = writer.n_bytes() - before_bytes;
    writer.quieten()?;
    let stream = writer.finish();
    let counts = WordCounts {
        words: stream.encode().len(),
        operations: stream.operations.len(),
        descriptors: places.rings.iter().map(|ring| ring.descriptors.len()).sum(),
        locks: places.locks.len(),
        shim_tasks,
        task_bytes,
    };
    let cores = std::mem::take(&mut places.cores);
    let words = LaunchWords {
        stream,
        cores,
        counts,
    };
    Ok(LoweredLaunch { flat, words })
}
